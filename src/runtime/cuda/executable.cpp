#include "runtime/cuda/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "runtime/common/kernel_status.h"
#include "runtime/common/plan_check.h"
#include "runtime/cuda/frame.h"
#include "runtime/cuda/samples.h"

namespace inkle::runtime::cuda {
namespace {

using abi::BufferDecl;
using abi::PlanBuffer;
using Kind = BufferDecl::Kind;

abi::PlanAndCode checked(abi::PlanAndCode made) {
  common::check_references(*made.plan);
  common::check_code(*made.plan, *made.code);
  return made;
}

// Generated code may assume so much of constants.
constexpr std::int64_t kConstantAlignment = 256;

// Instances of a module share one plan; beyond this, prepare steps run in every call.
constexpr common::PreparedLimits kPreparedLimits{.sets = 16, .bytes = std::int64_t{4} << 30};

}  // namespace

Executable::Executable(abi::PlanAndCode made, std::shared_ptr<Device> device,
                       ExecutableOptions options)
    : plan_(checked(made).plan),
      code_(std::move(made.code)),
      device_(std::move(device)),
      options_(options),
      sizes_(*plan_),
      facts_(*plan_) {
  const Scope scope(*device_);
  for (const abi::DeviceImage& image : code_->images) modules_.push_back(device_->load(image));
  for (const abi::KernelDecl& kernel : plan_->kernels) {
    if (!kernel.device || kernel.device->image >= modules_.size()) {
      user_error("plan {}: kernel {} has no CUDA code", plan_->name, kernel.name);
    }
    functions_.push_back(modules_[kernel.device->image]->function(*kernel.device));
  }
  status_ = static_cast<std::uint32_t*>(device_->allocate_shared(
      static_cast<std::int64_t>((plan_->steps.size() + 1) * sizeof(std::uint32_t))));
  changed_ = status_ + plan_->steps.size();
  load_constants();
  make_steps();
  plan_prepared();
}

Executable::~Executable() {
  // A device that fails now has failed before, and whoever asks it for something hears of that.
  try {
    const Scope scope(*device_);
    frames_.clear();
    modules_.clear();
    prepared_.reset();
    for (void* zeros : zeros_) device_->free(zeros);
    device_->free(constants_);
    device_->free_shared(status_);
  } catch (const Error&) {
    return;
  }
}

void Executable::load_constants() {
  std::int64_t bytes = 0;
  for (const abi::SharedBytes& c : code_->constants) {
    constant_at_.push_back(bytes);
    const auto size = static_cast<std::int64_t>(c.data.size());
    bytes += (size + kConstantAlignment - 1) / kConstantAlignment * kConstantAlignment;
  }
  if (bytes == 0) return;
  constants_ = device_->allocate(bytes);
  for (std::size_t i = 0; i < code_->constants.size(); ++i) {
    const std::span<const std::byte> data = code_->constants[i].data;
    device_->copy(static_cast<std::byte*>(constants_) + constant_at_[i], data.data(),
                  static_cast<std::int64_t>(data.size()), nullptr);
  }
  device_->synchronize(nullptr);  // streams of calls do not wait for this one
}

void Executable::plan_prepared() {
  // One block for all: what reads no weight is made with the rest.
  prepared_group_ =
      common::merged(common::plan_prepared(*plan_, facts_, sizes_, kConstantAlignment));
  for (const auto& weight : prepared_group_.weights) watched_.push_back(weight.tensor);
  for (const std::uint32_t step : prepared_group_.steps) steps_[step].is_prepare = true;
  sample_bytes_ = static_cast<std::int64_t>(
      watched_.size() * (sizeof(SampledMemory) + kSamples * sizeof(std::uint32_t)));
  prepared_ = std::make_unique<common::PreparedSets>(
      prepared_group_.bytes, kPreparedLimits,
      [this](std::int64_t bytes) { return make_block(bytes); });
}

// For a set of prepared weights and their samples.
std::shared_ptr<std::byte> Executable::make_block(std::int64_t bytes) const {
  // Results may have no elements; the driver gives no memory of no bytes.
  void* const made = device_->try_allocate(std::max<std::int64_t>(bytes + sample_bytes_, 1));
  if (made == nullptr) return nullptr;
  return {static_cast<std::byte*>(made), [this](std::byte* block) {
            try {
              device_->free(block);
            } catch (const Error&) {  // as in the destructor
              return;
            }
          }};
}

namespace {

// The whole words from the first to the last element, nothing of a tensor of the CPU.
SampledMemory sampled_memory(const abi::TensorView& v) {
  if (v.device.kind == abi::DeviceKind::cpu) return {};
  std::int64_t last = 0;
  for (std::int32_t d = 0; d < v.rank; ++d) {
    if (v.sizes[d] == 0) return {};
    last += (v.sizes[d] - 1) * v.strides[d];
  }
  const auto begin = reinterpret_cast<std::uint64_t>(v.data);
  const std::uint64_t end = begin + static_cast<std::uint64_t>((last + 1) * abi::size_of(v.dtype));
  const std::uint64_t first = (begin + 3) / 4 * 4;
  return {first, end > first ? (end - first) / 4 : 0};
}

}  // namespace

Executable::PreparedPlace Executable::place_prepared(const Weights& weights, bool may_be_made) {
  const std::lock_guard lock(mutex_);
  if (may_be_made) take_changes();
  const common::PreparedSets::Place results = prepared_->place(weights, may_be_made);
  if (results.memory == nullptr) return {};
  std::byte* const behind = results.memory + prepared_group_.bytes;
  const auto count = static_cast<std::uint32_t>(watched_.size());
  return {results, SampleJob{behind, count, behind + count * sizeof(SampledMemory), changed_}};
}

void Executable::take_changes() {
  if (*static_cast<volatile const std::uint32_t*>(changed_) == 0) [[likely]]
    return;
  *changed_ = 0;
  prepared_->outdate();
  warn("weights that changed unseen",
       "weights of {} were written without a new version (through .data, for instance): their "
       "prepared results are recomputed; calls before this one may have used outdated ones",
       plan_->name);
}

void Executable::note_prepared(const common::Call& call, const Weights& weights,
                               const PreparedPlace& place, Stream stream) {
  std::vector<SampledMemory> table;
  for (const std::uint32_t t : watched_) table.push_back(sampled_memory(call.tensors[t]));
  device_->copy(const_cast<void*>(place.samples.table), table.data(),
                static_cast<std::int64_t>(table.size() * sizeof(SampledMemory)), stream);
  device_->sample(place.samples, true, stream);
  device_->synchronize(stream);  // calls on other streams do not wait for this one
  const std::lock_guard lock(mutex_);
  prepared_->note(weights);
}

bool Executable::is_prepared(const common::Call& call) {
  if (!has_prepared()) return true;
  Weights weights;
  identify(call, weights);
  const std::lock_guard lock(mutex_);
  take_changes();
  return !prepared_->is_outdated(weights);
}

namespace {

// Captured graphs with zeros of their own; later ones begin by making them.
constexpr std::size_t kMostCaptures = 64;

}  // namespace

void* Executable::zeros_of_capture(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!has_next_ || next_bytes_ < bytes) return nullptr;
  has_next_ = false;
  return zeros_.back();
}

