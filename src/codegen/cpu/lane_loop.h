// Loops of a nest: over the lane variable in groups of whole vectors with a masked rest, and over
// the others one by one, carrying accumulators.
#pragma once

#include <functional>
#include <optional>

#include "codegen/cpu/kernel_code.h"

namespace inkle::codegen::cpu {

// A long loop in parts of so many steps, each with accumulators of its own: what a part starts
// with, and how it meets the totals, which may be of other types.
struct Chunks {
  std::int64_t steps = 0;
  std::function<Values(const Values& totals)> begin;
  std::function<Values(const Values& totals, const Values& part)> merge;
};

struct LaneShape {
  int lanes = 1;
  int copies = 1;
};

// Accumulators of the copies one after the other. A group of the rest has fewer copies and changes
// only the accumulators of those.
using GroupBody = std::function<Values(const LaneGroup& group, const Values& carried)>;

struct LaneRange {
  Value* begin = nullptr;
  Value* end = nullptr;
  std::optional<std::int64_t> count;  // end - begin where that is known now
  bool aligned = false;               // begin is a multiple of the lanes
};

// For begin <= variable < end. With `chunks`, what is carried are totals, and the body sees a
// part's accumulators.
Values lane_loop(KernelCode& code, sym::Expr variable, const LaneRange& range, LaneShape shape,
                 Values carried, const Chunks* chunks, const GroupBody& body);

// For 0 <= i < extent; the body runs at least once.
Values scalar_loop(KernelCode& code, sym::Expr extent, Value* extent_value, Values carried,
                   const Chunks* chunks,
                   const std::function<Values(Value* i, const Values& carried)>& body);

}  // namespace inkle::codegen::cpu
