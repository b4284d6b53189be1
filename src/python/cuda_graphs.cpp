#include "python/cuda_graphs.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "python/made_once.h"
#include "python/torch_tensor.h"
#include "runtime/common/arguments.h"

namespace inkle::python {
namespace {

// Sets of shapes that are kept captured; the least recently used goes first.
constexpr std::size_t kMostShapes = 16;
// After so many changes of addresses of one set of shapes calls run as usual.
constexpr int kMostMoves = 8;
// Captures of one set of shapes whose results the caller gets as they are: a loop holds one
// result while the next is made.
constexpr std::size_t kMostUncopied = 3;
// Results up to here are copied: that takes less than another capture.
constexpr std::int64_t kMostCopiedBytes = 1 << 20;
// CPU inputs up to this many bytes are compared with their earlier contents in each replay.
constexpr std::size_t kMostComparedBytes = 4096;
// Copies of larger inputs take at most so many times the memory of their elements.
constexpr std::int64_t kWidest = 8;

// Tensors that share the storage of this one, and what else counts in torch.
std::int64_t uses_of(const nb::object& tensor) {
  static constinit MadeOnce<nb::object> found;
  const nb::object& count = found.get([] {
    return std::make_unique<nb::object>(
        nb::module_::import_("torch._C").attr("_storage_Use_Count"));
  });
  return nb::cast<std::int64_t>(count(tensor.attr("untyped_storage")().attr("_cdata")));
}

std::int64_t result_bytes(const std::vector<ResultRecipe>& results) {
  std::int64_t bytes = 0;
  for (const ResultRecipe& r : results) {
    if (!r.base.is_valid()) continue;
    const abi::TensorView v = borrow(r.base.ptr());
    std::int64_t elements = abi::size_of(v.dtype);
    for (std::int32_t d = 0; d < v.rank; ++d) elements *= v.sizes[d];
    bytes += elements;
  }
  return bytes;
}

// The error and its message alone: what() goes through the frames of all callers, too.
std::string message_of(const nb::python_error& error) {
  const nb::handle value = error.value();
  try {
    return fmt::format("{}: {}", Py_TYPE(value.ptr())->tp_name, nb::str(value).c_str());
  } catch (const nb::python_error&) {
    return Py_TYPE(value.ptr())->tp_name;
  }
}

// Of an input that moves: why no copy with its strides is kept, or "".
std::string why_not_copied(const abi::TensorView& v) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // strides, sizes
  for (std::int32_t d = 0; d < v.rank; ++d) {
    if (v.sizes[d] > 1 && v.strides[d] != 0) dims.emplace_back(v.strides[d], v.sizes[d]);
  }
  std::sort(dims.begin(), dims.end());
  std::int64_t span = 1, elements = 1;
  for (const auto& [stride, size] : dims) {
    if (stride < span) return "an input whose elements share memory moves";
    span += (size - 1) * stride;
    elements *= size;
  }
  const bool is_wide = span > kWidest * elements && span * abi::size_of(v.dtype) > kMostCopiedBytes;
  return is_wide ? "an input with wide gaps in memory moves" : "";
}

bool repeats_elements(const abi::TensorView& v) {
  for (std::int32_t d = 0; d < v.rank; ++d) {
    if (v.sizes[d] > 1 && v.strides[d] == 0) return true;
  }
  return false;
}

// The bytes from the first to the last element of a CPU tensor.
std::span<const std::byte> bytes_of(const abi::TensorView& v) {
  std::int64_t span = 1;
  for (std::int32_t d = 0; d < v.rank; ++d) {
    if (v.sizes[d] == 0) return {};
    span += (v.sizes[d] - 1) * v.strides[d];
  }
  return {static_cast<const std::byte*>(v.data),
          static_cast<std::size_t>(span * abi::size_of(v.dtype))};
}

// With the strides that views of it rely on.
nb::object copy_of(const nb::object& tensor) {
  nb::object made = tensor.attr("clone")();
  const abi::TensorView from = borrow(tensor.ptr()), to = borrow(made.ptr());
  if (std::equal(from.strides, from.strides + from.rank, to.strides)) return made;
  return nb::module_::import_("inkle.cuda_graphs").attr("copied")(tensor);
}

}  // namespace

