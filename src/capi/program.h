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
#include <string_view>
#include <vector>

#include "capi/results.h"
#include "capi/weights.h"
#include "package/package.h"
#include "runtime/common/executable.h"
#include "runtime/common/size_program.h"
#include "runtime/cuda/device.h"

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

// What a program runs on.
struct ProgramDevice {
  // "cpu", "cuda", "cuda:1" and the like. Throws WrongArgument for other names, Unsupported, with
  // the reason, where there is no such GPU.
  [[nodiscard]] static ProgramDevice named(std::string_view name);
  // What Package::open takes.
  [[nodiscard]] std::string_view architecture() const {
    return gpu == nullptr ? std::string_view() : gpu->description().architecture;
  }

  std::string name = "cpu";
  std::shared_ptr<runtime::cuda::Device> gpu;  // null: the processor
};

class Program {
 public:
  // `package` was opened for the device. Throws as Package::open does, and Unsupported for a plan
  // that this runtime does not run.
  explicit Program(std::shared_ptr<const package::Package> package, ProgramDevice device = {});

  [[nodiscard]] const std::string& target() const { return package_->target(); }
  [[nodiscard]] const ProgramDevice& device() const { return device_; }
  [[nodiscard]] const std::vector<Declared>& inputs() const { return inputs_; }
  [[nodiscard]] const std::vector<Declared>& outputs() const { return outputs_; }
  [[nodiscard]] const std::vector<Declared>& weights() const { return weights_; }

  // Thread-safe, each with results of its own. Throws WrongArgument, OutOfRange, OutOfMemory,
  // BadFile and UserError; results are empty then. Results lie in memory of the host, whatever the
  // place, and are there.
  void run(std::span<const Value> inputs, Results& results);
  // On a GPU: the same, queued on a stream of the caller's. Results lie on the GPU, and are there
  // for what the stream does next; what kernels meet is told by Results::wait(). Memory of inputs
  // stays until then.
  void run_on(runtime::cuda::Stream stream, std::span<const Value> inputs, Results& results);

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
  void check_device(const Declared& input, const abi::TensorView& view) const;
  void lay_out(std::span<const Value> inputs, Results& results) const;
  void run_bound(runtime::cuda::Stream stream, std::span<const Value> inputs, Results& results);
  void run_with(runtime::cuda::Stream stream, std::span<const Value> inputs, BoundWeights* weights,
                Results& results);
  void call(Results& results, runtime::common::Host& host);
  void call_on_gpu(std::span<const Value> inputs, Results& results);

  std::shared_ptr<const package::Package> package_;
  ProgramDevice device_;
  abi::PlanAndCode made_;
  const abi::Plan& plan_;
  runtime::common::SizeProgram sizes_;
  std::shared_ptr<runtime::common::Executable> executable_;
  std::shared_ptr<DeviceMemory> memory_;  // of a GPU
  std::vector<Declared> inputs_, outputs_, weights_;
  std::vector<std::uint32_t> parameters_;  // arguments
  std::vector<std::size_t> tensor_of_;     // by argument: number among the tensors
  std::size_t tensor_count_ = 0;
  std::int64_t number_;  // of this program in the process

  mutable std::mutex mutex_;
  std::shared_ptr<BoundWeights> bound_;  // under the mutex
};

}  // namespace inkle::capi
