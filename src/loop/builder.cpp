#include "loop/builder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "loop/scalar.h"

namespace inkle::loop {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15ull + (hash << 6) + (hash >> 2);
  return hash * 0xFF51AFD7ED558CCDull;
}

std::uint64_t hash_of(const Instruction& i) {
  std::uint64_t hash =
      mix(static_cast<std::uint64_t>(i.opcode), static_cast<std::uint64_t>(i.dtype));
  for (const Val v : i.used()) hash = mix(hash, v);
  for (const Expr e : i.indices) hash = mix(hash, reinterpret_cast<std::uintptr_t>(e.node()));
  hash = mix(hash, i.buffer);
  hash = mix(hash, std::bit_cast<std::uint64_t>(i.real));
  return mix(hash, static_cast<std::uint64_t>(i.integer));
}

// Index arithmetic is folded into expressions only far from the ends of 64 bits.
constexpr std::int64_t kIndexLimit = std::int64_t{1} << 48;

bool is_constant(const Instruction& i) { return i.opcode == Opcode::constant; }

Scalar scalar_of(const Instruction& i) { return {.real = i.real, .integer = i.integer}; }

// A constant equal to `value` in its own dtype; 0 means +0.
bool equals(const Instruction& i, std::int64_t value) {
  if (!is_constant(i)) return false;
  if (!abi::is_float(i.dtype)) return i.integer == value;
  return i.real == static_cast<double>(value) && !std::signbit(i.real) == (value >= 0);
}

bool is_negative_zero(const Instruction& i) {
  return is_constant(i) && abi::is_float(i.dtype) && i.real == 0 && std::signbit(i.real);
}

std::optional<bool> decide(Opcode op, Expr a, Expr b) {
  const auto negate = [](std::optional<bool> v) { return v ? std::optional(!*v) : v; };
  switch (op) {
    case Opcode::equal:
      return sym::equal(a, b);
    case Opcode::not_equal:
      return negate(sym::equal(a, b));
    case Opcode::less:
      return sym::less(a, b);
    case Opcode::less_equal:
      return sym::less_equal(a, b);
    case Opcode::greater:
      return sym::less(b, a);
    case Opcode::greater_equal:
      return sym::less_equal(b, a);
    default:
      return std::nullopt;
  }
}

}  // namespace

BodyBuilder::BodyBuilder(Body& body, sym::Context& context) : body_(body), context_(context) {
  for (Val v = 0; v < body_.instructions.size(); ++v) known_.emplace(hash_of(body_[v]), v);
}

Val BodyBuilder::append(Instruction instruction) {
  const std::uint64_t hash = hash_of(instruction);
  const auto [begin, end] = known_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (body_[it->second] == instruction) return it->second;
  }
  const auto v = static_cast<Val>(body_.instructions.size());
  body_.instructions.push_back(std::move(instruction));
  known_.emplace(hash, v);
  return v;
}

Val BodyBuilder::make(Opcode op, DType dtype, std::initializer_list<Val> operands) {
  Instruction i{.opcode = op, .dtype = dtype};
  for (const Val v : operands) i.operands[i.operand_count++] = v;
  return append(std::move(i));
}

Val BodyBuilder::constant(DType dtype, double value) {
  const Scalar s = make_scalar(dtype, value);
  return append({.opcode = Opcode::constant, .dtype = dtype, .real = s.real, .integer = s.integer});
}

Val BodyBuilder::constant(DType dtype, std::int64_t value) {
  const Scalar s = make_scalar(dtype, value);
  return append({.opcode = Opcode::constant, .dtype = dtype, .real = s.real, .integer = s.integer});
}

Val BodyBuilder::index(Expr e) {
  if (const auto value = e.constant()) return constant(DType::i64, *value);
  return append({.opcode = Opcode::index, .dtype = DType::i64, .indices = {e}});
}

