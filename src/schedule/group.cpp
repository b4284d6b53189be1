#include "schedule/group.h"

#include <algorithm>

#include "base/error.h"
#include "schedule/linear.h"
#include "schedule/matcher.h"

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

// What the nest overwrites, the group reads at just that element in the same iteration, if at all,
// and elementwise: a reduction, also of one element, is a stage of its own that may come later.
bool overwrites_own_element(const Group& group, const Member& joining, const Nest& nest) {
  for (const Store& store : nest.stores) {
    for (const Member& member : group.members) {
      for (const Instruction& i : member.nest.body.instructions) {
        if (i.opcode != Opcode::load || i.buffer != store.buffer) continue;
        if (!member.inner.empty() || !joining.inner.empty()) return false;
        if (member.nest.kind != NestKind::pointwise) return false;
        if (!(i.indices == store.indices)) return false;
      }
    }
  }
  return true;
}

bool same_dims(const std::vector<Dim>& a, const std::vector<Dim>& b) {
  return std::is_permutation(a.begin(), a.end(), b.begin(), b.end());
}

std::optional<Dim> find_dim(const std::vector<Dim>& dims, Expr variable) {
  const auto at = std::find_if(dims.begin(), dims.end(),
                               [&](const Dim& dim) { return dim.variable == variable; });
  return at == dims.end() ? std::nullopt : std::optional<Dim>(*at);
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
bool place(Group& group, Member& member, const Nest& nest, const LoopMatcher& matcher,
           std::string& why_not) {
  const std::vector<Dim> open = matcher.unmapped();
  const std::vector<Dim> outer_image = matcher.image(nest.dims);
  const std::vector<Dim> reduced_image = matcher.image(nest.reduced);
  const auto is_open = [&](const Dim& dim) {
    return std::find(open.begin(), open.end(), dim) != open.end();
  };
  if (nest.kind == NestKind::reduction || nest.kind == NestKind::scan) {
    if (std::any_of(nest.dims.begin(), nest.dims.end(), is_open)) {
      why_not = "the group lacks loops of the reduction";
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
  // One kernel for both would run all points one after the other.
  if (group.open && group.outer.empty() && !open.empty()) {
    why_not = "the group computes scalars";
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

Group make_group(const Nest& nest, sym::Context& context, bool unordered) {
  Group group;
  Member member{nest, {}};
  drop_unit_dims(member.nest, context);
  group.outer = member.nest.dims;
  member.inner = member.nest.reduced;
  if (nest.kind == NestKind::scatter) {
    const auto written = loop::writes(nest);
    const bool reads_own = std::any_of(
        nest.body.instructions.begin(), nest.body.instructions.end(), [&](const Instruction& i) {
          return i.opcode == Opcode::load &&
                 std::find(written.begin(), written.end(), i.buffer) != written.end();
        });
    group.unordered = unordered && !reads_own;
  }
  if (nest.kind == NestKind::scatter && !group.unordered) {
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

namespace {

// `nest` has no loops of one iteration.
std::optional<Group> join_loops(const Group& group, const Nest& nest, sym::Context& context,
                                bool inverts, std::string& why) {
  Member member{nest, {}};
  LoopMatcher matcher(group, member.nest, context, inverts);
  int dependencies = 0;
  if (!match_dependencies(matcher, group, member.nest, dependencies)) {
    why = "it reads the group's results in another order";
    return std::nullopt;
  }
  if (dependencies == 0 && !match_sibling(matcher, group, member.nest)) {
    why = "they share no element in the same iteration";
    return std::nullopt;
  }
  if (group.sequential != 0 && matcher.group_dims().size() != group.outer.size()) {
    why = "it would split sequential loops";
    return std::nullopt;
  }
  Group joined = group;
  joined.outer = matcher.group_dims();
  for (Member& m : joined.members) {
    rename(m.nest, matcher.group_map());
    m.nest.dims.clear();
  }
  if (!place(joined, member, member.nest, matcher, why)) return std::nullopt;
  rename(member.nest, matcher.nest_map());
  if (!reads_own_iteration(joined, member.nest)) {
    why = "it reads what another iteration of the group writes";
    return std::nullopt;
  }
  if (!overwrites_own_element(joined, member, member.nest)) {
    why = "it overwrites what the group reads";
    return std::nullopt;
  }
  member.nest.dims.clear();
  member.nest.reduced.clear();
  joined.members.push_back(std::move(member));
  if (matcher.has_inverted()) ++joined.inversions;
  why = matcher.has_inverted() ? "shared loops, one of them reversed" : "shared loops";
  return joined;
}

}  // namespace

std::optional<Group> join(const Group& group, const Nest& nest, const loop::Program& program,
                          bool inverts, std::string& why) {
  sym::Context& context = *program.context;
  Nest joining = nest;
  drop_unit_dims(joining, context);
  if (joining.kind == NestKind::pointwise) divide_loops(joining, group, context);
  std::optional<Group> joined = join_loops(group, joining, context, inverts, why);
  if (joined || !inverts || group.sequential != 0) return joined;
  Group divided = group;
  if (!divide_shared_loops(divided, joining, context)) return std::nullopt;
  joined = join_loops(divided, joining, context, inverts, why);
  if (!joined) return std::nullopt;
  joined->inversions = group.inversions + 1;
  why = "shared loops, one of them split";
  return joined;
}

std::optional<Group> prepend(const Group& producer, const Group& group, std::string& why) {
  const auto is_plain = [](const Member& m) {
    return m.nest.kind == NestKind::pointwise && m.inner.empty();
  };
  if (group.sequential != 0 || producer.outer.size() != group.outer.size() ||
      !std::all_of(producer.members.begin(), producer.members.end(), is_plain)) {
    why = "outer loops differ";
    return std::nullopt;
  }
  // The first read decides which loops correspond; the others are checked against it.
  Map map;
  for (const Member& member : group.members) {
    for (const Instruction& i : member.nest.body.instructions) {
      const auto store = i.opcode == Opcode::load ? find_store(producer, i.buffer) : std::nullopt;
      if (!store || !map.empty()) continue;
      for (std::size_t d = 0; d < i.indices.size(); ++d) {
        const auto theirs = find_dim(producer.outer, store->store->indices[d]);
        const auto ours = find_dim(group.outer, i.indices[d]);
        if (theirs && ours && theirs->extent == ours->extent) {
          map.emplace_back(theirs->variable, ours->variable);
        }
      }
    }
  }
  const auto is_mapped_to = [&](const Dim& dim) {
    return std::any_of(map.begin(), map.end(),
                       [&](const auto& pair) { return pair.second == dim.variable; });
  };
  if (map.size() != group.outer.size() ||
      !std::all_of(group.outer.begin(), group.outer.end(), is_mapped_to)) {
    why = "it reads the results in another order";
    return std::nullopt;
  }
  Group joined = group;
  joined.open = group.open && producer.open;
  joined.inversions = group.inversions + producer.inversions;
  joined.members = producer.members;
  for (Member& member : joined.members) rename(member.nest, map);
  for (const Member& member : group.members) {
    if (!overwrites_own_element(joined, member, member.nest)) {
      why = "it overwrites what the group reads";
      return std::nullopt;
    }
  }
  joined.members.insert(joined.members.end(), group.members.begin(), group.members.end());
  const auto reads_own = [&](const Member& m) { return reads_own_iteration(joined, m.nest); };
  if (!std::all_of(joined.members.begin(), joined.members.end(), reads_own)) {
    why = "it reads what another iteration of the group writes";
    return std::nullopt;
  }
  why = "shared loops";
  return joined;
}

std::optional<Group> merge(const Group& a, const Group& b) {
  if (a.outer.size() != b.outer.size() || a.sequential != 0 || b.sequential != 0)
    return std::nullopt;
  Map map;
  for (std::size_t d = 0; d < a.outer.size(); ++d) {
    if (!(a.outer[d].extent == b.outer[d].extent)) return std::nullopt;
    map.emplace_back(b.outer[d].variable, a.outer[d].variable);
  }
  Group both = a;
  both.open = a.open && b.open;
  both.inversions = a.inversions + b.inversions;
  for (Member member : b.members) {
    rename(member.nest, map);
    both.members.push_back(std::move(member));
  }
  return both;
}

}  // namespace inkle::schedule
