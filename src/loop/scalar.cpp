#include "loop/scalar.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"

namespace inkle::loop {
namespace {

// Nearest value (ties to even) with `digits` significant bits and smallest exponent step
// 2^least; magnitudes above `greatest` become infinite.
double round_to_format(double value, int digits, int least, double greatest) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int step = std::max(exponent - digits, least);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -step)), step);
  if (std::abs(rounded) > greatest) {
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  }
  return rounded;
}

double round_f16(double value) { return round_to_format(value, 11, -24, 65504.0); }
double round_bf16(double value) { return round_to_format(value, 8, -133, 0x1.FEp127); }

std::int64_t wrap(DType dtype, std::int64_t value) {
  switch (dtype) {
    case DType::boolean:
      return value != 0 ? 1 : 0;
    case DType::u8:
      return static_cast<std::uint8_t>(value);
    case DType::i8:
      return static_cast<std::int8_t>(value);
    case DType::i16:
      return static_cast<std::int16_t>(value);
    case DType::i32:
      return static_cast<std::int32_t>(value);
    case DType::i64:
      return value;
    default:
      break;
  }
  INKLE_CHECK(false, "{} is no computable integer", abi::name_of(dtype));
}

double round_float(DType dtype, double value) {
  switch (dtype) {
    case DType::f16:
      return round_f16(static_cast<double>(static_cast<float>(value)));
    case DType::bf16:
      return round_bf16(static_cast<double>(static_cast<float>(value)));
    case DType::f32:
      return static_cast<double>(static_cast<float>(value));
    case DType::f64:
      return value;
    default:
      break;
  }
  INKLE_CHECK(false, "{} is no computable float", abi::name_of(dtype));
}

std::int64_t truncate(double value) {
  constexpr double kLimit = 9223372036854775808.0;
  if (!(value >= -kLimit && value < kLimit)) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(value);
}

int width_of(DType dtype) { return static_cast<int>(abi::size_of(dtype) * 8); }

std::uint64_t bits_of(Scalar value, DType dtype) {
  std::array<std::byte, 8> bytes{};
  write_element(dtype, bytes.data(), value);
  return std::bit_cast<std::uint64_t>(bytes);
}

}  // namespace

Scalar make_scalar(DType dtype, double value) {
  if (abi::is_float(dtype)) {
    // One quiet NaN, so that equal constants are equal bits.
    if (std::isnan(value)) return {.real = std::numeric_limits<double>::quiet_NaN()};
    return {.real = round_float(dtype, value)};
  }
  if (dtype == DType::boolean) return {.integer = value != 0 ? 1 : 0};
  return {.integer = wrap(dtype, truncate(value))};
}

Scalar make_scalar(DType dtype, std::int64_t value) {
  if (dtype == DType::f64) return {.real = static_cast<double>(value)};
  if (abi::is_float(dtype)) {
    return {.real = round_float(dtype, static_cast<double>(static_cast<float>(value)))};
  }
  return {.integer = wrap(dtype, value)};
}

Scalar convert(Scalar value, DType from, DType to) {
  if (from == to) return value;
  return abi::is_float(from) ? make_scalar(to, value.real) : make_scalar(to, value.integer);
}

Scalar bit_convert(Scalar value, DType from, DType to) {
  const auto bytes = std::bit_cast<std::array<std::byte, 8>>(bits_of(value, from));
  return read_element(to, bytes.data());
}

bool is_lossless(DType from, DType to) {
  if (from == to || from == DType::boolean) return true;
  if (to == DType::boolean) return false;
  // Bits of the integer that a float holds exactly.
  const auto digits = [](DType d) {
    switch (d) {
      case DType::f16:
        return 11;
      case DType::bf16:
        return 8;
      case DType::f32:
        return 24;
      default:
        return 53;
    }
  };
  if (abi::is_float(from)) {
    if (!abi::is_float(to)) return false;
    return abi::size_of(from) < abi::size_of(to);
  }
  const int bits = width_of(from) - (from == DType::u8 ? 0 : 1);
  if (abi::is_float(to)) return bits <= digits(to);
  if (to == DType::u8) return false;
  return bits <= width_of(to) - 1;
}

namespace {

using Words = std::array<std::uint32_t, 4>;

std::uint32_t low_word(std::int64_t v) { return static_cast<std::uint32_t>(v); }
std::uint32_t high_word(std::int64_t v) {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(v) >> 32);
}

