// Tensors of the reference interpreter: rounding, storage and element access.
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "ops/interpreter.h"

namespace inkle::ops {
namespace {

// Nearest multiple of 2^(exponent - digits), ties to even, below 2^overflow_exponent.
double round_binary(double value, int digits, int min_exponent, int max_exponent) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| in [2^(exponent-1), 2^exponent)
  const int last = std::max(exponent, min_exponent) - digits;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -last)), last);
  if (std::abs(rounded) >= std::ldexp(1.0, max_exponent)) {
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  }
  return rounded;
}

double decode_f16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = bits & 1023;
  double value = 0;
  if (exponent == 31) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, -24);
  } else {
    value = std::ldexp(fraction + 1024, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

// `value` is representable.
std::uint16_t encode_f16(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (std::isinf(value)) return sign | 0x7c00;
  if (magnitude < std::ldexp(1.0, -14)) {
    return sign | static_cast<std::uint16_t>(std::ldexp(magnitude, 24));
  }
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);  // [0.5, 1)
  const auto mantissa = static_cast<unsigned>(std::ldexp(fraction, 11)) & 1023u;
  return static_cast<std::uint16_t>(sign | (static_cast<unsigned>(exponent + 14) << 10) | mantissa);
}

template <class T>
T read(std::span<const std::byte> bytes, std::size_t position) {
  T value;
  std::memcpy(&value, bytes.data() + position * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void write(std::vector<std::byte>& bytes, std::size_t position, T value) {
  std::memcpy(bytes.data() + position * sizeof(T), &value, sizeof(T));
}

// Float to integer conversion without undefined behaviour.
std::int64_t truncate(double value) {
  if (std::isnan(value)) return 0;
  if (value >= 0x1p63) return std::numeric_limits<std::int64_t>::max();
  if (value < -0x1p63) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(value);
}

}  // namespace

double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::f64:
      return value;
    case DType::f32:
      return static_cast<double>(static_cast<float>(value));
    case DType::bf16:
      return round_binary(value, 8, -125, 128);
    case DType::f16:
      return round_binary(value, 11, -13, 16);
    case DType::boolean:
      return value != 0 ? 1 : 0;
    default:
      return static_cast<double>(wrap_to(dtype, truncate(value)));
  }
}

std::int64_t wrap_to(DType dtype, std::int64_t value) {
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
    default:
      return value;
  }
}

RefTensor::RefTensor(DType type, std::vector<std::int64_t> shape)
    : dtype(type), sizes(std::move(shape)) {
  if (!abi::is_computable(dtype)) unsupported("dtype {} is not computed", abi::name_of(dtype));
  for (std::int64_t size : sizes) INKLE_CHECK(size >= 0, "size {} of a tensor", size);
  if (is_real()) {
    reals.resize(count());
  } else {
    integers.resize(count());
  }
}

std::size_t RefTensor::count() const {
  std::size_t n = 1;
  for (std::int64_t size : sizes) n *= static_cast<std::size_t>(size);
  return n;
}

double RefTensor::real(std::size_t position) const {
  return is_real() ? reals[position] : static_cast<double>(integers[position]);
}

std::int64_t RefTensor::integer(std::size_t position) const {
  return is_real() ? truncate(reals[position]) : integers[position];
}

void RefTensor::set(std::size_t position, double value) {
  if (is_real()) {
    reals[position] = value;
  } else if (dtype == DType::boolean) {
    integers[position] = value != 0 ? 1 : 0;
  } else {
    integers[position] = truncate(value);
  }
}

void RefTensor::set(std::size_t position, std::int64_t value) {
  if (is_real()) {
    reals[position] = static_cast<double>(value);
  } else {
    integers[position] = value;
  }
}

void RefTensor::copy_element(std::size_t position, const RefTensor& from,
                             std::size_t from_position) {
  if (from.is_real()) {
    set(position, from.reals[from_position]);
  } else {
    set(position, from.integers[from_position]);
  }
}

std::size_t RefTensor::at(std::span<const std::int64_t> indices) const {
  INKLE_CHECK(indices.size() == sizes.size(), "{} indices for rank {}", indices.size(),
              sizes.size());
  std::int64_t position = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    INKLE_CHECK(indices[d] >= 0 && indices[d] < sizes[d], "index {} of dimension {} of size {}",
                indices[d], d, sizes[d]);
    position = position * sizes[d] + indices[d];
  }
  return static_cast<std::size_t>(position);
}

