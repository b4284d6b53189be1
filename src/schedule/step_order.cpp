#include "schedule/step_order.h"

#include <algorithm>
#include <optional>

#include "sym/expr.h"

namespace inkle::schedule {

using loop::BufferId;
using loop::Program;

namespace {

BufferId storage(const Program& program, BufferId b) {
  return program.buffers[b].writes_into.value_or(b);
}

}  // namespace

Dependencies dependencies_of(std::span<const Step> steps, const Program& program) {
  Dependencies found;
  found.after.resize(steps.size());
  found.waiting.assign(steps.size(), 0);
  std::vector<std::vector<std::size_t>> readers(program.buffers.size());
  std::vector<std::optional<std::size_t>> writer(program.buffers.size());
  std::optional<std::size_t> barrier;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const auto wait = [&](std::size_t before) {
      if (before == s) return;
      found.after[before].push_back(s);
      ++found.waiting[s];
    };
    const auto r = reads(steps[s]);
    const auto w = writes(steps[s]);
    for (const BufferId b : r) {
      if (writer[storage(program, b)]) wait(*writer[storage(program, b)]);
    }
    for (const BufferId b : w) {
      if (writer[storage(program, b)]) wait(*writer[storage(program, b)]);
      for (const std::size_t reader : readers[storage(program, b)]) wait(reader);
    }
    if (std::holds_alternative<EagerStep>(steps[s].action)) {
      for (std::size_t before = barrier.value_or(0); before < s; ++before) wait(before);
      barrier = s;
    } else if (barrier) {
      wait(*barrier);
    }
    for (const BufferId b : r) readers[storage(program, b)].push_back(s);
    for (const BufferId b : w) {
      writer[storage(program, b)] = s;
      readers[storage(program, b)].clear();
    }
  }
  return found;
}

std::int64_t bytes_of(const Program& program, BufferId b) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 48;
  const loop::Buffer& buffer = program.buffers[b];
  const auto elements = sym::hint(sym::product(*program.context, buffer.sizes));
  return elements ? *elements * abi::size_of(buffer.dtype) : kMostElements;
}

bool is_working_memory(const Program& program, BufferId b) {
  const loop::Buffer& buffer = program.buffers[b];
  return buffer.role == loop::BufferRole::temporary && !buffer.writes_into;
}

PeakMemory::PeakMemory(std::span<const Step> steps, const Program& program)
    : touched_(steps.size()), bytes_(program.buffers.size(), 0) {
  std::vector<bool> is_kept(program.buffers.size(), false);  // from call to call
  for (const Step& step : steps) {
    if (!step.prepare) continue;
    for (const BufferId b : writes(step)) is_kept[storage(program, b)] = true;
  }
  for (std::size_t s = 0; s < steps.size(); ++s) {
    std::vector<BufferId>& touched = touched_[s];
    for (const auto& some : {reads(steps[s]), writes(steps[s])}) {
      for (const BufferId touching : some) {
        const BufferId b = storage(program, touching);
        if (!is_kept[b] && is_working_memory(program, b)) touched.push_back(b);
      }
    }
    std::ranges::sort(touched);
    // clang 14 does not take libstdc++'s std::ranges::unique.
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    for (const BufferId b : touched) bytes_[b] = bytes_of(program, b);
  }
}

std::int64_t PeakMemory::of(const StepGroups& groups) const {
  constexpr std::size_t kNever = ~std::size_t{0};
  std::vector<std::size_t> first(bytes_.size(), kNever), last(bytes_.size(), 0);
  for (std::size_t at = 0; at < groups.size(); ++at) {
    for (const std::size_t s : groups[at]) {
      for (const BufferId b : touched_[s]) {
        first[b] = std::min(first[b], at);
        last[b] = at;
      }
    }
  }
  std::vector<std::int64_t> change(groups.size() + 1, 0);
  for (BufferId b = 0; b < first.size(); ++b) {
    if (first[b] == kNever) continue;
    change[first[b]] += bytes_[b];
    change[last[b] + 1] -= bytes_[b];
  }
  std::int64_t now = 0, most = 0;
  for (const std::int64_t c : change) most = std::max(most, now += c);
  return most;
}

}  // namespace inkle::schedule
