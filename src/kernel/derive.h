// Types of results from those of operands, for parser and verifier alike.
#pragma once

#include <span>
#include <string>

#include "kernel/kernel.h"

namespace inkle::kernel {

// The dtype that a compute operation gives; `to` is that of casts and bitcasts.
[[nodiscard]] DType result_of(loop::Opcode opcode, std::span<const Type> operands, DType to);

// What is wrong with operands and result of a compute operation or a named function; empty:
// nothing.
[[nodiscard]] std::string check_compute(loop::Opcode opcode, std::span<const Type> operands,
                                        const Type& result);
[[nodiscard]] std::string check_function(NamedFunction function, std::span<const Type> operands);
// Of operands that check_function has nothing against.
[[nodiscard]] Type function_type(NamedFunction function, std::span<const Type> operands);

// "f32", "token", "frag<f32[64,128] warpgroup wgmma_c>".
[[nodiscard]] std::string to_string(const Kernel& kernel, const Type& type);

// Whether the operation has the detail that operation.h states.
[[nodiscard]] bool has_own_detail(const Operation& operation);

// Whether an opcode of loop bodies may be that of a compute operation.
[[nodiscard]] bool is_compute(loop::Opcode opcode);

}  // namespace inkle::kernel
