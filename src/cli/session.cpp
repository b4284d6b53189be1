#include "cli/session.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/threads.h"
#include "driver/kept_choices.h"
#include "driver/stored.h"
#include "driver/target.h"
#include "frontend/pt2/mapped_file.h"
#include "frontend/pt2/tensor_data.h"
#include "runtime/common/plan_of_file.h"
#include "runtime/cpu/executor.h"
#include "runtime/cuda/executable.h"
#include "runtime/cuda/library_choices.h"
#include "runtime/cuda/named_device.h"

namespace inkle::cli {
namespace {

// Before the instruction set, as image/processor.h names it.
constexpr std::string_view kCpuPrefix = "cpu:";

std::string_view instruction_set_of(std::string_view device) {
  return device.starts_with(kCpuPrefix) ? device.substr(kCpuPrefix.size()) : "";
}

// Of results whose type depends on the device: moments of norms in bf16 are f32 on a GPU.
void infer_dtypes(graph::Graph& graph, const graph::Node& node) {
  if (node.op->infer == nullptr) return;
  const std::vector<graph::Type> types = graph::infer_types(graph, *node.op, node.args);
  for (std::size_t i = 0; i < types.size() && i < node.results.size(); ++i) {
    graph.type(node.results[i]).dtype = types[i].dtype;
  }
}

// What a package holds, with as much of a report as its plan tells.
driver::Compiled compiled_of(const package::Package& package, const runtime::cuda::Device* gpu) {
  driver::Compiled compiled{package.made().plan, package.made().code, {}};
  driver::Report& report = compiled.report;
  if (gpu != nullptr) compiled.plan = runtime::cuda::plan_on(compiled.plan, *gpu);
  if (!package.facts().empty()) {
    report = driver::report_of(package.facts());
    if (report.steps.size() != compiled.plan->steps.size()) {
      user_error("the facts of the package are of another program");
    }
    return compiled;
  }
  report.kernels = static_cast<std::uint32_t>(compiled.plan->kernels.size());
  for (const abi::PlanStep& step : compiled.plan->steps) {
    driver::StepReport described{.kind = {}, .label = {}, .source = step.source, .kernel = {}};
    if (const auto* launch = std::get_if<abi::Launch>(&step.action)) {
      described.kind = "kernel";
      described.kernel = compiled.plan->kernels[launch->kernel].name;
      ++report.launches;
    } else if (std::holds_alternative<abi::LibraryCall>(step.action)) {
      described.kind = "library";
      ++report.library_calls;
    } else if (const auto* eager = std::get_if<abi::EagerCall>(&step.action)) {
      described.kind = "eager";
      report.eager.push_back(eager->name);
    }
    report.steps.push_back(std::move(described));
  }
  return compiled;
}

// UserError for a .pt2 file, whose front end leaves no op to eager.
void check_bitwise(const std::string& path) {
  const auto file = frontend::pt2::MappedFile::open(path);
  if (file->bytes().size() < 2 || std::memcmp(file->bytes().data(), "PK", 2) != 0) return;
  user_error(
      "{}: --numerics bitwise is for graph text, as `python -m inkle bisect` leaves it; of a .pt2 "
      "file no op is left to eager, so that its bits are not eager's",
      path);
}

}  // namespace

std::shared_ptr<runtime::cuda::Device> open_gpu(const std::string& name) {
  if (name.starts_with(kCpuPrefix)) return nullptr;
  auto gpu = runtime::cuda::open_named(name, "cpu, cpu:x86-64-v3, cuda or cuda:NUMBER");
  if (gpu != nullptr) driver::keep_choices(*gpu);
  return gpu;
}

DeviceCompiler::DeviceCompiler(const CompileArguments& arguments, bool compiles)
    : gpu(open_gpu(arguments.device)) {
  if (arguments.threads > 0) set_num_threads(arguments.threads);
  if (compiles) {
    compiler = std::make_unique<driver::Compiler>(
        gpu == nullptr ? driver::make_cpu_target(instruction_set_of(arguments.device))
                       : driver::make_target(gpu));
  }
  options.numerics = arguments.numerics;
  options.skip_passes = arguments.skip_passes;
  options.pass_limit = arguments.pass_limit;
  options.fail_stage = arguments.fail_stage;
  options.training = arguments.training;
  options.passes.freeze = arguments.load.freeze;
  options.passes.split_attention = gpu != nullptr;
}

abi::Device DeviceCompiler::location() const {
  if (gpu == nullptr) return {};
  return {abi::DeviceKind::cuda, gpu->index()};
}

std::unique_ptr<runtime::common::Executable> DeviceCompiler::load(
    const driver::Compiled& compiled) const {
  if (compiler != nullptr) return compiler->load(compiled);
  abi::PlanAndCode made{compiled.plan, compiled.code};
  if (gpu == nullptr) {
    return std::make_unique<runtime::cpu::Executable>(
        std::move(made), runtime::cpu::ExecutableOptions{.check_bounds = true});
  }
  runtime::common::check_plan_of_file(*made.plan);
  return std::make_unique<runtime::cuda::Executable>(
      std::move(made), gpu, runtime::cuda::ExecutableOptions{.check_bounds = true});
}

Model load_model_on(const CompileArguments& arguments) {
  if (arguments.numerics == abi::Numerics::bitwise) check_bitwise(arguments.file);
  LoadOptions options = arguments.load;
  if (const auto gpu = open_gpu(arguments.device)) {
    options.architecture = gpu->description().architecture;
  }
  return load_model(arguments.file, options);
}

void move_to(graph::Graph& graph, abi::Device device) {
  for (std::uint32_t v = 0; v < graph.value_count(); ++v) {
    graph.type(graph::ValueId{v}).device = device;
  }
  for (graph::Output& output : graph.outputs) output.view.device = device;
  for (graph::Node& node : graph.nodes) {
    const graph::Schema& schema = graph.table().schema(*node.op);
    bool has_tensor = false;
    graph::for_each_operand(node, [&](graph::ValueId) { has_tensor = true; });
    for (std::size_t a = 0; a < schema.params.size() && a < node.args.size(); ++a) {
      const bool is_device = schema.params[a].kind == graph::ParamKind::optional_device;
      const bool is_given = std::holds_alternative<graph::Device>(node.args[a]);
      if (is_device && (is_given || !has_tensor)) node.args[a] = device;
    }
    infer_dtypes(graph, node);
  }
}

driver::Compiled DeviceCompiler::compile(graph::Graph graph) const {
  if (gpu != nullptr) move_to(graph, compiler->location());
  return compiler->compile(std::move(graph), options);
}

Session::Session(const Model& model, const CompileArguments& options, const Arguments& arguments)
    : on_(options, model.package == nullptr),
      compiled_(model.package != nullptr ? compiled_of(*model.package, on_.gpu.get())
                                         : on_.compile(model.graph)),
      package_(model.package) {
  if (const auto& eager = compiled_.report.eager; !eager.empty()) {
    unsupported("{}: these ops need PyTorch's eager mode, which the command has not: {}",
                options.file, fmt::join(eager, ", "));
  }
  if (package_ != nullptr && on_.gpu != nullptr) {
    runtime::cuda::give_choices(*on_.gpu, package_->choices());
  }
  load(arguments);
}

Session::Session(DeviceCompiler on, driver::Compiled compiled, const Arguments& arguments)
    : on_(std::move(on)), compiled_(std::move(compiled)) {
  load(arguments);
}

abi::DeviceDescription Session::device() const {
  if (on_.compiler != nullptr) return on_.compiler->device();
  return on_.gpu != nullptr ? on_.gpu->description() : driver::make_cpu_target()->device();
}

void Session::load(const Arguments& arguments) {
  executable_ = on_.load(compiled_);
  views_ = arguments.views();
  if (on_.gpu != nullptr) upload(arguments);
  call_ = {.tensors = views_, .integers = arguments.integers, .versions = versions_};
}

void Session::upload(const Arguments& arguments) {
  arguments_memory_ = std::make_unique<GpuMemory>(*on_.gpu);
  memory_ = std::make_unique<GpuMemory>(*on_.gpu);
  const runtime::cuda::Scope scope(*on_.gpu);
  for (std::size_t i = 0; i < views_.size(); ++i) {
    abi::TensorView& view = views_[i];
    const auto rank = static_cast<std::size_t>(view.rank);
    const auto bytes =
        frontend::pt2::span_bytes(view.dtype, {view.sizes, rank}, {view.strides, rank});
    void* const at = arguments_memory_->take(bytes.value_or(0));
    on_.gpu->copy(at, view.data, bytes.value_or(0), nullptr);
    view.data = at;
    view.device = on_.location();
  }
  on_.gpu->synchronize(nullptr);
  versions_.assign(arguments.tensors.size(), 0);  // weights never change here
}

template <class Call>
auto Session::with_host(bool keep, Call&& call) {
  if (const auto package = std::exchange(package_, nullptr)) package->check_weights();
  if (on_.gpu == nullptr) {
    PlainHost host(keep);
    call_.host = &host;
    return call(host);
  }
  GpuHost host(*memory_, keep);
  call_.host = &host;
  return call(host);
}

std::vector<PlainHost::Result> Session::run(bool keep) {
  return with_host(keep, [&](auto& host) {
    executable_->run(call_);
    if (on_.gpu != nullptr) {
      const runtime::cuda::Scope scope(*on_.gpu);
      on_.gpu->synchronize(nullptr);
      executable_->throw_failures();
    }
    return host.take_results();
  });
}

std::vector<double> Session::run_profiled() {
  return with_host(false, [&](auto&) { return executable_->run_profiled(call_); });
}

}  // namespace inkle::cli
