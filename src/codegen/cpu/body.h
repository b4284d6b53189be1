// Code of a body at one place: which of its values are equal for all lanes, at which loop depth
// each is defined, and the memory accesses that its index expressions need.
//
// A value is emitted when first asked for, at the depth where its operands are defined, so that
// what does not change in a loop is computed before it. An emitter serves one place of the code
// (one nest of loops with one lane group); another place needs another emitter.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "codegen/cpu/kernel_code.h"

namespace inkle::codegen::cpu {

// Index expressions as code.
class IndexEmitter {
 public:
  // `symbols` are the outer ones, the lane variable is added.
  IndexEmitter(KernelCode& code, Symbols symbols, const LaneGroup& lanes);

  void bind_scalar(sym::Expr symbol, Scalar scalar);
  // A symbol with its own i64 values in each lane.
  void bind_varying(sym::Expr symbol, int depth);
  void set_varying(sym::Expr symbol, int copy, Value* lanes);

  [[nodiscard]] bool is_varying(sym::Expr e) const;
  [[nodiscard]] int depth_of(sym::Expr e) const;
  // i64; the lane variable stands for its value in lane 0 of the copy.
  Value* scalar(sym::Expr e, int copy = 0);
  // Lanes of `bits` bits (32: the caller knows that fits32(e)).
  Value* vector(sym::Expr e, int copy, int bits);
  // Whether e and all its parts are within 32 bits.
  [[nodiscard]] static bool fits32(sym::Expr e);
  // How much e grows from lane to lane inside of a copy, or null where that is not one number.
  // Lanes that start at a multiple of their number stay inside of one quotient by any multiple of
  // it, so that floordiv(j, 64) is one number for 16 of them.
  [[nodiscard]] std::optional<sym::Expr> lane_stride(sym::Expr e) const;
  // Whether e grows linearly through all copies.
  [[nodiscard]] bool is_linear(sym::Expr e) const;

  // Terms that are the same in all lanes, and the rest; null where there are none.
  struct Parts {
    sym::Expr uniform;
    sym::Expr varying;
  };
  [[nodiscard]] Parts split(sym::Expr e) const;

 private:
  Value* emit_scalar(sym::Expr e, int copy);
  Value* emit_vector(sym::Expr e, int copy, int bits);
  Value* fold(sym::Expr e, bool sum, int copy);
  Value* divide(sym::Expr e, Value* dividend, Value* divisor);

  KernelCode& code_;
  Ir& ir_;
  Symbols symbols_;
  const LaneGroup& lanes_;
  std::unordered_map<const sym::Node*, int> varying_depth_;  // of bound varying symbols
  std::map<std::pair<const sym::Node*, int>, Value*> varying_;
  std::map<std::pair<const sym::Node*, int>, Value*> scalars_;
  std::map<std::tuple<const sym::Node*, int, int>, Value*> vectors_;
};

class BodyEmitter {
 public:
  // `memory_floor`: the least depth at which a load of memory that this iteration writes, or of
  // any memory if the stage may run empty, may be placed.
  BodyEmitter(KernelCode& code, const loop::Body& body, const Symbols& symbols, LaneGroup lanes,
              int memory_floor, bool may_be_empty);

  // The value in every lane of the copy (a scalar if there is one lane).
  Value* lanes(loop::Val v, int copy);
  [[nodiscard]] bool is_varying(loop::Val v) const { return facts_[v].varying; }
  // lanes() of an index expression, as i64 or i32.
  Value* index_lanes(sym::Expr e, int copy, int bits);
  // The mask of the copy; null if all lanes are active.
  [[nodiscard]] Value* mask(int copy) const;

  void store(const schedule::StageStore& store, int copy);
  // The same with these lanes, of dtype `from`, in place of the yield.
  void store(const schedule::StageStore& store, Value* v, DType from, int copy);

 private:
  struct Facts {
    bool varying = false;
    int depth = 0;
  };
  void analyse(loop::Val v, int memory_floor, bool may_be_empty);
  Value* get(loop::Val v, int copy);
  Value* emit(loop::Val v, int copy);
  Value* emit_index(const loop::Instruction& instruction, loop::Val v, int copy);
  Value* emit_load(const loop::Instruction& instruction, loop::Val v, int copy);
  Value* emit_scalar_load(const loop::Instruction& instruction, Value* address);
  Value* emit_indirect(const loop::Instruction& instruction, loop::Val v, int copy);
  // Random words of lanes that count on from a multiple of 4: four of them share what is computed.
  // Null where the lanes do not.
  Value* emit_neighbouring_random(const loop::Instruction& instruction, loop::Val v, int copy);
  void bind_indirect(sym::Expr e, int copy);
  // Of an address: the conjunction of its indirect symbols' checks where a failed one leaves no
  // element to fall back to; null if none does.
  Value* valid_lanes(sym::Expr offset, bool varying, int copy);
  Value* base_of(std::uint32_t buffer) const;
  [[nodiscard]] DType dtype_of(std::uint32_t buffer) const;
  [[nodiscard]] bool is_scratch(std::uint32_t buffer) const;
  Value* scratch_address(std::uint32_t buffer, sym::Expr offset, int copy);
  // Address of the element at lane 0 of the copy.
  Value* linear_address(std::uint32_t buffer, sym::Expr offset, int copy);
  struct Scattered {
    Value* base;
    Value* offsets;
  };
  Scattered scattered_address(std::uint32_t buffer, sym::Expr offset, int copy);
  void store_atomic(const schedule::StageStore& store, Value* v, Value* active, int copy);

  KernelCode& code_;
  Ir& ir_;
  const loop::Body& body_;
  LaneGroup lanes_;
  IndexEmitter index_;
  std::vector<Facts> facts_;
  std::unordered_map<const sym::Node*, loop::Val> indirect_;
  std::map<std::pair<const sym::Node*, int>, Value*> valid_;  // of symbols whose extent may be 0
  std::vector<Values> values_;                                // [copy or 0][val]
  std::vector<Value*> broadcast_;                             // of uniform values
  std::map<std::tuple<const sym::Node*, std::uint32_t, int>, Value*> addresses_;
};

}  // namespace inkle::codegen::cpu
