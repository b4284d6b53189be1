// Matrix products as kernels of a template, with the pointwise kernel that follows. Those of a CPU
// are of f32, and of bf16 where the processor multiplies pairs of them:
//
//   matmul a b -> c                         kernel: panels of b -> p        (prepared if b is
//   stable) kernel: out = silu(c) * up              kernel: gemm a p, out = silu(sum) * up
//
// On a GPU whose tensor cores read shared memory, products of bf16 read both operands unpacked.
//
// Runs on the steps, when layouts are decided and before it is decided what is prepared.
#pragma once

#include "abi/target.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// Products of other types and of two empty operands stay with the library; so do those
// of few columns or terms and of symbolic ones, which are slower; by GemmSource::least all but
// those for which the template is expected to take less time. With `all`, all of f32 are written.
void write_gemms(ScheduledProgram& scheduled, const abi::Target& device, bool training,
                 bool all = false);

}  // namespace inkle::schedule
