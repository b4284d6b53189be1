// The table of nest passes: its order in the docs, and what the runner can do with it.
#include "schedule/nest_passes.h"
#include "abi/targets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "base/error.h"
#include "graph/text.h"
#include "lower/lower.h"
#include "ops/table.h"

namespace inkle::schedule {
namespace {

constexpr const char* kText = R"(
graph @f(%x: f32[16,32], %w: f32[32,32] param, %v: f32[32] param) -> f32[16,32], f32[16] {
  %0: f32[32,32] = mul(%w, %v)
  %1: f32[16,32] = mm(%x, %0)
  %2: f32[16,32] = _softmax(%1, 1, false)
  %3: f32[16] = sum_dim(%1, [1], false, none)
  return %2, %3
}
)";

Options options_of(bool training = false) {
  Options options;
  options.target = *abi::target_named("x86-64-v4");
  options.training = training;
  return options;
}

ScheduledProgram scheduled(const NestPassOptions& run, const Options& options = options_of()) {
  return schedule(lower::lower(graph::parse(kText, "f", ops::op_table())), options, run);
}

std::vector<std::string> names_run(const NestPassOptions& run,
                                   const Options& options = options_of()) {
  std::vector<NestPassTiming> timings;
  NestPassOptions timed = run;
  timed.timings = &timings;
  (void)scheduled(timed, options);
  std::vector<std::string> names;
  for (const NestPassTiming& t : timings) names.emplace_back(t.name);
  return names;
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// The names in the first column of the table of docs/schedule.md under "## Passes".
std::vector<std::string> documented() {
  std::ifstream file(std::string(INKLE_SOURCE) + "/docs/schedule.md");
  std::vector<std::string> names;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) inside = line == "## Passes";
    if (!inside || !line.starts_with("| `")) continue;
    names.push_back(line.substr(3, line.find('`', 3) - 3));
  }
  return names;
}

TEST(NestPasses, TheDocsHaveThemInTheirOrder) {
  std::vector<std::string> names;
  for (const NestPass& pass : nest_passes()) names.emplace_back(pass.name);
  EXPECT_EQ(documented(), names);
}

TEST(NestPasses, EachHasANameOfItsOwnAndADoc) {
  std::set<std::string_view> names;
  for (const NestPass& pass : nest_passes()) {
    EXPECT_TRUE(names.insert(pass.name).second) << pass.name;
    EXPECT_NE(pass.function, nullptr) << pass.name;
    EXPECT_FALSE(pass.doc.empty()) << pass.name;
    EXPECT_EQ(find_nest_pass(pass.name), &pass);
  }
  EXPECT_EQ(find_nest_pass("nothing"), nullptr);
}

TEST(NestPasses, ThoseThatTheOptionsDoNotNeedAreNotRun) {
  Options batch_invariant = options_of();
  batch_invariant.numerics = abi::Numerics::batch_invariant;
  EXPECT_TRUE(contains(names_run({}), "split_columns"));
  EXPECT_TRUE(contains(names_run({}, options_of(true)), "split_columns"));
  EXPECT_FALSE(contains(names_run({}, batch_invariant), "split_columns"));
  EXPECT_TRUE(contains(names_run({}), "split_channels"));
  EXPECT_FALSE(contains(names_run({}, options_of(true)), "split_channels"));  // of inference
  EXPECT_FALSE(contains(names_run({}), "fuse_last_blocks"));                  // of a GPU
  EXPECT_FALSE(contains(names_run({}), "pad_gemms"));
}

TEST(NestPasses, EachThatMayBeSkippedIsAndTheRestVerifies) {
  for (const NestPass& pass : nest_passes()) {
    NestPassOptions run{.skip = {std::string(pass.name)}, .verify_each = true};
    if (pass.required) {
      EXPECT_THROW((void)scheduled(run), UserError) << pass.name;
    } else {
      EXPECT_FALSE(contains(names_run(run), pass.name)) << pass.name;
    }
  }
  EXPECT_THROW((void)scheduled({.skip = {"nothing"}}), UserError);
}

