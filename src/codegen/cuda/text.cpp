#include "codegen/cuda/text.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "abi/half.h"
#include "base/error.h"

namespace inkle::codegen::cuda {

using sym::Expr;
using sym::Kind;

std::string_view type_of(DType dtype) {
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

namespace {

// Of a finite number; `suffix` is that of its type.
template <class Real>
ShortText decimal(Real value, std::string_view suffix) {
  char text[32];
  const std::string_view shortest(
      text, static_cast<std::size_t>(fmt::format_to(text, "{}", value) - text));
  const bool is_whole = shortest.find_first_of(".e") == std::string_view::npos;
  return {shortest, is_whole ? ".0" : "", suffix};
}

}  // namespace

ShortText literal(DType dtype, double real, std::int64_t integer) {
  switch (dtype) {
    case DType::boolean:
      return {integer != 0 ? "true" : "false"};
    case DType::f16:
      return {fmt::format("make_f16({:#x})", abi::float_to_f16(static_cast<float>(real)))};
    case DType::bf16:
      return {fmt::format("make_bf16({:#x})", abi::float_to_bf16(static_cast<float>(real)))};
    case DType::f32: {
      const auto value = static_cast<float>(real);
      if (std::isfinite(value)) return decimal(value, "f");
      return {fmt::format("__uint_as_float({:#x}u)", std::bit_cast<std::uint32_t>(value))};
    }
    case DType::f64:
      if (std::isfinite(real)) return decimal(real, "");
      return {fmt::format("__longlong_as_double({:#x}ll)", std::bit_cast<std::uint64_t>(real))};
    case DType::i64:
      if (integer == std::numeric_limits<std::int64_t>::min()) {
        return {"(-9223372036854775807ll - 1)"};
      }
      return {digits(integer), "ll"};
    default:
      if (integer == std::numeric_limits<std::int32_t>::min()) return {"(-2147483647 - 1)"};
      return {"(", type_of(dtype), ")", digits(integer)};
  }
}

Widths::Width Widths::of(Expr e) {
  const bool is_leaf = e.kind() == Kind::constant || e.kind() == Kind::symbol;
  if (const auto known = known_.find(e.node()); known != known_.end()) return known->second;
  const sym::Range range = sym::bounds(e);
  Width out;
  out.fits = range.low >= std::numeric_limits<std::int32_t>::min() &&
             range.high <= std::numeric_limits<std::int32_t>::max();
  out.most =
      std::max(std::abs(static_cast<double>(range.low)), std::abs(static_cast<double>(range.high)));
  if (out.fits && !is_leaf) {
    // Sums and products are taken from left to right: every partial one must fit.
    double magnitude = e.kind() == Kind::mul ? 1 : 0;
    for (const Expr operand : e.operands()) {
      const Width part = of(operand);
      out.fits = out.fits && part.fits;
      if (e.kind() == Kind::add) magnitude += part.most;
      if (e.kind() == Kind::mul) magnitude *= std::max(part.most, 1.0);
    }
    out.fits = out.fits && magnitude <= 2147483647.0;
  }
  known_.emplace(e.node(), out);
  return out;
}

namespace {

class IndexPrinter {
 public:
  IndexPrinter(std::string& out, SymbolTexts symbols, bool wide)
      : out_(out), symbols_(symbols), wide_(wide) {}

  void print(Expr e) {
    switch (e.kind()) {
      case Kind::constant:
        out_ += constant(*e.constant());
        return;
      case Kind::symbol: {
        const SymbolText found = symbols_(e);
        put({wide_ && !found.wide ? "(i64)" : "", found.text});
        return;
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
        const std::string_view name = e.kind() == Kind::min ? "min_of<" : "max_of<";
        const std::span<const Expr> operands = e.operands();
        for (std::size_t i = 1; i < operands.size(); ++i) put({name, type(), ">("});
        print(operands[0]);
        for (const Expr operand : operands.subspan(1)) {
          out_ += ", ";
          print(operand);
          out_ += ")";
        }
        return;
      }
    }
  }

 private:
  void put(TextParts parts) { append(out_, parts); }
  [[nodiscard]] std::string_view type() const { return wide_ ? "i64" : "int"; }

  [[nodiscard]] ShortText constant(std::int64_t value) const {
    const bool is_least = value == std::numeric_limits<std::int64_t>::min();
    return wide_ || is_least ? literal(DType::i64, 0, value) : digits(value);
  }

  void sum(Expr e) {
    bool is_first = true;
    for (const Expr operand : e.operands()) {
      const std::size_t at = out_.size();
      if (!is_first) out_ += " + ";
      print(operand);
      if (!is_first && out_[at + 3] == '-') out_.replace(at, 4, " - ");
      is_first = false;
    }
  }

  void product(Expr e) {
    bool is_first = true;
    for (const Expr operand : e.operands()) {
      const bool nested = operand.kind() == Kind::add;
      put({is_first ? "" : " * ", nested ? "(" : ""});
      print(operand);
      if (nested) out_ += ")";
      is_first = false;
    }
  }

  // Division of a number that is not negative by a positive one is the hardware's, unsigned, for
  // which a constant divisor becomes a multiplication.
  void division(Expr e) {
    const bool quotient = e.kind() == Kind::floordiv;
    const Expr of = e.operands()[0];
    const Expr by = e.operands()[1];
    const sym::Range range = sym::bounds(of);
    const sym::Range divisors = sym::bounds(by);
    if (range.low >= 0 && divisors.low > 0) {
      const std::string_view as = wide_ ? "u64)(" : "u32)(";
      put({"(", type(), ")((", as});
      print(of);
      put({quotient ? ") / (" : ") % (", as});
      print(by);
      out_ += "))";
      return;
    }
    // Of two's complement, by a power of two.
    if (const auto by_constant = by.constant();
        by_constant && *by_constant > 0 &&
        std::has_single_bit(static_cast<std::uint64_t>(*by_constant))) {
      out_ += "((";
      print(of);
      if (quotient) {
        put({") >> ", digits(std::countr_zero(static_cast<std::uint64_t>(*by_constant))), ")"});
      } else {
        put({") & ", constant(*by_constant - 1), ")"});
      }
      return;
    }
    put({quotient ? "floor_divide<" : "floor_modulo<", type(), ">("});
    print(of);
    out_ += ", ";
    const std::size_t at = out_.size();
    print(by);
    if (divisors.low <= 0 && divisors.high >= 0) {
      const std::string divisor = out_.substr(at);
      out_.resize(at);
      put({"((", divisor, ") == 0 ? 1 : (", divisor, "))"});
    }
    out_ += ")";
  }

  std::string& out_;
  SymbolTexts symbols_;
  bool wide_;
};

}  // namespace

void print_index(std::string& to, Expr e, SymbolTexts symbols, bool wide) {
  IndexPrinter(to, symbols, wide).print(e);
}

}  // namespace inkle::codegen::cuda
