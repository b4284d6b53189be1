// The commands that golden tests may run. A new one is a function and a line in the table.
#include <fmt/format.h>

#include <algorithm>

#include "abi/targets.h"
#include "base/error.h"
#include "codegen/cpu/attention_problem.h"
#include "codegen/cpu/gemm_problem.h"
#include "codegen/cuda/compiler.h"
#include "codegen/cuda/gemm.h"
#include "codegen/cuda/print_kernel.h"
#include "driver/target.h"
#include "golden/commands.h"
#include "graph/text.h"
#include "kernel/interpret_inputs.h"
#include "kernel/mutate.h"
#include "kernel/parse.h"
#include "kernel/passes.h"
#include "kernel/verify.h"
#include "lower/lower.h"
#include "ops/table.h"
#include "partition/partition.h"
#include "passes/pipeline.h"
#include "schedule/expand.h"
#include "schedule/schedule.h"

namespace inkle::golden {

std::vector<std::string_view> split(std::string_view list) {
  std::vector<std::string_view> out;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    out.push_back(list.substr(0, comma));
    list.remove_prefix(std::min(list.size(), comma + 1));
  }
  return out;
}

namespace {

// What a host might answer: results are row-major.
std::optional<passes::AttentionCalls> some_attention(const passes::AttentionRequest& request) {
  const auto dense = [&](graph::Type type) {
    type.strides = graph::contiguous_strides(type.sizes[0].context(), type.sizes);
    return type;
  };
  graph::Type out = request.query, rows = request.query;
  out.sizes.back() = request.value.sizes.back();
  rows.sizes.pop_back();
  rows.dtype = graph::DType::f32;
  const std::string name = fmt::format("attention{} {} {}", request.is_causal ? " causal" : "",
                                       request.scale, request.dropout);
  return passes::AttentionCalls{
      .name = name,
      .forward = 0,
      .backward = 1,
      .results = {dense(out), dense(rows)},
      .gradients = {dense(request.query), dense(request.key), dense(request.value)}};
}

// opt [--passes=a,b | --pipeline] [--freeze] [--merge] [--attention]
// [--safe-attention] [--joint=n] [--skip=a,b] [--stop-after=n]: the graph after passes.
std::string opt(std::string_view text, std::span<const std::string> args) {
  std::vector<std::string_view> names;
  passes::PassContext context;
  passes::RunOptions options;
  for (const std::string_view arg : args) {
    const std::string_view value = arg.substr(std::min(arg.find('='), arg.size() - 1) + 1);
    if (arg.starts_with("--passes=")) {
      names = split(value);
    } else if (arg == "--pipeline") {
      names.assign(passes::standard_pipeline().begin(), passes::standard_pipeline().end());
    } else if (arg == "--freeze") {
      context.options.freeze = true;
    } else if (arg == "--attention") {
      context.options.attention = some_attention;
    } else if (arg == "--safe-attention") {
      context.options.safe_attention = true;
    } else if (arg == "--merge") {
      context.options.gemm_costs = passes::GemmCosts{800e12, 2.5e-6};  // of a GPU
    } else if (arg.starts_with("--joint=")) {
      context.options.forward_outputs = std::stoul(std::string(value));
    } else if (arg.starts_with("--skip=")) {
      for (const std::string_view name : split(value)) options.skip.emplace_back(name);
    } else if (arg.starts_with("--stop-after=")) {
      options.stop_after = std::stoul(std::string(value));
    } else {
      user_error("opt: unknown option '{}'", arg);
    }
  }
  graph::Graph graph = graph::parse(text, "in", ops::op_table());
  graph = passes::run_passes(std::move(graph), names, context, options);
  const std::string out = graph::to_string(graph);
  // Every golden text also tests that what is printed reads back as it was.
  const std::string again = graph::to_string(graph::parse(out, "out", ops::op_table()));
  if (again != out) user_error("the text does not read back:\n{}\nbecame\n{}", out, again);
  return out;
}

loop::Program lowered(std::string_view text) {
  passes::PassContext context;
  graph::Graph graph = graph::parse(text, "in", ops::op_table());
  return lower::lower(
      passes::run_passes(std::move(graph), passes::standard_pipeline(), context, {}));
}

// loops: a graph's nests, after the standard passes.
std::string loops(std::string_view text, std::span<const std::string>) {
  const std::string out = loop::to_string(lowered(text));
  const std::string again = loop::to_string(loop::parse_program(out, "out"));
  if (again != out) user_error("the text does not read back:\n{}\nbecame\n{}", out, again);
  return out;
}

// cut [--outputs=n] [--tangents=n] [--by=time|kernels|bytes|nothing] [--most=bytes] [--saved]
// [--no-output-saved|--outputs-saved] [--pure-calls=n]: forward and backward graph of a joint one.
// The first n calls to eager are pure. Its first n outputs are the forward's, its last n inputs
// tangents; weights are fixed; with --saved the host's own partition keeps all inputs, with
// --no-output-saved no output of the forward. With
// --outputs-saved it keeps all of these, and the tangents are known to be those of the outputs, in
// order.
std::string cut(std::string_view text, std::span<const std::string> args) {
  graph::Graph joint = graph::parse(text, "in", ops::op_table());
  partition::Joint info{.forward_outputs = 1};
  std::size_t tangents = 1;
  partition::Weigh weigh = partition::Weigh::time;
  for (const std::string_view arg : args) {
    const std::string_view value = arg.substr(std::min(arg.find('='), arg.size() - 1) + 1);
    if (arg.starts_with("--outputs=")) {
      info.forward_outputs = std::stoul(std::string(value));
    } else if (arg.starts_with("--tangents=")) {
      tangents = std::stoul(std::string(value));
    } else if (arg.starts_with("--most=")) {
      info.most_bytes = std::stol(std::string(value));
    } else if (arg.starts_with("--pure-calls=")) {
      info.is_pure_call.assign(std::stoul(std::string(value)), true);
    } else if (arg == "--saved") {
      info.is_saved_input.assign(joint.inputs.size(), true);
    } else if (arg == "--no-output-saved") {
      info.is_saved_output.assign(joint.outputs.size(), false);
    } else if (arg == "--outputs-saved") {
      info.is_saved_output.assign(joint.outputs.size(), true);
    } else if (arg == "--by=bytes") {
      weigh = partition::Weigh::bytes;
    } else if (arg == "--by=kernels") {
      weigh = partition::Weigh::kernels;
    } else if (arg == "--by=nothing") {
      weigh = partition::Weigh::nothing;
    } else {
      user_error("cut: unknown option '{}'", arg);
    }
  }
  const std::size_t inputs = joint.inputs.size();
  for (std::size_t i = 0; i < inputs; ++i) {
    info.is_tangent.push_back(i + tangents >= inputs);
    info.is_static.push_back(joint.inputs[i].is_parameter);
    info.is_written.push_back(false);
    if (info.is_saved_output.empty() || !info.is_saved_output.front()) continue;
    info.output_of_tangent.push_back(
        i + tangents >= inputs ? static_cast<std::int32_t>(i + tangents - inputs) : -1);
  }
  partition::TrainingGraphs graphs = partition::partition(joint, info, {}, weigh);
  graphs.settle_strides();
  graph::verify(graphs.forward);
  graph::verify(graphs.backward);
  return fmt::format("{}{}# {} bytes\n", graph::to_string(graphs.forward),
                     graph::to_string(graphs.backward), graphs.bytes);
}

// A machine that does not depend on where the test runs: AVX-512 with 16 registers, two threads.
schedule::Options fixed_options() {
  schedule::Options options;
  options.target = *abi::target_named("x86-64-v4");
  options.target.vector_registers = 16;
  options.target.parallelism = 2;
  options.target.libraries.convolution.longest_sum = 0;
  return options;
}

// schedule [--training] [--brief] [--short-sums] [--library] [--keeps-order] [--device=cuda]
// [--gemm[=TILE]]: a graph's kernels and library calls; brief leaves out the text of kernels,
// library is how a GPU's libraries are used, keeps-order how they take images, gemm that matrix
// products are the template's, of one tile.
std::string scheduled(std::string_view text, std::span<const std::string> args) {
  schedule::Options options = fixed_options();
  // Verified after each nest pass. --skip=a,b and --stop-after=n leave passes out.
  schedule::NestPassOptions run{.verify_each = true};
  bool brief = false;
  for (const std::string_view arg : args) {
    const std::string_view value = arg.substr(std::min(arg.find('='), arg.size() - 1) + 1);
    if (arg == "--training") {
      options.training = true;
    } else if (arg.starts_with("--skip=")) {
      for (const std::string_view name : split(value)) run.skip.emplace_back(name);
    } else if (arg.starts_with("--stop-after=")) {
      run.stop_after = std::stoul(std::string(value));
    } else if (arg == "--brief") {
      brief = true;
    } else if (arg == "--device=cuda") {
      options.target = abi::gpu_target_of(abi::typical_device("sm_90a"));
    } else if (arg == "--gemm" || arg.starts_with("--gemm=")) {
      options.target.libraries.gemm.source = abi::GemmSource::templates;
      if (arg != "--gemm") driver::take_tile(options.target, fmt::format("template:{}", value));
    } else if (arg == "--short-sums") {
      options.target.libraries.convolution.longest_sum = 384;
    } else if (arg == "--keeps-order") {
      options.target.libraries.convolution.keeps_order =
          abi::gpu_target("sm_90a")->libraries.convolution.keeps_order;
    } else if (arg == "--library") {
      abi::Libraries& libraries = options.target.libraries;
      libraries.keep_roundings = libraries.adds_before_rounding = true;
      libraries.gemm.needs_matrices = true;
      libraries.gemm.types = libraries.gemm.f32_results =
          abi::gpu_target("sm_90a")->libraries.gemm.types;
      libraries.convolution.least_channels = 8;
    } else {
      user_error("schedule: unknown option '{}'", arg);
    }
  }
  const schedule::ScheduledProgram program = schedule::schedule(lowered(text), options, run);
  return schedule::to_string(program, brief);
}

// With # for // where a line begins, since that begins a line of the test file.
std::string without_comments(std::string out) {
  for (std::size_t at = out.find("\n//"); at != std::string::npos; at = out.find("\n//", at)) {
    out.replace(at + 1, 2, "#");
  }
  return out;
}

// cuda [--arch=sm_90a] [--training] [--deterministic] [--gemm]: a graph's kernels as CUDA C++.
std::string cuda(std::string_view text, std::span<const std::string> args) {
  std::string architecture = "sm_90a";
  schedule::Options options = fixed_options();
  bool by_template = false;
  for (const std::string_view arg : args) {
    if (arg == "--gemm") {
      by_template = true;
      continue;
    }
    if (arg == "--training" || arg == "--deterministic") {
      (arg == "--training" ? options.training : options.deterministic) = true;
      continue;
    }
    if (!arg.starts_with("--arch=")) user_error("cuda: unknown option '{}'", arg);
    architecture = arg.substr(std::string_view("--arch=").size());
  }
  const codegen::cuda::CudaCompiler compiler(abi::typical_device(architecture));
  options.target = abi::gpu_target_of(compiler.device());
  if (by_template) options.target.libraries.gemm.source = abi::GemmSource::templates;
  const schedule::ScheduledProgram program = schedule::schedule(lowered(text), options);
  std::string out;
  for (const schedule::Step& step : program.steps) {
    const auto* kernel = std::get_if<schedule::KernelStep>(&step.action);
    if (kernel == nullptr) continue;
    const std::string blocks = sym::to_string(
        schedule::parallel_extent(kernel->kernel, kernel->schedule, *program.program.context));
    out += fmt::format("# {} blocks\n", blocks);
    out += compiler.source({&kernel->kernel, kernel->schedule, "k"});
  }
  return without_comments(std::move(out));
}

// Takes the names of "--passes=a,b" out of those that are skipped.
void take_out(std::vector<std::string>& skip, std::string_view arg) {
  for (const std::string_view name : split(arg.substr(std::string_view("--passes=").size()))) {
    if (std::erase(skip, name) == 0) user_error("there is no kernel pass '{}'", name);
  }
}

kernel::CheckResult right_run(const kernel::Kernel& kernel, const kernel::Inputs& inputs,
                              const kernel::CheckOptions& options) {
  kernel::CheckResult result = kernel::check(kernel, inputs.instances, options);
  for (const kernel::Finding& finding : result.findings) {
    user_error("{}: {}", result.schedule, kernel::to_string(kernel, finding));
  }
  return result;
}

// How a kernel is run after passes.
struct KernelRun {
  bool compares = true;  // the kernel before them is right, too, and has the same results
  bool mutates = false;  // and made wrong in one place after the other
  kernel::Digits digits = kernel::Digits::many;
  kernel::CheckOptions check;
  std::vector<std::string> sizes;
};

std::string mutations_of(const kernel::Kernel& kernel, const kernel::Inputs& inputs,
                         const kernel::CheckOptions& options) {
  const std::vector<std::vector<kernel::Instance>> arguments = {inputs.instances};
  const auto outcomes = kernel::try_mutations(kernel, arguments, {1, options});
  const auto survived = [](const auto& o) { return o.verdict == kernel::Verdict::survived; };
  std::string out = fmt::format("# {} mutations, {} survived\n", outcomes.size(),
                                std::ranges::count_if(outcomes, survived));
  for (const kernel::MutationOutcome& outcome : outcomes) {
    if (survived(outcome)) out += "# " + kernel::to_string(kernel, outcome.mutation) + "\n";
  }
  return out;
}

// What running a kernel after passes says; it must be right under all schedules.
std::string run_kernel(const kernel::Kernel& before, const kernel::Kernel& after,
                       const KernelRun& how) {
  const kernel::Inputs inputs =
      kernel::make_inputs(before, kernel::choose_sizes(before, how.sizes), 0, how.digits);
  const kernel::CheckResult got = right_run(after, inputs, how.check);
  std::string out = fmt::format("# {} runs", got.runs - got.orders);
  if (how.check.max_orders > 0) {
    out += fmt::format(", {} orders{}", got.orders, got.all_orders ? ", all" : "");
  }
  if (how.compares) {
    if (got.results != right_run(before, inputs, how.check).results) {
      user_error("other results than before the passes");
    }
    out += ", results as before";
  }
  out += "\n";
  return how.mutates ? out + mutations_of(after, inputs, how.check) : out;
}

// kernel [--shared=bytes] [--text] [--passes=a,b] [--run | --interpret [--few] | --mutate]
// [--orders=n] [--seeds=n] [size=value]: a kernel's canonical text once it is verified, for a
// machine with so much shared memory, before or after passes of a GPU's. --run: what the
// interpreter says of the kernel after them; --interpret: also of the one before, whose results
// must be the same
// (--few: for numbers whose sums are exact); --mutate: also what nobody notices of it made wrong.
std::string kernel_text(std::string_view text, std::span<const std::string> args) {
  kernel::ParsedKernel parsed = kernel::parse_kernel(text, "in");
  kernel::Limits limits;
  kernel::PassOptions passes{.verify_each = true};
  KernelRun how;
  for (const kernel::KernelPass& pass : kernel::gpu_passes()) passes.skip.emplace_back(pass.name);
  bool verifies = true, runs = false;
  for (const std::string_view arg : args) {
    const auto number = [&] { return std::stol(std::string(arg.substr(arg.find('=') + 1))); };
    if (arg == "--text") {
      verifies = false;
    } else if (arg == "--run" || arg == "--interpret" || arg == "--mutate") {
      runs = true;
      how.compares = arg != "--run";
      how.mutates = arg == "--mutate";
    } else if (arg == "--few") {
      how.digits = kernel::Digits::few;
    } else if (arg.starts_with("--passes=")) {
      take_out(passes.skip, arg);
    } else if (arg.starts_with("--shared=")) {
      limits.shared_bytes = number();
    } else if (arg.starts_with("--orders=")) {
      how.check.max_orders = number();
    } else if (arg.starts_with("--seeds=")) {
      how.check.seeds = static_cast<int>(number());
    } else if (!arg.starts_with("--")) {
      how.sizes.emplace_back(arg);
    } else {
      user_error("kernel: unknown option '{}'", arg);
    }
  }
  if (verifies) {
    kernel::verify(parsed.kernel, "", limits);
    kernel::run_passes(parsed.kernel, *parsed.context, kernel::gpu_passes(), passes);
  }
  std::string out = kernel::to_string(parsed.kernel);
  const std::string again = kernel::to_string(kernel::parse_kernel(out, "out").kernel);
  if (again != out) user_error("the text does not read back:\n{}\nbecame\n{}", out, again);
  if (!runs) return out;
  return out + run_kernel(kernel::parse_kernel(text, "in").kernel, parsed.kernel, how);
}

// print [--shared=n]: kernel IR as CUDA C++, with # for // before comments.
std::string printed(std::string_view text, std::span<const std::string> args) {
  kernel::Limits limits;
  for (const std::string& arg : args) {
    if (!arg.starts_with("--shared=")) user_error("print: unknown option '{}'", arg);
    limits.shared_bytes = std::stol(arg.substr(arg.find('=') + 1));
  }
  kernel::ParsedKernel parsed = kernel::parse_kernel(text, "in");
  kernel::verify(parsed.kernel, "", limits);
  const auto source =
      codegen::cuda::print_kernel(parsed.kernel, "k", "as it stands", *parsed.context);
  std::string out = fmt::format("# {} bytes of shared memory\n", source.shared_bytes);
  return without_comments(out + source.text);
}

// A kernel's text after passes, read back.
std::string passed(kernel::Kernel made, sym::Context& context,
                   std::span<const kernel::KernelPass> all, const kernel::PassOptions& passes) {
  kernel::run_passes(made, context, all, passes);
  std::string text = kernel::to_string(made);
  const std::string again = kernel::to_string(kernel::parse_kernel(text, "out").kernel);
  if (again != text) user_error("the text does not read back:\n{}\nbecame\n{}", text, again);
  return text;
}

// expand [--training] [--passes=a,b]: a graph's loop kernels as kernel IR, of a CPU with AVX-512,
// before or after kernel passes. Each is verified and read back.
// expand --device=cuda [--arch=sm_90a] [--blocks=rows,threads,64,..]: of a GPU, under this schedule
// instead of the one that is chosen.
std::string expanded(std::string_view text, std::span<const std::string> args) {
  schedule::Options options = fixed_options();
  kernel::PassOptions passes{.verify_each = true};
  const bool is_cuda = std::ranges::find(args, "--device=cuda") != args.end();
  const auto all = is_cuda ? kernel::gpu_passes() : kernel::cpu_passes();
  for (const kernel::KernelPass& pass : all) passes.skip.emplace_back(pass.name);
  std::string architecture = "sm_90a";
  std::optional<schedule::BlockSchedule> blocks;
  for (const std::string_view arg : args) {
    const std::string value(arg.substr(std::min(arg.find('='), arg.size() - 1) + 1));
    if (arg == "--training") {
      options.training = true;
    } else if (arg.starts_with("--passes=")) {
      take_out(passes.skip, arg);
    } else if (arg.starts_with("--arch=")) {
      architecture = value;
    } else if (arg.starts_with("--blocks=")) {
      std::string text_of_blocks = value;
      std::replace(text_of_blocks.begin(), text_of_blocks.end(), ',', ' ');
      blocks = schedule::parse_blocks(text_of_blocks);
    } else if (arg != "--device=cuda") {
      user_error("expand: unknown option '{}'", arg);
    }
  }
  if (is_cuda) options.target = abi::gpu_target_of(abi::typical_device(architecture));
  const schedule::ScheduledProgram program = schedule::schedule(lowered(text), options);
  std::string out;
  for (const schedule::Step& step : program.steps) {
    const auto* kernel = std::get_if<schedule::KernelStep>(&step.action);
    if (kernel == nullptr || !std::holds_alternative<schedule::LoopKernel>(kernel->kernel.body)) {
      continue;
    }
    sym::Context& context = *program.program.context;
    schedule::Schedule how = kernel->schedule;
    if (blocks) how.blocks = blocks;
    out += passed(schedule::expand(kernel->kernel, how, context, options.target), context, all,
                  passes);
  }
  return out;
}

kernel::PassOptions no_passes(std::span<const kernel::KernelPass> all) {
  kernel::PassOptions passes{.verify_each = true};
  for (const kernel::KernelPass& pass : all) passes.skip.emplace_back(pass.name);
  return passes;
}

// The text of what a template writes, after some passes.
template <class Problem, class Config>
std::string written(const templates::Template<Problem, Config>& row, const Problem& problem,
                    const Config& config, sym::Context& context,
                    const kernel::PassOptions& passes) {
  if (const std::string lacks = row.needs(problem, config); !lacks.empty()) {
    unsupported("{}", lacks);
  }
  const templates::Estimate estimate = row.estimate(problem, config);
  std::string out =
      fmt::format("{} {}\nstack bytes {}, operations {}\n", row.name, to_string(config),
                  sym::to_string(estimate.stack_bytes), sym::to_string(estimate.operations));
  return out + passed(row.emit(problem, config, context), context, kernel::cpu_passes(), passes);
}

// templates [--training] [--gemm] [--passes=a,b]: a graph's attention, or its matrix products, as
// kernel IR, of a CPU with AVX2, before or after kernel passes. Each is verified and read back.
// templates --amx: products and attention of a CPU with tiles; --bf16: with pairs of bf16.
// templates --wgmma[=TILE]: products of sm_90a.
std::string from_templates(std::string_view text, std::span<const std::string> args) {
  schedule::Options options = fixed_options();
  std::string_view kind, tile;
  kernel::PassOptions passes{.verify_each = true};
  for (const kernel::KernelPass& pass : kernel::cpu_passes()) passes.skip.emplace_back(pass.name);
  for (const std::string_view arg : args) {
    if (arg == "--training")
      options.training = true;
    else if (arg == "--gemm" || arg == "--amx" || arg == "--bf16" || arg == "--wgmma")
      kind = arg;
    else if (arg.starts_with("--wgmma="))
      kind = "--wgmma", tile = arg.substr(arg.find('=') + 1);
    else if (arg.starts_with("--passes="))
      take_out(passes.skip, arg);
    else
      user_error("templates: unknown option '{}'", arg);
  }
  if (kind == "--wgmma") options.target = abi::gpu_target_of(abi::typical_device("sm_90a"));
  if (!tile.empty()) driver::take_tile(options.target, fmt::format("template:{}", tile));
  const abi::Target& cpu = *abi::target_named(kind == "--amx"    ? "x86-64-v4+amx"
                                              : kind == "--bf16" ? "x86-64-v4+bf16"
                                                                 : "x86-64-v3");
  if (kind == "--amx" || kind == "--bf16") options.target = cpu;
  if (!kind.empty()) options.target.libraries.gemm.source = abi::GemmSource::templates;
  const schedule::ScheduledProgram program = schedule::schedule(lowered(text), options);
  std::string out;
  for (const schedule::Step& step : program.steps) {
    const auto* kernel = std::get_if<schedule::KernelStep>(&step.action);
    if (kernel == nullptr) continue;
    sym::Context& context = *program.program.context;
    if (const auto* a = std::get_if<schedule::AttentionKernel>(&kernel->kernel.body)) {
      const auto problem = codegen::cpu::attention_problem(kernel->kernel, *a);
      const templates::AttentionTemplate& row = templates::attention_template_of(problem);
      const auto config = codegen::cpu::attention_config(row, problem, kernel->schedule, cpu);
      out += written(row, problem, config, context, passes);
    } else if (const auto* w = std::get_if<schedule::GemmKernel>(&kernel->kernel.body);
               w != nullptr && kernel->schedule.gemm) {
      kernel::Kernel made =
          codegen::cuda::write_gemm(kernel->kernel, *w, kernel->schedule, context);
      out += schedule::to_string(kernel->schedule) + "\n";
      out +=
          passed(std::move(made), context, kernel::gpu_passes(), no_passes(kernel::gpu_passes()));
    } else if (const auto* g = std::get_if<schedule::GemmKernel>(&kernel->kernel.body)) {
      const auto problem = codegen::cpu::gemm_problem(kernel->kernel, *g);
      const templates::GemmTemplate& row = templates::gemm_template_of(problem);
      const auto config = codegen::cpu::gemm_config(row, problem, kernel->schedule, cpu);
      out += written(row, problem, config, context, passes);
    }
  }
  return out;
}

constexpr Command kCommands[] = {
    {"cuda", cuda},
    {"cut", cut},
    {"expand", expanded},
    {"interpret", interpret},
    {"kernel", kernel_text},
    {"loops", loops},
    {"opt", opt},
    {"print", printed},
    {"schedule", scheduled},
    {"templates", from_templates},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace inkle::golden
