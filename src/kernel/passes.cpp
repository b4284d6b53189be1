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

constexpr bool kRequired = true;

constexpr KernelPass kCpuPasses[] = {
    {"hoist", [](Kernel& kernel, sym::Context&) { hoist(kernel); },
     "what does not change in a loop moves in front of it; equal operations become one"},
    {"lower_indices", lower_indices, "index expressions become integer operations", kRequired},
};

constexpr KernelPass kGpuPasses[] = {
    {"numerics", numerics, "functions whose results are rounded at once take fewer instructions"},
    {"lower_collectives", lower_collectives,
     "reductions, scans and broadcasts become shuffles, accesses of shared memory and barriers",
     kRequired},
    {"place_barriers", place_barriers,
     "a barrier between accesses of one element by different threads, of which one writes",
     kRequired},
};

void check_name(std::span<const KernelPass> passes, std::string_view name) {
  if (std::ranges::find(passes, name, &KernelPass::name) == passes.end()) {
    user_error("there is no kernel pass '{}'", name);
  }
}

// The first operation of a region, in program order, that has a result; kNone: there is none.
OperationId first_with_result(const Kernel& kernel, RegionId region) {
  for (const OperationId o : kernel.regions[region].operations) {
    if (!kernel[o].results.empty()) return o;
    for (const RegionId inner : kernel[o].regions) {
      if (const OperationId found = first_with_result(kernel, inner); found != kNone) return found;
    }
  }
  return kNone;
}

void make_wrong(Kernel& kernel) {
  const OperationId at = first_with_result(kernel, kernel.body);
  INKLE_CHECK(at != kNone, "kernel {} has no operation with a result", kernel.name);
  Operation& operation = kernel.operations[at];
  operation.operands.insert(operation.operands.begin(), operation.results.front());
}

void negate_constant(Kernel& kernel, RegionId region) {
  for (const OperationId o : kernel.regions[region].operations) {
    Operation& operation = kernel.operations[o];
    auto* immediate = std::get_if<Immediate>(&operation.detail);
    if (immediate != nullptr && immediate->real != 0) {
      immediate->real = -immediate->real;
      return;
    }
    for (const RegionId inner : operation.regions) negate_constant(kernel, inner);
  }
}

}  // namespace

std::span<const KernelPass> cpu_passes() { return kCpuPasses; }

std::span<const KernelPass> gpu_passes() { return kGpuPasses; }

void run_passes(Kernel& kernel, sym::Context& context, std::span<const KernelPass> passes,
                const PassOptions& options) {
  for (const std::string& name : options.skip) check_name(passes, name);
  const PassFault& fault = options.fault;
  if (!fault.pass.empty()) check_name(passes, fault.pass);
  const bool verify_each = options.verify_each || !fault.pass.empty();
  if (verify_each) verify(kernel, "expand");
  if (options.dump) options.dump("expand", kernel);
  std::string_view last = "expand";
  std::size_t run = 0, optional = 0;
  for (const KernelPass& pass : passes) {
    if (std::ranges::find(options.skip, pass.name) != options.skip.end()) continue;
    if (run++ >= options.stop_after) break;
    if (!pass.required && optional++ >= options.optional) continue;
    const bool fails = pass.name == fault.pass;
    try {
      const bool throws = fails && !fault.wrong_kernel && !fault.miscompiles;
      if (throws) throw InternalError("made to fail by option fail_stage");
      pass.function(kernel, context);
      if (fails && fault.wrong_kernel) make_wrong(kernel);
      if (fails && fault.miscompiles) negate_constant(kernel, kernel.body);
    } catch (Error& error) {
      error.add_note(fmt::format("in kernel pass {}", pass.name));
      throw;
    }
    last = pass.name;
    if (verify_each) verify(kernel, pass.name);
    if (options.dump) options.dump(pass.name, kernel);
  }
  if (options.verify_last && !verify_each) verify(kernel, last);
}

}  // namespace inkle::kernel
