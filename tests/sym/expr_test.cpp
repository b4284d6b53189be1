// Facts, queries, guards, errors and text of single expressions.
#include "sym/expr.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace inkle::sym {
namespace {

using Optional = std::optional<bool>;

class ExprTest : public testing::Test {
 protected:
  Expr size(const char* name, std::int64_t low = 2, std::int64_t high = 1 << 20,
            std::int64_t divisor = 1) {
    SymbolInfo info;
    info.range = {low, high};
    info.divisor = divisor;
    return context.symbol(name, info);
  }
  Expr hinted(const char* name, std::int64_t hint_value) {
    SymbolInfo info;
    info.range = {2, 1 << 20};
    info.hint = hint_value;
    return context.symbol(name, info);
  }
  Expr number(std::int64_t v) { return context.constant(v); }
  Expr read(std::string_view text) {
    Scanner scanner(text, "text");
    const Expr out = parse(scanner, context);
    if (!scanner.at_end()) scanner.fail("expected the end");
    return out;
  }
  std::string error_of(std::string_view text) {
    try {
      return "no error: " + to_string(read(text));
    } catch (const UserError& error) {
      return error.message();
    }
  }

  Context context;
};

TEST_F(ExprTest, EqualityIsIdentity) {
  const Expr a = size("a");
  const Expr b = size("b");
  EXPECT_TRUE((a + b) * 2 == b + a + a + b);
  EXPECT_TRUE(a * b - b * a == number(0));
  EXPECT_FALSE(a + b == a - b);
  EXPECT_TRUE(Expr().is_null());
  EXPECT_TRUE(product(context, {}).is_constant(1));
}

TEST_F(ExprTest, Operands) {
  const Expr a = size("a");
  const Expr e = a * 3 + 5;
  ASSERT_EQ(e.operands().size(), 2U);
  EXPECT_EQ(to_string(e.operands()[0]), "a*3");
  EXPECT_TRUE(e.operands()[1].is_constant(5));
  EXPECT_TRUE(e.operands()[0].operands()[0].is_constant(3));
  EXPECT_TRUE(e.operands()[0].operands()[1] == a);
}

TEST_F(ExprTest, TextIsCanonical) {
  for (const char* name : {"s0", "s1", "i2", "i10"}) size(name);
  for (const char* text :
       {"s0*768+i2", "i2*s0+i10", "floordiv(s0,s1)", "mod(i2,s0)*4+i10-7", "min(s0,s1,4)", "-s0",
        "-s0*2-1", "floordiv(i2*s1+i10,s0+s1)", "max(-i2+3,s0)", "0", "-5"}) {
    const std::string once = to_string(read(text));
    EXPECT_EQ(to_string(read(once)), once);
  }
  EXPECT_EQ(to_string(read("i10 + i2")), "i2+i10");
  EXPECT_EQ(to_string(read("1 - s0*(2 + i2)")), "-i2*s0-s0*2+1");
  EXPECT_EQ(to_string(read("s0 - -9223372036854775807 - 1")), "s0+9223372036854775806");
  EXPECT_EQ(to_string(read("s0 + -9223372036854775808")), "s0+-9223372036854775808");
  EXPECT_TRUE(read("s0+-9223372036854775808") == read("s0 + -9223372036854775808"));
}

TEST_F(ExprTest, ParserStopsBeforeAnArrow) {
  const Expr s0 = size("s0");
  Scanner scanner("s0 -> t", "text");
  EXPECT_TRUE(parse(scanner, context) == s0);
  EXPECT_TRUE(scanner.accept("->"));
}

TEST_F(ExprTest, TextErrors) {
  size("s0");
  EXPECT_EQ(error_of("s0 + q"),
            "text:1:6: size 'q' is not declared; a graph declares it before its body, as in 'where "
            "q in 1..', a kernel among its arguments, found \"q\"");
  EXPECT_EQ(error_of("floordiv(s0)"), "text:1:12: expected ',', found \")\"");
  EXPECT_EQ(error_of("s0 + floordiv(s0,0)"),
            "text:1:6: division by the constant 0, found \"floordiv(s0,0)\"");
  EXPECT_EQ(error_of("mod(s0,2,3)"),
            "text:1:1: floordiv and mod take two operands, found \"mod(s0,2,3)\"");
  EXPECT_EQ(error_of("(s0"), "text:1:4: expected ')' at the end of the text");
  EXPECT_EQ(error_of("s0 s0"), "text:1:4: expected the end, found \"s0\"");
  EXPECT_EQ(error_of("9223372036854775808"),
            "text:1:1: integer does not fit 64 bits, found \"9223372036854775808\"");
  for (const char open : {'(', '-'}) {
    const std::string deep = error_of(std::string(100000, open) + "s0");
    EXPECT_NE(deep.find("expression nested too deeply"), std::string::npos) << deep;
  }
}

TEST_F(ExprTest, Errors) {
  const Expr a = size("a");
  EXPECT_THROW((void)size("a"), UserError);
  EXPECT_THROW((void)floordiv(a, 0), UserError);
  EXPECT_THROW((void)mod(a, number(0)), UserError);
  EXPECT_THROW((void)(number(Range::kMax) + 1), Unsupported);
  EXPECT_THROW((void)(a * Range::kMax * 2), Unsupported);
  EXPECT_THROW((void)-number(Range::kMin), Unsupported);
  EXPECT_TRUE((a + a).kind() == Kind::mul);  // a failure leaves nothing behind
  EXPECT_THROW((void)evaluate(floordiv(a, a - 3), [](Expr) { return 3; }), UserError);
  EXPECT_THROW((void)evaluate(a * a, [](Expr) { return Range::kMax; }), UserError);
  SymbolInfo own;
  own.extent = a + 1;
  EXPECT_THROW(context.set_info(a, own), UserError);
}

TEST_F(ExprTest, HugeConstantsAreSafe) {
  const Expr a = size("a", Range::kMin, Range::kMax);
  const std::int64_t huge = Range::kMax;
  for (const std::int64_t c : {huge, -huge, Range::kMin, Range::kMin + 1, huge / 2}) {
    for (const std::int64_t d : {huge, -huge, Range::kMin, std::int64_t{3}}) {
      for (const Expr e : {floordiv(a * c + d, d), mod(a * c + d, d), floordiv(a + c, d),
                           min(a * c, number(d)), mod(mod(a, d) + c, d)}) {
        EXPECT_FALSE(to_string(e).empty());
        (void)less(e, a * c);
        (void)less(a, e);
        (void)equal(a, e);
        (void)bounds(e);
        (void)divides(huge, e);
      }
    }
  }
}

TEST_F(ExprTest, Bounds) {
  const Expr a = size("a", 2, 10);
  const Expr x = size("x", -3, 5);
  EXPECT_EQ(bounds(a * 3 - 1), (Range{5, 29}));
  EXPECT_EQ(bounds(a * x), (Range{-30, 50}));
  EXPECT_EQ(bounds(x * x), (Range{0, 25}));
  EXPECT_EQ(bounds(floordiv(x, 2)), (Range{-2, 2}));
  EXPECT_EQ(bounds(mod(x, 4)), (Range{0, 3}));
  EXPECT_EQ(bounds(mod(x, a)), (Range{0, 9}));
  EXPECT_EQ(bounds(min(a, x)), (Range{-3, 5}));
  const Expr i = context.index(a);
  EXPECT_EQ(bounds(i), (Range{0, 9}));
  EXPECT_EQ(bounds(a - i).low, 1);
  EXPECT_EQ(bounds(context.index(size("b", 0, Range::kMax))), (Range{0, Range::kMax}));
}

TEST_F(ExprTest, Divides) {
  const Expr a = size("a", 0, 4096, 8);
  const Expr b = size("b");
  EXPECT_TRUE(divides(8, a * b));
  EXPECT_TRUE(divides(16, a * 2 + 32));
  EXPECT_FALSE(divides(16, a));
  EXPECT_TRUE(divides(4, floordiv(a, 2)));
  EXPECT_TRUE(divides(b, a * b + b * 3));
  EXPECT_TRUE(divides(a + b, a * a + a * b));
  EXPECT_FALSE(divides(b, a));
  EXPECT_EQ(to_string(floordiv(a, 2) * 2), "a");
}

TEST_F(ExprTest, LessBySymbolicExtents) {
  const Expr a = size("a");
  const Expr b = size("b");
  const Expr c = size("c");
  const Expr i = context.index(a);
  const Expr j = context.index(b);
  const Expr k = context.index(c);
  EXPECT_EQ(less(i, a), Optional(true));
  EXPECT_EQ(less(a, i), Optional(false));
  EXPECT_EQ(less((i * b + j) * c + k, a * b * c), Optional(true));
  EXPECT_EQ(less_equal((i * b + j) * c, a * b * c - c), Optional(true));
  EXPECT_EQ(less(i, a - 1), std::nullopt);
  EXPECT_EQ(less(i, j), std::nullopt);
  EXPECT_EQ(less(a, b), std::nullopt);
  EXPECT_EQ(less(mod(i * 5, b), b), Optional(true));
  EXPECT_EQ(less_equal(floordiv(i, 2), i), Optional(true));
  EXPECT_EQ(less_equal(a, ceildiv(a, 4) * 4), Optional(true));
  EXPECT_EQ(less(ceildiv(a, 4) * 4, a + 4), Optional(true));
  EXPECT_EQ(less(min(i + 7, a - 1), a), Optional(true));
  EXPECT_EQ(less_equal(number(0), max(i - 3, number(0))), Optional(true));
  EXPECT_EQ(less_equal(i * b, a * b - b), Optional(true));
  EXPECT_EQ(less(a - 1 - i, a), Optional(true));
}

TEST_F(ExprTest, Equal) {
  const Expr a = size("a");
  const Expr b = size("b");
  EXPECT_EQ(equal(a, a), Optional(true));
  EXPECT_EQ(equal(a, b), std::nullopt);
  EXPECT_EQ(equal(a + 1, a), Optional(false));
  EXPECT_EQ(equal(a * 2, b * 2 + 1), Optional(false));
  EXPECT_EQ(equal(a, number(1)), Optional(false));
  EXPECT_EQ(equal(context.index(a), a), Optional(false));
  // Two forms of one value.
  const Expr i = context.index(a);
  EXPECT_EQ(equal(i * 7 + floordiv(i, 7) * 343, floordiv(i, 7) * 392 + mod(i, 7) * 7),
            Optional(true));
}

TEST_F(ExprTest, Guards) {
  const Expr a = hinted("a", 8);
  const Expr b = hinted("b", 8);
  EXPECT_TRUE(context.guard_less(number(1), a));  // provable: nothing recorded
  EXPECT_TRUE(context.guards().empty());
  EXPECT_TRUE(context.guard_equal(a, b));
  EXPECT_TRUE(context.guard_equal(b, a));  // known by now
  EXPECT_EQ(equal(a * 2 + 3, a + b + 3), Optional(true));
  EXPECT_EQ(equal(a - 1, b), Optional(false));
  EXPECT_FALSE(context.guard_less(a, number(5)));
  EXPECT_EQ(less(a, number(5)), Optional(false));
  ASSERT_EQ(context.guards().size(), 2U);
  EXPECT_TRUE(context.guards()[0].relation == Context::Relation::equal);
  EXPECT_TRUE(context.guards()[1].relation == Context::Relation::greater_equal);
  EXPECT_TRUE(context.guard_less(a, number(100)));
  EXPECT_EQ(less(a, number(100)), Optional(true));
  EXPECT_THROW(context.guard_equal(size("u"), a), Unsupported);
}

TEST_F(ExprTest, StrideAndContains) {
  const Expr a = size("a");
  const Expr i = context.index(a);
  const Expr j = context.index(a);
  const Expr e = i * a * 3 + i + j * 2 + 5;
  EXPECT_EQ(to_string(*stride(e, i)), "a*3+1");
  EXPECT_EQ(to_string(*stride(e, j)), "2");
  EXPECT_EQ(to_string(*stride(e, context.index(a))), "0");
  EXPECT_FALSE(stride(i * i, i).has_value());
  EXPECT_FALSE(stride(i + floordiv(i + j, 2), i).has_value());
  EXPECT_TRUE(contains(floordiv(i + j, 2), j));
  EXPECT_FALSE(contains(e, context.index(a)));
  const Symbols all = symbols(e);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_TRUE(all[0] == a && all[1] == i && all[2] == j);
}

TEST_F(ExprTest, SubstituteAtOnce) {
  const Expr a = size("a");
  const Expr i = context.index(a);
  const Expr j = context.index(a);
  const std::vector<std::pair<Expr, Expr>> swap = {{i, j}, {j, i}};
  EXPECT_EQ(to_string(substitute(i * 2 + floordiv(j, 3), swap)), "i1*2+floordiv(i0,3)");
  const std::vector<std::pair<Expr, Expr>> four = {{i, j * 4}};
  EXPECT_EQ(to_string(substitute(floordiv(i, 4) + mod(i, 4), four)), "i1");
}

TEST_F(ExprTest, HintAndEvaluate) {
  const Expr a = hinted("a", 7);
  EXPECT_EQ(hint(floordiv(a * 3, 2) + mod(-a, 4)), 11);
  EXPECT_FALSE(hint(a + size("b")).has_value());
  EXPECT_EQ(evaluate(ceildiv(a, 4), [](Expr) { return 9; }), 3);
}

TEST_F(ExprTest, NewFactsAreUsed) {
  const Expr a = size("a");
  EXPECT_EQ(to_string(mod(a, 4)), "mod(a,4)");
  EXPECT_EQ(less(a, number(64)), std::nullopt);
  SymbolInfo info = context.info(a);
  info.divisor = 4;
  info.range = {4, 32};
  context.set_info(a, info);
  EXPECT_EQ(to_string(mod(a, 4)), "0");
  EXPECT_EQ(less(a, number(64)), Optional(true));
}

}  // namespace
}  // namespace inkle::sym
