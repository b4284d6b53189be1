// Kernels to machine code of a CUDA device: readable CUDA C++ without headers, compiled by NVRTC.
// Needs no GPU and no driver; NVRTC is looked for when the first kernel is compiled.
//
//   CudaCompiler compiler(device);
//   Compiled compiled = compiler.compile({{&kernel, schedule}});
//   // load compiled.images, launch compiled.kernels[0].kernel over compiled.kernels[0].blocks
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi/code.h"
#include "abi/device.h"
#include "abi/plan.h"
#include "abi/target.h"
#include "kernel/passes.h"
#include "schedule/kernel.h"

namespace inkle::codegen::cuda {

struct CompileUnit {
  const schedule::Kernel* kernel = nullptr;
  schedule::Schedule schedule;  // with `blocks`
  std::string name;             // of the function; letters, digits and underscores, unique
};

struct CompiledKernel {
  abi::DeviceKernel kernel;                   // its image counts in Compiled::images
  sym::Expr blocks;                           // of the grid, in terms of the kernel's sizes
  sym::Expr workspace_bytes;                  // constant 0: none
  std::shared_ptr<const std::string> source;  // text of the function
  std::string text;                           // of the kernel IR that it was printed from
};

struct Compiled {
  std::vector<CompiledKernel> kernels;  // in the order of the units
  std::vector<abi::DeviceImage> images;
  double emit_seconds = 0;     // kernels to text
  double compile_seconds = 0;  // text to machine code, wall time
};

class CudaCompiler {
 public:
  // `device.architecture` says what code is made for, e.g. "sm_90a".
  explicit CudaCompiler(abi::DeviceDescription device);
  ~CudaCompiler();
  CudaCompiler(const CudaCompiler&) = delete;
  CudaCompiler& operator=(const CudaCompiler&) = delete;

  // Throws Unsupported if this generator does not support a kernel or if no NVRTC is found,
  // InternalError with NVRTC's log and the path of the text if that does not compile. Programs are
  // compiled on several threads. Kernels' expressions are used by the calling thread only.
  // `only_text`: nothing is compiled, and images are empty.
  [[nodiscard]] Compiled compile(std::span<const CompileUnit> units, bool only_text = false,
                                 const kernel::PassOptions& passes = {}) const;

  // Opens NVRTC and compiles the helpers alone, which the first program would wait for; any thread.
  void warm_up() const noexcept;

  // The text of one kernel alone, without the helpers that all share.
  [[nodiscard]] std::string source(const CompileUnit& unit) const;

  [[nodiscard]] const abi::DeviceDescription& device() const { return device_; }

 private:
  abi::DeviceDescription device_;
  abi::Target target_;  // the device's row, with its figures
};

// Path of the NVRTC that is used, or nothing and the reason.
[[nodiscard]] std::optional<std::string> find_nvrtc(std::string& why_not);
// Its version, "13.0"; empty if there is none.
[[nodiscard]] std::string nvrtc_version();

}  // namespace inkle::codegen::cuda
