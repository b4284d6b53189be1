#include "cli/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "abi/half.h"
#include "base/bytes.h"
#include "base/error.h"

namespace inkle::cli {
namespace {

using abi::DType;

std::optional<double> element(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::boolean:
    case DType::u8:
      return load<std::uint8_t>(at);
    case DType::i8:
      return load<std::int8_t>(at);
    case DType::i16:
      return load<std::int16_t>(at);
    case DType::i32:
      return load<std::int32_t>(at);
    case DType::i64:
      return static_cast<double>(load<std::int64_t>(at));
    case DType::f16:
      return abi::f16_to_float(load<std::uint16_t>(at));
    case DType::bf16:
      return abi::bf16_to_float(load<std::uint16_t>(at));
    case DType::f32:
      return load<float>(at);
    case DType::f64:
      return load<double>(at);
    case DType::u16:
    case DType::u32:
    case DType::u64:
    case DType::c32:
    case DType::c64:
    case DType::c128:
    case DType::f8e4m3fn:
    case DType::f8e5m2:
    case DType::f8e4m3fnuz:
    case DType::f8e5m2fnuz:
    case DType::opaque:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::string summary(const frontend::pt2::TensorData& tensor) {
  std::string text =
      fmt::format("{}[{}]", abi::name_of(tensor.dtype), fmt::join(tensor.sizes, ","));
  const std::int64_t count = tensor.element_count();
  if (count == 0 || !element(tensor.dtype, tensor.data)) return text;
  double sum = 0;
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  std::int64_t nans = 0;
  const std::int64_t size = abi::size_of(tensor.dtype);
  std::string first;
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = *element(tensor.dtype, tensor.data + i * size);
    if (i < 6) first += fmt::format(" {:.6g}", value);
    if (std::isnan(value)) {
      ++nans;
      continue;
    }
    sum += value;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (count > nans) {
    text += fmt::format(" mean {:.6g} min {:.6g} max {:.6g}",
                        sum / static_cast<double>(count - nans), low, high);
  }
  if (nans > 0) text += fmt::format(" NaN {}", nans);
  return text + fmt::format(" first{}{}", first, count > 6 ? " ..." : "");
}

std::string difference(const frontend::pt2::TensorData& found,
                       const frontend::pt2::TensorData& wanted, double tolerance) {
  if (found.dtype != wanted.dtype || found.sizes != wanted.sizes) {
    return fmt::format("is {}, not {}", summary(found), summary(wanted));
  }
  const frontend::pt2::TensorData a = frontend::pt2::rearranged(found.view());
  const frontend::pt2::TensorData b = frontend::pt2::rearranged(wanted.view());
  const std::int64_t count = b.element_count(), size = abi::size_of(b.dtype);
  const auto at = [&](const frontend::pt2::TensorData& tensor, std::int64_t i) {
    const auto value = element(tensor.dtype, tensor.data + i * size);
    if (!value) user_error("elements of {} are not compared", abi::name_of(tensor.dtype));
    return *value;
  };
  double scale = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::isfinite(at(b, i))) scale = std::max(scale, std::abs(at(b, i)));
  }
  std::int64_t wrong = 0, first = -1;
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = at(a, i), y = at(b, i);
    const bool is_same = x == y || (std::isnan(x) && std::isnan(y));
    if (is_same || std::abs(x - y) <= tolerance * scale) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return "";
  return fmt::format("{} of {} elements differ; element {} is {:.9g}, not {:.9g}", wrong, count,
                     first, at(a, first), at(b, first));
}

}  // namespace inkle::cli
