#include "python/torch_host.h"

#include <cstring>
#include <new>
#include <span>

#include "base/error.h"

namespace inkle::python {

using runtime::cpu::EagerOperand;
using runtime::cpu::Handle;
using runtime::cpu::HostTensor;
using runtime::cpu::Output;

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
  Managed owner;  // null: borrowed memory
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
};

Managed wrap(const abi::TensorView& view, Managed owner) {
  auto wrapper = std::make_unique<Wrapper>();
  wrapper->sizes.assign(view.sizes, view.sizes + view.rank);
  wrapper->strides.assign(view.strides, view.strides + view.rank);
  wrapper->owner = std::move(owner);
  dlpack::ManagedTensor& m = wrapper->managed;
  m.version = {1, 0};
  m.context = wrapper.get();
  m.deleter = [](dlpack::ManagedTensor* self) { delete static_cast<Wrapper*>(self->context); };
  m.flags = 0;
  m.tensor = {view.data,
              {dlpack::kCpu, 0},
              view.rank,
              dlpack::to_dlpack(view.dtype),
              wrapper->sizes.data(),
              wrapper->strides.data(),
              0};
  return Managed(&wrapper.release()->managed);
}

nb::object to_object(Managed tensor) {
  void* object = nullptr;
  if (exchange_api().managed_to_object(tensor.release(), &object) != 0) throw nb::python_error();
  return nb::steal(static_cast<PyObject*>(object));
}

void set_allocation_error(void* context, const char*, const char* message) {
  *static_cast<std::string*>(context) = message;
}

abi::TensorView borrow(PyObject* object) {
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

std::int64_t span_bytes(const abi::TensorView& v) {
  std::int64_t last = 0;
  for (std::int32_t d = 0; d < v.rank; ++d) {
    if (v.sizes[d] == 0) return 0;
    last += (v.sizes[d] - 1) * v.strides[d];
  }
  return (last + 1) * abi::size_of(v.dtype);
}

// Tensor._version without the way through attributes and their look-up.
struct VersionGetter {
  getter get = nullptr;
  void* closure = nullptr;
};

const VersionGetter& version_getter() {
  static const VersionGetter found = [] {
    const nb::object base = nb::module_::import_("torch").attr("_C").attr("TensorBase");
    const nb::object descriptor = base.attr("__dict__")["_version"];
    if (Py_TYPE(descriptor.ptr()) != &PyGetSetDescr_Type) return VersionGetter{};
    const PyGetSetDef* d = reinterpret_cast<PyGetSetDescrObject*>(descriptor.ptr())->d_getset;
    return VersionGetter{d->get, d->closure};
  }();
  return found;
}

}  // namespace

const dlpack::ExchangeApi& exchange_api() {
  static const dlpack::ExchangeApi* api = [] {
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
    return table;
  }();
  return *api;
}

// State of one call. Results hold either memory from torch's allocator, not yet a Python object,
// or an object that eager made.
class TorchHost final : public runtime::cpu::Host {
 public:
  TorchHost(TorchCallable& callable, std::span<PyObject* const> tensors, std::size_t output_count)
      : callable_(callable), tensors_(tensors), outputs_(output_count) {}

  HostTensor make_output(abi::DType dtype, std::span<const std::int64_t> sizes,
                         std::span<const std::int64_t> strides) override {
    Slot& slot = slots_.emplace_back();
    slot.sizes.assign(sizes.begin(), sizes.end());
    slot.strides.assign(strides.begin(), strides.end());
    std::int64_t count = 1;
    for (const std::int64_t size : sizes) count *= size;
    dlpack::Tensor prototype{};
    prototype.device = {dlpack::kCpu, 0};
    prototype.rank = 1;
    prototype.dtype = dlpack::to_dlpack(dtype);
    prototype.sizes = &count;
    std::int64_t one = 1;
    prototype.strides = &one;
    dlpack::ManagedTensor* made = nullptr;
    std::string error;
    if (exchange_api().allocate(&prototype, &made, &error, set_allocation_error) != 0) {
      user_error("out of memory for an output of {} elements of {}: {}", count, abi::name_of(dtype),
                 error);
    }
    slot.memory.reset(made);
    slot.view = {static_cast<std::byte*>(made->tensor.data) + made->tensor.byte_offset,
                 dtype,
                 {},
                 static_cast<std::int32_t>(sizes.size()),
                 slot.sizes.data(),
                 slot.strides.data()};
    return {&slot, slot.view};
  }

  void call(std::uint32_t target, std::span<const EagerOperand> operands,
            std::span<HostTensor> results) override {
    const nb::gil_scoped_acquire gil;
    nb::list arguments;
    for (const EagerOperand& o : operands) {
      if (o.is_integer) {
        arguments.append(nb::int_(o.integer));
      } else if (o.argument >= 0) {
        arguments.append(nb::borrow(tensors_[static_cast<std::size_t>(o.argument)]));
      } else if (o.handle != nullptr) {
        arguments.append(object_of(*static_cast<Slot*>(o.handle)));
      } else {
        arguments.append(to_object(wrap(o.view, nullptr)));
      }
    }
    const nb::object made = callable_.targets_[target](*arguments);
    const auto list = nb::cast<nb::sequence>(made);
    if (nb::len(list) != results.size()) {
      throw InternalError("an eager op returned another number of results than when traced");
    }
    for (std::size_t r = 0; r < results.size(); ++r) {
      nb::object tensor = list[r];
      abi::TensorView view = borrow(tensor.ptr());
      for (const EagerOperand& o : operands) {
        // What aliases working memory must outlive it.
        const auto* begin = static_cast<const std::byte*>(o.view.data);
        const auto* at = static_cast<const std::byte*>(view.data);
        if (o.is_integer || o.argument >= 0 || o.handle != nullptr || begin == nullptr) continue;
        if (at < begin || at >= begin + span_bytes(o.view)) continue;
        tensor = tensor.attr("clone")();
        view = borrow(tensor.ptr());
        break;
      }
      Slot& slot = slots_.emplace_back();
      slot.view = view;
      slot.object = std::move(tensor);
      results[r] = {&slot, view};
    }
  }

