#include "schedule/choose_columns.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "abi/arena.h"
#include "base/log.h"
#include "schedule/sequential_rows.h"

namespace inkle::schedule {
namespace {

using loop::BufferId;
using loop::Program;

// Each needs a schedule of its own, so at most this many are tried.
constexpr std::size_t kMostFamilies = 8;

std::int64_t bytes_of(const loop::Buffer& buffer, sym::Context& context) {
  const auto elements = sym::hint(sym::product(context, buffer.sizes));
  return std::max<std::int64_t>(elements.value_or(0), 0) * abi::size_of(buffer.dtype);
}

std::vector<abi::Lifetime> lifetimes_of(const ScheduledProgram& scheduled) {
  const Program& program = scheduled.program;
  std::vector<std::optional<abi::Lifetime>> lives(program.buffers.size());
  const auto touch = [&](BufferId touched, std::uint32_t at, bool is_kept) {
    const BufferId b = program.buffers[touched].writes_into.value_or(touched);
    const loop::Buffer& buffer = program.buffers[b];
    if (buffer.role != loop::BufferRole::temporary) return;
    if (!lives[b]) lives[b] = {bytes_of(buffer, *program.context), at, at};
    lives[b]->last = at;
    if (is_kept) lives[b]->last = static_cast<std::uint32_t>(scheduled.steps.size());
  };
  for (std::uint32_t at = 0; at < scheduled.steps.size(); ++at) {
    const Step& step = scheduled.steps[at];
    for (const BufferId b : reads(step)) touch(b, at, step.prepare);
    for (const BufferId b : writes(step)) touch(b, at, step.prepare);
  }
  std::vector<abi::Lifetime> result;
  for (const auto& life : lives) {
    if (life) result.push_back(*life);
  }
  return result;
}

std::string_view objection_of(const ProgramCost& before, const ProgramCost& after,
                              std::int64_t least_saved) {
  if (after.launches > before.launches) return "more launches";
  if (after.peak > before.peak) return "peak memory would be higher";
  if (before.bytes - after.bytes < least_saved) return "the second read hits in the cache";
  return {};
}

class Chooser {
 public:
  Chooser(Program& program, const abi::Target& device, const FinishSchedule& finish)
      : program_(program), device_(device), finish_(finish) {}

  std::vector<BufferId> run() {
    std::vector<ColumnFamily> families = column_families(program_, true);
    if (families.size() > kMostFamilies) families.resize(kMostFamilies);
    for (const ColumnFamily& family : families) try_family(family);
    if (!best_) return {};
    program_ = std::move(best_->program);
    return std::move(best_->parts);
  }

 private:
  struct Split {
    Program program;
    std::vector<BufferId> parts;
  };

  std::optional<ProgramCost> cost(const Split& split) const {
    const auto scheduled = finish_(split.program, split.parts);
    if (!scheduled) return std::nullopt;
    return cost_of(*scheduled);
  }

  // Together with those that were taken before it.
  void try_family(const ColumnFamily& family) {
    std::vector<ColumnFamily> taken = taken_;
    taken.push_back(family);
    Split split{program_, {}};
    split.parts = split_columns(split.program, device_, taken, device_.parallelism / 2);
    if (split.parts.size() == (best_ ? best_->parts.size() : 0)) return;
    if (!cost_) cost_ = cost({program_, {}});
    const auto with = cost_ ? cost(split) : std::nullopt;
    if (!with) return;
    const std::string_view why = objection_of(*cost_, *with, device_.split.split_saves);
    report(family, *with, why);
    if (!why.empty()) return;
    taken_ = std::move(taken);
    best_ = std::move(split);
    cost_ = with;
  }

  void report(const ColumnFamily& family, const ProgramCost& with, std::string_view why) const {
    if (!log_enabled(LogChannel::fusion)) return;
    const std::size_t sum = family.sums.front();
    log(LogChannel::fusion,
        "columns n{} ({}) with rows n{} ({})  {}   {}: saves {} bytes, {} launches for "
        "{}, {} bytes at once for {}",
        sum, program_.nests[sum].label, family.rows, program_.nests[family.rows].label,
        why.empty() ? "yes" : "no", why.empty() ? "rows are read once" : why,
        cost_->bytes - with.bytes, with.launches, cost_->launches, with.peak, cost_->peak);
  }

  Program& program_;
  const abi::Target& device_;
  const FinishSchedule& finish_;
  std::vector<ColumnFamily> taken_;
  std::optional<Split> best_;        // with these
  std::optional<ProgramCost> cost_;  // of it
};

}  // namespace

ProgramCost cost_of(const ScheduledProgram& scheduled) {
  ProgramCost cost;
  cost.launches = static_cast<std::size_t>(
      std::ranges::count_if(scheduled.steps, [](const Step& step) { return !step.prepare; }));
  cost.bytes = sym::hint(scheduled.bytes_moved).value_or(0);
  cost.peak = abi::peak_bytes(lifetimes_of(scheduled));
  return cost;
}

std::vector<BufferId> choose_columns(Program& program, const abi::Target& device,
                                     const FinishSchedule& finish) {
  return Chooser(program, device, finish).run();
}

}  // namespace inkle::schedule
