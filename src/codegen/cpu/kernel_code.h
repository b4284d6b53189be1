// What the parts of the emitter share: the kernel being emitted and where its values are.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "codegen/cpu/ir.h"
#include "codegen/cpu/operation.h"
#include "schedule/kernel.h"

namespace inkle::codegen::cpu {

struct Target {
  std::int32_t vector_bytes = 32;
  std::string cpu;
  std::string features;
};

// A symbol of index expressions that is one number for all lanes.
struct Scalar {
  Value* value = nullptr;  // i64
  int depth = 0;           // loops around its definition
};
using Symbols = std::unordered_map<const sym::Node*, Scalar>;

// The variable that runs along the lanes, at one place of the code. Copy u of the body handles
// the elements base + u * lanes + (0 .. lanes - 1).
struct LaneGroup {
  sym::Expr variable;     // null: no variable runs along lanes (lanes == copies == 1)
  Value* base = nullptr;  // i64
  int depth = 0;
  int lanes = 1;
  int copies = 1;
  std::vector<Value*> masks;  // of each copy; null: every lane is active
  bool aligned = false;       // base is a multiple of lanes
};

// A value as the body's code has it: scalar if it is the same for all lanes and copies.
struct RowValue {
  Values copies;  // one if uniform
  bool varying = false;
  int depth = 0;
};

struct KernelCode {
  Ir& ir;
  const schedule::Kernel& kernel;
  const schedule::Schedule& schedule;
  const Target& target;
  Values params;                   // base addresses
  Values scratch;                  // base addresses
  bool scratch_has_lanes = false;  // an element holds a value for each lane and copy
  Faults faults;
  Value* spare = nullptr;  // 8 readable bytes, for loads that are masked off
  Symbols symbols;         // sizes, then outer variables
  std::vector<RowValue> rows;
};

// What emit_kernel learns beside the code.
struct EmittedKernel {
  sym::Expr scratch_bytes;
  bool can_fail = false;
};

// The function `name` of the kernel, into ir's module.
EmittedKernel emit_kernel(Ir& ir, const schedule::Kernel& kernel,
                          const schedule::Schedule& schedule, const Target& target,
                          std::string_view name);
EmittedKernel emit_loop_kernel(KernelCode& code, const schedule::LoopKernel& loops,
                               const Values& arguments);
EmittedKernel emit_attention(KernelCode& code, const schedule::AttentionKernel& attention,
                             const Values& arguments);

}  // namespace inkle::codegen::cpu
