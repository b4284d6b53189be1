// Every rule of sym/rules.h, and thousands of random expressions, against an independent
// evaluation of their text under all small assignments.
#include "sym/rules.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "naive.h"
#include "sym/expr.h"

namespace inkle::sym {
namespace {

struct Fact {
  std::string symbol;
  char relation = ' ';  // '>' '<' '%'
  std::string other;
};

struct Symbol {
  std::string name;
  std::vector<Fact> facts;
};

std::vector<Fact> parse_facts(std::string_view text) {
  std::vector<Fact> out;
  Scanner scanner(text, "facts");
  while (!scanner.at_end()) {
    Fact fact;
    fact.symbol = scanner.identifier();
    for (const char relation : {'>', '<', '%'}) {
      if (scanner.accept(std::string(1, relation))) fact.relation = relation;
    }
    fact.other = scanner.next_is_number() ? std::to_string(scanner.integer())
                                          : std::string(scanner.identifier());
    out.push_back(fact);
    scanner.accept(",");
  }
  return out;
}

// The symbols of the texts with their facts; extents come before what they bound.
std::vector<Symbol> find_symbols(const std::vector<std::string>& texts,
                                 const std::vector<Fact>& facts) {
  std::vector<Symbol> out;
  for (const std::string name : {"m", "n", "k", "i", "j", "x", "y", "z"}) {
    bool used = false;
    for (const std::string& text : texts) {
      Scanner scanner(text, "rule");
      while (!scanner.at_end()) {
        if (const auto word = scanner.accept_identifier()) {
          used = used || *word == name;
        } else if (scanner.next_is_number() && scanner.peek() != '-') {
          (void)scanner.integer();
        } else {
          scanner.expect(std::string(1, scanner.peek()));
        }
      }
    }
    Symbol symbol{name, {}};
    for (const Fact& fact : facts) {
      if (fact.symbol == name) symbol.facts.push_back(fact);
    }
    if (used) out.push_back(symbol);
  }
  return out;
}

void declare(Context& context, const std::vector<Symbol>& symbols) {
  for (const Symbol& symbol : symbols) {
    SymbolInfo info;
    for (const Fact& fact : symbol.facts) {
      if (fact.relation == '>') info.range.low = std::stoll(fact.other) + 1;
      if (fact.relation == '%') info.divisor = std::stoll(fact.other);
      if (fact.relation == '<') {
        const auto extent = context.find_symbol(fact.other);
        info.extent = extent ? *extent : context.constant(std::stoll(fact.other));
      }
    }
    context.symbol(symbol.name, info);
  }
}

using Values = std::map<std::string, std::int64_t, std::less<>>;

bool satisfies(const Symbol& symbol, std::int64_t v, const Values& values) {
  for (const Fact& fact : symbol.facts) {
    const auto found = values.find(fact.other);
    const std::int64_t other = found != values.end() ? found->second : std::stoll(fact.other);
    if (fact.relation == '>' && v <= other) return false;
    if (fact.relation == '%' && v % other != 0) return false;
    if (fact.relation == '<' && (v < 0 || v >= other)) return false;
  }
  return true;
}

void for_all(const std::vector<Symbol>& symbols, std::int64_t reach, Values& values, std::size_t at,
             const std::function<void(const Values&)>& body) {
  if (at == symbols.size()) {
    body(values);
    return;
  }
  for (std::int64_t v = -reach; v <= reach; ++v) {
    if (!satisfies(symbols[at], v, values)) continue;
    values[symbols[at].name] = v;
    for_all(symbols, reach, values, at + 1, body);
  }
  values.erase(symbols[at].name);
}

Expr parse_text(std::string_view text, Context& context) {
  Scanner scanner(text, "test");
  const Expr out = parse(scanner, context);
  EXPECT_TRUE(scanner.at_end()) << text;
  return out;
}

class RuleTest : public testing::TestWithParam<Rule> {};

TEST_P(RuleTest, HoldsOnSmallDomain) {
  const Rule& rule = GetParam();
  const auto symbols = find_symbols({rule.left, rule.right}, parse_facts(rule.facts));
  Values values;
  std::int64_t checked = 0;
  for_all(symbols, symbols.size() > 3 ? 8 : 16, values, 0, [&](const Values& at) {
    const auto value = [&](std::string_view name) { return at.find(name)->second; };
    const auto left = naive_value(rule.left, value);
    if (!left) return;
    ++checked;
    ASSERT_EQ(left, naive_value(rule.right, value)) << rule.left << " vs " << rule.right;
  });
  EXPECT_GE(checked, 4);
}

TEST_P(RuleTest, Fires) {
  const Rule& rule = GetParam();
  Context context;
  declare(context, find_symbols({rule.left, rule.right}, parse_facts(rule.facts)));
  const Expr left = parse_text(rule.left, context);
  const Expr right = parse_text(rule.right, context);
  EXPECT_EQ(to_string(left), to_string(right));
  EXPECT_TRUE(left == right);
}

INSTANTIATE_TEST_SUITE_P(All, RuleTest, testing::ValuesIn(kRules), [](const auto& row) {
  return std::string(row.param.name) + "_" + std::to_string(row.index);
});

// Random expressions over sizes m, n, iteration variables i < m, j < n, a multiple x of 4 and
// free y.
class Generator {
 public:
  explicit Generator(std::uint32_t seed) : random_(seed) {}

