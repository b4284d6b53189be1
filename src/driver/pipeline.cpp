#include "driver/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/log.h"
#include "base/unsupported.h"
#include "driver/assemble.h"
#include "graph/text.h"
#include "kernel/passes.h"
#include "lower/lower.h"
#include "passes/pipeline.h"
#include "schedule/nest_passes.h"
#include "schedule/numerics.h"
#include "schedule/schedule.h"

namespace inkle::driver {
namespace {

// Runs one stage: its time, its note on errors, the switch that makes it fail.
class Stages {
 public:
  Stages(const CompileOptions& options, Report& report) : options_(options), report_(report) {}

  template <class F>
  auto run(std::string_view stage, F&& f) {
    const auto start = std::chrono::steady_clock::now();
    try {
      if (options_.fail_stage == stage) throw InternalError("made to fail by option fail_stage");
      auto result = f();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      report_.stages.push_back({std::string(stage), seconds.count()});
      log(LogChannel::driver, "{}: {:.2f} ms", stage, seconds.count() * 1e3);
      return result;
    } catch (Error& e) {
      e.add_note(fmt::format("in stage {}", stage));
      throw;
    }
  }

  void dump(std::string_view stage, const std::function<std::string()>& text) const {
    if (options_.dump) options_.dump(stage, text());
  }

