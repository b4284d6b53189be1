// Code of one instruction of a body whose operands are known: everything but leaves and memory.
#pragma once

#include <array>
#include <span>

#include "codegen/cpu/ir.h"
#include "codegen/cpu/values.h"
#include "loop/body.h"
#include "schedule/kernel.h"

namespace inkle::codegen::cpu {

// Where a kernel reports that it met an error; see schedule::KernelStatus.
struct Faults {
  Value* status = nullptr;  // address of the status word
  bool can_fail = false;    // some check was emitted
  // Sets the status if any active lane (null: all are) of `bad` is true.
  void check(Ir& ir, Value* bad, Value* active, schedule::KernelStatus status_code);
};

// The operands have the dtype `operand` and equal lanes. `active`: lanes whose faults count.
Value* emit_operation(Ir& ir, const loop::Instruction& instruction, DType operand,
                      std::span<Value* const> operands, Value* active, Faults& faults);

// The four words of Philox-4x32-10 with the key `seed` and the counter {counter, 0}, all i64.
std::array<Value*, 4> philox(Ir& ir, Value* seed, Value* counter);

// Transposes as many vectors as each has lanes: lane j of vector i becomes lane i of vector j.
void transpose(Ir& ir, Values& square);

}  // namespace inkle::codegen::cpu
