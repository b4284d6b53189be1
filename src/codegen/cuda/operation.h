// One instruction of a body whose operands are known, as an expression of CUDA C++.
#pragma once

#include <span>
#include <string>

#include "codegen/cuda/text.h"
#include "loop/body.h"

namespace inkle::codegen::cuda {

// Writes the expression. The operands have the dtype `operand`; the kernel has a `status`.
// `can_fail` becomes true if the text may set it.
void print_operation(Writer& to, const loop::Instruction& instruction, DType operand,
                     std::span<const ShortText> operands, bool& can_fail);
void print_cast(Writer& to, std::string_view value, DType from, DType as);

}  // namespace inkle::codegen::cuda
