#include "runtime/cuda/frame.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "abi/arena.h"
#include "base/error.h"
#include "runtime/common/plan_bounds.h"
#include "runtime/cuda/convolution.h"

namespace inkle::runtime::cuda {
namespace {

using abi::BufferDecl;
using abi::PlanBuffer;
using common::HostTensor;
using Kind = BufferDecl::Kind;

std::int64_t round_up(std::int64_t bytes) { return round_up_to(kMemoryAlignment, bytes); }

}  // namespace

Frame::Frame(Executable& executable)
    : common::Frame(*executable.plan_, executable.facts_, executable.sizes_),
      executable_(executable),
      device_(*executable.device_),
      states_(executable.steps_.size()),
      released_(executable.steps_.size()) {
  for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
    const BufferDecl& decl = plan_.buffers[b];
    if (decl.kind == Kind::external && decl.last_use < released_.size()) {
      released_[decl.last_use].push_back(static_cast<PlanBuffer>(b));
    }
    if (decl.kind == Kind::constant) {
      buffers_[b] =
          static_cast<std::byte*>(executable.constants_) + executable.constant_at_[decl.index];
    }
  }
  find_uploads();
}

Frame::~Frame() {
  for (const Event event : events_) device_.free_event(event);
}

void Frame::run(const common::Call& call, DeviceHost& host, double* microseconds) {
  host_ = &host;
  clones_.clear();
  free_list_.clear();
  for (Upload& u : uploads_) u.is_done = false;
  has_copies_ = call.has_device_copies;
  // Liveness does not cover prepare steps; no backward graph has any.
  const bool gives = call.donates_arguments && !executable_.has_prepared();
  is_fresh_ = is_fresh_ || donates_arguments_ != gives;
  donates_arguments_ = gives;
  stream_ = host.stream();
  while (microseconds != nullptr && events_.size() < 2 * states_.size()) {
    events_.push_back(device_.make_event());
  }
  common::Frame::run(call, microseconds);
}

bool Frame::allocates_outputs_first() const { return !donates_arguments_ || plan_.steps.empty(); }

void Frame::execute_step(std::size_t number) {
  if (!has_arena_ && number >= arena_first_) bind_arena();
  if (donates_arguments_) allocate_before(number);
  run_timed(number);
  if (donates_arguments_) release_after(number);
}

void Frame::finish() {
  if (!has_arena_) bind_arena();
  for (const Clone& c : clones_) {
    if (c.is_written) device_.copy(c.original, c.copy, c.bytes, stream_);
  }
  if (microseconds_ != nullptr) read_times();
}

// Runs the prepare steps if their results are outdated; else samples the weights on the device to
// detect a change. Prepare steps read no results of other steps.
void Frame::prepare(const common::Call& call) {
  if (!executable_.has_prepared()) return;
  if (prepared_.results.is_current) {
    device_.sample(prepared_.samples, false, stream_);
    return;
  }
  if (prepared_.results.is_stale) {
    device_.synchronize_all();
    *executable_.changed_ = 0;  // of what is made anew now
  }
  for (std::size_t s = 0; s < states_.size(); ++s) {
    if (executable_.steps_[s].is_prepare) run_timed(s);
  }
  if (prepared_.results.memory == nullptr) return;
  executable_.note_prepared(call, weights_, prepared_, stream_);
}

void Frame::run_timed(std::size_t number) {
  const common::ObservedStep observed(observer_, number);
  if (microseconds_ != nullptr) device_.record(events_[2 * number], stream_);
  run_step(number);
  if (microseconds_ != nullptr) device_.record(events_[2 * number + 1], stream_);
}

void Frame::read_times() {
  for (std::size_t s = 0; s < states_.size(); ++s) {
    if (executable_.steps_[s].is_prepare && prepared_.results.is_current) continue;
    microseconds_[s] = device_.microseconds(events_[2 * s], events_[2 * s + 1]);
  }
}

