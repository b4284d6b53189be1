// `inkle corpus interpret`: every different loop kernel of recorded graphs as kernel IR, expanded
// and after all kernel passes, under the interpreter. Outer loops are cut short, so that the launch
// has few blocks; blocks, rows and what is not a whole vector or block stay as they are.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "cli/corpus.h"
#include "graph/text.h"
#include "kernel/interpret_inputs.h"
#include "kernel/passes.h"
#include "kernel/verify.h"
#include "loop/scalar.h"
#include "lower/lower.h"
#include "ops/table.h"
#include "passes/pipeline.h"
#include "schedule/expand.h"
#include "schedule/schedule.h"

namespace inkle::cli {
namespace {

using schedule::KernelStep;
using schedule::LoopKernel;
using schedule::Stage;
using sym::Expr;
using Map = std::vector<std::pair<Expr, Expr>>;

// Arguments of more elements, and runs of more operations of single threads, are left out.
constexpr std::int64_t kMostElements = std::int64_t{1} << 21;
constexpr std::int64_t kMostSteps = 4'000'000;
// Iterations of an outer loop that are kept: at most twice so many, with the same rest.
constexpr std::int64_t kColumns = 4096;
constexpr std::int64_t kTile = 64;
constexpr std::int64_t kRows = 5;
constexpr std::int64_t kOthers = 2;

std::int64_t shortened(std::int64_t extent, std::int64_t unit) {
  return extent <= 2 * unit ? extent : extent % unit + unit;
}

struct Tally {
  std::int64_t interpreted = 0, large = 0, long_runs = 0, last_blocks = 0, beside = 0, wrong = 0,
               steps = 0;
};

class KernelRun {
 public:
  KernelRun(KernelStep step, sym::Context& context) : step_(std::move(step)), context_(context) {
    for (const Expr size : step_.kernel.sizes) {
      const sym::SymbolInfo& info = context.info(size);
      std::int64_t value = info.hint.value_or(std::max<std::int64_t>(info.range.low, 5));
      value = std::clamp(value, info.range.low, info.range.high);
      value -= value % info.divisor;
      sizes_.push_back(std::max(value, info.divisor));
      at_sizes_.emplace_back(size, context.constant(sizes_.back()));
    }
  }

  // Says what is wrong, a line for each finding.
  void run(const std::string& name, Tally& tally) {
    if (has_last_block()) {
      ++tally.last_blocks;
    } else {
      cut_short();
    }
    if (!step_.kernel.beside.empty()) ++tally.beside;
    const auto counts = element_counts();
    if (std::ranges::any_of(counts, [](std::int64_t n) { return n > kMostElements; })) {
      ++tally.large;
      return;
    }
    kernel::Kernel made = schedule::expand(step_.kernel, step_.schedule, context_);
    made.launch.instances = std::min(made.launch.instances, 2);
    kernel::Kernel lowered = made;
    const bool is_gpu = step_.schedule.blocks.has_value();
    // A GPU's expanded kernels have no barriers where a pass places them.
    bool is_complete = is_gpu || check(name + ", expanded", made, counts, tally);
    kernel::run_passes(lowered, context_, is_gpu ? kernel::gpu_passes() : kernel::cpu_passes(), {});
    is_complete = check(name + ", after passes", lowered, counts, tally) && is_complete;
    ++(is_complete ? tally.interpreted : tally.long_runs);
  }

 private:
  LoopKernel& loops() { return std::get<LoopKernel>(step_.kernel.body); }

  bool has_last_block() const {
    return step_.kernel.last_block ||
           std::ranges::any_of(step_.kernel.beside,
                               [](const auto& beside) { return beside.last_block.has_value(); });
  }

  void cut_short() {
    cut_short(loops().outer, step_.schedule.blocks);
    for (schedule::Beside& beside : step_.kernel.beside) {
      cut_short(beside.loops.outer, beside.blocks);
    }
  }

  void cut_short(std::vector<loop::Dim>& outer,
                 const std::optional<schedule::BlockSchedule>& blocks) const {
    const bool columns =
        blocks ? !blocks->is<schedule::BlockSchedule::Rows>() : step_.schedule.vector_outer;
    const bool tile = blocks && blocks->is<schedule::BlockSchedule::Tile>();
    for (std::size_t d = 0; d < outer.size(); ++d) {
      const auto extent = outer[d].extent.constant();
      if (!extent) continue;
      const std::size_t behind = outer.size() - 1 - d;
      std::int64_t kept = std::min(*extent, behind == 0 ? kRows : kOthers);
      if (tile && behind < 2) {
        kept = shortened(*extent, kTile);
      } else if (columns && behind == 0) {
        kept = shortened(*extent, kColumns);
      }
      outer[d].extent = context_.constant(kept);
    }
  }

