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

  // `inverts`: a loop may be reversed, if one of the two reads or writes backwards:
  //
  // clang-format off
  //   group: pointwise [i: 8] -> t[i] { yield f(load x[i]) }
  //   nest:  pointwise [i: 8] -> y[i] { yield g(load t[7-i]) }
  // becomes, with 7-i for the nest's i,
  //   nest:  pointwise [i: 8] -> y[7-i] { yield g(load t[i]) }
  // clang-format on
  //
  // Points of a nest's own loops are independent. A reduced loop keeps its order: then the group's
  // loop is reversed.
  LoopMatcher(const Group& group, const loop::Nest& nest, sym::Context& context,
              bool inverts = false);

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
  // A loop of the group or of the nest is reversed.
  [[nodiscard]] bool has_inverted() const { return has_inverted_; }

 private:
  // A loop of the nest has been mapped to this one of the group.
  [[nodiscard]] bool is_image(sym::Expr variable) const;
  // Without reversing a loop.
  bool match_forward(sym::Expr theirs, sym::Expr ours);
  bool match_inverted(sym::Expr theirs, sym::Expr ours);
  // Reverses what the nest's loops have been mapped to from `first` on.
  void invert(std::size_t first);
  // Reverses the group's loops that they have been mapped to instead. False where those may not be.
  bool invert_group_of(std::size_t first);
  // Of numbers of several digits: digit by digit.
  bool match_digits(sym::Expr theirs, sym::Expr ours);
  bool divide_group(const loop::Dim& whole, const std::vector<loop::Dim>& digits);

  sym::Context* context_;
  std::vector<loop::Dim> group_dims_;
  std::vector<loop::Dim> nest_dims_;
  std::size_t reduced_from_;  // in nest_dims_
  Map group_map_;
  Map nest_map_;
  std::vector<sym::Expr> inverted_;  // loops of the nest that run against those they are mapped to
  bool inverts_, group_may_invert_;
  bool has_inverted_ = false;
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

// The same of inputs of both, whichever reads by quotient and remainder: loops of the nest that
// reduce nothing, and outer loops of the group.
//
// clang-format off
//   group: pointwise [i: 24, j: 64] -> y[i,j] { yield load x[floordiv(i,6),mod(i,6)*64+j] }
//   nest:  pointwise [i: 4, j: 6, k: 64] -> z[i,j,k] { yield neg(load x[i,j*64+k]) }
// becomes
//   group: pointwise [i: 4, k: 6, j: 64] -> y[i*6+k,j] { yield load x[i,k*64+j] }
// clang-format on
//
// False if there is no such loop.
[[nodiscard]] bool divide_shared_loops(Group& group, loop::Nest& nest, sym::Context& context);

}  // namespace inkle::schedule
