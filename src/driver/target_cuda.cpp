#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "codegen/cuda/compiler.h"
#include "driver/measured.h"
#include "driver/target.h"
#include "driver/tune_cuda.h"
#include "runtime/common/size_program.h"
#include "runtime/cuda/convolution.h"
#include "runtime/cuda/convolutions.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/executable.h"
#include "runtime/cuda/matmul.h"
#include "runtime/cuda/null_device.h"
#include "schedule/blocks.h"
#include "schedule/linear.h"

namespace inkle::driver {
namespace {

using loop::Program;
using schedule::View;

// The types of a view, as the library asks for them.
abi::Operand operand(const View& view, const Program& program) {
  abi::Operand result;
  result.dtype = program.buffers[view.buffer].dtype;
  return result;
}

bool is_row_major(const View& view) {
  const std::size_t rank = view.strides.size();
  return schedule::is_matrix(view) &&
         (view.strides[rank - 1].is_constant(1) || view.sizes[rank - 1].is_constant(1));
}

bool can_run_matmul(const schedule::MatmulStep& step, const Program& program) {
  // A product over nothing is zeros, which the library does not make; others add to them.
  const bool is_zero = step.a.sizes.back().is_constant(0);
  if (is_zero && (step.bias.has_value() || !step.epilogue.empty())) return false;
  abi::MatmulCall call;
  call.a = operand(step.a, program);
  call.b = operand(step.b, program);
  call.c = operand(step.c, program);
  call.has_bias = step.bias.has_value();
  if (step.bias) {
    call.bias = operand(*step.bias, program);
    if (!step.bias->strides.front().is_constant(1)) return false;
  }
  bool row_major = call.has_bias;
  for (const schedule::Epilogue& e : step.epilogue) {
    // The library's own tanh has fewer bits than f32.
    if (e.kind == abi::PostOpKind::gelu_tanh && !abi::is_reduced_float(call.c.dtype)) return false;
    abi::PostOp op;
    op.kind = e.kind;
    if (e.operand) {
      op.operand = operand(*e.operand, program);
      // Other steps would split the product into a batch.
      if (!is_row_major(*e.operand) || !(e.operand->sizes == step.c.sizes) ||
          !(e.operand->strides == step.c.strides)) {
        return false;
      }
      row_major = true;
    }
    call.post_ops.push_back(std::move(op));
  }
  for (const View* view : {&step.a, &step.b, &step.c}) {
    if (!schedule::is_matrix(*view)) return false;
  }
  if (row_major && !is_row_major(step.c)) return false;
  return runtime::cuda::why_not(call).empty();
}

// Convolutions that cuDNN runs from here; others are the host's, which chooses the precision of
// f32.
bool is_for_library(const schedule::ConvolutionStep& step, const Program& program) {
  const std::size_t rank = step.x.sizes.size();
  const bool is_plain = !step.parameters.transposed && !step.parameters.weight_gradient;
  return abi::is_reduced_float(program.buffers[step.x.buffer].dtype) && rank >= 3 && rank <= 5 &&
         (is_plain || (!step.bias && step.epilogue.empty()));
}

// What runs in one kernel: a bias, a residual, and relu; by the host only if relu is among them.
bool can_run_convolution(const schedule::ConvolutionStep& step, const Program& program,
                         bool by_library) {
  const abi::DType x = program.buffers[step.x.buffer].dtype;
  if (step.bias && program.buffers[step.bias->buffer].dtype != x) return false;
  if (program.buffers[step.y.buffer].dtype != x) return false;
  const auto& e = step.epilogue;
  if (e.empty()) return true;
  const bool ends_with_relu = e.back().kind == abi::PostOpKind::relu;
  if (!by_library || !is_for_library(step, program)) {
    if (step.parameters.transposed || !ends_with_relu || step.x.sizes.size() != 4) return false;
  }
  if (e.size() == 1 && ends_with_relu) return true;
  if (e.size() > 2 || (e.size() == 2 && !ends_with_relu)) return false;
  if (e.front().kind != abi::PostOpKind::add) return false;
  const View& z = *e.front().operand;
  return program.buffers[z.buffer].dtype == x && z.sizes == step.y.sizes &&
         z.strides == step.y.strides;
}

class CudaTarget final : public Target {
 public:
  CudaTarget(std::shared_ptr<runtime::cuda::Device> device, std::filesystem::path schedules)
      : device_(std::move(device)),
        generator_(device_->description()),
        measured_(std::move(schedules)) {}
  ~CudaTarget() override { settle(); }

  const abi::DeviceDescription& device() const override { return device_->description(); }

  Identity identity() const override {
    const abi::DeviceDescription& d = device();
    return {{"processor", d.architecture},
            {"machine",
             fmt::format("{}, {} multiprocessors, L2 cache of {} bytes, {:.3g} bytes, {:.3g} "
                         "operations, {:.3g} functions, {:.3g} of matrices a second, {} cuDNN",
                         d.name, d.parallelism, d.l2_bytes, d.bytes_per_second, d.flops_f32,
                         d.functions_per_second, d.matrix_flops,
                         device_->convolutions() != nullptr ? "with" : "without")}};
  }

  abi::Device location() const override { return {abi::DeviceKind::cuda, device_->index()}; }

