#include "runtime/cpu/frame.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "abi/arena.h"
#include "base/error.h"
#include "base/threads.h"
#include "runtime/cpu/strided_copy.h"

namespace inkle::runtime::cpu {
namespace {

using abi::BufferDecl;
using abi::PlanBuffer;
using Kind = BufferDecl::Kind;

std::int64_t round_up(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

struct Work {
  abi::KernelFunction function;
  void* const* buffers;
  const std::int64_t* sizes;
  std::byte* scratch;
  std::int64_t stride;
  std::int64_t extent;
  std::int64_t workers;
  // Of a table: iterations before each instance and before their end; else empty.
  std::span<const std::int64_t> starts;
  std::size_t buffers_each;
  std::size_t sizes_each;
};

// Iterations [begin, end) of a table, which may be of several instances.
void run_instances(const Work& work, std::byte* scratch, std::int64_t begin, std::int64_t end) {
  const auto above = std::upper_bound(work.starts.begin(), work.starts.end(), begin);
  auto i = static_cast<std::size_t>(above - work.starts.begin()) - 1;
  while (begin < end) {
    const std::int64_t first = work.starts[i];
    const std::int64_t last = std::min(end, work.starts[i + 1]);
    if (begin < last) {
      work.function(work.buffers + i * work.buffers_each, work.sizes + i * work.sizes_each, scratch,
                    begin - first, last - first);
      begin = last;
    }
    ++i;
  }
}

// Worker w does the w-th of `workers` equal parts.
void run_workers(void* context, std::int64_t first, std::int64_t last) {
  const Work& work = *static_cast<const Work*>(context);
  const std::int64_t part = work.extent / work.workers;
  const std::int64_t more = work.extent % work.workers;
  for (std::int64_t w = first; w < last; ++w) {
    const std::int64_t begin = w * part + std::min(w, more);
    const std::int64_t end = begin + part + (w < more ? 1 : 0);
    std::byte* const scratch = work.scratch + w * work.stride;
    if (!work.starts.empty()) {
      run_instances(work, scratch, begin, end);
    } else {
      work.function(work.buffers, work.sizes, scratch, begin, end);
    }
  }
}

}  // namespace

Frame::Frame(const Executable& executable)
    : common::Frame(*executable.plan_, executable.facts_, executable.sizes_),
      executable_(executable),
      prepared_(executable.groups_.size()),
      library_(executable.library_steps_.size()) {
  std::size_t most_buffers = 0;
  std::size_t most_sizes = 0;
  for (const Executable::BoundStep& s : executable.steps_) {
    if (s.launch == nullptr) continue;
    most_buffers = std::max(most_buffers, s.buffers.size());
    most_sizes = std::max(most_sizes, s.launch->sizes.size());
  }
  launch_buffers_.resize(most_buffers);
  launch_sizes_.resize(most_sizes);
  for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
    const BufferDecl& decl = plan_.buffers[b];
    if (decl.kind == Kind::constant) buffers_[b] = executable.constant_data_[decl.index];
  }
}

void Frame::prepare_ahead() {
  static_cast<void>(sizes_.evaluate({}, {}, slots_, true));
  plan_shapes();
  is_fresh_ = false;
}

void Frame::run(const Call& call, double* microseconds) {
  call_ = &call;
  clones_.clear();
  if (!library_.empty()) magnitudes_.reset(buffers_.size());
  // The block goes back to the pool however the call ends.
  struct Lease {
    MemoryPool& pool;
    Block& block;
    ~Lease() { pool.give_back(std::exchange(block, Block())); }
  };
  const Lease lease{*executable_.options_.memory, block_};
  common::Frame::run(call, microseconds);
}

bool Frame::must_plan() const { return planned_threads_ != num_threads(); }

// Everything that follows from the slots and the number of threads.
void Frame::plan_shapes() {
  if (executable_.options_.check_bounds) common::check_bounds(plan_, facts_, slots_);
  planned_threads_ = num_threads();
  std::vector<abi::Lifetime> lifetimes;
  arena_.clear();
  for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
    const BufferDecl& decl = plan_.buffers[b];
    if (decl.kind != Kind::arena) continue;
    const std::int64_t bytes = slots_[decl.bytes];
    if (bytes < 0) user_error("plan {}: buffer {} has {} bytes", plan_.name, decl.name, bytes);
    arena_.emplace_back(static_cast<PlanBuffer>(b), 0);
    lifetimes.push_back({bytes, decl.first_use, decl.last_use});
  }
  const abi::ArenaLayout layout = abi::assign_offsets(lifetimes);
  for (std::size_t i = 0; i < arena_.size(); ++i) arena_[i].second = layout.offsets[i];
  arena_bytes_ = layout.bytes;
  bound_to_ = nullptr;

