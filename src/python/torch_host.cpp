#include "python/torch_host.h"

#include <fmt/format.h>

#include <array>
#include <deque>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"
#include "python/torch_tensor.h"
#include "runtime/common/errors.h"
#include "runtime/cuda/host.h"

namespace inkle::python {

using runtime::common::EagerOperand;
using runtime::common::HostTensor;
using runtime::common::OutOfRange;
using runtime::common::Output;
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
  static PyObject* const module = nb::module_::import_("inkle.device_ops").release().ptr();
  return nb::borrow(module).attr(name);
}

std::int64_t version_of(PyObject* tensor) {
  static PyObject* const name = PyUnicode_InternFromString("_version");
  PyObject* const version = PyObject_GetAttr(tensor, name);
  if (version == nullptr) {  // tensors made in inference mode have none
    PyErr_Clear();
    return 0;
  }
  const std::int64_t value = PyLong_AsLongLong(version);
  Py_DECREF(version);
  return value;
}

}  // namespace

// State of one call, kept for the next. The interpreter's lock is held but between begin_steps()
// and the first give().
class TorchHost final : public runtime::cuda::DeviceHost {
 public:
  explicit TorchHost(TorchCallable& callable) : callable_(callable) {
    outputs_.resize(callable.plan_->outputs.size(), nullptr);
  }
  ~TorchHost() override { clear(); }
  TorchHost(const TorchHost&) = delete;
  TorchHost& operator=(const TorchHost&) = delete;

  // Reads the caller's arguments; keeps the tensors alive, as the caller may clear its list.
  void read(const nb::list& arguments);
  [[nodiscard]] runtime::common::Call call_data();
  [[nodiscard]] bool has_begun() const { return has_begun_; }
  [[nodiscard]] nb::object take();
  // Takes the interpreter's lock back if a call ended early.
  void end_steps();
  // Drops all references; the vectors keep their memory.
  void clear();

  HostTensor make_output(abi::DType dtype, std::span<const std::int64_t> sizes,
                         std::span<const std::int64_t> strides) override;
  void begin_steps() override;
  void call(std::uint32_t target, std::span<const EagerOperand> operands,
            std::span<HostTensor> results) override;
  void give(std::uint32_t position, const Output& output) override;

  runtime::cuda::Stream stream() override;
  void* allocate(std::int64_t bytes) override;
  void release(runtime::common::Handle handle) override;
  void copy(const abi::TensorView& from, const abi::TensorView& to) override;
  std::optional<HostTensor> convolution(
      const runtime::cuda::ConvolutionArguments& arguments) override;
  std::optional<HostTensor> attention(const runtime::cuda::AttentionArguments& arguments) override;

 private:
  struct Slot {
    nb::object object;
    abi::TensorView view;
  };

  HostTensor keep(nb::object tensor);
  nb::object operand_object(const EagerOperand& operand) const;
  nb::object make(const Output& output);

  TorchCallable& callable_;
  std::vector<PyObject*> tensors_;  // owned
  std::vector<abi::TensorView> views_;
  std::vector<std::int64_t> integers_;
  std::vector<std::int64_t> versions_;
  std::deque<Slot> slots_;           // handles point into it
  std::vector<PyObject*> outputs_;   // owned
  PyThreadState* thread_ = nullptr;  // while the lock is not held
  bool has_begun_ = false;
};

void TorchHost::read(const nb::list& arguments) {
  const std::vector<std::uint32_t>& positions = callable_.positions_;
  for (std::size_t a = 0; a < positions.size(); ++a) {
    PyObject* const object = PyList_GET_ITEM(arguments.ptr(), positions[a]);
    if (callable_.is_integer_[a]) {
      if (!PyLong_Check(object)) {
        throw WrongArgument(fmt::format("argument {}: expected an integer, got a {}",
                                        callable_.plan_->arguments[a].name,
                                        Py_TYPE(object)->tp_name));
      }
      integers_.push_back(nb::cast<std::int64_t>(nb::handle(object)));
      continue;
    }
    if (!is_tensor(object)) {
      throw WrongArgument(fmt::format("argument {}: expected a tensor, got a {}",
                                      callable_.plan_->arguments[a].name,
                                      Py_TYPE(object)->tp_name));
    }
    Py_INCREF(object);
    tensors_.push_back(object);
    views_.push_back(borrow(object));
  }
  const auto watched = callable_.executable_->watched();
  if (watched.empty()) return;
  versions_.assign(tensors_.size(), 0);
  for (const std::uint32_t t : watched) versions_[t] = version_of(tensors_[t]);
}

runtime::common::Call TorchHost::call_data() {
  runtime::common::Call call;
  call.tensors = views_;
  call.integers = integers_;
  call.versions = versions_;
  call.host = this;
  call.check = runtime::common::Check::full;
  return call;
}

