#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>

#include "abi/targets.h"
#include "base/error.h"
#include "base/log.h"
#include "cache/store.h"
#include "codegen/cuda/compiler.h"
#include "driver/build_identity.h"
#include "driver/kept_choices.h"
#include "driver/kept_modules.h"
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
#include "schedule/library.h"

namespace inkle::driver {
namespace {

using loop::Program;

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::shared_ptr<runtime::cuda::Device> device,
              std::function<std::shared_ptr<cache::Store>()> schedules)
      : device_(std::move(device)),
        target_(abi::gpu_target_of(device_->description())),
        generator_(device_->description()),
        measured_(std::move(schedules)) {
    const std::string& name = device_->description().name;
    const std::string_view measured_on = target_.blocks.measured_on;
    if (name.find(measured_on) != std::string::npos) return;
    log(LogChannel::driver, "{}: no schedules were measured on it; those of an {} are used", name,
        measured_on);
  }
  ~CudaBackend() override { settle(); }

  const abi::DeviceDescription& device() const override { return device_->description(); }

  Identity identity() const override {
    const abi::DeviceDescription& d = device();
    return {{"processor", d.architecture},
            {"machine",
             fmt::format(
                 "{}, {} multiprocessors, L2 cache of {} bytes, {:.3g} bytes, {:.3g} "
                 "operations, {:.3g} functions, {:.3g} of matrices a second, {} cuDNN{}",
                 d.name, d.parallelism, d.l2_bytes, d.bytes_per_second, d.flops_f32,
                 d.functions_per_second, d.matrix_flops,
                 device_->convolutions() != nullptr ? "with" : "without",
                 gemm_template_ ? fmt::format(", own GEMM: {}", std::getenv("INKLE_GEMM")) : "")}};
  }

  abi::Device location() const override { return {abi::DeviceKind::cuda, device_->index()}; }

  abi::Target describe(const Program& /*program*/) const override {
    abi::Target described = target_;
    if (gemm_template_ && described.gemm != abi::GemmRules{}) {
      described.libraries.gemm.source = abi::GemmSource::templates;
      take_tile_from_environment(described);
    }
    if (device_->convolutions() == nullptr) {
      abi::ConvolutionLibrary& library = described.libraries.convolution;
      library.is_open = false;
      library.least_channels = 0;
      library.weights_channels_last = false;
    }
    return described;
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
    for (const abi::PlanStep& step : plan.steps) {
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
    if (const auto choices = device_->library_choices(); choices) choices->settle();
  }

  std::optional<passes::GemmCosts> gemm_costs() const override {
    const abi::GemmLibrary& library = target_.libraries.gemm;
    if (device().matrix_flops <= 0 || library.reached <= 0) return std::nullopt;
    return passes::GemmCosts{library.reached * device().matrix_flops, library.seconds_of_call};
  }

  bool host_makes_result(const schedule::Step& step, const Program& program) const override {
    if (const auto* convolution = std::get_if<schedule::ConvolutionStep>(&step.action)) {
      return device_->convolutions() == nullptr ||
             !schedule::is_own(target_.libraries.convolution, *convolution, program);
    }
    return std::holds_alternative<schedule::AttentionStep>(step.action);
  }

  std::vector<TargetKernel> compile(std::span<const TargetUnit> units,
                                    const CodeOptions& options) override {
    KeptModules kept = kept_modules(options);
    std::vector<TargetKernel> result(units.size());
    std::vector<codegen::cuda::CompileUnit> wanted;
    std::vector<std::size_t> wanted_at;
    for (std::size_t u = 0; u < units.size(); ++u) {
      if (auto found = kept.find(units[u])) {
        result[u] = std::move(*found);
        continue;
      }
      wanted.push_back({units[u].kernel, units[u].schedule, units[u].name});
      wanted_at.push_back(u);
    }
    if (wanted.size() < units.size()) {
      log(LogChannel::cache, "{} of {} kernels were made by earlier processes",
          units.size() - wanted.size(), units.size());
    }
    if (!wanted.empty() || units.empty()) {
      std::vector<TargetKernel> made = compile_anew(wanted, options);
      for (std::size_t w = 0; w < made.size(); ++w) {
        const TargetUnit& unit = units[wanted_at[w]];
        kept.keep(unit, made[w]);
        result[wanted_at[w]] = std::move(made[w]);
      }
    }
    kept.settle();
    return result;
  }

  std::vector<schedule::Schedule> tune(std::span<const TuneCase> cases) override {
    return tune_blocks(cases, generator_, *device_, measured_);
  }

  std::unique_ptr<runtime::common::Executable> load(abi::PlanAndCode made) const override {
    return std::make_unique<runtime::cuda::Executable>(std::move(made), device_);
  }

 private:
  // The cache has no text of the code, so a request for it compiles.
  [[nodiscard]] KeptModules kept_modules(const CodeOptions& options) const {
    const std::string& architecture = device().architecture;
    const bool has_code = !options.text && !options.object && !options.only_text;
    const std::string version =
        options.cache && has_code && !build_identity().empty() && cache::user_store() != nullptr
            ? codegen::cuda::nvrtc_version()
            : std::string();
    if (version.empty()) return {nullptr, {}, architecture};
    Identity made_with = identity();
    made_with.insert(made_with.begin(), {"build", build_identity()});
    made_with.emplace_back("NVRTC", version);
    return {cache::user_store(), std::move(made_with), architecture};
  }

  std::vector<TargetKernel> compile_anew(std::span<const codegen::cuda::CompileUnit> units,
                                         const CodeOptions& options) const {
    codegen::cuda::Compiled made = generator_.compile(units, options.only_text, options.passes);
    std::vector<std::shared_ptr<const abi::DeviceImage>> images;
    for (abi::DeviceImage& image : made.images) {
      images.push_back(std::make_shared<const abi::DeviceImage>(std::move(image)));
    }
    std::vector<TargetKernel> result;
    const double each = (made.emit_seconds + made.compile_seconds) /
                        static_cast<double>(std::max<std::size_t>(units.size(), 1));
    for (codegen::cuda::CompiledKernel& kernel : made.kernels) {
      TargetKernel one;
      one.image = images.at(kernel.kernel.image);
      one.scratch_bytes = kernel.workspace_bytes;
      if (kernel.source) one.ir = *kernel.source;
      one.source = std::move(kernel.source);
      one.text = std::move(kernel.text);
      one.device = std::move(kernel.kernel);
      one.seconds = each;
      result.push_back(std::move(one));
    }
    return result;
  }

  std::shared_ptr<runtime::cuda::Device> device_;
  abi::Target target_;
  codegen::cuda::CudaCompiler generator_;
  std::atomic<runtime::cuda::Convolutions*> ahead_ = nullptr;  // what looks for something
  MeasuredSchedules measured_;
  bool gemm_template_ = gemm_source_from_environment() == abi::GemmSource::templates;
};

}  // namespace

std::unique_ptr<Backend> make_target(std::shared_ptr<runtime::cuda::Device> device,
                                     std::function<std::shared_ptr<cache::Store>()> schedules) {
  return std::make_unique<CudaBackend>(std::move(device), std::move(schedules));
}

std::unique_ptr<Backend> make_cuda_target(std::int32_t index) {
  auto device = runtime::cuda::open_device(index);
  keep_choices(*device);
  return make_target(std::move(device), cache::user_store);
}

std::unique_ptr<Backend> make_null_target(std::string_view architecture) {
  return make_target(runtime::cuda::make_null_device(abi::typical_device(architecture)));
}

}  // namespace inkle::driver
