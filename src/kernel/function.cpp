#include "kernel/function.h"

#include <array>
#include <cmath>

#include "abi/half.h"

namespace inkle::kernel {
namespace {

double exp_term(std::span<const double> x) { return std::exp(x[0]); }
double erf_plus_one(std::span<const double> x) { return std::erfc(-x[0]); }
double exp_negative(std::span<const double> x) { return std::exp(x[0]); }
double quotient(std::span<const double> x) { return x[0] / x[1]; }
double round_bf16(std::span<const double> x) {
  return abi::bf16_to_float(abi::float_to_bf16(static_cast<float>(x[0])));
}
double round_f16(std::span<const double> x) {
  return abi::f16_to_float(abi::float_to_f16(static_cast<float>(x[0])));
}

// As AVX512-BF16 does: denormals are flushed to 0, as operands and as results.
float flushed(double x) {
  const auto f = static_cast<float>(x);
  return std::fabs(f) < 0x1p-126F ? std::copysign(0.0F, f) : f;
}

loop::Scalar pack_bf16(std::span<const loop::Scalar> x) {
  const std::uint32_t low = abi::float_to_bf16(flushed(x[0].real));
  const std::uint32_t high = abi::float_to_bf16(flushed(x[1].real));
  return {0, static_cast<std::int32_t>(high << 16U | low)};
}

constexpr std::uint32_t kHigh = 16, kLow = 0;

// sum + the product of the bf16 in the high or low half of a and b.
float add_product(float sum, std::uint32_t a, std::uint32_t b, std::uint32_t half) {
  const float left = flushed(abi::bf16_to_float(static_cast<std::uint16_t>(a >> half)));
  const float right = flushed(abi::bf16_to_float(static_cast<std::uint16_t>(b >> half)));
  return flushed(std::fma(left, right, sum));
}

loop::Scalar dot_bf16(std::span<const loop::Scalar> x) {
  const auto a = static_cast<std::uint32_t>(x[1].integer);
  const auto b = static_cast<std::uint32_t>(x[2].integer);
  return {add_product(add_product(flushed(x[0].real), a, b, kHigh), a, b, kLow), 0};
}

// exp_term: the rounding of x * log2(e) makes it off by |x| 2^-24 of itself, two units of the
// approximate exp2 come on top; denormal results are 0. A term is a small part of the sum where |x|
// is large.
constexpr std::array kRows = {
    FunctionRow{NamedFunction::exp_term, "exp_term", 1, exp_term, 0x1p-17, 0x1p-126},
    FunctionRow{NamedFunction::erf_plus_one, "erf_plus_one", 1, erf_plus_one, 0, 3e-7},
    FunctionRow{NamedFunction::quotient, "quotient", 2, quotient, 0x1.8p-23, 0x1p-149},
    FunctionRow{NamedFunction::exp_negative, "exp_negative", 1, exp_negative, 0x1p-23, 0x1p-149},
    FunctionRow{NamedFunction::round_bf16, "round_bf16", 1, round_bf16, 0, 0},
    FunctionRow{NamedFunction::round_f16, "round_f16", 1, round_f16, 0, 0},
    FunctionRow{.function = NamedFunction::pack_bf16,
                .name = "pack_bf16",
                .operands = 2,
                .takes = {DType::f32, DType::f32},
                .gives = DType::i32,
                .exact = pack_bf16},
    FunctionRow{.function = NamedFunction::dot_bf16,
                .name = "dot_bf16",
                .operands = 3,
                .takes = {DType::f32, DType::i32, DType::i32},
                .gives = DType::f32,
                .exact = dot_bf16},
};

}  // namespace

std::span<const FunctionRow> functions() { return kRows; }

float add_products_of_tiles(float sum, std::span<const std::uint32_t> a,
                            std::span<const std::uint32_t> b) {
  float even = 0, odd = 0;
  for (std::size_t k = 0; k < a.size(); ++k) {
    even = add_product(even, a[k], b[k], kLow);
    odd = add_product(odd, a[k], b[k], kHigh);
  }
  return flushed(flushed(sum) + flushed(even + odd));
}

const FunctionRow& row_of(NamedFunction function) {
  return kRows.at(static_cast<std::size_t>(function));
}

std::optional<NamedFunction> function_from_name(std::string_view name) {
  for (const FunctionRow& row : kRows) {
    if (row.name == name) return row.function;
  }
  return std::nullopt;
}

}  // namespace inkle::kernel
