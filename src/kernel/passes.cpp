#include "kernel/passes.h"

#include <algorithm>

#include "base/error.h"
#include "kernel/hoist.h"
#include "kernel/lower_collectives.h"
#include "kernel/lower_indices.h"
#include "kernel/numerics.h"
#include "kernel/place_barriers.h"
#include "kernel/verify.h"

namespace inkle::kernel {
namespace {

constexpr KernelPass kCpuPasses[] = {
    {"hoist", [](Kernel& kernel, sym::Context&) { hoist(kernel); },
     "what does not change in a loop moves in front of it; equal operations become one"},
    {"lower_indices", lower_indices, "index expressions become integer operations"},
};

constexpr KernelPass kGpuPasses[] = {
    {"numerics", numerics, "functions whose results are rounded at once take fewer instructions"},
    {"lower_collectives", lower_collectives,
     "reductions, scans and broadcasts become shuffles, accesses of shared memory and barriers"},
    {"place_barriers", place_barriers,
     "a barrier between accesses of one element by different threads, of which one writes"},
};

}  // namespace

std::span<const KernelPass> cpu_passes() { return kCpuPasses; }

std::span<const KernelPass> gpu_passes() { return kGpuPasses; }

void run_passes(Kernel& kernel, sym::Context& context, std::span<const KernelPass> passes,
                const PassOptions& options) {
  for (const std::string& name : options.skip) {
    if (std::ranges::find(passes, name, &KernelPass::name) == passes.end()) {
      user_error("there is no kernel pass '{}'", name);
    }
  }
  if (options.verify_each) verify(kernel, "expand");
  std::string_view last = "expand";
  std::size_t run = 0;
  for (const KernelPass& pass : passes) {
    if (std::ranges::find(options.skip, pass.name) != options.skip.end()) continue;
    if (run++ >= options.stop_after) break;
    try {
      pass.function(kernel, context);
    } catch (Error& error) {
      error.add_note(fmt::format("in kernel pass {}", pass.name));
      throw;
    }
    last = pass.name;
    if (options.verify_each) verify(kernel, pass.name);
    if (options.dump) options.dump(pass.name, kernel);
  }
  if (options.verify_last && !options.verify_each) verify(kernel, last);
}

}  // namespace inkle::kernel
