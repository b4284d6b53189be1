#include "runtime/cpu/executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "abi/arena.h"
#include "base/error.h"
#include "runtime/cpu/frame.h"

namespace inkle::runtime::cpu {
namespace {

using abi::BufferDecl;
using abi::PlanBuffer;
using Kind = BufferDecl::Kind;

// More instances than a model has of one module; a search through all takes well below 1 us.
constexpr std::size_t kMostPreparedSets = 128;

bool is_weight(const abi::LibraryCall& call) {
  if (const auto* m = std::get_if<abi::MatmulCall>(&call)) return m->b_is_weight;
  const auto* c = std::get_if<abi::ConvolutionCall>(&call);
  return c != nullptr && c->w_is_weight;
}

abi::PlanAndCode checked(abi::PlanAndCode made) {
  check_references(*made.plan);
  common::check_code(*made.plan, *made.code);
  return made;
}

}  // namespace

Executable::Executable(abi::PlanAndCode made, ExecutableOptions options)
    : plan_(checked(made).plan),
      code_(std::move(made.code)),
      options_(std::move(options)),
      sizes_(*plan_),
      facts_(*plan_),
      weights_(options_.packed_weights_limit) {
  if (!options_.memory) options_.memory = std::make_shared<MemoryPool>();
  align_constants();
  make_steps();
  make_groups();
  if (sizes_.is_constant()) {  // what no argument can change is compiled now
    auto frame = take_frame();
    frame->prepare_ahead();
    frames_.give_back(std::move(frame));
  }
}

Executable::~Executable() = default;

// Generated code may assume cache-line alignment of constants.
void Executable::align_constants() {
  for (const abi::SharedBytes& c : code_->constants) {
    const auto bytes = static_cast<std::int64_t>(c.data.size());
    constants_.emplace_back(std::max<std::int64_t>(bytes, 1), "a constant");
    if (bytes != 0) std::memcpy(constants_.back().data(), c.data.data(), c.data.size());
    constant_data_.push_back(constants_.back().data());
  }
}

void Executable::make_steps() {
  calls_.reserve(plan_->steps.size());  // library steps point into it
  for (const abi::PlanStep& s : plan_->steps) {
    BoundStep step;
    step.prepare = s.prepare;
    if (const auto* launch = std::get_if<abi::Launch>(&s.action)) {
      step.kind = BoundStep::Kind::launch;
      step.launch = launch;
      step.function = code_->functions[launch->kernel];
      if (step.function == nullptr) {
        user_error("plan {}: kernel {} has no code", plan_->name,
                   plan_->kernels[launch->kernel].name);
      }
      step.declared = launch->buffers;
    } else if (const auto* call = std::get_if<abi::LibraryCall>(&s.action)) {
      step.kind = BoundStep::Kind::library;
      step.library = static_cast<std::uint32_t>(library_steps_.size());
      add_library_step(*call, s.source, s.prepare);
    } else if (const auto* eager = std::get_if<abi::EagerCall>(&s.action)) {
      step.kind = BoundStep::Kind::eager;
      step.eager = eager;
    } else {
      common::refuse_nested(*plan_, s);
      const auto& copy = std::get<abi::CopyStep>(s.action);
      step.kind = BoundStep::Kind::copy;
      step.declared = {copy.from, copy.to};
    }
    for (const PlanBuffer b : step.declared) step.buffers.push_back(facts_.roots[b]);
    steps_.push_back(std::move(step));
  }
}

void Executable::add_library_step(const abi::LibraryCall& call, const std::string& source,
                                  bool prepare) {
  calls_.push_back(call);
  abi::for_each_operand(calls_.back(), [&](abi::Operand& o) { o.buffer = facts_.roots[o.buffer]; });
  library_steps_.push_back(std::make_unique<LibraryStep>(calls_.back(), source, false));
  if (prepare || !is_weight(call)) return;  // a packed copy for a single use would be a waste
  const BufferDecl& weights = plan_->buffers[library_steps_.back()->weights_buffer()];
  const bool is_parameter =
      weights.kind == Kind::argument && plan_->arguments[weights.index].is_parameter;
  if (is_parameter || weights.kind == Kind::constant || weights.kind == Kind::prepared) {
    library_steps_.back() = std::make_unique<LibraryStep>(calls_.back(), source, true);
  }
}

void Executable::make_groups() {
  groups_ = common::plan_prepared(*plan_, facts_, sizes_, abi::kArenaAlignment);
  group_of_.assign(plan_->buffers.size(), 0);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const PreparedGroup& group = groups_[g];
    sets_.push_back(std::make_unique<PreparedSets>(
        group.bytes, common::PreparedLimits{kMostPreparedSets, options_.prepared_limit},
        [this](std::int64_t bytes) { return make_block(bytes); }));
    for (const PlanBuffer b : group.made) group_of_[b] = static_cast<std::uint32_t>(g);
    for (const PreparedGroup::Weight& w : group.weights) watched_.push_back(w.tensor);
  }
  for (const auto& step : library_steps_) {
    const BufferDecl& weights = plan_->buffers[step->weights_buffer()];
    if (!step->has_stable_weights() || weights.kind != Kind::argument) continue;
    watched_.push_back(static_cast<std::uint32_t>(facts_.tensor_number[weights.index]));
  }
  std::sort(watched_.begin(), watched_.end());
  watched_.erase(std::unique(watched_.begin(), watched_.end()), watched_.end());
}

// For a set of prepared weights; packed copies of what lies in it go with it.
std::shared_ptr<std::byte> Executable::make_block(std::int64_t bytes) const {
  const auto block =
      std::make_shared<Block>(std::max<std::int64_t>(bytes, 1), "what is derived from weights");
  return {block->data(),
          [this, block](std::byte* begin) { weights_.forget(begin, begin + block->bytes()); }};
}

// Idle frames let go of prepared sets that have been replaced or dropped.
void Executable::release_outdated() const {
  frames_.for_each([](Frame& frame) { frame.release_outdated(); });
}

std::unique_ptr<Frame> Executable::take_frame() {
  return frames_.take_or([this] { return std::make_unique<Frame>(*this); });
}

void Executable::run_with(const Call& call, double* microseconds) {
  facts_.check_counts(*plan_, call);
  // A frame that an exception left halfway is dropped, not given back.
  std::unique_ptr<Frame> frame = take_frame();
  try {
    frame->run(call, microseconds);
  } catch (const std::bad_alloc&) {
    throw OutOfMemory("out of memory in plan " + plan_->name);
  }
  frames_.give_back(std::move(frame));
}

void Executable::run(const Call& call) { run_with(call, nullptr); }

std::vector<double> Executable::run_profiled(const Call& call) {
  std::vector<double> microseconds(steps_.size(), 0);
  run_with(call, microseconds.data());
  return microseconds;
}

MemoryReport Executable::memory() const {
  MemoryReport report =
      frames_.latest(MemoryReport(), [](const Frame& frame) { return frame.memory(); });
  report.packed_weight_bytes = weights_.bytes();
  for (const auto& sets : sets_) report.prepared_bytes += sets->bytes();
  return report;
}

std::string Executable::implementation(std::size_t step) const {
  if (step >= steps_.size() || steps_[step].kind != BoundStep::Kind::library) return {};
  return frames_.latest(std::string(), [&](const Frame& frame) {
    const auto& compiled = frame.library_state(steps_[step].library).compiled;
    return compiled && compiled->primitive ? compiled->primitive->implementation() : std::string();
  });
}

}  // namespace inkle::runtime::cpu
