#include "partition/max_flow.h"

#include <algorithm>

namespace inkle::partition {

void MaxFlow::add(std::uint32_t from, std::uint32_t to, std::int64_t capacity) {
  edges_.push_back({to, first_[from], capacity});
  first_[from] = static_cast<std::uint32_t>(edges_.size() - 1);
  edges_.push_back({from, first_[to], 0});
  first_[to] = static_cast<std::uint32_t>(edges_.size() - 1);
}

bool MaxFlow::find_levels(std::uint32_t source, std::uint32_t sink) {
  level_.assign(first_.size(), -1);
  level_[source] = 0;
  std::vector<std::uint32_t> queue{source};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (std::uint32_t e = first_[queue[i]]; e != kNone; e = edges_[e].next) {
      const std::uint32_t to = edges_[e].to;
      if (edges_[e].capacity == 0 || level_[to] >= 0) continue;
      level_[to] = level_[queue[i]] + 1;
      queue.push_back(to);
    }
  }
  return level_[sink] >= 0;
}

// What one path of ascending levels takes, 0 if there is none. Without recursion: paths may be as
// long as the graph has nodes.
std::int64_t MaxFlow::push_path(std::uint32_t source, std::uint32_t sink) {
  std::vector<std::uint32_t> path;  // edges
  std::uint32_t vertex = source;
  while (vertex != sink) {
    std::uint32_t& e = at_[vertex];
    while (e != kNone && (edges_[e].capacity == 0 || level_[edges_[e].to] != level_[vertex] + 1)) {
      e = edges_[e].next;
    }
    if (e != kNone) {
      path.push_back(e);
      vertex = edges_[e].to;
      continue;
    }
    if (path.empty()) return 0;
    vertex = edges_[path.back() ^ 1U].to;
    at_[vertex] = edges_[path.back()].next;
    path.pop_back();
  }
  std::int64_t amount = kUnlimited;
  for (const std::uint32_t e : path) amount = std::min(amount, edges_[e].capacity);
  for (const std::uint32_t e : path) {
    if (edges_[e].capacity < kUnlimited) edges_[e].capacity -= amount;
    if (edges_[e ^ 1U].capacity < kUnlimited) edges_[e ^ 1U].capacity += amount;
  }
  return amount;
}

std::int64_t MaxFlow::run(std::uint32_t source, std::uint32_t sink) {
  std::int64_t flow = 0;
  while (find_levels(source, sink)) {
    at_ = first_;
    while (const std::int64_t amount = push_path(source, sink)) {
      flow += amount;
      if (flow >= kUnlimited) return flow;
    }
  }
  return flow;
}

}  // namespace inkle::partition
