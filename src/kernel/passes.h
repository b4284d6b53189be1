// The passes over kernels: tables of names and functions, and the runner, which can verify, dump,
// skip and stop after each.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/kernel.h"

namespace inkle::kernel {

struct KernelPass {
  std::string_view name;
  void (*function)(Kernel& kernel, sym::Context& context) = nullptr;
  std::string_view doc;
  bool required = false;  // the printer counts on it
};

// What runs between the expansion of a schedule and the printer of a CPU, in order.
[[nodiscard]] std::span<const KernelPass> cpu_passes();
// The same for a GPU.
[[nodiscard]] std::span<const KernelPass> gpu_passes();

// For tests: the pass of this name fails, by throwing InternalError, by leaving a kernel in which
// an operation takes its own result, or, quietly, by negating the first float constant.
struct PassFault {
  std::string pass;  // empty: none
  bool wrong_kernel = false;
  bool miscompiles = false;
};

struct PassOptions {
  std::vector<std::string> skip;             // names of passes that are not run
  std::size_t stop_after = ~std::size_t{0};  // number of passes
  std::size_t optional = ~std::size_t{0};    // of those that are not required, for bisection
  bool verify_each = false;                  // the kernel before the first and after each pass
  bool verify_last = true;                   // after the last alone
  // Before the first, as "expand", and after each.
  std::function<void(std::string_view pass, const Kernel& kernel)> dump;
  PassFault fault = {};  // with one, the kernel is verified after each pass
};

// An unknown name in `skip` or `fault` is a UserError. Errors get a note naming the pass; a kernel
// that does not verify is an InternalError.
void run_passes(Kernel& kernel, sym::Context& context, std::span<const KernelPass> passes,
                const PassOptions& options = {});

}  // namespace inkle::kernel
