#include "python/torch_callable.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "python/cuda_graphs.h"
#include "python/made_once.h"
#include "python/profiler.h"
#include "runtime/common/errors.h"

namespace inkle::python {

using runtime::common::OutOfRange;
using runtime::common::WrongArgument;

namespace {
constexpr const char* kOtherWeights = ": given other weights than it was compiled for";

// What a fallback returns, with results that are the very same tensor as earlier ones.
nb::object with_repeats(nb::object results, const std::vector<std::int32_t>& repeats) {
  nb::list list;
  if (!nb::try_cast(results, list)) return results;
  for (std::size_t i = 0; i < std::min(repeats.size(), nb::len(list)); ++i) {
    if (repeats[i] >= 0) list[i] = list[static_cast<std::size_t>(repeats[i])];
  }
  return results;
}

}  // namespace

TorchCallable::TorchCallable(std::unique_ptr<runtime::common::Executable> executable,
                             abi::Device device, nb::list targets, nb::object as_strided)
    : executable_(std::move(executable)),
      plan_(&executable_->plan()),
      context_{.plan = plan_,
               .watched = executable_->watched(),
               .device = device,
               .targets = std::move(targets),
               .as_strided = std::move(as_strided)},
      otherwise_(nb::none()),
      fallback_(nb::none()) {
  for (const abi::PlanArgument& a : plan_->arguments) {
    const auto position = static_cast<std::uint32_t>(context_.arguments.size());
    context_.arguments.push_back({position, a.is_integer, a.is_parameter});
    writes_arguments_ = writes_arguments_ || a.is_written;
  }
  list_size_ = context_.arguments.size();
}

TorchCallable::~TorchCallable() = default;

void TorchCallable::set_frozen(const nb::list& objects, nb::object otherwise) {
  std::vector<std::uint32_t> positions;
  std::vector<nb::object> frozen;
  for (std::size_t i = 0; i < nb::len(objects); ++i) {
    nb::object object = objects[i];
    if (object.is_none()) {
      positions.push_back(static_cast<std::uint32_t>(i));
      object.reset();
    }
    frozen.push_back(std::move(object));
  }
  if (positions.size() != context_.arguments.size()) {
    throw InternalError("frozen arguments and those of the plan do not add up");
  }
  for (std::size_t a = 0; a < positions.size(); ++a) context_.arguments[a].position = positions[a];
  list_size_ = frozen.size();
  frozen_.swap(frozen);
  std::swap(otherwise_, otherwise);
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

// What a host owns it owns during a call, which keeps this object alive.
int TorchCallable::traverse(visitproc visit, void* arg) const {
  Py_VISIT(context_.targets.ptr());
  Py_VISIT(context_.as_strided.ptr());
  Py_VISIT(otherwise_.ptr());
  Py_VISIT(fallback_.ptr());
  for (const nb::object& object : frozen_) Py_VISIT(object.ptr());
  return graphs_ ? graphs_->traverse(visit, arg) : 0;
}

void TorchCallable::drop_references() {
  list_size_ = kDropped;
  // Destructors may call this object again, so it is made consistent before anything is destroyed.
  const std::vector<nb::object> frozen = std::exchange(frozen_, {});
  const nb::object otherwise = std::exchange(otherwise_, nb::none());
  const nb::object fallback = std::exchange(fallback_, nb::none());
  const nb::object as_strided = std::exchange(context_.as_strided, nb::none());
  const nb::object targets = std::move(context_.targets);
  const std::unique_ptr<CudaGraphs> graphs = std::move(graphs_);
}

void TorchCallable::check_length(const nb::list& arguments) const {
  if (nb::len(arguments) == list_size_) return;
  if (list_size_ == kDropped) throw InternalError("a program is called after it was cleared");
  throw WrongArgument(fmt::format("{} takes {} arguments, {} were given", plan_->name, list_size_,
                                  nb::len(arguments)));
}

std::unique_ptr<TorchHost> TorchCallable::take_host() {
  if (idle_.empty()) return std::make_unique<TorchHost>(context_);
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
    static constinit MadeOnce<const Functions> found;
    const Functions& functions = found.get([] { return std::make_unique<const Functions>(); });
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
    nb::object exchange = nb::module_::import_("torch._C").attr("_cuda_exchangeDevice");
    bool is_single =
        nb::cast<int>(nb::module_::import_("torch").attr("cuda").attr("device_count")()) == 1;
  };
  const Functions* functions_ = nullptr;
  int before_ = 0;
};

}  // namespace