CudaGraphs::CudaGraphs(runtime::common::Executable& executable, const HostContext& context)
    : executable_(executable), context_(context) {
  const abi::Plan& plan = *context.plan;
  for (const abi::PlanArgument& a : plan.arguments) {
    if (a.is_integer) continue;
    is_parameter_.push_back(a.is_parameter);
    is_written_.push_back(a.is_written);
    is_of_cpu_.push_back(a.device.kind == abi::DeviceKind::cpu);
    alignment_.push_back(a.alignment);
  }
  reason_ = executable_.why_not_captured();
}

template <class W>
CudaGraphs::Entry* CudaGraphs::find(TorchHost& host, bool& is_new, W& watch) {
  key_.clear();
  key_.push_back(reinterpret_cast<std::intptr_t>(host.stream()));
  watch.done(ReplayPart::stream);
  key_.insert(key_.end(), host.integers().begin(), host.integers().end());
  const auto views = host.views();
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (is_parameter_[i]) continue;  // one set of shapes, which guards have compared
    const abi::TensorView& v = views[i];
    key_.push_back(static_cast<std::int64_t>(v.dtype) << 16 | v.device.index << 8 | v.rank);
    key_.insert(key_.end(), v.sizes, v.sizes + v.rank);
    key_.insert(key_.end(), v.strides, v.strides + v.rank);
  }
  is_new = false;
  const auto at =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key_; });
  if (at != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, at);
    return &entries_.front();
  }
  is_new = true;
  if (entries_.size() == kMostShapes) entries_.pop_back();
  entries_.emplace_front().key = key_;
  return &entries_.front();
}

bool CudaGraphs::has_moved(const Entry& entry, std::span<const abi::TensorView> views) const {
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (!entry.copies[i].is_valid() && views[i].data != entry.addresses[i]) return true;
  }
  return false;
}

template <class W>
nb::object CudaGraphs::call(TorchHost& host, const nb::list& arguments, W& watch) {
  if (is_busy_) return {};
  struct Busy {
    explicit Busy(bool& flag) : flag_(flag) { flag_ = true; }
    ~Busy() { flag_ = false; }
    bool& flag_;
  };
  const Busy busy(is_busy_);
  return call_alone(host, arguments, watch);
}

template <class W>
nb::object CudaGraphs::call_alone(TorchHost& host, const nb::list& arguments, W& watch) {
  if (!reason_.empty() && recorded_ == 0) return {};
  bool is_new = false;
  Entry& entry = *find(host, is_new, watch);
  watch.done(ReplayPart::shapes);
  if (is_new || entry.is_hopeless) return {};  // a first call warms up what measures and loads
  if ((entry.addresses.empty() || has_moved(entry, host.views())) && !follow(entry, host)) {
    return {};
  }
  watch.done(ReplayPart::addresses);
  executable_.throw_failures();
  watch.done(ReplayPart::failures);
  // Changed weights are prepared by a usual call, into the memory that the captured graphs read.
  if (!executable_.is_prepared(host.call_data())) return {};
  watch.done(ReplayPart::prepared);
  Capture* const capture = choose(entry, arguments);
  watch.done(ReplayPart::alive);
  return capture == nullptr ? nb::object() : replay(entry, *capture, host, watch);
}

template nb::object CudaGraphs::call(TorchHost&, const nb::list&, NoWatch&);
template nb::object CudaGraphs::call(TorchHost&, const nb::list&, Watch&);

