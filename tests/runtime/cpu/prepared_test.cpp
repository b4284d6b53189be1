// Prepare steps: when they run, what they leave, and who sees it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "runtime/cpu/plan_builder.h"
#include "runtime/cpu/reference.h"

namespace inkle::runtime::cpu {
namespace {

using testing::HasSubstr;
using Kind = abi::BufferDecl::Kind;

std::atomic<int> g_runs = 0;  // of the kernels below

// y[i] = 2 * x[i]
void twice(void* const* buffers, const std::int64_t*, void*, std::int64_t begin, std::int64_t end) {
  if (begin == 0) ++g_runs;
  const auto* x = static_cast<const float*>(buffers[0]);
  auto* y = static_cast<float*>(buffers[1]);
  for (std::int64_t i = begin; i < end; ++i) y[i] = 2 * x[i];
}

// y[i] = i
void count_up(void* const* buffers, const std::int64_t*, void*, std::int64_t begin,
              std::int64_t end) {
  if (begin == 0) ++g_runs;
  auto* y = static_cast<float*>(buffers[0]);
  for (std::int64_t i = begin; i < end; ++i) y[i] = static_cast<float>(i);
}

// y[i] = a[i] + b[i]
void add(void* const* buffers, const std::int64_t*, void*, std::int64_t begin, std::int64_t end) {
  const auto* a = static_cast<const float*>(buffers[0]);
  const auto* b = static_cast<const float*>(buffers[1]);
  auto* y = static_cast<float*>(buffers[2]);
  for (std::int64_t i = begin; i < end; ++i) y[i] = a[i] + b[i];
}

constexpr std::int64_t kSize = 1000;
constexpr std::int64_t kPaddedBytes = 4032;  // of kSize floats

abi::PlanBuffer prepared(PlanBuilder& b, std::string name, const Shape& sizes) {
  return b.buffer(Kind::prepared, std::move(name), sizes, dense_strides(sizes), DType::f32, 0);
}

// y = x + 4 * w: t = 2 * w and u = 2 * t are prepared. Arguments x, w.
PlanBuilder four_times() {
  PlanBuilder b;
  const auto x = b.argument("x", {kSize});
  const auto w = b.argument("w", {kSize}, {}, DType::f32, true);
  const auto t = prepared(b, "t", {kSize});
  const auto u = prepared(b, "u", {kSize});
  const auto y = b.output("y", {kSize});
  b.launch(twice, {w, t}, {}, kSize, kSize);
  b.launch(twice, {t, u}, {}, kSize, kSize);
  b.launch(add, {x, u, y}, {}, kSize);
  b.plan.steps[0].prepare = b.plan.steps[1].prepare = true;
  return b;
}

// Number of prepare steps that a call with these arguments runs; checks its results.
int runs_of(Executable& e, const Arguments& a, std::vector<std::int64_t> versions = {}) {
  const int before = g_runs;
  HeapHost host;
  e.run({.tensors = a.views, .versions = versions, .host = &host});
  const auto* x = static_cast<const float*>(a.views[0].data);
  const auto* w = static_cast<const float*>(a.views[1].data);
  for (int i = 0; i < kSize; ++i) {
    EXPECT_EQ(host.floats(0)[i], x[i] + 2 * (2 * w[i])) << "at " << i;
    if (host.floats(0)[i] != x[i] + 2 * (2 * w[i])) break;
  }
  return g_runs - before;
}

TEST(Prepared, RunsOnceForTheSameWeights) {
  Executable e(four_times().done(), {.poison = 0xa5});
  Arguments a;
  float* x = a.random({kSize});
  a.random({kSize});
  EXPECT_EQ(e.memory().prepared_bytes, 0);
  EXPECT_EQ(runs_of(e, a), 2);
  EXPECT_EQ(runs_of(e, a), 0);
  x[0] += 1;
  EXPECT_EQ(runs_of(e, a), 0);
  EXPECT_EQ(e.memory().prepared_bytes, 2 * kPaddedBytes);
  EXPECT_EQ(e.memory().arena_bytes, 0);
  EXPECT_THAT(e.watched(), testing::ElementsAre(1));
}

TEST(Prepared, NoticesAnotherTensorVersionOrContent) {
  Executable e(four_times().done());
  Arguments a;
  a.random({kSize});
  float* w = a.random({kSize});
  EXPECT_EQ(runs_of(e, a, {0, 7}), 2);
  EXPECT_EQ(runs_of(e, a, {9, 7}), 0);  // x may change
  EXPECT_EQ(runs_of(e, a, {9, 8}), 2);
  w[3] += 1;  // unseen by the version, in the first line
  EXPECT_EQ(runs_of(e, a, {9, 8}), 2);
  for (int i = 0; i < kSize; ++i) w[i] = static_cast<float>(-i);
  EXPECT_EQ(runs_of(e, a, {9, 8}), 2);
  EXPECT_EQ(e.memory().prepared_bytes, 2 * kPaddedBytes);  // in place of the old set
  Arguments other;
  other.random({kSize});
  other.random({kSize}, {}, 5);
  EXPECT_EQ(runs_of(e, other, {0, 8}), 2);
}

TEST(Prepared, SeveralSetsOfWeightsAlternate) {
  Executable e(four_times().done());
  std::vector<Arguments> sets(3);
  for (std::size_t s = 0; s < sets.size(); ++s) {
    sets[s].random({kSize});
    sets[s].random({kSize}, {}, s + 2);
    EXPECT_EQ(runs_of(e, sets[s]), 2);
  }
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (const Arguments& a : sets) EXPECT_EQ(runs_of(e, a), 0);
  }
  EXPECT_EQ(e.memory().prepared_bytes, 3 * 2 * kPaddedBytes);
}

TEST(Prepared, KeepsToItsLimitButNeverBelowOneSet) {
  for (const std::int64_t limit : {std::int64_t{0}, std::int64_t{2 * 2 * kPaddedBytes}}) {
    Executable e(four_times().done(), {.prepared_limit = limit});
    std::vector<Arguments> sets(3);
    for (std::size_t s = 0; s < sets.size(); ++s) {
      sets[s].random({kSize});
      sets[s].random({kSize}, {}, s + 2);
      EXPECT_EQ(runs_of(e, sets[s]), 2);
      EXPECT_LE(e.memory().prepared_bytes, std::max<std::int64_t>(limit, 2 * kPaddedBytes));
    }
    EXPECT_EQ(runs_of(e, sets[2]), 0);
    EXPECT_EQ(runs_of(e, sets[1]), limit == 0 ? 2 : 0);
    EXPECT_EQ(runs_of(e, sets[0]), 2);  // the least recently used had gone
    EXPECT_EQ(runs_of(e, sets[2]), 2);
  }
}

TEST(Prepared, ThreadsWithSetsOfTheirOwnAndShared) {
  Executable e(four_times().done());
  Arguments shared;
  shared.random({kSize});
  shared.random({kSize}, {}, 99);
  const int before = g_runs;
  std::vector<std::thread> threads;
  for (std::uint64_t n = 0; n < 4; ++n) {
    threads.emplace_back([&, n] {
      Arguments own;
      own.random({kSize});
      own.random({kSize}, {}, n + 10);
      for (int repeat = 0; repeat < 50; ++repeat) {
        for (const Arguments* a : {&shared, &own}) {
          HeapHost host;
          e.run({.tensors = a->views, .host = &host});
          const auto* x = static_cast<const float*>(a->views[0].data);
          const auto* w = static_cast<const float*>(a->views[1].data);
          for (int i = 0; i < kSize; ++i) ASSERT_EQ(host.floats(0)[i], x[i] + 2 * (2 * w[i]));
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(g_runs - before, 2 * 5);
}

// A thread changes weights of its own in place, over and over, while others run with theirs.
TEST(Prepared, ThreadsWhileWeightsChange) {
  Executable e(four_times().done(), {.prepared_limit = 2 * 2 * kPaddedBytes});
  std::vector<std::thread> threads;
  for (std::uint64_t n = 0; n < 3; ++n) {
    threads.emplace_back([&, n] {
      Arguments own;
      const float* x = own.random({kSize});
      float* w = own.random({kSize}, {}, n + 10);
      for (int repeat = 0; repeat < 100; ++repeat) {
        w[0] = static_cast<float>(repeat);
        HeapHost host;
        e.run({.tensors = own.views, .host = &host});
        for (int i = 0; i < kSize; ++i) ASSERT_EQ(host.floats(0)[i], x[i] + 2 * (2 * w[i]));
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_LE(e.memory().prepared_bytes, 2 * 2 * kPaddedBytes);
}

// Steps that read no weight run once an Executable, whatever the weights.
TEST(Prepared, ConstantsAreMadeOnce) {
  PlanBuilder b;
  b.argument("x", {kSize});
  const auto w = b.argument("w", {kSize}, {}, DType::f32, true);
  const auto index = prepared(b, "index", {kSize});
  const auto both = prepared(b, "both", {kSize});
  const auto y = b.output("y", {kSize});
  b.launch(count_up, {index}, {}, kSize, kSize);
  b.launch(add, {index, w, both}, {}, kSize);
  b.launch(twice, {both, y}, {}, kSize, kSize);
  b.plan.steps[0].prepare = b.plan.steps[1].prepare = true;
  Executable e(b.done());
  std::array<Arguments, 2> all;  // both alive: weights at one address would be one set
  for (std::uint64_t set = 0; set < 2; ++set) {
    Arguments& a = all[set];
    a.random({kSize});
    const float* weight = a.random({kSize}, {}, set + 2);
    for (int repeat = 0; repeat < 2; ++repeat) {
      const int before = g_runs;
      HeapHost host;
      e.run({.tensors = a.views, .host = &host});
      EXPECT_EQ(g_runs - before, set == 0 && repeat == 0 ? 2 : 1);
      for (int i = 0; i < kSize; ++i) {
        ASSERT_EQ(host.floats(0)[i], 2 * (static_cast<float>(i) + weight[i]));
      }
    }
    EXPECT_EQ(e.memory().prepared_bytes,
              kPaddedBytes + static_cast<std::int64_t>(set + 1) * kPaddedBytes);
  }
}

// Weights made by a prepare step are packed once, and again when they are made anew.
TEST(Prepared, PackedCopiesFollow) {
  constexpr std::int64_t kRows = 64;
  constexpr std::int64_t kInner = 96;
  constexpr std::int64_t kColumns = 128;
  PlanBuilder b;
  const auto x = b.argument("x", {kRows, kInner});
  const auto w = b.argument("w", {kInner, kColumns}, {}, DType::f32, true);
  const auto t = prepared(b, "t", {kInner, kColumns});
  b.launch(twice, {w, t}, {}, kInner * kColumns, kInner * kColumns);
  b.plan.steps[0].prepare = true;
  abi::MatmulCall call;
  call.a = b.operand(x);
  call.b = b.operand(t);
  call.c = b.operand(b.output("y", {kRows, kColumns}));
  call.b_is_weight = true;
  b.call(call);
  Executable e(b.done());
  Arguments a;
  const float* in = a.random({kRows, kInner});
  float* weight = a.random({kInner, kColumns});
  std::int64_t packed = 0;
  for (int change = 0; change < 4; ++change) {
    for (int i = 0; i < kInner * kColumns; ++i) weight[i] += static_cast<float>(change);
    for (int repeat = 0; repeat < 2; ++repeat) {
      HeapHost host;
      e.run({.tensors = a.views, .host = &host});
      for (const int row : {0, 63}) {
        for (const int column : {0, 77, 127}) {
          double sum = 0;
          for (int k = 0; k < kInner; ++k) {
            sum += static_cast<double>(in[row * kInner + k]) * 2 *
                   static_cast<double>(weight[k * kColumns + column]);
          }
          ASSERT_NEAR(host.floats(0)[row * kColumns + column], sum, 1e-3);
        }
      }
    }
    if (change == 0) packed = e.memory().packed_weight_bytes;
    // With AVX2 alone oneDNN may read weights as they lie.
    if (__builtin_cpu_supports("avx512bw") != 0) {
      EXPECT_GT(packed, 0);
    }
    EXPECT_EQ(e.memory().packed_weight_bytes, packed);  // none of the old set's stay
  }
}

TEST(Prepared, ProfilesThemWhenTheyRun) {
  Executable e(four_times().done());
  Arguments a;
  a.random({kSize});
  a.random({kSize});
  HeapHost host;
  const Call call{.tensors = a.views, .host = &host};
  const auto first = e.run_profiled(call);
  const auto second = e.run_profiled(call);
  ASSERT_EQ(first.size(), 3U);
  EXPECT_GT(first[0], 0);
  EXPECT_EQ(second[0], 0);
  EXPECT_EQ(second[1], 0);
  EXPECT_GT(second[2], 0);
}

TEST(Prepared, RefusesWhatMayNotBePrepared) {
  const auto error_with = [](auto change) -> std::string {
    PlanBuilder b = four_times();
    change(b.plan, b);
    try {
      Executable e(b.done());
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_with([](abi::Plan&, PlanBuilder&) {}), "no error");
  EXPECT_THAT(error_with([](abi::Plan& p, PlanBuilder&) { p.arguments[1].is_parameter = false; }),
              HasSubstr("step 0: a prepare step uses w, which changes from call to call"));
  EXPECT_THAT(error_with([](abi::Plan& p, PlanBuilder&) { p.buffers[2].kind = Kind::arena; }),
              HasSubstr("step 0: a prepare step uses t"));
  EXPECT_THAT(error_with([](abi::Plan& p, PlanBuilder&) { p.steps[0].prepare = false; }),
              HasSubstr("step 0: t is not prepared by an earlier step"));
  EXPECT_THAT(error_with([](abi::Plan& p, PlanBuilder&) { p.outputs[0].index = 3; }),
              HasSubstr("output u is prepared memory"));
  EXPECT_THAT(error_with([](abi::Plan& p, PlanBuilder&) {
                p.steps.push_back({.action = abi::CopyStep{.from = 0, .to = 2}});
              }),
              HasSubstr("step 3: only a prepare step may write t"));
  EXPECT_THAT(error_with([](abi::Plan& p, PlanBuilder&) {
                p.steps.push_back({.action = abi::CopyStep{.from = 0, .to = 2}, .prepare = true});
              }),
              HasSubstr("step 3: only launches and library calls can be prepare steps"));
  EXPECT_THAT(error_with([](abi::Plan& p, PlanBuilder& b) {
                p.arguments.push_back({.name = "s0", .is_integer = true});
                std::get<abi::Launch>(p.steps[1].action).extent =
                    b.instruction({.op = abi::SizeInstruction::Op::argument, .immediate = 2});
              }),
              HasSubstr("step 1: a prepare step with a size that depends on arguments"));
}

TEST(Prepared, PlanText) {
  EXPECT_EQ(abi::to_string(four_times().plan), R"(plan @test(x: f32[1000], w: f32[1000] parameter) {
  t = prepared f32[1000]
  u = prepared f32[1000]
  y = output f32[1000]
  prepare launch k0 (w, t) over 1000  # model.py:7
  prepare launch k1 (t, u) over 1000  # model.py:7
  launch k2 (x, u, y) over 1000  # model.py:7
  return y
}
)");
}

}  // namespace
}  // namespace inkle::runtime::cpu
