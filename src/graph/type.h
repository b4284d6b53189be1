// The type of a graph value: dtype, device, symbolic sizes and, where they matter, strides.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "abi/device.h"
#include "abi/dtype.h"
#include "sym/expr.h"

namespace inkle::graph {

using abi::Device;
using abi::DType;
using sym::Expr;
using Sizes = std::vector<Expr>;

struct Type {
  DType dtype = DType::f32;
  Device device;
  Sizes sizes;
  // Strides in elements. Absent: free, the layout step chooses. Inputs, outputs and operands of
  // calls to eager have them.
  std::optional<Sizes> strides;

  [[nodiscard]] std::size_t rank() const { return sizes.size(); }
  friend bool operator==(const Type&, const Type&) = default;
};

// Strides of a dense row-major tensor. `context` serves rank 0.
[[nodiscard]] Sizes contiguous_strides(sym::Context& context, const Sizes& sizes);
// True if provably row-major dense (strides of dimensions of size 1 do not matter).
[[nodiscard]] bool is_contiguous(const Type& type);
[[nodiscard]] Expr element_count(sym::Context& context, const Type& type);
// "f32[s0,768]"; with strides that are not row-major "f32[s0,768]{1,s0}"; on a device other than
// cpu "f32[..]@cuda:0".
[[nodiscard]] std::string to_string(const Type& type);
// The same, but strides that are set are printed also when they are row-major.
[[nodiscard]] std::string to_string(const Type& type, bool with_dense_strides);
// "cpu", "cuda:0".
[[nodiscard]] std::string to_string(const Device& device);

}  // namespace inkle::graph
