#include "python/torch_tensor.h"

#include <array>
#include <memory>
#include <vector>

#include "base/error.h"
#include "python/made_once.h"
#include "python/tensor_reader.h"

namespace inkle::python {
namespace {

struct DeleteManaged {
  void operator()(dlpack::ManagedTensor* t) const {
    if (t != nullptr && t->deleter != nullptr) t->deleter(t);
  }
};
using Managed = std::unique_ptr<dlpack::ManagedTensor, DeleteManaged>;

// A tensor over memory that something else keeps alive, with sizes and strides of its own.
struct Wrapper {
  dlpack::ManagedTensor managed;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
};

// torch's names of dtypes, in the order of abi::DType.
constexpr std::array kNames = {
    "bool",       "uint8",         "int8",        "int16",           "int32",
    "int64",      "float16",       "bfloat16",    "float32",         "float64",
    "uint16",     "uint32",        "uint64",      "complex32",       "complex64",
    "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
};
static_assert(kNames.size() == static_cast<std::size_t>(abi::DType::opaque));

// What is looked up in torch once.
struct Torch {
  PyTypeObject* tensor = nullptr;
  PyTypeObject* parameter = nullptr;
  // By device kind; null where torch has no such short way.
  std::array<PyObject*, 2> empty_strided{};
  PyObject* any_empty_strided = nullptr;
  std::array<PyObject*, 2> device_names{};
  std::array<PyObject*, kNames.size()> dtypes{};
};

const Torch& torch() {
  static constinit MadeOnce<Torch> found;
  return found.get([] {
    auto t = std::make_unique<Torch>();
    const nb::module_ m = nb::module_::import_("torch");
    t->tensor = reinterpret_cast<PyTypeObject*>(nb::object(m.attr("Tensor")).release().ptr());
    t->parameter =
        reinterpret_cast<PyTypeObject*>(nb::object(m.attr("nn").attr("Parameter")).release().ptr());
    // What generated wrappers of torch itself call: without the parsing of keywords.
    const nb::object guards = m.attr("_C").attr("_dynamo").attr("guards");
    const auto short_way = [&](const char* name) {
      return nb::hasattr(guards, name) ? nb::object(guards.attr(name)).release().ptr() : nullptr;
    };
    t->empty_strided = {short_way("_empty_strided_cpu"), short_way("_empty_strided_cuda")};
    t->any_empty_strided = nb::object(m.attr("empty_strided")).release().ptr();
    t->device_names = {nb::str("cpu").release().ptr(), nb::str("cuda").release().ptr()};
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      const nb::object dtype = nb::getattr(m, kNames[i], nb::none());
      t->dtypes[i] = nb::object(dtype).release().ptr();
    }
    return t;
  });
}

TensorReader& reader() {
  static constinit MadeOnce<TensorReader> made;
  return made.get([] { return std::make_unique<TensorReader>(); });
}

}  // namespace

const dlpack::ExchangeApi& exchange_api() {
  static constinit MadeOnce<const dlpack::ExchangeApi*> found;
  return *found.get([] {
    const nb::object type = nb::module_::import_("torch").attr("Tensor");
    if (!nb::hasattr(type, "__dlpack_c_exchange_api__")) {
      unsupported("this torch has no DLPack exchange table; torch 2.11 or later is needed");
    }
    const nb::object capsule = type.attr("__dlpack_c_exchange_api__");
    void* pointer = PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api");
    if (pointer == nullptr) throw nb::python_error();
    const auto* table = static_cast<const dlpack::ExchangeApi*>(pointer);
    if (table->header.version.major != 1) {
      unsupported("torch's DLPack exchange table is of version {}.{}; 1.x is needed",
                  table->header.version.major, table->header.version.minor);
    }
    return std::make_unique<const dlpack::ExchangeApi*>(table);
  });
}

bool is_tensor(PyObject* object) {
  const Torch& t = torch();
  PyTypeObject* const type = Py_TYPE(object);
  return type == t.tensor || type == t.parameter || PyType_IsSubtype(type, t.tensor) != 0;
}

abi::TensorView borrow(PyObject* object) {
  abi::TensorView view;
  if (reader().read(object, view)) return view;
  view = borrow_by_exchange(object);
  reader().learn(object, view);
  return view;
}

void* address_of(PyObject* object) {
  void* data = nullptr;
  return reader().read_address(object, data) ? data : borrow(object).data;
}

bool borrow_directly(PyObject* object, abi::TensorView& view) {
  return reader().read(object, view);
}

abi::TensorView borrow_by_exchange(PyObject* object) {
  dlpack::Tensor t{};
  if (exchange_api().tensor_from_object(object, &t) != 0) throw nb::python_error();
  abi::TensorView view;
  view.data = static_cast<std::byte*>(t.data) + t.byte_offset;
  view.dtype = dlpack::from_dlpack(t.dtype);
  view.device = {t.device.type == dlpack::kCuda ? abi::DeviceKind::cuda : abi::DeviceKind::cpu,
                 t.device.id};
  view.rank = t.rank;
  view.sizes = t.sizes;
  view.strides = t.strides;
  return view;
}

nb::object integer_tuple(std::span<const std::int64_t> values) {
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
  if (!tuple.is_valid()) throw nb::python_error();
  for (std::size_t i = 0; i < values.size(); ++i) {
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(values[i]));
  }
  return tuple;
}

nb::object torch_dtype(abi::DType dtype) {
  return nb::borrow(torch().dtypes[static_cast<std::size_t>(dtype)]);
}

nb::object empty_strided(abi::DType dtype, std::span<const std::int64_t> sizes,
                         std::span<const std::int64_t> strides, abi::DeviceKind device) {
  const Torch& t = torch();
  INKLE_CHECK(dtype != abi::DType::opaque, "a tensor of unknown dtype");
  const nb::object size_tuple = integer_tuple(sizes);
  const nb::object stride_tuple = integer_tuple(strides);
  PyObject* const type = t.dtypes[static_cast<std::size_t>(dtype)];
  const auto kind = static_cast<std::size_t>(device);
  const std::array arguments = {size_tuple.ptr(), stride_tuple.ptr(), type, t.device_names[kind]};
  PyObject* made = nullptr;
  if (t.empty_strided[kind] == nullptr) {
    const nb::object names = nb::make_tuple("dtype", "device");
    made = PyObject_Vectorcall(t.any_empty_strided, arguments.data(), 2, names.ptr());
  } else {
    made = PyObject_Vectorcall(t.empty_strided[kind], arguments.data(), 3, nullptr);
  }
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

nb::object wrap(const abi::TensorView& view) {
  auto wrapper = std::make_unique<Wrapper>();
  wrapper->sizes.assign(view.sizes, view.sizes + view.rank);
  wrapper->strides.assign(view.strides, view.strides + view.rank);
  dlpack::ManagedTensor& m = wrapper->managed;
  m.version = {1, 0};
  m.context = wrapper.get();
  m.deleter = [](dlpack::ManagedTensor* self) { delete static_cast<Wrapper*>(self->context); };
  m.flags = 0;
  m.tensor = {
      view.data,
      {view.device.kind == abi::DeviceKind::cuda ? dlpack::kCuda : dlpack::kCpu, view.device.index},
      view.rank,
      dlpack::to_dlpack(view.dtype),
      wrapper->sizes.data(),
      wrapper->strides.data(),
      0};
  Managed managed(&wrapper.release()->managed);
  void* object = nullptr;
  if (exchange_api().managed_to_object(managed.release(), &object) != 0) throw nb::python_error();
  return nb::steal(static_cast<PyObject*>(object));
}

}  // namespace inkle::python