TEST(NestPasses, StopAfterCountsThoseThatMayBeSkipped) {
  std::size_t optional = 0;
  for (const std::string& name : names_run({})) optional += find_nest_pass(name)->required ? 0 : 1;
  const std::size_t all = names_run({}).size();
  for (std::size_t n = 0; n <= optional; ++n) {
    EXPECT_EQ(names_run({.stop_after = n, .verify_each = true}).size(), all - optional + n);
  }
}

TEST(NestPasses, EachCanBeMadeToFailAndIsNamed) {
  for (const std::string& name : names_run({}, options_of(true))) {
    try {
      (void)scheduled({.fail = name}, options_of(true));
      ADD_FAILURE() << name << " did not fail";
    } catch (const InternalError& error) {
      EXPECT_NE(std::string(error.what()).find("in nest pass " + name), std::string::npos);
    }
  }
}

TEST(NestPasses, TextAfterEachIsDumped) {
  std::vector<std::string> dumped;
  NestPassOptions run;
  std::string last;
  run.dump = [&](std::string_view pass, const std::string& text) {
    EXPECT_FALSE(text.empty());
    dumped.emplace_back(pass);
    last = text;
  };
  const ScheduledProgram program = scheduled(run);
  EXPECT_EQ(dumped, names_run({}));
  EXPECT_EQ(last, to_string(program));
}

// The nest of a library call stores with the variables of the last nest that it took over; the text
// has the call instead.
TEST(NestPasses, LibraryCallsStandBehindTheNests) {
  constexpr const char* kFused = R"(
graph @f(%x: f32[16,32], %w: f32[32,8] param) -> f32[16,8] {
  %0: f32[16,8] = mm(%x, %w)
  %1: f32[16,8] = relu(%0)
  return %1
}
)";
  std::string before;
  std::string after;
  NestPassOptions run{.verify_each = true};
  run.dump = [&](std::string_view pass, const std::string& text) {
    if (pass == "fold_channel_factors") before = text;
    if (pass == "build_contractions") after = text;
  };
  (void)schedule(lower::lower(graph::parse(kFused, "f", ops::op_table())), options_of(), run);
  EXPECT_NE(before.find("n0: matmul"), std::string::npos) << before;
  EXPECT_EQ(before.find("into out0"), std::string::npos) << before;
  EXPECT_EQ(after.find("n0:"), std::string::npos) << after;
  EXPECT_NE(after.find("  then relu\n  into out0[16,8][8,1]\n"), std::string::npos) << after;
}

constexpr const char* kConvolution = R"(
graph @f(%x: bf16[2,4,8,8], %w: bf16[6,4,3,3] param, %b: bf16[6] param) -> bf16[2,6,8,8] {
  %0: bf16[2,6,8,8] = convolution(%x, %w, %b, [1,1], [1,1], [1,1], false, [0,0], 1)
  %1: bf16[2,6,8,8] = relu(%0)
  return %1
}
)";

// Of a processor whose library has no bf16.
TEST(NestPasses, ConvolutionsThatTheLibraryHasInF32AloneAreWidened) {
  Options options = options_of();
  options.target.libraries.convolution.types = {abi::DType::f32};
  const ScheduledProgram made =
      schedule(lower::lower(graph::parse(kConvolution, "f", ops::op_table())), options,
               {.verify_each = true});
  int calls = 0;
  int prepared = 0;
  for (const Step& step : made.steps) {
    prepared += step.prepare ? 1 : 0;
    const auto* call = std::get_if<ConvolutionStep>(&step.action);
    if (call == nullptr) continue;
    ++calls;
    for (const loop::BufferId b : {call->x.buffer, call->w.buffer, call->y.buffer}) {
      EXPECT_EQ(made.program.buffers[b].dtype, abi::DType::f32);
    }
    EXPECT_TRUE(call->bias.has_value());
  }
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(prepared, 2) << "weights and bias are widened once";
}

}  // namespace
}  // namespace inkle::schedule
