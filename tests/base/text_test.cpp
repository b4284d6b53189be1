#include "base/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"

namespace inkle {
namespace {

// The message of the UserError that `body` throws on a scanner over `text`.
template <class Body>
std::string failure(std::string_view text, Body body) {
  Scanner scanner(text, "f.ir");
  try {
    body(scanner);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Scanner, ReadsALineOfIr) {
  Scanner scanner("  %0: f32[s0,-3] = mm.out(%x)  # model.py:12 \n}", "f.ir");
  scanner.expect("%");
  EXPECT_EQ(scanner.integer(), 0);
  scanner.expect(":");
  EXPECT_EQ(scanner.identifier(), "f32");
  scanner.expect("[");
  EXPECT_EQ(scanner.identifier(), "s0");
  EXPECT_TRUE(scanner.accept(","));
  EXPECT_EQ(scanner.integer(), -3);
  scanner.expect("]");
  scanner.expect("=");
  EXPECT_EQ(scanner.identifier(), "mm.out");
  scanner.expect("(");
  scanner.expect("%");
  EXPECT_EQ(scanner.accept_identifier(), "x");
  scanner.expect(")");
  EXPECT_EQ(scanner.take_comment(), "model.py:12");
  EXPECT_EQ(scanner.peek(), '}');
  scanner.expect("}");
  EXPECT_TRUE(scanner.at_end());
}

TEST(Scanner, WordTokensEndAtTheirEnd) {
  Scanner scanner("into in x", "f.ir");
  EXPECT_FALSE(scanner.accept("in"));
  EXPECT_TRUE(scanner.accept("into"));
  EXPECT_TRUE(scanner.accept("in"));
}

TEST(Scanner, CommentsOfOtherLinesAreNotTaken) {
  Scanner scanner("a # one\n b\n# two\n c", "f.ir");
  EXPECT_EQ(scanner.identifier(), "a");
  EXPECT_EQ(scanner.take_comment(), "one");
  EXPECT_EQ(scanner.identifier(), "b");
  EXPECT_EQ(scanner.take_comment(), "");
  EXPECT_EQ(scanner.identifier(), "c");
  EXPECT_EQ(scanner.take_comment(), "");
}

TEST(Scanner, MarkAndResetGoBack) {
  Scanner scanner("a b c", "f.ir");
  EXPECT_EQ(scanner.identifier(), "a");
  const Scanner::Mark mark = scanner.mark();
  EXPECT_EQ(scanner.identifier(), "b");
  scanner.reset(mark);
  EXPECT_EQ(scanner.identifier(), "b");
}

TEST(Scanner, NumbersTellIntegersFromReals) {
  Scanner scanner("12 -7 1.5 -2e-3 1E+4 inf -inf nan 9223372036854775807", "f.ir");
  bool integral = false;
  std::int64_t value = 0;
  EXPECT_TRUE(scanner.next_is_number());
  EXPECT_EQ(scanner.number(integral, value), 12);
  EXPECT_TRUE(integral);
  EXPECT_EQ(scanner.number(integral, value), -7);
  EXPECT_EQ(value, -7);
  EXPECT_EQ(scanner.number(integral, value), 1.5);
  EXPECT_FALSE(integral);
  EXPECT_EQ(scanner.number(integral, value), -2e-3);
  EXPECT_EQ(scanner.number(integral, value), 1e4);
  EXPECT_EQ(scanner.number(integral, value), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(scanner.next_is_number());
  EXPECT_EQ(scanner.number(integral, value), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(scanner.number(integral, value)));
  (void)scanner.number(integral, value);
  EXPECT_EQ(value, std::numeric_limits<std::int64_t>::max());
}

TEST(Scanner, FailuresNameFileLineAndColumn) {
  EXPECT_EQ(failure("a\n  b",
                    [](Scanner& s) {
                      (void)s.identifier();
                      s.expect("=");
                    }),
            "f.ir:2:3: expected '=', found \"b\"");
  EXPECT_EQ(failure("a",
                    [](Scanner& s) {
                      (void)s.identifier();
                      s.expect("}");
                    }),
            "f.ir:1:2: expected '}' at the end of the text");
  EXPECT_EQ(failure("9x", [](Scanner& s) { (void)s.identifier(); }),
            "f.ir:1:1: expected a name, found \"9x\"");
  EXPECT_EQ(failure("x", [](Scanner& s) { (void)s.integer(); }),
            "f.ir:1:1: expected an integer, found \"x\"");
  EXPECT_EQ(failure("", [](Scanner& s) { (void)s.integer(); }),
            "f.ir:1:1: expected an integer at the end of the text");
  EXPECT_EQ(failure("9223372036854775808", [](Scanner& s) { (void)s.integer(); }),
            "f.ir:1:1: integer does not fit 64 bits, found \"9223372036854775808\"");
}

TEST(Scanner, MalformedNumbersFail) {
  const auto read = [](Scanner& s) {
    bool integral = false;
    std::int64_t value = 0;
    (void)s.number(integral, value);
  };
  EXPECT_EQ(failure("1.2.3", read), "f.ir:1:1: malformed number, found \"1.2.3\"");
  EXPECT_EQ(failure("1e", read), "f.ir:1:1: malformed number, found \"1e\"");
  EXPECT_EQ(failure("1e999", read), "f.ir:1:1: number does not fit a double, found \"1e999\"");
  EXPECT_EQ(failure("-", read), "f.ir:1:1: expected an integer, found \"-\"");
}

TEST(Scanner, MalformedStringsFail) {
  const auto read = [](Scanner& s) { (void)s.quoted(); };
  EXPECT_EQ(failure("abc", read), "f.ir:1:1: expected a quoted string, found \"abc\"");
  EXPECT_EQ(failure("\"ab\nc\"", read), "f.ir:1:1: unterminated string, found \"\\\"ab\"");
  EXPECT_EQ(failure("\"ab\\", read), "f.ir:1:1: unterminated string, found \"\\\"ab\\\\\"");
  EXPECT_EQ(failure("\"\\q\"", read),
            "f.ir:1:1: unknown escape in string, found \"\\\"\\\\q\\\"\"");
  EXPECT_EQ(failure("\"\\x1", read),
            "f.ir:1:1: \\x takes two hexadecimal digits, found \"\\\"\\\\x1\"");
}

TEST(Quote, ReadsBack) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  const std::string text = quote(all);
  Scanner scanner(text, "f.ir");
  EXPECT_EQ(scanner.quoted(), all);
  EXPECT_TRUE(scanner.at_end());
}

TEST(PrintDouble, ReadsBackAndIsNeverAnInteger) {
  for (const double value :
       {0.0, -0.0, 1.0, -3.0, 0.1, 1e-12, 1e300, 1e16, 5e-324, 0.70710678118654757, 123456789.0}) {
    const std::string text = print_double(value);
    Scanner scanner(text, "f.ir");
    bool integral = true;
    std::int64_t integer = 0;
    const double back = scanner.number(integral, integer);
    EXPECT_EQ(back, value) << text;
    EXPECT_EQ(std::signbit(back), std::signbit(value)) << text;
    EXPECT_FALSE(integral) << text;
    EXPECT_TRUE(scanner.at_end()) << text;
  }
  EXPECT_EQ(print_double(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(print_double(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(print_double(std::nan("")), "nan");
}

}  // namespace
}  // namespace inkle
