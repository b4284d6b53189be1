#include "base/error.h"
#include "driver/target.h"
#ifdef INKLE_CPU
#include "codegen/cpu/compiler.h"
#include "runtime/cpu/executor.h"
#include "runtime/cpu/library_step.h"
#endif

namespace inkle::driver {

#ifdef INKLE_CPU
namespace {

class CpuTarget final : public Target {
 public:
  explicit CpuTarget(codegen::cpu::TargetOptions options) : generator_(std::move(options)) {}

  const abi::DeviceDescription& device() const override { return generator_.device(); }

  void describe(schedule::Options& options) const override {
    options.device = device();
    options.longest_sum = 384;
    options.can_matmul = [](abi::DType a, abi::DType b, abi::DType c) {
      abi::MatmulCall call;
      call.a.dtype = a;
      call.b.dtype = b;
      call.c.dtype = c;
      return runtime::cpu::can_run(call);
    };
    options.can_convolve = [](abi::DType dtype) {
      abi::ConvolutionCall call;
      call.x.dtype = call.w.dtype = call.y.dtype = dtype;
      return runtime::cpu::can_run(call);
    };
    options.can_post_op = [](abi::PostOpKind kind) {
      abi::MatmulCall call;
      abi::PostOp op;
      op.kind = kind;
      call.post_ops.push_back(op);
      return runtime::cpu::can_run(call);
    };
  }

  std::vector<TargetKernel> compile(std::span<const TargetUnit> units,
                                    const CodeOptions& options) override {
    std::vector<codegen::cpu::CompileUnit> all;
    for (const TargetUnit& unit : units) all.push_back({unit.kernel, unit.schedule});
    std::vector<TargetKernel> result;
    for (codegen::cpu::CompiledKernel& made :
         generator_.compile(all, {.keep_ir = options.text, .keep_assembly = options.text})) {
      TargetKernel kernel;
      kernel.function = made.function;
      kernel.schedule = units[result.size()].schedule;
      kernel.scratch_bytes = made.scratch_bytes;
      kernel.code = std::move(made.code);
      kernel.object = std::move(made.object);
      kernel.ir = std::move(made.ir);
      kernel.assembly = std::move(made.assembly);
      kernel.seconds = made.emit_seconds + made.compile_seconds;
      result.push_back(std::move(kernel));
    }
    return result;
  }

  std::unique_ptr<runtime::common::Executable> load(abi::PlanAndCode made) const override {
    return std::make_unique<runtime::cpu::Executable>(std::move(made));
  }

 private:
  codegen::cpu::CpuCompiler generator_;
};

}  // namespace

std::unique_ptr<Target> make_cpu_target(std::string_view instruction_set) {
  auto options = codegen::cpu::TargetOptions::from_environment();
  options.instruction_set = instruction_set;
  return std::make_unique<CpuTarget>(std::move(options));
}
#else
std::unique_ptr<Target> make_cpu_target(std::string_view /*instruction_set*/) {
  unsupported("built without LLVM: there is no code generator for the CPU");
}
#endif

}  // namespace inkle::driver
