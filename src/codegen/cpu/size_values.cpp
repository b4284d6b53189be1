#include "codegen/cpu/size_values.h"

#include "base/error.h"

namespace inkle::codegen::cpu {

using sym::Expr;
using sym::Kind;

Value* floor_divide(Ir& ir, Value* a, Value* b, FloorDivision how) {
  Type* type = Ir::type_of(a);
  Value* zero = Ir::zero(type);
  if (how.non_negative) {
    if (how.narrow && Ir::bits_of(type) == 64) {
      Type* word = ir.integer_type(32, Ir::lanes_of(type));
      Value* x = ir.truncate(a, word);
      Value* y = ir.truncate(b, word);
      return ir.zext(how.modulo ? ir.urem(x, y) : ir.udiv(x, y), type);
    }
    return how.modulo ? ir.urem(a, b) : ir.udiv(a, b);
  }
  b = ir.select(ir.icmp(Compare::eq, b, zero), Ir::integer(type, 1), b);
  Value* q = ir.sdiv(a, b);
  Value* r = ir.sub(a, ir.mul(q, b));
  Value* adjust =
      ir.bit_and(ir.icmp(Compare::ne, r, zero), ir.icmp(Compare::lt, ir.bit_xor(r, b), zero));
  if (!how.modulo) return ir.sub(q, ir.zext(adjust, type));
  return ir.select(adjust, ir.add(r, b), r);
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
        result = ir_.add(result, operands[i]);
        break;
      case Kind::mul:
        result = ir_.mul(result, operands[i]);
        break;
      case Kind::min:
        result = ir_.smin(result, operands[i]);
        break;
      default:
        result = ir_.smax(result, operands[i]);
        break;
    }
  }
  return result;
}

}  // namespace inkle::codegen::cpu
