#include "abi/dtype.h"

#include <array>
#include <utility>

namespace inkle::abi {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::int64_t bytes;
};

constexpr std::array kRows = {
    Row{DType::boolean, "bool", 1},
    Row{DType::u8, "u8", 1},
    Row{DType::i8, "i8", 1},
    Row{DType::i16, "i16", 2},
    Row{DType::i32, "i32", 4},
    Row{DType::i64, "i64", 8},
    Row{DType::f16, "f16", 2},
    Row{DType::bf16, "bf16", 2},
    Row{DType::f32, "f32", 4},
    Row{DType::f64, "f64", 8},
    Row{DType::u16, "u16", 2},
    Row{DType::u32, "u32", 4},
    Row{DType::u64, "u64", 8},
    Row{DType::c32, "c32", 4},
    Row{DType::c64, "c64", 8},
    Row{DType::c128, "c128", 16},
    Row{DType::f8e4m3fn, "f8e4m3fn", 1},
    Row{DType::f8e5m2, "f8e5m2", 1},
    Row{DType::f8e4m3fnuz, "f8e4m3fnuz", 1},
    Row{DType::f8e5m2fnuz, "f8e5m2fnuz", 1},
    Row{DType::opaque, "opaque", 1},
};

constexpr bool rows_in_order() {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<std::size_t>(kRows[i].dtype) != i) return false;
  }
  return true;
}
static_assert(rows_in_order());

}  // namespace

std::int64_t size_of(DType dtype) { return kRows[static_cast<std::size_t>(dtype)].bytes; }

std::string_view name_of(DType dtype) { return kRows[static_cast<std::size_t>(dtype)].name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace inkle::abi
