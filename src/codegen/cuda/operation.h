// One instruction of a body whose operands are known, as an expression of CUDA C++.
#pragma once

#include <span>
#include <string>

#include "codegen/cuda/text.h"
#include "loop/body.h"

namespace inkle::codegen::cuda {

// The operands have the dtype `operand`. `active`: condition under which a fault counts; the kernel
// has a `status`. `can_fail` becomes true if the text may set it.
[[nodiscard]] std::string operation_text(const loop::Instruction& instruction, DType operand,
                                         std::span<const std::string> operands,
                                         const std::string& active, bool& can_fail);
[[nodiscard]] std::string cast_text(const std::string& value, DType from, DType to);

}  // namespace inkle::codegen::cuda
