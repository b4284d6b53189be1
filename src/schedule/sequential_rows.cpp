#include "schedule/sequential_rows.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "schedule/blocks.h"
#include "schedule/inline.h"
#include "schedule/linear.h"
#include "schedule/matcher.h"
#include "schedule/reductions.h"

namespace inkle::schedule {
namespace {

using loop::BufferId;
using loop::Dim;
using loop::Instruction;
using loop::Nest;
using loop::NestKind;
using loop::Opcode;
using loop::Program;
using sym::Expr;
using Map = std::vector<std::pair<Expr, Expr>>;

// --- Which sums, in how many parts --------------------------------------------------------------

// Elements of a vector access along a row.
constexpr std::int64_t kColumnsOfAccess = 8;

std::vector<Dim> real_loops(const std::vector<Dim>& dims) {
  std::vector<Dim> result;
  std::copy_if(dims.begin(), dims.end(), std::back_inserter(result),
               [](const Dim& dim) { return !dim.extent.is_constant(1); });
  return result;
}

bool are_constant(const std::vector<Dim>& dims) {
  return std::all_of(dims.begin(), dims.end(),
                     [](const Dim& dim) { return dim.extent.is_constant(); });
}

bool mentions_all(const std::vector<Expr>& indices, const std::vector<Dim>& dims) {
  return std::all_of(dims.begin(), dims.end(), [&](const Dim& dim) {
    return std::any_of(indices.begin(), indices.end(),
                       [&](Expr e) { return sym::contains(e, dim.variable); });
  });
}

bool is_sum_over_columns(const Nest& nest) {
  return nest.kind == NestKind::reduction && nest.reduce == loop::ReduceOp::sum &&
         nest.stores.size() == 1 && abi::is_float(nest.accumulator) && are_constant(nest.dims) &&
         are_constant(nest.reduced);
}

// Whether the loops are those of `columns`, rows for columns.
bool turns_loops(const Nest& columns, const Nest& rows) {
  Map map;
  return rows.kind == NestKind::reduction && pair_loops(columns.reduced, rows.dims, map) &&
         pair_loops(columns.dims, rows.reduced, map);
}

// Whether `rows` reduces each row of memory of which `columns` adds up the columns.
bool shares_rows(const Nest& columns, const Nest& rows) {
  if (rows.kind != NestKind::reduction) return false;
  Map map;
  if (!pair_loops(columns.reduced, rows.dims, map)) return false;
  if (!pair_loops(columns.dims, rows.reduced, map)) return false;
  if (real_loops(rows.dims).empty() || real_loops(rows.reduced).empty()) return false;
  for (const Instruction& ours : columns.body.instructions) {
    if (ours.opcode != Opcode::load) continue;
    std::vector<Expr> wanted = ours.indices;
    for (Expr& e : wanted) e = sym::substitute(e, map);
    if (!mentions_all(wanted, real_loops(rows.dims)) ||
        !mentions_all(wanted, real_loops(rows.reduced))) {
      continue;
    }
    for (const Instruction& theirs : rows.body.instructions) {
      const bool same =
          theirs.opcode == Opcode::load && theirs.buffer == ours.buffer && theirs.indices == wanted;
      if (same) return true;
    }
  }
  return false;
}

// Whether `columns` adds up the columns of what `made` stores, a value for each element of the rows
// that `rows` reduces.
bool follows_rows(const Nest& columns, const Nest& made, const Nest& rows) {
  if (rows.kind != NestKind::reduction || made.kind != NestKind::pointwise) return false;
  Map loops;
  if (!pair_loops(columns.reduced, rows.dims, loops) ||
      !pair_loops(columns.dims, rows.reduced, loops)) {
    return false;
  }
  std::vector<Dim> elements = columns.reduced;
  elements.insert(elements.end(), columns.dims.begin(), columns.dims.end());
  Map map;
  if (!pair_loops(elements, made.dims, map)) return false;
  for (const Instruction& ours : columns.body.instructions) {
    if (ours.opcode != Opcode::load) continue;
    std::vector<Expr> wanted = ours.indices;
    for (Expr& e : wanted) e = sym::substitute(e, map);
    for (const loop::Store& store : made.stores) {
      if (store.buffer == ours.buffer && store.indices == wanted) return true;
    }
  }
  return false;
}

class Finder {
 public:
  Finder(const Program& program, bool dense)
      : program_(program), dense_(dense), mutated_(mutated_buffers(program)) {}