  std::string make(int depth) {
    if (depth <= 0 || pick(6) == 0) return leaf();
    const std::string a = make(depth - 1);
    switch (pick(10)) {
      case 0:
      case 1:
      case 2:
        return "(" + a + "+" + make(depth - 1) + ")";
      case 3:
        return "(" + a + "-" + make(depth - 1) + ")";
      case 4:
        return "(" + a + ")*" + leaf();
      case 5:
      case 6:
        return "floordiv(" + a + "," + divisor() + ")";
      case 7:
      case 8:
        return "mod(" + a + "," + divisor() + ")";
      default:
        return (pick(2) == 0 ? "min(" : "max(") + a + "," + make(depth - 1) + ")";
    }
  }

  std::size_t pick(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
  }

 private:
  std::string leaf() {
    static constexpr std::array kLeaves = {"m", "n",  "i", "j", "x",   "y",  "i*n+j", "j*m",
                                           "1", "-2", "3", "4", "i*4", "-6", "8"};
    const std::string out = kLeaves[pick(kLeaves.size())];
    return "(" + out + ")";
  }
  std::string divisor() {
    static constexpr std::array kDivisors = {"m", "n",  "m*n", "2",   "3", "4",     "6",
                                             "8", "-3", "n+1", "n*2", "y", "m*n+n", "12"};
    return kDivisors[pick(kDivisors.size())];
  }

  std::mt19937 random_;
};

const std::vector<Symbol>& random_symbols() {
  static const std::vector<Symbol> kSymbols = {{"m", {{"m", '>', "-1"}}}, {"n", {{"n", '>', "-1"}}},
                                               {"i", {{"i", '<', "m"}}},  {"j", {{"j", '<', "n"}}},
                                               {"x", {{"x", '%', "4"}}},  {"y", {}}};
  return kSymbols;
}

std::vector<Values> random_values() {
  std::vector<Values> out;
  Values values;
  for_all(random_symbols(), 5, values, 0, [&](const Values& at) { out.push_back(at); });
  return out;
}

void check_facts(Expr e, std::int64_t value) {
  const Range range = bounds(e);
  EXPECT_LE(range.low, value);
  EXPECT_GE(range.high, value);
  for (const std::int64_t k : {2, 3, 4, 8}) {
    if (divides(k, e)) {
      EXPECT_EQ(value % k, 0);
    }
  }
  const Expr zero = e.context().constant(0);
  EXPECT_EQ(less(e, zero).value_or(value < 0), value < 0);
  EXPECT_EQ(less_equal(e, zero).value_or(value <= 0), value <= 0);
  EXPECT_EQ(equal(e, zero).value_or(value == 0), value == 0);
}

void check_random(const std::string& text, const std::vector<Values>& all) {
  Context context;
  declare(context, random_symbols());
  const Expr e = parse_text(text, context);
  const std::string printed = to_string(e);
  SCOPED_TRACE(text + " became " + printed);
  // Print and parse, in the same and in a fresh context, change nothing.
  EXPECT_TRUE(parse_text(printed, context) == e) << to_string(parse_text(printed, context));
  Context fresh;
  declare(fresh, random_symbols());
  EXPECT_EQ(to_string(parse_text(printed, fresh)), printed);
  for (const Values& values : all) {
    const auto value = [&](std::string_view name) { return values.find(name)->second; };
    const auto expected = naive_value(text, value);
    if (!expected) continue;
    const std::int64_t got = evaluate(e, [&](Expr symbol) { return value(symbol.name()); });
    ASSERT_EQ(got, *expected) << testing::PrintToString(values);
    check_facts(e, got);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(RandomExpressions, KeepTheirValueAndAreStable) {
  const std::vector<Values> all = random_values();
  std::mt19937 random(7);
  for (std::uint32_t seed = 0; seed < 2500; ++seed) {
    Generator generator(seed);
    const std::string text = generator.make(1 + static_cast<int>(seed % 5));
    // All assignments for a few, a random tenth for most.
    std::vector<Values> some;
    for (const Values& values : all) {
      if (seed % 64 == 0 || random() % 64 == 0) some.push_back(values);
    }
    SCOPED_TRACE("seed " + std::to_string(seed));
    check_random(text, some);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace inkle::sym