void Executable::expect_capture(std::int64_t bytes, Stream stream) {
  const std::lock_guard lock(mutex_);
  if (has_next_ && next_bytes_ >= bytes) return;
  if (!has_next_ && zeros_.size() == kMostCaptures) return;
  if (has_next_) {
    device_->free(zeros_.back());
    zeros_.pop_back();
  }
  has_next_ = false;
  void* const made = device_->try_allocate(bytes);
  if (made == nullptr) return;
  device_->zero(made, bytes, stream);
  device_->synchronize(stream);  // captured graphs are replayed on any stream
  zeros_.push_back(made);
  next_bytes_ = bytes;
  has_next_ = true;
}

void Executable::make_steps() {
  is_of_device_.assign(plan_->buffers.size(), false);
  is_of_host_.assign(plan_->buffers.size(), false);
  is_shared_.assign(plan_->buffers.size(), false);
  for (std::size_t b = 0; b < plan_->buffers.size(); ++b) {
    if (facts_.roots[b] != b) is_shared_[facts_.roots[b]] = true;
  }
  for (const abi::PlanOutput& o : plan_->outputs) {
    if (o.kind == abi::PlanOutput::Kind::buffer) is_shared_[facts_.roots[o.index]] = true;
  }
  for (const abi::PlanStep& s : plan_->steps) {
    BoundStep step;
    if (const auto* launch = std::get_if<abi::Launch>(&s.action)) {
      make_launch(*launch, step);
    } else if (const auto* call = std::get_if<abi::LibraryCall>(&s.action)) {
      make_call(*call, step);
    } else if (const auto* eager = std::get_if<abi::EagerCall>(&s.action)) {
      step.kind = BoundStep::Kind::eager;
      step.eager = eager;
      for (const abi::EagerArgument& a : eager->arguments) {
        if (a.kind == abi::EagerArgument::Kind::slot) continue;
        is_of_host_[facts_.roots[a.part ? a.part->buffer : a.index]] = true;
      }
    } else {
      common::refuse_nested(*plan_, s);
      step.kind = BoundStep::Kind::copy;
      step.copy = &std::get<abi::CopyStep>(s.action);
      for (const PlanBuffer b : {step.copy->from, step.copy->to})
        is_of_host_[facts_.roots[b]] = true;
    }
    for (const PlanBuffer b : step.buffers) is_of_device_[b] = true;
    for (const PlanBuffer b : step.mapped) is_of_device_[b] = true;
    if (step.call) {
      abi::for_each_operand(*step.call,
                            [&](const abi::Operand& o) { is_of_device_[o.buffer] = true; });
    }
    steps_.push_back(std::move(step));
  }
}

