// Upper bounds of what buffers hold, for one call of a plan. They show that a contraction cannot
// meet NaN, so that oneDNN's own relu, which turns NaN into 0, may be used: a bound that is read
// off the inputs or off the buffer itself, and carried from one library call to the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/cpu/onednn_primitive.h"

namespace inkle::runtime::cpu {

// Largest |x| of `bytes` bytes of f32; infinity if any is NaN. Parallel above a few 10 kB.
[[nodiscard]] float largest_magnitude(const void* data, std::int64_t bytes);

// Bound of |op(x)| for |x| <= bound, |operand| <= operand_bound; infinity if op may make NaN.
[[nodiscard]] double bound_after(const PostOpDescription& op, double bound, double operand_bound);

class Magnitudes {
 public:
  // A new call starts: nothing is known. `buffer_count` as in the plan.
  void reset(std::size_t buffer_count) { bounds_.assign(buffer_count, kUnknown); }
  // |x| <= bound(b) for all elements of the buffer, none of them NaN; infinity: not known.
  [[nodiscard]] double bound(abi::PlanBuffer b) const { return bounds_[b]; }
  void set(abi::PlanBuffer b, double bound) { bounds_[b] = bound; }
  // Another step may write the buffer.
  void forget(abi::PlanBuffer b) { bounds_[b] = kUnknown; }

 private:
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();
  std::vector<double> bounds_;
};

}  // namespace inkle::runtime::cpu
