#include "codegen/cpu/size_values.h"

#include "base/error.h"
#include "codegen/cpu/ir_operations.h"

namespace inkle::codegen::cpu {

using sym::Expr;
using sym::Kind;

Value* floor_divide(Ir& ir, Value* a, Value* b, FloorDivision how) {
  Type* type = type_of(a);
  Value* none = zero(type);
  if (how.non_negative) {
    if (how.narrow && bits_of(type) == 64) {
      Type* word = ir.integer_type(32, lanes_of(type));
      Value* x = truncate(ir, a, word);
      Value* y = truncate(ir, b, word);
      return zext(ir, how.modulo ? urem(ir, x, y) : udiv(ir, x, y), type);
    }
    return how.modulo ? urem(ir, a, b) : udiv(ir, a, b);
  }
  b = select(ir, icmp(ir, Compare::eq, b, none), integer(type, 1), b);
  Value* q = sdiv(ir, a, b);
  Value* r = sub(ir, a, mul(ir, q, b));
  Value* adjust =
      bit_and(ir, icmp(ir, Compare::ne, r, none), icmp(ir, Compare::lt, bit_xor(ir, r, b), none));
  if (!how.modulo) return sub(ir, q, zext(ir, adjust, type));
  return select(ir, adjust, add(ir, r, b), r);
}

Value* SizeValues::operator()(Expr e) {
  if (const auto constant = e.constant()) return ir_.i64(*constant);
  if (const auto known = values_.find(e.node()); known != values_.end()) return known->second;
  INKLE_CHECK(e.kind() != Kind::symbol, "size '{}' has no value here", e.name());
  Value* value = ir_.at_depth(0, [&] { return make(e); });
  values_[e.node()] = value;
  return value;
}

Value* SizeValues::make(Expr e) {
  Values operands;
  for (const Expr operand : e.operands()) operands.push_back((*this)(operand));
  if (e.kind() == Kind::floordiv || e.kind() == Kind::mod) {
    return floor_divide(ir_, operands[0], operands[1], {.modulo = e.kind() == Kind::mod});
  }
  Value* result = operands[0];
  for (std::size_t i = 1; i < operands.size(); ++i) {
    switch (e.kind()) {
      case Kind::add:
        result = add(ir_, result, operands[i]);
        break;
      case Kind::mul:
        result = mul(ir_, result, operands[i]);
        break;
      case Kind::min:
        result = smin(ir_, result, operands[i]);
        break;
      default:
        result = smax(ir_, result, operands[i]);
        break;
    }
  }
  return result;
}

}  // namespace inkle::codegen::cpu