bool Executable::is_left_to_host(PlanBuffer root) const {
  if (is_of_device_[root]) return false;
  for (std::size_t b = 0; b < plan_->buffers.size(); ++b) {
    if (b != root && facts_.roots[b] == root) return false;
  }
  return std::ranges::none_of(plan_->steps, [&](const abi::PlanStep& s) {
    if (const auto* copy = std::get_if<abi::CopyStep>(&s.action)) {
      return copy->from == root || copy->to == root;
    }
    const auto* eager = std::get_if<abi::EagerCall>(&s.action);
    return eager != nullptr && std::ranges::any_of(eager->arguments, [&](const auto& a) {
             return a.part && facts_.roots[a.part->buffer] == root;
           });
  });
}

void Executable::make_launch(const abi::Launch& launch, BoundStep& step) {
  const abi::DeviceKernel& kernel = *plan_->kernels[launch.kernel].device;
  step.kind = BoundStep::Kind::launch;
  step.launch = &launch;
  step.function = functions_[launch.kernel];
  step.shape.threads = static_cast<std::uint32_t>(kernel.block_threads);
  step.shape.shared_bytes = static_cast<std::uint32_t>(kernel.shared_bytes);
  step.shape.early = kernel.waits && kernel.cluster_blocks == 1;
  step.shape.co_resident = kernel.co_resident;
  step.has_workspace = kernel.has_workspace;
  step.can_fail = kernel.can_fail;
  for (const PlanBuffer b : launch.buffers) step.buffers.push_back(facts_.roots[b]);
  for (const abi::TensorMap& m : launch.maps) step.mapped.push_back(facts_.roots[m.buffer]);
}

