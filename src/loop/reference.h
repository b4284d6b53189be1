// The meaning of a program, executed slowly and obviously: the oracle for schedules and generated
// code. Element semantics are loop/scalar.h's; sums are accumulated in long double and rounded
// once. Every access is checked against its buffer's sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "abi/tensor_view.h"
#include "loop/program.h"

namespace inkle::loop {

using ReferenceArgument = std::variant<abi::TensorView, std::int64_t>;

struct ReferenceOutput {
  ProgramOutput::Kind kind = ProgramOutput::Kind::buffer;
  DType dtype = DType::f32;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::byte* data = nullptr;                       // element (0, ..., 0)
  std::shared_ptr<std::vector<std::byte>> memory;  // null for a view of an input
  std::int64_t integer = 0;

  [[nodiscard]] abi::TensorView view() const;
};

// Fills `results` (already allocated) of a call to the host framework.
using ReferenceEager =
    std::function<void(const EagerCall& call, std::span<const ReferenceArgument> arguments,
                       std::span<const abi::TensorView> results)>;

// One argument for each of program.arguments, in order; inputs are mutated where the program says
// so. Symbols take their values from integer arguments and from the sizes of tensors. Wrong sizes,
// an index out of range and an integer division by zero throw UserError; a call to eager without
// `eager` throws Unsupported.
[[nodiscard]] std::vector<ReferenceOutput> run_reference(
    const Program& program, std::span<const ReferenceArgument> arguments,
    const ReferenceEager& eager = nullptr);

}  // namespace inkle::loop
