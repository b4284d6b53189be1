// The walk of the verifier over launch and control.
#include "kernel/verify.h"

#include <algorithm>

#include "kernel/derive.h"
#include "kernel/names.h"
#include "kernel/verify_memory.h"
#include "kernel/verify_threads.h"
#include "sym/symbols.h"

namespace inkle::kernel {

namespace {

class KernelWalk {
 public:
  KernelWalk(Diagnostics& diagnostics, SymbolScope& scope, VarianceAnalysis& variance,
             ThreadDependence& dependence, const AccessChecker& accesses)
      : d_(diagnostics),
        k_(d_.kernel()),
        scope_(scope),
        variance_(variance),
        dependence_(dependence),
        accesses_(accesses),
        threads_(d_, dependence) {}
  void walk(RegionId id, WalkPlace& place);

 private:
  void visit(OperationId id, WalkPlace& place);
  void inside(RegionId id, WalkPlace& place);
  bool loop(const Loop& loop, const WalkPlace& place);  // whether it surely runs
  void control(const Operation& o, WalkPlace& place);
  void branch(const Operation& o, WalkPlace& place);
  void vector(const Operation& o, const WalkPlace& place);
  void fold(const Operation& o, const WalkPlace& place);
  void roles(const Operation& o, const WalkPlace& place);

