#include "passes/literals.h"

#include <bit>

#include "abi/half.h"
#include "base/bytes.h"

namespace inkle::passes {
namespace {

using abi::DType;
using ops::RefTensor;

void decode_element(RefTensor& t, std::size_t i, const std::byte* at) {
  const auto integer = [&](std::int64_t v) { t.set(i, v); };
  const auto real = [&](double v) { t.set(i, v); };
  switch (t.dtype) {
    case DType::boolean:
      return integer(load<std::uint8_t>(at) != 0 ? 1 : 0);
    case DType::u8:
      return integer(load<std::uint8_t>(at));
    case DType::i8:
      return integer(load<std::int8_t>(at));
    case DType::i16:
      return integer(load<std::int16_t>(at));
    case DType::i32:
      return integer(load<std::int32_t>(at));
    case DType::i64:
      return integer(load<std::int64_t>(at));
    case DType::f16:
      return real(abi::f16_to_float(load<std::uint16_t>(at)));
    case DType::bf16:
      return real(abi::bf16_to_float(load<std::uint16_t>(at)));
    case DType::f32:
      return real(load<float>(at));
    case DType::f64:
      return real(load<double>(at));
    default:
      return;
  }
}

void encode_element(const RefTensor& t, std::size_t i, std::byte* at) {
  switch (t.dtype) {
    case DType::boolean:
      return store(at, static_cast<std::uint8_t>(t.integer(i) != 0));
    case DType::u8:
      return store(at, static_cast<std::uint8_t>(t.integer(i)));
    case DType::i8:
      return store(at, static_cast<std::int8_t>(t.integer(i)));
    case DType::i16:
      return store(at, static_cast<std::int16_t>(t.integer(i)));
    case DType::i32:
      return store(at, static_cast<std::int32_t>(t.integer(i)));
    case DType::i64:
      return store(at, t.integer(i));
    case DType::f16:
      return store(at, abi::float_to_f16(static_cast<float>(t.real(i))));
    case DType::bf16:
      return store(at, abi::float_to_bf16(static_cast<float>(t.real(i))));
    case DType::f32:
      return store(at, static_cast<float>(t.real(i)));
    case DType::f64:
      return store(at, t.real(i));
    default:
      return;
  }
}

}  // namespace

RefTensor decode(const graph::ConstantData& data) {
  RefTensor tensor(data.dtype, data.sizes);
  const auto width = static_cast<std::size_t>(abi::size_of(data.dtype));
  for (std::size_t i = 0; i < tensor.count(); ++i) {
    decode_element(tensor, i, data.bytes->data() + i * width);
  }
  return tensor;
}

graph::ConstantData encode(const RefTensor& tensor) {
  const auto width = static_cast<std::size_t>(abi::size_of(tensor.dtype));
  std::vector<std::byte> bytes(tensor.count() * width);
  for (std::size_t i = 0; i < tensor.count(); ++i) {
    encode_element(tensor, i, bytes.data() + i * width);
  }
  return {.dtype = tensor.dtype,
          .sizes = tensor.sizes,
          .bytes = std::make_shared<const std::vector<std::byte>>(std::move(bytes))};
}

bool is_uniform(const RefTensor& tensor) {
  const std::size_t count = tensor.count();
  for (std::size_t i = 1; i < count; ++i) {
    const bool same = tensor.is_real() ? std::bit_cast<std::uint64_t>(tensor.real(i)) ==
                                             std::bit_cast<std::uint64_t>(tensor.real(0))
                                       : tensor.integer(i) == tensor.integer(0);
    if (!same) return false;
  }
  return count > 0;
}

}  // namespace inkle::passes