  void describe(schedule::Options& options) const override {
    options.device = device();
    options.can_matmul = runtime::cuda::can_multiply;
    options.can_convolve = [](abi::DType dtype) { return abi::is_float(dtype); };
    options.can_post_op = [](abi::PostOpKind kind) {
      return kind == abi::PostOpKind::add || kind == abi::PostOpKind::relu ||
             kind == abi::PostOpKind::gelu_tanh;
    };
    options.can_run_matmul = can_run_matmul;
    options.can_run_convolution = [by_library = device_->convolutions() != nullptr](
                                      const auto& step, const Program& program) {
      return can_run_convolution(step, program, by_library);
    };
    options.can_attend = [](abi::DType dtype) { return abi::is_float(dtype); };
    options.keep_roundings = true;
    options.adds_before_rounding = true;
    options.pads_rows = true;
    options.needs_matrices = true;
    if (device_->convolutions() != nullptr) {
      options.least_channels = 8;
      options.weights_channels_last = true;
    }
  }

  void warm_up() noexcept override { generator_.warm_up(); }

  void warm_up_libraries(bool convolutions) noexcept override {
    try {
      const runtime::cuda::Scope scope(*device_);
      (void)device_->gemms();
      if (!convolutions) return;
      if (auto* library = device_->convolutions(); library != nullptr) library->warm_up();
    } catch (const std::exception& error) {
      log(LogChannel::runtime, "warming up: {}", error.what());
    }
  }

  void foresee(const abi::Plan& plan) override {
    const runtime::common::SizeProgram sizes(plan);
    if (!sizes.is_constant() || device_->convolutions() == nullptr) return;
    ahead_ = device_->convolutions();
    std::vector<runtime::cuda::ConvolutionShape> shapes;
    for (const abi::Step& step : plan.steps) {
      const auto* library = std::get_if<abi::LibraryCall>(&step.action);
      const auto* call = library == nullptr ? nullptr : std::get_if<abi::ConvolutionCall>(library);
      if (call == nullptr) continue;
      const auto shape = runtime::cuda::plan_convolution(*call, sizes.constant_slots());
      if (shape) shapes.push_back(*shape);
    }
    ahead_.load()->foresee(std::move(shapes));
  }

  void settle() noexcept override {
    if (runtime::cuda::Convolutions* library = ahead_.load()) library->settle();
  }

  std::optional<passes::ProductCosts> products() const override {
    // Of an H200: a product of bf16 runs at four fifths of the datasheet's rate.
    constexpr double kReached = 0.8;
    constexpr double kCallSeconds = 2.5e-6;
    if (device().matrix_flops <= 0) return std::nullopt;
    return passes::ProductCosts{kReached * device().matrix_flops, kCallSeconds};
  }

  bool host_makes_result(const schedule::Step& step, const Program& program) const override {
    if (const auto* convolution = std::get_if<schedule::ConvolutionStep>(&step.action)) {
      return device_->convolutions() == nullptr || !is_for_library(*convolution, program);
    }
    return std::holds_alternative<schedule::AttentionStep>(step.action);
  }

  std::vector<TargetKernel> compile(std::span<const TargetUnit> units,
                                    const CodeOptions& options) override {
    std::vector<codegen::cuda::CompileUnit> all;
    for (const TargetUnit& unit : units) all.push_back({unit.kernel, unit.schedule, unit.name});
    codegen::cuda::Compiled made = generator_.compile(all, options.only_text, options.passes);
    std::vector<std::shared_ptr<const abi::DeviceImage>> images;
    for (abi::DeviceImage& image : made.images) {
      images.push_back(std::make_shared<const abi::DeviceImage>(std::move(image)));
    }
    std::vector<TargetKernel> result;
    const double each = (made.emit_seconds + made.compile_seconds) /
                        static_cast<double>(std::max<std::size_t>(all.size(), 1));
    for (codegen::cuda::CompiledKernel& kernel : made.kernels) {
      TargetKernel one;
      one.image = images.at(kernel.kernel.image);
      one.scratch_bytes = kernel.workspace_bytes;
      if (kernel.source) one.ir = *kernel.source;
      one.source = std::move(kernel.source);
      one.device = std::move(kernel.kernel);
      one.seconds = each;
      result.push_back(std::move(one));
    }
    return result;
  }

  std::vector<schedule::Schedule> tune(std::span<const TuneCase> cases) override {
    return tune_blocks(cases, generator_, *device_, measured_);
  }

  std::unique_ptr<runtime::common::Executable> load(abi::PlanAndCode made) const override {
    return std::make_unique<runtime::cuda::Executable>(std::move(made), device_);
  }

 private:
  std::shared_ptr<runtime::cuda::Device> device_;
  codegen::cuda::CudaCompiler generator_;
  std::atomic<runtime::cuda::Convolutions*> ahead_ = nullptr;  // what looks for something
  MeasuredSchedules measured_;
};

}  // namespace

std::unique_ptr<Target> make_target(std::shared_ptr<runtime::cuda::Device> device,
                                    std::filesystem::path schedules) {
  return std::make_unique<CudaTarget>(std::move(device), std::move(schedules));
}

std::unique_ptr<Target> make_cuda_target(std::int32_t index) {
  return make_target(runtime::cuda::open_device(index), user_schedules_folder());
}

std::unique_ptr<Target> make_null_target(std::string_view architecture) {
  return make_target(runtime::cuda::make_null_device(codegen::cuda::typical_device(architecture)));
}

}  // namespace inkle::driver