Val BodyBuilder::load(BufferId buffer, DType dtype, std::vector<Expr> indices) {
  return append(
      {.opcode = Opcode::load, .dtype = dtype, .buffer = buffer, .indices = std::move(indices)});
}

Val BodyBuilder::load_if(Val predicate, Val otherwise, BufferId buffer, DType dtype,
                         std::vector<Expr> indices) {
  INKLE_CHECK(this->dtype(predicate) == DType::boolean && this->dtype(otherwise) == dtype,
              "predicated load of {} with {} and {}", abi::name_of(dtype),
              abi::name_of(this->dtype(predicate)), abi::name_of(this->dtype(otherwise)));
  if (is_constant(body_[predicate])) {
    return body_[predicate].integer != 0 ? load(buffer, dtype, std::move(indices)) : otherwise;
  }
  return append({.opcode = Opcode::load,
                 .dtype = dtype,
                 .operand_count = 2,
                 .operands = {predicate, otherwise},
                 .buffer = buffer,
                 .indices = std::move(indices)});
}

Val BodyBuilder::row(std::int64_t number, DType dtype) {
  return append({.opcode = Opcode::row, .dtype = dtype, .integer = number});
}

std::optional<Expr> BodyBuilder::as_expression(Val v) const {
  const Instruction& i = body_[v];
  if (i.opcode == Opcode::index) return i.indices[0];
  if (is_constant(i) && i.dtype == DType::i64 && -kIndexLimit < i.integer &&
      i.integer < kIndexLimit) {
    return context_.constant(i.integer);
  }
  return std::nullopt;
}

Expr BodyBuilder::indirect(Val value, Expr extent) {
  INKLE_CHECK(dtype(value) == DType::i64, "an index of type {}", abi::name_of(dtype(value)));
  if (const auto e = as_expression(value)) {
    if (sym::bounds(*e).low >= 0 && sym::less(*e, extent).value_or(false)) return *e;
  }
  for (const Instruction& i : body_.instructions) {
    if (i.opcode == Opcode::indirect && i.operands[0] == value &&
        context_.info(i.indices[0]).extent == extent) {
      return i.indices[0];
    }
  }
  const Expr symbol = context_.index(extent);
  append({.opcode = Opcode::indirect,
          .dtype = DType::i64,
          .operand_count = 1,
          .operands = {value},
          .indices = {symbol}});
  return symbol;
}

Expr BodyBuilder::indirect_wrapped(Val value, Expr extent) {
  if (const auto e = as_expression(value)) {
    const sym::Range range = sym::bounds(*e);
    if (range.low >= 0) return indirect(value, extent);
    if (range.high < 0) return indirect(index(*e + extent), extent);
  }
  const Val negative = less(value, constant(DType::i64, 0));
  return indirect(select(negative, add(value, index(extent)), value), extent);
}

Val BodyBuilder::cast(Val v, DType to) {
  const Instruction& i = body_[v];
  const DType from = i.dtype;
  if (from == to) return v;
  if (is_constant(i)) {
    const bool fits =
        !abi::is_float(from) || abi::is_float(to) || to == DType::boolean || std::abs(i.real) < 128;
    if (fits) {
      const Scalar s = convert(scalar_of(i), from, to);
      return append(
          {.opcode = Opcode::constant, .dtype = to, .real = s.real, .integer = s.integer});
    }
  }
  // Through a type that holds every value of the first one nothing is lost.
  if (i.opcode == Opcode::cast && is_lossless(body_[i.operands[0]].dtype, from)) {
    return cast(i.operands[0], to);
  }
  return make(Opcode::cast, to, {v});
}

Val BodyBuilder::bitcast(Val v, DType to) {
  const Instruction& i = body_[v];
  if (i.dtype == to) return v;
  INKLE_CHECK(abi::size_of(i.dtype) == abi::size_of(to), "bitcast from {} to {}",
              abi::name_of(i.dtype), abi::name_of(to));
  return make(Opcode::bitcast, to, {v});
}