// Notes the tensors' current addresses; drops graphs that were captured with others.
bool CudaGraphs::follow(Entry& entry, const TorchHost& host) {
  if (entry.moves++ == kMostMoves) {
    give_up(entry, "inputs that cannot be copied keep moving");
    return false;
  }
  const auto views = host.views();
  const bool is_first = entry.addresses.empty();
  entry.copies.resize(views.size());
  entry.values.resize(views.size());
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (entry.copies[i].is_valid()) continue;
    // A usual call makes an aligned copy of it for kernels, which a captured graph cannot.
    const bool is_odd = !runtime::common::is_aligned(views[i].data, alignment_[i]);
    if (is_odd && (is_written_[i] || is_parameter_[i])) {
      give_up(entry, "a weight, or an argument that is written, is misaligned");
      return false;
    }
    const bool has_moved = !is_first && views[i].data != entry.addresses[i];
    const bool may_stay = !is_odd && (!has_moved || is_parameter_[i] || is_written_[i]);
    if (may_stay && !is_of_cpu_[i]) continue;
    if (std::string reason = make_copy(entry, host, i); !reason.empty()) {
      give_up(entry, std::move(reason));
      return false;
    }
  }
  entry.captures.clear();
  entry.addresses.clear();
  for (const abi::TensorView& v : views) entry.addresses.push_back(v.data);
  return true;
}

std::string CudaGraphs::make_copy(Entry& entry, const TorchHost& host, std::size_t number) const {
  const abi::TensorView& view = host.views()[number];
  const nb::object tensor = nb::borrow(host.tensors()[number]);
  if (std::string reason = why_not_copied(view); !reason.empty()) return reason;
  try {
    if (!is_of_cpu_[number]) {
      entry.copies[number] = copy_of(tensor);
      return "";
    }
    const std::span<const std::byte> bytes = bytes_of(view);
    if (bytes.size() > kMostComparedBytes) return "an input is a large CPU tensor";
    entry.values[number].assign(bytes.begin(), bytes.end());
    entry.copies[number] =
        nb::module_::import_("inkle.cuda_graphs").attr("on_device")(tensor, context_.device.index);
  } catch (const nb::python_error& error) {
    return message_of(error);  // no memory
  }
  return "";
}

void CudaGraphs::refresh_copies(Entry& entry, const TorchHost& host) const {
  for (std::size_t i = 0; i < entry.copies.size(); ++i) {
    if (!entry.copies[i].is_valid()) continue;
    const abi::TensorView& view = host.views()[i];
    const nb::object from = nb::borrow(host.tensors()[i]);
    if (is_of_cpu_[i]) {
      const std::span<const std::byte> bytes = bytes_of(view);
      if (std::ranges::equal(bytes, entry.values[i])) continue;
      // Noted before the upload: a concurrent write by another thread shows in the next call.
      std::vector<std::byte> noted(bytes.begin(), bytes.end());
      nb::module_::import_("inkle.cuda_graphs").attr("send")(entry.copies[i], from);
      entry.values[i] = std::move(noted);
    } else if (repeats_elements(view)) {
      nb::module_::import_("inkle.cuda_graphs").attr("fill")(entry.copies[i], from);
    } else {
      entry.copies[i].attr("copy_")(from);
    }
  }
}

// A captured graph whose results the caller no longer holds, captured anew if none is; null if that
// fails.
CudaGraphs::Capture* CudaGraphs::choose(Entry& entry, const nb::list& arguments) {
  const auto is_free = [](const Capture& r) {
    std::size_t next = 0;
    for (const ResultRecipe& recipe : r.results) {
      if (recipe.base.is_valid() && uses_of(recipe.base) != r.uses[next++]) return false;
    }
    return true;
  };
  auto& all = entry.captures;
  auto found = std::find_if(all.begin(), all.end(),
                            [&](const Capture& r) { return !r.is_copied && is_free(r); });
  if (found == all.end()) {
    found = std::find_if(all.begin(), all.end(), [](const Capture& r) { return r.is_copied; });
  }
  if (found == all.end()) {
    Capture* const made = record(entry, arguments);
    // What was made while capturing lies in memory that other captured graphs use, too.
    const auto is_late = [](const ResultRecipe& r) { return r.base.is_valid() && !r.is_early; };
    if (made != nullptr) {
      made->is_copied = all.size() > kMostUncopied ||
                        result_bytes(made->results) <= kMostCopiedBytes ||
                        std::any_of(made->results.begin(), made->results.end(), is_late);
    }
    return made;
  }
  all.splice(all.end(), all, found);
  return &all.back();
}

