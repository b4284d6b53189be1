// Element types, as compiler, plans and runtime share them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace inkle::abi {

// The types up to f64 are computed by generated code; those after it are only carried (a value of
// such a type may pass through calls to eager).
enum class DType : std::uint8_t {
  boolean,
  u8,
  i8,
  i16,
  i32,
  i64,
  f16,
  bf16,
  f32,
  f64,
  u16,
  u32,
  u64,
  c32,
  c64,
  c128,
  f8e4m3fn,
  f8e5m2,
  f8e4m3fnuz,
  f8e5m2fnuz,
  opaque,
};

// Bytes of one element.
[[nodiscard]] std::int64_t size_of(DType dtype);
// "bool", "u8", ... "f64", "c64".
[[nodiscard]] std::string_view name_of(DType dtype);
[[nodiscard]] std::optional<DType> dtype_from_name(std::string_view name);

[[nodiscard]] constexpr bool is_computable(DType d) { return d <= DType::f64; }
[[nodiscard]] constexpr bool is_float(DType d) { return d >= DType::f16 && d <= DType::f64; }
[[nodiscard]] constexpr bool is_reduced_float(DType d) {
  return d == DType::f16 || d == DType::bf16;
}
// Integers of a computable type, bool excluded.
[[nodiscard]] constexpr bool is_integer(DType d) { return d >= DType::u8 && d <= DType::i64; }
// The type in which arithmetic on `d` is done: f32 for f16 and bf16, else d itself.
[[nodiscard]] constexpr DType compute_type(DType d) { return is_reduced_float(d) ? DType::f32 : d; }

}  // namespace inkle::abi
