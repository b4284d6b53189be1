#include "python/torch_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "python/made_once.h"
#include "python/torch_tensor.h"
#include "runtime/common/errors.h"
#include "runtime/cuda/host.h"

namespace inkle::python {

using runtime::common::WrongArgument;

namespace {

// Bytes from the first to the last element.
std::int64_t span_bytes(const abi::TensorView& v) {
  std::int64_t last = 0;
  for (std::int32_t d = 0; d < v.rank; ++d) {
    if (v.sizes[d] == 0) return 0;
    last += (v.sizes[d] - 1) * v.strides[d];
  }
  return (last + 1) * abi::size_of(v.dtype);
}

bool is_within(const void* at, const abi::TensorView& view) {
  const auto* begin = static_cast<const std::byte*>(view.data);
  const auto* p = static_cast<const std::byte*>(at);
  return begin != nullptr && p >= begin && p < begin + span_bytes(view);
}

// A function of inkle/device_ops.py.
nb::object device_op(const char* name) {
  static constinit MadeOnce<nb::object> module;
  return module
      .get([] { return std::make_unique<nb::object>(nb::module_::import_("inkle.device_ops")); })
      .attr(name);
}

// What the lookup of a tensor's _version would find, which takes longer than its call; may be null.
const PyGetSetDef* version_getter() {
  static constinit MadeOnce<const PyGetSetDef*> found;
  return found.get([] {
    const nb::object type = nb::module_::import_("torch").attr("_C").attr("TensorBase");
    const nb::object descriptor = nb::object(type.attr("__dict__"))["_version"];
    const bool is_found = Py_TYPE(descriptor.ptr()) == &PyGetSetDescr_Type;
    return std::make_unique<const PyGetSetDef*>(
        is_found ? reinterpret_cast<PyGetSetDescrObject*>(descriptor.ptr())->d_getset : nullptr);
  });
}

std::int64_t version_of(PyObject* tensor) {
  const PyGetSetDef* const found = version_getter();
  PyObject* const version = found != nullptr ? found->get(tensor, found->closure)
                                             : PyObject_GetAttrString(tensor, "_version");
  if (version == nullptr) {  // tensors made in inference mode have none
    PyErr_Clear();
    return 0;
  }
  const std::int64_t value = PyLong_AsLongLong(version);
  Py_DECREF(version);
  return value;
}

}  // namespace

void TorchHost::read(const nb::list& arguments, bool places_only) {
  has_places_only_ = places_only;
  for (std::size_t a = 0; a < context_.arguments.size(); ++a) {
    const HostContext::Argument& declared = context_.arguments[a];
    PyObject* const object = PyList_GET_ITEM(arguments.ptr(), declared.position);
    if (declared.is_integer) {
      if (!PyLong_Check(object)) {
        throw WrongArgument(fmt::format("argument {}: expected an integer, got a {}",
                                        context_.plan->arguments[a].name,
                                        Py_TYPE(object)->tp_name));
      }
      int overflow = 0;
      integers_.push_back(PyLong_AsLongLongAndOverflow(object, &overflow));
      if (overflow != 0) {
        unsupported("argument {}: an integer of more than 64 bits",
                    context_.plan->arguments[a].name);
      }
      continue;
    }
    if (!is_tensor(object)) {
      throw WrongArgument(fmt::format("argument {}: expected a tensor, got a {}",
                                      context_.plan->arguments[a].name, Py_TYPE(object)->tp_name));
    }
    Py_INCREF(object);
    tensors_.push_back(object);
    if (places_only && declared.is_parameter) {
      views_.emplace_back().data = address_of(object);
    } else {
      views_.push_back(borrow(object));
    }
  }
}

void TorchHost::read_rest() {
  if (!has_places_only_) return;
  for (std::size_t t = 0; t < tensors_.size(); ++t) views_[t] = borrow(tensors_[t]);
  has_places_only_ = false;
}

void TorchHost::read_versions() {
  const auto watched = context_.watched;
  if (watched.empty()) return;
  versions_.assign(tensors_.size(), 0);
  for (const std::uint32_t t : watched) versions_[t] = version_of(tensors_[t]);
}

void TorchHost::take_over(const nb::list& arguments) {
  donates_arguments_ = true;
  PyObject* const list = arguments.ptr();
  if (PyList_SetSlice(list, 0, PyList_GET_SIZE(list), nullptr) != 0) throw nb::python_error();
}

bool TorchHost::give_back(nb::list arguments) const {
  if (!donates_arguments_) return true;
  if (std::find(tensors_.begin(), tensors_.end(), nullptr) != tensors_.end()) return false;
  auto tensor = tensors_.begin();
  auto integer = integers_.begin();
  for (const HostContext::Argument& a : context_.arguments) {
    arguments.append(a.is_integer ? nb::object(nb::int_(*integer++)) : nb::borrow(*tensor++));
  }
  return true;
}

runtime::common::Call TorchHost::call_data() {
  runtime::common::Call call;
  call.tensors = views_;
  call.integers = integers_;
  call.versions = versions_;
  call.host = this;
  call.check = runtime::common::Check::full;
  call.donates_arguments = donates_arguments_;
  call.has_device_copies = is_capturing_;
  call.observer = observer_;
  return call;
}

void TorchHost::begin_steps() {
  has_begun_ = true;
  if (begin_capture_.is_valid()) begin_capture_();
  if (!context_.plan->steps.empty()) thread_ = PyEval_SaveThread();
}

void TorchHost::end_steps() {
  if (thread_ == nullptr) return;
  PyEval_RestoreThread(thread_);
  thread_ = nullptr;
}

// Programs that fail, or have no results, would leave without the lock.
class TorchHost::EndOfSteps {
 public:
  explicit EndOfSteps(TorchHost& host) : host_(host) {}
  ~EndOfSteps() { host_.end_steps(); }
  EndOfSteps(const EndOfSteps&) = delete;
  EndOfSteps& operator=(const EndOfSteps&) = delete;