  Diagnostics& d_;
  const Kernel& k_;
  SymbolScope& scope_;
  VarianceAnalysis& variance_;
  ThreadDependence& dependence_;
  const AccessChecker& accesses_;
  ThreadChecker threads_;
};

void check_launch(const Diagnostics& diagnostics, SymbolScope& scope, const Limits& limits) {
  const Kernel& kernel = diagnostics.kernel();
  for (const Expr size : kernel.sizes) scope.declare_size(size);
  std::int64_t products[4] = {1, 1, 1, 1};
  AxisKind last = AxisKind::task;
  bool has_task = false;
  for (const Axis& axis : kernel.launch.axes) {
    diagnostics.require(axis.kind >= last, "axes are not in the order task, grid, cluster, thread");
    last = axis.kind;
    has_task = has_task || axis.kind == AxisKind::task;
    diagnostics.require(!has_task || axis.kind == AxisKind::task, "tasks beside blocks or threads");
    diagnostics.require(!axis.variable.is_null() && axis.variable.kind() == sym::Kind::symbol,
                        "an axis without a variable");
    diagnostics.require(!axis.extent.is_null(), "an axis without an extent");
    scope.sizes_alone(axis.extent, "the extent of an axis");
    if (axis.kind >= AxisKind::cluster) {
      const auto extent = axis.extent.constant();
      diagnostics.require(extent && *extent >= 1 && *extent <= 65536,
                          "the extent of axis {} is not a constant from 1 to 65536",
                          axis.variable.name());
      products[static_cast<std::size_t>(axis.kind)] *= *extent;
      diagnostics.require(products[static_cast<std::size_t>(axis.kind)] <= 65536,
                          "too many threads or blocks");
    }
    scope.declare(axis.variable, axis.extent.context().constant(0), axis.extent - 1,
                  sym::bounds(axis.extent).low >= 1);
  }
  const auto within = [&](std::int64_t value, std::int64_t limit, std::string_view what) {
    diagnostics.require(limit == 0 || value <= limit, "{} {}, of which there are {}", value, what,
                        limit);
  };
  within(products[3], limits.threads, "threads");
  within(products[2], limits.cluster, "blocks of a cluster");
  within(kernel.launch.registers, limits.registers, "registers");
  diagnostics.require(kernel.launch.instances >= 1, "a launch of {} instances",
                      kernel.launch.instances);
}

}  // namespace

// --- The walk
// --------------------------------------------------------------------------------------

void KernelWalk::walk(RegionId id, WalkPlace& place) {
  for (const OperationId o : k_.regions[id].operations) {
    const OperationId outside = d_.move_to(o);
    visit(o, place);
    d_.move_to(outside);
  }
}

// A region whose symbols end with it.
void KernelWalk::inside(RegionId id, WalkPlace& place) {
  const std::size_t symbols = scope_.size();
  walk(id, place);
  scope_.forget(symbols);
}

void KernelWalk::visit(OperationId id, WalkPlace& place) {
  const Operation& o = k_[id];
  if (place.in_merge) {
    const bool is_value = o.op == Op::constant || o.op == Op::index || o.op == Op::compute ||
                          o.op == Op::function || o.op == Op::branch;
    d_.require(is_value, "a merge computes values alone");
  }
  accesses_.check(o, place);
  threads_.check(o, place);
  switch (o.op) {
    case Op::index:
      return scope_.contains_all(std::get<IndexOf>(o.detail).expression);
    case Op::compute: {
      const auto& c = std::get<Compute>(o.detail);
      if (c.form == Form::each) return;
      d_.require(c.opcode == loop::Opcode::random, "a form of {}", loop::name_of(c.opcode));
      d_.require(c.form != Form::wide || place.vector != nullptr,
                 "wide random numbers outside of a vector region");
      return;
    }
    case Op::indirect:
      scope_.contains_all(std::get<Symbolic>(o.detail).extent);
      [[fallthrough]];
    case Op::bind:
      dependence_.declare(o);
      return scope_.declare(std::get<Symbolic>(o.detail).symbol, {}, {}, false);
    case Op::dependency_wait:
      d_.require(place.vector == nullptr, "dependency_wait in a vector region");
      place.waited = true;
      return;
    case Op::report:
      d_.require(std::get<Report>(o.detail).status >= 1, "a report of no failure");
      return;
    default:
      if (!o.regions.empty() || o.op == Op::roles) control(o, place);
  }
}

bool KernelWalk::loop(const Loop& l, const WalkPlace& place) {
  for (const Expr e : {l.begin, l.end, l.step}) scope_.contains_all(e);
  d_.require(sym::bounds(l.step).low >= 1, "a step that may be below 1");
  const bool is_constant = l.begin.constant() && l.end.constant() && l.step.constant();
  if (l.kind == LoopKind::unroll) {
    d_.require((l.end - l.begin).constant() && l.step.constant(),
               "an unrolled loop whose number of iterations is no constant");
    d_.require(l.unroll == 1, "an unrolled loop with a hint");
  }
  d_.require(l.unroll >= 1, "a loop unrolled {} times", l.unroll);
  const Variance trip = variance_.trip(l);
  d_.require(place.vector == nullptr || trip < Variance::lane, "the bounds of a loop vary by lane");
  const bool runs = sym::less(l.begin, l.end).value_or(false);
  std::int64_t last = 0;
  if (is_constant && runs) {
    const std::int64_t begin = *l.begin.constant();
    const std::int64_t step = *l.step.constant();
    last = begin + (*l.end.constant() - 1 - begin) / step * step;
  }
  scope_.declare(l.variable, l.begin, l.begin.context().constant(last), is_constant && runs);
  dependence_.declare(l);
  if (l.kind == LoopKind::unroll && is_constant) scope_.mark_unrolled(l.variable);
  return runs;
}

void KernelWalk::branch(const Operation& o, WalkPlace& place) {
  WalkPlace deeper = place;
  const auto& b = std::get<Branch>(o.detail);
  deeper.is_nested = true;
  deeper.control = std::max(place.control, variance_.of(o.operands[0]));
  deeper.control_axes |= dependence_.of(o.operands[0]);
  deeper.is_certain = false;
  d_.require(b.limit == 0 || (place.vector != nullptr && b.limit <= place.vector->width),
             "a limit of lanes without so many lanes");
  d_.require(b.limit == 0 || variance_.of(o.operands[0]) == Variance::lane,
             "a limit of lanes for a condition that does not vary by lane");
  bool all_waited = true;
  for (const RegionId r : o.regions) {
    WalkPlace one = deeper;
    inside(r, one);
    all_waited = all_waited && one.waited;
  }
  place.waited = all_waited;
}

void KernelWalk::vector(const Operation& o, const WalkPlace& place) {
  WalkPlace deeper = place;
  const auto& v = std::get<Vector>(o.detail);
  d_.require(place.vector == nullptr, "a vector region inside of another");
  d_.require(place.map == nullptr, "a vector region inside of a fragment's map");
  d_.require(v.width >= 1 && v.native >= 1 && v.width % v.native == 0, "{} lanes in groups of {}",
             v.width, v.native);
  sym::Context* context = v.lane.is_null() ? nullptr : &v.lane.context();
  d_.require(context != nullptr, "a missing symbol");
  scope_.declare(v.lane, context->constant(0), context->constant(v.width - 1), true);
  scope_.mark_unrolled(v.lane);
  deeper.vector = &v;
  deeper.is_nested = false;
  inside(o.regions[0], deeper);
  for (const ValueId y : k_.regions[o.regions[0]].yields) {
    d_.require(variance_.of(y) < Variance::lane,
               "a vector region yields a value that varies by lane");
  }
}

void KernelWalk::fold(const Operation& o, const WalkPlace& place) {
  WalkPlace deeper = place;
  const auto& f = std::get<Fold>(o.detail);
  deeper.is_nested = true;
  const std::size_t chunked =
      f.chunked_loop < 0 ? f.loops.size() : static_cast<std::size_t>(f.chunked_loop);
  // `begin` and `merge` see the loops around the chunked one.
  for (std::size_t i = 0; i < f.loops.size(); ++i) {
    if (i == chunked) {
      for (const RegionId r : {o.regions[1], o.regions[2]}) inside(r, deeper);
    }
    deeper.is_certain = loop(f.loops[i], place) && deeper.is_certain;
    deeper.control = std::max(deeper.control, variance_.trip(f.loops[i]));
    deeper.control_axes |= dependence_.trip(f.loops[i]);
  }
  inside(o.regions[0], deeper);
}

void KernelWalk::control(const Operation& o, WalkPlace& place) {
  WalkPlace deeper = place;
  deeper.is_nested = true;
  const std::size_t symbols = scope_.size();
  switch (o.op) {
    case Op::loop: {
      const auto& l = std::get<Loop>(o.detail);
      deeper.is_certain = loop(l, place) && place.is_certain;
      deeper.control = std::max(place.control, variance_.trip(l));
      deeper.control_axes |= dependence_.trip(l);
      inside(o.regions[0], deeper);
      break;
    }
    case Op::repeat: {
      dependence_.declare_all(o.regions[0]);
      const Variance again = variance_.of(k_.regions[o.regions[0]].yields[0]);
      d_.require(place.vector == nullptr || again < Variance::lane,
                 "the condition of repeat varies by lane");
      deeper.control = std::max(place.control, again);
      deeper.control_axes |= dependence_.of(k_.regions[o.regions[0]].yields[0]);
      // Its region is run at least once, so what it waits for is waited for behind it.
      inside(o.regions[0], deeper);
      place.waited = deeper.waited;
      break;
    }
    case Op::branch:
      branch(o, place);
      break;
    case Op::vector:
      vector(o, place);
      break;
    case Op::fold:
      fold(o, place);
      break;
    case Op::roles:
      roles(o, place);
      break;
    case Op::reduce:
    case Op::scan:
      deeper.in_merge = true;
      inside(o.regions[0], deeper);
      break;
    case Op::fragment_map: {
      const auto& m = std::get<FragmentMap>(o.detail);
      scope_.declare(m.row, {}, {}, false);
      scope_.declare(m.column, {}, {}, false);
      deeper.map = &m;
      inside(o.regions[0], deeper);
      break;
    }
    default:
      break;
  }
  scope_.forget(symbols);
}

void KernelWalk::roles(const Operation& o, const WalkPlace& place) {
  const auto& detail = std::get<Roles>(o.detail);
  threads_.uniform(place, Variance::block, "a block");
  d_.require(!place.in_role, "roles inside of a role");
  d_.require(place.vector == nullptr, "roles in a vector region");
  const std::int64_t threads = k_.threads();
  d_.require(threads % 32 == 0, "roles of {} threads", threads);
  std::int64_t next = 0;
  for (const Roles::Role& role : detail.roles) {
    d_.require(role.first_warp == next && role.warps >= 1,
               "role {} begins at warp {}, not where the one before it ends", role.name,
               role.first_warp);
    next += role.warps;
    if (role.registers == 0) continue;
    d_.require(role.registers % 8 == 0 && role.registers >= 24 && role.registers <= 256,
               "role {} with {} registers", role.name, role.registers);
    d_.require(role.first_warp % 4 == 0 && role.warps % 4 == 0,
               "role {} sets the registers of a part of a warpgroup", role.name);
  }
  d_.require(next == threads / 32, "roles of {} warps in a block of {}", next, threads / 32);
  for (const RegionId r : o.regions) {
    WalkPlace deeper = place;
    deeper.in_role = true;
    deeper.is_certain = false;  // threads of the role alone
    deeper.control = std::max(place.control, Variance::warp);
    inside(r, deeper);
  }
}

void verify(const Kernel& kernel, std::string_view after_pass, const Limits& limits) {
  Diagnostics diagnostics(kernel, after_pass);
  SymbolScope scope(diagnostics);
  check_launch(diagnostics, scope, limits);
  check_memories(diagnostics, scope, limits);
  const TypeChecker types(diagnostics);
  StructureChecker structure(diagnostics, types);
  structure.run();
  VarianceAnalysis variance(kernel);
  ThreadDependence dependence(kernel, variance);
  const AccessChecker accesses(diagnostics, scope, types, structure, variance);
  WalkPlace place;
  KernelWalk(diagnostics, scope, variance, dependence, accesses).walk(kernel.body, place);
}

}  // namespace inkle::kernel
