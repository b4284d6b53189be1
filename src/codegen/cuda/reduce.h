// What a reduction is in text: how its parts begin, grow and join.
#pragma once

#include <string>

#include "abi/dtype.h"
#include "loop/program.h"

namespace inkle::codegen::cuda {

[[nodiscard]] bool has_position(loop::ReduceOp op);
// The struct of the prelude that joins two parts.
[[nodiscard]] std::string joiner(loop::ReduceOp op);
// What the yield is converted to before it is reduced.
[[nodiscard]] abi::DType element_dtype(loop::ReduceOp op, abi::DType accumulator);
// Type of a part; `wide`: positions are i64.
[[nodiscard]] std::string part_type(loop::ReduceOp op, abi::DType accumulator, bool wide);
[[nodiscard]] std::int64_t part_bytes(loop::ReduceOp op, abi::DType accumulator, bool wide);
// A part without elements.
[[nodiscard]] std::string empty_part(loop::ReduceOp op, abi::DType accumulator, bool wide);

}  // namespace inkle::codegen::cuda
