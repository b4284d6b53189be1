// Kernels to machine code of the host, in process.
//
//   CpuCompiler compiler(TargetOptions::from_environment());
//   auto compiled = compiler.compile({{&kernel, schedule}}, context);
//   compiled[0].function(buffers, sizes, scratch, 0, extent);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "abi/code.h"
#include "abi/device.h"
#include "abi/plan.h"
#include "abi/target.h"
#include "kernel/passes.h"
#include "schedule/kernel.h"

namespace inkle::codegen::cpu {

struct TargetOptions {
  // Bytes of a vector register: 64 (AVX-512), 32 (AVX2) or 0 (the widest that the host has); more
  // than the host has throws UserError.
  std::int32_t vector_bytes = 0;
  // The device, for which code is then made as its row says; null: by the fields around this one.
  const abi::Target* row = nullptr;
  // "x86-64-v3", "x86-64-v4" or "x86-64-v4+amx": code for every processor that has this instruction
  // set, with its widest vectors; empty: for the host. UserError for another.
  std::string instruction_set = {};
  // Effort of instruction selection, 0 to 3.
  std::int32_t optimization = 2;

  // What computes matrix products; nullopt: what the device's row names.
  std::optional<abi::GemmSource> gemm;

  // INKLE_ISA=avx2 or avx512 sets vector_bytes.
  [[nodiscard]] static TargetOptions from_environment();
};

struct CompileUnit {
  const schedule::Kernel* kernel = nullptr;
  schedule::Schedule schedule;
  std::string name = {};  // for debuggers and profilers; the object does not have it
};

struct CompileOptions {
  bool keep_ir = false;        // fill CompiledKernel::ir
  bool keep_assembly = false;  // fill CompiledKernel::assembly
  bool only_text = false;      // LLVM IR and no machine code
  kernel::PassOptions passes = {};
};

struct CompiledKernel {
  abi::KernelFunction function = nullptr;  // null where runs_here() is false
  // Bytes of scratch that a thread needs, kStatusBytes included; in terms of the kernel's sizes.
  sym::Expr scratch_bytes;
  // Whether the kernel may set the status word of its scratch.
  bool can_fail = false;
  // Object file of the kernel, for image::link().
  std::shared_ptr<const std::vector<std::byte>> object;
  // Keeps `function` valid.
  std::shared_ptr<void> code;
  std::string text;  // of the kernel IR that the code was printed from
  std::string ir;    // LLVM IR
  std::string assembly;
  double emit_seconds = 0;     // kernel to LLVM IR
  double compile_seconds = 0;  // LLVM IR to an object file
};

class CpuCompiler {
 public:
  explicit CpuCompiler(TargetOptions options);
  ~CpuCompiler();
  CpuCompiler(const CpuCompiler&) = delete;
  CpuCompiler& operator=(const CpuCompiler&) = delete;

  // In the order of the units. Uses several threads. A kernel that this generator does not support
  // throws Unsupported; the caller may try the others by themselves. Kernels' expressions must
  // belong to one Context, which is used by the calling thread only.
  [[nodiscard]] std::vector<CompiledKernel> compile(std::span<const CompileUnit> units,
                                                    const CompileOptions& options = {});

  // What schedules may know of the host under these options: vector width, registers, threads,
  // caches. bytes_per_second and flops_f32 are rough figures by width, not measured here.
  [[nodiscard]] const abi::DeviceDescription& device() const { return device_; }
  // The row that code is made for.
  [[nodiscard]] const abi::Target& row() const;
  // Processor and features that objects need, e.g. for a cache key.
  [[nodiscard]] const std::string& target() const { return target_; }
  // Whether the host has the instruction set that was asked for. If not, kernels are object files
  // that are not loaded.
  [[nodiscard]] bool runs_here() const { return runs_here_; }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  abi::DeviceDescription device_;
  std::string target_;
  bool runs_here_ = true;
};

}  // namespace inkle::codegen::cpu