  std::vector<ColumnFamily> run() {
    for (std::size_t n = 0; n < program_.nests.size(); ++n) find(n);
    return std::move(families_);
  }

 private:
  bool is_still(const Nest& nest) const {
    const auto changes = [&](BufferId b) {
      return mutated_[b] || program_.buffers[b].writes_into.has_value();
    };
    const auto r = loop::reads(nest);
    const auto w = loop::writes(nest);
    return std::none_of(r.begin(), r.end(), changes) && std::none_of(w.begin(), w.end(), changes);
  }

  // Whether nest `n` may run after nest `to`: no nest in between reads its result.
  bool may_move(std::size_t n, std::size_t to) const {
    const BufferId made = program_.nests[n].stores.front().buffer;
    for (std::size_t between = n + 1; between <= to; ++between) {
      const auto r = loop::reads(program_.nests[between]);
      if (std::find(r.begin(), r.end(), made) != r.end()) return false;
    }
    return true;
  }

  // Whether nest n sums values computed from the results of `rows`, directly or through others.
  bool follows(std::size_t n, std::size_t rows) const {
    std::vector<BufferId> made = loop::writes(program_.nests[rows]);
    for (std::size_t after = rows + 1; after < n; ++after) {
      const Nest& nest = program_.nests[after];
      const auto r = loop::reads(nest);
      const bool needs = std::any_of(r.begin(), r.end(), [&](BufferId b) {
        return std::find(made.begin(), made.end(), b) != made.end();
      });
      if (nest.kind != NestKind::pointwise || !needs) continue;
      if (follows_rows(program_.nests[n], nest, program_.nests[rows])) return true;
      const auto w = loop::writes(nest);
      made.insert(made.end(), w.begin(), w.end());
    }
    return false;
  }

  void find(std::size_t n) {
    const Nest& nest = program_.nests[n];
    if (!is_sum_over_columns(nest) || !is_still(nest)) return;
    if (dense_ && !has_dense_columns(nest)) return;
    for (std::size_t rows = 0; rows < program_.nests.size(); ++rows) {
      if (rows == n || !turns_loops(nest, program_.nests[rows])) continue;
      if (!is_still(program_.nests[rows])) continue;
      const bool shares =
          shares_rows(nest, program_.nests[rows]) && (rows < n || may_move(n, rows));
      if (!shares && !follows(n, rows)) continue;
      const auto known = std::find_if(families_.begin(), families_.end(),
                                      [&](const ColumnFamily& f) { return f.rows == rows; });
      if (known == families_.end()) {
        families_.push_back({.rows = rows, .sums = {n}});
      } else {
        known->sums.push_back(n);
      }
      return;
    }
  }

  // Whether the columns of all that it reads are contiguous.
  bool has_dense_columns(const Nest& nest) const {
    const std::vector<Dim> columns = real_loops(nest.dims), rows = real_loops(nest.reduced);
    if (columns.empty()) return false;
    return std::ranges::all_of(nest.body.instructions, [&](const Instruction& i) {
      if (i.opcode != Opcode::load || !mentions_all(i.indices, columns) ||
          !mentions_all(i.indices, rows)) {
        return true;
      }
      const loop::Buffer& buffer = program_.buffers[i.buffer];
      const Expr offset = linear_offset(buffer, i.indices, *program_.context);
      const auto stride = sym::stride(offset, columns.back().variable);
      return stride && stride->is_constant(1);
    });
  }

  const Program& program_;
  const bool dense_;
  std::vector<bool> mutated_;
  std::vector<ColumnFamily> families_;
};

class ColumnSplitter {
 public:
  ColumnSplitter(Program& program, const abi::Target& device, std::int64_t least_parts)
      : program_(program), device_(device), least_parts_(least_parts) {}

  std::vector<BufferId> run(std::span<const ColumnFamily> families) {
    if (families.empty()) return {};
    std::vector<std::vector<Nest>> after(program_.nests.size());
    std::vector<bool> gone(program_.nests.size(), false);
    for (const ColumnFamily& family : families) {
      for (const std::size_t n : family.sums) {
        if (split_nest(program_.nests[n], family, after[std::max(n, family.rows)])) gone[n] = true;
      }
    }
    std::vector<Nest> result;
    for (std::size_t n = 0; n < gone.size(); ++n) {
      if (!gone[n]) result.push_back(std::move(program_.nests[n]));
      for (Nest& nest : after[n]) result.push_back(std::move(nest));
    }
    program_.nests = std::move(result);
    return std::move(made_);
  }

