#include "kernel/thread_dependence.h"

#include <algorithm>

#include "kernel/collective.h"
#include "sym/symbols.h"

namespace inkle::kernel {
namespace {

constexpr AxisId kLast = 30;
constexpr AxisSet kKnown = AxisSet{1} << 31;  // of values_ alone
constexpr AxisSet kAll = ~kKnown;

}  // namespace

AxisSet bit_of_axis(AxisId axis) { return AxisSet{1} << std::min(axis, kLast); }

ThreadDependence::ThreadDependence(const Kernel& kernel, VarianceAnalysis& variance)
    : k_(kernel), variance_(variance) {
  for (AxisId a = 0; a < k_.launch.axes.size(); ++a) {
    const Axis& axis = k_.launch.axes[a];
    if (axis.kind != AxisKind::thread) continue;
    *symbols_.add(axis.variable).first = bit_of_axis(a);
    has_threads_ = true;
  }
  if (has_threads_) values_.resize(k_.values.size());
}

void ThreadDependence::declare_all(RegionId region) {
  for (const OperationId o : k_.regions[region].operations) {
    const Operation& op = k_[o];
    if (op.op == Op::loop) {
      declare(std::get<Loop>(op.detail));
    } else if (op.op == Op::fold) {
      for (const Loop& l : std::get<Fold>(op.detail).loops) declare(l);
    } else if (op.op == Op::indirect || op.op == Op::bind) {
      declare(op);
    }
    for (const RegionId r : op.regions) declare_all(r);
  }
}

void ThreadDependence::declare(const Operation& symbolic) {
  if (!has_threads_) return;
  const AxisSet axes = of(symbolic.results[0]);
  *symbols_.add(std::get<Symbolic>(symbolic.detail).symbol).first = axes;
}

void ThreadDependence::declare(const Loop& loop) {
  if (!has_threads_) return;
  const AxisSet axes = of(loop.begin) | of(loop.step);
  *symbols_.add(loop.variable).first = axes;
}

AxisSet ThreadDependence::of(Expr expression) {
  AxisSet out = 0;
  if (!has_threads_ || expression.is_null() || variance_.of(expression) <= Variance::warp)
    return out;
  (void)sym::all_symbols(expression, [&](Expr s) {
    if (const AxisSet* known = symbols_.find(s)) {
      out |= *known;
    } else if (variance_.of(s) > Variance::warp) {
      out = kAll;
    }
    return out != kAll;
  });
  return out;
}

AxisSet ThreadDependence::of(ValueId value) {
  if (!has_threads_ || variance_.of(value) <= Variance::warp) return 0;
  if (values_[value] == 0) values_[value] = kKnown | found(value);
  return values_[value] & ~kKnown;
}

AxisSet ThreadDependence::found(ValueId value) {
  const OperationId id = k_.values[value].definition;
  if (id == kNone) return kAll;
  const Operation& o = k_[id];
  if (o.op == Op::index) return of(std::get<IndexOf>(o.detail).expression);
  if (o.op != Op::compute && o.op != Op::function && o.op != Op::bind) return kAll;
  AxisSet out = 0;
  for (const ValueId operand : o.operands) out |= of(operand);
  return out;
}

AxisSet ThreadDependence::trip(const Loop& loop) {
  return of(loop.begin) | of(loop.end) | of(loop.step);
}

bool ThreadDependence::is_one_for(AxisSet control, std::int64_t lanes) const {
  const std::vector<ThreadAxis> axes = axes_of(k_, AxisKind::thread);
  return std::ranges::all_of(axes, [&](const ThreadAxis& axis) {
    return axis.stride >= lanes || (control & bit_of_axis(axis.axis)) == 0;
  });
}

}  // namespace inkle::kernel
