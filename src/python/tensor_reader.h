// The short way to read a tensor: torch's C functions over tensors (those that its compiled
// packages call), which want a handle. A handle is the address of a pointer to torch's
// implementation of a tensor, and a Python tensor holds such a pointer; where, is looked for once
// and checked, since no header says so. Torch's DLPack table, the long way, takes 37 ns a tensor,
// this 12.
#pragma once

#include <nanobind/nanobind.h>

#include "abi/tensor_view.h"

namespace inkle::python {

class TensorReader {
 public:
  // Looks for functions and place; the interpreter's lock must be held. Never throws: where
  // anything is not as expected, read() reads nothing.
  TensorReader() noexcept;

  // False where the long way must be gone: other types than torch.Tensor and Parameter, layouts
  // that are not strided, and what this reader has not learned().
  [[nodiscard]] bool read(PyObject* tensor, abi::TensorView& view) const noexcept;
  // Of a strided tensor only where it lies.
  [[nodiscard]] bool read_address(PyObject* tensor, void*& data) const noexcept;

  // `view` is what the long way has found: from now on tensors of its dtype and kind of device are
  // read here.
  void learn(PyObject* tensor, const abi::TensorView& view) noexcept;

 private:
  // Codes of torch that are learned: dtype below, device above.
  static constexpr int kDTypes = 64;
  static constexpr int kDevices = 2;
  struct Meaning {
    bool is_known = false;
    abi::DType dtype = abi::DType::opaque;
    abi::DeviceKind device = abi::DeviceKind::cpu;
  };
  struct Functions {
    int (*data)(void*, void**);
    int (*rank)(void*, std::int64_t*);
    int (*sizes)(void*, std::int64_t**);
    int (*strides)(void*, std::int64_t**);
    int (*dtype)(void*, std::int32_t*);
    int (*device_kind)(void*, std::int32_t*);
    int (*device_index)(void*, std::int32_t*);
    int (*layout)(void*, std::int32_t*);
  };

  bool find_functions();
  bool find_place();
  // Null where the object has none.
  [[nodiscard]] void* handle_of(PyObject* tensor) const noexcept;
  // Of dtype and device in `meanings_`; negative: none.
  [[nodiscard]] int place_of_meaning(void* handle) const noexcept;

  Functions functions_{};
  PyTypeObject* tensor_ = nullptr;
  PyTypeObject* parameter_ = nullptr;
  std::size_t offset_ = 0;  // of the pointer in a Python tensor; 0: unknown
  std::int32_t strided_ = 0;
  Meaning meanings_[kDTypes * kDevices];
};

}  // namespace inkle::python
