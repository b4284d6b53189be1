// Expressions of size symbols as code, each computed once, before any loop.
#pragma once

#include <unordered_map>

#include "codegen/cpu/ir.h"
#include "sym/expr.h"

namespace inkle::codegen::cpu {

// The floor quotient or modulo of i64, or lanes of it; a divisor of 0 counts as 1.
struct FloorDivision {
  bool modulo = false;
  bool non_negative = false;  // both operands are at least 0
  bool narrow = false;        // and fit 32 bits
};
Value* floor_divide(Ir& ir, Value* a, Value* b, FloorDivision how);

class SizeValues {
 public:
  explicit SizeValues(Ir& ir) : ir_(ir) {}

  void bind(sym::Expr symbol, Value* value) { values_[symbol.node()] = value; }
  // i64. Throws InternalError where a symbol has no value.
  Value* operator()(sym::Expr e);

 private:
  Value* make(sym::Expr e);

  Ir& ir_;
  std::unordered_map<const sym::Node*, Value*> values_;
};

}  // namespace inkle::codegen::cpu