void Executable::make_call(const abi::LibraryCall& call, BoundStep& step) const {
  step.call = call;
  abi::for_each_operand(*step.call, [&](abi::Operand& o) { o.buffer = facts_.roots[o.buffer]; });
  if (std::holds_alternative<abi::MatmulCall>(call)) {
    step.kind = BoundStep::Kind::matmul;
  } else if (std::holds_alternative<abi::ConvolutionCall>(call)) {
    step.kind = BoundStep::Kind::convolution;
  } else {
    step.kind = BoundStep::Kind::attention;
  }
}

std::unique_ptr<Frame> Executable::take_frame() {
  return frames_.take_or([this] { return std::make_unique<Frame>(*this); });
}

void Executable::run_with(const common::Call& call, double* microseconds) {
  facts_.check_counts(*plan_, call);
  auto* host = dynamic_cast<DeviceHost*>(call.host);
  INKLE_CHECK(host != nullptr, "a CUDA plan needs a DeviceHost");
  throw_failures();
  const Scope scope(*device_);
  // A frame that an exception left halfway is dropped, not given back.
  std::unique_ptr<Frame> frame = take_frame();
  frame->run(call, *host, microseconds);
  frames_.give_back(std::move(frame));
}

// What kernels of earlier calls have reported.
void Executable::throw_failures() {
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    if (!steps_[s].can_fail) continue;
    const auto status =
        static_cast<abi::KernelStatus>(*static_cast<volatile const std::uint32_t*>(&status_[s]));
    if (status == abi::KernelStatus::ok) [[likely]]
      continue;
    std::fill_n(status_, steps_.size(), 0U);
    common::throw_status(status, *plan_, plan_->steps[s]);
  }
}

bool Executable::is_given_alone(PlanBuffer root) const {
  const BufferDecl& decl = plan_->buffers[root];
  return decl.kind == Kind::argument && !plan_->arguments[decl.index].is_written &&
         !is_of_host_[root];
}

std::string Executable::why_not_captured() const {
  if (steps_.empty()) return "nothing is launched";
  for (const BoundStep& step : steps_) {
    // A captured graph returns copies, or views of copies of arguments.
    if (step.eager != nullptr &&
        (step.eager->name == "inkle::view" || step.eager->name == "aten::as_strided")) {
      return "an op in eager makes a view of an argument";
    }
  }
  for (std::size_t b = 0; b < plan_->buffers.size(); ++b) {
    const BufferDecl& decl = plan_->buffers[b];
    // CPU constants that kernels read are uploaded once, those of ops in eager by the op; CPU
    // arguments other than weights are copied by the caller that captures the graph.
    const BufferDecl& root = plan_->buffers[facts_.roots[b]];
    const bool is_argument =
        is_given_alone(facts_.roots[b]) && !plan_->arguments[root.index].is_parameter;
    const bool is_held = is_argument || (decl.kind == Kind::constant && !is_of_host_[b]);
    if (decl.device.kind == abi::DeviceKind::cpu && !is_held) {
      return fmt::format("{} is a CPU tensor", decl.name);
    }
  }
  return {};
}

void Executable::run(const common::Call& call) { run_with(call, nullptr); }

std::vector<double> Executable::run_profiled(const common::Call& call) {
  std::vector<double> microseconds(steps_.size(), 0);
  run_with(call, microseconds.data());
  throw_failures();
  return microseconds;
}

common::MemoryReport Executable::memory() const {
  common::MemoryReport report =
      frames_.latest(common::MemoryReport(), [](const Frame& frame) { return frame.memory(); });
  report.prepared_bytes = prepared_->bytes();
  return report;
}

std::string Executable::implementation(std::size_t step) const {
  if (step >= steps_.size()) return {};
  return frames_.latest(std::string(),
                        [&](const Frame& frame) { return frame.implementation(step); });
}

}  // namespace inkle::runtime::cuda