void Frame::plan_allocations() {
  step_allocations_.clear();
  if (!donates_arguments_) return;
  std::vector<std::int64_t> bytes;
  for (const BufferDecl& decl : plan_.buffers) bytes.push_back(slots_[decl.bytes]);
  std::vector<bool> is_kept = facts_.has_alias;
  for (const abi::PlanOutput& o : plan_.outputs) {
    using Output = abi::PlanOutput::Kind;
    if (o.kind == Output::buffer) is_kept[facts_.roots[o.index]] = true;
    if (o.kind != Output::argument) continue;
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
      const BufferDecl& decl = plan_.buffers[b];
      if (decl.kind == Kind::argument && decl.index == o.index) is_kept[b] = true;
    }
  }
  step_allocations_ = cuda::plan_allocations(plan_, facts_.roots, bytes, is_kept);
  temporaries_.assign(plan_.buffers.size(), {});
}

void Frame::allocate_before(std::size_t step) {
  for (const PlanBuffer b : step_allocations_[step].allocated) {
    const BufferDecl& decl = plan_.buffers[b];
    if (decl.kind == Kind::output) {
      make_output(b);
      continue;
    }
    const std::int64_t size = round_up(slots_[decl.bytes]), stride = 1;
    const auto free = std::find_if(free_list_.rbegin(), free_list_.rend(),
                                   [&](const Allocation& a) { return a.bytes == size; });
    if (free != free_list_.rend()) {
      temporaries_[b] = *free;
      free_list_.erase(std::next(free).base());
    } else {
      const HostTensor made = host_->make_output(abi::DType::u8, {&size, 1}, {&stride, 1});
      temporaries_[b] = {made.handle, made.view.data, size};
    }
    buffers_[b] = temporaries_[b].data;
  }
}

void Frame::release_after(std::size_t step) {
  for (const PlanBuffer b : step_allocations_[step].freed) {
    if (plan_.buffers[b].kind == Kind::argument) {
      const std::int32_t number = facts_.tensor_number[plan_.buffers[b].index];
      host_->release_argument(static_cast<std::uint32_t>(number));
    } else {
      free_list_.push_back(temporaries_[b]);
    }
    buffers_[b] = nullptr;
  }
}

void Frame::plan_arena() {
  plan_allocations();
  donor_ = static_cast<PlanBuffer>(plan_.buffers.size());
  for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
    const BufferDecl& decl = plan_.buffers[b];
    if (decl.kind != Kind::output || is_on_host(decl) || donates_arguments_) continue;
    if (donor_ == plan_.buffers.size() || slots_[decl.bytes] > slots_[plan_.buffers[donor_].bytes])
      donor_ = static_cast<PlanBuffer>(b);
  }
  const bool has_donor = donor_ < plan_.buffers.size();
  // Aliases write into the output, too.
  std::uint32_t written = has_donor ? plan_.buffers[donor_].first_use : 0;
  for (std::size_t b = 0; b < plan_.buffers.size() && has_donor; ++b) {
    if (facts_.roots[b] != donor_) continue;
    written = std::min(written, plan_.buffers[b].first_use);
  }
  std::vector<abi::Lifetime> early, late;
  arena_.clear();
  in_output_.clear();
  for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
    const BufferDecl& decl = plan_.buffers[b];
    if (decl.kind != Kind::arena) continue;
    const std::int64_t bytes = slots_[decl.bytes];
    if (bytes < 0) user_error("plan {}: buffer {} has {} bytes", plan_.name, decl.name, bytes);
    if (donates_arguments_ && bytes >= kLeastAllocation && !is_on_host(decl)) continue;
    // Rounded up, so that all start at multiples of what a library likes best.
    const abi::Lifetime lifetime{round_up(bytes), decl.first_use, decl.last_use};
    const bool is_early = has_donor && lifetime.last < written;
    (is_early ? in_output_ : arena_).emplace_back(static_cast<PlanBuffer>(b), 0);
    (is_early ? early : late).push_back(lifetime);
  }
  abi::ArenaLayout layout = abi::assign_offsets(early);
  if (has_donor && layout.bytes > slots_[plan_.buffers[donor_].bytes]) {
    arena_.insert(arena_.end(), in_output_.begin(), in_output_.end());
    late.insert(late.end(), early.begin(), early.end());
    in_output_.clear();
  }
  for (std::size_t i = 0; i < in_output_.size(); ++i) in_output_[i].second = layout.offsets[i];
  layout = abi::assign_offsets(late);
  for (std::size_t i = 0; i < arena_.size(); ++i) arena_[i].second = layout.offsets[i];
  arena_bytes_ = round_up(layout.bytes);
  arena_first_ = ~std::uint32_t{0};
  for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
    const auto is_here = [&](const auto& placed) { return placed.first == facts_.roots[b]; };
    if (!std::any_of(arena_.begin(), arena_.end(), is_here)) continue;
    arena_first_ = std::min(arena_first_, plan_.buffers[b].first_use);
  }
}

