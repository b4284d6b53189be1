// Conversions between float and the 16-bit float types, round to nearest even; NaNs stay NaNs.
#pragma once

#include <bit>
#include <cstdint>

namespace inkle::abi {

[[nodiscard]] constexpr float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

[[nodiscard]] constexpr std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return 0x7fc0;
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

[[nodiscard]] constexpr float f16_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t rest = half & 0x7fffU;
  if (rest >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | ((rest & 0x3ffU) << 13));
  if (rest >= 0x400U) return std::bit_cast<float>(sign | ((rest << 13) + (112U << 23)));
  // Subnormal: an integer multiple of 2^-24.
  const float magnitude = static_cast<float>(rest) * 0x1p-24F;
  return sign != 0 ? -magnitude : magnitude;
}

[[nodiscard]] constexpr std::uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t rest = bits & 0x7fffffffU;
  if (rest > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (rest >= 0x47800000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // 65536 and more
  if (rest < 0x38800000U) {
    // Below 2^-14: adding 0.5 leaves the multiple of 2^-24, rounded to even, in the low bits.
    const float shifted = std::bit_cast<float>(rest) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
  }
  // Carries run into the exponent, up to infinity.
  const std::uint32_t rounded = rest + 0xfffU + ((rest >> 13) & 1U) - (112U << 23);
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

static_assert(float_to_f16(1.0F) == 0x3c00 && float_to_f16(65520.0F) == 0x7c00);
static_assert(float_to_f16(65519.0F) == 0x7bff && float_to_f16(0x1p-24F) == 1);
static_assert(f16_to_float(0x3c01) == 1.0F + 0x1p-10F && float_to_bf16(1.0F) == 0x3f80);

}  // namespace inkle::abi