Val BodyBuilder::select(Val condition, Val a, Val b) {
  INKLE_CHECK(dtype(condition) == DType::boolean && dtype(a) == dtype(b),
              "select of {} between {} and {}", abi::name_of(dtype(condition)),
              abi::name_of(dtype(a)), abi::name_of(dtype(b)));
  if (a == b) return a;
  const Instruction& c = body_[condition];
  if (is_constant(c)) return c.integer != 0 ? a : b;
  if (c.opcode == Opcode::bit_not) return select(c.operands[0], b, a);
  if (dtype(a) == DType::boolean && equals(body_[a], 1) && equals(body_[b], 0)) return condition;
  return make(Opcode::select, dtype(a), {condition, a, b});
}

Val BodyBuilder::unary(Opcode op, Val a) {
  const Instruction& i = body_[a];
  const DType from = i.dtype;
  const OpcodeKind kind = kind_of(op);
  INKLE_CHECK(kind == OpcodeKind::unary || kind == OpcodeKind::test, "{} is not unary",
              name_of(op));
  INKLE_CHECK(!abi::is_reduced_float(from), "{} on {}", name_of(op), abi::name_of(from));
  const DType to = kind == OpcodeKind::test ? DType::boolean : from;
  if (is_constant(i)) {
    const Scalar operand = scalar_of(i);
    if (const auto s = evaluate_exact(op, from, {&operand, 1})) {
      return abi::is_float(to) ? constant(to, s->real) : constant(to, s->integer);
    }
  }
  if ((op == Opcode::neg || op == Opcode::bit_not) && i.opcode == op) return i.operands[0];
  if (op == Opcode::neg) {
    if (const auto e = as_expression(a)) return index(-*e);
  }
  return make(op, to, {a});
}

