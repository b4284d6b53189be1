// What single opcodes compute.
#include "loop/scalar.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace inkle::loop {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double real(Opcode op, DType dtype, double a, double b = 0) {
  const std::array operands = {Scalar{.real = a}, Scalar{.real = b}};
  return evaluate(op, dtype, operands).real;
}

std::int64_t integer(Opcode op, DType dtype, std::int64_t a, std::int64_t b = 0) {
  const std::array operands = {Scalar{.integer = a}, Scalar{.integer = b}};
  return evaluate(op, dtype, operands).integer;
}

TEST(Opcodes, NamesAreUniqueAndFound) {
  for (int i = 0; i <= static_cast<int>(Opcode::sign_bit); ++i) {
    const auto op = static_cast<Opcode>(i);
    EXPECT_EQ(opcode_from_name(name_of(op)), op);
  }
  EXPECT_EQ(opcode_from_name("no_such_op"), std::nullopt);
}

TEST(Scalars, RoundToReducedFloats) {
  EXPECT_EQ(make_scalar(DType::bf16, 1.00390625).real, 1.0);  // a tie goes to even
  EXPECT_EQ(make_scalar(DType::bf16, 1.01171875).real, 1.015625);
  EXPECT_EQ(make_scalar(DType::f16, 65519.0).real, 65504.0);
  EXPECT_EQ(make_scalar(DType::f16, 65520.0).real, kInfinity);
  EXPECT_EQ(make_scalar(DType::f16, 0x1p-24).real, 0x1p-24);
  EXPECT_EQ(make_scalar(DType::f16, 0x1p-25).real, 0.0);
  EXPECT_EQ(make_scalar(DType::f16, 0x1.8p-25).real, 0x1p-24);
  EXPECT_EQ(make_scalar(DType::bf16, 0x1.FEp127).real, 0x1.FEp127);
  EXPECT_EQ(make_scalar(DType::bf16, 0x1.FF8p127).real, kInfinity);
}

TEST(Scalars, MemoryRoundTripOfAllHalves) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto half = static_cast<std::uint16_t>(bits);
      std::array<std::byte, 2> in{};
      std::memcpy(in.data(), &half, 2);
      const Scalar value = read_element(dtype, in.data());
      EXPECT_TRUE(std::isnan(value.real) || make_scalar(dtype, value.real).real == value.real);
      if (std::isnan(value.real)) continue;
      std::array<std::byte, 2> out{};
      write_element(dtype, out.data(), value);
      ASSERT_EQ(in, out) << abi::name_of(dtype) << " " << bits;
    }
  }
}

TEST(Scalars, ArithmeticRoundsOnceInItsType) {
  EXPECT_EQ(real(Opcode::add, DType::f32, 16777216.0, 1.0), 16777216.0);
  EXPECT_EQ(real(Opcode::add, DType::f64, 16777216.0, 1.0), 16777217.0);
  EXPECT_EQ(real(Opcode::mul, DType::f32, 3e38, 10.0), kInfinity);
}

TEST(Scalars, DivisionAndRemainder) {
  EXPECT_EQ(real(Opcode::floordiv, DType::f32, -7.0, 2.0), -4.0);
  EXPECT_EQ(real(Opcode::remainder, DType::f32, -7.0, 2.0), 1.0);
  EXPECT_EQ(real(Opcode::fmod, DType::f32, -7.0, 2.0), -1.0);
  EXPECT_EQ(real(Opcode::floordiv, DType::f32, 1.0, 0.0), kInfinity);
  EXPECT_EQ(integer(Opcode::div, DType::i32, -7, 2), -3);
  EXPECT_EQ(integer(Opcode::floordiv, DType::i32, -7, 2), -4);
  EXPECT_EQ(integer(Opcode::remainder, DType::i32, -7, 2), 1);
  EXPECT_EQ(integer(Opcode::remainder, DType::i32, 7, -2), -1);
  EXPECT_EQ(integer(Opcode::fmod, DType::i32, -7, 2), -1);
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(integer(Opcode::div, DType::i64, kLeast, -1), kLeast);
  EXPECT_THROW(static_cast<void>(integer(Opcode::div, DType::i64, 1, 0)), UserError);
}

