// A model that is compiled for a device, with its arguments there: what commands call.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/gpu_host.h"
#include "cli/host.h"
#include "driver/pipeline.h"
#include "runtime/common/executable.h"
#include "runtime/cuda/device.h"

namespace inkle::cli {

// "cpu" and "cpu:x86-64-v3" give none; "cuda" and "cuda:1", or "null:sm_90a", a GPU that runs
// nothing, for tests. UserError for other names; Unsupported, with the reason, where there is no
// such GPU.
[[nodiscard]] std::shared_ptr<runtime::cuda::Device> open_gpu(const std::string& name);

// The model of a command; of a package, what runs on the command's device.
[[nodiscard]] Model load_model_on(const CompileArguments& arguments);

// Puts all tensors of the graph on the device.
void move_to(graph::Graph& graph, abi::Device device);

// A compiler as a command's options ask for it.
struct DeviceCompiler {
  // Sets the number of threads; throws as open_gpu() does. Without `compiles` there is no compiler,
  // which takes milliseconds to make.
  explicit DeviceCompiler(const CompileArguments& arguments, bool compiles = true);
  // Where tensors lie.
  [[nodiscard]] abi::Device location() const;
  // With all tensors of the graph on the device. Throws as the compiler does.
  [[nodiscard]] driver::Compiled compile(graph::Graph graph) const;

  // A plan and its code, of a compiler or of a package, to be run there.
  [[nodiscard]] std::unique_ptr<runtime::common::Executable> load(
      const driver::Compiled& compiled) const;

  std::shared_ptr<runtime::cuda::Device> gpu;  // null: the processor
  std::unique_ptr<driver::Compiler> compiler;
  driver::CompileOptions options;
};

class Session {
 public:
  // Throws as DeviceCompiler does, and Unsupported naming the ops if some would need eager. A model
  // of a package is not compiled. `arguments` outlive this object.
  Session(const Model& model, const CompileArguments& options, const Arguments& arguments);
  // Of a program that `on` has compiled; throws as its loading does.
  Session(DeviceCompiler on, driver::Compiled compiled, const Arguments& arguments);

  [[nodiscard]] const driver::Compiled& compiled() const { return compiled_; }
  [[nodiscard]] runtime::common::Executable& executable() const { return *executable_; }
  [[nodiscard]] abi::DeviceDescription device() const;
  [[nodiscard]] bool is_on_gpu() const { return on_.gpu != nullptr; }

  // One call, to its end. Without `keep` results stay where they are.
  std::vector<PlainHost::Result> run(bool keep);
  [[nodiscard]] std::vector<double> run_profiled();

 private:
  void load(const Arguments& arguments);
  void upload(const Arguments& arguments);
  template <class Call>
  auto with_host(bool keep, Call&& call);

  DeviceCompiler on_;
  driver::Compiled compiled_;
  std::shared_ptr<const package::Package> package_;  // whose weights are to be checked
  std::unique_ptr<GpuMemory> arguments_memory_;
  std::unique_ptr<GpuMemory> memory_;
  std::unique_ptr<runtime::common::Executable> executable_;
  std::vector<abi::TensorView> views_;
  std::vector<std::int64_t> versions_;
  runtime::common::Call call_;
};

}  // namespace inkle::cli
