#include "python/tensor_reader.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace inkle::python {

namespace nb = nanobind;

namespace {

template <class F>
bool find(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(library, name));
  return function != nullptr;
}

// Places, in bytes, where the object holds the pointer that torch says it holds.
std::vector<std::size_t> places_of_pointer(const nb::object& tensor) {
  const auto wanted = nb::cast<std::uintptr_t>(tensor.attr("_cdata"));
  const auto size = static_cast<std::size_t>(Py_TYPE(tensor.ptr())->tp_basicsize);
  std::vector<std::size_t> places;
  for (std::size_t at = sizeof(PyObject); at + sizeof(void*) <= size; at += sizeof(void*)) {
    std::uintptr_t word = 0;
    std::memcpy(&word, reinterpret_cast<const std::byte*>(tensor.ptr()) + at, sizeof word);
    if (word == wanted) places.push_back(at);
  }
  return places;
}

}  // namespace

TensorReader::TensorReader() noexcept {
  try {
    if (!find_functions() || !find_place()) offset_ = 0;
  } catch (const std::exception&) {
    offset_ = 0;
  }
}

bool TensorReader::find_functions() {
  const nb::object package = nb::module_::import_("torch").attr("__path__")[nb::int_(0)];
  const std::string file = nb::cast<std::string>(nb::str(package)) + "/lib/libtorch_cpu.so";
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return false;
  std::int32_t (*strided)() = nullptr;
  const bool are_there = find(library, "aoti_torch_get_data_ptr", functions_.data) &&
                         find(library, "aoti_torch_get_dim", functions_.rank) &&
                         find(library, "aoti_torch_get_sizes", functions_.sizes) &&
                         find(library, "aoti_torch_get_strides", functions_.strides) &&
                         find(library, "aoti_torch_get_dtype", functions_.dtype) &&
                         find(library, "aoti_torch_get_device_type", functions_.device_kind) &&
                         find(library, "aoti_torch_get_device_index", functions_.device_index) &&
                         find(library, "aoti_torch_get_layout", functions_.layout) &&
                         find(library, "aoti_torch_layout_strided", strided);
  if (are_there) strided_ = strided();
  return are_there;
}

bool TensorReader::find_place() {
  const nb::module_ torch = nb::module_::import_("torch");
  const nb::object type = torch.attr("Tensor");
  const nb::object parameter = torch.attr("nn").attr("Parameter");
  const nb::object first = torch.attr("empty")(3, nb::arg("device") = "cpu");
  const nb::object view = first[nb::slice(nb::int_(1), nb::none(), nb::none())];
  const std::vector<nb::object> tensors = {first, view, parameter(first)};
  for (const nb::object& tensor : tensors) {
    const auto places = places_of_pointer(tensor);
    if (places.size() != 1 || (offset_ != 0 && places[0] != offset_)) return false;
    offset_ = places[0];
  }
  // Types live as long as torch, which is never unloaded.
  tensor_ = reinterpret_cast<PyTypeObject*>(type.ptr());
  parameter_ = reinterpret_cast<PyTypeObject*>(parameter.ptr());
  return true;
}

void* TensorReader::handle_of(PyObject* tensor) const noexcept {
  PyTypeObject* const type = Py_TYPE(tensor);
  if (offset_ == 0 || (type != tensor_ && type != parameter_)) return nullptr;
  void* const handle = reinterpret_cast<std::byte*>(tensor) + offset_;
  return *static_cast<void**>(handle) == nullptr ? nullptr : handle;
}

int TensorReader::place_of_meaning(void* handle) const noexcept {
  std::int32_t dtype = -1, device = -1, layout = -1;
  if (functions_.layout(handle, &layout) != 0 || layout != strided_) return -1;
  if (functions_.dtype(handle, &dtype) != 0 || functions_.device_kind(handle, &device) != 0) {
    return -1;
  }
  const bool is_in_range = dtype >= 0 && dtype < kDTypes && device >= 0 && device < kDevices;
  return is_in_range ? device * kDTypes + dtype : -1;
}

bool TensorReader::read(PyObject* tensor, abi::TensorView& view) const noexcept {
  void* const handle = handle_of(tensor);
  if (handle == nullptr) return false;
  const int place = place_of_meaning(handle);
  if (place < 0 || !meanings_[place].is_known) return false;
  void* data = nullptr;
  std::int64_t rank = 0;
  std::int64_t *sizes = nullptr, *strides = nullptr;
  std::int32_t index = 0;
  if (functions_.data(handle, &data) != 0 || functions_.rank(handle, &rank) != 0 ||
      functions_.sizes(handle, &sizes) != 0 || functions_.strides(handle, &strides) != 0 ||
      functions_.device_index(handle, &index) != 0) {
    return false;
  }
  view.data = data;
  view.dtype = meanings_[place].dtype;
  const abi::DeviceKind kind = meanings_[place].device;
  view.device = {kind, kind == abi::DeviceKind::cpu ? 0 : index};  // torch says -1 of the processor
  view.rank = static_cast<std::int32_t>(rank);
  view.sizes = sizes;
  view.strides = strides;
  return true;
}

bool TensorReader::read_address(PyObject* tensor, void*& data) const noexcept {
  void* const handle = handle_of(tensor);
  return handle != nullptr && functions_.data(handle, &data) == 0;
}

void TensorReader::learn(PyObject* tensor, const abi::TensorView& view) noexcept {
  void* const handle = handle_of(tensor);
  if (handle == nullptr) return;
  const int place = place_of_meaning(handle);
  if (place < 0) return;
  meanings_[place] = {true, view.dtype, view.device.kind};
}

}  // namespace inkle::python
