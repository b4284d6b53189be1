// A kernel as a linear program: operations with jumps, values in slots. For interpret_*.cpp only.
//
// A thread has a row of slots, 64 bits each; a value of a vector region that varies by lane has one
// for each lane, a fragment one for its state and one for each element that the thread holds.
#pragma once

#include <bit>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernel/kernel.h"
#include "loop/scalar.h"

namespace inkle::kernel {

using loop::Scalar;

// Where a value lies: in the slots of the thread or among the constants.
struct Ref {
  static constexpr std::uint32_t kVaries = 1u << 31;  // lane l is so many slots further
  static constexpr std::uint32_t kPool = 1u << 30;
  static constexpr std::uint32_t kNone = 0xffffffffu;
  std::uint32_t bits = kNone;

  [[nodiscard]] bool is_none() const { return bits == kNone; }
  [[nodiscard]] bool varies() const { return (bits & kVaries) != 0; }
  [[nodiscard]] bool is_pool() const { return (bits & kPool) != 0; }
  [[nodiscard]] std::uint32_t offset() const { return bits & (kPool - 1); }
};

enum class Code : std::uint8_t {
  move,          // result = operand; fragments: with their state
  index,         // result = indices[detail]
  divide_index,  // detail: 1 for the modulo
  compute,
  function,
  indirect,
  bind,
  jump,
  jump_if_not,      // {condition}
  jump_unless_any,  // of the lanes of {mask}
  mask_and,         // {condition}: result = mask and condition; detail: limit
  mask_and_not,
  loop_test,  // {variable, end, step}: to the target where variable >= end
  loop_next,  // {variable, step}, then to the target
  part_end,   // {variable, end, step}: result = min(variable + detail * step, end)
  repeat_begin,
  repeat_head,
  repeat_compare,  // {yields..., carried...}: has anything changed?
  repeat_again,    // {condition}: to the target if so
  role_test,       // to the target unless the warp is in detail, detail + width
  load,
  store,
  atomic,
  reduce,
  scan,
  broadcast,
  transpose,  // {operands..., results...}
  shuffle,
  barrier,
  fence,
  copy_async,
  copy_commit,
  copy_wait,
  barrier_init,
  barrier_arrive,
  barrier_wait,
  tma_load,
  tma_store,
  bulk_commit,
  bulk_wait,
  fragment_fill,
  fragment_load,
  fragment_store,
  map_head,  // {counter, row, column, arguments..., fragments...}: to the target after the last
  map_next,  // {counter, yields..., fragments...}, then to the target
  convert_layout,
  mma,
  mma_fence,
  mma_commit,
  mma_wait,
  dependency_wait,
  report,
  region_end,
  finish,
};

struct Instruction {
  Code code = Code::finish;
  loop::Opcode opcode = loop::Opcode::add;
  DType dtype = DType::f32;  // of the operands
  DType to = DType::f32;     // of the result
  std::int32_t width = 1;    // lanes
  Ref mask;                  // none: all lanes
  Ref result;
  std::uint32_t operands = 0;  // in Program::refs
  std::uint32_t operand_count = 0;
  std::uint32_t target = 0;
  std::uint32_t detail = 0;
  OperationId operation = kNone;
};

// An index expression: constant + sum of coefficient * value, or steps of a stack machine.
struct IndexTerm {
  std::int64_t coefficient = 1;
  Ref value;
};
enum class IndexStepKind : std::uint8_t { push, constant, add, mul, floordiv, mod, min, max };
struct IndexStep {
  IndexStepKind kind = IndexStepKind::push;
  Ref value;
  std::int64_t constant = 0;
};
struct IndexProgram {
  bool is_affine = true;
  bool varies = false;
  std::int64_t constant = 0;
  std::uint32_t first = 0, count = 0;  // terms or steps
};

struct AccessCode {
  MemoryId memory = kNone;
  std::vector<std::uint32_t> indices;  // of Program::indices
  std::vector<Ref> operands;           // instead
  bool is_linear = false;              // the operands add up to the element, with the lane if wide
  Ref rank;
  Form form = Form::each;
  bool is_constant = false;
  Order order = Order::weak;
  Scope scope = Scope::thread;
  std::int32_t native = 1;
  bool varies = false;
};

// Regions of collectives: run by themselves for a pair of participants.
struct MergeCode {
  std::uint32_t entry = 0;
  std::vector<Ref> first, second, yields;
  std::vector<DType> dtypes;
};

struct FragmentAccessCode {
  std::uint32_t access = 0;
  std::uint32_t row_stride = 0, column_stride = 0;
  std::uint32_t row_limit = kNone, column_limit = kNone;
  std::int32_t rows = 0, columns = 0;
  std::int32_t panel = 0;
  std::int64_t panel_stride = 0;
};

struct Program {
  std::vector<Instruction> code;
  std::vector<Ref> refs;
  std::vector<std::int64_t> pool;
  std::vector<IndexTerm> terms;
  std::vector<IndexStep> steps;
  std::vector<IndexProgram> indices;
  std::vector<AccessCode> accesses;
  std::vector<MergeCode> merges;
  std::vector<FragmentAccessCode> fragments;
  std::uint32_t slots = 0;
  std::vector<Ref> sizes, axes;
  bool has_dependency_wait = false;
};

[[nodiscard]] Program flatten(const Kernel& kernel);

// --- Values in slots

[[nodiscard]] inline Scalar to_scalar(std::int64_t bits, DType dtype) {
  Scalar scalar;
  if (abi::is_float(dtype)) {
    scalar.real = std::bit_cast<double>(bits);
  } else {
    scalar.integer = bits;
  }
  return scalar;
}
[[nodiscard]] inline std::int64_t to_bits(Scalar scalar, DType dtype) {
  return abi::is_float(dtype) ? std::bit_cast<std::int64_t>(scalar.real) : scalar.integer;
}

}  // namespace inkle::kernel
