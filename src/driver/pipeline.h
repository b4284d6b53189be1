// Every stage in order: graph -> passes -> loop nests -> fused kernels -> machine code -> plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/code.h"
#include "abi/numerics.h"
#include "abi/plan.h"
#include "base/pass_limit.h"
#include "cache/claim.h"
#include "driver/target.h"
#include "graph/graph.h"
#include "partition/partition.h"
#include "passes/pass.h"
#include "schedule/schedule.h"
#include "schedule/scheduled.h"

namespace inkle::driver {

struct CompileOptions {
  passes::Options passes;
  std::vector<std::string> skip_passes;                  // of graphs and of nests
  std::size_t pass_limit = PassLimit::kAll;              // of all tables together, for bisection
  std::size_t stop_after_nest_passes = ~std::size_t{0};  // schedule::NestPassOptions::stop_after
  bool verify = true;
  abi::Numerics numerics = abi::Numerics::eager;
  bool training = false;
  bool deterministic = false;  // the same results in each run, as schedule::Options has it
  // Gets the text of each stage: "graph", "passes", "loops", "kernels", "plan".
  std::function<void(std::string_view stage, const std::string& text)> dump;
  // Gets the text after each nest pass, which takes much longer to write than the pass to run.
  std::function<void(std::string_view pass, const std::string& text)> dump_nest_pass;
  bool verify_nest_passes = false;  // after each
  // Gets the kernel IR of each kernel as it is expanded ("expand") and after each kernel pass. Then
  // all kernels are made anew.
  std::function<void(std::string_view pass, const std::string& text)> dump_kernel_pass;
  bool keep_code = false;     // fill Report::code with text
  bool keep_objects = false;  // fill Report::code with object files, and Code::objects surely
  // A GPU's kernels are written and not compiled; the plan cannot be run.
  bool only_text = false;
  // Machine code is looked for and left in the user's cache (cache/store.h).
  bool cache = true;
  // Runs what waits for another process that compiles the same (cache/claim.h).
  cache::WaitWith wait_with = {};
  // Schedules are measured where the target can, once a kernel and set of sizes; else the model's.
  bool tune = false;
  // For tests: the stage of this name throws InternalError. "codegen/PASS": that kernel pass does;
  // "codegen/PASS/wrong": it makes a kernel that does not verify. Then all kernels are made anew.
  // "schedule/PASS": that nest pass does. "passes/PASS/miscompile", and so for nest and kernel
  // passes: the pass makes something else of the program, which verifies.
  std::string fail_stage;
};

struct StageTime {
  std::string stage;
  double seconds = 0;
};

// What a step is, for reports.
struct StepReport {
  std::string kind;  // "kernel", "matmul", "convolution", "eager"
  std::string label;
  std::string source;
  std::string kernel;  // name of the generated kernel
};

// Text of a generated kernel's code; empty for one that was compiled without it.
struct KernelCodeText {
  std::string ir;  // LLVM IR, or CUDA C++
  std::string assembly;
  std::shared_ptr<const std::vector<std::byte>> object;  // of the CPU
  double seconds = 0;                                    // to emit and compile it
};

struct Report {
  std::vector<StageTime> stages;
  std::vector<schedule::NestPassTiming> nest_passes;  // of stage "schedule"
  // What pass_limit counts, "STAGE/PASS" in order, whether it ran or not.
  std::vector<std::string> optional_passes;
  std::vector<StepReport> steps;
  // By the plan's kernels: what each was made of, the fused kernel and its schedule as text.
  std::vector<std::string> schedules;
  std::vector<KernelCodeText> code;  // likewise, if that is kept
  std::uint32_t kernels = 0;         // distinct generated kernels
  std::uint32_t kernels_reused = 0;  // of those, compiled for an earlier program
  std::uint32_t launches = 0;
  std::uint32_t library_calls = 0;
  // Of one call, at the hints of the sizes; and the least that it could be (inputs, outputs and
  // operands of contractions once).
  std::int64_t bytes_moved = 0;
  std::int64_t bytes_lower_bound = 0;
  std::vector<std::string> eager;  // names of ops that run in the host's eager mode
  // Ops whose results are not what CompileOptions::numerics promises.
  struct NotHeld {
    std::string op, source, reason;
  };
  std::vector<NotHeld> not_held;
};

struct Compiled {
  std::shared_ptr<const abi::Plan> plan;
  std::shared_ptr<const abi::Code> code;
  Report report;
  // What it was restored from, if it was (stored.h), and else its graph as text, if programs are
  // kept.
  abi::SharedBytes stored = {};
  std::string graph = {};
};

// Owns the code generator and the kernels made so far. Thread-safe.
class Compiler {
 public:
  explicit Compiler(std::unique_ptr<Backend> target) : target_(std::move(target)) {}
  // For this machine's processor.
  Compiler() : Compiler(make_cpu_target()) {}

