// The page about a compiled program: what it says, what it escapes, what it does when little is
// known.
#include "driver/inspect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>

#include "driver/inspect_facts.h"
#include "driver/inspect_parts.h"
#include "graph/text.h"
#include "ops/table.h"

namespace inkle::driver {
namespace {

constexpr std::string_view kGraph = R"(
graph @block(%x: f32[s0,64], %w: f32[32,64] param) -> f32[s0,32] where s0 in 1..4096 {
  %0: f32[s0,64] = relu(%x)                    # model.py:1
  %1: f32[64,32]{1,64} = t(%w)                 # model.py:2
  %2: f32[s0,32] = mm(%0, %1)                  # model.py:2
  %3: f32[s0,32] = softmax(%2, -1)             # model.py:3
  return %3
}
)";

Inspection inspect_block() {
  Inspection inspection;
  inspection.title = "block";
  CompileOptions options;
  options.keep_code = true;
  options.dump = [&](std::string_view stage, const std::string& text) {
    inspection.texts.emplace_back(stage, text);
  };
  Compiler compiler;
  Compiled compiled = compiler.compile(graph::parse(kGraph, "block.ir", ops::op_table()), options);
  inspection.plan = compiled.plan;
  inspection.report = compiled.report;
  return inspection;
}

std::vector<std::int64_t> slots_for(const Inspection& inspection, std::int64_t rows) {
  const std::int64_t x_sizes[] = {rows, 64};
  const std::int64_t x_strides[] = {64, 1};
  const std::int64_t w_sizes[] = {32, 64};
  abi::TensorView views[2];
  for (abi::TensorView& view : views) {
    view.rank = 2;
    view.sizes = &view == views ? x_sizes : w_sizes;
    view.strides = x_strides;
  }
  return slots_of(*inspection.plan, views, {});
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Inspect, NumbersOfAProgram) {
  Inspection inspection = inspect_block();
  inspection.slots = slots_for(inspection, 100);
  const InspectFacts facts = inspect_facts(inspection);
  EXPECT_EQ(facts.launches, 2U);
  EXPECT_EQ(facts.library_calls, 1U);
  const std::int64_t x = 100 * 64 * 4;
  const std::int64_t y = 100 * 32 * 4;
  const std::int64_t w = 32 * 64 * 4;
  EXPECT_EQ(facts.moved_bytes, 2 * x + (x + w + y) + 2 * y);
  EXPECT_EQ(facts.parameter_bytes, w);
  EXPECT_EQ(facts.output_bytes, y);
  EXPECT_EQ(facts.peak_bytes, x + y);
  EXPECT_EQ(facts.arena_bytes, x + y);
}

TEST(Inspect, LimitIsTheLongerOfTwoTimes) {
  Inspection inspection = inspect_block();
  inspection.slots = slots_for(inspection, 100);
  inspection.limits = MachineLimits{.levels = {{"near", 60'000, 100e9}, {"far", INT64_MAX, 10e9}},
                                    .flops_f32 = 1e9};
  const InspectFacts facts = inspect_facts(inspection);
  EXPECT_EQ(facts.steps[0].limit, "near");
  EXPECT_DOUBLE_EQ(*facts.steps[0].limit_microseconds, 2 * 25600 / 100e9 * 1e6);
  EXPECT_EQ(facts.steps[1].limit, "compute");
  EXPECT_DOUBLE_EQ(*facts.steps[1].limit_microseconds, 2.0 * 100 * 64 * 32 / 1e9 * 1e6);
}

TEST(Inspect, PageHasEverySection) {
  Inspection inspection = inspect_block();
  inspection.slots = slots_for(inspection, 100);
  inspection.step_microseconds.assign(inspection.plan->steps.size(), 10);
  const std::string page = inspect_page(inspection);
  for (const char* id : {"summary", "steps", "memory", "fusion", "kernels", "graph", "s0", "k0"}) {
    EXPECT_EQ(count(page, std::string("id=\"") + id + "\""), 1U) << id;
  }
  EXPECT_NE(page.find("kernel @"), std::string::npos);     // kernel IR
  EXPECT_NE(page.find("define void"), std::string::npos);  // LLVM IR
  EXPECT_NE(page.find("Assembly"), std::string::npos);
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_NE(page.find("data-s=\"model.py:3\""), std::string::npos);
  EXPECT_EQ(count(page, "<details"), count(page, "</details>"));
  EXPECT_EQ(count(page, "<div"), count(page, "</div>"));
  EXPECT_EQ(page, inspect_page(inspection));
}

TEST(Inspect, LoadsNothing) {
  const std::string page = inspect_page(inspect_block());
  for (const char* part : {"http://", "https://", "<link", "<iframe", "@import", "url(", " src="}) {
    EXPECT_EQ(page.find(part), std::string::npos) << part;
  }
}

TEST(Inspect, TextsAreEscaped) {
  const std::string hostile = "</pre><script>alert(1)</script>\"'&";
  Inspection inspection = inspect_block();
  inspection.title = inspection.device = inspection.not_run = hostile;
  inspection.fusion = {hostile, "fuse " + hostile + " + b  yes   " + hostile};
  inspection.texts = {{hostile, "  %0 = " + hostile + "(  # " + hostile}};
  inspection.implementations.assign(inspection.plan->steps.size(), hostile);
  auto plan = std::make_shared<abi::Plan>(*inspection.plan);
  plan->name = hostile;
  for (auto& b : plan->buffers) b.name = hostile;
  for (auto& a : plan->arguments) a.name = hostile;
  for (auto& k : plan->kernels) k.name = k.text = hostile;
  for (std::string& s : inspection.report.schedules) s = hostile + "\nschedule " + hostile;
  for (auto& s : plan->steps) s.source = hostile;
  inspection.plan = plan;
  for (StepReport& s : inspection.report.steps) s = {hostile, hostile, hostile, hostile};
  for (StageTime& s : inspection.report.stages) s.stage = hostile;
  for (KernelCodeText& c : inspection.report.code) c.ir = c.assembly = hostile;
  inspection.report.eager = {hostile};
  inspection.slots = slots_for(inspection, 100);
  inspection.step_microseconds.assign(plan->steps.size(), 10);
  inspection.limits = MachineLimits{.levels = {{hostile, INT64_MAX, 1e9}}, .flops_f32 = 1e30};
  const std::string page = inspect_page(inspection);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(count(page, "<script>"), 1U);
  EXPECT_EQ(page.find("\"'&"), std::string::npos);
}

TEST(Inspect, SaysWhatIsMissing) {
  Inspection inspection;
  auto plan = std::make_shared<abi::Plan>();
  plan->name = "nothing";
  inspection.plan = plan;
  inspection.not_run = "no reason";
  const std::string page = inspect_page(inspection);
  EXPECT_NE(page.find("No times: no reason"), std::string::npos);
  EXPECT_NE(page.find("Sizes are symbolic"), std::string::npos);
}

TEST(InspectText, EscapesAndMendsUtf8) {
  EXPECT_EQ(escaped("a<b>&\"'é→😀"), "a&lt;b&gt;&amp;&quot;&#39;é→😀");
  EXPECT_EQ(escaped("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(escaped("\x80"), "\xEF\xBF\xBD");
  EXPECT_EQ(escaped("\xC3("), "\xEF\xBF\xBD(");
  EXPECT_EQ(escaped("\x01\n\t"), "\xEF\xBF\xBD\n\t");
}

TEST(InspectText, NumbersForPeople) {
  EXPECT_EQ(time_text(0.5), "0.50 µs");
  EXPECT_EQ(time_text(1234), "1.23 ms");
  EXPECT_EQ(time_text(999.7), "1.00 ms");
  EXPECT_EQ(bytes_text(128), "128 B");
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(45'600'000), "45.6 MB");
  EXPECT_EQ(count_text(1.5e12), "1.50 T");
  EXPECT_EQ(percent_text(0.031), "3.1 %");
  EXPECT_EQ(percent_text(0.5), "50 %");
  EXPECT_EQ(percent_text(0.0001), "&lt; 0.1 %");
}

TEST(MachineLimits, AreMeasured) {
  const MachineLimits limits = measure_limits(Compiler().device());
  ASSERT_FALSE(limits.levels.empty());
  for (const MachineLimits::Level& l : limits.levels) {
    EXPECT_GT(l.bytes_per_second, 1e8) << l.name;
    EXPECT_LT(l.bytes_per_second, 1e14) << l.name;
  }
  EXPECT_GT(limits.flops_f32, 1e8);
  EXPECT_EQ(&limits.level(INT64_MAX), &limits.levels.back());
  EXPECT_EQ(&limits.level(1), &limits.levels.front());
}

#if defined(__x86_64__)
// Fused multiply-adds of ten registers, `rounds` times: written out, no compiler merges them.
void multiply_adds(std::int64_t rounds, bool is_wide) {
#define INKLE_TEN(x) x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7) x(8) x(9)
#define INKLE_ZMM(i) "vfmadd231ps %%zmm10, %%zmm10, %%zmm" #i "\n\t"
#define INKLE_YMM(i) "vfmadd231ps %%ymm10, %%ymm10, %%ymm" #i "\n\t"
#define INKLE_CLEAR(i) "vxorps %%xmm" #i ", %%xmm" #i ", %%xmm" #i "\n\t"
#define INKLE_CLOBBERS \
  "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10"
  asm volatile(INKLE_TEN(INKLE_CLEAR) INKLE_CLEAR(10)::: INKLE_CLOBBERS);
  if (is_wide) {
    asm volatile("1:\n\t" INKLE_TEN(INKLE_ZMM) "dec %0\n\tjnz 1b" : "+r"(rounds)::INKLE_CLOBBERS);
  } else {
    asm volatile("1:\n\t" INKLE_TEN(INKLE_YMM) "dec %0\n\tjnz 1b" : "+r"(rounds)::INKLE_CLOBBERS);
  }
}

TEST(MachineLimits, OperationsAreThoseThatAreDone) {
  using Clock = std::chrono::steady_clock;
  const Compiler compiler;
  const bool is_wide = compiler.device().vector_bytes >= 64;
  if (compiler.device().vector_bytes < 32) GTEST_SKIP() << "no AVX2";
  constexpr std::int64_t kRounds = 50'000;
  double ratio = INFINITY;  // the least: what else the machine does disturbs either side
  for (int i = 0; i < 5 && ratio > 1.1; ++i) {
    double best = 0;
    for (int call = 0; call < 500; ++call) {
      const auto start = Clock::now();
      multiply_adds(kRounds, is_wide);
      const std::chrono::duration<double> seconds = Clock::now() - start;
      best = std::max(best, kRounds * 10 * (is_wide ? 16 : 8) * 2 / seconds.count());
    }
    const MachineLimits limits = measure_limits(compiler.device());
    ratio = std::min(ratio, limits.flops_f32 / limits.threads / best);
  }
  EXPECT_LT(ratio, 1.1);
  EXPECT_GT(ratio, 0.3);
}
#endif

}  // namespace
}  // namespace inkle::driver