// Philox-4x32-10 (Salmon et al., SC 2011).
Words philox(std::int64_t seed, Words c) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
  std::uint32_t key0 = low_word(seed);
  std::uint32_t key1 = high_word(seed);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = kMultiplier0 * c[0];
    const std::uint64_t p1 = kMultiplier1 * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ key0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ key1, static_cast<std::uint32_t>(p0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

}  // namespace

std::int64_t philox(std::int64_t seed, std::int64_t offset) {
  const std::int64_t counter = offset >> 2;
  const Words words = philox(seed, Words{low_word(counter), high_word(counter), 0, 0});
  return words[static_cast<std::size_t>(offset & 3)];
}

std::int64_t attention_word(std::int64_t seed, std::int64_t number, std::int64_t row,
                            std::int64_t column) {
  const Words counter = {low_word(column / 64 * 16 + column % 16), low_word(row), high_word(row),
                         low_word(number + 1)};
  return philox(seed, counter)[static_cast<std::size_t>(column % 64 / 16)];
}

std::int64_t dropped_below(double p) { return std::llround(p * 4294967296.0); }
double dropout_scale(double p) { return p >= 1 ? 0 : 1 / (1 - p); }

namespace {

template <class T, class From>
void write_as(std::byte* data, From from) {
  const T value = static_cast<T>(from);
  std::memcpy(data, &value, sizeof(T));
}

double decode_f16(std::uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(fraction + 1024, exponent - 25);
}

// `value` is exactly a half.
std::uint16_t encode_f16(double value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::abs(value);
  if (std::isnan(value)) return 0x7E00;
  if (std::isinf(value)) return sign | 0x7C00;
  if (magnitude < 0x1p-14) return static_cast<std::uint16_t>(sign + std::ldexp(magnitude, 24));
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);  // in [0.5, 1)
  const int bits = static_cast<int>(std::ldexp(fraction, 11)) - 1024;
  return static_cast<std::uint16_t>(sign | ((exponent + 14) << 10) | bits);
}

}  // namespace

Scalar read_element(DType dtype, const std::byte* data) {
  switch (dtype) {
    case DType::boolean:
      return {.integer = load<std::uint8_t>(data) != 0 ? 1 : 0};
    case DType::u8:
      return {.integer = load<std::uint8_t>(data)};
    case DType::i8:
      return {.integer = load<std::int8_t>(data)};
    case DType::i16:
      return {.integer = load<std::int16_t>(data)};
    case DType::i32:
      return {.integer = load<std::int32_t>(data)};
    case DType::i64:
      return {.integer = load<std::int64_t>(data)};
    case DType::f16:
      return {.real = decode_f16(load<std::uint16_t>(data))};
    case DType::bf16:
      return {.real = std::bit_cast<float>(std::uint32_t{load<std::uint16_t>(data)} << 16)};
    case DType::f32:
      return {.real = load<float>(data)};
    case DType::f64:
      return {.real = load<double>(data)};
    default:
      break;
  }
  INKLE_CHECK(false, "{} is not computable", abi::name_of(dtype));
}

void write_element(DType dtype, std::byte* data, Scalar value) {
  switch (dtype) {
    case DType::boolean:
      return write_as<std::uint8_t>(data, value.integer != 0);
    case DType::u8:
      return write_as<std::uint8_t>(data, value.integer);
    case DType::i8:
      return write_as<std::int8_t>(data, value.integer);
    case DType::i16:
      return write_as<std::int16_t>(data, value.integer);
    case DType::i32:
      return write_as<std::int32_t>(data, value.integer);
    case DType::i64:
      return write_as<std::int64_t>(data, value.integer);
    case DType::f16:
      return write_as<std::uint16_t>(data, encode_f16(value.real));
    case DType::bf16:
      return write_as<std::uint16_t>(
          data, std::isnan(value.real)
                    ? 0x7FC0
                    : std::bit_cast<std::uint32_t>(static_cast<float>(value.real)) >> 16);
    case DType::f32:
      return write_as<float>(data, value.real);
    case DType::f64:
      return write_as<double>(data, value.real);
    default:
      break;
  }
  INKLE_CHECK(false, "{} is not computable", abi::name_of(dtype));
}

}  // namespace inkle::loop