template <class Run>
nb::object TorchCallable::run(const nb::list& arguments, bool is_call, Run&& run) {
  check_length(arguments);
  if (!frozen_.empty() && !is_frozen_as(arguments)) {
    if (otherwise_.is_none()) throw WrongArgument(plan_->name + kOtherWeights);
    return otherwise_(arguments);
  }
  std::unique_ptr<TorchHost> host = take_host();
  std::string failure;
  bool is_fault = true;
  try {
    const CurrentDevice current(context_.device);
    if (fails) throw InternalError("made to fail by option fail_stage");
    host->read(arguments, is_call && graphs_ != nullptr);
    host->read_versions();
    if (donates_arguments && is_call) host->take_over(arguments);
    nb::object result = run(*host);
    host->clear();
    idle_.push_back(std::move(host));
    return result;
  } catch (const WrongArgument& error) {
    // Torch guards what users pass; a backward gets what the forward saved, which torch may have
    // foreseen wrong.
    if (fallback_.is_none() || host->has_begun() || !host->give_back(arguments)) throw;
    failure = error.what();
    is_fault = false;
  } catch (const OutOfRange&) {
    throw;
  } catch (const Error& error) {
    const bool is_untouched = !host->has_begun() || !writes_arguments_;
    const bool is_callers = host->has_begun() && dynamic_cast<const UserError*>(&error) != nullptr;
    if (fallback_.is_none() || !is_untouched || is_callers || !host->give_back(arguments)) throw;
    failure = error.what();
    // Sizes that overflow or that the program was not compiled for are no faults.
    is_fault = dynamic_cast<const InternalError*>(&error) != nullptr;
  }
  host.reset();
  nb::object result = fallback_(arguments, nb::str(failure.data(), failure.size()), is_fault);
  return with_repeats(std::move(result), context_.repeats);
}

nb::object TorchCallable::call(const nb::list& arguments) {
  if (is_profiled()) [[unlikely]] {
    const ProfilerEvent event("inkle::" + plan_->name);
    StepEvents steps(*plan_);
    return call_observed(arguments, &steps);
  }
  return call_observed(arguments, nullptr);
}

nb::object TorchCallable::call_observed(const nb::list& arguments,
                                        runtime::common::StepObserver* observer) {
  return run(arguments, true, [&](TorchHost& host) {
    if (graphs_) {
      NoWatch watch;
      nb::object result = graphs_->call(host, arguments, watch);
      if (result.is_valid()) return result;
      host.read_rest();
    }
    host.observe(observer);
    host.run(*executable_);
    return host.take();
  });
}

void TorchCallable::use_graphs(std::string why_not) {
  if (context_.device.kind != abi::DeviceKind::cuda) return;
  why_no_graphs_ = std::move(why_not);
  if (why_no_graphs_.empty()) {
    graphs_ = std::make_unique<CudaGraphs>(*executable_, context_);
  } else {
    log(LogChannel::fallback, "{}: calls are not captured: {}", plan_->name, why_no_graphs_);
  }
}

nb::object TorchCallable::graph_report() const {
  if (graphs_) return graphs_->report();
  if (why_no_graphs_.empty()) return nb::none();
  return nb::make_tuple(0, 0, nb::str(why_no_graphs_.data(), why_no_graphs_.size()));
}

std::vector<std::pair<std::string, double>> TorchCallable::time_replay(const nb::list& arguments) {
  if (!graphs_) user_error("{}: its calls are not captured: {}", plan_->name, why_no_graphs_);
  check_length(arguments);
  if (!is_frozen_as(arguments)) throw WrongArgument(plan_->name + kOtherWeights);
  const CurrentDevice current(context_.device);
  const std::unique_ptr<TorchHost> host = take_host();
  Watch watch;
  host->read(arguments, true);
  watch.done(ReplayPart::read);
  host->read_versions();
  watch.done(ReplayPart::versions);
  const nb::object result = graphs_->call(*host, arguments, watch);
  if (!result.is_valid()) user_error("{}: this call is not replayed", plan_->name);
  std::vector<std::pair<std::string, double>> times;
  for (std::size_t p = 0; p < kReplayParts.size(); ++p) {
    times.emplace_back(kReplayParts[p], watch.microseconds()[p]);
  }
  return times;
}

std::vector<double> TorchCallable::profile(const nb::list& arguments) {
  std::vector<double> times;
  (void)run(arguments, false, [&](TorchHost& host) {
    times = host.run_profiled(*executable_);
    return host.take();
  });
  return times;
}

}  // namespace inkle::python
