// `inkle kernels`: what a graph's kernels are on a GPU that need not be there. Prints their text,
// or writes text, machine code and a description of every launch into a folder, for tools that load
// and measure them.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "abi/targets.h"
#include "base/error.h"
#include "cli/commands.h"
#include "codegen/cuda/compiler.h"
#include "driver/kernel_names.h"
#include "driver/target.h"
#include "graph/text.h"
#include "lower/lower.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace inkle::cli {
namespace {

using codegen::cuda::CompileUnit;
using nlohmann::json;

struct KernelArguments {
  std::string file;
  std::string architecture = "sm_90a";
  std::string output;
  std::vector<std::string> schedules;
};

schedule::ScheduledProgram scheduled_for(const std::string& file,
                                         const abi::DeviceDescription& device) {
  passes::PassContext context;
  graph::Graph graph = passes::run_passes(load_graph(file), passes::standard_pipeline(), context);
  schedule::Options options;
  options.target = abi::gpu_target_of(device);
  if (options.target.gemm != abi::GemmRules{}) {
    if (const auto source = driver::gemm_source_from_environment()) {
      options.target.libraries.gemm.source = *source;
    }
    driver::take_tile_from_environment(options.target);
  }
  return schedule::schedule(lower::lower(graph), options);
}

std::int64_t value_of(sym::Expr e) {
  const auto value = sym::hint(e);
  if (!value) user_error("kernels: the size {} has no hint", sym::to_string(e));
  return *value;
}

std::vector<std::int64_t> values_of(const std::vector<sym::Expr>& list) {
  std::vector<std::int64_t> values;
  for (const sym::Expr e : list) values.push_back(value_of(e));
  return values;
}

json describe_buffer(const loop::Buffer& buffer) {
  const char* role = buffer.role == loop::BufferRole::input      ? "input"
                     : buffer.role == loop::BufferRole::output   ? "output"
                     : buffer.role == loop::BufferRole::constant ? "constant"
                                                                 : "temporary";
  return {{"name", buffer.name},
          {"role", role},
          {"dtype", abi::name_of(buffer.dtype)},
          {"sizes", values_of(buffer.sizes)},
          {"strides", values_of(*buffer.strides)}};
}

// Kernel steps, in order, and their kernels, each once.
struct Launches {
  std::vector<const schedule::KernelStep*> steps;
  std::vector<CompileUnit> units;
  std::vector<std::size_t> unit_of;  // by step

