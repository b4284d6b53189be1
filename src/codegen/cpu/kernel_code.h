// A scheduled kernel as a function of an LLVM module.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/cpu/ir.h"
#include "codegen/cpu/size_values.h"
#include "schedule/kernel.h"

namespace inkle::codegen::cpu {

struct Target {
  std::int32_t vector_bytes = 32;
  std::string cpu;
  std::string features;
};

// What emit_kernel learns beside the code.
struct EmittedKernel {
  sym::Expr scratch_bytes;
  bool can_fail = false;
};

// The function `name` of the kernel, into ir's module: loop kernels by way of the kernel IR.
EmittedKernel emit_kernel(Ir& ir, const schedule::Kernel& kernel,
                          const schedule::Schedule& schedule, const Target& target,
                          std::string_view name);

// What the files of attention share.
struct KernelCode {
  Ir& ir;
  const schedule::Kernel& kernel;
  const schedule::Schedule& schedule;
  const Target& target;
  Values params;  // base addresses
  SizeValues sizes;
};
EmittedKernel emit_attention(KernelCode& code, const schedule::AttentionKernel& attention,
                             const Values& arguments);

}  // namespace inkle::codegen::cpu
