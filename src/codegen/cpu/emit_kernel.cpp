// A kernel's function: what runs between its schedule and LLVM.
#include "base/error.h"
#include "codegen/cpu/kernel_code.h"
#include "codegen/cpu/print_kernel.h"
#include "kernel/passes.h"
#include "schedule/expand.h"

namespace inkle::codegen::cpu {

using schedule::LoopKernel;

namespace {

// The context of the kernel's expressions.
sym::Context& context_of(const schedule::Kernel& kernel, const LoopKernel& loops) {
  if (!kernel.sizes.empty()) return kernel.sizes[0].context();
  if (!loops.outer.empty()) return loops.outer[0].extent.context();
  for (const schedule::Stage& stage : loops.stages) {
    if (!stage.inner.empty()) return stage.inner[0].extent.context();
    if (!stage.stores.empty()) return stage.stores[0].offset.context();
  }
  INKLE_CHECK(false, "kernel {} stores nothing", kernel.name);
}

EmittedKernel emit_loops(Ir& ir, const schedule::Kernel& kernel, const schedule::Schedule& schedule,
                         const LoopKernel& loops, const Values& arguments) {
  sym::Context& context = context_of(kernel, loops);
  kernel::Kernel expanded = schedule::expand(kernel, schedule, context);
  kernel::run_passes(expanded, context, kernel::cpu_passes());
  return print_kernel(ir, expanded, context, arguments);
}

}  // namespace

EmittedKernel emit_kernel(Ir& ir, const schedule::Kernel& kernel,
                          const schedule::Schedule& schedule, const Target& target,
                          std::string_view name) {
  const Values arguments = ir.begin_function(name, target.cpu, target.features);
  EmittedKernel result;
  if (const auto* loops = std::get_if<LoopKernel>(&kernel.body)) {
    result = emit_loops(ir, kernel, schedule, *loops, arguments);
  } else {
    KernelCode code{ir, kernel, schedule, target, {}, SizeValues(ir)};
    for (std::size_t p = 0; p < kernel.params.size(); ++p) {
      Value* slot = ir.address(ir.pointer(), arguments[0], ir.i64(static_cast<std::int64_t>(p)));
      code.params.push_back(ir.load(ir.pointer(), slot, 8));
    }
    Type* word = ir.integer_type(64);
    for (std::size_t s = 0; s < kernel.sizes.size(); ++s) {
      Value* slot = ir.address(word, arguments[1], ir.i64(static_cast<std::int64_t>(s)));
      code.sizes.bind(kernel.sizes[s], ir.load(word, slot, 8));
    }
    result = emit_attention(code, std::get<schedule::AttentionKernel>(kernel.body), arguments);
  }
  ir.end_function();
  return result;
}

}  // namespace inkle::codegen::cpu
