// A scheduled kernel as a function of an LLVM module.
#pragma once

#include <string>
#include <string_view>

#include "abi/target.h"
#include "codegen/cpu/ir.h"
#include "kernel/passes.h"
#include "schedule/kernel.h"

namespace inkle::codegen::cpu {

// What code is for: a row of the table, and LLVM's names of the processor and its features, which
// for the host at hand are more than the row says.
struct Processor {
  abi::Target target;
  std::string cpu;
  std::string features;
};

// What emit_kernel learns beside the code.
struct EmittedKernel {
  sym::Expr scratch_bytes;
  bool can_fail = false;
  std::string text;  // of the kernel IR that the code was printed from
};

// The function `name` of the kernel, into ir's module, by way of the kernel IR: loops are expanded,
// attention is written by a template. `called`: its name in the text; empty: no text.
EmittedKernel emit_kernel(Ir& ir, const schedule::Kernel& kernel,
                          const schedule::Schedule& schedule, const Processor& processor,
                          std::string_view name, std::string_view called,
                          const kernel::PassOptions& passes = {});

}  // namespace inkle::codegen::cpu
