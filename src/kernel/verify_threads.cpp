#include "kernel/verify_threads.h"

#include <algorithm>

#include "kernel/names.h"

namespace inkle::kernel {

namespace {

constexpr std::int64_t kWarp = 32;

bool is_power_of_two(std::int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

}  // namespace

void ThreadChecker::uniform(const WalkPlace& place, Variance most, std::string_view scope) const {
  d_.require(place.control <= most, "control varies by {} where all of {} must come",
             name_of(place.control), scope);
}

void ThreadChecker::check(const Operation& o, const WalkPlace& place) const {
  switch (o.op) {
    case Op::reduce:
    case Op::scan:
    case Op::broadcast:
      return collective(o, place);
    case Op::transpose:
      d_.require(place.vector != nullptr &&
                     static_cast<std::size_t>(place.vector->width) == o.operands.size(),
                 "a transposition of {} values in other than as many lanes", o.operands.size());
      return uniform(place, Variance::thread, "the lanes");
    case Op::barrier:
      return barrier(o, place);
    case Op::shuffle: {
      const auto& s = std::get<Shuffle>(o.detail);
      d_.require(s.width <= kWarp && is_power_of_two(s.width), "a shuffle among {} lanes", s.width);
      d_.require(s.by >= 0 && s.by < kWarp, "a shuffle by {}", s.by);
      d_.require(k_.threads() > 1, "a shuffle without threads");
      // Which of the parts come here where not all do is known at run time alone.
      if (s.whole_warp) return uniform(place, Variance::warp, "a warp");
      return uniform(place, Variance::thread, "a part of a warp");
    }
    case Op::fence: {
      const auto& f = std::get<Fence>(o.detail);
      d_.require(f.order >= Order::acquire, "a {} fence", name_of(f.order));
      d_.require(f.scope >= Scope::block, "a fence at the scope of a {}", name_of(f.scope));
      return d_.require(place.vector == nullptr, "a fence in a vector region");
    }
    case Op::copy_commit:
    case Op::copy_wait:
    case Op::bulk_commit:
    case Op::bulk_wait:
    case Op::launch_dependents:
      return d_.require(place.vector == nullptr, "{} in a vector region", name_of(o.op));
    case Op::fragment_fill:
    case Op::fragment_load:
    case Op::fragment_store:
    case Op::fragment_map:
    case Op::convert_layout:
    case Op::mma:
      return holder(o, place);
    case Op::mma_fence:
    case Op::mma_commit:
    case Op::mma_wait:
      d_.require(place.vector == nullptr, "{} in a vector region", name_of(o.op));
      d_.require(k_.threads() % 128 == 0, "{} in a block of {} threads", name_of(o.op),
                 k_.threads());
      return uniform(place, Variance::warp, "a warpgroup");
    default:
      return;
  }
}

void ThreadChecker::collective(const Operation& o, const WalkPlace& place) const {
  const auto& c = std::get<Collective>(o.detail);
  d_.require(c.lanes != !c.axes.empty(), "a collective over axes and lanes, or over neither");
  d_.require(c.sequential >= 0, "{} sequential participants", c.sequential);
  for (const ValueId v : o.operands) {
    d_.require(k_.type_of(v).kind == TypeKind::scalar, "a collective of what is no scalar");
  }
  for (const MemoryId m : c.scratch) {
    d_.require(d_.memory(m).space == Space::shared, "scratch {} is not in shared memory",
               d_.memory(m).name);
  }
  if (c.lanes) {
    d_.require(place.vector != nullptr, "a collective over lanes outside of a vector region");
    d_.require(c.scratch.empty(), "a collective over lanes with scratch");
    d_.require(o.op != Op::broadcast || (c.from >= 0 && c.from < place.vector->width),
               "a broadcast from lane {}", c.from);
    return uniform(place, Variance::thread, "the lanes");
  }
  std::int64_t participants = 1;
  bool has_cluster = false;
  for (std::size_t i = 0; i < c.axes.size(); ++i) {
    d_.require(c.axes[i] < k_.launch.axes.size() && (i == 0 || c.axes[i] > c.axes[i - 1]),
               "axes of a collective are axes of the launch, in their order");
    const Axis& axis = k_.launch.axes[c.axes[i]];
    d_.require(axis.kind >= AxisKind::cluster, "a collective over {} axis {}",
               kAxisKinds.name(axis.kind), axis.variable.name());
    has_cluster = has_cluster || axis.kind == AxisKind::cluster;
    const bool is_next = i == 0 || c.axes[i] == c.axes[i - 1] + 1;
    d_.require(is_next || !counts_as_one(c, axis.kind), "axes that count as one are no neighbours");
    participants *= *axis.extent.constant();
  }
  d_.require(o.op != Op::broadcast || (c.from >= 0 && c.from < participants),
             "a broadcast from participant {} of {}", c.from, participants);
  for (std::size_t i = 0; i < c.scratch.size() && i < o.operands.size(); ++i) {
    d_.require(d_.memory(c.scratch[i]).dtype == k_.type_of(o.operands[i]).dtype,
               "scratch {} is not of the state's type", d_.memory(c.scratch[i]).name);
  }
  const CollectivePlan plan = plan_collective(k_, o.op, c);
  if (plan.in_warp()) {
    if (plan.width == kWarp) return uniform(place, Variance::warp, "a warp");
    return d_.require(
        place.control <= Variance::warp || dependence_.is_one_for(place.control_axes, plan.width),
        "control varies within a team of {} lanes", plan.width);
  }
  across_warps(o, plan, place);
  if (has_cluster) return uniform(place, Variance::cluster, "a cluster");
  uniform(place, Variance::block, "a block");
}

void ThreadChecker::across_warps(const Operation& o, const CollectivePlan& plan,
                                 const WalkPlace& place) const {
  const auto& c = std::get<Collective>(o.detail);
  d_.require(c.scratch.size() == o.results.size(),
             "a collective across warps has scratch for each state");
  d_.require(place.vector == nullptr || !place.is_nested,
             "a collective across warps in control inside of a vector region");
  d_.require(o.op == Op::reduce || plan.cluster.empty(), "a {} across a cluster", name_of(o.op));
  const std::int64_t places =
      scratch_places(plan, o.op, place.vector == nullptr ? 1 : place.vector->width);
  for (const MemoryId m : c.scratch) {
    const std::vector<Expr>& shape = d_.memory(m).shape;
    d_.require(shape.size() == 1 || (shape.size() == 2 && shape[0].is_constant(2)),
               "scratch {} is neither of one dimension nor of two halves", d_.memory(m).name);
    d_.require(*shape.back().constant() >= places, "scratch {} of {} places, not {}",
               d_.memory(m).name, *shape.back().constant(), places);
  }
}

void ThreadChecker::barrier(const Operation& o, const WalkPlace& place) const {
  const auto& b = std::get<Barrier>(o.detail);
  d_.require(place.vector == nullptr, "a barrier in a vector region");
  d_.require(b.number >= 0 && b.number < 16, "barrier number {}", b.number);
  const bool of_block = b.scope == Scope::block;
  const bool of_warp = b.scope == Scope::warp;
  d_.require(of_block || (b.number == 0 && (of_warp || b.threads == 0)),
             "a numbered barrier of a {}", name_of(b.scope));
  d_.require(of_block || b.scope == Scope::cluster || b.part == Barrier::Part::both,
             "a part of a barrier of a {}", name_of(b.scope));
  d_.require(!of_block || b.part == Barrier::Part::both || b.threads > 0,
             "a part of a barrier of a block names how many threads come");
  switch (b.scope) {
    case Scope::warp:
      d_.require(b.threads == 0 || (b.threads < kWarp && is_power_of_two(b.threads)),
                 "a barrier of {} lanes", b.threads);
      if (b.threads > 0) {
        return d_.require(place.control <= Variance::warp ||
                              dependence_.is_one_for(place.control_axes, b.threads),
                          "control varies within {} lanes", b.threads);
      }
      return uniform(place, Variance::warp, "a warp");
    case Scope::block:
      d_.require(b.threads % kWarp == 0 && b.threads <= k_.threads(),
                 "a barrier of {} threads of {}", b.threads, k_.threads());
      // In a role, or for some of the warps, as many as are named must come.
      if (b.threads > 0) return uniform(place, Variance::warp, "a warp");
      return uniform(place, Variance::block, "a block");
    case Scope::cluster:
      return uniform(place, Variance::cluster, "a cluster");
    default:
      d_.fail(fmt::format("a barrier of a {}", name_of(b.scope)));
  }
}

void ThreadChecker::holder(const Operation& o, const WalkPlace& place) const {
  const auto check = [&](ValueId v) {
    if (k_.type_of(v).kind != TypeKind::fragment) return;
    const FragmentType& f = k_.fragments[k_.type_of(v).fragment];
    if (f.holder == Holder::core || f.holder == Holder::tile) return;
    const bool is_warp = f.holder == Holder::warp;
    d_.require(k_.threads() % (is_warp ? kWarp : 4 * kWarp) == 0,
               "a fragment of a {} in a block of {} threads", name_of(f.holder), k_.threads());
    uniform(place, Variance::warp, is_warp ? "a warp" : "a warpgroup");
  };
  d_.require(place.vector == nullptr && place.map == nullptr, "{} in a region of elements or lanes",
             name_of(o.op));
  std::ranges::for_each(o.operands, check);
  std::ranges::for_each(o.results, check);
}

}  // namespace inkle::kernel
