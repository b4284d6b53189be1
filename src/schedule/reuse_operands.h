// A kernel's result takes the memory of an operand that dies there, which lowers peak memory.
//
//   matmul ... into t0              matmul ... into t0
//   kernel(in p0, out p1)(t0, t1)   kernel(inout p0)(t0)
//   matmul a t1 ...                 matmul a t0 ...
//
// Runs when steps are in their final order, and after all that compares kernels or counts bytes:
// one that works in place is another kernel than one that does not.
#pragma once

#include "abi/target.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// Both are temporaries of one type and size, dense, of no other use: neither arguments, outputs nor
// constants, not kept from call to call, not the host's memory, and nothing lies in them. The
// operand was written by an earlier step and is read by no later one. In the kernel:
// - One pointwise stage stores the result, once, at an offset that differs from point to point and
//   reaches every element.
// - All loads of the operand are in that stage, at the very offset of the store. So no other point
//   reads an element that has been overwritten, and a point loads before it stores.
void reuse_operands(ScheduledProgram& scheduled, const abi::Target& target);

}  // namespace inkle::schedule
