// Index expressions as scalar and vector code.
#include <algorithm>
#include <limits>
#include <optional>

#include "base/error.h"
#include "codegen/cpu/body.h"

namespace inkle::codegen::cpu {

using sym::Expr;
using sym::Kind;

namespace {

bool is_power_of_two(std::int64_t v) { return v > 0 && (v & (v - 1)) == 0; }

int log2_of(std::int64_t v) {
  int n = 0;
  while ((std::int64_t{1} << n) < v) ++n;
  return n;
}

}  // namespace

IndexEmitter::IndexEmitter(KernelCode& code, Symbols symbols, const LaneGroup& lanes)
    : code_(code), ir_(code.ir), symbols_(std::move(symbols)), lanes_(lanes) {
  if (!lanes_.variable.is_null()) {
    symbols_[lanes_.variable.node()] = {lanes_.base, lanes_.depth};
  }
}

void IndexEmitter::bind_scalar(Expr symbol, Scalar scalar) { symbols_[symbol.node()] = scalar; }

void IndexEmitter::bind_varying(Expr symbol, int depth) { varying_depth_[symbol.node()] = depth; }

void IndexEmitter::set_varying(Expr symbol, int copy, Value* lanes) {
  varying_[{symbol.node(), copy}] = lanes;
}

bool IndexEmitter::is_varying(Expr e) const {
  for (const Expr s : sym::symbols(e)) {
    if (varying_depth_.contains(s.node())) return true;
    if (s == lanes_.variable && lanes_.lanes * lanes_.copies > 1) return true;
  }
  return false;
}

int IndexEmitter::depth_of(Expr e) const {
  int depth = 0;
  for (const Expr s : sym::symbols(e)) {
    if (const auto varying = varying_depth_.find(s.node()); varying != varying_depth_.end()) {
      depth = std::max(depth, varying->second);
      continue;
    }
    const auto found = symbols_.find(s.node());
    INKLE_CHECK(found != symbols_.end(), "kernel {}: '{}' has no value here", code_.kernel.name,
                s.name());
    depth = std::max(depth, found->second.depth);
  }
  return depth;
}

Value* IndexEmitter::scalar(Expr e, int copy) {
  if (const auto value = e.constant()) return ir_.i64(*value);
  if (e.kind() == Kind::symbol) {
    const auto found = symbols_.find(e.node());
    INKLE_CHECK(found != symbols_.end(), "kernel {}: '{}' has no scalar value here",
                code_.kernel.name, e.name());
    if (copy == 0 || e != lanes_.variable) return found->second.value;
    return ir_.at_depth(lanes_.depth, [&] {
      return ir_.add(lanes_.base, ir_.i64(std::int64_t{copy} * lanes_.lanes));
    });
  }
  if (copy != 0 && !sym::contains(e, lanes_.variable)) copy = 0;
  const std::pair key{e.node(), copy};
  if (const auto known = scalars_.find(key); known != scalars_.end()) return known->second;
  Value* value = emit_scalar(e, copy);
  scalars_[key] = value;
  return value;
}

// Sum or product of the operands, those of outer loops first, each partial result at its depth.
Value* IndexEmitter::fold(Expr e, bool sum, int copy) {
  std::vector<std::pair<int, Expr>> operands;
  for (const Expr operand : e.operands()) operands.emplace_back(depth_of(operand), operand);
  std::stable_sort(operands.begin(), operands.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Value* result = nullptr;
  for (const auto& [depth, operand] : operands) {
    Value* value = scalar(operand, copy);
    if (result != nullptr) {
      value = ir_.at_depth(
          depth, [&, a = result, b = value] { return sum ? ir_.add(a, b) : ir_.mul(a, b); });
    }
    result = value;
  }
  return result;
}

// Floor division, or modulo, of i64 or lanes of any width.
Value* IndexEmitter::divide(Expr e, Value* dividend, Value* divisor) {
  const bool quotient = e.kind() == Kind::floordiv;
  const Expr by = e.operands()[1];
  Type* type = Ir::type_of(dividend);
  const auto constant = by.constant();
  if (constant && is_power_of_two(*constant)) {
    return quotient ? ir_.ashr(dividend, log2_of(*constant))
                    : ir_.bit_and(dividend, Ir::integer(type, *constant - 1));
  }
  const sym::Range range = sym::bounds(e.operands()[0]);
  const sym::Range divisors = sym::bounds(by);
  if (divisors.low <= 0 && divisors.high >= 0) {
    divisor =
        ir_.select(ir_.icmp(Compare::eq, divisor, Ir::zero(type)), Ir::integer(type, 1), divisor);
  }
  if (range.low >= 0 && divisors.low > 0) {
    constexpr std::int64_t k32 = std::numeric_limits<std::uint32_t>::max();
    if (Ir::bits_of(type) == 64 && range.high <= k32 && divisors.high <= k32) {
      Type* narrow = ir_.integer_type(32, Ir::lanes_of(type));
      Value* a = ir_.truncate(dividend, narrow);
      Value* b = ir_.truncate(divisor, narrow);
      return ir_.zext(quotient ? ir_.udiv(a, b) : ir_.urem(a, b), type);
    }
    return quotient ? ir_.udiv(dividend, divisor) : ir_.urem(dividend, divisor);
  }
  Value* q = ir_.sdiv(dividend, divisor);
  Value* r = ir_.sub(dividend, ir_.mul(q, divisor));
  Value* zero = Ir::zero(type);
  Value* adjust = ir_.bit_and(ir_.icmp(Compare::ne, r, zero),
                              ir_.icmp(Compare::lt, ir_.bit_xor(r, divisor), zero));
  if (quotient) return ir_.sub(q, ir_.zext(adjust, type));
  return ir_.select(adjust, ir_.add(r, divisor), r);
}

Value* IndexEmitter::emit_scalar(Expr e, int copy) {
  switch (e.kind()) {
    case Kind::constant:
    case Kind::symbol:
      return scalar(e, copy);
    case Kind::add:
      return fold(e, true, copy);
    case Kind::mul:
      return fold(e, false, copy);
    case Kind::floordiv:
    case Kind::mod: {
      Value* a = scalar(e.operands()[0], copy);
      Value* b = scalar(e.operands()[1], copy);
      return ir_.at_depth(depth_of(e), [&] { return divide(e, a, b); });
    }
    case Kind::min:
    case Kind::max: {
      Value* result = scalar(e.operands()[0], copy);
      for (std::size_t i = 1; i < e.operands().size(); ++i) {
        Value* other = scalar(e.operands()[i], copy);
        result = ir_.at_depth(depth_of(e), [&] {
          return e.kind() == Kind::min ? ir_.smin(result, other) : ir_.smax(result, other);
        });
      }
      return result;
    }
  }
  return nullptr;
}

bool IndexEmitter::fits32(Expr e) {
  const sym::Range range = sym::bounds(e);
  if (range.low < std::numeric_limits<std::int32_t>::min() ||
      range.high > std::numeric_limits<std::int32_t>::max()) {
    return false;
  }
  if (e.kind() == Kind::constant || e.kind() == Kind::symbol) return true;
  return std::all_of(e.operands().begin(), e.operands().end(), fits32);
}

Value* IndexEmitter::vector(Expr e, int copy, int bits) {
  const auto key = std::make_tuple(e.node(), copy, bits);
  if (const auto known = vectors_.find(key); known != vectors_.end()) return known->second;
  Value* value = emit_vector(e, copy, bits);
  vectors_[key] = value;
  return value;
}

Value* IndexEmitter::emit_vector(Expr e, int copy, int bits) {
  Type* type = ir_.integer_type(bits, lanes_.lanes);
  if (!is_varying(e)) {
    Value* value = scalar(e);
    return ir_.at_depth(depth_of(e), [&] {
      return ir_.broadcast(ir_.resize_signed(value, Ir::element_of(type)), lanes_.lanes);
    });
  }
  const auto stride = lane_stride(e);
  if (stride && stride->is_constant()) {
    Value* first = scalar(e, copy);
    return ir_.at_depth(std::max(depth_of(e), lanes_.depth), [&] {
      Value* narrow = ir_.resize_signed(first, Ir::element_of(type));
      return ir_.add(ir_.broadcast(narrow, lanes_.lanes), ir_.iota(type, *stride->constant()));
    });
  }
  if (e.kind() == Kind::symbol) {
    Value* value = varying_.at({e.node(), copy});
    return ir_.at_depth(depth_of(e), [&] { return ir_.resize_signed(value, type); });
  }
  if (e.kind() == Kind::add) {
    const Parts parts = split(e);
    if (!parts.uniform.is_null()) {
      Value* a = vector(parts.uniform, copy, bits);
      Value* b = vector(parts.varying, copy, bits);
      return ir_.at_depth(depth_of(e), [&] { return ir_.add(a, b); });
    }
  }
  Values operands;
  for (const Expr operand : e.operands()) operands.push_back(vector(operand, copy, bits));
  return ir_.at_depth(depth_of(e), [&] {
    if (e.kind() == Kind::floordiv || e.kind() == Kind::mod) {
      return divide(e, operands[0], operands[1]);
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
        case Kind::max:
          result = ir_.smax(result, operands[i]);
          break;
        default:
          INKLE_CHECK(false, "no such expression");
      }
    }
    return result;
  });
}

namespace {

bool is_zero(const std::optional<Expr>& e) { return e && e->is_constant(0); }

}  // namespace

bool IndexEmitter::is_linear(Expr e) const {
  return lanes_.variable.is_null() || sym::stride(e, lanes_.variable).has_value();
}

std::optional<Expr> IndexEmitter::lane_stride(Expr e) const {
  for (const Expr s : sym::symbols(e)) {
    if (varying_depth_.contains(s.node())) return std::nullopt;
  }
  sym::Context& context = e.context();
  if (!is_varying(e)) return context.constant(0);
  if (const auto linear = sym::stride(e, lanes_.variable)) {
    if (!is_varying(*linear)) return linear;
  }
  std::vector<std::optional<Expr>> parts;
  for (const Expr operand : e.operands()) parts.push_back(lane_stride(operand));
  if (std::all_of(parts.begin(), parts.end(), is_zero)) return context.constant(0);
  if (e.kind() == Kind::add) {
    Expr sum = context.constant(0);
    for (const auto& part : parts) {
      if (!part) return std::nullopt;
      sum = sum + *part;
    }
    return sum;
  }
  if (e.kind() == Kind::mul) {
    Expr result = context.constant(1);
    int growing = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!parts[i]) return std::nullopt;
      if (is_zero(parts[i]) && is_varying(e.operands()[i])) return std::nullopt;
      if (!is_zero(parts[i])) ++growing;
      result = result * (is_zero(parts[i]) ? e.operands()[i] : *parts[i]);
    }
    return growing == 1 ? std::optional(result) : std::nullopt;
  }
  if (e.kind() != Kind::floordiv && e.kind() != Kind::mod) return std::nullopt;
  const Expr dividend = e.operands()[0];
  const auto divisor = e.operands()[1].constant();
  const auto grows = sym::stride(dividend, lanes_.variable);
  const bool stays = lanes_.aligned && divisor && *divisor > 0 && *divisor % lanes_.lanes == 0 &&
                     grows && grows->is_constant(1) && parts[0] && parts[0]->is_constant(1) &&
                     sym::divides(lanes_.lanes, dividend - lanes_.variable);
  if (!stays) return std::nullopt;
  return context.constant(e.kind() == Kind::mod ? 1 : 0);
}

IndexEmitter::Parts IndexEmitter::split(Expr e) const {
  Parts parts;
  const Expr alone[] = {e};
  const std::span<const Expr> terms = e.kind() == Kind::add ? e.operands() : alone;
  for (const Expr term : terms) {
    Expr& part = is_varying(term) ? parts.varying : parts.uniform;
    part = part.is_null() ? term : part + term;
  }
  return parts;
}

}  // namespace inkle::codegen::cpu
