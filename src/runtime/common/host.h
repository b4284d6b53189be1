// What the caller of a plan provides: memory, output tensors and its own implementation of the ops
// that the plan leaves to it. One Host object serves one call of a plan.
#pragma once

#include <cstdint>
#include <span>

#include "abi/plan.h"
#include "abi/tensor_view.h"

namespace inkle::runtime::common {

// A tensor of the host, e.g. an AtenTensorHandle; null for memory that the host does not know. The
// host owns it and keeps it alive until the call has ended, with success or not.
using Handle = void*;

struct HostTensor {
  Handle handle = nullptr;
  abi::TensorView view;  // sizes and strides live until the call has ended
};

// One operand of an eager call.
struct EagerOperand {
  bool is_integer = false;
  std::int64_t integer = 0;
  // Tensors: the view as the plan declares the buffer; valid during the call.
  abi::TensorView view;
  std::int32_t argument = -1;  // number among the tensor arguments if it is one of them, as given
  Handle handle = nullptr;     // of an output or of an earlier eager result
};

// One result of the plan.
struct Output {
  abi::PlanOutput::Kind kind = abi::PlanOutput::Kind::none;
  std::int64_t integer = 0;    // kind integer
  std::int32_t argument = -1;  // tensor argument whose storage it is: kind argument, or a view
  Handle handle = nullptr;     // else: tensor of the host whose storage it is
  bool is_whole = false;       // exactly that argument or tensor, not another view of its storage
  abi::TensorView view;        // kinds buffer and argument; valid during Host::give
};

class Host {
 public:
  virtual ~Host() = default;

  // A new tensor; memory uninitialised, 64-byte aligned. Strides count elements and are dense in
  // some order of dimensions. Throws (std::bad_alloc or its own) when there is no memory.
  virtual HostTensor make_output(abi::DType dtype, std::span<const std::int64_t> sizes,
                                 std::span<const std::int64_t> strides) = 0;

  // The arguments are right and all outputs that need no step are made: steps run now, for as long
  // as they take.
  virtual void begin_steps() {}

  // Runs implementation number `target` and stores its results.
  virtual void call(std::uint32_t target, std::span<const EagerOperand> operands,
                    std::span<HostTensor> results) = 0;

  // Result number `position` of the plan; called once for each, in order, when all steps are done.
  virtual void give(std::uint32_t position, const Output& output) = 0;
};

}  // namespace inkle::runtime::common