// Identities that hold for every value, signed zeros and NaN included.
std::optional<Val> BodyBuilder::fold_identity(Opcode op, Val a, Val b) {
  const Instruction& x = body_[a];
  const Instruction& y = body_[b];
  const bool real = abi::is_float(x.dtype);
  const bool is_integer = !real && x.dtype != DType::boolean;
  switch (op) {
    case Opcode::add:
      if (real ? is_negative_zero(y) : equals(y, 0)) return a;
      if (real ? is_negative_zero(x) : equals(x, 0)) return b;
      return std::nullopt;
    case Opcode::sub:
      if (equals(y, 0)) return a;
      if (is_integer && equals(x, 0)) return neg(b);
      return std::nullopt;
    case Opcode::mul:
      if (equals(y, 1)) return a;
      if (equals(x, 1)) return b;
      if (is_integer && equals(y, -1)) return neg(a);
      if (is_integer && equals(x, -1)) return neg(b);
      if (!real && equals(y, 0)) return b;
      if (!real && equals(x, 0)) return a;
      return std::nullopt;
    case Opcode::div:
      return equals(y, 1) ? std::optional(a) : std::nullopt;
    case Opcode::min:
    case Opcode::max:
      return a == b ? std::optional(a) : std::nullopt;
    case Opcode::bit_and:
    case Opcode::bit_or: {
      if (a == b) return a;
      if (x.dtype != DType::boolean) return std::nullopt;
      const int neutral = op == Opcode::bit_and ? 1 : 0;
      if (is_constant(y)) return equals(y, neutral) ? a : b;
      if (is_constant(x)) return equals(x, neutral) ? b : a;
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

std::optional<Val> BodyBuilder::fold_index(Opcode op, Val a, Val b) {
  const auto x = as_expression(a);
  const auto y = as_expression(b);
  if (!x || !y) return std::nullopt;
  if (kind_of(op) == OpcodeKind::comparison) {
    const auto known = decide(op, *x, *y);
    return known ? std::optional(constant(DType::boolean, *known ? 1 : 0)) : std::nullopt;
  }
  switch (op) {
    case Opcode::add:
      return index(*x + *y);
    case Opcode::sub:
      return index(*x - *y);
    case Opcode::mul:
      // A power stays arithmetic: squares of squares have as many factors as its exponent.
      if (*x == *y && !x->is_constant()) return std::nullopt;
      return index(*x * *y);
    case Opcode::min:
      return index(sym::min(*x, *y));
    case Opcode::max:
      return index(sym::max(*x, *y));
    case Opcode::floordiv:
      if (y->is_constant() && !y->is_constant(0)) return index(sym::floordiv(*x, *y));
      return std::nullopt;
    case Opcode::remainder:
      if (y->is_constant() && !y->is_constant(0)) return index(sym::mod(*x, *y));
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

Val BodyBuilder::binary(Opcode op, Val a, Val b) {
  const DType from = dtype(a);
  const OpcodeKind kind = kind_of(op);
  INKLE_CHECK(kind == OpcodeKind::binary || kind == OpcodeKind::comparison, "{} is not binary",
              name_of(op));
  INKLE_CHECK(from == dtype(b), "{} of {} and {}", name_of(op), abi::name_of(from),
              abi::name_of(dtype(b)));
  INKLE_CHECK(!abi::is_reduced_float(from), "{} on {}", name_of(op), abi::name_of(from));
  const DType to = kind == OpcodeKind::comparison ? DType::boolean : from;
  if (is_constant(body_[a]) && is_constant(body_[b])) {
    const std::array operands = {scalar_of(body_[a]), scalar_of(body_[b])};
    if (const auto s = evaluate_exact(op, from, operands)) {
      return abi::is_float(to) ? constant(to, s->real) : constant(to, s->integer);
    }
  }
  if (const auto v = fold_identity(op, a, b)) return *v;
  if (from == DType::i64) {
    if (const auto v = fold_index(op, a, b)) return *v;
  }
  return make(op, to, {a, b});
}

Val BodyBuilder::fma(Val a, Val b, Val c) {
  INKLE_CHECK(dtype(a) == dtype(b) && dtype(a) == dtype(c), "fma of {}, {} and {}",
              abi::name_of(dtype(a)), abi::name_of(dtype(b)), abi::name_of(dtype(c)));
  return make(Opcode::fma, dtype(a), {a, b, c});
}

Val BodyBuilder::random(Val seed, Val offset) {
  INKLE_CHECK(dtype(seed) == DType::i64 && dtype(offset) == DType::i64, "random of {} and {}",
              abi::name_of(dtype(seed)), abi::name_of(dtype(offset)));
  return make(Opcode::random, DType::i64, {seed, offset});
}

void drop_unused(Body& body, std::vector<Expr> indices) {
  const std::size_t count = body.instructions.size();
  std::vector<bool> needed(count, false);
  for (const Val v : body.yields) needed[v] = true;
  const auto named = [&](Expr symbol) {
    return std::any_of(indices.begin(), indices.end(),
                       [&](Expr e) { return sym::contains(e, symbol); });
  };
  for (std::size_t v = count; v-- > 0;) {
    const Instruction& i = body.instructions[v];
    if (i.opcode == Opcode::indirect && named(i.indices[0])) needed[v] = true;
    if (!needed[v]) continue;
    for (const Val operand : i.used()) needed[operand] = true;
    if (i.opcode != Opcode::indirect) {
      indices.insert(indices.end(), i.indices.begin(), i.indices.end());
    }
  }
  if (std::find(needed.begin(), needed.end(), false) == needed.end()) return;
  std::vector<Val> place(count, 0);
  std::vector<Instruction> kept;
  for (std::size_t v = 0; v < count; ++v) {
    if (!needed[v]) continue;
    place[v] = static_cast<Val>(kept.size());
    kept.push_back(std::move(body.instructions[v]));
    for (std::size_t k = 0; k < kept.back().operand_count; ++k) {
      kept.back().operands[k] = place[kept.back().operands[k]];
    }
  }
  body.instructions = std::move(kept);
  for (Val& v : body.yields) v = place[v];
}

}  // namespace inkle::loop
