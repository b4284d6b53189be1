// A program of a package, as its users see it: inputs, outputs and weights by name, calls from any
// thread. What the C API and the Python module share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "capi/results.h"
#include "capi/weights.h"
#include "package/package.h"
#include "runtime/cpu/executor.h"

namespace inkle::capi {

struct Declared {
  std::string name;
  Kind kind = Kind::tensor;
  abi::DType dtype = abi::DType::f32;
  // By dimension, both included; INT64_MAX: unbounded as far as can be told before a call.
  std::vector<std::int64_t> least, most;
  bool is_written = false;
  std::uint32_t argument = 0;  // of the plan; not of an output
};

class Program {
 public:
  // Throws as Package::open does, and Unsupported for a plan that this runtime does not run.
  explicit Program(std::shared_ptr<const package::Package> package);

  [[nodiscard]] const std::string& target() const { return package_->target(); }
  [[nodiscard]] const std::vector<Declared>& inputs() const { return inputs_; }
  [[nodiscard]] const std::vector<Declared>& outputs() const { return outputs_; }
  [[nodiscard]] const std::vector<Declared>& weights() const { return weights_; }

  // Thread-safe, each with results of its own. Throws WrongArgument, OutOfRange, OutOfMemory,
  // BadFile and UserError; results are empty then.
  void run(std::span<const Value> inputs, Results& results);

  // Null if there are none yet.
  [[nodiscard]] std::shared_ptr<const WeightSet> weight_set() const;
  // For calls that begin later. Throws WrongArgument and leaves things as they were.
  void set_weights(std::shared_ptr<const WeightSet> set);
  // The weights in use; throws BadFile if one is damaged.
  void check() const;

 private:
  void declare();
  [[nodiscard]] Declared declared(const abi::PlanArgument& argument, std::uint32_t number) const;
  void bound(abi::Slot slot, std::int64_t& least, std::int64_t& most) const;
  [[nodiscard]] std::shared_ptr<BoundWeights> bound_weights() const;
  void place(std::span<const Value> inputs, Results& results) const;
  void place_input(const Declared& input, const Value& given, std::size_t number,
                   Results& results) const;
  void lay_out(std::span<const Value> inputs, Results& results) const;
  void run_with(std::span<const Value> inputs, BoundWeights* weights, Results& results);

  std::shared_ptr<const package::Package> package_;
  const abi::Plan& plan_;
  runtime::common::SizeProgram sizes_;
  runtime::cpu::Executable executable_;
  std::vector<Declared> inputs_, outputs_, weights_;
  std::vector<std::uint32_t> parameters_;  // arguments
  std::vector<std::size_t> tensor_of_;     // by argument: number among the tensors
  std::size_t tensor_count_ = 0;
  std::int64_t number_;  // of this program in the process

  mutable std::mutex mutex_;
  std::shared_ptr<BoundWeights> bound_;  // under the mutex
};

}  // namespace inkle::capi
