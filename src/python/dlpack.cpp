#include "python/dlpack.h"

#include <array>

namespace inkle::python::dlpack {
namespace {

struct Row {
  abi::DType ours;
  std::uint8_t code;
  std::uint8_t bits;
};

// Codes: 0 signed, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool, 10 to 13 float8 kinds.
constexpr std::array kRows = {
    Row{abi::DType::f32, 2, 32},      Row{abi::DType::bf16, 4, 16},
    Row{abi::DType::i64, 0, 64},      Row{abi::DType::boolean, 6, 8},
    Row{abi::DType::f16, 2, 16},      Row{abi::DType::f64, 2, 64},
    Row{abi::DType::i32, 0, 32},      Row{abi::DType::u8, 1, 8},
    Row{abi::DType::i8, 0, 8},        Row{abi::DType::i16, 0, 16},
    Row{abi::DType::u16, 1, 16},      Row{abi::DType::u32, 1, 32},
    Row{abi::DType::u64, 1, 64},      Row{abi::DType::c32, 5, 32},
    Row{abi::DType::c64, 5, 64},      Row{abi::DType::c128, 5, 128},
    Row{abi::DType::f8e4m3fn, 10, 8}, Row{abi::DType::f8e4m3fnuz, 11, 8},
    Row{abi::DType::f8e5m2, 12, 8},   Row{abi::DType::f8e5m2fnuz, 13, 8},
};

}  // namespace

abi::DType from_dlpack(DataType dtype) {
  if (dtype.lanes != 1) return abi::DType::opaque;
  for (const Row& row : kRows) {
    if (row.code == dtype.code && row.bits == dtype.bits) return row.ours;
  }
  return abi::DType::opaque;
}

DataType to_dlpack(abi::DType dtype) {
  for (const Row& row : kRows) {
    if (row.ours == dtype) return {row.code, row.bits, 1};
  }
  return {1, 8, 1};
}

}  // namespace inkle::python::dlpack