// Everything that follows from the slots.
void Frame::plan_shapes() {
  if (executable_.options_.check_bounds) common::check_bounds(plan_, facts_, slots_);
  plan_arena();
  plan_uploads();
  kernel_bytes_ = 0;
  needs_workspace_ = false;
  std::vector<ConvolutionShape> convolutions;
  for (std::size_t s = 0; s < states_.size(); ++s) {
    const Executable::BoundStep& step = executable_.steps_[s];
    if (step.kind == Executable::BoundStep::Kind::launch) plan_launch(s);
    if (step.kind == Executable::BoundStep::Kind::matmul) {
      states_[s].gemm_plan = plan_gemm(std::get<abi::MatmulCall>(*step.call), slots_);
      states_[s].gemm.reset();
      states_[s].padded_rows = padded_rows(*states_[s].gemm_plan);
      needs_workspace_ = true;
    }
    if (step.kind == Executable::BoundStep::Kind::convolution &&
        device_.convolutions() != nullptr) {
      states_[s].convolution_shape = plan_convolution(std::get<abi::ConvolutionCall>(*step.call),
                                                      slots_, !host_->has_convolutions());
      states_[s].convolution.reset();
      if (states_[s].convolution_shape) convolutions.push_back(*states_[s].convolution_shape);
    }
  }
  needs_workspace_ = needs_workspace_ || !convolutions.empty();
  if (!convolutions.empty()) device_.convolutions()->prepare(convolutions);
}

void Frame::plan_launch(std::size_t number) {
  const Executable::BoundStep& step = executable_.steps_[number];
  State& state = states_[number];
  const std::int64_t blocks = slots_[step.launch->extent];
  constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;
  if (blocks > kMostBlocks) unsupported("a kernel with {} blocks", blocks);
  state.blocks = static_cast<std::uint32_t>(std::max<std::int64_t>(blocks, 0));
  state.values.resize(step.buffers.size());
  state.sizes.clear();
  for (const abi::Slot s : step.launch->sizes) state.sizes.push_back(slots_[s]);
  state.status = executable_.status_ + number;
  state.parameters.clear();
  if (step.launch->instances() > 1) {
    plan_table(*step.launch, state);
  } else {
    for (void*& value : state.values) state.parameters.push_back(&value);
    for (std::int64_t& size : state.sizes) state.parameters.push_back(&size);
  }
  const std::size_t maps = step.mapped.size();
  state.maps.resize(maps);
  state.mapped.assign(maps, nullptr);
  state.map_shapes.clear();
  for (const abi::TensorMap& m : step.launch->maps) {
    state.map_shapes.push_back(shape_of(m, slots_));
  }
  for (EncodedMap& map : state.maps) state.parameters.push_back(&map);
  if (step.shape.co_resident && state.blocks > 0) {
    const std::int64_t most = device_.resident_blocks(step.function, step.shape);
    if (state.blocks > most) {
      unsupported("kernel {}: {} blocks that wait for each other, the device holds {} at once",
                  plan_.kernels[step.launch->kernel].name, blocks, most);
    }
  }
  if (step.has_workspace) {
    kernel_bytes_ = std::max(kernel_bytes_, round_up(slots_[step.launch->scratch_bytes]));
    state.parameters.push_back(&state.scratch);
  }
  state.parameters.push_back(&state.status);
}

