// Functions whose last bits do not count, because only roundings of them to f16 or bf16 are used,
// become named functions that take fewer instructions (function.h has their error bounds):
//
//   cast.f32(cast.bf16(x))                          round_bf16(x)
//   div(x, d), d one for all lanes, to be rounded   quotient(x, d)
//   exp(x), to be rounded, or such a quotient       exp_term(x)
//   add(1, erf(x)), of sums and products of it      erf_plus_one(x)
#pragma once

#include "kernel/kernel.h"

namespace inkle::kernel {

void numerics(Kernel& kernel, sym::Context& context);

// Dead code elimination: removes operations that have neither effects nor uses.
void drop_unused(Kernel& kernel);

}  // namespace inkle::kernel
