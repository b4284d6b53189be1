// The order of all stages. Each is a folder of its own, and gets no more than what the one before
// it has made:
//
//   passes    graph -> graph                        passes/pipeline.cpp: the graph passes in order
//   lower     graph -> loop nests                   lower/lower.cpp: asks the row of each op
//   schedule  nests -> kernels, schedules           schedule/nest_passes.cpp: the nest passes
//   tune      schedules -> measured schedules       tune_steps.cpp: where a GPU is there, if asked
//   codegen   kernels -> machine code, plan         compile_kernels.cpp: each kernel goes through
//             schedule/expand.h                       kernel -> kernel IR
//             kernel/passes.cpp                       the kernel passes in order
//             codegen/cpu or codegen/cuda             kernel IR -> LLVM IR or CUDA C++ -> code
//             assemble.cpp                            steps, code -> plan
//
// Before, a joint forward-backward graph has stages "passes" and "partition" of its own
// (pipeline_joint.cpp), and a program of an earlier process has none (pipeline_cached.cpp).
#include "driver/pipeline.h"

#include <utility>

#include "base/unsupported.h"
#include "driver/check_devices.h"
#include "driver/stage_options.h"
#include "driver/stage_runner.h"
#include "driver/step_report.h"
#include "graph/text.h"
#include "lower/lower.h"
#include "passes/pipeline.h"
#include "schedule/numerics.h"
#include "schedule/schedule.h"

namespace inkle::driver {

// All stages up to the kernels.
schedule::ScheduledProgram Compiler::schedule(graph::Graph graph, const CompileOptions& options,
                                              Report& report) {
  StageRunner stages(options, report);
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
    if (!options.training) context.options.gemm_costs = target_->gemm_costs();
    return passes::run_passes(std::move(graph), passes::standard_pipeline(), context,
                              graph_pass_options(options, limit));
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
  StageRunner stages(options, compiled.report);
  const abi::PlanAndCode made =
      stages.run("codegen", [&] { return generate(scheduled, options, compiled.report); });
  compiled.plan = made.plan;
  compiled.code = made.code;
  stages.dump("plan", [&] { return abi::to_string(*compiled.plan); });
  describe_steps(scheduled, *compiled.plan, compiled.report);
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
    StageRunner stages(options, both.first.report);
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

}  // namespace inkle::driver