// The structure that a kernel over a table takes (abi/plan.h); the addresses are filled in by each
// launch.
void Frame::plan_table(const abi::Launch& launch, State& state) const {
  state.table.assign(state.values.size() + state.sizes.size() + launch.instances() / 2 + 1, 0);
  std::copy(state.sizes.begin(), state.sizes.end(),
            state.table.begin() + static_cast<std::ptrdiff_t>(state.values.size()));
  auto* first = reinterpret_cast<std::uint32_t*>(state.table.data() + state.values.size() +
                                                 state.sizes.size());
  for (std::size_t i = 0; i < launch.instances(); ++i) {
    first[i + 1] = first[i] + static_cast<std::uint32_t>(slots_[launch.extents[i]]);
  }
  state.parameters.push_back(state.table.data());
}

void Frame::align(const abi::PlanArgument& argument, PlanBuffer buffer) {
  const std::int64_t bytes = slots_[plan_.buffers[buffer].bytes];
  if (bytes <= 0) return;
  if (is_on_host(plan_.buffers[buffer])) {
    unsupported("argument {} on the CPU is not aligned to {} bytes", argument.name,
                argument.alignment);
  }
  const bool is_written = argument.is_written || executable_.is_of_host_[buffer];
  buffers_[buffer] = aligned_copy(buffers_[buffer], bytes, is_written);
}

void* Frame::aligned_copy(void* original, std::int64_t bytes, bool is_written) {
  void* const copy = host_->allocate(bytes);
  device_.copy(copy, original, bytes, stream_);
  clones_.push_back({copy, original, bytes, is_written});
  return copy;
}

void Frame::bind_memory(const common::Call& call) {
  const bool is_capturing = device_.is_capturing(stream_);
  is_captured_ = is_capturing;
  void* zeros = nullptr;
  if (kernel_bytes_ > 0 && kernel_bytes_ <= Device::kZeroBytes) {
    zeros = is_capturing ? executable_.zeros_of_capture(kernel_bytes_) : device_.zeros(stream_);
    if (!is_capturing) executable_.expect_capture(kernel_bytes_, stream_);
  }
  const std::int64_t cleared_bytes = zeros == nullptr ? kernel_bytes_ : 0;
  std::int64_t bytes = arena_bytes_ + upload_bytes_ + cleared_bytes;
  const std::int64_t before_workspace = bytes;
  workspace_ = nullptr;
  if (needs_workspace_) {
    // Graphs captured on one stream may be replayed on others at once: each has its own workspace.
    if (!is_capturing) workspace_ = device_.workspace(stream_);
    if (workspace_ == nullptr) bytes += Device::kWorkspaceBytes;
  }
  prepared_ = {};
  const std::int64_t before_prepared = bytes;
  if (executable_.has_prepared()) {
    executable_.identify(call, weights_);
    prepared_ = executable_.place_prepared(weights_, !is_capturing);
    if (prepared_.results.memory == nullptr) bytes += executable_.prepared_group_.bytes;
  }
  for (const auto& [buffer, offset] : in_output_) {
    buffers_[buffer] = static_cast<std::byte*>(buffers_[donor_]) + offset;
  }
  // If only the arena is needed, it is allocated at its first use: until then the host may allocate
  // and free that memory for its own results (those of its attention).
  memory_ = nullptr;
  has_arena_ = bytes == 0 || bytes != arena_bytes_;
  if (bytes != 0 && has_arena_) memory_ = static_cast<std::byte*>(host_->allocate(bytes));
  if (before_prepared > before_workspace) workspace_ = memory_ + before_workspace;
  std::byte* const kept = prepared_.results.memory;
  executable_.prepared_group_.bind(kept != nullptr ? kept : memory_ + before_prepared, buffers_);
  if (has_arena_) bind_arena();
  if (cleared_bytes > 0) {
    zeros = memory_ + arena_bytes_ + upload_bytes_;
    device_.zero(zeros, cleared_bytes, stream_);
  }
  for (State& state : states_) state.scratch = zeros;
  upload_arguments();
}

void Frame::bind_arena() {
  if (memory_ == nullptr && arena_bytes_ != 0) {
    memory_ = static_cast<std::byte*>(host_->allocate(arena_bytes_));
  }
  for (const auto& [buffer, offset] : arena_) buffers_[buffer] = memory_ + offset;
  has_arena_ = true;
}

