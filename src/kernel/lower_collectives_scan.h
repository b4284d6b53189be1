// Scans and broadcasts over axes, lowered. A scan of a warp doubles the distance from which lanes
// take what comes before them; warps store their totals, which each warp scans again. For
// lower_collectives*.cpp only.
#pragma once

#include <vector>

#include "kernel/lower_collectives_emit.h"
#include "kernel/lower_collectives_scratch.h"

namespace inkle::kernel {

// What is known of a scan, for others of the same states.
struct ScannedStates {
  RegionId region = kNone;
  Values states;
  std::vector<AxisId> axes;
  RegionId merge = kNone;
  Values all;                 // scanned within the warp
  Values totals;              // of the warps, scanned: that of warp w in lane w
  Values before;              // of the warps before this one; of the first, anything
  std::vector<Values> parts;  // through memory: after each participant
  Values inclusive;           // the results of the inclusive scan
};

// The results of an operation, in the region that is open. `known` are the scans before it.
Values lower_scan(CollectiveEmitter& emit, CollectiveScratch& scratch,
                  const LoweredCollective& collective, const Operation& o,
                  std::vector<ScannedStates>& known);
Values lower_broadcast(CollectiveEmitter& emit, CollectiveScratch& scratch,
                       const LoweredCollective& collective, const Operation& o,
                       std::vector<ScannedStates>& known);

}  // namespace inkle::kernel
