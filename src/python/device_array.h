// Results that lie on a GPU, for Python: objects with DLPack.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <mutex>

#include "capi/results.h"

namespace inkle::python {

// Of one call; shared by its arrays.
struct DeviceResults {
  capi::Results results;
  std::mutex mutex;  // of waiting
};

// One tensor of them.
class DeviceArray {
 public:
  DeviceArray(std::shared_ptr<DeviceResults> all, std::size_t number)
      : all_(std::move(all)), number_(number) {}

  [[nodiscard]] const abi::TensorView& view() const { return all_->results.values()[number_].view; }
  // For a consumer that goes on on `stream`, as DLPack counts them (1: the default stream, -1: it
  // cares for itself); none: any. Waits where that is not the call's own.
  [[nodiscard]] nanobind::object dlpack(nanobind::handle stream, const nanobind::kwargs& more);
  // A copy in memory of the host.
  [[nodiscard]] nanobind::object numpy();

 private:
  void wait();

  std::shared_ptr<DeviceResults> all_;
  std::size_t number_;
};

// Adds the class `DeviceArray`.
void bind_device_array(nanobind::module_& m);

// A stream as Python has it: an integer, an object of torch or cupy, or one with __cuda_stream__.
[[nodiscard]] runtime::cuda::Stream stream_of(nanobind::handle stream);

// An array that keeps what is given for as long as it lives; NumPy's where that knows the dtype.
[[nodiscard]] nanobind::object array_of(const abi::TensorView& view,
                                        std::shared_ptr<const void> kept);

}  // namespace inkle::python