  // Throws UserError, Unsupported or InternalError, each with notes: stage, op, source line.
  // Unsupported names all nodes of the graph that some stage does not support: without those it
  // compiles.
  [[nodiscard]] Compiled compile(graph::Graph graph, const CompileOptions& options);

  // Two that belong together, as a forward and its backward. On a GPU the kernels of both are
  // compiled at once, so that one waits less for the longest of the other.
  [[nodiscard]] std::pair<Compiled, Compiled> compile(graph::Graph first, graph::Graph second,
                                                      const CompileOptions& options);

  // What the first compilation would wait for, and what the first call would; any thread, errors
  // are left for then. `convolutions`: the program has such.
  void warm_up() noexcept { target_->warm_up(); }
  void warm_up_libraries(bool convolutions) noexcept { target_->warm_up_libraries(convolutions); }
  // Waits for background threads, before the process ends.
  void settle() noexcept { target_->settle(); }

  [[nodiscard]] const abi::DeviceDescription& device() const { return target_->device(); }

  [[nodiscard]] abi::Device location() const { return target_->location(); }

  // For hosts that keep programs themselves (stored.h). What their keys must hold: lines of text,
  // none if nothing is to be kept.
  [[nodiscard]] std::string identity(const CompileOptions& options) const;
  // Throws as restore() of stored.h does.
  [[nodiscard]] Compiled restore(std::vector<std::byte> bytes) const;
  [[nodiscard]] const Backend& target() const { return *target_; }

  // The passes on a joint forward-backward graph, then its partition into forward and backward
  // graph, each for compile(). Their times are added to `stages`. Throws as compile() does.
  [[nodiscard]] partition::TrainingGraphs partition(graph::Graph joint,
                                                    const partition::Joint& info,
                                                    partition::Weigh weigh,
                                                    const CompileOptions& options,
                                                    std::vector<StageTime>& stages) const;

  // A plan of this compiler, ready to run. Throws as the runtime does.
  [[nodiscard]] std::unique_ptr<runtime::common::Executable> load(const Compiled& compiled) const {
    return target_->load({compiled.plan, compiled.code});
  }

 private:
  // Name, which may be in the code, and text of kernel and schedule.
  using KernelKey = std::pair<std::string, std::string>;
  struct Known {
    TargetKernel kernel;
    std::int64_t scratch_bytes = 0;  // constant; kernels with symbolic scratch are not kept
    bool is_new = false;             // compiled for programs that have not been generated yet
  };

  schedule::ScheduledProgram schedule(graph::Graph graph, const CompileOptions& options,
                                      Report& report);
  // Of a graph in the user's cache: its key, empty where all stages are to be run, its name and its
  // text.
  struct Entry {
    Identity key;
    std::string name, text;
  };
  [[nodiscard]] Entry entry_of(const graph::Graph& graph, const CompileOptions& options) const;
  // What an earlier process has compiled; nothing if there is no such program.
  [[nodiscard]] std::optional<Compiled> find(const Entry& entry) const;
  // Before a program that was not found is compiled.
  [[nodiscard]] cache::Claim claim(const Entry& entry, const CompileOptions& options) const;
  // Whether it is kept.
  bool keep(Entry entry, Compiled& compiled) const;
  Compiled compile_anew(graph::Graph graph, const CompileOptions& options);
  std::pair<Compiled, Compiled> compile_anew(graph::Graph first, graph::Graph second,
                                             const CompileOptions& options);
  // Adds what no kernel of the program can be written for.
  void probe(const schedule::ScheduledProgram& scheduled, const CompileOptions& options,
             UnsupportedNodes& found);
  // Tells the target the library calls, to search their algorithms while kernels are compiled.
  void foresee(const schedule::ScheduledProgram& scheduled);
  void finish(schedule::ScheduledProgram& scheduled, const CompileOptions& options,
              Compiled& compiled);
  // Steps get the schedules that their kernels were compiled with.
  abi::PlanAndCode generate(schedule::ScheduledProgram& scheduled, const CompileOptions& options,
                            Report& report);
  // Compiles the kernels that are not known; they are then, but those with symbolic scratch.
  void compile_kernels(std::initializer_list<const schedule::ScheduledProgram*> programs,
                       const CompileOptions& options, const Report& before);
  void remember(KernelKey key, const TargetKernel& kernel);

  // Gives kernels their measured schedules.
  void tune(schedule::ScheduledProgram& scheduled);

  std::unique_ptr<Backend> target_;
  std::mutex mutex_;
  std::map<KernelKey, Known> known_;
  std::map<std::string, schedule::Schedule, std::less<>> tuned_;  // by text and sizes
};

}  // namespace inkle::driver