TEST(Scalars, IntegersWrap) {
  EXPECT_EQ(integer(Opcode::add, DType::i8, 127, 1), -128);
  EXPECT_EQ(integer(Opcode::sub, DType::u8, 0, 1), 255);
  EXPECT_EQ(integer(Opcode::bit_not, DType::u8, 0), 255);
  EXPECT_EQ(integer(Opcode::bit_not, DType::boolean, 1), 0);
  EXPECT_EQ(integer(Opcode::shift_left, DType::i32, 1, 32), 0);
  EXPECT_EQ(integer(Opcode::shift_right, DType::i32, -5, 40), -1);
}

TEST(Scalars, MinAndMaxKeepNan) {
  for (const Opcode op : {Opcode::min, Opcode::max}) {
    EXPECT_TRUE(std::isnan(real(op, DType::f32, kNan, 1.0)));
    EXPECT_TRUE(std::isnan(real(op, DType::f32, 1.0, kNan)));
  }
  EXPECT_EQ(integer(Opcode::min, DType::boolean, 1, 0), 0);
}

TEST(Scalars, SpecialFunctions) {
  for (const double y : {-0.999999, -0.7, -0.5, -1e-8, 0.0, 0.3, 0.5, 0.9, 0.99999999}) {
    EXPECT_NEAR(std::erf(real(Opcode::erfinv, DType::f64, y)), y, 4e-16) << y;
  }
  EXPECT_EQ(real(Opcode::erfinv, DType::f64, 1.0), kInfinity);
  EXPECT_TRUE(std::isnan(real(Opcode::erfinv, DType::f64, 1.5)));
  EXPECT_NEAR(real(Opcode::digamma, DType::f64, 1.0), -0.57721566490153286, 1e-15);
  EXPECT_NEAR(real(Opcode::digamma, DType::f64, 0.5), -1.9635100260214235, 1e-14);
  EXPECT_NEAR(real(Opcode::digamma, DType::f64, -0.5), 0.03648997397857652, 1e-13);
}

// The words that the authors of Random123 publish for their known-answer test.
TEST(Scalars, PhiloxKnownAnswers) {
  const std::int64_t words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(philox(0, i), words[i]) << i;
  EXPECT_NE(philox(0, 4), philox(0, 0));
}

TEST(Scalars, LosslessConversions) {
  EXPECT_TRUE(is_lossless(DType::bf16, DType::f32));
  EXPECT_TRUE(is_lossless(DType::i16, DType::f32));
  EXPECT_TRUE(is_lossless(DType::u8, DType::i16));
  EXPECT_TRUE(is_lossless(DType::u8, DType::bf16));
  EXPECT_FALSE(is_lossless(DType::u8, DType::i8));
  EXPECT_FALSE(is_lossless(DType::i32, DType::f32));
  EXPECT_FALSE(is_lossless(DType::bf16, DType::f16));
  EXPECT_FALSE(is_lossless(DType::i8, DType::u8));
  EXPECT_FALSE(is_lossless(DType::i8, DType::boolean));
}

// Checked against the definition: every 8-bit value survives the trip where claimed.
TEST(Scalars, LosslessMeansRoundTrip) {
  for (const DType from : {DType::boolean, DType::u8, DType::i8}) {
    for (int t = 0; t <= static_cast<int>(DType::f64); ++t) {
      const auto to = static_cast<DType>(t);
      bool survives = true;
      for (std::int64_t v = -128; v < 256; ++v) {
        const Scalar x = make_scalar(from, v);
        const Scalar y = convert(x, from, to);
        const double value = abi::is_float(to) ? y.real : static_cast<double>(y.integer);
        survives = survives && value == static_cast<double>(x.integer);
      }
      EXPECT_EQ(is_lossless(from, to), survives) << abi::name_of(from) << abi::name_of(to);
    }
  }
}

}  // namespace
}  // namespace inkle::loop
