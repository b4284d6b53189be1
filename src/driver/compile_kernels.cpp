// The stage of code: kernels of a program -> machine code, each text once.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "driver/assemble.h"
#include "driver/kernel_names.h"
#include "driver/pipeline.h"
#include "driver/stage_options.h"
#include "kernel/passes.h"

namespace inkle::driver {
namespace {

// `bytes`, of the sizes `formal`, in the sizes that a call of `step` has: of its instances the
// most.
sym::Expr scratch_of(sym::Expr bytes, const std::vector<sym::Expr>& formal,
                     const schedule::KernelStep& step) {
  const auto of = [&](const std::vector<sym::Expr>& actual) {
    std::vector<std::pair<sym::Expr, sym::Expr>> map;
    for (std::size_t s = 0; s < formal.size(); ++s) map.emplace_back(formal[s], actual[s]);
    return sym::substitute(bytes, map);
  };
  if (step.table.empty()) return of(step.kernel.sizes);
  sym::Expr most = of(step.table.front());
  for (const std::vector<sym::Expr>& actual : step.table) most = max(most, of(actual));
  return most;
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
  const bool keeps = keeps_functions(options, target_->device());
  KernelNames names;
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
    std::string text = text_of(kernel->kernel, kernel->schedule, keeps);
    const auto [at, is_new] = number.try_emplace(text, static_cast<std::uint32_t>(unique.size()));
    choices.push_back({at->second, {}});
    if (!is_new) continue;
    UniqueKernel made;
    made.name = names.name(kernel->kernel, step.label, text);
    if (const auto known = known_.find({made.name, text});
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
    if (!makes_all_kernels(code.passes)) remember({made.name, made.text}, made.compiled);
  }
  // Each step's own, where the kernel of the first step with the same text has its sizes.
  std::vector<const schedule::KernelStep*> first(unique.size(), nullptr);
  for (std::size_t k = 0; k < steps.size(); ++k) {
    const std::uint32_t n = choices[k].number;
    if (first[n] == nullptr) first[n] = steps[k];
    choices[k].scratch_bytes =
        scratch_of(unique[n].compiled.scratch_bytes, first[n]->kernel.sizes, *steps[k]);
  }
  if (options.keep_code || options.keep_objects) {
    for (const UniqueKernel& made : unique) {
      report.code.push_back(
          {made.compiled.ir, made.compiled.assembly, made.compiled.object, made.compiled.seconds});
    }
  }
  for (const UniqueKernel& made : unique) report.schedules.push_back(made.text);
  report.kernels = static_cast<std::uint32_t>(unique.size());
  Assembled made = assemble(scheduled, choices, unique, *target_);
  return {std::make_shared<const abi::Plan>(std::move(made.plan)),
          std::make_shared<const abi::Code>(std::move(made.code))};
}

void Compiler::probe(const schedule::ScheduledProgram& scheduled, const CompileOptions& options,
                     UnsupportedNodes& found) {
  CodeOptions code = code_options(options, Report{}, target_->device());
  code.only_text = true;
  const bool keeps = keeps_functions(options, target_->device());
  KernelNames names;
  std::vector<TargetUnit> units;
  std::set<std::string> seen;
  const std::lock_guard lock(mutex_);
  for (const schedule::Step& step : scheduled.steps) {
    const auto* kernel = std::get_if<schedule::KernelStep>(&step.action);
    if (kernel == nullptr) continue;
    const auto [text, is_new] = seen.insert(text_of(kernel->kernel, kernel->schedule, keeps));
    if (!is_new) continue;
    units.push_back(
        {&kernel->kernel, kernel->schedule, names.name(kernel->kernel, step.label, *text)});
  }
  found.run([&] { (void)target_->compile(units, code); });
}

void Compiler::foresee(const schedule::ScheduledProgram& scheduled) {
  if (target_->device().kind != abi::DeviceKind::cuda) return;
  const bool any = std::ranges::any_of(scheduled.steps, [](const schedule::Step& step) {
    return std::holds_alternative<schedule::ConvolutionStep>(step.action);
  });
  if (!any) return;
  try {
    target_->foresee(plan_convolutions(scheduled, *target_));
  } catch (const std::exception& error) {  // said again where it matters
    log(LogChannel::driver, "searching convolutions ahead of time: {}", error.what());
  }
}

void Compiler::compile_kernels(std::initializer_list<const schedule::ScheduledProgram*> programs,
                               const CompileOptions& options, const Report& before) {
  const std::lock_guard lock(mutex_);
  const CodeOptions code = code_options(options, before, target_->device());
  const bool keeps = keeps_functions(options, target_->device());
  KernelNames names;
  std::vector<TargetUnit> units;
  std::vector<KernelKey> keys;
  std::set<std::string> seen;
  for (const schedule::ScheduledProgram* program : programs) {
    for (const schedule::Step& step : program->steps) {
      const auto* kernel = std::get_if<schedule::KernelStep>(&step.action);
      if (kernel == nullptr) continue;
      std::string text = text_of(kernel->kernel, kernel->schedule, keeps);
      if (!seen.insert(text).second) continue;
      KernelKey key{names.name(kernel->kernel, step.label, text), std::move(text)};
      if (known_.contains(key) && !makes_all_kernels(code.passes)) continue;
      units.push_back({&kernel->kernel, kernel->schedule, key.first});
      keys.push_back(std::move(key));
    }
  }
  std::vector<TargetKernel> compiled = target_->compile(units, code);
  if (makes_all_kernels(code.passes)) return;
  for (std::size_t u = 0; u < units.size(); ++u) {
    remember(keys[u], compiled[u]);
    if (const auto known = known_.find(keys[u]); known != known_.end()) {
      known->second.is_new = true;
    }
  }
}

void Compiler::remember(KernelKey key, const TargetKernel& kernel) {
  const auto bytes = kernel.scratch_bytes.constant();
  if (!bytes) return;
  Known known{kernel, *bytes};
  known.kernel.scratch_bytes = {};
  known_.emplace(std::move(key), std::move(known));
}

}  // namespace inkle::driver
