// The host of a plan under torch: reads tensors through torch's DLPack exchange table, lets torch
// allocate results, and runs what was left to eager by calling Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "python/dlpack.h"
#include "runtime/cpu/executor.h"
#include "runtime/cpu/host.h"

namespace inkle::python {

namespace nb = nanobind;

// torch.Tensor's exchange table; looked up once. Throws Unsupported if torch is too old to have it.
[[nodiscard]] const dlpack::ExchangeApi& exchange_api();

// A compiled program as Python calls it: one list of tensors and integers in, a tuple out.
class TorchCallable {
 public:
  // `targets`: Python callables for calls to eager, by number; each takes the flat operands and
  // returns a sequence of tensors. `as_strided(tensor, sizes, strides, bytes_from_data)` makes
  // views of outputs.
  TorchCallable(std::shared_ptr<const abi::Plan> plan, nb::list targets, nb::object as_strided);

  [[nodiscard]] nb::tuple call(const nb::list& arguments);
  [[nodiscard]] std::vector<double> profile(const nb::list& arguments);
  [[nodiscard]] const abi::Plan& plan() const { return executable_.plan(); }
  [[nodiscard]] const runtime::cpu::Executable& executable() const { return executable_; }

 private:
  friend class TorchHost;
  template <class Run>
  nb::tuple run(const nb::list& arguments, Run&& run);
  [[nodiscard]] std::vector<std::int64_t> versions_of(std::span<PyObject* const> tensors);

  std::shared_ptr<const abi::Plan> plan_;
  runtime::cpu::Executable executable_;
  nb::list targets_;
  nb::object as_strided_;
  std::vector<bool> is_integer_;
  std::vector<bool> is_unversioned_;  // by watched tensor; under the GIL
};

}  // namespace inkle::python