 private:
  // About how many parts; 0: none.
  std::int64_t wanted_parts(const Nest& nest, const ColumnFamily& family) const {
    const std::int64_t rows = extent_hint(nest.reduced);
    const std::int64_t columns = extent_hint(nest.dims);
    const std::int64_t sums = columns * static_cast<std::int64_t>(family.sums.size());
    const abi::SplitRules& rules = device_.split;
    if (const std::int64_t most = device_.loops.part_rows; most > 0) {
      const std::int64_t parts = (rows + most - 1) / most;
      return sums > device_.loops.part_sums || parts < device_.parallelism ? 0 : parts;
    }
    if (columns < rules.least_columns || columns % kColumnsOfAccess != 0 ||
        sums > rules.split_sums) {
      return 0;
    }
    const SequentialTeam team = sequential_team(
        columns, static_cast<std::int64_t>(family.sums.size()), lanes_of(nest), device_.blocks);
    const std::int64_t blocks = std::max<std::int64_t>(1, rules.split_threads / team.threads);
    const std::int64_t parts = std::min(blocks * device_.parallelism, rows / rules.least_rows);
    return parts < device_.parallelism / 2 ? 0 : parts;
  }

  // Elements of the narrowest access along a row, in 16 bytes.
  std::int32_t lanes_of(const Nest& nest) const {
    std::int64_t narrowest = 4;
    for (const Instruction& i : nest.body.instructions) {
      if (i.opcode != Opcode::load || !mentions_all(i.indices, real_loops(nest.dims))) continue;
      narrowest = std::min(narrowest, abi::size_of(program_.buffers[i.buffer].dtype));
    }
    return static_cast<std::int32_t>(16 / std::max<std::int64_t>(narrowest, 2));
  }

  bool split_nest(const Nest& nest, const ColumnFamily& family, std::vector<Nest>& result) {
    const std::int64_t wanted = wanted_parts(nest, family);
    if (wanted < 2) return false;
    Nest divided = nest;
    divided.reduced = real_loops(nest.reduced);
    const std::size_t moved = loops_of_parts(divided, *program_.context, wanted);
    if (moved == 0 || moved == divided.reduced.size()) return false;
    const std::int64_t each = extent_hint(std::span(divided.reduced).subspan(moved));
    const std::int64_t most = device_.loops.part_rows;
    if (each < device_.split.least_rows || (most > 0 && each > most)) return false;
    if (extent_hint(std::span(divided.reduced).first(moved)) < least_parts_) return false;
    const std::size_t before = result.size();
    split(program_, divided, moved, true, result);
    made_.push_back(result[before].stores.front().buffer);
    return true;
  }

  Program& program_;
  const abi::Target& device_;
  const std::int64_t least_parts_;
  std::vector<BufferId> made_;
};

// --- A part joins the kernel of its rows --------------------------------------------------------

// A load or store of a member.
struct Touch {
  BufferId buffer;
  const std::vector<Expr>* indices;
};

std::vector<Touch> touches(const Member& member) {
  std::vector<Touch> result;
  for (const Instruction& i : member.nest.body.instructions) {
    if (i.opcode == Opcode::load) result.push_back({i.buffer, &i.indices});
  }
  for (const loop::Store& store : member.nest.stores) {
    result.push_back({store.buffer, &store.indices});
  }
  return result;
}

class RowJoiner {
 public:
  RowJoiner(const Group& group, const Nest& nest, sym::Context& context)
      : group_(group), nest_(nest), context_(context) {}

  // The correspondence under which an element that the nest reads is one that a member touches.
  std::optional<LoopMatcher> run() {
    for (const Member& member : group_.members) {
      if (member.inner.empty() || member.accumulates) continue;
      for (const Touch& theirs : touches(member)) {
        for (const Instruction& ours : nest_.body.instructions) {
          if (ours.opcode != Opcode::load || ours.buffer != theirs.buffer) continue;
          LoopMatcher matcher(group_, nest_, context_);
          if (fits(matcher, member, *theirs.indices, ours.indices)) return matcher;
        }
      }
    }
    return std::nullopt;
  }

  // Loops of the nest at whose points it sums.
  [[nodiscard]] const std::vector<Dim>& points() const { return points_; }

