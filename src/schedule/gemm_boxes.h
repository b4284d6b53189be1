// Matrix products for tensor cores that read shared memory: which operands can be copied in boxes,
// and the tiles that blocks of a GPU have.
#pragma once

#include <optional>

#include "abi/target.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// How an operand is copied, whose last two dimensions are `rows` and terms, in either order in
// memory; nothing, where the copy engine cannot take it.
[[nodiscard]] std::optional<GemmKernel::Boxes> boxes_of(const View& operand, bool is_right,
                                                        abi::DType dtype,
                                                        const ProductSchedule& schedule);

// The tile that takes the least time by the rules of the device; symbolic sizes count as hinted.
[[nodiscard]] ProductSchedule choose_products(const GemmKernel& gemm, const abi::Target& device);

}  // namespace inkle::schedule
