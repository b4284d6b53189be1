// Which contractions a target's libraries take, by the fields of its row (abi/target.h).
#pragma once

#include "abi/target.h"
#include "loop/program.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// Whether the library has products of these types.
[[nodiscard]] bool multiplies(const abi::GemmLibrary& library, abi::DType a, abi::DType b,
                              abi::DType c);

// Whether the library takes the step with the whole of its epilogue.
[[nodiscard]] bool takes(const abi::GemmLibrary& library, const MatmulStep& step,
                         const loop::Program& program);
[[nodiscard]] bool takes(const abi::ConvolutionLibrary& library, const ConvolutionStep& step,
                         const loop::Program& program);

// Convolutions that the library runs from here; others are the host's, which chooses the precision
// of f32 and allocates the result.
[[nodiscard]] bool is_own(const abi::ConvolutionLibrary& library, const ConvolutionStep& step,
                          const loop::Program& program);

}  // namespace inkle::schedule