void TorchHost::begin_steps() {
  has_begun_ = true;
  if (!callable_.plan_->steps.empty()) thread_ = PyEval_SaveThread();
}

void TorchHost::end_steps() {
  if (thread_ == nullptr) return;
  PyEval_RestoreThread(thread_);
  thread_ = nullptr;
}

void TorchHost::clear() {
  for (PyObject* const t : tensors_) Py_DECREF(t);
  for (PyObject*& o : outputs_) {
    Py_XDECREF(o);
    o = nullptr;
  }
  tensors_.clear();
  views_.clear();
  integers_.clear();
  versions_.clear();
  slots_.clear();
  has_begun_ = false;
}

HostTensor TorchHost::keep(nb::object tensor) {
  Slot& slot = slots_.emplace_back();
  slot.view = borrow(tensor.ptr());
  slot.object = std::move(tensor);
  return {&slot, slot.view};
}

HostTensor TorchHost::make_output(abi::DType dtype, std::span<const std::int64_t> sizes,
                                  std::span<const std::int64_t> strides) {
  const abi::DeviceKind device = callable_.device_.kind;
  if (thread_ == nullptr) return keep(empty_strided(dtype, sizes, strides, device));
  const nb::gil_scoped_acquire lock;
  return keep(empty_strided(dtype, sizes, strides, device));
}

runtime::cuda::Stream TorchHost::stream() {
  void* stream = nullptr;
  if (exchange_api().current_stream(dlpack::kCuda, callable_.device_.index, &stream) != 0) {
    throw nb::python_error();
  }
  return stream;
}

void* TorchHost::allocate(std::int64_t bytes) {
  const std::array<std::int64_t, 1> size = {bytes};
  const std::array<std::int64_t, 1> stride = {1};
  return make_output(abi::DType::u8, size, stride).view.data;
}

void TorchHost::release(runtime::common::Handle handle) {
  const nb::gil_scoped_acquire lock;
  static_cast<Slot*>(handle)->object.reset();
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
  return keep(device_op("convolution")(wrap(a.x), wrap(a.w), optional(a.bias), optional(a.residual),
                                       a.relu, torch_dtype(a.y.dtype), integer_tuple(c.stride),
                                       integer_tuple(c.padding), integer_tuple(c.dilation),
                                       c.transposed, integer_tuple(c.output_padding), c.groups));
}

std::optional<HostTensor> TorchHost::attention(const runtime::cuda::AttentionArguments& a) {
  const nb::gil_scoped_acquire lock;
  const nb::object mask = a.mask ? wrap(*a.mask) : nb::object(nb::none());
  return keep(device_op("attention")(wrap(a.q), wrap(a.k), wrap(a.v), mask, a.is_causal, a.scale));
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
  const nb::object made = callable_.targets_[target](*arguments);
  const auto list = nb::cast<nb::sequence>(made);
  if (nb::len(list) != results.size()) {
    throw InternalError("an eager op returned another number of results than when traced");
  }
  for (std::size_t r = 0; r < results.size(); ++r) {
    nb::object tensor = list[r];
    if (!is_tensor(tensor.ptr())) throw InternalError("an eager op returned no tensor");
    const void* const at = borrow(tensor.ptr()).data;
    for (const EagerOperand& o : operands) {
      // What aliases working memory must outlive it.
      if (o.is_integer || o.argument >= 0 || o.handle != nullptr) continue;
      if (!is_within(at, o.view)) continue;
      tensor = tensor.attr("clone")();
      break;
    }
    results[r] = keep(std::move(tensor));
  }
}

void TorchHost::give(std::uint32_t position, const Output& output) {
  end_steps();
  outputs_[position] = make(output).release().ptr();
}

