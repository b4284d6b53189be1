#include "schedule/side_by_side.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "schedule/legal_blocks.h"
#include "schedule/stages.h"
#include "schedule/step_order.h"

namespace inkle::schedule {
namespace {

using loop::Program;

constexpr std::size_t kMostKernels = 8;
constexpr std::size_t kMostParams = 64;
constexpr std::int32_t kWarp = 32;
// Of a block: with more threads, kernels of small blocks would get too few registers.
constexpr std::int32_t kMostThreads = 512;
// The number of successive steps that are considered.
constexpr std::size_t kWindow = 17;

// Whether another number of threads only divides the same work into other blocks.
bool takes_any_threads(const KernelStep& step) {
  const BlockSchedule& blocks = *step.schedule.blocks;
  if (step.kernel.last_block) return false;
  if (blocks.is<BlockSchedule::Tile>()) return false;
  return blocks.is<BlockSchedule::Columns>() ? blocks.team() == 1 : blocks.team() <= kWarp;
}

// Symbols that the kernel's loops bind.
std::set<std::uint32_t> bound_symbols(const Kernel& kernel) {
  std::set<std::uint32_t> bound;
  for_each_loops(kernel, [&](const LoopKernel& loops) {
    for (const Dim& dim : loops.outer) bound.insert(dim.variable.id());
    for (const Stage& stage : loops.stages) {
      for (const Dim& dim : stage.inner) bound.insert(dim.variable.id());
      for (const loop::Instruction& i : stage.body.instructions) {
        if (i.opcode == loop::Opcode::indirect) bound.insert(i.indices.front().id());
      }
    }
  });
  return bound;
}

// Kernels that are to share a launch, while they are collected.
struct Launch {
  std::size_t kernels = 0;
  std::int32_t threads = 0;  // 0: any
  std::size_t params = 0;
  std::set<std::uint32_t> bound;
  abi::Device device;
};

class Placer {
 public:
  Placer(std::vector<Step>& steps, const Program& program, const abi::Target& device)
      : steps_(steps), program_(program), device_(device), context_(*program.context) {}

  void run() {
    for (const Step& step : steps_) may_share_.push_back(may_share(step));
    if (std::ranges::count(may_share_, true) < 2) return;
    const Dependencies dependencies = dependencies_of(steps_, program_);
    before_.resize(steps_.size());
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      for (const std::size_t a : dependencies.after[s]) before_[a].push_back(s);
    }
    build(plan());
  }

 private:
  bool may_share(const Step& step) const {
    const auto* kernel = std::get_if<KernelStep>(&step.action);
    if (kernel == nullptr || step.prepare || kernel->kernel.instances > 1) return false;
    if (writes(step).empty()) return false;
    const auto* loops = std::get_if<LoopKernel>(&kernel->kernel.body);
    if (loops == nullptr || !kernel->schedule.blocks || loops->sequential != 0) return false;
    const BlockSchedule& blocks = *kernel->schedule.blocks;
    if (blocks.has_chunks() || blocks.cluster() > 1) return false;
    if (!takes_any_threads(*kernel) && blocks.threads > kMostThreads) return false;
    const auto may_alias = [](const Param& p) { return p.may_alias; };
    if (std::ranges::any_of(kernel->kernel.params, may_alias)) return false;
    // Small: all blocks are resident at once.
    const auto count = sym::hint(grid_extent(*loops, blocks, context_));
    return count && *count > 0 &&
           *count * blocks.threads <= std::int64_t{device_.parallelism} * device_.resident_threads;
  }

  const KernelStep& kernel_of(std::size_t s) const {
    return std::get<KernelStep>(steps_[s].action);
  }

  // A kernel writes on one device.
  abi::Device device_of(std::size_t s) const {
    return program_.buffers[writes(steps_[s]).front()].device;
  }

  // Each step in order takes later steps that fit and depend on no step from here on.
  StepGroups plan() const {
    const PeakMemory memory(steps_, program_);
    StepGroups groups;
    for (std::size_t s = 0; s < steps_.size(); ++s) groups.push_back({s});
    std::vector<std::size_t> at(steps_.size());  // by step: its group
    std::iota(at.begin(), at.end(), std::size_t{0});
    const std::int64_t most = memory.of(groups);
    for (std::size_t first = 0; first < steps_.size(); ++first) {
      if (!may_share_[first] || at[first] != first) continue;
      Launch launch;
      add(first, launch);
      const std::size_t end = std::min(first + kWindow, steps_.size());
      for (std::size_t s = first + 1; s < end; ++s) {
        const auto is_done = [&](std::size_t b) { return at[b] < first; };
        if (at[s] != s || !fits(s, launch) || !std::ranges::all_of(before_[s], is_done)) continue;
        groups[first].push_back(s);
        groups[s].clear();
        if (memory.of(groups) > most) {
          groups[first].pop_back();
          groups[s].push_back(s);
          continue;
        }
        at[s] = first;
        add(s, launch);
      }
    }
    return groups;
  }

  void add(std::size_t s, Launch& launch) const {
    ++launch.kernels;
    const KernelStep& kernel = kernel_of(s);
    if (!takes_any_threads(kernel)) launch.threads = kernel.schedule.blocks->threads;
    launch.params += kernel.kernel.params.size();
    launch.bound.merge(bound_symbols(kernel.kernel));
    launch.device = device_of(s);
  }