  // Of a step, in terms of its own sizes, what its kernel has in terms of those of the first.
  [[nodiscard]] sym::Expr of_step(std::size_t k, sym::Expr e) const {
    std::vector<std::pair<sym::Expr, sym::Expr>> map;
    for (std::size_t s = 0; s < steps[k]->kernel.sizes.size(); ++s) {
      map.emplace_back(units[unit_of[k]].kernel->sizes[s], steps[k]->kernel.sizes[s]);
    }
    return sym::substitute(e, map);
  }
};

void write_folder(const std::filesystem::path& folder, const schedule::ScheduledProgram& scheduled,
                  const Launches& launches, const codegen::cuda::Compiled& compiled) {
  std::filesystem::create_directories(folder);
  json description;
  for (const loop::Buffer& buffer : scheduled.program.buffers) {
    description["buffers"].push_back(describe_buffer(buffer));
  }
  for (const auto& output : scheduled.program.outputs) {
    description["outputs"].push_back(output.buffer);
  }
  for (std::size_t k = 0; k < launches.steps.size(); ++k) {
    const codegen::cuda::CompiledKernel& made = compiled.kernels[launches.unit_of[k]];
    description["launches"].push_back(
        {{"entry", made.kernel.entry},
         {"image", made.kernel.image},
         {"threads", made.kernel.block_threads},
         {"workspace", value_of(launches.of_step(k, made.workspace_bytes))},
         {"blocks", value_of(launches.of_step(k, made.blocks))},
         {"buffers", launches.steps[k]->buffers},
         {"sizes", values_of(launches.steps[k]->kernel.sizes)}});
  }
  for (std::size_t i = 0; i < compiled.images.size(); ++i) {
    const auto& data = *compiled.images[i].data;
    std::ofstream(folder / fmt::format("image{}.cubin", i), std::ios::binary)
        .write(reinterpret_cast<const char*>(data.data()),
               static_cast<std::streamsize>(data.size()));
  }
  std::ofstream(folder / "launches.json") << description.dump(1) << "\n";
}

// `replayed`: schedules that some steps have instead of their own.
Launches launches_of(const schedule::ScheduledProgram& scheduled,
                     const std::vector<std::string>& replayed) {
  Launches result;
  std::vector<schedule::Schedule> schedules;
  std::vector<std::string_view> labels;
  for (const schedule::Step& step : scheduled.steps) {
    const auto* kernel = std::get_if<schedule::KernelStep>(&step.action);
    if (kernel == nullptr) {
      std::fprintf(stderr, "no kernel: %s\n", step.label.c_str());
      continue;
    }
    result.steps.push_back(kernel);
    schedules.push_back(kernel->schedule);
    labels.push_back(step.label);
  }
  for (const std::string& text : replayed) {
    const std::size_t colon = text.find(':');
    const std::size_t number = std::stoul(text.substr(0, colon));
    if (colon == std::string::npos || number >= schedules.size()) {
      user_error("kernels: '{}' is no kernel's number, a colon and a schedule", text);
    }
    schedules[number].blocks = schedule::parse_blocks(text.substr(colon + 1));
  }
  driver::KernelNames names;
  std::unordered_map<std::string, std::size_t> unit;  // by text
  for (std::size_t k = 0; k < result.steps.size(); ++k) {
    const schedule::Kernel& kernel = result.steps[k]->kernel;
    const auto [at, is_new] =
        unit.try_emplace(driver::text_of(kernel, schedules[k]), result.units.size());
    result.unit_of.push_back(at->second);
    if (!is_new) continue;
    result.units.push_back({&kernel, schedules[k], names.name(kernel, labels[k], at->first)});
  }
  return result;
}

void kernels(const KernelArguments& a) {
  const codegen::cuda::CudaCompiler compiler(abi::typical_device(a.architecture));
  const schedule::ScheduledProgram scheduled = scheduled_for(a.file, compiler.device());
  const Launches launches = launches_of(scheduled, a.schedules);
  const std::vector<CompileUnit>& units = launches.units;
  if (a.output.empty()) {
    for (const CompileUnit& unit : units) {
      const std::string text = compiler.source(unit) + "\n";
      std::fwrite(text.data(), 1, text.size(), stdout);
    }
    return;
  }
  const codegen::cuda::Compiled compiled = compiler.compile(units);
  std::fprintf(stderr, "%zu kernels: text %.1f ms, NVRTC %.0f ms\n", units.size(),
               compiled.emit_seconds * 1e3, compiled.compile_seconds * 1e3);
  write_folder(a.output, scheduled, launches, compiled);
}

}  // namespace

void add_kernels(CLI::App& app) {
  auto arguments = std::make_shared<KernelArguments>();
  CLI::App* command =
      app.add_subcommand("kernels", "Print, or compile, a graph's kernels for a GPU.");
  command->add_option("file", arguments->file, "graph text or .pt2 file")->required();
  command->add_option("--arch", arguments->architecture, "sm_80, sm_90a or sm_100")
      ->capture_default_str();
  command->add_option("--output", arguments->output, "folder for machine code and launches.json");
  command
      ->add_option("--schedule", arguments->schedules,
                   "NUMBER:SCHEDULE, as printed, in place of the chosen one (repeat for more)")
      ->allow_extra_args(false);
  command->callback([arguments] { kernels(*arguments); });
}

}  // namespace inkle::cli