nb::object TorchHost::make(const Output& output) {
  using Kind = abi::PlanOutput::Kind;
  if (output.kind == Kind::none) return nb::none();
  if (output.kind == Kind::integer) return nb::int_(output.integer);
  nb::object base;
  const void* data = nullptr;
  if (output.argument >= 0) {
    const auto number = static_cast<std::size_t>(output.argument);
    base = nb::borrow(tensors_[number]);
    data = views_[number].data;
  } else {
    const Slot& slot = *static_cast<const Slot*>(output.handle);
    base = slot.object;
    data = slot.view.data;
  }
  if (output.is_whole) return base;
  const abi::TensorView& v = output.view;
  const auto bytes = static_cast<const std::byte*>(v.data) - static_cast<const std::byte*>(data);
  const auto rank = static_cast<std::size_t>(v.rank);
  return callable_.as_strided_(base, integer_tuple({v.sizes, rank}),
                               integer_tuple({v.strides, rank}),
                               nb::int_(static_cast<std::int64_t>(bytes)));
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

TorchCallable::TorchCallable(std::unique_ptr<runtime::common::Executable> executable,
                             abi::Device device, nb::list targets, nb::object as_strided)
    : executable_(std::move(executable)),
      plan_(&executable_->plan()),
      device_(device),
      targets_(std::move(targets)),
      as_strided_(std::move(as_strided)),
      otherwise_(nb::none()),
      fallback_(nb::none()) {
  for (const abi::PlanArgument& a : plan_->arguments) {
    positions_.push_back(static_cast<std::uint32_t>(is_integer_.size()));
    is_integer_.push_back(a.is_integer);
  }
  list_size_ = positions_.size();
  for (const abi::BufferDecl& b : plan_->buffers) {
    const abi::BufferDecl* root = &b;
    while (root->kind == abi::BufferDecl::Kind::alias) root = &plan_->buffers[root->index];
    if (root != &b && root->kind == abi::BufferDecl::Kind::argument) writes_arguments_ = true;
  }
}

TorchCallable::~TorchCallable() = default;

void TorchCallable::set_frozen(const nb::list& objects, nb::object otherwise) {
  positions_.clear();
  frozen_.clear();
  list_size_ = nb::len(objects);
  for (std::size_t i = 0; i < list_size_; ++i) {
    const nb::object object = objects[i];
    if (object.is_none()) {
      positions_.push_back(static_cast<std::uint32_t>(i));
      frozen_.emplace_back();
    } else {
      frozen_.push_back(object);
    }
  }
  if (positions_.size() != is_integer_.size()) {
    throw InternalError("frozen arguments and those of the plan do not add up");
  }
  otherwise_ = std::move(otherwise);
}

bool TorchCallable::is_frozen_as(const nb::list& arguments) const {
  for (std::size_t i = 0; i < frozen_.size(); ++i) {
    if (!frozen_[i].is_valid()) continue;
    if (PyList_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(i)) != frozen_[i].ptr()) {
      return false;
    }
  }
  return true;
}

std::unique_ptr<TorchHost> TorchCallable::take_host() {
  if (idle_.empty()) return std::make_unique<TorchHost>(*this);
  std::unique_ptr<TorchHost> host = std::move(idle_.back());
  idle_.pop_back();
  return host;
}

namespace {

// torch's current device is `device` for the life of this object: it is where torch allocates.
class CurrentDevice {
 public:
  explicit CurrentDevice(abi::Device device) {
    if (device.kind != abi::DeviceKind::cuda) return;
    static const Functions functions;
    if (functions.is_single) return;
    functions_ = &functions;
    before_ = nb::cast<int>(functions.exchange(device.index));
  }
  ~CurrentDevice() {
    if (functions_ == nullptr) return;
    // Torch knew this device a moment ago.
    try {
      functions_->exchange(before_);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("inkle: restoring the current device");
    }
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  struct Functions {
    nb::handle exchange =
        nb::object(nb::module_::import_("torch._C").attr("_cuda_exchangeDevice")).release();
    bool is_single =
        nb::cast<int>(nb::module_::import_("torch").attr("cuda").attr("device_count")()) == 1;
  };
  const Functions* functions_ = nullptr;
  int before_ = 0;
};

}  // namespace

template <class Run>
nb::object TorchCallable::run(const nb::list& arguments, Run&& run) {
  if (nb::len(arguments) != list_size_) {
    throw WrongArgument(fmt::format("{} takes {} arguments, {} were given", plan_->name, list_size_,
                                    nb::len(arguments)));
  }
  if (!frozen_.empty() && !is_frozen_as(arguments)) return otherwise_(arguments);
  std::unique_ptr<TorchHost> host = take_host();
  std::string failure;
  try {
    const CurrentDevice current(device_);
    if (fails) throw InternalError("made to fail by option fail_stage");
    host->read(arguments);
    run(host->call_data());
    nb::object result = host->take();
    host->clear();
    idle_.push_back(std::move(host));
    return result;
  } catch (const WrongArgument&) {
    throw;
  } catch (const OutOfRange&) {
    host->end_steps();
    throw;
  } catch (const Error& error) {
    host->end_steps();
    const bool is_untouched = !host->has_begun() || !writes_arguments_;
    const bool is_callers = host->has_begun() && dynamic_cast<const UserError*>(&error) != nullptr;
    if (fallback_.is_none() || !is_untouched || is_callers) throw;
    failure = error.what();
  } catch (...) {
    host->end_steps();
    throw;
  }
  host.reset();
  return fallback_(arguments, nb::str(failure.data(), failure.size()));
}

nb::object TorchCallable::call(const nb::list& arguments) {
  return run(arguments, [&](const runtime::common::Call& c) { executable_->run(c); });
}

std::vector<double> TorchCallable::profile(const nb::list& arguments) {
  std::vector<double> times;
  (void)run(arguments,
            [&](const runtime::common::Call& c) { times = executable_->run_profiled(c); });
  return times;
}

}  // namespace inkle::python
