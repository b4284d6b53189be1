// The host of a plan under torch: reads tensors through torch's DLPack exchange table, lets torch
// allocate results, and runs what was left to eager by calling Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/common/executable.h"
#include "runtime/common/host.h"

namespace inkle::python {

namespace nb = nanobind;

class TorchHost;

// A compiled program as Python calls it: one list of tensors and integers in, a tuple out.
class TorchCallable {
 public:
  // `targets`: Python callables for calls to eager, by number; each takes the flat operands and
  // returns a sequence of tensors. `as_strided(tensor, sizes, strides, bytes_from_data)` makes
  // views of outputs.
  // All that runs, runs on `device`.
  TorchCallable(std::unique_ptr<runtime::common::Executable> executable, abi::Device device,
                nb::list targets, nb::object as_strided);
  ~TorchCallable();
  TorchCallable(const TorchCallable&) = delete;
  TorchCallable& operator=(const TorchCallable&) = delete;

  // Position `i` of the list given to call() must be the object objects[i], whose contents the plan
  // holds, or is an argument of the plan where that is None. Where it is another, call() returns
  // otherwise(list).
  void set_frozen(const nb::list& objects, nb::object otherwise);
  // What runs, and gives the result, when a call fails for a reason that is not the caller's before
  // anything was written: otherwise(list, message). None: the error is raised.
  void set_fallback(nb::object otherwise) { fallback_ = std::move(otherwise); }

  // Throws WrongArgument if types, sizes or strides are not the plan's; OutOfRange, UserError; what
  // calls to eager raise.
  [[nodiscard]] nb::object call(const nb::list& arguments);
  // Microseconds of each step of one call.
  [[nodiscard]] std::vector<double> profile(const nb::list& arguments);
  // For tests: each call fails.
  bool fails = false;

  [[nodiscard]] const abi::Plan& plan() const { return *plan_; }
  [[nodiscard]] const runtime::common::Executable& executable() const { return *executable_; }

 private:
  friend class TorchHost;
  template <class Run>
  nb::object run(const nb::list& arguments, Run&& run);
  [[nodiscard]] bool is_frozen_as(const nb::list& arguments) const;
  std::unique_ptr<TorchHost> take_host();

  std::unique_ptr<runtime::common::Executable> executable_;
  const abi::Plan* plan_;
  abi::Device device_;
  nb::list targets_;
  nb::object as_strided_;
  nb::object otherwise_;
  nb::object fallback_;
  std::vector<bool> is_integer_;          // by argument of the plan
  std::vector<std::uint32_t> positions_;  // by argument of the plan: in the caller's list
  std::size_t list_size_ = 0;             // of the caller's list
  std::vector<nb::object> frozen_;        // by position in the caller's list; null: none
  bool writes_arguments_ = false;
  std::vector<std::unique_ptr<TorchHost>> idle_;  // guarded by the interpreter's lock
};

}  // namespace inkle::python
