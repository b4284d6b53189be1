// `inkle opt`, `inkle lower`, `inkle compile`: text of a stage, to standard output.
#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/session.h"
#include "graph/text.h"
#include "kernel/passes.h"
#include "loop/program.h"
#include "lower/lower.h"
#include "passes/pipeline.h"
#include "schedule/nest_passes.h"

namespace inkle::cli {
namespace {

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

struct OptArguments {
  std::string file;
  std::vector<std::string> passes;
  std::size_t stop_after = ~std::size_t{0};
  bool list = false, freeze = false, timing = false;
};

void opt(const OptArguments& a) {
  if (a.list) {
    for (const passes::Pass& p : passes::all_passes()) {
      print(fmt::format("{:20} {}\n", p.name, p.doc));
    }
    print("\nThe compiler runs:");
    for (const std::string_view name : passes::standard_pipeline()) print(fmt::format(" {}", name));
    print("\n\nOver loop nests, in order (! cannot be left out):\n");
    for (const schedule::NestPass& p : schedule::nest_passes()) {
      print(fmt::format("{:22}{} {}\n", p.name, p.required ? "!" : " ", p.doc));
    }
    return;
  }
  if (a.file.empty()) user_error("opt: a file is missing");
  graph::Graph graph = load_graph(a.file);
  std::vector<std::string_view> names(a.passes.begin(), a.passes.end());
  if (names.empty()) {
    names.assign(passes::standard_pipeline().begin(), passes::standard_pipeline().end());
  }
  passes::PassContext context{{.freeze = a.freeze}};
  std::vector<passes::PassTiming> timings;
  passes::RunOptions options;
  options.stop_after = a.stop_after;
  options.timings = &timings;
  print(graph::to_string(passes::run_passes(std::move(graph), names, context, options)));
  if (!a.timing) return;
  for (const passes::PassTiming& t : timings) {
    std::fprintf(stderr, "%-20s %9.3f ms  %zu -> %zu nodes\n", std::string(t.name).c_str(),
                 t.seconds * 1e3, t.nodes_before, t.nodes_after);
  }
}

void lower_file(const std::string& file) {
  static constexpr std::string_view kDecompose[] = {"decompose"};
  passes::PassContext context{{}};
  print(loop::to_string(lower::lower(passes::run_passes(load_graph(file), kDecompose, context))));
}

struct StageArguments {
  CompileArguments compile;
  std::string stage = "plan";
  std::string after;  // of stages that stand after each pass; empty: all
  std::size_t stop_after = ~std::size_t{0};
  bool timing = false;
};

void print_after(const StageArguments& a, std::string_view pass, const std::string& text) {
  if (a.after.empty()) {
    print(fmt::format("# after {}\n{}\n", pass, text));
  } else if (a.after == pass) {
    print(text);
  }
}

void check_after(const StageArguments& a) {
  if (a.after.empty()) return;
  const auto is_it = [&](const kernel::KernelPass& pass) { return pass.name == a.after; };
  const bool of_nests = a.stage == "nests" && schedule::find_nest_pass(a.after) != nullptr;
  const bool of_kernel = a.stage == "kernel" &&
                         (a.after == "expand" || std::ranges::any_of(kernel::cpu_passes(), is_it) ||
                          std::ranges::any_of(kernel::gpu_passes(), is_it));
  if (!of_nests && !of_kernel)
    user_error("--after {}: stage {} has no such pass", a.after, a.stage);
}

void print_stage(const StageArguments& a) {
  check_after(a);
  const Model model = load_model_on(a.compile);
  DeviceCompiler on(a.compile);
  on.options.dump = [&](std::string_view stage, const std::string& text) {
    if (stage == a.stage || a.stage == "all") print(text);
  };
  if (a.stage == "assembly" && on.gpu != nullptr) {
    user_error("--stage assembly: there is one for the CPU only");
  }
  on.options.only_text = on.gpu != nullptr;
  on.options.keep_code = a.stage == "code" || a.stage == "assembly";
  on.options.stop_after_nest_passes = a.stop_after;
  if (a.stage == "nests") {
    on.options.verify_nest_passes = true;
    on.options.dump_nest_pass = [&](std::string_view pass, const std::string& text) {
      print_after(a, pass, text);
    };
  }
  if (a.stage == "kernel") {
    on.options.dump_kernel_pass = [&](std::string_view pass, const std::string& text) {
      print_after(a, pass, text);
    };
  }
  const driver::Compiled compiled = on.compile(model.graph);
  if (a.timing) {
    for (const schedule::NestPassTiming& t : compiled.report.nest_passes) {
      std::fprintf(stderr, "%-22s %9.3f ms\n", std::string(t.name).c_str(), t.seconds * 1e3);
    }
  }
  for (const driver::KernelCodeText& kernel : compiled.report.code) {
    print(a.stage == "assembly" ? kernel.assembly : kernel.ir);
  }
}

}  // namespace

void add_opt(CLI::App& app) {
  auto arguments = std::make_shared<OptArguments>();
  CLI::App* command = app.add_subcommand("opt", "Run passes over a graph and print it.");
  command->add_option("file", arguments->file, "graph text or .pt2 file");
  command
      ->add_option("--passes", arguments->passes,
                   "pass names, separated by commas, in order; default: the compiler's pipeline")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--stop-after", arguments->stop_after, "stop after this many passes");
  command->add_flag("--freeze", arguments->freeze, "let passes compute with literals of any size");
  command->add_flag("--timing", arguments->timing,
                    "time and nodes of each pass, to standard error");
  command->add_flag("--list", arguments->list, "print what passes there are");
  command->callback([arguments] { opt(*arguments); });
}

void add_lower(CLI::App& app) {
  auto file = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "lower", "Print the loop nests of a graph (only the pass decompose runs before).");
  command->add_option("file", *file, "graph text or .pt2 file")->required();
  command->callback([file] { lower_file(*file); });
}

void add_compile(CLI::App& app) {
  auto arguments = std::make_shared<StageArguments>();
  CLI::App* command = app.add_subcommand("compile", "Compile a model and print a stage.");
  add_compile_options(*command, arguments->compile);
  add_device_option(*command, arguments->compile);
  command
      ->add_option("--stage", arguments->stage,
                   "graph, passes, loops, kernels, plan or all; nests: after each nest pass; "
                   "kernel: kernel IR as expanded and after each kernel pass; code: LLVM IR or "
                   "CUDA C++; assembly: of the CPU")
      ->capture_default_str()
      ->check(CLI::IsMember({"graph", "passes", "loops", "kernels", "plan", "all", "nests",
                             "kernel", "code", "assembly"}));
  command->add_option("--after", arguments->after,
                      "of nests and kernel only the text after this pass; expand: before the first "
                      "kernel pass");
  command->add_option("--stop-after", arguments->stop_after, "stop after this many nest passes");
  command->add_flag("--timing", arguments->timing, "time of each nest pass, to standard error");
  command->callback([arguments] { print_stage(*arguments); });
}

}  // namespace inkle::cli
