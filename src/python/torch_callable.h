// A compiled program as Python calls it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python/torch_host.h"
#include "runtime/common/executable.h"

namespace inkle::python {

namespace nb = nanobind;

class CudaGraphs;

// A compiled program as Python calls it: one list of tensors and integers in, a tuple out.
class TorchCallable {
 public:
  // All that runs, runs on `device`. `targets`: Python callables for calls to eager, by number;
  // each takes the flat operands and returns a sequence of tensors. `as_strided(tensor, sizes,
  // strides, bytes_from_data, is_detached)` makes views of outputs.
  TorchCallable(std::unique_ptr<runtime::common::Executable> executable, abi::Device device,
                nb::list targets, nb::object as_strided);
  ~TorchCallable();
  TorchCallable(const TorchCallable&) = delete;
  TorchCallable& operator=(const TorchCallable&) = delete;

  // Position `i` of the list given to call() must be the object objects[i], whose contents the plan
  // holds, or is an argument of the plan where that is None. Where it is another, call() returns
  // otherwise(list), or throws WrongArgument if that is None.
  void set_frozen(const nb::list& objects, nb::object otherwise);
  // The fallback, for a call that fails before anything was written for a reason that is not the
  // caller's: otherwise(list, message, whether it is a fault of ours). None: the error
  // is raised.
  // `writes_in_eager`: calls to eager write to arguments.
  void set_fallback(nb::object otherwise, bool writes_in_eager) {
    fallback_ = std::move(otherwise);
    writes_arguments_ = writes_arguments_ || writes_in_eager;
  }

  // The garbage collector's: calls visit(object, argument) for each reference that this object
  // owns, and stops at what is not 0.
  int traverse(visitproc visit, void* argument) const;
  // Drops them all; a call raises from then on.
  void drop_references();

  // Throws WrongArgument if types, sizes or strides are not the plan's; OutOfRange, UserError; what
  // calls to eager raise.
  [[nodiscard]] nb::object call(const nb::list& arguments);
  // Microseconds of each step of one call.
  [[nodiscard]] std::vector<double> profile(const nb::list& arguments);
  // On a GPU: calls of the same shapes are captured once as a CUDA graph and then replayed; or not,
  // for a reason.
  void use_graphs(std::string why_not);
  // (shapes captured, calls replayed, why not), or nothing without CUDA graphs.
  [[nodiscard]] nb::object graph_report() const;
  // For benchmarks: calls, and gives (part, microseconds) of what a replay consists of. Throws
  // UserError if the call was none, WrongArgument where it holds other frozen weights.
  [[nodiscard]] std::vector<std::pair<std::string, double>> time_replay(const nb::list& arguments);
  // The program as bytes, of which Compiler.restore() makes another; empty if it cannot be kept.
  std::function<std::vector<std::byte>()> store;
  bool is_small = false;  // enough to be kept in caches
  // For tests: each call fails.
  bool fails = false;
  // Donates arguments: a call takes the tensors out of the caller's list, and on a GPU frees each
  // after its last use, unless others hold it. After that there is no fallback.
  bool donates_arguments = false;

  // By result: the earlier one that is the very same tensor, -1 where none is; [] for none.
  void set_repeats(std::vector<std::int32_t> repeats) { context_.repeats = std::move(repeats); }
  // By result, what it is a view of to autograd: kOfItsMemory (what made that, or an argument),
  // kOfNothing, or an earlier result; [] for the first of all. `apart`: results that are not what
  // made their memory, in ascending order.
  void set_views(std::vector<std::int32_t> view_of, std::vector<std::uint32_t> apart) {
    context_.view_of = std::move(view_of);
    context_.apart = std::move(apart);
  }
  // Integer results that are bools in Python, in ascending order.
  void set_conditions(std::vector<std::uint32_t> results) {
    context_.conditions = std::move(results);
  }

  [[nodiscard]] const abi::Plan& plan() const { return *plan_; }
  [[nodiscard]] abi::Device device() const { return context_.device; }
  [[nodiscard]] const runtime::common::Executable& executable() const { return *executable_; }

 private:
  template <class Run>
  nb::object run(const nb::list& arguments, bool is_call, Run&& run);
  nb::object call_observed(const nb::list& arguments, runtime::common::StepObserver* observer);
  // Throws WrongArgument.
  void check_length(const nb::list& arguments) const;
  [[nodiscard]] bool is_frozen_as(const nb::list& arguments) const;
  std::unique_ptr<TorchHost> take_host();

  std::unique_ptr<runtime::common::Executable> executable_;
  const abi::Plan* plan_;
  HostContext context_;
  nb::object otherwise_;
  nb::object fallback_;
  static constexpr std::size_t kDropped = std::numeric_limits<std::size_t>::max();
  std::size_t list_size_ = 0;       // of the caller's list; kDropped: no call is possible any more
  std::vector<nb::object> frozen_;  // by position in the caller's list; null: none
  bool writes_arguments_ = false;
  std::vector<std::unique_ptr<TorchHost>> idle_;  // guarded by the interpreter's lock
  std::unique_ptr<CudaGraphs> graphs_;
  std::string why_no_graphs_;
};

}  // namespace inkle::python