  library_bytes_ = 0;
  for (std::size_t i = 0; i < library_.size(); ++i) {
    executable_.library_steps_[i]->bind(slots_, library_[i]);
    library_bytes_ =
        std::max(library_bytes_, executable_.library_steps_[i]->scratchpad_bytes(library_[i]));
  }
  scratch_wanted_ = abi::kStatusBytes;
  starts_.resize(executable_.steps_.size());
  for (std::size_t n = 0; n < executable_.steps_.size(); ++n) {
    const Executable::BoundStep& s = executable_.steps_[n];
    if (s.launch == nullptr) continue;
    starts_[n].clear();
    for (const abi::Slot extent : s.launch->extents) {
      if (starts_[n].empty()) starts_[n].push_back(0);
      starts_[n].push_back(starts_[n].back() + std::max<std::int64_t>(slots_[extent], 0));
    }
    scratch_wanted_ = std::max(scratch_wanted_, round_up(slots_[s.launch->scratch_bytes]));
  }
}

void Frame::align(const abi::PlanArgument& argument, PlanBuffer buffer) {
  const std::int64_t bytes = slots_[plan_.buffers[buffer].bytes];
  if (bytes <= 0) return;
  Clone clone{Block(bytes, "an aligned copy of argument " + argument.name), buffers_[buffer],
              bytes};
  std::memcpy(clone.block.data(), clone.original, static_cast<std::size_t>(bytes));
  buffers_[buffer] = clone.block.data();
  clones_.push_back(std::move(clone));
}

// Only what the plan has changed: an argument that it just reads may lie in read-only memory.
void Frame::finish() {
  for (const Clone& c : clones_) {
    const auto bytes = static_cast<std::size_t>(c.bytes);
    if (std::memcmp(c.block.data(), c.original, bytes) != 0) {
      std::memcpy(c.original, c.block.data(), bytes);
    }
  }
}

void Frame::make_output(PlanBuffer buffer) {
  common::Frame::make_output(buffer);
  const std::int64_t bytes = slots_[plan_.buffers[buffer].bytes];
  if (executable_.options_.poison < 0 || bytes <= 0) return;
  std::memset(buffers_[buffer], executable_.options_.poison, static_cast<std::size_t>(bytes));
}

void Frame::bind_memory(const Call& /*call*/) {
  block_ = executable_.options_.memory->take(arena_bytes_ + library_bytes_, plan_.name);
  const int poison = executable_.options_.poison;
  if (poison >= 0 && block_.data() != nullptr) {
    std::memset(block_.data(), poison, static_cast<std::size_t>(block_.bytes()));
  }
  if (bound_to_ != block_.data() || bound_to_ == nullptr) {
    for (const auto& [buffer, offset] : arena_) buffers_[buffer] = block_.data() + offset;
    bound_to_ = block_.data();
  }
  bind_scratch();
}

void Frame::bind_scratch() {
  const int poison = executable_.options_.poison;
  threads_ = num_threads();
  const std::int64_t wanted = scratch_wanted_ * threads_;
  if (scratch_.bytes() < wanted || scratch_stride_ != scratch_wanted_) {
    scratch_ = Block();
    scratch_ = Block(wanted, "scratch of kernels");
    scratch_stride_ = scratch_wanted_;
    for (int t = 0; t < threads_; ++t) {
      std::memset(scratch_.data() + t * scratch_stride_, 0, abi::kStatusBytes);
    }
  }
  if (poison >= 0) {
    for (int t = 0; t < threads_; ++t) {
      std::memset(scratch_.data() + t * scratch_stride_ + abi::kStatusBytes, poison,
                  static_cast<std::size_t>(scratch_stride_ - abi::kStatusBytes));
    }
  }
}

void Frame::run_step(std::size_t number) {
  const Executable::BoundStep& step = executable_.steps_[number];
  if (!library_.empty()) {
    for (const PlanBuffer b : step.buffers) magnitudes_.forget(b);
  }
  switch (step.kind) {
    case Executable::BoundStep::Kind::launch:
      run_launch(number);
      break;
    case Executable::BoundStep::Kind::library:
      run_library(step);
      break;
    case Executable::BoundStep::Kind::eager:
      run_eager(*step.eager);
      break;
    case Executable::BoundStep::Kind::copy:
      run_copy(step);
      break;
  }
}

void Frame::run_launch(std::size_t number) {
  const Executable::BoundStep& step = executable_.steps_[number];
  const abi::Launch& launch = *step.launch;
  const std::int64_t extent = slots_[launch.extent];
  if (extent <= 0) return;
  for (std::size_t i = 0; i < step.buffers.size(); ++i) {
    launch_buffers_[i] = buffers_[step.buffers[i]];
  }
  for (std::size_t i = 0; i < launch.sizes.size(); ++i) launch_sizes_[i] = slots_[launch.sizes[i]];
  const std::int64_t grain = std::max<std::int64_t>(1, slots_[launch.grain]);
  Work work{step.function,
            launch_buffers_.data(),
            launch_sizes_.data(),
            scratch_.data(),
            scratch_stride_,
            extent,
            std::clamp<std::int64_t>(extent / grain, 1, threads_),
            starts_[number],
            step.buffers.size() / launch.instances(),
            launch.sizes.size() / launch.instances()};
  if (work.workers == 1) {
    run_workers(&work, 0, 1);
  } else {
    parallel_run(run_workers, &work, 0, work.workers, 1);
  }
  for (std::int64_t w = 0; w < work.workers; ++w) {
    std::int64_t status = 0;
    std::memcpy(&status, scratch_.data() + w * scratch_stride_, sizeof status);
    if (status != 0) [[unlikely]] {
      common::throw_status(static_cast<abi::KernelStatus>(status), plan_, plan_.steps[number]);
    }
  }
}