  bool fits(std::size_t s, const Launch& launch) const {
    if (!may_share_[s] || launch.kernels == kMostKernels) return false;
    if (device_of(s) != launch.device) return false;
    const KernelStep& kernel = kernel_of(s);
    const bool is_free = takes_any_threads(kernel);
    if (!is_free && launch.threads != 0 && launch.threads != kernel.schedule.blocks->threads)
      return false;
    if (launch.params + kernel.kernel.params.size() > kMostParams) return false;
    return std::ranges::none_of(bound_symbols(kernel.kernel),
                                [&](std::uint32_t id) { return launch.bound.contains(id); });
  }

  void build(const StepGroups& groups) {
    std::vector<Step> ordered;
    for (const std::vector<std::size_t>& group : groups) {
      if (group.empty()) continue;
      ordered.push_back(group.size() == 1 ? std::move(steps_[group.front()])
                                          : joined(longest_first(group)));
    }
    steps_ = std::move(ordered);
  }

  // By the bytes of a block, most first: blocks start in order, and the longest must not be last.
  std::vector<std::size_t> longest_first(std::vector<std::size_t> group) const {
    const auto bytes_of_block = [&](std::size_t s) {
      const KernelStep& step = kernel_of(s);
      const Expr blocks = parallel_extent(step.kernel, step.schedule, context_);
      return static_cast<double>(sym::hint(steps_[s].bytes).value_or(0)) /
             static_cast<double>(*sym::hint(blocks));
    };
    std::ranges::stable_sort(group, std::greater<>(), bytes_of_block);
    return group;
  }

  // Of those whose number is fixed, else of the first.
  std::int32_t threads_of(const std::vector<std::size_t>& group) const {
    for (const std::size_t s : group) {
      if (!takes_any_threads(kernel_of(s))) return kernel_of(s).schedule.blocks->threads;
    }
    return kernel_of(group.front()).schedule.blocks->threads;
  }

  Step joined(const std::vector<std::size_t>& group) {
    const std::int32_t threads = threads_of(group);
    Step step = std::move(steps_[group.front()]);
    auto& first = std::get<KernelStep>(step.action);
    first.schedule.blocks->threads = threads;
    std::vector<std::pair<Expr, Expr>> sizes = sizes_of(first);
    for (const std::size_t s : std::span(group).subspan(1)) {
      auto& other = std::get<KernelStep>(steps_[s].action);
      const auto more = sizes_of(other);
      sizes.insert(sizes.end(), more.begin(), more.end());
      other.schedule.blocks->threads = threads;
      append(first, other);
      log(LogChannel::fusion, "place {} beside {}", steps_[s].label, step.label);
      describe(step, steps_[s]);
    }
    first.kernel.sources = step.sources;
    set_sizes(first, sizes);
    return step;
  }

  static void append(KernelStep& first, KernelStep& other) {
    const std::vector<std::uint32_t> numbers = add_parameters(first, other);
    const std::size_t params = first.kernel.params.size();
    for_each_loops(other.kernel, [&](LoopKernel& loops) {
      for_each_memory(loops, [&](std::uint32_t& b) {
        b = b < numbers.size() ? numbers[b]
                               : static_cast<std::uint32_t>(b - numbers.size() + params);
      });
    });
    if (other.kernel.last_block) {
      for (std::uint32_t& cell : other.kernel.last_block->cells) cell = numbers[cell];
    }
    first.kernel.beside.push_back({std::move(std::get<LoopKernel>(other.kernel.body)),
                                   *other.schedule.blocks, std::move(other.kernel.last_block)});
  }

  static void describe(Step& step, const Step& from) {
    step.label += "+" + from.label;
    add_missing(step.sources, from.sources);
    add_missing(step.checked, from.checked);
    step.bytes = step.bytes + from.bytes;
    if (!step.flops.is_null() && !from.flops.is_null()) step.flops = step.flops + from.flops;
  }

  // The value of each size of a kernel.
  static std::vector<std::pair<Expr, Expr>> sizes_of(const KernelStep& step) {
    std::vector<std::pair<Expr, Expr>> sizes;
    for (std::size_t s = 0; s < step.kernel.sizes.size(); ++s) {
      const Expr size = step.kernel.sizes[s];
      sizes.emplace_back(size, step.table.empty() ? size : step.table.front()[s]);
    }
    return sizes;
  }

  void set_sizes(KernelStep& step, const std::vector<std::pair<Expr, Expr>>& sizes) {
    collect_sizes(step.kernel, context_);
    std::vector<Expr> row;
    for (const Expr size : step.kernel.sizes) {
      const auto at = std::ranges::find(sizes, size, &std::pair<Expr, Expr>::first);
      INKLE_CHECK(at != sizes.end(), "{} was no size of the kernels", size.name());
      row.push_back(at->second);
    }
    step.table.clear();
    if (row != step.kernel.sizes) step.table.push_back(std::move(row));
  }

  std::vector<Step>& steps_;
  const Program& program_;
  const abi::Target& device_;
  sym::Context& context_;
  std::vector<bool> may_share_;
  std::vector<std::vector<std::size_t>> before_;  // by step: those that it depends on
};

}  // namespace

void place_side_by_side(ScheduledProgram& scheduled, const abi::Target& device) {
  Placer(scheduled.steps, scheduled.program, device).run();
}

}  // namespace inkle::schedule
