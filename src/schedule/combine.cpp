#include "schedule/combine.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <queue>

#include "base/error.h"
#include "base/log.h"
#include "schedule/blocks.h"
#include "schedule/linear.h"
#include "schedule/loops.h"
#include "schedule/stages.h"
#include "schedule/step_order.h"

namespace inkle::schedule {
namespace {

using loop::BufferId;
using loop::Instruction;
using loop::Opcode;
using loop::Program;

// Working memory that a step writes lives longer if the step runs earlier: little of it may.
constexpr std::int64_t kMostTemporaryBytes = 4096;
constexpr std::int64_t kMostElements = std::int64_t{1} << 48;

// A step as an instance of a kernel of any extent.
struct Instance {
  Kernel kernel;
  std::vector<Expr> sizes;  // what kernel.sizes are
};

bool is_elementwise(const LoopKernel& loops) {
  return std::all_of(loops.stages.begin(), loops.stages.end(), [](const Stage& stage) {
    return stage.kind == StageKind::pointwise && stage.inner.empty() &&
           std::none_of(stage.body.instructions.begin(), stage.body.instructions.end(),
                        [](const Instruction& i) { return i.opcode == Opcode::indirect; });
  });
}

// The kernel with `extent` for its one outer loop.
Kernel with_extent(const Kernel& kernel, Expr extent, sym::Context& context) {
  Kernel general = kernel;
  auto& loops = std::get<LoopKernel>(general.body);
  const Expr variable = context.index(extent);
  const std::pair<Expr, Expr> map[] = {{loops.outer.front().variable, variable}};
  loops.outer.front() = {variable, extent};
  for (Stage& stage : loops.stages) {
    for (Instruction& i : stage.body.instructions) {
      for (Expr& e : i.indices) e = sym::substitute(e, map);
    }
    for (StageStore& store : stage.stores) store.offset = sym::substitute(store.offset, map);
  }
  collect_sizes(general, context);
  return general;
}

class Combiner {
 public:
  Combiner(std::vector<Step>& steps, const Program& program, const abi::Target& device)
      : steps_(steps), program_(program), device_(device), context_(*program.context) {}

  void run() {
    find_candidates();
    if (by_key_.empty()) return;
    dependencies_ = dependencies_of(steps_, program_);
    StepGroups chosen = plan(false);
    if (device_.launches_cost) {
      StepGroups more = plan(true);
      const PeakMemory peak(steps_, program_);
      if (peak.of(more) <= peak.of(chosen)) chosen = std::move(more);
    }
    build(chosen);
  }

 private:
  bool is_small(BufferId b) const {
    return !is_working_memory(program_, b) || bytes_of(program_, b) <= kMostTemporaryBytes;
  }

  void find_candidates() {
    std::map<std::string, std::vector<std::size_t>> groups;
    keys_.resize(steps_.size());
    small_.assign(steps_.size(), false);
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      const auto* kernel = std::get_if<KernelStep>(&steps_[s].action);
      if (kernel == nullptr || steps_[s].prepare) continue;
      if (!std::holds_alternative<LoopKernel>(kernel->kernel.body)) continue;
      if (kernel->schedule.blocks && kernel->schedule.blocks->has_chunks()) continue;
      const auto written = writes(steps_[s]);
      small_[s] = std::all_of(written.begin(), written.end(), [&](auto b) { return is_small(b); });
      if (!small_[s] && !device_.launches_cost) continue;
      const Instance instance = instance_of(*kernel, general_extent());
      if (!instance.kernel.sizes.empty() && instance.sizes.empty()) continue;
      keys_[s] = to_string(instance.kernel);
      groups[keys_[s]].push_back(s);
    }
    for (auto& [key, members] : groups) {
      if (members.size() > 1) by_key_.emplace(key, std::move(members));
    }
  }

  // The extent of kernels that are compared.
  Expr general_extent() {
    if (general_.is_null()) general_ = symbol({.range = {0, kMostElements}});
    return general_;
  }

  // The extent of these steps: any of theirs, all of them together for the choice of a schedule.
  Expr common_extent(const std::vector<const KernelStep*>& steps) {
    sym::SymbolInfo info;
    info.range = {0, 0};
    std::int64_t elements = 0;
    std::int64_t divisor = 0;
    for (const KernelStep* step : steps) {
      const auto& outer = std::get<LoopKernel>(step->kernel.body).outer;
      const Expr extent = extent_product(outer, context_);
      info.range.high = std::max(info.range.high, sym::bounds(extent).high);
      divisor = std::gcd(divisor, extent.constant().value_or(1));
      elements += extent_hint(outer);
    }
    info.hint = elements;
    info.range.high = std::max(info.range.high, elements);
    info.divisor = std::max<std::int64_t>(divisor, 1);
    return symbol(info);
  }

  Expr symbol(const sym::SymbolInfo& info) {
    std::string name;
    do {
      name = fmt::format("table{}", symbols_++);
    } while (context_.find_symbol(name));
    return context_.symbol(name, info);
  }

  // Of a kernel with other sizes than its flat extent: sizes that are not empty, without values.
  Instance instance_of(const KernelStep& step, Expr extent) const {
    const auto& loops = std::get<LoopKernel>(step.kernel.body);
    if (loops.outer.size() != 1 || !is_elementwise(loops)) return {step.kernel, {}};
    Kernel general = with_extent(step.kernel, extent, context_);
    if (general.sizes.size() != 1) return {step.kernel, {}};
    return {std::move(general), {loops.outer.front().extent}};
  }

