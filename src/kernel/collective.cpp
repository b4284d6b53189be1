#include "kernel/collective.h"

#include <algorithm>

namespace inkle::kernel {

namespace {

constexpr std::int64_t kWarp = 32;

}  // namespace

std::vector<ThreadAxis> axes_of(const Kernel& kernel, AxisKind kind) {
  std::vector<ThreadAxis> out;
  std::int64_t stride = 1;
  for (std::size_t i = kernel.launch.axes.size(); i-- > 0;) {
    const Axis& axis = kernel.launch.axes[i];
    if (axis.kind != kind) continue;
    const std::int64_t extent = axis.extent.constant().value_or(1);
    if (extent > 1)
      out.push_back(
          {static_cast<AxisId>(i), static_cast<AxisId>(i), axis.variable, extent, stride});
    stride *= extent;
  }
  return out;
}

bool is_chain(const Collective& collective, std::int64_t left) {
  return left > 2 && left < collective.sequential;
}

bool ends_in_chain(const Collective& collective, std::int64_t extent) {
  for (std::int64_t left = extent; left > 1; left = (left + 1) / 2) {
    if (is_chain(collective, left)) return true;
  }
  return false;
}

bool counts_as_one(const Collective& collective, AxisKind kind) {
  return collective.sequential > 0 && kind == AxisKind::thread;
}

CollectivePlan plan_collective(const Kernel& kernel, Op op, const Collective& collective) {
  CollectivePlan plan;
  const auto takes_part = [&](const ThreadAxis& axis) {
    return std::ranges::find(collective.axes, axis.axis) != collective.axes.end();
  };
  plan.threads = kernel.threads();
  std::vector<ThreadAxis> taking_part;
  for (const ThreadAxis& axis : axes_of(kernel, AxisKind::thread)) {
    if (!takes_part(axis)) continue;
    if (taking_part.empty() || !counts_as_one(collective, AxisKind::thread)) {
      taking_part.push_back(axis);
      continue;
    }
    ThreadAxis& all = taking_part.front();
    all.axis = axis.axis;
    all.variable = axis.variable * all.extent + all.variable;
    all.extent *= axis.extent;
  }
  std::int64_t participants = 1;
  std::int64_t exchanged = 1;  // participants by shuffles
  for (const ThreadAxis& axis : taking_part) {
    participants *= axis.extent;
    const std::int64_t span = axis.stride * axis.extent;
    // Axes are joined from the last on: once one goes through memory, all further ones do. Many
    // lanes one after the other are cheaper through memory, where there is some.
    const bool by_memory =
        op == Op::reduce && ends_in_chain(collective, axis.extent) && !collective.scratch.empty();
    if (plan.stored.empty() && span <= kWarp && kWarp % span == 0 && !by_memory) {
      plan.shuffled.push_back(axis);
      plan.width = span;
      exchanged *= axis.extent;
    } else {
      plan.stored.push_back(axis);
    }
  }
  for (const ThreadAxis& axis : axes_of(kernel, AxisKind::cluster)) {
    if (takes_part(axis)) plan.cluster.push_back(axis);
  }
  plan.teams = plan.threads / participants;
  plan.by_warps =
      !plan.stored.empty() && exchanged == kWarp && plan.threads % kWarp == 0 &&
      std::ranges::all_of(plan.stored, [](const ThreadAxis& a) { return a.stride % kWarp == 0; });
  return plan;
}

std::int64_t scratch_places(const CollectivePlan& plan, Op op, std::int64_t lanes) {
  if (plan.in_warp()) return 0;
  if (plan.stored.empty() || op == Op::broadcast) return plan.teams * lanes;
  return lanes * (plan.by_warps ? plan.threads / kWarp : plan.threads);
}

}  // namespace inkle::kernel