 private:
  TorchHost& host_;
};

void TorchHost::run(runtime::common::Executable& executable) {
  const EndOfSteps end(*this);
  executable.run(call_data());
}

std::vector<double> TorchHost::run_profiled(runtime::common::Executable& executable) {
  const EndOfSteps end(*this);
  return executable.run_profiled(call_data());
}

void TorchHost::clear() {
  for (PyObject* const t : tensors_) Py_XDECREF(t);
  for (PyObject*& o : outputs_) {
    Py_XDECREF(o);
    o = nullptr;
  }
  tensors_.clear();
  views_.clear();
  integers_.clear();
  versions_.clear();
  slots_.clear();
  recipes_.clear();
  has_begun_ = false;
  donates_arguments_ = false;
  observer_ = nullptr;
}

HostTensor TorchHost::keep(nb::object tensor) {
  Slot& slot = slots_.emplace_back();
  slot.view = borrow(tensor.ptr());
  slot.is_early = !has_begun_;
  slot.object = std::move(tensor);
  return {&slot, slot.view};
}

HostTensor TorchHost::make_output(abi::DType dtype, std::span<const std::int64_t> sizes,
                                  std::span<const std::int64_t> strides) {
  const abi::DeviceKind device = context_.device.kind;
  if (thread_ == nullptr) return keep(empty_strided(dtype, sizes, strides, device));
  const nb::gil_scoped_acquire lock;
  return keep(empty_strided(dtype, sizes, strides, device));
}

runtime::cuda::Stream TorchHost::stream() {
  void* stream = nullptr;
  if (exchange_api().current_stream(dlpack::kCuda, context_.device.index, &stream) != 0) {
    throw nb::python_error();
  }
  return stream;
}

void* TorchHost::allocate(std::int64_t bytes) {
  if (is_capturing_ && !has_begun_) {
    throw InternalError("an argument is not aligned, and its copy cannot be captured");
  }
  const std::array<std::int64_t, 1> size = {bytes};
  const std::array<std::int64_t, 1> stride = {1};
  return make_output(abi::DType::u8, size, stride).view.data;
}

void TorchHost::release(runtime::common::Handle handle) {
  const nb::gil_scoped_acquire lock;
  static_cast<Slot*>(handle)->object.reset();
}

void TorchHost::release_argument(std::uint32_t number) {
  const nb::gil_scoped_acquire lock;
  Py_CLEAR(tensors_[number]);
}

void TorchHost::copy(const abi::TensorView& from, const abi::TensorView& to) {
  const nb::gil_scoped_acquire lock;
  wrap(to).attr("copy_")(wrap(from));
}

std::optional<HostTensor> TorchHost::convolution(const runtime::cuda::ConvolutionArguments& a) {
  const nb::gil_scoped_acquire lock;
  const auto optional = [](const std::optional<abi::TensorView>& view) {
    return view ? wrap(*view) : nb::object(nb::none());
  };
  const abi::ConvolutionCall& c = *a.call;
  if (c.weight_gradient) {
    const nb::object sizes = integer_tuple({a.y.sizes, static_cast<std::size_t>(a.y.rank)});
    return keep(device_op("convolution_weights")(wrap(a.x), wrap(a.w), sizes,
                                                 integer_tuple(c.stride), integer_tuple(c.padding),
                                                 integer_tuple(c.dilation), c.groups));
  }
  // The size of a gradient with respect to an image is that of the image, whatever remains of its
  // last step.
  std::vector<std::int64_t> output_padding = c.output_padding;
  for (std::size_t d = 0; c.transposed && d < output_padding.size(); ++d) {
    const std::int64_t window = c.dilation[d] * (a.w.sizes[d + 2] - 1) + 1;
    output_padding[d] =
        a.y.sizes[d + 2] - (a.x.sizes[d + 2] - 1) * c.stride[d] + 2 * c.padding[d] - window;
  }
  return keep(device_op("convolution")(wrap(a.x), wrap(a.w), optional(a.bias), optional(a.residual),
                                       a.relu, torch_dtype(a.y.dtype), integer_tuple(c.stride),
                                       integer_tuple(c.padding), integer_tuple(c.dilation),
                                       c.transposed, integer_tuple(output_padding), c.groups));
}

std::optional<HostTensor> TorchHost::attention(const runtime::cuda::AttentionArguments& a) {
  const nb::gil_scoped_acquire lock;
  const nb::object mask = a.mask ? wrap(*a.mask) : nb::object(nb::none());
  const nb::object strides = integer_tuple({a.out.strides, static_cast<std::size_t>(a.out.rank)});
  return keep(
      device_op("attention")(wrap(a.q), wrap(a.k), wrap(a.v), mask, a.is_causal, a.scale, strides));
}

nb::object TorchHost::operand_object(const EagerOperand& o) const {
  if (o.is_integer) return nb::int_(o.integer);
  if (o.argument >= 0) return nb::borrow(tensors_[static_cast<std::size_t>(o.argument)]);
  if (o.handle != nullptr) return static_cast<const Slot*>(o.handle)->object;
  return wrap(o.view);
}

void TorchHost::call(std::uint32_t target, std::span<const EagerOperand> operands,
                     std::span<HostTensor> results) {
  const nb::gil_scoped_acquire lock;
  nb::list arguments;
  for (const EagerOperand& o : operands) arguments.append(operand_object(o));
  const nb::object made = context_.targets[target](*arguments);
  const auto list = nb::cast<nb::sequence>(made);
  if (nb::len(list) != results.size()) {
    throw InternalError("an eager op returned another number of results than when traced");
  }
  for (std::size_t r = 0; r < results.size(); ++r) {
    nb::object tensor = list[r];
    if (!is_tensor(tensor.ptr())) throw InternalError("an eager op returned no tensor");
    const void* const at = borrow(tensor.ptr()).data;
    for (const EagerOperand& o : operands) {
      // It may return its operand, as dropout with p = 0 does.
      if (o.handle != nullptr) {
        const Slot& slot = *static_cast<const Slot*>(o.handle);
        slot.is_known |= slot.object.is(tensor);
      }
      // What aliases working memory must outlive it.
      if (o.is_integer || o.argument >= 0 || o.handle != nullptr) continue;
      if (!is_within(at, o.view)) continue;
      tensor = tensor.attr("clone")();
      break;
    }
    // Of a new one the list and this function alone hold the object, and the object alone the
    // tensor.
    const bool is_known =
        Py_REFCNT(tensor.ptr()) > 2 || nb::cast<std::int64_t>(tensor.attr("_use_count")()) > 1;
    results[r] = keep(std::move(tensor));
    slots_.back().is_known = is_known;
  }
}

void TorchHost::give(std::uint32_t position, const Output& output) {
  end_steps();
  const std::int32_t earlier = position < context_.repeats.size() ? context_.repeats[position] : -1;
  if (earlier >= 0 && !is_capturing_) {
    outputs_[position] = Py_NewRef(outputs_[static_cast<std::size_t>(earlier)]);
    return;
  }
  ResultRecipe recipe =
      earlier >= 0 ? ResultRecipe{.repeats = earlier} : describe(position, output);
  if (is_capturing_) {
    recipes_.push_back(std::move(recipe));
    return;
  }
  nb::object base = recipe.base;
  if (recipe.is_of_result()) {
    base = nb::borrow(outputs_[static_cast<std::size_t>(recipe.view_of)]);
  } else if (recipe.argument >= 0) {
    base = nb::borrow(tensors_[static_cast<std::size_t>(recipe.argument)]);
  }
  outputs_[position] = make(recipe, base).release().ptr();
}

namespace {

std::int64_t elements(const abi::TensorView& v) {
  return std::accumulate(v.sizes, v.sizes + v.rank, std::int64_t{1}, std::multiplies<>());
}

// Whether elements, if any, lie in memory without gaps and repetitions, in any order of dimensions.
bool is_dense(const abi::TensorView& v) {
  const auto rank = static_cast<std::size_t>(v.rank);
  const std::span sizes(v.sizes, rank), strides(v.strides, rank);
  if (elements(v) == 0) return true;
  std::int64_t step = 1;
  for (auto left = std::ranges::count_if(sizes, [](auto n) { return n != 1; }); left > 0; --left) {
    std::size_t d = 0;
    while (d < rank && (sizes[d] == 1 || strides[d] != step)) ++d;
    if (d == rank) return false;
    step *= sizes[d];
  }
  return true;
}

// Whether a result is all elements of a tensor, by other sizes and strides.
bool is_reshaped(const abi::TensorView& result, const abi::TensorView& tensor) {
  return result.data == tensor.data && result.dtype == tensor.dtype && is_dense(result) &&
         is_dense(tensor) && elements(result) == elements(tensor);
}

}  // namespace

ResultRecipe TorchHost::describe(std::uint32_t position, const Output& output) {
  ResultRecipe recipe{.kind = output.kind,
                      .integer = output.integer,
                      .is_condition = std::ranges::binary_search(context_.conditions, position),
                      .argument = output.argument,
                      .base = {},
                      .is_whole = output.is_whole};
  if (position < context_.view_of.size()) recipe.view_of = context_.view_of[position];
  const bool is_apart = std::ranges::binary_search(context_.apart, position);
  using Kind = abi::PlanOutput::Kind;
  if (output.kind == Kind::none || output.kind == Kind::integer) return recipe;
  const void* data = nullptr;
  if (output.argument >= 0) {
    data = views_[static_cast<std::size_t>(output.argument)].data;
    // Of an argument that a function returns autograd makes a view, and so does a view in the
    // graph.
    recipe.is_whole = recipe.is_whole && recipe.view_of == kOfItsMemory && !is_apart;
  } else {
    INKLE_CHECK(output.handle != nullptr, "a result has been released");
    const Slot& slot = *static_cast<const Slot*>(output.handle);
    INKLE_CHECK(slot.object.is_valid(), "a result has been released");
    recipe.base = slot.object;
    recipe.is_early = slot.is_early;
    data = slot.view.data;
    // Two results are two tensors, as `y` and `y.detach()` are: what changes the sizes of one, or
    // asks for its gradient, does not change the other.
    recipe.is_whole = output.is_whole && !is_apart && !std::exchange(slot.is_returned, true);
    // The base gives the tensor its sizes: AOTAutograd applies the views of the next graph to it.
    const bool is_base = !slot.is_returned && !is_apart;
    if (!recipe.is_whole && is_base && !slot.is_known && is_reshaped(output.view, slot.view)) {
      slot.object.attr("as_strided_")(
          integer_tuple({output.view.sizes, output.view.sizes + output.view.rank}),
          integer_tuple({output.view.strides, output.view.strides + output.view.rank}));
      recipe.is_whole = slot.is_returned = true;
    }
  }
  const abi::TensorView& v = output.view;
  data_[position] = v.data;
  if (recipe.is_whole) return recipe;
  if (recipe.is_of_result()) data = data_[static_cast<std::size_t>(recipe.view_of)];
  recipe.sizes.assign(v.sizes, v.sizes + v.rank);
  recipe.strides.assign(v.strides, v.strides + v.rank);
  recipe.byte_offset = static_cast<const std::byte*>(v.data) - static_cast<const std::byte*>(data);
  return recipe;
}

nb::object TorchHost::make(const ResultRecipe& recipe, const nb::object& base) const {
  using Kind = abi::PlanOutput::Kind;
  if (recipe.kind == Kind::none) return nb::none();
  if (recipe.is_condition) return nb::bool_(recipe.integer != 0);
  if (recipe.kind == Kind::integer) return nb::int_(recipe.integer);
  if (recipe.is_whole) return base;
  return context_.as_strided(base, integer_tuple(recipe.sizes), integer_tuple(recipe.strides),
                             nb::int_(recipe.byte_offset), nb::bool_(recipe.view_of == kOfNothing));
}

void TorchHost::replace(std::size_t number, nb::object tensor) {
  const abi::Device device = views_[number].device;
  views_[number] = borrow(tensor.ptr());
  views_[number].device = device;  // as the program has it
  Py_DECREF(tensors_[number]);
  tensors_[number] = tensor.release().ptr();
}

nb::object TorchHost::take() {
  const auto count = static_cast<Py_ssize_t>(outputs_.size());
  nb::object tuple = nb::steal(PyTuple_New(count));
  if (!tuple.is_valid()) throw nb::python_error();
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject*& output = outputs_[static_cast<std::size_t>(i)];
    PyTuple_SET_ITEM(tuple.ptr(), i, output);
    output = nullptr;
  }
  return tuple;
}

}  // namespace inkle::python
