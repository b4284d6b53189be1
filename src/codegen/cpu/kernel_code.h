// A scheduled kernel as a function of an LLVM module.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "codegen/cpu/ir.h"
#include "kernel/passes.h"
#include "schedule/kernel.h"

namespace inkle::codegen::cpu {

struct Target {
  std::int32_t vector_bytes = 32;
  // AVX-512 has twice as many as the sets before it.
  [[nodiscard]] std::int32_t vector_registers() const { return vector_bytes == 64 ? 32 : 16; }
  std::string cpu;
  std::string features;
};

// What emit_kernel learns beside the code.
struct EmittedKernel {
  sym::Expr scratch_bytes;
  bool can_fail = false;
};

// The function `name` of the kernel, into ir's module, by way of the kernel IR: loops are expanded,
// attention is written by a template.
EmittedKernel emit_kernel(Ir& ir, const schedule::Kernel& kernel,
                          const schedule::Schedule& schedule, const Target& target,
                          std::string_view name, const kernel::PassOptions& passes = {});

}  // namespace inkle::codegen::cpu
