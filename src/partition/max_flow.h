// Maximum flow through a directed graph and the minimum cut that it proves.
#pragma once

#include <cstdint>
#include <vector>

namespace inkle::partition {

class MaxFlow {
 public:
  // More than any sum of finite capacities may be.
  static constexpr std::int64_t kUnlimited = std::int64_t{1} << 60;

  explicit MaxFlow(std::uint32_t vertices) : first_(vertices, kNone) {}

  // An edge; capacities are not negative.
  void add(std::uint32_t from, std::uint32_t to, std::int64_t capacity);

  // The value of the flow from `source` to `sink`; at least kUnlimited where a path has no limit.
  // Call once. O(V^2 E) at worst, near linear on the shallow networks of a cut.
  std::int64_t run(std::uint32_t source, std::uint32_t sink);

  // After run(): whether the vertex is on the source's side of the minimum cut that is nearest to
  // the source.
  [[nodiscard]] bool is_source_side(std::uint32_t vertex) const { return level_[vertex] >= 0; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Edge {
    std::uint32_t to = 0;
    std::uint32_t next = kNone;
    std::int64_t capacity = 0;
  };

  bool find_levels(std::uint32_t source, std::uint32_t sink);
  std::int64_t push_path(std::uint32_t source, std::uint32_t sink);

  std::vector<std::uint32_t> first_;  // edge by vertex
  std::vector<Edge> edges_;           // an edge and its reverse, next to each other
  std::vector<std::uint32_t> at_;     // the next edge to try, by vertex
  std::vector<std::int32_t> level_;
};

}  // namespace inkle::partition
