#include "schedule/nest_passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "schedule/bytes.h"
#include "schedule/cache_hints.h"
#include "schedule/choose_columns.h"
#include "schedule/combine.h"
#include "schedule/gemm.h"
#include "schedule/inline.h"
#include "schedule/integers.h"
#include "schedule/last_block.h"
#include "schedule/layout.h"
#include "schedule/numbers.h"
#include "schedule/numerics.h"
#include "schedule/prepared.h"
#include "schedule/reuse_operands.h"
#include "schedule/rewrite.h"
#include "schedule/scalars.h"
#include "schedule/sequential_rows.h"
#include "schedule/side_by_side.h"
#include "schedule/steps.h"
#include "schedule/verify.h"

namespace inkle::schedule {
namespace {

using loop::Program;
using State = Scheduling;

namespace needs {

const abi::Libraries& libraries(const Options& o) { return o.target.libraries; }

bool one_dnn(const Options& o) { return libraries(o).convolution.name == "oneDNN"; }
bool padded_channels(const Options& o) { return libraries(o).convolution.least_channels > 0; }
bool padded_rows(const Options& o) { return libraries(o).gemm.row_bytes > 0; }
bool transposed_without_bias(const Options& o) {
  const abi::ConvolutionLibrary& library = libraries(o).convolution;
  return library.is_open && library.fused == abi::FusedWork::residual_activation &&
         !library.transposed_with_post_ops;
}
bool short_sums(const Options& o) {
  return !o.training && libraries(o).convolution.longest_sum > 0;
}
bool inference(const Options& o) { return !o.training; }
bool free_order(const Options& o) { return !fixes_order(o); }
// Where launches cost, fusing two nests may keep one of them out of a table of instances.
bool inverted_loops(const Options& o) { return free_order(o) && !o.target.launches_cost; }
bool fast_numerics(const Options& o) { return o.numerics == abi::Numerics::fast; }
bool launches(const Options& o) { return o.target.launches_cost; }
bool cache_hints(const Options& o) { return o.target.caches != abi::CacheRules{}; }
bool gemm_template(const Options& o) {
  return libraries(o).gemm.source != abi::GemmSource::library;
}

}  // namespace needs

Program& program(State& state) { return state.scheduled.program; }
const Program& program(const State& state) { return state.scheduled.program; }

const abi::Libraries& libraries(const State& s) { return s.options.target.libraries; }

void make_contractions(State& s) { s.contractions = build_contractions(program(s), libraries(s)); }

// GEMMs of one row that the template supports.
OneRow one_row(const Options& o) {
  OneRow stay{.f32 = fixes_order(o), .weights = {}};
  if (fixes_order(o) || o.training || o.target.has_blocks || !needs::gemm_template(o)) return stay;
  const auto unit = o.target.matrix_unit;
  stay.weights = {abi::DType::f32};
  const bool has_pairs = unit == abi::MatrixUnit::avx512_bf16 || unit == abi::MatrixUnit::amx;
  if (has_pairs) stay.weights = stay.weights.with(abi::DType::bf16);
  return stay;
}

void split_columns_of(State& s);

void fuse_groups(State& s) {
  s.groups = fuse(program(s), s.options.target,
                  {.column_parts = s.column_parts,
                   .inverts = s.inverts_loops,
                   .deterministic = s.options.deterministic});
}

void make_steps(State& s) {
  s.scheduled.steps = build_steps(program(s), s.options, std::move(s.contractions), s.groups,
                                  s.associations, s.found);
  s.contractions.clear();
  s.groups.clear();
  program(s).nests.clear();
  s.has_steps = true;
}

void count_bytes_of_steps(State& s) {
  for (Step& step : s.scheduled.steps) count_step_bytes(step, program(s));
}

// From build_contractions on, the nest of a library call is only a placeholder in the order: it
// stores as the last nest of its epilogue does, with that nest's variables. Adds the other writes.
Program nests_of(const State& state) {
  Program nests = state.scheduled.program;
  std::erase_if(nests.nests, [&](const loop::Nest& nest) {
    return !nest.stores.empty() && state.contractions.contains(nest.stores.front().buffer);
  });
  return nests;
}

void check(const State& state) {
  if (!state.found.empty()) return;  // findings leave steps out
  if (state.has_steps) {
    verify(state.scheduled);
  } else {
    loop::verify(nests_of(state));
  }
}

constexpr bool kRequired = true;
constexpr std::int64_t kWidestVector = 16;  // elements of f32, of AVX-512

// clang-format off
constexpr NestPass kPasses[] = {
    {"fix_associations", [](State& s) { s.associations = associations_of(program(s)); },
     fixes_order, kRequired, "sums get an order that does not depend on the batch"},
    {"widen_products", [](State& s) { widen_products(program(s)); }, fixes_order, kRequired,
     "matrix products of f16 and bf16 become f32, for the template"},
    {"drop_dead_values", [](State& s) { drop_dead_values(program(s)); }, nullptr, false,
     "values that no result needs are removed, and with them loads"},
    {"remove_dead_nests", [](State& s) { remove_dead_nests(program(s)); }, nullptr, false,
     "nests whose results are unused are removed"},
    {"widen_convolutions", [](State& s) { widen_convolutions(program(s), libraries(s).convolution); },
     nullptr, false, "convolutions of f16 and bf16 become f32 where the library has f32 alone"},
    {"gather_points", [](State& s) { gather_points(program(s), kWidestVector); }, needs::one_dnn,
     kRequired, "strided inputs of a weight gradient of 1x1 are copied to a dense tensor"},
    {"patch_convolutions",
     [](State& s) { convolutions_of_patches(program(s), libraries(s).convolution.least_channels); },
     needs::padded_channels, false,
     "convolutions whose windows do not overlap become matrix products over patches"},
    {"split_channels", [](State& s) { split_channels(program(s), libraries(s).convolution.longest_sum); },
     needs::short_sums, false,
     "convolutions of sequences whose sums are long add in groups of channels"},
    {"separate_biases", [](State& s) { separate_biases(program(s)); }, needs::transposed_without_bias, false,
     "biases of transposed convolutions become additions"},
    {"drop_unit_variables", [](State& s) { drop_unit_variables(program(s)); }, nullptr, false,
     "variables of loops of one iteration become 0 in every index"},
    {"share_reductions", [](State& s) { share_reductions(program(s)); }, nullptr, false,
     "equal reductions are computed once"},
    {"pad_gemms", [](State& s) { pad_gemms(program(s), libraries(s).gemm); }, needs::padded_rows, false,
     "operand rows of GEMMs not divisible by the vector width are padded with zeros"},
    {"inline_pointwise",
     [](State& s) { inline_pointwise(program(s), libraries(s).keep_roundings); }, nullptr, false,
     "cheap pointwise producers move into their consumers"},
    {"choose_layouts",
     [](State& s) { choose_layouts(program(s), libraries(s).convolution); }, nullptr,
     kRequired, "strides for buffers that have none"},
    {"pad_channels", [](State& s) { pad_channels(program(s), libraries(s).convolution.least_channels); },
     needs::padded_channels, false, "images with few channels are padded with channels of zeros"},
    {"settle_operands", [](State& s) { settle_operands(program(s), libraries(s)); },
     nullptr, kRequired, "operands of contractions are read in place or copied"},
    {"contractions_to_loops", [](State& s) { contractions_to_loops(program(s), libraries(s), one_row(s.options), s.found); },
     nullptr, kRequired, "contractions that the library does not run become loops"},
    {"fix_contractions", [](State& s) { add_contractions(program(s), s.associations); },
     fixes_order, kRequired, "contractions get a fixed order, too"},
    {"fold_channel_factors", [](State& s) { fold_channel_factors(program(s)); },
     needs::inference, false, "factors of a convolution's channels move into its weights"},
    {"build_contractions", make_contractions, nullptr, kRequired,
     "contractions become library calls, pointwise work after them their post-ops"},
    {"remove_fused_nests", [](State& s) { remove_dead_nests(program(s)); }, nullptr, false,
     "nests that only fused library calls have read are removed"},
    {"unfold_reshapes", [](State& s) { unfold_reshapes(program(s), s.options.target.loops.part_sums); },
     needs::free_order, false,
     "reductions that read reshaped tensors run along the loops of the tensors"},
    {"split_columns", split_columns_of, needs::free_order, false,
     "sums over columns of rows that are reduced too are split in parts"},
    {"split_long_reductions",
     [](State& s) { split_long_reductions(program(s), s.options.target, s.column_parts); },
     needs::free_order, false,
     "reductions with too few results to fill the device are split in parts"},
    {"invert_loops", [](State& s) { s.inverts_loops = true; }, needs::inverted_loops, false,
     "loops may be reversed or split to share those of another nest"},
    {"fuse", fuse_groups, nullptr, kRequired, "nests that share outer loops become one group"},
    {"build_steps", make_steps, nullptr, kRequired,
     "groups become kernels with their schedules, and steps in order"},
    {"move_scalars", [](State& s) { move_scalars(s.scheduled.steps, program(s)); },
     needs::launches, false, "scalars that one other kernel reads are computed there again"},
    {"fuse_last_blocks", [](State& s) { fuse_last_blocks(s.scheduled.steps, program(s), s.options.target); },
     needs::launches, false, "the second stage of a split reduction joins the first launch"},
    {"write_gemms",
     [](State& s) {
       write_gemms(s.scheduled, s.options.target, s.options.training, fixes_order(s.options));
     },
     needs::gemm_template, false, "matrix products become kernels of a template"},
    {"drop_roundings", [](State& s) { drop_roundings(s.scheduled.steps); }, needs::fast_numerics,
     false, "roundings to f16 and bf16 between ops of one loop are removed"},
    {"count_step_bytes", count_bytes_of_steps, nullptr, kRequired, "what each step moves"},
    {"mark_prepared", [](State& s) { mark_prepared(s.scheduled, s.options.training); }, nullptr,
     false, "steps that depend on parameters alone run once"},
    {"combine", [](State& s) { combine(s.scheduled.steps, program(s), s.options.target); }, nullptr,
     false, "steps that run one kernel on different tensors become one over a table"},
    {"pass_numbers", [](State& s) { pass_numbers(s.scheduled.steps, *program(s).context); },
     nullptr, false, "random streams of one seed become sizes, so that their kernels are alike"},
    {"pass_integers", [](State& s) { pass_integers(s.scheduled.steps, *program(s).context); },
     nullptr, kRequired, "integers of any value are computed with the sizes of a call, checked"},
    {"set_cache_hints",
     [](State& s) { set_cache_hints(s.scheduled.steps, program(s), s.options.target); },
     needs::cache_hints, false, "which kernels read what was just written, and which rows lie in L2"},
    {"count_bytes", [](State& s) { count_bytes(s.scheduled); }, nullptr, kRequired,
     "what a call moves, and the least that it could"},
    {"reuse_operands", [](State& s) { reuse_operands(s.scheduled, s.options.target); }, nullptr,
     false, "results reuse the memory of operands whose last use makes them"},
    {"place_side_by_side",
     [](State& s) { place_side_by_side(s.scheduled, s.options.target); }, needs::launches, false,
     "small kernels that do not wait for each other share a launch"},
    {"verify", [](State& s) { check(s); }, nullptr, kRequired,
     "no step reads what nothing has written, and every buffer has as many stores as elements"},
};
// clang-format on

// Runs the passes after split_columns on a program some of whose sums are split.
std::optional<ScheduledProgram> finish_schedule(const State& s, Program program,
                                                std::vector<loop::BufferId> column_parts) {
  UnsupportedNodes found;
  State rest{.options = s.options,
             .scheduled = {.program = std::move(program)},
             .associations = s.associations,
             .contractions = s.contractions,
             .column_parts = std::move(column_parts),
             .found = found};
  const auto* pass = find_nest_pass("split_columns");
  while (++pass != std::end(kPasses)) {
    if (pass->needs == nullptr || pass->needs(s.options)) pass->function(rest);
  }
  if (!found.empty()) return std::nullopt;
  return std::move(rest.scheduled);
}

void split_columns_of(State& s) {
  if (s.options.training) {
    s.column_parts =
        split_columns(program(s), s.options.target, column_families(program(s), false));
  } else {
    s.column_parts = choose_columns(program(s), s.options.target,
                                    [&](Program split, std::vector<loop::BufferId> parts) {
                                      return finish_schedule(s, std::move(split), std::move(parts));
                                    });
  }
}

// Library calls come after the nests.
std::string text_of(const State& state) {
  if (state.has_steps) return to_string(state.scheduled);
  std::string text = loop::to_string(nests_of(state));
  for (const auto& [buffer, step] : state.contractions) text += to_string(step, program(state));
  return text;
}

void check_skip(const NestPassOptions& run) {
  for (const std::string& name : run.skip) {
    const NestPass* pass = find_nest_pass(name);
    if (pass == nullptr) user_error("there is no nest pass '{}'", name);
    if (pass->required) user_error("nest pass '{}' cannot be skipped", name);
  }
}

void negate_constant(State& state) {
  if (state.has_steps) user_error("nest passes after build_steps cannot be made to miscompile");
  for (loop::Nest& nest : program(state).nests) {
    for (loop::Instruction& i : nest.body.instructions) {
      if (i.opcode != loop::Opcode::constant || !abi::is_float(i.dtype) || i.real == 0) continue;
      i.real = -i.real;
      return;
    }
  }
}

void run_one(const NestPass& pass, State& state, const NestPassOptions& run) {
  const auto start = std::chrono::steady_clock::now();
  try {
    if (run.fail == pass.name) throw InternalError("made to fail by option fail_stage");
    const bool was_fine = state.found.empty();
    pass.function(state);
    if (run.miscompile == pass.name) negate_constant(state);
    if (was_fine) state.found.add_note(fmt::format("in nest pass {}", pass.name));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    log(LogChannel::passes, "{}: {:.3f} ms", pass.name, seconds.count() * 1e3);
    if (run.timings != nullptr) run.timings->push_back({pass.name, seconds.count()});
    if (run.verify_each) check(state);
  } catch (Error& error) {
    error.add_note(fmt::format("in nest pass {}", pass.name));
    throw;
  }
  if (run.dump) run.dump(pass.name, text_of(state));
}

}  // namespace

std::span<const NestPass> nest_passes() { return kPasses; }

const NestPass* find_nest_pass(std::string_view name) {
  const auto* at = std::ranges::find(kPasses, name, &NestPass::name);
  return at != std::end(kPasses) ? at : nullptr;
}

ScheduledProgram run_nest_passes(Program program, const Options& options,
                                 const NestPassOptions& run) {
  check_skip(run);
  UnsupportedNodes here;
  State state{.options = options,
              .scheduled = {.program = std::move(program)},
              .found = run.found != nullptr ? *run.found : here};
  std::size_t count = 0;
  for (const NestPass& pass : kPasses) {
    if (pass.needs != nullptr && !pass.needs(options)) continue;
    if (std::ranges::find(run.skip, pass.name) != run.skip.end()) continue;
    if (!pass.required && count++ >= run.stop_after) continue;
    const bool may_go = run.limit != nullptr && !pass.required;
    if (may_go && !run.limit->admits("schedule", pass.name)) continue;
    run_one(pass, state, run);
  }
  here.check();
  return std::move(state.scheduled);
}

}  // namespace inkle::schedule