void RefTensor::round() {
  for (double& value : reals) value = round_to(dtype, value);
  for (std::int64_t& value : integers) value = wrap_to(dtype, value);
}

RefTensor cast(const RefTensor& tensor, DType dtype) {
  RefTensor result(dtype, tensor.sizes);
  for (std::size_t p = 0; p < tensor.count(); ++p) result.copy_element(p, tensor, p);
  result.round();
  return result;
}

RefTensor from_bytes(DType dtype, std::vector<std::int64_t> sizes,
                     std::span<const std::byte> bytes) {
  RefTensor t(dtype, std::move(sizes));
  const std::size_t wanted = t.count() * static_cast<std::size_t>(abi::size_of(dtype));
  if (bytes.size() < wanted) user_error("{} bytes given, {} needed", bytes.size(), wanted);
  for (std::size_t p = 0; p < t.count(); ++p) {
    switch (dtype) {
      case DType::f64:
        t.reals[p] = read<double>(bytes, p);
        break;
      case DType::f32:
        t.reals[p] = static_cast<double>(read<float>(bytes, p));
        break;
      case DType::bf16: {
        const std::uint32_t bits = static_cast<std::uint32_t>(read<std::uint16_t>(bytes, p)) << 16;
        t.reals[p] = static_cast<double>(std::bit_cast<float>(bits));
        break;
      }
      case DType::f16:
        t.reals[p] = decode_f16(read<std::uint16_t>(bytes, p));
        break;
      case DType::boolean:
        t.integers[p] = read<std::uint8_t>(bytes, p) != 0 ? 1 : 0;
        break;
      case DType::u8:
        t.integers[p] = read<std::uint8_t>(bytes, p);
        break;
      case DType::i8:
        t.integers[p] = read<std::int8_t>(bytes, p);
        break;
      case DType::i16:
        t.integers[p] = read<std::int16_t>(bytes, p);
        break;
      case DType::i32:
        t.integers[p] = read<std::int32_t>(bytes, p);
        break;
      default:
        t.integers[p] = read<std::int64_t>(bytes, p);
        break;
    }
  }
  return t;
}

std::vector<std::byte> to_bytes(const RefTensor& t) {
  std::vector<std::byte> bytes(t.count() * static_cast<std::size_t>(abi::size_of(t.dtype)));
  for (std::size_t p = 0; p < t.count(); ++p) {
    switch (t.dtype) {
      case DType::f64:
        write(bytes, p, t.reals[p]);
        break;
      case DType::f32:
        write(bytes, p, static_cast<float>(t.reals[p]));
        break;
      case DType::bf16: {
        const auto value = static_cast<float>(round_to(DType::bf16, t.reals[p]));
        write(bytes, p, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
        break;
      }
      case DType::f16:
        write(bytes, p, encode_f16(round_to(DType::f16, t.reals[p])));
        break;
      case DType::boolean:
      case DType::u8:
      case DType::i8:
        write(bytes, p, static_cast<std::uint8_t>(t.integers[p]));
        break;
      case DType::i16:
        write(bytes, p, static_cast<std::int16_t>(t.integers[p]));
        break;
      case DType::i32:
        write(bytes, p, static_cast<std::int32_t>(t.integers[p]));
        break;
      default:
        write(bytes, p, t.integers[p]);
        break;
    }
  }
  return bytes;
}

std::size_t broadcast_position(const RefTensor& tensor, std::span<const std::int64_t> indices) {
  INKLE_CHECK(indices.size() >= tensor.rank(), "rank {} does not broadcast to {}", tensor.rank(),
              indices.size());
  const std::size_t shift = indices.size() - tensor.rank();
  std::int64_t position = 0;
  for (std::size_t d = 0; d < tensor.rank(); ++d) {
    position = position * tensor.sizes[d] + (tensor.sizes[d] == 1 ? 0 : indices[shift + d]);
  }
  return static_cast<std::size_t>(position);
}

}  // namespace inkle::ops