  // Of each parameter, up to the largest index that an access may have.
  std::vector<std::int64_t> element_counts() {
    std::vector<std::int64_t> counts(step_.kernel.params.size(), 1);
    schedule::for_each_loops(std::as_const(step_.kernel),
                             [&](const LoopKernel& loops) { add_counts(loops, counts); });
    return counts;
  }

  void add_counts(const LoopKernel& loops, std::vector<std::int64_t>& counts) {
    Map outer = at_sizes_;
    add_dims(loops.outer, outer);
    for (const Stage& stage : loops.stages) {
      Map map = outer;
      add_dims(stage.inner, map);
      for (const loop::Instruction& i : stage.body.instructions) {
        if (i.opcode != loop::Opcode::indirect) continue;
        const Expr extent = sym::substitute(context_.info(i.indices[0]).extent, map);
        map.emplace_back(i.indices[0], context_.index(extent));
      }
      const auto add = [&](std::uint32_t buffer, Expr offset) {
        if (buffer >= counts.size()) return;
        const std::int64_t last = sym::bounds(sym::substitute(offset, map)).high;
        counts[buffer] = std::max(counts[buffer], std::min(last, kMostElements) + 1);
      };
      for (const loop::Instruction& i : stage.body.instructions) {
        if (i.opcode == loop::Opcode::load) add(i.buffer, i.indices.front());
      }
      for (const schedule::StageStore& store : stage.stores) add(store.target, store.offset);
    }
  }

  void add_dims(const std::vector<loop::Dim>& dims, Map& map) {
    for (const loop::Dim& dim : dims) {
      map.emplace_back(dim.variable, context_.index(sym::substitute(dim.extent, map)));
    }
  }

  // Whether two points of a stage store to one element, by equal indices that they read, or by a
  // layout that overlaps: either may be the last.
  bool stores_twice() {
    bool found = false;
    schedule::for_each_loops(std::as_const(step_.kernel), [&](const LoopKernel& loops) {
      found = found || stores_twice(loops);
    });
    return found;
  }

  bool stores_twice(const LoopKernel& loops) {
    return std::ranges::any_of(loops.stages, [&](const Stage& stage) {
      std::vector<loop::Dim> dims = loops.outer;
      dims.insert(dims.end(), stage.inner.begin(), stage.inner.end());
      return std::ranges::any_of(stage.stores, [&](const schedule::StageStore& store) {
        std::set<std::int64_t> seen;
        return reads_index(stage, store.offset) || repeats(dims, 0, store.offset, at_sizes_, seen);
      });
    });
  }

  static bool reads_index(const Stage& stage, Expr offset) {
    return std::ranges::any_of(stage.body.instructions, [&](const loop::Instruction& i) {
      return i.opcode == loop::Opcode::indirect && sym::contains(offset, i.indices[0]);
    });
  }

  bool repeats(const std::vector<loop::Dim>& dims, std::size_t d, Expr offset, const Map& at,
               std::set<std::int64_t>& seen) {
    if (d == dims.size()) return !seen.insert(*sym::substitute(offset, at).constant()).second;
    const std::int64_t extent = *sym::substitute(dims[d].extent, at).constant();
    for (std::int64_t i = 0; i < extent; ++i) {
      Map inside = at;
      inside.emplace_back(dims[d].variable, context_.constant(i));
      if (repeats(dims, d + 1, offset, inside, seen)) return true;
    }
    return false;
  }

  // One instance's argument: at no better alignment than is stated.
  kernel::Argument argument(const schedule::Param& param, std::int64_t count, std::uint64_t seed) {
    constexpr std::size_t kLine = 256;
    const auto size = static_cast<std::size_t>(abi::size_of(param.dtype));
    const std::size_t bytes = static_cast<std::size_t>(count) * size;
    auto& owned = memory_.emplace_back(new std::byte[bytes + 2 * kLine]());
    const auto begin = reinterpret_cast<std::uintptr_t>(owned.get());
    std::byte* data = owned.get() + (kLine - begin % kLine) +
                      (param.alignment < 64 ? static_cast<std::size_t>(param.alignment) : 0);
    for (std::int64_t e = 0; e < count; ++e) {
      const auto draw = static_cast<std::int64_t>((hash(seed, e) >> 33));
      const auto scalar =
          abi::is_float(param.dtype)
              ? loop::make_scalar(param.dtype, static_cast<double>(draw % 33 - 16) / 4)
              : loop::make_scalar(param.dtype, draw % 4);
      loop::write_element(param.dtype, data + static_cast<std::size_t>(e) * size, scalar);
    }
    const bool reads = param.role == schedule::ParamRole::in;
    return {{data, bytes}, reads ? kernel::Writes::by_role : kernel::Writes::any, true};
  }