void Frame::run_library(const Executable::BoundStep& step) {
  const LibraryStep& library = *executable_.library_steps_[step.library];
  const BufferDecl& weights = plan_.buffers[library.weights_buffer()];
  std::int64_t version = 0;
  bool is_sampled = true;
  if (weights.kind == Kind::prepared) {
    // A prepare step's own weights are packed anew: its set is not bound yet.
    const auto& set = prepared_[executable_.group_of_[library.weights_buffer()]];
    version = set ? set->generation() : 0;
    is_sampled = false;
  } else if (weights.kind == Kind::argument && !call_->versions.empty()) {
    version = call_->versions[static_cast<std::size_t>(facts_.tensor_number[weights.index])];
  }
  std::byte* const workspace = block_.data() == nullptr ? nullptr : block_.data() + arena_bytes_;
  library.run(buffers_, slots_, library_[step.library], workspace, executable_.weights_, version,
              is_sampled, magnitudes_);
}

void Frame::run_copy(const Executable::BoundStep& step) {
  const BufferDecl& from = plan_.buffers[step.declared[0]];
  const BufferDecl& to = plan_.buffers[step.declared[1]];
  const std::int64_t* sizes = values(to.sizes);
  strided_copy({sizes, to.sizes.size()}, abi::size_of(to.dtype), buffers_[step.buffers[0]],
               {values(from.strides), from.strides.size()}, buffers_[step.buffers[1]],
               {values(to.strides), to.strides.size()});
}

abi::TensorView Frame::view_of(PlanBuffer declared) {
  const BufferDecl& decl = plan_.buffers[declared];
  return {.data = buffers_[facts_.roots[declared]],
          .dtype = decl.dtype,
          .device = {},
          .rank = static_cast<std::int32_t>(decl.sizes.size()),
          .sizes = values(decl.sizes),
          .strides = values(decl.strides)};
}

void* Frame::original_of(const void* data) const {
  const auto clone =
      std::ranges::find(clones_, data, [](const Clone& c) { return c.block.data(); });
  return clone == clones_.end() ? nullptr : clone->original;
}

void Frame::refresh(const void* copy, common::Refreshed which) {
  for (const Clone& c : clones_) {
    if (c.block.data() != copy) continue;
    const bool is_argument = which == common::Refreshed::argument;
    std::memcpy(is_argument ? c.original : c.block.data(),
                is_argument ? c.block.data() : c.original, static_cast<std::size_t>(c.bytes));
  }
}

abi::TensorView Frame::part_of(const abi::Operand& operand) {
  throw InternalError("a part of buffer " + plan_.buffers[operand.buffer].name +
                      " is passed to an op of the host");
}

// The plan relies on the geometry it foresaw: with other sizes the call is eager's, other strides
// are a copy.
void Frame::adopt(PlanBuffer buffer, const HostTensor& result, const std::string& name) {
  const abi::TensorView expected = view_of(buffer);
  const abi::TensorView& given = result.view;
  if (!common::same_sizes(given, expected)) {
    unsupported("{} returned a tensor of another dtype or size than the plan {} foresaw", name,
                plan_.name);
  }
  if (common::same_strides(given, expected)) {
    buffers_[buffer] = given.data;
    handles_[buffer] = result.handle;
    return;
  }
  const auto rank = static_cast<std::size_t>(given.rank);
  const HostTensor made =
      call_->host->make_output(expected.dtype, {expected.sizes, rank}, {expected.strides, rank});
  strided_copy({given.sizes, rank}, abi::size_of(given.dtype), given.data, {given.strides, rank},
               made.view.data, {expected.strides, rank});
  buffers_[buffer] = made.view.data;
  handles_[buffer] = made.handle;
}

void Frame::copy_constant(PlanBuffer root, const abi::TensorView& to, std::int64_t bytes) {
  std::memcpy(to.data, buffers_[root], static_cast<std::size_t>(bytes));
}

MemoryReport Frame::memory() const {
  return {.arena_bytes = arena_bytes_,
          .scratch_bytes = scratch_.bytes() + library_bytes_,
          .packed_weight_bytes = 0,
          .prepared_bytes = 0};
}

}  // namespace inkle::runtime::cpu
