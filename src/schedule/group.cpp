#include "schedule/group.h"

#include <algorithm>

#include "base/error.h"
#include "schedule/linear.h"

namespace inkle::schedule {
namespace {

using loop::BufferId;
using loop::Dim;
using loop::Instruction;
using loop::Nest;
using loop::NestKind;
using loop::Opcode;
using loop::Store;
using sym::Expr;
using Map = std::vector<std::pair<Expr, Expr>>;

bool contains_any(Expr e, const std::vector<Dim>& dims) {
  return std::any_of(dims.begin(), dims.end(),
                     [&](const Dim& dim) { return sym::contains(e, dim.variable); });
}

void rename(Nest& nest, const Map& map) {
  if (map.empty()) return;
  for (Instruction& i : nest.body.instructions) {
    for (Expr& e : i.indices) {
      if (i.opcode != Opcode::indirect) e = sym::substitute(e, map);
    }
  }
  for (Store& store : nest.stores) {
    for (Expr& e : store.indices) e = sym::substitute(e, map);
  }
}

// Loops of one iteration carry nothing: their variable is 0.
void drop_unit_dims(Nest& nest, sym::Context& context) {
  Map map;
  for (std::vector<Dim>* dims : {&nest.dims, &nest.reduced}) {
    std::erase_if(*dims, [&](const Dim& dim) {
      if (!dim.extent.is_constant(1)) return false;
      map.emplace_back(dim.variable, context.constant(0));
      return true;
    });
  }
  rename(nest, map);
}

// e as a mixed-radix number over `dims`: e = ((x1 * E2) + x2) * E3 + ..., x1 first. Nothing if e is
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

// Finds how a nest's variables correspond to a group's, from pairs of indices that must be equal.
class Matcher {
 public:
  Matcher(const Group& group, const Nest& nest, sym::Context& context)
      : context_(&context), group_dims_(group.outer), nest_dims_(nest.dims) {
    nest_dims_.insert(nest_dims_.end(), nest.reduced.begin(), nest.reduced.end());
  }

  // `theirs` in group variables, `ours` in the nest's.
  bool match(Expr theirs, Expr ours) {
    theirs = sym::substitute(theirs, group_map_);
    ours = sym::substitute(ours, nest_map_);
    if (theirs == ours) return true;
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
    return false;
  }

  [[nodiscard]] const std::vector<Dim>& group_dims() const { return group_dims_; }
  [[nodiscard]] const Map& group_map() const { return group_map_; }
  [[nodiscard]] const Map& nest_map() const { return nest_map_; }

  [[nodiscard]] std::vector<Dim> unmapped() const {
    std::vector<Dim> open;
    for (const Dim& dim : nest_dims_) {
      const bool mapped = std::any_of(nest_map_.begin(), nest_map_.end(),
                                      [&](const auto& m) { return m.first == dim.variable; });
      if (!mapped) open.push_back(dim);
    }
    return open;
  }