CudaGraphs::Capture* CudaGraphs::record(Entry& entry, const nb::list& arguments) {
  Capture made;
  TorchHost recorder(context_);
  try {
    recorder.read(arguments);
    recorder.read_versions();
    for (std::size_t i = 0; i < entry.copies.size(); ++i) {
      if (entry.copies[i].is_valid()) recorder.replace(i, entry.copies[i]);
    }
    const nb::object run = nb::cpp_function([&](nb::object begin) {
      recorder.record_results(std::move(begin));
      recorder.run(executable_);
    });
    made.graph = nb::module_::import_("inkle.cuda_graphs")
                     .attr("capture")(run, context_.device.index,
                                      reinterpret_cast<std::intptr_t>(recorder.stream()));
    made.results = recorder.take_recipes();
    ++recorded_;
  } catch (nb::python_error& error) {
    give_up(entry, message_of(error));
    return nullptr;
  }
  recorder.clear();  // its own references to the results
  const nb::object stream = nb::module_::import_("torch").attr("cuda").attr("current_stream")();
  for (const ResultRecipe& recipe : made.results) {
    if (!recipe.base.is_valid()) continue;
    made.uses.push_back(uses_of(recipe.base));
    if (recipe.is_early) recipe.base.attr("record_stream")(stream);  // made on the capture's
  }
  entry.captures.push_back(std::move(made));
  return &entry.captures.back();
}

template <class W>
nb::object CudaGraphs::replay(Entry& entry, const Capture& capture, const TorchHost& host,
                              W& watch) {
  refresh_copies(entry, host);
  watch.done(ReplayPart::copies);
  capture.graph.attr("replay")();
  ++replayed_;
  watch.done(ReplayPart::launch);
  // Each tensor that results are views of is given, or copied, once.
  std::vector<std::pair<PyObject*, nb::object>> given;
  const auto give = [&](const nb::object& base) {
    for (const auto& [known, tensor] : given) {
      if (known == base.ptr()) return tensor;
    }
    given.emplace_back(base.ptr(), capture.is_copied ? copy_of(base) : base.attr("detach")());
    return given.back().second;
  };
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(capture.results.size())));
  if (!tuple.is_valid()) throw nb::python_error();
  for (std::size_t r = 0; r < capture.results.size(); ++r) {
    const ResultRecipe& recipe = capture.results[r];
    if (recipe.repeats >= 0) {
      PyObject* const earlier = PyTuple_GET_ITEM(tuple.ptr(), recipe.repeats);
      PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(r), Py_NewRef(earlier));
      continue;
    }
    nb::object base;
    if (recipe.is_of_result()) {
      base = nb::borrow(PyTuple_GET_ITEM(tuple.ptr(), recipe.view_of));
    } else if (recipe.argument >= 0) {
      base = nb::borrow(host.tensors()[static_cast<std::size_t>(recipe.argument)]);
    } else if (recipe.base.is_valid()) {
      base = give(recipe.base);
    }
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(r),
                     host.make(recipe, base).release().ptr());
  }
  watch.done(ReplayPart::results);
  return tuple;
}

int CudaGraphs::traverse(visitproc visit, void* arg) const {
  for (const Entry& entry : entries_) {
    for (const nb::object& copy : entry.copies) Py_VISIT(copy.ptr());
    for (const Capture& capture : entry.captures) {
      Py_VISIT(capture.graph.ptr());
      for (const ResultRecipe& recipe : capture.results) Py_VISIT(recipe.base.ptr());
    }
  }
  return 0;
}

void CudaGraphs::give_up(Entry& entry, std::string reason) {
  entry.captures.clear();
  entry.copies.clear();
  entry.values.clear();
  entry.is_hopeless = true;
  log(LogChannel::fallback, "calls are not captured: {}", reason);
  reason_ = std::move(reason);
}

nb::object CudaGraphs::report() const {
  return nb::make_tuple(recorded_, replayed_, nb::str(reason_.data(), reason_.size()));
}

}  // namespace inkle::python