void Frame::run_step(std::size_t number) {
  using StepKind = Executable::BoundStep::Kind;
  switch (executable_.steps_[number].kind) {
    case StepKind::launch:
      run_launch(number);
      break;
    case StepKind::matmul:
      run_matmul(number);
      break;
    case StepKind::convolution:
      run_convolution(number);
      break;
    case StepKind::attention:
      run_attention(number);
      break;
    case StepKind::eager:
      run_eager(*executable_.steps_[number].eager);
      break;
    case StepKind::copy:
      run_copy(number);
      break;
  }
  for (const PlanBuffer b : released_[number]) {
    if (handles_[b] != nullptr) host_->release(handles_[b]);
    handles_[b] = nullptr;
  }
}

void Frame::run_launch(std::size_t number) {
  const Executable::BoundStep& step = executable_.steps_[number];
  State& state = states_[number];
  if (state.blocks == 0) return;
  for (std::size_t i = 0; i < step.buffers.size(); ++i) {
    state.values[i] = on_device(step.buffers[i]);
  }
  if (!state.table.empty()) {
    std::memcpy(state.table.data(), state.values.data(), state.values.size() * sizeof(void*));
  }
  encode_maps(number);
  LaunchShape shape = step.shape;
  shape.blocks = state.blocks;
  // Kernels of a graph follow each other as fast, and their parameters may be set anew.
  shape.early = shape.early && !is_captured_;
  device_.launch(step.function, shape, stream_, state.parameters.data());
}

// Again only where a tensor has moved, or its sizes have changed.
void Frame::encode_maps(std::size_t number) {
  const Executable::BoundStep& step = executable_.steps_[number];
  State& state = states_[number];
  for (std::size_t m = 0; m < step.mapped.size(); ++m) {
    void* const at = on_device(step.mapped[m]);
    if (state.mapped[m] == at) continue;
    check_map(state.map_shapes[m], at, plan_.kernels[step.launch->kernel].name);
    device_.encode(state.maps[m], state.map_shapes[m], at);
    state.mapped[m] = at;
  }
}

abi::TensorView Frame::view_of(PlanBuffer declared) {
  const BufferDecl& decl = plan_.buffers[declared];
  const PlanBuffer root = facts_.roots[declared];
  const BufferDecl& memory = plan_.buffers[root];
  void* data = buffers_[root];
  if (is_on_host(decl) && memory.kind == Kind::constant) {
    // Read only, by calls to eager: kernels read the copy on the device.
    data = const_cast<std::byte*>(executable_.code_->constants[memory.index].data.data());
  }
  return {.data = data,
          .dtype = decl.dtype,
          .device = is_on_host(decl) ? abi::Device{}
                                     : abi::Device{abi::DeviceKind::cuda, device_.index()},
          .rank = static_cast<std::int32_t>(decl.sizes.size()),
          .sizes = values(decl.sizes),
          .strides = values(decl.strides)};
}

abi::TensorView Frame::part_of(const abi::Operand& operand) {
  const BufferDecl& decl = plan_.buffers[operand.buffer];
  // Of an argument on the CPU a copy on the device may stand for it.
  if (!is_on_host(decl) || (has_copies_ && decl.kind == Kind::argument)) {
    return device_part(operand);
  }
  const abi::TensorView whole = view_of(operand.buffer);
  return part_at(whole.data, whole.device, operand);
}

abi::TensorView Frame::device_part(const abi::Operand& operand) {
  return part_at(on_device(operand.buffer), {abi::DeviceKind::cuda, device_.index()}, operand);
}

abi::TensorView Frame::part_at(void* whole, abi::Device device, const abi::Operand& operand) {
  return {
      .data = static_cast<std::byte*>(whole) + slots_[operand.offset] * abi::size_of(operand.dtype),
      .dtype = operand.dtype,
      .device = device,
      .rank = static_cast<std::int32_t>(operand.sizes.size()),
      .sizes = values(operand.sizes),
      .strides = values(operand.strides)};
}

common::MemoryReport Frame::memory() const {
  return {.arena_bytes = arena_bytes_, .scratch_bytes = upload_bytes_ + kernel_bytes_};
}

std::string Frame::implementation(std::size_t step) const {
  const State& state = states_[step];
  if (state.gemm) return state.gemm->name();
  return state.convolution ? state.convolution->name() : std::string();
}

}  // namespace inkle::runtime::cuda