  static std::uint64_t hash(std::uint64_t seed, std::int64_t number) {
    std::uint64_t x = seed * 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(number);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
  }

  // False where a run takes too many steps.
  bool check(const std::string& name, const kernel::Kernel& kernel,
             const std::vector<std::int64_t>& counts, Tally& tally) {
    kernel::verify(kernel);
    memory_.clear();
    std::vector<kernel::Instance> instances;
    for (std::int32_t n = 0; n < kernel.launch.instances; ++n) {
      kernel::Instance& instance = instances.emplace_back();
      instance.sizes = sizes_;
      for (std::size_t p = 0; p < counts.size(); ++p) {
        const std::uint64_t seed = 100 * static_cast<std::uint64_t>(n) + p;
        instance.arguments.push_back(argument(step_.kernel.params[p], counts[p], seed));
      }
    }
    kernel::CheckOptions options;
    options.seeds = 1;
    options.limit_residency = has_last_block();
    options.max_steps = kMostSteps;
    // Sums of floats by atomics take any order.
    options.compare_results = std::ranges::none_of(
        kernel.operations, [](const auto& o) { return o.op == kernel::Op::atomic; });
    kernel::CheckResult result = kernel::check(kernel, instances, options);
    const auto is_of_one_store = [](const kernel::Finding& f) {
      return (f.kind == kernel::ReportKind::race && f.operation == f.other) ||
             f.kind == kernel::ReportKind::differs;
    };
    if (!result.findings.empty() && std::ranges::all_of(result.findings, is_of_one_store) &&
        stores_twice()) {
      result.findings.clear();
    }
    tally.steps += result.steps;
    const auto is_too_long = [](const kernel::Finding& f) {
      return f.message.starts_with("no end within");
    };
    if (std::ranges::all_of(result.findings, is_too_long) && !result.findings.empty()) return false;
    if (!result.findings.empty()) ++tally.wrong;
    for (const kernel::Finding& finding : result.findings) {
      fmt::print("{}, {}: {}\n", name, result.schedule, kernel::to_string(kernel, finding));
    }
    std::fflush(stdout);
    return true;
  }

  KernelStep step_;
  sym::Context& context_;
  std::vector<std::int64_t> sizes_;
  Map at_sizes_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

// The driver's stages up to schedules.
schedule::ScheduledProgram scheduled(const DeviceCompiler& on, const Case& c) {
  driver::CompileOptions options = on.options;
  c.apply(options);
  graph::Graph graph = graph::parse(c.text, c.name, ops::op_table());
  if (on.gpu != nullptr) move_to(graph, on.location());
  passes::PassContext context{options.passes};
  context.options.safe_attention = on.gpu != nullptr;
  loop::Program program =
      lower::lower(passes::run_passes(std::move(graph), passes::standard_pipeline(), context, {}));
  schedule::Options scheduling;
  scheduling.target = on.compiler->target().describe(program);
  scheduling.numerics = options.numerics;
  scheduling.training = options.training;
  scheduling.deterministic = options.deterministic;
  return schedule::schedule(std::move(program), scheduling, {});
}

}  // namespace

void interpret_kernels(const CompileArguments& a) {
  const DeviceCompiler on(a);
  std::set<std::string> known;
  Tally tally;
  std::int64_t failed = 0;
  for (const Case& c : read_cases(a.file)) {
    try {
      const schedule::ScheduledProgram program = scheduled(on, c);
      std::size_t number = 0;
      for (const schedule::Step& step : program.steps) {
        ++number;
        const auto* kernel = std::get_if<KernelStep>(&step.action);
        if (kernel == nullptr || !std::holds_alternative<LoopKernel>(kernel->kernel.body)) continue;
        const std::string text =
            schedule::to_string(kernel->kernel) + schedule::to_string(kernel->schedule);
        if (!known.insert(to_hex(hash128(text))).second) continue;
        KernelRun(*kernel, *program.program.context)
            .run(fmt::format("{}, step {}", c.name, number), tally);
      }
    } catch (const Unsupported&) {  // cases that the compiler refuses, and texts that are wrong
    } catch (const UserError&) {
    } catch (const std::exception& error) {
      ++failed;
      fmt::print("{}: {}\n", c.name, error.what());
    }
  }
  fmt::print(
      "{} kernels: {} interpreted in {} thousand steps "
      "({} with their last blocks, {} side by side), {} too long, {} too large, {} wrong, {} cases "
      "failed\n",
      known.size(), tally.interpreted, tally.steps / 1000, tally.last_blocks, tally.beside,
      tally.long_runs, tally.large, tally.wrong, failed);
  if (tally.wrong + failed > 0) user_error("{}: kernels are wrong", a.file);
}

}  // namespace inkle::cli