  // In order; a step takes along all equal ones that are ready. Those that write more than a little
  // only with `with_large`.
  StepGroups plan(bool with_large) const {
    std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
    std::vector<std::size_t> waiting = dependencies_.waiting;
    std::vector<bool> done(steps_.size(), false);
    StepGroups result;
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      if (waiting[s] == 0) ready.push(s);
    }
    while (!ready.empty()) {
      const std::size_t first = ready.top();
      ready.pop();
      if (done[first]) continue;
      std::vector<std::size_t> taken = {first};
      if (const auto group = by_key_.find(keys_[first]); group != by_key_.end()) {
        for (const std::size_t s : group->second) {
          const bool may = with_large || (small_[first] && small_[s]);
          if (s != first && may && !done[s] && waiting[s] == 0) taken.push_back(s);
        }
      }
      for (const std::size_t s : taken) done[s] = true;
      add(taken, result);
      for (const std::size_t s : taken) {
        for (const std::size_t a : dependencies_.after[s]) {
          if (--waiting[a] == 0) ready.push(a);
        }
      }
    }
    INKLE_CHECK(std::all_of(done.begin(), done.end(), [](bool b) { return b; }),
                "the steps' dependencies have a cycle");
    return result;
  }

  void add(const std::vector<std::size_t>& taken, StepGroups& result) const {
    const std::size_t most = most_instances(taken.front());
    for (std::size_t begin = 0; begin < taken.size(); begin += most) {
      const std::size_t end = std::min(taken.size(), begin + most);
      result.emplace_back(taken.begin() + static_cast<std::ptrdiff_t>(begin),
                          taken.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }

  void build(const StepGroups& plan) {
    std::vector<Step> ordered;
    for (const std::vector<std::size_t>& taken : plan) {
      ordered.push_back(taken.size() == 1 ? std::move(steps_[taken.front()]) : table(taken));
    }
    steps_ = std::move(ordered);
  }

  std::size_t most_instances(std::size_t step) const {
    const auto* kernel = std::get_if<KernelStep>(&steps_[step].action);
    if (kernel == nullptr || device_.table_bytes == 0) return steps_.size();
    // Addresses, one size, and the first block of each.
    return static_cast<std::size_t>(device_.table_bytes) /
           (8 * (kernel->kernel.params.size() + 1) + 4);
  }

  Step table(const std::vector<std::size_t>& members) {
    Step step = std::move(steps_[members.front()]);
    auto& first = std::get<KernelStep>(step.action);
    std::vector<const KernelStep*> kernels = {&first};
    for (const std::size_t s : members) {
      if (s != members.front()) kernels.push_back(&std::get<KernelStep>(steps_[s].action));
    }
    Instance general = instance_of(first, common_extent(kernels));
    KernelStep combined;
    combined.kernel = std::move(general.kernel);
    std::vector<std::string> all_sources = step.sources;
    combined.kernel.instances = static_cast<std::uint32_t>(members.size());
    for (const std::size_t s : members) {
      const Step& from = s == members.front() ? step : steps_[s];
      const auto& kernel = std::get<KernelStep>(from.action);
      combined.buffers.insert(combined.buffers.end(), kernel.buffers.begin(), kernel.buffers.end());
      combined.table.push_back(instance_of(kernel, general_extent()).sizes);
      if (s == members.front()) continue;
      step.bytes = step.bytes + from.bytes;
      if (!step.flops.is_null() && !from.flops.is_null()) step.flops = step.flops + from.flops;
      add_missing(step.checked, from.checked);
      all_sources.insert(all_sources.end(), from.sources.begin(), from.sources.end());
    }
    step.sources.assign(all_sources.begin(),
                        all_sources.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                  kMostSourcesOfTable, all_sources.size())));
    combined.kernel.sources = std::move(all_sources);
    const bool as_is = combined.kernel.last_block && combined.kernel.last_block->by_strips;
    combined.schedule =
        as_is ? first.schedule : choose_schedule(combined.kernel, device_, context_);
    collect_sizes(combined.kernel, context_);
    log(LogChannel::fusion, "combine {} kernels ({})", members.size(), step.label);
    step.action = std::move(combined);
    return step;
  }

  std::vector<Step>& steps_;
  const Program& program_;
  const abi::Target& device_;
  sym::Context& context_;
  Expr general_;
  int symbols_ = 0;
  std::vector<std::string> keys_;
  std::vector<bool> small_;  // of each step, whether it writes little
  std::map<std::string, std::vector<std::size_t>> by_key_;
  Dependencies dependencies_;
};

}  // namespace

void combine(std::vector<Step>& steps, const Program& program, const abi::Target& device) {
  Combiner(steps, program, device).run();
}

Expr instance_extent(const KernelStep& step, std::size_t instance, sym::Context& context) {
  const Expr extent = parallel_extent(step.kernel, step.schedule, context);
  if (step.table.empty()) return extent;
  std::vector<std::pair<Expr, Expr>> map;
  for (std::size_t s = 0; s < step.kernel.sizes.size(); ++s) {
    map.emplace_back(step.kernel.sizes[s], step.table[instance][s]);
  }
  return sym::substitute(extent, map);
}

}  // namespace inkle::schedule