  // The group's dims that the nest's `dims` map to, in the nest's order.
  [[nodiscard]] std::vector<Dim> image(const std::vector<Dim>& dims) const {
    std::vector<Dim> result;
    for (const Dim& dim : dims) {
      for (const auto& [variable, expression] : nest_map_) {
        if (!(variable == dim.variable)) continue;
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

 private:
  static const Dim* find(const std::vector<Dim>& dims, Expr variable) {
    const auto at = std::find_if(dims.begin(), dims.end(),
                                 [&](const Dim& dim) { return dim.variable == variable; });
    return at == dims.end() ? nullptr : &*at;
  }

  // Replaces a group loop by several whose extents are the digits', and maps those to them.
  bool divide_group(const Dim& whole, const std::vector<Dim>& digits) {
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

  sym::Context* context_;
  std::vector<Dim> group_dims_;
  std::vector<Dim> nest_dims_;
  Map group_map_;
  Map nest_map_;
};

struct StoreOf {
  const Member* member;
  const Store* store;
};

std::optional<StoreOf> find_store(const Group& group, BufferId buffer) {
  for (const Member& member : group.members) {
    for (const Store& store : member.nest.stores) {
      if (store.buffer == buffer) return StoreOf{&member, &store};
    }
  }
  return std::nullopt;
}

// Matches every read of what the group writes. False if one cannot be; `found` counts them.
bool match_dependencies(Matcher& matcher, const Group& group, const Nest& nest, int& found) {
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
bool match_sibling(Matcher& matcher, const Group& group, const Nest& nest) {
  for (const Instruction& ours : nest.body.instructions) {
    if (ours.opcode != Opcode::load || ours.indices.empty()) continue;
    for (const Member& member : group.members) {
      for (const Instruction& theirs : member.nest.body.instructions) {
        if (theirs.opcode != Opcode::load || theirs.buffer != ours.buffer) continue;
        Matcher trial = matcher;
        bool same = true;
        for (std::size_t d = 0; d < ours.indices.size() && same; ++d) {
          if (contains_any(theirs.indices[d], member.inner)) continue;
          same = trial.match(theirs.indices[d], ours.indices[d]);
        }
        if (!same) continue;
        matcher = trial;
        return true;
      }
    }
  }
  return false;
}

// What the nest reads of the group's results was written in the same outer iteration.
bool reads_own_iteration(const Group& group, const Nest& nest) {
  for (const Instruction& i : nest.body.instructions) {
    if (i.opcode != Opcode::load) continue;
    const auto store = find_store(group, i.buffer);
    if (!store) continue;
    for (std::size_t d = 0; d < i.indices.size(); ++d) {
      const Expr theirs = store->store->indices[d];
      if (!contains_any(theirs, group.outer)) continue;
      if (theirs == i.indices[d]) continue;
      if (!contains_any(theirs, store->member->inner)) return false;
      // outer part * radix + inner part, the inner part below the radix on both sides.
      Expr rest_theirs = theirs;
      Expr rest_ours = i.indices[d];
      Expr radix;
      for (const Dim& dim : group.outer) {
        if (!sym::contains(theirs, dim.variable)) continue;
        const auto a = sym::stride(rest_theirs, dim.variable);
        const auto b = sym::stride(rest_ours, dim.variable);
        if (!a || !b || !(*a == *b)) return false;
        rest_theirs = rest_theirs - *a * dim.variable;
        rest_ours = rest_ours - *b * dim.variable;
        if (radix.is_null() || sym::less(*a, radix).value_or(false)) radix = *a;
      }
      if (contains_any(rest_ours, group.outer)) return false;
      if (!sym::less(rest_ours, radix).value_or(false)) return false;
    }
  }
  return true;
}

bool same_dims(const std::vector<Dim>& a, const std::vector<Dim>& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const Dim& dim) {
           return std::find(b.begin(), b.end(), dim) != b.end();
         });
}

bool is_prefix(const std::vector<Dim>& unmapped, const std::vector<Dim>& dims) {
  // The nest's mapped dims come before its unmapped ones.
  bool tail = false;
  for (const Dim& dim : dims) {
    const bool open = std::find(unmapped.begin(), unmapped.end(), dim) != unmapped.end();
    if (open) tail = true;
    if (!open && tail) return false;
  }
  return true;
}

// Decides outer and inner loops of the joined group; false with a reason if it cannot be.
bool place(Group& group, Member& member, const Nest& nest, const Matcher& matcher,
           std::string& why_not) {
  const std::vector<Dim> open = matcher.unmapped();
  const std::vector<Dim> outer_image = matcher.image(nest.dims);
  const std::vector<Dim> reduced_image = matcher.image(nest.reduced);
  const auto is_open = [&](const Dim& dim) {
    return std::find(open.begin(), open.end(), dim) != open.end();
  };
  if (nest.kind == NestKind::reduction) {
    if (std::any_of(nest.dims.begin(), nest.dims.end(), is_open)) {
      why_not = "the reduction has loops that the group has not";
      return false;
    }
    if (reduced_image.empty()) {
      if (!same_dims(outer_image, group.outer)) {
        why_not = "outer loops differ";
        return false;
      }
      member.inner = nest.reduced;
      group.open = false;
      return true;
    }
    std::vector<Dim> all = outer_image;
    all.insert(all.end(), reduced_image.begin(), reduced_image.end());
    if (!group.open || std::any_of(nest.reduced.begin(), nest.reduced.end(), is_open) ||
        !same_dims(all, group.outer)) {
      why_not = "the reduction runs over an outer loop of the group";
      return false;
    }
    for (Member& m : group.members) m.inner = reduced_image;
    member.inner = reduced_image;
    group.outer = outer_image;
    group.open = false;
    return true;
  }
  if (!same_dims(outer_image, group.outer)) {
    why_not = "outer loops differ";
    return false;
  }
  if (group.open && !open.empty() && !is_prefix(open, nest.dims)) {
    why_not = "the consumer broadcasts over its outer loops";
    return false;
  }
  member.inner = open;
  if (!open.empty()) group.open = false;
  return true;
}

// True if an index of every store is a + b * variable with b != 0 and neither depending on another
// loop or on data.
bool writes_apart(const Nest& nest, const Dim& dim) {
  const auto is_free = [&](Expr e) {
    if (contains_any(e, nest.dims)) return false;
    return std::none_of(
        nest.body.instructions.begin(), nest.body.instructions.end(), [&](const Instruction& i) {
          return i.opcode == Opcode::indirect && sym::contains(e, i.indices.front());
        });
  };
  return std::all_of(nest.stores.begin(), nest.stores.end(), [&](const Store& store) {
    return std::any_of(store.indices.begin(), store.indices.end(), [&](Expr index) {
      const auto stride = sym::stride(index, dim.variable);
      return stride && stride->is_constant() && !stride->is_constant(0) &&
             is_free(index - *stride * dim.variable);
    });
  });
}

}  // namespace

Group make_group(const Nest& nest, sym::Context& context) {
  Group group;
  Member member{nest, {}};
  drop_unit_dims(member.nest, context);
  group.outer = member.nest.dims;
  member.inner = member.nest.reduced;
  if (nest.kind == NestKind::scatter) {
    std::erase_if(group.outer, [&](const Dim& dim) {
      if (writes_apart(member.nest, dim)) return false;
      member.inner.push_back(dim);
      return true;
    });
  }
  group.open = nest.kind == NestKind::pointwise;
  group.members.push_back(std::move(member));
  return group;
}

std::optional<Group> join(const Group& group, const Nest& nest, const loop::Program& program,
                          std::string& why_not) {
  sym::Context& context = *program.context;
  Member member{nest, {}};
  drop_unit_dims(member.nest, context);
  Matcher matcher(group, member.nest, context);
  int dependencies = 0;
  if (!match_dependencies(matcher, group, member.nest, dependencies)) {
    why_not = "it reads the group's results in another order";
    return std::nullopt;
  }
  if (dependencies == 0 && !match_sibling(matcher, group, member.nest)) {
    why_not = "they share no element in the same iteration";
    return std::nullopt;
  }
  Group joined = group;
  joined.outer = matcher.group_dims();
  for (Member& m : joined.members) {
    rename(m.nest, matcher.group_map());
    m.nest.dims.clear();
  }
  if (!place(joined, member, member.nest, matcher, why_not)) return std::nullopt;
  rename(member.nest, matcher.nest_map());
  if (!reads_own_iteration(joined, member.nest)) {
    why_not = "it reads what another iteration of the group writes";
    return std::nullopt;
  }
  member.nest.dims.clear();
  member.nest.reduced.clear();
  joined.members.push_back(std::move(member));
  return joined;
}

}  // namespace inkle::schedule
