#include "abi/arena.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace inkle::abi {
namespace {

std::int64_t round_up(std::int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

bool live_together(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

struct Placed {
  std::int64_t offset;
  std::int64_t bytes;
  const Lifetime* lifetime;
};

// `placed` is sorted by offset.
std::int64_t tightest_gap(const std::vector<Placed>& placed, const Lifetime& wanted,
                          std::int64_t bytes) {
  std::int64_t best = -1;
  std::int64_t best_gap = std::numeric_limits<std::int64_t>::max();
  std::int64_t end = 0;
  for (const Placed& p : placed) {
    if (!live_together(*p.lifetime, wanted)) continue;
    const std::int64_t gap = p.offset - end;
    if (gap >= bytes && gap < best_gap) {
      best = end;
      best_gap = gap;
    }
    end = std::max(end, p.offset + p.bytes);
  }
  return best >= 0 ? best : end;
}

}  // namespace

ArenaLayout assign_offsets(std::span<const Lifetime> lifetimes) {
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Lifetime& x = lifetimes[a];
    const Lifetime& y = lifetimes[b];
    if (x.bytes != y.bytes) return x.bytes > y.bytes;
    if (x.first != y.first) return x.first < y.first;
    return a < b;
  });
  ArenaLayout layout{.offsets = std::vector<std::int64_t>(lifetimes.size(), 0)};
  std::vector<Placed> placed;
  placed.reserve(lifetimes.size());
  for (const std::size_t index : order) {
    const std::int64_t bytes = round_up(lifetimes[index].bytes);
    if (bytes == 0) continue;
    const std::int64_t offset = tightest_gap(placed, lifetimes[index], bytes);
    layout.offsets[index] = offset;
    layout.bytes = std::max(layout.bytes, offset + bytes);
    const Placed entry{offset, bytes, &lifetimes[index]};
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), entry,
                         [](const Placed& a, const Placed& b) { return a.offset < b.offset; }),
        entry);
  }
  return layout;
}

std::int64_t peak_bytes(std::span<const Lifetime> lifetimes) {
  std::vector<std::pair<std::uint32_t, std::int64_t>> events;
  for (const Lifetime& l : lifetimes) {
    events.emplace_back(l.first, round_up(l.bytes));
    if (l.last != std::numeric_limits<std::uint32_t>::max()) {
      events.emplace_back(l.last + 1, -round_up(l.bytes));
    }
  }
  std::sort(events.begin(), events.end());  // at one step, frees before allocations
  std::int64_t now = 0;
  std::int64_t peak = 0;
  for (const auto& [step, bytes] : events) {
    now += bytes;
    peak = std::max(peak, now);
  }
  return peak;
}

}  // namespace inkle::abi
