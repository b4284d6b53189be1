// Matrix products for tensor cores that read shared memory: which operands can be copied in boxes,
// and the tiles that blocks of a GPU have.
#pragma once

#include <optional>

#include "abi/target.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// How an operand is copied, whose last two dimensions are rows (columns) and terms, in either order
// in memory; nothing, where the copy engine cannot take it.
[[nodiscard]] std::optional<GemmKernel::Boxes> boxes_of(const View& operand, bool is_right,
                                                        abi::DType dtype,
                                                        const GemmSchedule& schedule);

struct GemmTraits {
  bool b_in_panels = false;  // its columns are its last dimension
  bool has_parts = true;     // terms may be multiplied in parts
};
// The tile that takes the least time by the rules of the device; symbolic sizes count as hinted.
// Without rows: there is none.
[[nodiscard]] GemmSchedule choose_gemm_schedule(const GemmKernel& gemm, const GemmTraits& traits,
                                                const abi::Target& device);
// Elements of the sums of parts.
[[nodiscard]] Expr elements_of_parts(const GemmKernel& gemm, const GemmSchedule& schedule);

}  // namespace inkle::schedule
