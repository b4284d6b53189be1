#include "kernel/lower_collectives.h"

#include <algorithm>
#include <utility>

#include "kernel/lower_collectives_emit.h"
#include "kernel/lower_collectives_reduce.h"
#include "kernel/lower_collectives_scan.h"
#include "kernel/lower_collectives_scratch.h"
#include "kernel/split_vector.h"
#include "kernel/variance.h"

namespace inkle::kernel {

namespace {

bool is_collective(const Operation& o) {
  return (o.op == Op::reduce || o.op == Op::scan || o.op == Op::broadcast) &&
         !std::get<Collective>(o.detail).lanes;
}

bool has_collective(const Kernel& kernel, RegionId region) {
  return std::ranges::any_of(kernel.regions[region].operations, [&](OperationId id) {
    const Operation& o = kernel[id];
    return is_collective(o) ||
           std::ranges::any_of(o.regions, [&](RegionId r) { return has_collective(kernel, r); });
  });
}

// The walk over the kernel, which rebuilds its regions.
class CollectiveLowering {
 public:
  CollectiveLowering(Kernel& kernel, sym::Context& context)
      : kernel_(kernel),
        emit_(kernel, context),
        builder_(emit_.builder()),
        scratch_(builder_),
        variance_(kernel) {}
  void region(RegionId id);

 private:
  void operation(OperationId id);
  void control(OperationId id, Variance condition);
  void vector_region(OperationId id);
  void collective(OperationId id);

  Kernel& kernel_;
  CollectiveEmitter emit_;
  Builder& builder_;
  CollectiveScratch scratch_;
  VarianceAnalysis variance_;  // of the kernel as it was
  Variance control_ = Variance::kernel;
  std::vector<ScannedStates> scanned_;
};

}  // namespace

void CollectiveLowering::region(RegionId id) {
  const RegionId around = builder_.region();
  const std::vector<OperationId> operations = std::move(kernel_.regions[id].operations);
  kernel_.regions[id].operations.clear();
  builder_.set_region(id);
  for (const OperationId o : operations) operation(o);
  for (ValueId& v : kernel_.regions[id].yields) v = emit_.same(v);
  builder_.set_region(around);
}

void CollectiveLowering::operation(OperationId id) {
  const Variance condition =
      kernel_[id].op == Op::branch ? variance_.of(kernel_[id].operands[0]) : Variance::kernel;
  for (ValueId& v : kernel_.operations[id].operands) v = emit_.same(v);
  if (is_collective(kernel_[id])) return collective(id);
  if (kernel_[id].op == Op::vector) return vector_region(id);
  if (!kernel_[id].regions.empty()) control(id, condition);
  kernel_.regions[builder_.region()].operations.push_back(id);
}

void CollectiveLowering::control(OperationId id, Variance condition) {
  const Variance around = control_;
  const Operation& o = kernel_[id];
  if (const auto* l = std::get_if<Loop>(&o.detail)) {
    control_ = std::max(control_, variance_.trip(*l));
    scratch_.enter(*l);
  } else if (const auto* fold = std::get_if<Fold>(&o.detail)) {
    for (const Loop& inner : fold->loops) {
      control_ = std::max(control_, variance_.trip(inner));
    }
  } else if (o.op == Op::branch) {
    control_ = std::max(control_, condition);
  } else if (o.op == Op::repeat) {
    control_ = std::max(control_, variance_.of(kernel_.regions[o.regions[0]].yields[0]));
  } else if (o.op == Op::roles) {
    control_ = std::max(control_, Variance::warp);
  }
  const bool is_loop = o.op == Op::loop;
  const Regions regions = o.regions;
  for (const RegionId r : regions) region(r);
  control_ = around;
  if (is_loop) scratch_.leave();
}

void CollectiveLowering::vector_region(OperationId id) {
  const auto info = kernel_.detail<Vector>(id);
  emit_.enter(info);
  control(id, Variance::kernel);
  emit_.leave();
  const std::vector<OperationId>& inside = kernel_.regions[kernel_[id].regions[0]].operations;
  const auto is_outside = [&](OperationId o) { return emit_.is_outside(o); };
  if (std::ranges::none_of(inside, is_outside)) {
    kernel_.regions[builder_.region()].operations.push_back(id);
    return;
  }
  const Values results = split_vector(builder_, id, is_outside);
  emit_.replace(kernel_[id].results, results);
}

void CollectiveLowering::collective(OperationId id) {
  const Operation o = kernel_[id];
  LoweredCollective lowered{std::get<Collective>(o.detail), {}};
  lowered.plan = plan_collective(kernel_, o.op, lowered.info);
  if (!o.regions.empty()) lowered.merge = o.regions[0];
  lowered.whole_warp = lowered.plan.threads % kLanesOfWarp == 0 && control_ <= Variance::warp;
  const Values results = o.op == Op::reduce ? lower_reduce(emit_, scratch_, lowered, o.operands)
                         : o.op == Op::scan
                             ? lower_scan(emit_, scratch_, lowered, o, scanned_)
                             : lower_broadcast(emit_, scratch_, lowered, o, scanned_);
  emit_.replace(o.results, results);
}

void lower_collectives(Kernel& kernel, sym::Context& context) {
  if (has_collective(kernel, kernel.body)) CollectiveLowering(kernel, context).region(kernel.body);
}

}  // namespace inkle::kernel
