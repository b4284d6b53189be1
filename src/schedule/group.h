// Fusion: nests that share their outer loops become one group, later one kernel.
//
// All nests of a group run over the same outer iterations, each with inner loops of its own; what
// one writes and another reads must be written and read in the same outer iteration. Variables of
// a nest that joins are renamed to the group's; where extents differ in factors only (b*s against
// b, s) the coarser loop is divided, so that index expressions stay linear.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "abi/target.h"
#include "loop/program.h"

namespace inkle::schedule {

struct Member {
  loop::Nest nest;               // in terms of the group's variables
  std::vector<loop::Dim> inner;  // its loops inside an outer iteration
  // A sum over the group's sequential loops at each point of `inner` (schedule/sequential_rows.h).
  bool accumulates = false;
};

struct Group {
  std::vector<loop::Dim> outer;
  // Only elementwise members so far: a later reduction may still take outer loops as its inner.
  bool open = true;
  // A scatter whose points run in parallel: additions to one element come in any order.
  bool unordered = false;
  // How many of the last outer loops are sequential (schedule/kernel.h).
  std::size_t sequential = 0;
  // How many members have joined because a loop is reversed or split.
  std::size_t inversions = 0;
  std::vector<Member> members;
};

// Of a scatter, those loops are outer whose iterations write different elements, by an index of
// every store that is linear in their variable. The others run one point after the other, so that
// equal indices have a last writer and sums an order. `unordered`: all loops are outer, unless the
// nest reads what it writes.
[[nodiscard]] Group make_group(const loop::Nest& nest, sym::Context& context, bool unordered);

// The group with `nest` added, or nothing; `why` says how or why not. `inverts`: loops of either
// may be reversed or split where the indices of what both touch are then the same.
[[nodiscard]] std::optional<Group> join(const Group& group, const loop::Nest& nest,
                                        const loop::Program& program, bool inverts,
                                        std::string& why);

// The group with `producer` before it: elementwise work whose loops are the group's outer ones and
// whose results it reads in the same iteration.
[[nodiscard]] std::optional<Group> prepend(const Group& producer, const Group& group,
                                           std::string& why);

// Two groups that do not depend on each other as one, where their outer loops have the same extents
// in the same order.
[[nodiscard]] std::optional<Group> merge(const Group& a, const Group& b);

// What the nest reads of the group's results was written in the same outer iteration.
[[nodiscard]] bool reads_own_iteration(const Group& group, const loop::Nest& nest);

// Replaces variables in every index of the nest.
void rename(loop::Nest& nest, const std::vector<std::pair<sym::Expr, sym::Expr>>& map);

// Loops of one iteration carry nothing: their variable is 0.
void drop_unit_dims(loop::Nest& nest, sym::Context& context);

struct FuseOptions {
  // Results of nests that join the kernel of their rows where they can
  // (schedule/sequential_rows.h).
  std::vector<loop::BufferId> column_parts;
  bool inverts = false;        // as join() has it
  bool deterministic = false;  // as in Options
};

// The program's nests as groups, in an order that respects every dependency. Nests without a loop
// body (contractions, calls) are groups of one member.
[[nodiscard]] std::vector<Group> fuse(const loop::Program& program, const abi::Target& device,
                                      const FuseOptions& options);

}  // namespace inkle::schedule
