// Tensors of torch as the runtime sees them: read by torch's C functions or its DLPack table, made
// by torch's own allocator. The interpreter's lock must be held.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>

#include "abi/tensor_view.h"
#include "python/dlpack.h"

namespace inkle::python {

namespace nb = nanobind;

// torch.Tensor's exchange table; looked up once. Throws Unsupported if torch is too old to have it.
[[nodiscard]] const dlpack::ExchangeApi& exchange_api();

// A torch.Tensor or an instance of a class derived from it.
[[nodiscard]] bool is_tensor(PyObject* object);

// The tensor's memory and geometry, valid as long as the tensor is alive and not resized. Throws
// python_error where torch has no strided memory to show.
[[nodiscard]] abi::TensorView borrow(PyObject* tensor);
// Where its first element lies, alone, which takes a third of the time.
[[nodiscard]] void* address_of(PyObject* tensor);
// Its two ways, for tests: through torch's exchange table, and past it (tensor_reader.h), where
// that is possible and a tensor of this dtype has been borrowed before.
[[nodiscard]] abi::TensorView borrow_by_exchange(PyObject* tensor);
[[nodiscard]] bool borrow_directly(PyObject* tensor, abi::TensorView& view);

// A new tensor, as torch.empty_strided makes it; on torch's current device of that kind. Throws
// python_error.
[[nodiscard]] nb::object empty_strided(abi::DType dtype, std::span<const std::int64_t> sizes,
                                       std::span<const std::int64_t> strides,
                                       abi::DeviceKind device);

// A tensor over memory that the caller keeps alive.
[[nodiscard]] nb::object wrap(const abi::TensorView& view);

// torch.dtype.
[[nodiscard]] nb::object torch_dtype(abi::DType dtype);

[[nodiscard]] nb::object integer_tuple(std::span<const std::int64_t> values);

}  // namespace inkle::python
