#include "python/cuda_graphs.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "python/torch_tensor.h"

namespace inkle::python {
namespace {

// Sets of shapes that are kept recorded; the least recently used goes first.
constexpr std::size_t kMostShapes = 16;
// After so many recordings of one set of shapes, as addresses kept changing, calls run as usual.
constexpr int kMostRecordings = 8;

}  // namespace

CudaGraphs::CudaGraphs(runtime::common::Executable& executable, const HostContext& context)
    : executable_(executable), context_(context) {
  const abi::Plan& plan = *context.plan;
  std::vector<std::size_t> number(plan.arguments.size(), 0);
  for (std::size_t a = 0; a < plan.arguments.size(); ++a) {
    number[a] = is_parameter_.size();
    if (!plan.arguments[a].is_integer) is_parameter_.push_back(plan.arguments[a].is_parameter);
  }
  is_written_.assign(is_parameter_.size(), false);
  for (const abi::BufferDecl& b : plan.buffers) {
    const abi::BufferDecl* root = &b;
    while (root->kind == abi::BufferDecl::Kind::alias) root = &plan.buffers[root->index];
    if (root != &b && root->kind == abi::BufferDecl::Kind::argument) {
      is_written_[number[root->index]] = true;
    }
  }
  reason_ = executable_.why_not_recorded();
}

CudaGraphs::Entry* CudaGraphs::find(TorchHost& host, bool& is_new) {
  key_.clear();
  key_.push_back(reinterpret_cast<std::intptr_t>(host.stream()));
  key_.insert(key_.end(), host.integers().begin(), host.integers().end());
  for (const abi::TensorView& v : host.views()) {
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

nb::object CudaGraphs::call(TorchHost& host, const nb::list& arguments) {
  if (!reason_.empty() && recorded_ == 0) return {};
  bool is_new = false;
  Entry& entry = *find(host, is_new);
  if (is_new || entry.is_hopeless) return {};  // a first call warms up what measures and loads
  if (!entry.graph.is_valid() || has_moved(entry, host.views())) {
    if (entry.recordings == kMostRecordings) {
      give_up(entry, "inputs that cannot be copied keep moving");
      return {};
    }
    record(entry, host, arguments);
    if (entry.is_hopeless) return {};
  }
  executable_.throw_failures();
  // Changed weights are prepared by a usual call, into the memory that the recording reads.
  if (!executable_.is_prepared(host.call_data())) return {};
  return replay(entry, host);
}

void CudaGraphs::record(Entry& entry, const TorchHost& host, const nb::list& arguments) {
  const auto views = host.views();
  ++entry.recordings;
  entry.copies.resize(views.size());
  for (std::size_t i = 0; i < views.size() && !entry.addresses.empty(); ++i) {
    const bool has_moved = !entry.copies[i].is_valid() && views[i].data != entry.addresses[i];
    if (!has_moved || is_parameter_[i] || is_written_[i]) continue;
    const abi::TensorView& v = views[i];
    const auto rank = static_cast<std::size_t>(v.rank);
    entry.copies[i] = nb::borrow(host.tensors()[i]).attr("clone")();
    const abi::TensorView made = borrow(entry.copies[i].ptr());
    if (!std::equal(v.strides, v.strides + rank, made.strides)) {
      give_up(entry, "an input with gaps in memory moves");
      return;
    }
  }
  entry.addresses.clear();
  for (const abi::TensorView& v : views) entry.addresses.push_back(v.data);
  entry.graph = {};
  entry.results.clear();
  TorchHost recorder(context_);
  try {
    recorder.read(arguments);
    recorder.record_results();
    for (std::size_t i = 0; i < entry.copies.size(); ++i) {
      if (entry.copies[i].is_valid()) recorder.replace(i, entry.copies[i]);
    }
    const nb::object run = nb::cpp_function([&] {
      try {
        executable_.run(recorder.call_data());
      } catch (...) {
        recorder.end_steps();
        throw;
      }
    });
    entry.graph = nb::module_::import_("inkle.cuda_graphs")
                      .attr("capture")(run, context_.device.index,
                                       reinterpret_cast<std::intptr_t>(recorder.stream()));
    entry.results = recorder.take_recipes();
    ++recorded_;
  } catch (nb::python_error& error) {
    recorder.end_steps();
    give_up(entry, error.what());
  }
}

nb::object CudaGraphs::replay(Entry& entry, const TorchHost& host) {
  for (std::size_t i = 0; i < entry.copies.size(); ++i) {
    if (entry.copies[i].is_valid()) {
      entry.copies[i].attr("copy_")(nb::borrow(host.tensors()[i]));
    }
  }
  entry.graph.attr("replay")();
  ++replayed_;
  // Each tensor that results are views of is copied once.
  std::vector<std::pair<PyObject*, nb::object>> fresh;
  const auto copy_of = [&](const nb::object& base) {
    for (const auto& [known, copy] : fresh) {
      if (known == base.ptr()) return copy;
    }
    fresh.emplace_back(base.ptr(), base.attr("clone")());
    return fresh.back().second;
  };
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(entry.results.size())));
  if (!tuple.is_valid()) throw nb::python_error();
  for (std::size_t r = 0; r < entry.results.size(); ++r) {
    const ResultRecipe& recipe = entry.results[r];
    nb::object base;
    if (recipe.argument >= 0) {
      base = nb::borrow(host.tensors()[static_cast<std::size_t>(recipe.argument)]);
    } else if (recipe.base.is_valid()) {
      base = copy_of(recipe.base);
    }
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(r),
                     host.make(recipe, base).release().ptr());
  }
  return tuple;
}

void CudaGraphs::give_up(Entry& entry, std::string reason) {
  entry.graph = {};
  entry.results.clear();
  entry.copies.clear();
  entry.is_hopeless = true;
  log(LogChannel::fallback, "calls are not recorded: {}", reason);
  reason_ = std::move(reason);
}

nb::object CudaGraphs::report() const {
  return nb::make_tuple(recorded_, replayed_, nb::str(reason_.data(), reason_.size()));
}

}  // namespace inkle::python
