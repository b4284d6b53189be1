#include "schedule/matcher.h"

#include <algorithm>

#include "schedule/linear.h"
#include "schedule/rewrite.h"

namespace inkle::schedule {

using loop::BufferId;
using loop::Dim;
using loop::Instruction;
using loop::Nest;
using loop::Opcode;
using loop::Store;
using sym::Expr;

namespace {

// e as a mixed-radix number over `dims`: e = ((x1 * E2) + x2) * E3 + ..., x1 first. nullopt if e is
// not of that form or leaves a remainder.
std::optional<std::vector<Dim>> mixed_radix(Expr e, const std::vector<Dim>& dims,
                                            sym::Context& context) {
  std::vector<Dim> used;
  for (const Dim& dim : dims) {
    if (sym::contains(e, dim.variable)) used.push_back(dim);
  }
  std::vector<Dim> digits;  // the fastest first
  Expr need = context.constant(1);
  Expr rest = e;
  while (digits.size() < used.size()) {
    bool found = false;
    for (const Dim& dim : used) {
      const auto stride = sym::stride(rest, dim.variable);
      if (!sym::contains(rest, dim.variable) || !stride || !(*stride == need)) continue;
      rest = rest - *stride * dim.variable;
      digits.push_back(dim);
      need = need * dim.extent;
      found = true;
      break;
    }
    if (!found) return std::nullopt;
  }
  if (!rest.is_constant(0)) return std::nullopt;
  std::reverse(digits.begin(), digits.end());
  return digits;
}

const Dim* find(const std::vector<Dim>& dims, Expr variable) {
  const auto at = std::find_if(dims.begin(), dims.end(),
                               [&](const Dim& dim) { return dim.variable == variable; });
  return at == dims.end() ? nullptr : &*at;
}

// The divisor of a floordiv(variable, divisor) in e that divides the loop. `loops`: what a divisor
// may not depend on. `nested`: also in a term or a factor of e.
std::optional<Expr> divisor_in(Expr e, const Dim& dim, const std::vector<Dim>& loops, bool nested) {
  if (!sym::contains(e, dim.variable)) return std::nullopt;
  if (e.kind() == sym::Kind::floordiv && e.operands()[0] == dim.variable) {
    const Expr divisor = e.operands()[1];
    const bool fits = sym::mod(dim.extent, divisor).is_constant(0) && !contains_any(divisor, loops);
    if (fits) return divisor;
  }
  if (!nested || (e.kind() != sym::Kind::add && e.kind() != sym::Kind::mul)) return std::nullopt;
  for (const Expr part : e.operands()) {
    if (const auto divisor = divisor_in(part, dim, loops, nested)) return divisor;
  }
  return std::nullopt;
}

// What reverses the loops of `e` where all of them have negative strides in it; empty where all
// have positive ones. Nothing where they differ, or are not known to be linear.
std::optional<LoopMatcher::Map> reversal_of(Expr e, const std::vector<Dim>& dims) {
  LoopMatcher::Map reversed;
  std::size_t count = 0;
  for (const Dim& dim : dims) {
    if (!sym::contains(e, dim.variable)) continue;
    const auto stride = sym::stride(e, dim.variable);
    const auto step = stride ? stride->constant() : std::nullopt;
    if (!step || *step == 0) return std::nullopt;
    ++count;
    if (*step < 0) reversed.emplace_back(dim.variable, dim.extent - 1 - dim.variable);
  }
  if (!reversed.empty() && reversed.size() != count) return std::nullopt;
  return reversed;
}

// divisor_in() the indices at which the nest reads a buffer that `counts`.
template <class Counts>
std::optional<Expr> quotient_of(const Nest& nest, const Dim& dim, const std::vector<Dim>& loops,
                                bool nested, const Counts& counts) {
  for (const Instruction& i : nest.body.instructions) {
    if (i.opcode != Opcode::load || !counts(i.buffer)) continue;
    for (const Expr e : i.indices) {
      if (const auto divisor = divisor_in(e, dim, loops, nested)) return divisor;
    }
  }
  return std::nullopt;
}

void divide_outer(Group& group, std::size_t at, Expr inner, sym::Context& context) {
  const Dim whole = group.outer[at];
  const Expr outer = sym::floordiv(whole.extent, inner);
  const Dim slow{context.index(outer), outer};
  const Dim fast{context.index(inner), inner};
  group.outer[at] = slow;
  group.outer.insert(group.outer.begin() + static_cast<std::ptrdiff_t>(at) + 1, fast);
  for (Member& member : group.members) {
    rename(member.nest, {{whole.variable, slow.variable * inner + fast.variable}});
  }
}

bool is_read(const Nest& nest, BufferId buffer) {
  const auto& body = nest.body.instructions;
  return std::any_of(body.begin(), body.end(), [&](const Instruction& i) {
    return i.opcode == Opcode::load && i.buffer == buffer;
  });
}

}  // namespace

bool contains_any(Expr e, const std::vector<Dim>& dims) {
  return std::any_of(dims.begin(), dims.end(),
                     [&](const Dim& dim) { return sym::contains(e, dim.variable); });
}

// --- LoopMatcher --------------------------------------------------------------------------------

LoopMatcher::LoopMatcher(const Group& group, const Nest& nest, sym::Context& context, bool inverts)
    : context_(&context),
      group_dims_(group.outer),
      nest_dims_(nest.dims),
      reduced_from_(nest.dims.size()),
      inverts_(inverts),
      group_may_invert_(group.sequential == 0) {
  nest_dims_.insert(nest_dims_.end(), nest.reduced.begin(), nest.reduced.end());
}

bool LoopMatcher::match(Expr theirs, Expr ours) {
  theirs = sym::substitute(theirs, group_map_);
  ours = sym::substitute(ours, nest_map_);
  if (theirs == ours) return true;
  return match_forward(theirs, ours) || (inverts_ && match_inverted(theirs, ours));
}

bool LoopMatcher::match_forward(Expr theirs, Expr ours) {
  // x[i,i] of the group and x[j,k] of the nest: i is j already, so it is not k as well.
  const bool is_taken = std::any_of(group_dims_.begin(), group_dims_.end(), [&](const Dim& dim) {
    return sym::contains(theirs, dim.variable) && is_image(dim.variable);
  });
  if (is_taken) return false;
  const std::vector<Dim> open = unmapped();
  if (const Dim* whole = find(group_dims_, theirs)) {
    if (contains_any(ours, group_dims_)) return false;
    const auto digits = mixed_radix(ours, open, *context_);
    return digits && !digits->empty() && divide_group(*whole, *digits);
  }
  if (const Dim* whole = find(open, ours)) {
    const auto digits = mixed_radix(theirs, group_dims_, *context_);
    if (!digits || digits->empty()) return false;
    if (!(extent_product(*digits, *context_) == whole->extent)) return false;
    nest_map_.emplace_back(whole->variable, theirs);
    return true;
  }
  return match_digits(theirs, ours);
}

// Both are matched with positive strides. If one of them has negative ones, a loop is reversed.
bool LoopMatcher::match_inverted(Expr theirs, Expr ours) {
  const auto group_reversal = reversal_of(theirs, group_dims_);
  const auto nest_reversal = reversal_of(ours, unmapped());
  if (!group_reversal || !nest_reversal || (group_reversal->empty() && nest_reversal->empty()))
    return false;
  const bool differ = group_reversal->empty() != nest_reversal->empty();
  LoopMatcher trial = *this;
  const std::size_t known = nest_map_.size();
  if (!trial.match_forward(sym::substitute(theirs, *group_reversal),
                           sym::substitute(ours, *nest_reversal))) {
    return false;
  }
  if (differ) {
    const auto is_reduced = [&](const auto& mapped) {
      return std::any_of(nest_dims_.begin() + static_cast<std::ptrdiff_t>(reduced_from_),
                         nest_dims_.end(),
                         [&](const Dim& dim) { return dim.variable == mapped.first; });
    };
    const bool keeps_order =
        std::any_of(trial.nest_map_.begin() + static_cast<std::ptrdiff_t>(known),
                    trial.nest_map_.end(), is_reduced);
    if (!keeps_order) {
      trial.invert(known);
    } else if (!trial.invert_group_of(known)) {
      return false;
    }
  }
  *this = std::move(trial);
  return true;
}

void LoopMatcher::invert(std::size_t first) {
  for (std::size_t m = first; m < nest_map_.size(); ++m) {
    auto& [variable, expression] = nest_map_[m];
    expression = find(nest_dims_, variable)->extent - 1 - expression;
    inverted_.push_back(variable);
  }
  has_inverted_ = true;
}

bool LoopMatcher::invert_group_of(std::size_t first) {
  if (!group_may_invert_) return false;
  for (const Dim& dim : std::vector<Dim>(group_dims_)) {
    const bool is_mapped_to =
        std::any_of(nest_map_.begin() + static_cast<std::ptrdiff_t>(first), nest_map_.end(),
                    [&](const auto& mapped) { return sym::contains(mapped.second, dim.variable); });
    if (!is_mapped_to) continue;
    const Dim other{context_->index(dim.extent), dim.extent};
    const Map reversed = {{dim.variable, dim.extent - 1 - other.variable}};
    const Map renamed = {{dim.variable, other.variable}};
    for (auto& [variable, expression] : group_map_) {
      expression = sym::substitute(expression, reversed);
    }
    for (std::size_t m = 0; m < nest_map_.size(); ++m) {
      Expr& expression = nest_map_[m].second;
      if (m >= first) {
        expression = sym::substitute(expression, renamed);
      } else if (sym::contains(expression, dim.variable)) {
        // Its loop would run against an order that it must keep, or it is one digit of several.
        return false;
      }
    }
    group_map_.emplace_back(dim.variable, dim.extent - 1 - other.variable);
    *std::find(group_dims_.begin(), group_dims_.end(), dim) = other;
  }
  has_inverted_ = true;
  return true;
}

bool LoopMatcher::match_digits(Expr theirs, Expr ours) {
  const auto a = mixed_radix(sym::substitute(theirs, group_map_), group_dims_, *context_);
  const auto b = mixed_radix(sym::substitute(ours, nest_map_), unmapped(), *context_);
  if (!a || !b || a->size() != b->size()) return false;
  for (std::size_t d = 0; d < a->size(); ++d) {
    if (!((*a)[d].extent == (*b)[d].extent)) return false;
  }
  for (std::size_t d = 0; d < a->size(); ++d) {
    nest_map_.emplace_back((*b)[d].variable, (*a)[d].variable);
  }
  return true;
}

bool LoopMatcher::is_image(Expr variable) const {
  return std::any_of(nest_map_.begin(), nest_map_.end(),
                     [&](const auto& mapped) { return sym::contains(mapped.second, variable); });
}

std::vector<Dim> LoopMatcher::unmapped() const {
  std::vector<Dim> open;
  for (const Dim& dim : nest_dims_) {
    const bool mapped = std::any_of(nest_map_.begin(), nest_map_.end(),
                                    [&](const auto& m) { return m.first == dim.variable; });
    if (!mapped) open.push_back(dim);
  }
  return open;
}

std::vector<Dim> LoopMatcher::image(const std::vector<Dim>& dims) const {
  std::vector<Dim> result;
  for (const Dim& dim : dims) {
    for (const auto& [variable, mapped] : nest_map_) {
      if (!(variable == dim.variable)) continue;
      const bool inverted =
          std::find(inverted_.begin(), inverted_.end(), variable) != inverted_.end();
      const Expr expression = inverted ? dim.extent - 1 - mapped : mapped;
      std::vector<Dim> digits;
      if (find(group_dims_, expression) != nullptr) {
        digits = {*find(group_dims_, expression)};
      } else if (auto radix = mixed_radix(expression, group_dims_, *context_)) {
        digits = *radix;
      }
      result.insert(result.end(), digits.begin(), digits.end());
    }
  }
  return result;
}

// Replaces a group loop by several whose extents are the digits', and maps those to them.
bool LoopMatcher::divide_group(const Dim& whole, const std::vector<Dim>& digits) {
  if (!(extent_product(digits, *context_) == whole.extent)) return false;
  if (digits.size() == 1) {
    nest_map_.emplace_back(digits.front().variable, whole.variable);
    return true;
  }
  std::vector<Dim> parts;
  Expr sum = context_->constant(0);
  for (const Dim& digit : digits) {
    const Expr variable = context_->index(digit.extent);
    parts.push_back({variable, digit.extent});
    sum = sum * digit.extent + variable;
    nest_map_.emplace_back(digit.variable, variable);
  }
  const Map division = {{whole.variable, sum}};
  for (auto& [variable, expression] : group_map_) {
    expression = sym::substitute(expression, division);
  }
  for (auto& [variable, expression] : nest_map_) {
    expression = sym::substitute(expression, division);
  }
  group_map_.emplace_back(whole.variable, sum);
  const auto at = std::find_if(group_dims_.begin(), group_dims_.end(),
                               [&](const Dim& dim) { return dim.variable == whole.variable; });
  const auto place = group_dims_.erase(at);
  group_dims_.insert(place, parts.begin(), parts.end());
  return true;
}

// --- Reads --------------------------------------------------------------------------------------

std::optional<StoreOf> find_store(const Group& group, BufferId buffer) {
  for (const Member& member : group.members) {
    for (const Store& store : member.nest.stores) {
      if (store.buffer == buffer) return StoreOf{&member, &store};
    }
  }
  return std::nullopt;
}

// Matches every read of what the group writes. False if one cannot be; `found` counts them.
bool match_dependencies(LoopMatcher& matcher, const Group& group, const Nest& nest, int& found) {
  for (const Instruction& i : nest.body.instructions) {
    if (i.opcode != Opcode::load) continue;
    const auto store = find_store(group, i.buffer);
    if (!store) continue;
    ++found;
    for (std::size_t d = 0; d < i.indices.size(); ++d) {
      const Expr theirs = store->store->indices[d];
      if (!contains_any(theirs, group.outer)) continue;
      if (contains_any(theirs, store->member->inner)) continue;  // checked afterwards
      if (!matcher.match(theirs, i.indices[d])) return false;
    }
  }
  return true;
}

// Without a dependency: the same element of the same input, read by both.
// Pairs the group loops of `theirs` with open loops of `ours` of equal stride and extent: both read
// pieces of the same rows.
bool match_steps(LoopMatcher& matcher, const Group& group, Expr theirs, Expr ours) {
  bool found = false;
  for (const Dim& dim : group.outer) {
    if (!sym::contains(theirs, dim.variable)) continue;
    const auto step = sym::stride(theirs, dim.variable);
    if (!step) return false;
    const std::vector<Dim> open = matcher.unmapped();
    const auto same = std::find_if(open.begin(), open.end(), [&](const Dim& o) {
      if (!(o.extent == dim.extent) || !sym::contains(ours, o.variable)) return false;
      const auto own = sym::stride(ours, o.variable);
      return own && *own == *step;
    });
    if (same == open.end() || !matcher.match(dim.variable, same->variable)) return false;
    found = true;
  }
  return found;
}

bool match_sibling(LoopMatcher& matcher, const Group& group, const Nest& nest) {
  for (const Instruction& ours : nest.body.instructions) {
    if (ours.opcode != Opcode::load || ours.indices.empty()) continue;
    for (const Member& member : group.members) {
      for (const Instruction& theirs : member.nest.body.instructions) {
        if (theirs.opcode != Opcode::load || theirs.buffer != ours.buffer) continue;
        LoopMatcher trial = matcher;
        bool same = true;
        for (std::size_t d = 0; d < ours.indices.size() && same; ++d) {
          const Expr index = theirs.indices[d];
          if (!contains_any(index, member.inner)) {
            same = trial.match(index, ours.indices[d]);
          } else if (contains_any(index, group.outer)) {
            same = match_steps(trial, group, index, ours.indices[d]);
          }
        }
        if (!same) continue;
        matcher = trial;
        return true;
      }
    }
  }
  return false;
}

void divide_loops(Nest& nest, const Group& group, sym::Context& context) {
  const auto is_result = [&](BufferId b) { return find_store(group, b).has_value(); };
  for (std::size_t d = 0; d < nest.dims.size(); ++d) {
    const auto inner = quotient_of(nest, nest.dims[d], nest.dims, false, is_result);
    if (inner) divide_loop(nest, nest.dims, d, *inner, context);
  }
}

bool divide_shared_loops(Group& group, Nest& nest, sym::Context& context) {
  bool found = false;
  const auto is_of_group = [&](BufferId b) {
    return find_store(group, b) ||
           std::any_of(group.members.begin(), group.members.end(),
                       [&](const Member& member) { return is_read(member.nest, b); });
  };
  for (std::size_t d = 0; d < nest.dims.size(); ++d) {
    const auto inner = quotient_of(nest, nest.dims[d], nest.dims, true, is_of_group);
    if (!inner) continue;
    divide_loop(nest, nest.dims, d, *inner, context);
    found = true;
  }
  const auto is_of_nest = [&](BufferId b) { return is_read(nest, b); };
  for (std::size_t d = 0; d < group.outer.size(); ++d) {
    std::optional<Expr> inner;
    for (const Member& member : group.members) {
      if (!inner) inner = quotient_of(member.nest, group.outer[d], group.outer, true, is_of_nest);
    }
    if (!inner) continue;
    divide_outer(group, d, *inner, context);
    found = true;
  }
  return found;
}

}  // namespace inkle::schedule