 private:
  const CompileOptions& options_;
  Report& report_;
};

// What computes a tensor of another device is not ours: on a GPU, sizes and scalars of the CPU. All
// of it is named at once, as it goes to eager in another attempt.
void check_devices(const schedule::ScheduledProgram& scheduled, const abi::Device& device) {
  if (device.kind == abi::DeviceKind::cpu) return;
  const auto is_elsewhere = [&](loop::BufferId b) {
    return scheduled.program.buffers[b].device.kind != device.kind;
  };
  std::vector<std::string> labels, sources;
  for (const schedule::Step& step : scheduled.steps) {
    if (std::holds_alternative<schedule::EagerStep>(step.action)) continue;
    const auto writes = schedule::writes(step);
    if (std::none_of(writes.begin(), writes.end(), is_elsewhere)) continue;
    labels.push_back(step.label);
    const auto* kernel = std::get_if<schedule::KernelStep>(&step.action);
    const auto& nodes = kernel != nullptr ? kernel->kernel.sources : step.sources;
    sources.insert(sources.end(), nodes.begin(), nodes.end());
  }
  if (labels.empty()) return;
  unsupported_at(sources, "{} makes a tensor of the CPU in a program of a GPU: {}",
                 fmt::join(labels, ", "), fmt::join(sources, ", "));
}

// The pass that `fail_stage` makes miscompile, if it is one of `stage`.
std::string miscompiled(const CompileOptions& options, std::string_view stage) {
  constexpr std::string_view kSuffix = "/miscompile";
  std::string_view text = options.fail_stage;
  if (!text.starts_with(stage) || !text.ends_with(kSuffix)) return {};
  text.remove_suffix(kSuffix.size());
  text.remove_prefix(std::min(stage.size() + 1, text.size()));
  return std::string(text);
}

// Names are of passes over graphs or over nests; others are refused.
std::vector<std::string> skipped(const CompileOptions& options, bool of_nests) {
  std::vector<std::string> names;
  for (const std::string& name : options.skip_passes) {
    const bool is_nest_pass = schedule::find_nest_pass(name) != nullptr;
    if (!is_nest_pass && passes::find_pass(name) == nullptr) {
      user_error("there is no pass '{}'", name);
    }
    if (is_nest_pass == of_nests) names.push_back(name);
  }
  return names;
}

// Passes over graphs that are left out. Whether attention written out by hand is found may depend
// on the batch (of one row it looks otherwise), and its result then would.
std::vector<std::string> skipped_passes(const CompileOptions& options) {
  std::vector<std::string> names = skipped(options, false);
  if (options.numerics == abi::Numerics::batch_invariant) {
    for (const char* name : {"attention", "joint_attention", "training_attention"}) {
      names.emplace_back(name);
    }
  }
  // Folding computes in f64 and rounds once.
  if (options.numerics == abi::Numerics::bitwise) names.emplace_back("fold_constants");
  return names;
}

schedule::NestPassOptions nest_pass_options(const CompileOptions& options, Report& report,
                                            UnsupportedNodes& found, PassLimit& limit) {
  constexpr std::string_view kPrefix = "schedule/";
  schedule::NestPassOptions run{.skip = skipped(options, true),
                                .stop_after = options.stop_after_nest_passes,
                                .verify_each = options.verify_nest_passes,
                                .limit = &limit,
                                .found = &found,
                                .miscompile = miscompiled(options, "schedule"),
                                .dump = options.dump_nest_pass,
                                .timings = &report.nest_passes};
  const bool fails = options.fail_stage.starts_with(kPrefix) && run.miscompile.empty();
  if (fails) run.fail = options.fail_stage.substr(kPrefix.size());
  return run;
}

std::string kernels_text(const schedule::ScheduledProgram& scheduled) {
  std::string text;
  for (const schedule::Step& step : scheduled.steps) {
    text += fmt::format("# {}  {}\n", step.label, fmt::join(step.sources, ", "));
    if (const auto* k = std::get_if<schedule::KernelStep>(&step.action)) {
      text += schedule::to_string(k->kernel) + schedule::to_string(k->schedule) + "\n";
    }
  }
  return text;
}

void describe_steps(const schedule::ScheduledProgram& scheduled, const abi::Plan& plan,
                    Report& report) {
  report.bytes_moved = sym::hint(scheduled.bytes_moved).value_or(0);
  report.bytes_lower_bound = sym::hint(scheduled.bytes_lower_bound).value_or(0);
  for (std::size_t s = 0; s < scheduled.steps.size(); ++s) {
    const schedule::Step& step = scheduled.steps[s];
    StepReport r;
    r.label = step.label;
    r.source = fmt::format("{}", fmt::join(step.sources, ", "));
    if (std::holds_alternative<schedule::KernelStep>(step.action)) {
      r.kind = "kernel";
      r.kernel = plan.kernels[std::get<abi::Launch>(plan.steps[s].action).kernel].name;
      ++report.launches;
    } else if (std::holds_alternative<schedule::EagerStep>(step.action)) {
      r.kind = "eager";
      report.eager.push_back(step.label);
    } else {
      r.kind = std::holds_alternative<schedule::MatmulStep>(step.action)        ? "matmul"
               : std::holds_alternative<schedule::ConvolutionStep>(step.action) ? "convolution"
                                                                                : "attention";
      ++report.library_calls;
    }
    report.steps.push_back(std::move(r));
  }
}

}  // namespace

namespace {

// The kernel pass that `fail_stage` names; none where it names a stage.
kernel::PassFault pass_fault(std::string_view stage) {
  constexpr std::string_view kPrefix = "codegen/";
  constexpr std::string_view kWrong = "/wrong", kMiscompile = "/miscompile";
  if (!stage.starts_with(kPrefix)) return {};
  stage.remove_prefix(kPrefix.size());
  const bool wrong_kernel = stage.ends_with(kWrong), miscompiles = stage.ends_with(kMiscompile);
  if (wrong_kernel) stage.remove_suffix(kWrong.size());
  if (miscompiles) stage.remove_suffix(kMiscompile.size());
  return {std::string(stage), wrong_kernel, miscompiles};
}

// Whether kernels that are known go through the passes, too.
bool makes_all_kernels(const kernel::PassOptions& passes) {
  return !passes.fault.pass.empty() || passes.dump != nullptr || passes.optional != PassLimit::kAll;
}

// Functions and quotients of a GPU that are rounded at once have few digits beyond; not eager's.
bool keeps_functions(const CompileOptions& options, const abi::DeviceDescription& device) {
  return options.numerics == abi::Numerics::bitwise && device.kind == abi::DeviceKind::cuda;
}

// `report`: of the passes before.
CodeOptions code_options(const CompileOptions& options, const Report& report,
                         const abi::DeviceDescription& device) {
  kernel::PassOptions passes{.fault = pass_fault(options.fail_stage)};
  if (keeps_functions(options, device)) passes.skip.emplace_back("numerics");
  if (options.pass_limit != PassLimit::kAll) {
    passes.optional =
        options.pass_limit - std::min(options.pass_limit, report.optional_passes.size());
  }
  if (options.dump_kernel_pass) {
    passes.dump = [&options](std::string_view pass, const kernel::Kernel& kernel) {
      options.dump_kernel_pass(pass, kernel::to_string(kernel));
    };
  }
  const bool makes_all = makes_all_kernels(passes);
  return {.text = options.keep_code,
          .object = options.keep_objects,
          .only_text = options.only_text,
          .passes = std::move(passes),
          .cache = options.cache && !makes_all};
}

// What kernels that are alike have in common: the key of their code.
std::string text_of(const schedule::KernelStep& step, const CompileOptions& options,
                    const abi::DeviceDescription& device) {
  return schedule::to_string(step.kernel) + schedule::to_string(step.schedule) +
         (keeps_functions(options, device) ? "\nas its functions are\n" : "\n");
}

}  // namespace

abi::PlanAndCode Compiler::generate(schedule::ScheduledProgram& scheduled,
                                    const CompileOptions& options, Report& report) {
  const std::lock_guard lock(mutex_);
  const CodeOptions code = code_options(options, report, target_->device());
  const bool is_gpu = target_->device().kind == abi::DeviceKind::cuda;
  for (const kernel::KernelPass& pass : is_gpu ? kernel::gpu_passes() : kernel::cpu_passes()) {
    if (!pass.required) report.optional_passes.push_back(fmt::format("codegen/{}", pass.name));
  }
  std::vector<KernelChoice> choices;
  std::vector<UniqueKernel> unique;
  std::unordered_map<std::string, std::uint32_t> number;  // by text, in this program
  std::vector<TargetUnit> units;
  std::vector<std::uint32_t> unit_number;
  std::vector<schedule::KernelStep*> steps;
  for (schedule::Step& step : scheduled.steps) {
    auto* kernel = std::get_if<schedule::KernelStep>(&step.action);
    if (kernel == nullptr) continue;
    steps.push_back(kernel);
    std::string text = text_of(*kernel, options, target_->device());
    const auto [at, is_new] = number.try_emplace(text, static_cast<std::uint32_t>(unique.size()));
    choices.push_back({at->second, {}});
    if (!is_new) continue;
    UniqueKernel made;
    made.name = fmt::format("k{}", unique.size());
    if (const auto known = known_.find(text);
        known != known_.end() && !makes_all_kernels(code.passes)) {
      made.compiled = known->second.kernel;
      made.compiled.scratch_bytes =
          scheduled.program.context->constant(known->second.scratch_bytes);
      if (!known->second.is_new) ++report.kernels_reused;
      known->second.is_new = false;
    } else {
      kernel->kernel.name = made.name;
      units.push_back({&kernel->kernel, kernel->schedule, made.name});
      unit_number.push_back(at->second);
    }
    made.text = std::move(text);
    unique.push_back(std::move(made));
  }
  std::vector<TargetKernel> compiled = target_->compile(units, code);
  for (std::size_t u = 0; u < units.size(); ++u) {
    UniqueKernel& made = unique[unit_number[u]];
    made.compiled = std::move(compiled[u]);
    if (!makes_all_kernels(code.passes)) remember(made.text, made.compiled);
  }
  // Scratch sizes in terms of each step's own symbols.
  std::vector<const schedule::KernelStep*> first(unique.size(), nullptr);
  for (std::size_t k = 0; k < steps.size(); ++k) {
    const std::uint32_t n = choices[k].number;
    if (first[n] == nullptr) first[n] = steps[k];
    std::vector<std::pair<sym::Expr, sym::Expr>> map;
    for (std::size_t s = 0; s < steps[k]->kernel.sizes.size(); ++s) {
      map.emplace_back(first[n]->kernel.sizes[s], steps[k]->kernel.sizes[s]);
    }
    choices[k].scratch_bytes = sym::substitute(unique[n].compiled.scratch_bytes, map);
  }
  if (options.keep_code || options.keep_objects) {
    for (const UniqueKernel& made : unique) {
      report.code.push_back(
          {made.compiled.ir, made.compiled.assembly, made.compiled.object, made.compiled.seconds});
    }
  }
  report.kernels = static_cast<std::uint32_t>(unique.size());
  Assembled made = assemble(scheduled, choices, unique, *target_);
  return {std::make_shared<const abi::Plan>(std::move(made.plan)),
          std::make_shared<const abi::Code>(std::move(made.code))};
}

namespace {

// Smaller kernels take as long as their launch, whatever their schedule.
constexpr std::int64_t kLeastTunedBytes = 1 << 20;

// What a step works on; nothing if it is not worth measuring, or some size has no hint.
std::optional<TuneCase> tune_case(const schedule::Step& step,
                                  const schedule::ScheduledProgram& scheduled) {
  const auto* k = std::get_if<schedule::KernelStep>(&step.action);
  if (k == nullptr || step.prepare || k->kernel.instances > 1 || !k->schedule.blocks ||
      k->schedule.products) {
    return {};
  }
  TuneCase result{{&k->kernel, k->schedule, {}}, {}, {}};
  std::int64_t all = 0;
  for (const loop::BufferId b : k->buffers) {
    const loop::Buffer& buffer = scheduled.program.buffers[b];
    std::int64_t elements = 1;
    for (std::size_t d = 0; d < buffer.sizes.size(); ++d) {
      const auto size = sym::hint(buffer.sizes[d]);
      const auto stride = sym::hint((*buffer.strides)[d]);
      if (!size || !stride || *size < 1 || *stride < 0) return {};
      elements += (*size - 1) * *stride;
    }
    if (!buffer.offset.is_null()) elements += sym::hint(buffer.offset).value_or(0);
    result.bytes.push_back(elements * abi::size_of(buffer.dtype));
    all += result.bytes.back();
  }
  for (const sym::Expr size : k->kernel.sizes) {
    const auto value = sym::hint(size);
    if (!value) return {};
    result.sizes.push_back(*value);
  }
  if (all < kLeastTunedBytes) return {};
  return result;
}

}  // namespace

void Compiler::tune(schedule::ScheduledProgram& scheduled) {
  const std::lock_guard lock(mutex_);
  std::vector<TuneCase> cases;
  std::vector<std::string> keys;                                    // of the cases
  std::vector<std::pair<schedule::Schedule*, std::string>> wanted;  // of all steps
  for (schedule::Step& step : scheduled.steps) {
    auto found = tune_case(step, scheduled);
    if (!found) continue;
    auto& kernel = std::get<schedule::KernelStep>(step.action);
    std::string key = fmt::format("{}{} {} {}", schedule::to_string(kernel.kernel),
                                  schedule::to_string(kernel.schedule),
                                  fmt::join(found->bytes, ","), fmt::join(found->sizes, ","));
    wanted.emplace_back(&kernel.schedule, key);
    if (tuned_.contains(key) || std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    found->unit.name = fmt::format("{} ({})", step.label, keys.size());
    cases.push_back(std::move(*found));
    keys.push_back(std::move(key));
  }
  if (!cases.empty()) {
    const std::vector<schedule::Schedule> best = target_->tune(cases);
    for (std::size_t n = 0; n < best.size(); ++n) tuned_.emplace(keys[n], best[n]);
  }
  for (auto& [schedule, key] : wanted) *schedule = tuned_.at(key);
}

// All stages up to the kernels.
schedule::ScheduledProgram Compiler::schedule(graph::Graph graph, const CompileOptions& options,
                                              Report& report) {
  Stages stages(options, report);
  PassLimit limit(options.pass_limit);
  UnsupportedNodes found;
  // A stage that has found something goes on, and so do those after it, to find the rest.
  auto note_in = [&, noted = false](std::string_view stage) mutable {
    if (!found.empty() && !std::exchange(noted, true)) {
      found.add_note(fmt::format("in stage {}", stage));
    }
  };
  stages.dump("graph", [&] { return graph::to_string(graph); });
  graph::Graph rewritten = stages.run("passes", [&] {
    passes::PassContext context{options.passes};
    context.options.safe_attention = target_->device().kind == abi::DeviceKind::cuda;
    if (!options.training) context.options.products = target_->products();
    passes::RunOptions run;
    run.skip = skipped_passes(options);
    run.limit = &limit;
    run.miscompile = miscompiled(options, "passes");
    run.verify = options.verify;
    return passes::run_passes(std::move(graph), passes::standard_pipeline(), context, run);
  });
  stages.dump("passes", [&] { return graph::to_string(rewritten); });
  loop::Program program = stages.run("lower", [&] { return lower::lower(rewritten, &found); });
  note_in("lower");
  stages.dump("loops", [&] { return loop::to_string(program); });
  schedule::Options scheduling;
  scheduling.target = target_->describe(program);
  scheduling.numerics = options.numerics;
  if (schedule::fixes_order(scheduling)) {
    scheduling.target.libraries.gemm.source = abi::GemmSource::templates;
  }
  scheduling.training = options.training;
  scheduling.deterministic = options.deterministic;
  schedule::ScheduledProgram scheduled = stages.run("schedule", [&] {
    schedule::ScheduledProgram made = inkle::schedule::schedule(
        std::move(program), scheduling, nest_pass_options(options, report, found, limit));
    found.run([&] { check_devices(made, target_->location()); });
    return made;
  });
  report.optional_passes = limit.names();
  note_in("schedule");
  if (!found.empty()) {
    probe(scheduled, options, found);
    found.check();
  }
  if (options.tune) {
    (void)stages.run("tune", [&] {
      tune(scheduled);
      return true;
    });
  }
  stages.dump("kernels", [&] { return kernels_text(scheduled); });
  for (schedule::NotHeld& op : schedule::not_held(scheduled, scheduling)) {
    report.not_held.push_back({std::move(op.op), std::move(op.source), std::move(op.reason)});
  }
  return scheduled;
}

// And all from there.
void Compiler::finish(schedule::ScheduledProgram& scheduled, const CompileOptions& options,
                      Compiled& compiled) {
  Stages stages(options, compiled.report);
  const abi::PlanAndCode made =
      stages.run("codegen", [&] { return generate(scheduled, options, compiled.report); });
  compiled.plan = made.plan;
  compiled.code = made.code;
  stages.dump("plan", [&] { return abi::to_string(*compiled.plan); });
  describe_steps(scheduled, *compiled.plan, compiled.report);
}

void Compiler::probe(const schedule::ScheduledProgram& scheduled, const CompileOptions& options,
                     UnsupportedNodes& found) {
  CodeOptions code = code_options(options, Report{}, target_->device());
  code.only_text = true;
  std::vector<TargetUnit> units;
  std::set<std::string> seen;
  const std::lock_guard lock(mutex_);
  for (const schedule::Step& step : scheduled.steps) {
    const auto* kernel = std::get_if<schedule::KernelStep>(&step.action);
    if (kernel == nullptr) continue;
    if (!seen.insert(text_of(*kernel, options, target_->device())).second) continue;
    units.push_back({&kernel->kernel, kernel->schedule, fmt::format("k{}", units.size())});
  }
  found.run([&] { (void)target_->compile(units, code); });
}

void Compiler::foresee(const schedule::ScheduledProgram& scheduled) {
  if (target_->device().kind != abi::DeviceKind::cuda) return;
  std::vector<KernelChoice> none;
  bool any = false;
  for (const schedule::Step& step : scheduled.steps) {
    any = any || std::holds_alternative<schedule::ConvolutionStep>(step.action);
    if (!std::holds_alternative<schedule::KernelStep>(step.action)) continue;
    none.push_back({0, scheduled.program.context->constant(0)});
  }
  if (!any) return;
  try {
    target_->foresee(assemble(scheduled, none, {}, *target_).plan);
  } catch (const std::exception& error) {  // said again where it matters
    log(LogChannel::driver, "looking ahead: {}", error.what());
  }
}

Compiled Compiler::compile_anew(graph::Graph graph, const CompileOptions& options) {
  Compiled compiled;
  auto scheduled = schedule(std::move(graph), options, compiled.report);
  foresee(scheduled);
  finish(scheduled, options, compiled);
  return compiled;
}

std::pair<Compiled, Compiled> Compiler::compile_anew(graph::Graph first, graph::Graph second,
                                                     const CompileOptions& options) {
  std::pair<Compiled, Compiled> both;
  UnsupportedNodes found;
  schedule::ScheduledProgram a, b;
  found.run([&] { a = schedule(std::move(first), options, both.first.report); });
  const bool is_a_scheduled = found.empty();
  const bool is_b_scheduled =
      found.run([&] { b = schedule(std::move(second), options, both.second.report); });
  if (!found.empty()) {  // what one lacks is known; of the other kernels may lack something, too
    if (is_a_scheduled) probe(a, options, found);
    if (is_b_scheduled) probe(b, options, found);
    found.check();
  }
  foresee(a);
  foresee(b);
  if (target_->device().kind == abi::DeviceKind::cuda) {
    Stages stages(options, both.first.report);
    (void)stages.run("codegen", [&] {
      compile_kernels({&a, &b}, options, both.first.report);
      return true;
    });
  }
  found.run([&] { finish(a, options, both.first); });
  found.run([&] { finish(b, options, both.second); });
  found.check();
  return both;
}

void Compiler::compile_kernels(std::initializer_list<const schedule::ScheduledProgram*> programs,
                               const CompileOptions& options, const Report& before) {
  const std::lock_guard lock(mutex_);
  const CodeOptions code = code_options(options, before, target_->device());
  std::vector<TargetUnit> units;
  std::vector<std::string> texts;
  std::set<std::string> seen;
  for (const schedule::ScheduledProgram* program : programs) {
    for (const schedule::Step& step : program->steps) {
      const auto* kernel = std::get_if<schedule::KernelStep>(&step.action);
      if (kernel == nullptr) continue;
      std::string text = text_of(*kernel, options, target_->device());
      if (known_.contains(text) && !makes_all_kernels(code.passes)) continue;
      if (!seen.insert(text).second) continue;
      units.push_back({&kernel->kernel, kernel->schedule, fmt::format("k{}", units.size())});
      texts.push_back(std::move(text));
    }
  }
  std::vector<TargetKernel> compiled = target_->compile(units, code);
  if (makes_all_kernels(code.passes)) return;
  for (std::size_t u = 0; u < units.size(); ++u) {
    remember(texts[u], compiled[u]);
    if (const auto known = known_.find(texts[u]); known != known_.end()) {
      known->second.is_new = true;
    }
  }
}

void Compiler::remember(std::string text, const TargetKernel& kernel) {
  const auto bytes = kernel.scratch_bytes.constant();
  if (!bytes) return;
  Known known{kernel, *bytes};
  known.kernel.scratch_bytes = {};
  known_.emplace(std::move(text), std::move(known));
}

partition::Halves Compiler::cut(graph::Graph joint, const partition::Joint& info,
                                partition::Weigh weigh, const CompileOptions& options,
                                std::vector<StageTime>& times) const {
  Report report;
  Stages stages(options, report);
  stages.dump("joint", [&] { return graph::to_string(joint); });
  const graph::Graph rewritten = stages.run("passes", [&] {
    passes::PassContext context{options.passes};
    // Computing scores again takes longer than keeping weights: a step of a BERT with attention
    // written out 132 ms instead of 130 (8x128) and 154 instead of 149 (2x512), a third less kept.
    if (weigh == partition::Weigh::bytes) context.options.forward_outputs = info.forward_outputs;
    passes::RunOptions run;
    PassLimit limit(options.pass_limit);
    run.skip = skipped_passes(options);
    run.limit = &limit;
    run.miscompile = miscompiled(options, "passes");
    run.verify = options.verify;
    return passes::run_passes(std::move(joint), passes::joint_pipeline(), context, run);
  });
  partition::Halves halves = stages.run("partition", [&] {
    const abi::DeviceDescription& device = target_->device();
    const partition::Machine machine{.bytes_per_second = device.bytes_per_second,
                                     .operations_per_second = device.flops_f32 / 2,
                                     .clears_memory = device.kind == abi::DeviceKind::cpu};
    // A processor's caches hold what neighbouring kernels read; there the least cut was measured.
    const bool by_kernels = weigh == partition::Weigh::time && device.kind == abi::DeviceKind::cuda;
    return partition::partition(rewritten, info, machine,
                                by_kernels ? partition::Weigh::kernels : weigh);
  });
  times.insert(times.end(), report.stages.begin(), report.stages.end());
  return halves;
}

}  // namespace inkle::driver
