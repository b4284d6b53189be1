// Symbols that may be negative: normal forms and facts agree with every value, up to the ends of
// 64 bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "naive.h"
#include "sym/expr.h"

namespace inkle::sym {
namespace {

__extension__ typedef __int128 Wide;

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

struct Declared {
  const char* name;
  Range range;
  std::int64_t divisor = 1;
};

// Below 0, on both sides of it, and multiples.
constexpr std::array<Declared, 4> kSymbols = {
    Declared{"a", {-6, -1}}, {"b", {-4, 5}}, {"c", {-12, 8}, 4}, {"d", {kLeast, 3}}};
constexpr std::int64_t kReach = 12;  // values of d that are tried

using Values = std::map<std::string, std::int64_t, std::less<>>;

void declare(Context& context) {
  for (const Declared& d : kSymbols) {
    context.symbol(d.name, {.range = d.range, .divisor = d.divisor});
  }
}

Expr parse_text(std::string_view text, Context& context) {
  Scanner scanner(text, "test");
  return parse(scanner, context);
}

class Generator {
 public:
  explicit Generator(std::uint32_t seed) : random_(seed) {}

  std::string make(int depth) {
    if (depth <= 0 || pick(6) == 0) return leaf();
    const std::string left = make(depth - 1);
    switch (pick(9)) {
      case 0:
      case 1:
        return "(" + left + "+" + make(depth - 1) + ")";
      case 2:
        return "(" + left + "-" + make(depth - 1) + ")";
      case 3:
        return "(" + left + ")*" + leaf();
      case 4:
        return "floordiv(" + left + "," + leaf() + ")";
      case 5:
        return "mod(" + left + "," + leaf() + ")";
      case 6:  // |left|
        return "max(" + left + ",-" + left + ")";
      case 7:  // left < right
        return "min(max(" + make(depth - 1) + "-" + left + ",0),1)";
      default:
        return (pick(2) == 0 ? "min(" : "max(") + left + "," + make(depth - 1) + ")";
    }
  }

 private:
  std::size_t pick(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
  }
  std::string leaf() {
    static constexpr std::array kLeaves = {"a", "b", "c", "d", "1", "-2", "3", "4", "-5", "0"};
    return "(" + std::string(kLeaves[pick(kLeaves.size())]) + ")";
  }
  std::mt19937 random_;
};

Values random_values(std::mt19937& random) {
  Values values;
  for (const Declared& d : kSymbols) {
    const std::int64_t low = std::max(d.range.low, -kReach);
    const std::int64_t v = std::uniform_int_distribution<std::int64_t>(low, d.range.high)(random);
    values[d.name] = v / d.divisor * d.divisor;
  }
  return values;
}

void check_facts(Expr e, std::int64_t value) {
  const Range range = bounds(e);
  EXPECT_LE(range.low, value);
  EXPECT_GE(range.high, value);
  for (const std::int64_t k : {2, 3, 4}) {
    if (divides(k, e)) {
      EXPECT_EQ(value % k, 0);
    }
  }
  for (const std::int64_t other : {-3, -1, 0, 1, 4}) {
    const Expr constant = e.context().constant(other);
    EXPECT_EQ(less(e, constant).value_or(value < other), value < other) << other;
    EXPECT_EQ(less_equal(e, constant).value_or(value <= other), value <= other) << other;
    EXPECT_EQ(equal(e, constant).value_or(value == other), value == other) << other;
  }
}

TEST(NegativeRanges, KeepTheirValueAndFacts) {
  std::mt19937 random(11);
  std::int64_t checked = 0;
  for (std::uint32_t seed = 0; seed < 4000; ++seed) {
    const std::string text = Generator(seed).make(1 + static_cast<int>(seed % 4));
    Context context;
    declare(context);
    Expr e;
    try {
      e = parse_text(text, context);
    } catch (const UserError&) {
      continue;  // a division by the constant 0
    }
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + text + " became " + to_string(e));
    EXPECT_TRUE(parse_text(to_string(e), context) == e);
    for (int i = 0; i < 24; ++i) {
      const Values values = random_values(random);
      const auto value = [&](std::string_view name) { return values.find(name)->second; };
      const auto expected = naive_value(text, value);
      if (!expected) continue;
      ++checked;
      const std::int64_t got = evaluate(e, [&](Expr symbol) { return value(symbol.name()); });
      ASSERT_EQ(got, *expected) << testing::PrintToString(values);
      check_facts(e, got);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(checked, 40000);
}

Wide floor_of(Wide a, Wide b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

struct Form {
  const char* text;
  Wide (*value)(Wide n);
};

constexpr std::array<Form, 9> kForms = {
    Form{"mod(n,5)", [](Wide n) { return n - floor_of(n, 5) * 5; }},
    {"mod(n,-7)", [](Wide n) { return n - floor_of(n, -7) * -7; }},
    {"floordiv(n,3)", [](Wide n) { return floor_of(n, 3); }},
    {"floordiv(n,-1)", [](Wide n) { return -n; }},
    {"max(n,0)", [](Wide n) { return n < 0 ? Wide{0} : n; }},
    {"min(n,1099511627776)", [](Wide n) { return n < (Wide{1} << 40) ? n : Wide{1} << 40; }},
    {"max(n,-n)", [](Wide n) { return n < 0 ? -n : n; }},
    {"mod(n+1,5)", [](Wide n) { return n + 1 - floor_of(n + 1, 5) * 5; }},
    {"n*n-n", [](Wide n) { return n * n - n; }},
};

// At the ends of 64 bits a form has its value or overflows, and no fact is wrong.
TEST(NegativeRanges, OfAll64Bits) {
  const std::int64_t values[] = {kLeast, kLeast + 1, -(std::int64_t{1} << 53), -3,        -1,   0,
                                 1,      7,          std::int64_t{1} << 49,    kMost - 1, kMost};
  for (const Form& form : kForms) {
    Context context;
    const Expr n = context.symbol("n", {});
    const Expr e = parse_text(form.text, context);
    for (const std::int64_t at : values) {
      SCOPED_TRACE(std::string(form.text) + " at " + std::to_string(at));
      const Wide expected = form.value(at);
      try {
        const std::int64_t got = evaluate(e, [&](Expr s) { return s == n ? at : 0; });
        EXPECT_TRUE(Wide{got} == expected) << got;
        EXPECT_LE(bounds(e).low, got);
        EXPECT_GE(bounds(e).high, got);
      } catch (const UserError&) {
        EXPECT_TRUE(at < -(std::int64_t{1} << 31) || at > (std::int64_t{1} << 31));
      }
    }
  }
}

// What may lie beyond 64 bits is below nothing.
TEST(NegativeRanges, NothingIsBelowTheEnds) {
  Context context;
  const Expr x = context.symbol("x", {.range = {0, 3}});
  const Expr quotient = floordiv(x + (kMost - 3), kMost);
  const auto at = [&](std::int64_t value) {
    return evaluate(quotient, [&](Expr) { return value; });
  };
  EXPECT_EQ(at(2), 0);
  EXPECT_EQ(at(3), 1);
  EXPECT_EQ(less(x + (kMost - 3), context.constant(kMost)), std::nullopt);
}

}  // namespace
}  // namespace inkle::sym
