#include "codegen/cuda/text.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "abi/half.h"
#include "base/error.h"

namespace inkle::codegen::cuda {

using sym::Expr;
using sym::Kind;

void Writer::append(const std::string& lines) {
  std::size_t at = 0;
  while (at < lines.size()) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    raw(lines.substr(at, end - at));
    at = end + 1;
  }
}

std::string type_of(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return "bool";
    case DType::u8:
      return "u8";
    case DType::i8:
      return "i8";
    case DType::i16:
      return "i16";
    case DType::i32:
      return "int";
    case DType::i64:
      return "i64";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::f32:
      return "float";
    case DType::f64:
      return "double";
    default:
      break;
  }
  unsupported("no kernel computes {}", abi::name_of(dtype));
}

std::string literal(DType dtype, double real, std::int64_t integer) {
  switch (dtype) {
    case DType::boolean:
      return integer != 0 ? "true" : "false";
    case DType::f16:
      return fmt::format("make_f16({:#x})", abi::float_to_f16(static_cast<float>(real)));
    case DType::bf16:
      return fmt::format("make_bf16({:#x})", abi::float_to_bf16(static_cast<float>(real)));
    case DType::f32: {
      const auto value = static_cast<float>(real);
      if (!std::isfinite(value)) {
        return fmt::format("__uint_as_float({:#x}u)", std::bit_cast<std::uint32_t>(value));
      }
      const std::string text = fmt::format("{}", value);
      return text.find_first_of(".e") == std::string::npos ? text + ".0f" : text + "f";
    }
    case DType::f64: {
      if (!std::isfinite(real)) {
        return fmt::format("__longlong_as_double({:#x}ll)", std::bit_cast<std::uint64_t>(real));
      }
      const std::string text = fmt::format("{}", real);
      return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
    }
    case DType::i64:
      if (integer == std::numeric_limits<std::int64_t>::min()) {
        return "(-9223372036854775807ll - 1)";
      }
      return fmt::format("{}ll", integer);
    default:
      if (integer == std::numeric_limits<std::int32_t>::min()) return "(-2147483647 - 1)";
      return fmt::format("({}){}", type_of(dtype), integer);
  }
}

bool fits32(Expr e) {
  const sym::Range range = sym::bounds(e);
  if (range.low < std::numeric_limits<std::int32_t>::min() ||
      range.high > std::numeric_limits<std::int32_t>::max()) {
    return false;
  }
  if (e.kind() == Kind::constant || e.kind() == Kind::symbol) return true;
  const auto operands = e.operands();
  if (!std::all_of(operands.begin(), operands.end(), fits32)) return false;
  // Sums and products are taken from left to right: every partial one must fit.
  if (e.kind() != Kind::add && e.kind() != Kind::mul) return true;
  double magnitude = e.kind() == Kind::add ? 0 : 1;
  for (const Expr operand : operands) {
    const sym::Range r = sym::bounds(operand);
    const double most =
        std::max(std::abs(static_cast<double>(r.low)), std::abs(static_cast<double>(r.high)));
    magnitude = e.kind() == Kind::add ? magnitude + most : magnitude * std::max(most, 1.0);
  }
  return magnitude <= 2147483647.0;
}

namespace {

class IndexPrinter {
 public:
  IndexPrinter(const Symbols& symbols, bool wide) : symbols_(symbols), wide_(wide) {}

  std::string text(Expr e) const {
    switch (e.kind()) {
      case Kind::constant:
        return constant(*e.constant());
      case Kind::symbol: {
        const auto found = symbols_.find(e.node());
        INKLE_CHECK(found != symbols_.end(), "'{}' has no value here", e.name());
        return wide_ && !found->second.wide ? "(i64)" + found->second.text : found->second.text;
      }
      case Kind::add:
        return sum(e);
      case Kind::mul:
        return product(e);
      case Kind::floordiv:
      case Kind::mod:
        return division(e);
      case Kind::min:
      case Kind::max: {
        std::string result = text(e.operands()[0]);
        for (std::size_t i = 1; i < e.operands().size(); ++i) {
          result = fmt::format("{}<{}>({}, {})", e.kind() == Kind::min ? "min_of" : "max_of",
                               wide_ ? "i64" : "int", result, text(e.operands()[i]));
        }
        return result;
      }
    }
    return {};
  }

 private:
  std::string constant(std::int64_t value) const {
    if (value == std::numeric_limits<std::int64_t>::min()) return literal(DType::i64, 0, value);
    return wide_ ? fmt::format("{}ll", value) : fmt::format("{}", value);
  }

  std::string sum(Expr e) const {
    std::string result;
    for (const Expr operand : e.operands()) {
      std::string term = text(operand);
      if (!result.empty()) {
        if (term.starts_with("-")) {
          result += " - ";
          term.erase(0, 1);
        } else {
          result += " + ";
        }
      }
      result += term;
    }
    return result;
  }

  std::string product(Expr e) const {
    std::string result;
    for (const Expr operand : e.operands()) {
      const bool nested = operand.kind() == Kind::add;
      const std::string factor = nested ? "(" + text(operand) + ")" : text(operand);
      result += (result.empty() ? "" : " * ") + factor;
    }
    return result;
  }

  // Division of a number that is not negative by a positive one is the hardware's, unsigned, for
  // which a constant divisor becomes a multiplication.
  std::string division(Expr e) const {
    const bool quotient = e.kind() == Kind::floordiv;
    const Expr by = e.operands()[1];
    const sym::Range range = sym::bounds(e.operands()[0]);
    const sym::Range divisors = sym::bounds(by);
    const std::string a = text(e.operands()[0]);
    const std::string b = text(by);
    if (range.low >= 0 && divisors.low > 0) {
      return fmt::format("({0})(({1})({2}) {3} ({1})({4}))", wide_ ? "i64" : "int",
                         wide_ ? "u64" : "u32", a, quotient ? "/" : "%", b);
    }
    // Of two's complement, by a power of two.
    if (const auto by_constant = by.constant();
        by_constant && *by_constant > 0 &&
        std::has_single_bit(static_cast<std::uint64_t>(*by_constant))) {
      return quotient ? fmt::format("(({}) >> {})", a,
                                    std::countr_zero(static_cast<std::uint64_t>(*by_constant)))
                      : fmt::format("(({}) & {})", a, constant(*by_constant - 1));
    }
    std::string divisor = b;
    if (divisors.low <= 0 && divisors.high >= 0) {
      divisor = fmt::format("(({0}) == 0 ? 1 : ({0}))", b);
    }
    return fmt::format("{}<{}>({}, {})", quotient ? "floor_divide" : "floor_modulo",
                       wide_ ? "i64" : "int", a, divisor);
  }

  const Symbols& symbols_;
  bool wide_;
};

}  // namespace

std::string index_text(Expr e, const Symbols& symbols, bool wide) {
  return IndexPrinter(symbols, wide).text(e);
}

}  // namespace inkle::codegen::cuda
