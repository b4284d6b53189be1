#include "kernel/thread_dependence.h"

#include <algorithm>

#include "kernel/collective.h"
#include "sym/symbols.h"

namespace inkle::kernel {
namespace {

constexpr AxisSet kAll = ~AxisSet{0};

}  // namespace

AxisSet bit_of_axis(AxisId axis) { return AxisSet{1} << std::min<AxisId>(axis, 63); }

ThreadDependence::ThreadDependence(const Kernel& kernel, VarianceAnalysis& variance)
    : k_(kernel), variance_(variance) {
  for (AxisId a = 0; a < k_.launch.axes.size(); ++a) {
    const Axis& axis = k_.launch.axes[a];
    if (axis.kind == AxisKind::thread) symbols_[axis.variable.id()] = bit_of_axis(a);
  }
  has_threads_ = !symbols_.empty();
  if (has_threads_) region(k_.body);
}

// Symbols, those of outer loops first.
void ThreadDependence::region(RegionId id) {
  for (const OperationId o : k_.regions[id].operations) {
    const Operation& op = k_[o];
    if (const auto* l = std::get_if<Loop>(&op.detail)) loop(*l);
    if (const auto* fold = std::get_if<Fold>(&op.detail)) {
      for (const Loop& l : fold->loops) loop(l);
    }
    if (const auto* symbolic = std::get_if<Symbolic>(&op.detail)) {
      symbols_[symbolic->symbol.id()] = of(op.results[0]);
    }
    for (const RegionId r : op.regions) region(r);
  }
}

void ThreadDependence::loop(const Loop& loop) {
  symbols_[loop.variable.id()] = of(loop.begin) | of(loop.step);
}

AxisSet ThreadDependence::of(Expr expression) {
  AxisSet out = 0;
  if (!has_threads_ || expression.is_null() || variance_.of(expression) <= Variance::warp)
    return out;
  (void)sym::all_symbols(expression, [&](Expr s) {
    const auto known = symbols_.find(s.id());
    if (known != symbols_.end()) {
      out |= known->second;
    } else if (variance_.of(s) > Variance::warp) {
      out = kAll;
    }
    return out != kAll;
  });
  return out;
}

AxisSet ThreadDependence::of(ValueId value) {
  if (!has_threads_ || variance_.of(value) <= Variance::warp) return 0;
  const auto [at, is_new] = values_.try_emplace(value, kAll);
  if (!is_new) return at->second;
  const OperationId id = k_.values[value].definition;
  if (id == kNone) return kAll;
  const Operation& o = k_[id];
  if (o.op == Op::index) {
    return values_[value] = of(std::get<IndexOf>(o.detail).expression);
  }
  if (o.op != Op::compute && o.op != Op::function && o.op != Op::bind) return kAll;
  AxisSet out = 0;
  for (const ValueId operand : o.operands) out |= of(operand);
  return values_[value] = out;
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
