#include "driver/random_integers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"

namespace inkle::driver {
namespace {

using abi::DType;
using graph::Argument;
using graph::Expr;
using graph::Sizes;
using graph::ValueId;

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

// Beyond this a tensor is not made larger.
constexpr std::int64_t kLargeCount = 2048;

std::int64_t wrapping_add(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

}  // namespace

struct RandomIntegers::Operand {
  const graph::Type& type;
  ValueId v;
  const Push& push;
  sym::Context& context;

  [[nodiscard]] bool is_float() const { return abi::is_float(type.dtype); }
  [[nodiscard]] Expr constant(std::int64_t n) const { return context.constant(n); }
  [[nodiscard]] Expr dim(std::size_t d) const { return constant(static_cast<std::int64_t>(d)); }
  [[nodiscard]] bool does(std::string_view op, std::vector<Argument> args) const {
    return push(op, std::move(args)).has_value();
  }
};

// --- Values and expressions
// -----------------------------------------------------------------------

std::int64_t RandomIntegers::value() {
  const auto bits =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(random_()) << 32 | random_());
  const auto near = static_cast<std::int64_t>(below(5)) - 2;
  switch (below(8)) {
    case 0:
    case 1:
    case 2:
      return static_cast<std::int64_t>(below(19)) - 9;
    case 3:  // neighbours of powers of two, of both signs
      return ((bits & 1) != 0 ? -1 : 1) * (std::int64_t{1} << below(63)) + near / 2;
    case 4:
      return std::array{kMin,
                        kMax,
                        -(std::int64_t{1} << 31),
                        std::int64_t{1} << 31,
                        -(std::int64_t{1} << 32),
                        std::int64_t{1} << 32}[below(6)];
    case 5:  // neighbours of those
      return wrapping_add(std::array{kMin, std::int64_t{1} << 31, -(std::int64_t{1} << 31),
                                     std::int64_t{1} << 32}[below(4)],
                          near);
    case 6:
      return bits >> below(64);
    default:
      return bits;
  }
}

const RandomIntegers::Arguments& RandomIntegers::declare(sym::Context& context) {
  const std::uint32_t count = 2 + below(2);
  for (std::uint32_t i = 0; i < count; ++i) {
    // Of any sign, not negative, negative.
    const std::uint32_t kind = i == 0 ? 0 : below(4);
    const sym::Range range = kind < 2    ? sym::Range{}
                             : kind == 2 ? sym::Range{0, kMax}
                                         : sym::Range{kMin, -1};
    const auto draw = [&] {
      const std::int64_t n = value();
      return n >= range.low && n <= range.high ? n : ~n;
    };
    const Expr symbol = context.symbol(fmt::format("n{}", i), {.range = range, .hint = draw()});
    arguments_.symbols.push_back(symbol);
    arguments_.later.emplace_back(symbol, draw());
  }
  return arguments_;
}

bool RandomIntegers::always(Expr e, const Test& test) const {
  const auto later = [&](Expr symbol) {
    for (const auto& [known, value] : arguments_.later) {
      if (known == symbol) return value;
    }
    return sym::hint(symbol).value();  // a size
  };
  try {
    return test(sym::evaluate(e, [](Expr s) { return sym::hint(s).value(); })) &&
           test(sym::evaluate(e, later));
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
    return false;  // more than 64 bits, or divided by 0
  }
}

Expr RandomIntegers::of_one(Expr n) {
  sym::Context& context = n.context();
  const Expr c = context.constant(std::array{-4, -1, 2, 3, 5, 7}[below(6)]);
  const Expr zero = context.constant(0), one = context.constant(1);
  switch (below(9)) {
    case 0:
      return sym::mod(n, c);
    case 1:
      return sym::floordiv(n, c);
    case 2:
      return sym::max(n, c);
    case 3:
      return sym::min(n, c);
    case 4:  // |n|
      return sym::max(n, -n);
    case 5:  // n < c
      return sym::min(sym::max(c - n, zero), one);
    case 6:
      return sym::mod(n + c, c * c);
    case 7:
      return n * c;
    default:
      return n;
  }
}

Expr RandomIntegers::of_two(Expr a, Expr b) {
  sym::Context& context = a.context();
  const Expr zero = context.constant(0), one = context.constant(1);
  switch (below(9)) {
    case 0:
      return sym::mod(a, b);
    case 1:
      return sym::floordiv(a, b);
    case 2:
      return sym::max(a, b);
    case 3:
      return sym::min(a, b);
    case 4:
      return a + b;
    case 5:
      return a - b;
    case 6:  // a < b
      return sym::min(sym::max(b - a, zero), one);
    case 7:  // a == b
      return one - sym::min(sym::max(a - b, b - a), one);
    default:
      return sym::floordiv(a, of_one(b));
  }
}

Expr RandomIntegers::any() {
  for (int tries = 0; tries < 4; ++tries) {
    try {
      const Expr n = of_one(symbol());
      const Expr e = below(2) == 0 ? of_two(n, symbol()) : n;
      if (!e.is_constant() && is_defined(e)) return e;
    } catch (const InternalError&) {
      throw;
    } catch (const Error&) {
      continue;  // a constant beyond 64 bits
    }
  }
  return symbol();
}

Expr RandomIntegers::signed_any() {
  const Expr n = any();
  const sym::Range range = sym::bounds(n);
  if (range.low >= 0 || range.high < 0) return n;
  sym::Context& context = n.context();
  switch (below(4)) {
    case 0:
      return sym::max(n, context.constant(below(4)));
    case 1:
      return sym::min(n, context.constant(-1 - static_cast<std::int64_t>(below(4))));
    case 2:
      return sym::mod(n, context.constant(1 + below(12)));
    default:
      return sym::mod(n, context.constant(1 + below(12))) - 12;
  }
}

// --- Ops
// ------------------------------------------------------------------------------------------

bool RandomIntegers::apply_number(const Operand& x) {
  constexpr std::array<std::string_view, 15> kOps = {
      "add", "sub", "rsub", "mul", "eq",          "ne",         "lt",         "le",
      "gt",  "ge",  "add",  "mul", "bitwise_and", "bitwise_or", "bitwise_xor"};
  return x.does(kOps[below(x.is_float() ? 12 : 15)], {x.v, any()});
}

// Eager refuses 0 as a divisor of integers.
bool RandomIntegers::apply_divisor(const Operand& x) {
  const Expr n = any();
  const auto fits = [&](std::int64_t value) { return ops::wrap_to(x.type.dtype, value) != 0; };
  if (!always(n, x.is_float() ? Test([](std::int64_t value) { return value != 0; }) : Test(fits))) {
    return false;
  }
  constexpr std::array<std::string_view, 4> kOps = {"floor_divide", "remainder", "fmod", "div"};
  if (const std::uint32_t which = below(6); which < 4) return x.does(kOps[which], {x.v, n});
  return x.does("div_mode", {x.v, n, std::string(below(2) == 0 ? "floor" : "trunc")});
}

// Eager refuses negative exponents of integers, and those beyond the type.
bool RandomIntegers::apply_power(const Operand& x) {
  Expr n = any();
  if (!x.is_float()) {
    const std::int64_t most = x.type.dtype == DType::i64 ? kMax : std::int64_t{1} << 31;
    n = below(2) == 0 ? sym::mod(n, x.constant(most)) : sym::mod(n, x.constant(70));
  }
  return x.does("pow", {x.v, n});
}

bool RandomIntegers::apply_choice(const Operand& x) {
  const Expr n = any();
  if (below(4) == 0) return x.does("full_like", {x.v, n});
  if (const std::uint32_t which = below(5); which < 3) {
    constexpr std::array<std::string_view, 3> kOps = {"clamp_min", "clamp_max", "fill"};
    return x.does(kOps[which], {x.v, n});
  }
  const auto condition = x.push("lt", {x.v, any()});
  if (!condition) return false;
  if (below(2) == 0) return x.does("where", {*condition, x.v, n});
  return x.does("masked_fill", {x.v, *condition, n});
}

// Positions of a known sign, inside or beyond; steps are numbers.
bool RandomIntegers::apply_slice(const Operand& x) {
  if (x.type.rank() == 0) return false;
  const std::size_t d = below(static_cast<std::uint32_t>(x.type.rank()));
  const auto bound = [&]() -> Argument {
    if (below(3) == 0) return graph::None{};
    return signed_any();
  };
  const Argument start = bound(), end = bound();
  const Expr step = x.constant(std::array{1LL, 1LL, 1LL, 2LL, 3LL, 1LL << 40}[below(6)]);
  const auto part = x.push("slice", {x.v, x.dim(d), start, end, step});
  if (!part) return false;
  if (below(3) == 0) (void)x.push("slice_scatter", {x.v, *part, x.dim(d), start, end, step});
  if (below(3) == 0 && x.is_float()) (void)x.push("sum", {*part});
  if (below(3) == 0) (void)x.push("add", {*part, any()});
  return true;
}

// Positions that must lie inside.
bool RandomIntegers::apply_position(const Operand& x) {
  if (x.type.rank() == 0) return false;
  const std::size_t d = below(static_cast<std::uint32_t>(x.type.rank()));
  const Expr size = x.type.sizes[d];
  const auto fixed = size.constant();
  if (!fixed || *fixed == 0) return false;
  const Expr at = sym::mod(any(), size);
  switch (below(4)) {
    case 0:
      return x.does("select", {x.v, x.dim(d), at});
    case 1:
      return x.does("select", {x.v, x.dim(d), at - size});
    case 2:
      return x.does("narrow", {x.v, x.dim(d), at, sym::min(sym::mod(any(), size), size - at)});
    default: {
      const auto part = x.push("select", {x.v, x.dim(d), at});
      return part && x.does("select_scatter", {x.v, *part, x.dim(d), sym::mod(any(), size)});
    }
  }
}

bool RandomIntegers::apply_move(const Operand& x) {
  const std::size_t rank = x.type.rank();
  if (rank == 0) return false;
  const std::size_t d = below(static_cast<std::uint32_t>(rank));
  if (rank < 2 || below(2) == 0) return x.does("roll", {x.v, Sizes{any()}, Sizes{x.dim(d)}});
  return x.does(below(2) == 0 ? "tril" : "triu", {x.v, any()});
}

// What makes sizes of integers: small ones.
bool RandomIntegers::apply_length(const Operand& x) {
  const std::size_t rank = x.type.rank();
  const auto few = [&](std::int64_t n) { return sym::mod(any(), x.constant(n)); };
  std::int64_t count = 1;
  for (const Expr size : x.type.sizes) {
    const bool is_small =
        always(size, [&](std::int64_t n) { return n == 0 || count <= kLargeCount / n; });
    if (!is_small) return false;
    count *= std::max<std::int64_t>(sym::hint(size).value(), 1);
  }
  switch (below(rank == 0 ? 3 : 6)) {
    case 0: {
      Sizes sizes = x.type.sizes;
      sizes.insert(sizes.begin(), few(4));
      return x.does("expand", {x.v, sizes});
    }
    case 1: {
      const Expr start = any(), end = start + few(9);
      return is_defined(end) && x.does("arange_start", {start, end});
    }
    case 2:
      return x.does("full", {Sizes{few(5), x.constant(2)}, any()});
    case 3: {
      const std::size_t d = rank - 1;
      return x.does("repeat_interleave", {x.v, few(4), x.dim(d)});
    }
    case 4: {
      Sizes times(rank, x.constant(1));
      times[below(static_cast<std::uint32_t>(rank))] = few(4);
      return x.does("repeat", {x.v, times});
    }
    default:
      return x.does("constant_pad_nd", {x.v, Sizes{few(4), few(5)}, any()});
  }
}

bool RandomIntegers::apply(const graph::Graph& graph, ValueId v, const Push& push) {
  const graph::Type type = graph.type(v);  // a copy: nodes are appended
  constexpr std::array kTypes = {DType::i64, DType::i32, DType::f32, DType::f64};
  if (std::ranges::find(kTypes, type.dtype) == kTypes.end()) return false;
  const Operand x{type, v, push, graph.context()};
  try {
    switch (below(10)) {
      case 0:
      case 1:
        return apply_number(x);
      case 2:
      case 3:
        return apply_divisor(x);
      case 4:
        return apply_power(x);
      case 5:
        return apply_choice(x);
      case 6:
        return apply_slice(x);
      case 7:
        return apply_position(x);
      case 8:
        return apply_move(x);
      default:
        return apply_length(x);
    }
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
    return false;  // a constant beyond 64 bits
  }
}

}  // namespace inkle::driver