 private:
  bool fits(LoopMatcher& matcher, const Member& member, const std::vector<Expr>& theirs,
            const std::vector<Expr>& ours) {
    points_.clear();
    std::vector<Expr> paired;
    for (std::size_t d = 0; d < theirs.size(); ++d) {
      const bool outer = contains_any(theirs[d], group_.outer);
      const bool inner = contains_any(theirs[d], member.inner);
      if (outer && inner) return false;
      if (outer) {
        if (!matcher.match(theirs[d], ours[d])) return false;
      } else if (inner) {
        if (!pair_point(member, theirs[d], ours[d], paired)) return false;
      } else if (!(theirs[d] == ours[d])) {
        return false;
      }
    }
    const std::vector<Dim> open = matcher.unmapped();
    if (paired.size() != member.inner.size() || open.size() != points_.size()) return false;
    return std::all_of(open.begin(), open.end(),
                       [&](const Dim& dim) {
                         return std::find(points_.begin(), points_.end(), dim) != points_.end();
                       }) &&
           reduces_last(matcher);
  }

  bool pair_point(const Member& member, Expr theirs, Expr ours, std::vector<Expr>& paired) {
    const auto has = [](Expr variable) {
      return [variable](const Dim& dim) { return dim.variable == variable; };
    };
    const auto a = std::find_if(member.inner.begin(), member.inner.end(), has(theirs));
    const auto b = std::find_if(nest_.dims.begin(), nest_.dims.end(), has(ours));
    if (a == member.inner.end() || b == nest_.dims.end() || !(a->extent == b->extent)) return false;
    paired.push_back(theirs);
    points_.push_back(*b);
    return true;
  }

  // The rows of a part are the group's last loops.
  bool reduces_last(const LoopMatcher& matcher) const {
    const std::vector<Dim> sequential = matcher.image(nest_.reduced);
    const std::vector<Dim>& dims = matcher.group_dims();
    if (sequential.empty() || sequential.size() >= dims.size()) return false;
    if (group_.sequential != 0 &&
        (group_.sequential != sequential.size() || dims.size() != group_.outer.size())) {
      return false;
    }
    return std::all_of(dims.end() - static_cast<std::ptrdiff_t>(sequential.size()), dims.end(),
                       [&](const Dim& dim) {
                         return std::find(sequential.begin(), sequential.end(), dim) !=
                                sequential.end();
                       });
  }

  const Group& group_;
  const Nest& nest_;
  sym::Context& context_;
  std::vector<Dim> points_;
};

}  // namespace

std::vector<ColumnFamily> column_families(const Program& program, bool dense) {
  return Finder(program, dense).run();
}

std::vector<BufferId> split_columns(Program& program, const abi::Target& device,
                                    std::span<const ColumnFamily> families,
                                    std::int64_t least_parts) {
  return ColumnSplitter(program, device, least_parts).run(families);
}

std::optional<Group> join_sequential_rows(const Group& group, const Nest& nest,
                                          const Program& program, std::string& why) {
  sym::Context& context = *program.context;
  const bool is_plain =
      std::all_of(group.members.begin(), group.members.end(), [](const Member& member) {
        return member.nest.kind == NestKind::pointwise || member.nest.kind == NestKind::reduction;
      });
  if (group.open || !is_plain) {
    why = "the group does not reduce rows";
    return std::nullopt;
  }
  Member member{nest, {}};
  drop_unit_dims(member.nest, context);
  RowJoiner joiner(group, member.nest, context);
  const auto matcher = joiner.run();
  if (!matcher) {
    why = "the group has no element of its rows, or other parts";
    return std::nullopt;
  }
  Group joined = group;
  joined.outer = matcher->group_dims();
  joined.sequential = matcher->image(member.nest.reduced).size();
  for (Member& m : joined.members) rename(m.nest, matcher->group_map());
  for (const Dim& dim : member.nest.dims) {
    if (std::find(joiner.points().begin(), joiner.points().end(), dim) != joiner.points().end()) {
      member.inner.push_back(dim);
    }
  }
  rename(member.nest, matcher->nest_map());
  if (!reads_own_iteration(joined, member.nest)) {
    why = "it reads what another iteration of the group writes";
    return std::nullopt;
  }
  member.nest.dims.clear();
  member.nest.reduced.clear();
  member.accumulates = true;
  joined.members.push_back(std::move(member));
  why = "shared rows";
  return joined;
}

}  // namespace inkle::schedule
