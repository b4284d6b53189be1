// One stage of a loop kernel, at one iteration of the outer loops.
#pragma once

#include "codegen/cpu/kernel_code.h"

namespace inkle::codegen::cpu {

// `columns` is the group of the last outer loop if the schedule vectorises that; else null and the
// stage's last inner loop runs along the lanes. A reduction sets code.rows.
void emit_stage(KernelCode& code, const schedule::Stage& stage, const LaneGroup* columns);

// A measure of the body's work, in simple instructions.
[[nodiscard]] int weight_of(const loop::Body& body);

}  // namespace inkle::codegen::cpu
