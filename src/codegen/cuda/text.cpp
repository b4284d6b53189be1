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

void Writer::grow(std::size_t bytes) {
  // In steps: what is grown is filled.
  constexpr std::size_t kStep = 1024;
  const std::size_t written = size();
  text_.resize(written + bytes + kStep);
  end_ = text_.data() + written;
  limit_ = text_.data() + text_.size();
}

std::string Writer::take() {
  text_.resize(size());
  std::string text = std::move(text_);
  text_.clear();
  end_ = limit_ = text_.data();
  return text;
}

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
  unsupported("values of type {} are not supported in kernels", abi::name_of(dtype));
}

namespace {

// Of a finite number; `suffix` is that of its type.
template <class Real>
ShortText decimal(Real value, std::string_view suffix) {
  // What most are.
  if (value == 0 && !std::signbit(value)) return {"0.0", suffix};
  if (value == 1) return {"1.0", suffix};
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

// --- Widths ------------------------------------------------------------------------------------

namespace {

constexpr double kMost32 = std::numeric_limits<std::int32_t>::max();

}  // namespace

bool Widths::fits32(Expr e) {
  // Most are so small that the reach of their symbols shows it.
  return fits_.of(e, [this](Expr one) { return reach(one) <= kMost32 || of(one).fits; });
}

// What the reach of its symbols tells: no value of e and of its parts is farther from 0. Infinity:
// nothing.
double Widths::reach(Expr e) {
  switch (e.kind()) {
    case Kind::constant:
      return std::abs(static_cast<double>(*e.constant()));
    case Kind::symbol: {
      const Width width = of(e);
      return width.fits ? width.most : std::numeric_limits<double>::infinity();
    }
    case Kind::add: {
      double all = 0;
      for (const Expr operand : e.operands()) all += reach(operand);
      return all;
    }
    case Kind::mul: {
      double all = 1;
      for (const Expr operand : e.operands()) all *= std::max(reach(operand), 1.0);
      return all;
    }
    case Kind::floordiv:
    case Kind::mod: {
      const auto by = e.operands()[1].constant();
      if (!by || *by <= 0) break;
      return std::max(reach(e.operands()[0]), static_cast<double>(*by));
    }
    case Kind::min:
    case Kind::max:
      break;
  }
  return std::numeric_limits<double>::infinity();
}

Widths::Width Widths::of(Expr e) {
  return known_.of(e, [this](Expr one) { return find_out(one); });
}

Widths::Width Widths::find_out(Expr e) {
  const bool is_leaf = e.kind() == Kind::constant || e.kind() == Kind::symbol;
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
    out.fits = out.fits && magnitude <= kMost32;
  }
  return out;
}

// --- Expressions -------------------------------------------------------------------------------

namespace {

class IndexPrinter {
 public:
  IndexPrinter(Writer& out, function_ref<void(Expr)> print_symbol, bool wide)
      : out_(out), print_symbol_(print_symbol), wide_(wide) {}

  void print(Expr e) {
    switch (e.kind()) {
      case Kind::constant:
        return out_.add(constant(*e.constant()));
      case Kind::symbol:
        return print_symbol_(e);
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
        for (std::size_t i = 1; i < operands.size(); ++i) out_.add(name, type(), ">(");
        print(operands[0]);
        for (const Expr operand : operands.subspan(1)) {
          out_.add(", ");
          print(operand);
          out_.add(")");
        }
        return;
      }
    }
  }

 private:
  [[nodiscard]] std::string_view type() const { return wide_ ? "i64" : "int"; }

  [[nodiscard]] ShortText constant(std::int64_t value) const {
    const bool is_least = value == std::numeric_limits<std::int64_t>::min();
    return wide_ || is_least ? literal(DType::i64, 0, value) : digits(value);
  }

  // Whether the result may have more than 64 bits: signed arithmetic must not wrap around in C++.
  [[nodiscard]] bool wraps(Expr e) const {
    const sym::Range range = sym::bounds(e);
    return wide_ && (range.low == sym::Range::kMin || range.high == sym::Range::kMax);
  }

  void unsigned_of(Expr e, std::string_view sign) {
    std::string_view before = "(i64)((u64)(";
    for (const Expr operand : e.operands()) {
      out_.add(before);
      print(operand);
      out_.add(")");
      before = sign;
    }
    out_.add(")");
  }

  void sum(Expr e) {
    if (wraps(e)) return unsigned_of(e, " + (u64)(");
    bool is_first = true;
    for (const Expr operand : e.operands()) {
      const std::size_t at = out_.size();
      if (!is_first) out_.add(" + ");
      print(operand);
      if (!is_first && out_.since(at)[3] == '-') {
        const std::string negated(out_.since(at + 4));
        out_.replace(at, concat({" - ", negated}));
      }
      is_first = false;
    }
  }

  void product(Expr e) {
    if (wraps(e)) return unsigned_of(e, " * (u64)(");
    bool is_first = true;
    for (const Expr operand : e.operands()) {
      const bool nested = operand.kind() == Kind::add;
      if (!is_first) out_.add(" * ");
      if (nested) out_.add("(");
      print(operand);
      if (nested) out_.add(")");
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
      out_.add("(", type(), ")((", as);
      print(of);
      out_.add(quotient ? ") / (" : ") % (", as);
      print(by);
      out_.add("))");
      return;
    }
    // Of two's complement, by a power of two.
    if (const auto by_constant = by.constant();
        by_constant && *by_constant > 0 &&
        std::has_single_bit(static_cast<std::uint64_t>(*by_constant))) {
      out_.add("((");
      print(of);
      if (quotient) {
        out_.add(") >> ", digits(std::countr_zero(static_cast<std::uint64_t>(*by_constant))), ")");
      } else {
        out_.add(") & ", constant(*by_constant - 1), ")");
      }
      return;
    }
    out_.add(quotient ? "floor_divide<" : "floor_modulo<", type(), ">(");
    print(of);
    out_.add(", ");
    const std::size_t at = out_.size();
    print(by);
    if (divisors.low <= 0 && divisors.high >= 0) {
      const std::string_view divisor = out_.since(at);
      out_.replace(at, concat({"((", divisor, ") == 0 ? 1 : (", divisor, "))"}));
    }
    out_.add(")");
  }

  Writer& out_;
  function_ref<void(Expr)> print_symbol_;
  bool wide_;
};

}  // namespace

void print_index(Writer& to, Expr e, function_ref<void(Expr)> print_symbol, bool wide) {
  IndexPrinter(to, print_symbol, wide).print(e);
}

}  // namespace inkle::codegen::cuda
