// How the variables of a nest correspond to those of a group that it is to join.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "schedule/group.h"

namespace inkle::schedule {

[[nodiscard]] bool contains_any(sym::Expr e, const std::vector<loop::Dim>& dims);

// Finds how a nest's variables correspond to a group's, from pairs of indices that must be equal.
class LoopMatcher {
 public:
  using Map = std::vector<std::pair<sym::Expr, sym::Expr>>;

  LoopMatcher(const Group& group, const loop::Nest& nest, sym::Context& context);

  // Makes the two equal: `theirs` in group variables, `ours` in the nest's. False if that cannot
  // be; what was mapped up to then stays mapped.
  bool match(sym::Expr theirs, sym::Expr ours);

  [[nodiscard]] const std::vector<loop::Dim>& group_dims() const { return group_dims_; }
  // Old variables in terms of the new ones; of those that changed.
  [[nodiscard]] const Map& group_map() const { return group_map_; }
  [[nodiscard]] const Map& nest_map() const { return nest_map_; }
  [[nodiscard]] std::vector<loop::Dim> unmapped() const;
  // The group's dims that the nest's `dims` map to, in the nest's order.
  [[nodiscard]] std::vector<loop::Dim> image(const std::vector<loop::Dim>& dims) const;

 private:
  // Of numbers of several digits: digit by digit.
  bool match_digits(sym::Expr theirs, sym::Expr ours);
  bool divide_group(const loop::Dim& whole, const std::vector<loop::Dim>& digits);

  sym::Context* context_;
  std::vector<loop::Dim> group_dims_;
  std::vector<loop::Dim> nest_dims_;
  Map group_map_;
  Map nest_map_;
};

struct StoreOf {
  const Member* member;
  const loop::Store* store;
};
[[nodiscard]] std::optional<StoreOf> find_store(const Group& group, loop::BufferId buffer);

// Matches every read of what the group writes. False if one cannot be; `found` counts them.
[[nodiscard]] bool match_dependencies(LoopMatcher& matcher, const Group& group,
                                      const loop::Nest& nest, int& found);

// Without a dependency: the same element of the same input, read by both. Which loops correspond is
// a choice then, not a need.
[[nodiscard]] bool match_sibling(LoopMatcher& matcher, const Group& group, const loop::Nest& nest);

// Splits loops of the nest that read a result of the group by quotient and remainder (a row of
// groups of channels read as a row of channels), so that the quotient is a loop that can match.
void divide_loops(loop::Nest& nest, const Group& group, sym::Context& context);

}  // namespace inkle::schedule