  void give(std::uint32_t position, const Output& output) override {
    const nb::gil_scoped_acquire gil;
    outputs_[position] = make(output);
  }

  nb::tuple take() {
    nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(outputs_.size())));
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), outputs_[i].release().ptr());
    }
    return nb::cast<nb::tuple>(tuple);
  }

 private:
  struct Slot {
    Managed memory;
    nb::object object;
    abi::TensorView view;
    std::vector<std::int64_t> sizes, strides;
  };

  nb::object object_of(Slot& slot) {
    if (!slot.object.is_valid()) slot.object = to_object(wrap(slot.view, std::move(slot.memory)));
    return slot.object;
  }

  nb::object make(const Output& output) {
    using Kind = abi::PlanOutput::Kind;
    if (output.kind == Kind::none) return nb::none();
    if (output.kind == Kind::integer) return nb::int_(output.integer);
    nb::object base;
    const void* data = nullptr;
    if (output.argument >= 0) {
      PyObject* argument = tensors_[static_cast<std::size_t>(output.argument)];
      base = nb::borrow(argument);
      data = borrow(argument).data;
    } else {
      Slot& slot = *static_cast<Slot*>(output.handle);
      base = object_of(slot);
      data = slot.view.data;
    }
    if (output.is_whole) return base;
    const abi::TensorView& v = output.view;
    const auto bytes = static_cast<const std::byte*>(v.data) - static_cast<const std::byte*>(data);
    const auto as_tuple = [&](const std::int64_t* list) {
      nb::list result;
      for (std::int32_t d = 0; d < v.rank; ++d) result.append(nb::int_(list[d]));
      return result;
    };
    return callable_.as_strided_(base, as_tuple(v.sizes), as_tuple(v.strides),
                                 nb::int_(static_cast<std::int64_t>(bytes)));
  }

  TorchCallable& callable_;
  std::span<PyObject* const> tensors_;
  std::deque<Slot> slots_;
  std::vector<nb::object> outputs_;
};

TorchCallable::TorchCallable(std::shared_ptr<const abi::Plan> plan, nb::list targets,
                             nb::object as_strided)
    : plan_(std::move(plan)),
      executable_(plan_),
      targets_(std::move(targets)),
      as_strided_(std::move(as_strided)) {
  for (const abi::PlanArgument& a : plan_->arguments) is_integer_.push_back(a.is_integer);
}

// Of the tensors that the executable watches, 0 for all others. A tensor made in inference mode has
// no version: it is not asked again, as an exception costs a microsecond.
std::vector<std::int64_t> TorchCallable::versions_of(std::span<PyObject* const> tensors) {
  const std::span<const std::uint32_t> watched = executable_.watched();
  const VersionGetter& version = version_getter();
  if (watched.empty() || version.get == nullptr) return {};
  std::vector<std::int64_t> result(tensors.size(), 0);
  is_unversioned_.resize(watched.size(), false);
  for (std::size_t i = 0; i < watched.size(); ++i) {
    if (is_unversioned_[i]) continue;
    PyObject* number = version.get(tensors[watched[i]], version.closure);
    if (number == nullptr) {
      PyErr_Clear();
      is_unversioned_[i] = true;
      continue;
    }
    result[watched[i]] = PyLong_AsLongLong(number);
    Py_DECREF(number);
  }
  return result;
}

template <class Run>
nb::tuple TorchCallable::run(const nb::list& arguments, Run&& run) {
  const std::size_t count = is_integer_.size();
  if (nb::len(arguments) != count) {
    user_error("{} takes {} arguments, {} were given", plan_->name, count, nb::len(arguments));
  }
  std::vector<PyObject*> objects;
  std::vector<abi::TensorView> views;
  std::vector<std::int64_t> integers;
  std::vector<nb::object> alive;  // the caller may clear its list meanwhile
  objects.reserve(count);
  views.reserve(count);
  alive.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* object = PyList_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(i));
    if (is_integer_[i]) {
      integers.push_back(nb::cast<std::int64_t>(nb::handle(object)));
      continue;
    }
    alive.push_back(nb::borrow(object));
    objects.push_back(object);
    views.push_back(borrow(object));
  }
  TorchHost host(*this, objects, plan_->outputs.size());
  runtime::cpu::Call call;
  call.tensors = views;
  call.integers = integers;
  const std::vector<std::int64_t> versions = versions_of(objects);
  call.versions = versions;
  call.host = &host;
  call.check = runtime::cpu::Check::trusted;
  {
    const nb::gil_scoped_release release;
    run(call);
  }
  return host.take();
}

nb::tuple TorchCallable::call(const nb::list& arguments) {
  return run(arguments, [&](const runtime::cpu::Call& c) { executable_.run(c); });
}

std::vector<double> TorchCallable::profile(const nb::list& arguments) {
  std::vector<double> times;
  (void)run(arguments, [&](const runtime::cpu::Call& c) { times = executable_.run_profiled(c); });
  return times;
}

}  // namespace inkle::python
