// A tensor that somebody else owns: what goes in and comes out of a plan.
#pragma once

#include <cstdint>

#include "abi/device.h"
#include "abi/dtype.h"

namespace inkle::abi {

// data points at element (0, ..., 0), any offset included. sizes and strides have `rank` entries,
// strides count elements; both outlive the view's use.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  Device device;
  std::int32_t rank = 0;
  const std::int64_t* sizes = nullptr;
  const std::int64_t* strides = nullptr;
};

}  // namespace inkle::abi
