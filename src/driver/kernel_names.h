// The name of a generated kernel: words of what it does, and eight hexadecimal digits of the hash
// of its text.
//
//   label softmax+softmax+softmax   softmax_1a2b3c4d
//   label matmul+gelu, a template   gemm_gelu_90ab12cd
//
// Plans, reports, machine code, debuggers and profilers know a kernel by it. It depends on nothing
// but label and text: not on the process, nor on where in which program the kernel stands.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "schedule/kernel.h"

namespace inkle::driver {

// What kernels that are alike have in common, and what their code depends on but for the machine.
[[nodiscard]] std::string text_of(const schedule::Kernel& kernel,
                                  const schedule::Schedule& schedule, bool keeps_functions = false);

// Of the kernels of one module or plan.
class KernelNames {
 public:
  // A C identifier that no other kernel was given. Each text is asked for once. `label`: the names
  // of the ops that the kernel computes, as schedule::Step has it.
  [[nodiscard]] std::string name(const schedule::Kernel& kernel, std::string_view label,
                                 std::string_view text);

 private:
  std::set<std::string, std::less<>> given_;
};

}  // namespace inkle::driver
