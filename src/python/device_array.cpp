#include "python/device_array.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "capi/weights.h"
#include "python/dlpack.h"
#include "runtime/common/errors.h"

namespace inkle::python {

namespace nb = nanobind;
using runtime::common::WrongArgument;

namespace {

constexpr std::intptr_t kDefaultStream = 1;  // as DLPack counts them
constexpr std::intptr_t kNoStream = -1;

std::vector<std::size_t> sizes_of(const abi::TensorView& view) {
  return {view.sizes, view.sizes + view.rank};
}

nb::capsule owner_of(std::shared_ptr<const void> kept) {
  return nb::capsule(new std::shared_ptr<const void>(std::move(kept)),
                     [](void* p) noexcept { delete static_cast<std::shared_ptr<const void>*>(p); });
}

nb::dlpack::dtype dtype_of(const abi::TensorView& view) {
  const dlpack::DataType type = dlpack::to_dlpack(view.dtype);
  return {type.code, type.bits, type.lanes};
}

std::string text_of(const DeviceArray& array) {
  const abi::TensorView& view = array.view();
  return fmt::format("DeviceArray({}[{}] on cuda:{})", abi::name_of(view.dtype),
                     fmt::join(sizes_of(view), ", "), view.device.index);
}

}  // namespace

nb::object array_of(const abi::TensorView& view, std::shared_ptr<const void> kept) {
  const auto rank = static_cast<std::size_t>(view.rank);
  const std::vector<std::size_t> sizes = sizes_of(view);
  const nb::capsule owner = owner_of(std::move(kept));
  // NumPy has no bf16 and no 8-bit floats: such tensors come as objects with DLPack.
  const bool is_numpy = view.dtype != abi::DType::bf16 && view.dtype != abi::DType::c32 &&
                        view.dtype < abi::DType::f8e4m3fn;
  if (is_numpy) {
    return nb::cast(
        nb::ndarray<nb::numpy>(view.data, rank, sizes.data(), owner, view.strides, dtype_of(view)));
  }
  return nb::cast(
      nb::ndarray<>(view.data, rank, sizes.data(), owner, view.strides, dtype_of(view)));
}

runtime::cuda::Stream stream_of(nb::handle stream) {
  nb::object number = nb::borrow(stream);
  if (nb::hasattr(stream, "cuda_stream")) {
    number = stream.attr("cuda_stream");
  } else if (nb::hasattr(stream, "__cuda_stream__")) {
    number = nb::object(stream.attr("__cuda_stream__")())[1];
  } else if (nb::hasattr(stream, "ptr")) {
    number = stream.attr("ptr");
  }
  std::uintptr_t at = 0;
  if (!nb::try_cast(number, at)) {
    throw WrongArgument("expected a CUDA stream: a number, or an object of torch or cupy");
  }
  return reinterpret_cast<runtime::cuda::Stream>(at);
}

void DeviceArray::wait() {
  const nb::gil_scoped_release released;
  const std::lock_guard lock(all_->mutex);
  all_->results.wait();
}

nb::object DeviceArray::dlpack(nb::handle stream, const nb::kwargs& more) {
  const auto own = reinterpret_cast<std::intptr_t>(all_->results.stream());
  std::intptr_t asked = 0;
  const bool is_given = !stream.is_none() && nb::try_cast(stream, asked);
  const bool is_own = is_given && asked == (own == 0 ? kDefaultStream : own);
  if (!is_own && asked != kNoStream) wait();
  const abi::TensorView& tensor = view();
  const nb::object array = nb::cast(nb::ndarray<nb::array_api>(
      tensor.data, static_cast<std::size_t>(tensor.rank), sizes_of(tensor).data(), owner_of(all_),
      tensor.strides, dtype_of(tensor), nb::device::cuda::value, tensor.device.index));
  return array.attr("__dlpack__")(**more);
}

nb::object DeviceArray::numpy() {
  wait();
  const abi::TensorView from = view();
  const auto rank = static_cast<std::size_t>(from.rank);
  const std::int64_t bytes = capi::span_bytes(from.dtype, {from.sizes, rank}, {from.strides, rank});
  auto copy =
      std::make_shared<runtime::cpu::Block>(std::max<std::int64_t>(bytes, 1), "a copy of a result");
  {
    const nb::gil_scoped_release released;
    all_->results.read(copy->data(), from.data, bytes);
  }
  abi::TensorView to = from;
  to.data = copy->data();
  return array_of(to, std::move(copy));
}

void bind_device_array(nb::module_& m) {
  nb::class_<DeviceArray>(
      m, "DeviceArray",
      "A result on a GPU: torch.from_dlpack, cupy.from_dlpack and the like take "
      "it where it lies; numpy() is a copy on the host.")
      .def("__dlpack__", &DeviceArray::dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("more"))
      .def(
          "__dlpack_device__",
          [](const DeviceArray& a) { return nb::make_tuple(dlpack::kCuda, a.view().device.index); })
      .def("numpy", &DeviceArray::numpy)
      .def(
          "__array__",
          [](DeviceArray& a, nb::handle dtype, nb::handle copy) -> nb::object {
            nb::object made = a.numpy();
            if (copy.is_valid() && !copy.is_none() && !nb::cast<bool>(copy)) {
              throw nb::value_error("a result on a GPU becomes an array by a copy alone");
            }
            return dtype.is_none() ? made : nb::object(made.attr("astype")(dtype));
          },
          nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none())
      .def_prop_ro("shape",
                   [](const DeviceArray& a) { return nb::tuple(nb::cast(sizes_of(a.view()))); })
      .def_prop_ro("dtype",
                   [](const DeviceArray& a) { return std::string(abi::name_of(a.view().dtype)); })
      .def_prop_ro(
          "device",
          [](const DeviceArray& a) { return fmt::format("cuda:{}", a.view().device.index); })
      .def("__repr__", text_of);
}

}  // namespace inkle::python
