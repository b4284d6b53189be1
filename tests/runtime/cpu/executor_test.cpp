#include "runtime/cpu/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "base/error_of.h"
#include "runtime/cpu/plan_builder.h"

namespace inkle::runtime::cpu {
namespace {

using testing::HasSubstr;

// y[i] = x[i] + sizes[0]
void add_size(void* const* buffers, const std::int64_t* sizes, void*, std::int64_t begin,
              std::int64_t end) {
  const auto* x = static_cast<const float*>(buffers[0]);
  auto* y = static_cast<float*>(buffers[1]);
  for (std::int64_t i = begin; i < end; ++i) y[i] = x[i] + static_cast<float>(sizes[0]);
}

// y[i] = x[i] by way of the thread's scratch, which must be its own.
void through_scratch(void* const* buffers, const std::int64_t*, void* scratch, std::int64_t begin,
                     std::int64_t end) {
  const auto* x = static_cast<const float*>(buffers[0]);
  auto* y = static_cast<float*>(buffers[1]);
  auto* row = reinterpret_cast<float*>(static_cast<std::byte*>(scratch) + abi::kStatusBytes);
  for (int repeat = 0; repeat < 50; ++repeat) {
    for (std::int64_t i = begin; i < end; ++i) row[i % 256] = x[i];
    for (std::int64_t i = begin; i < end; ++i) {
      if ((i + 256) >= end) y[i] = row[i % 256];
    }
  }
}

// y[i] = x[index[i]] out of 4 elements
void gather(void* const* buffers, const std::int64_t*, void* scratch, std::int64_t begin,
            std::int64_t end) {
  const auto* x = static_cast<const float*>(buffers[0]);
  const auto* index = static_cast<const std::int64_t*>(buffers[1]);
  auto* y = static_cast<float*>(buffers[2]);
  for (std::int64_t i = begin; i < end; ++i) {
    const bool ok = index[i] >= 0 && index[i] < 4;
    if (!ok) *static_cast<std::int64_t*>(scratch) = 1;
    y[i] = ok ? x[index[i]] : 0;
  }
}

Call call_of(Arguments& arguments, Host& host) {
  return {.tensors = arguments.views, .host = &host};
}

TEST(Executor, ChainsLaunchesThroughTheArena) {
  PlanBuilder b;
  const auto x = b.argument("x", {1000});
  const auto t0 = b.arena("t0", {1000}, 0, 1);
  const auto t1 = b.arena("t1", {1000}, 1, 2);
  const auto t2 = b.arena("t2", {1000}, 2, 3);
  const auto y = b.output("y", {1000});
  b.launch(add_size, {x, t0}, {1}, 1000);
  b.launch(add_size, {t0, t1}, {2}, 1000, 100);
  b.launch(add_size, {t1, t2}, {3}, 1000, 5000);
  b.launch(add_size, {t2, y}, {4}, 1000);
  Executable e(b.done(), {.poison = 0xa5});
  Arguments a;
  const float* in = a.random({1000});
  for (int repeat = 0; repeat < 3; ++repeat) {
    HeapHost host;
    e.run(call_of(a, host));
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(host.floats(0)[i], in[i] + 1 + 2 + 3 + 4);
    EXPECT_TRUE(host.outputs[0].is_whole);
  }
  EXPECT_EQ(e.memory().arena_bytes, 2 * 4032);  // t0 and t2 share their place
}

TEST(Executor, ScratchBelongsToOneThread) {
  PlanBuilder b;
  const auto x = b.argument("x", {512});
  const auto y = b.output("y", {512});
  b.launch(through_scratch, {x, y}, {}, 512, 1, abi::kStatusBytes + 1024);
  Executable e(b.done());
  Arguments a;
  const float* in = a.random({512});
  HeapHost host;
  e.run(call_of(a, host));
  for (int i = 0; i < 512; ++i) ASSERT_EQ(host.floats(0)[i], in[i]);
}

TEST(Executor, ReportsAnIndexOutOfRangeWithItsSourceLine) {
  PlanBuilder b;
  const auto x = b.argument("x", {4});
  const auto index = b.argument("index", {3}, {}, DType::i64);
  const auto y = b.output("y", {3});
  b.launch(gather, {x, index, y}, {}, 3);
  Executable e(b.done());
  Arguments a;
  a.random({4});
  auto* i = reinterpret_cast<std::int64_t*>(a.add({3}, {}, DType::i64));
  i[0] = 3;
  i[1] = 4;
  i[2] = 0;
  HeapHost host;
  EXPECT_EQ(error_of([&] { e.run(call_of(a, host)); }), "index out of range in model.py:7");
  i[1] = 0;  // the next call starts clean
  HeapHost again;
  EXPECT_EQ(error_of([&] { e.run(call_of(a, again)); }), "no error");
}

TEST(Executor, NamesTheArgumentThatIsWrong) {
  PlanBuilder b;
  const auto x = b.argument("x", {2, 3});
  const auto y = b.output("y", {6});
  b.launch(add_size, {x, y}, {0}, 6);
  Executable e(b.done());
  HeapHost host;
  const auto run_with = [&](const Shape& sizes, const Shape& strides, DType dtype) {
    Arguments a;
    a.add(sizes, strides, dtype);
    return error_of([&] { e.run(call_of(a, host)); });
  };
  EXPECT_EQ(run_with({2, 3}, {3, 1}, DType::f32), "no error");
  EXPECT_EQ(run_with({2, 4}, {4, 1}, DType::f32),
            "argument x: expected f32[2,3] with strides (3, 1), got f32[2,4] with strides (4, 1) "
            "on cpu");
  EXPECT_THAT(run_with({2, 3}, {1, 2}, DType::f32), HasSubstr("with strides (1, 2)"));
  EXPECT_THAT(run_with({2, 3}, {3, 1}, DType::f64), HasSubstr("expected f32 of rank 2 on cpu"));
  EXPECT_THAT(run_with({6}, {1}, DType::f32), HasSubstr("got f32[6]"));
  Arguments none;
  EXPECT_EQ(error_of([&] { e.run(call_of(none, host)); }),
            "plan test takes 1 tensors and 0 integers, got 0 and 0");
}

TEST(Executor, StridesOfSingleElementsDoNotMatter) {
  PlanBuilder b;
  const auto x = b.argument("x", {1, 3});
  const auto y = b.output("y", {3});
  b.launch(add_size, {x, y}, {0}, 3);
  Executable e(b.done());
  Arguments a;
  a.add({1, 3}, {77, 1});
  HeapHost host;
  EXPECT_EQ(error_of([&] { e.run(call_of(a, host)); }), "no error");
}

// Sizes from integer arguments and from tensors; shapes change between calls.
TEST(Executor, DynamicSizes) {
  using Op = abi::SizeInstruction::Op;
  PlanBuilder b;
  b.plan.arguments.push_back({.name = "s0", .is_integer = true});
  const auto s0 = b.instruction({.op = Op::argument, .immediate = 0});
  const auto x = b.argument("x", {0});
  const auto four = b.slot(4);
  const auto bytes = b.instruction({.op = Op::mul, .a = s0, .b = four});
  b.plan.arguments[1].sizes = {s0};
  const auto t = b.arena("t", {0}, 0, 1);
  const auto y = b.output("y", {0});
  for (const auto buffer : {x, t, y}) {
    b.plan.buffers[buffer].sizes = {s0};
    b.plan.buffers[buffer].bytes = bytes;
  }
  b.plan.outputs[0].sizes = {s0};
  b.launch(add_size, {x, t}, {}, 0);
  b.launch(add_size, {t, y}, {}, 0);
  for (abi::PlanStep& s : b.plan.steps) {
    auto& l = std::get<abi::Launch>(s.action);
    l.extent = s0;
    l.sizes = {s0};
  }
  const auto limit = b.slot(5000);
  b.plan.guards.push_back(
      {.relation = abi::Guard::Relation::less_equal, .a = s0, .b = limit, .message = "s0 <= 5000"});
  Executable e(b.done());
  for (const std::int64_t n : {0, 5, 5, 4000, 3, 0}) {
    Arguments a;
    const float* in = a.random({n});
    HeapHost host;
    const std::vector<std::int64_t> integers = {n};
    e.run({.tensors = a.views, .integers = integers, .host = &host});
    ASSERT_EQ(host.outputs[0].view.sizes[0], n);
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(host.floats(0)[i], in[i] + static_cast<float>(n) + static_cast<float>(n));
    }
  }
  Arguments big;
  big.random({6000});
  HeapHost host;
  const std::vector<std::int64_t> integers = {6000};
  const auto run_big = [&] { e.run({.tensors = big.views, .integers = integers, .host = &host}); };
  for (int repeat = 0; repeat < 2; ++repeat) {  // a failed guard fails again
    EXPECT_EQ(error_of(run_big), "s0 <= 5000: 6000 <= 5000 does not hold");
  }
}

TEST(Executor, MutatesArgumentsThroughAliasesAndReturnsThem) {
  PlanBuilder b;
  const auto x = b.argument("x", {8});
  const auto alias = b.buffer(abi::BufferDecl::Kind::alias, "v", {2, 4}, {4, 1}, DType::f32, x);
  b.launch(add_size, {alias, alias}, {5}, 8);
  b.plan.outputs.push_back({.kind = abi::PlanOutput::Kind::argument, .index = 0});
  b.plan.outputs.push_back({.kind = abi::PlanOutput::Kind::buffer,
                            .index = alias,
                            .sizes = b.slots({4}),
                            .strides = b.slots({2}),
                            .offset = b.slot(1)});
  b.plan.outputs.push_back({.kind = abi::PlanOutput::Kind::integer, .index = b.slot(42)});
  b.plan.outputs.push_back({.kind = abi::PlanOutput::Kind::none});
  Executable e(b.done());
  Arguments a;
  float* data = a.random({8});
  const std::vector<float> before(data, data + 8);
  HeapHost host;
  e.run(call_of(a, host));
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(data[i], before[i] + 5);
  EXPECT_EQ(host.outputs[0].argument, 0);
  EXPECT_TRUE(host.outputs[0].is_whole);
  EXPECT_EQ(host.outputs[1].argument, 0);
  EXPECT_FALSE(host.outputs[1].is_whole);
  EXPECT_EQ(host.outputs[1].view.data, data + 1);
  EXPECT_EQ(host.outputs[2].integer, 42);
  EXPECT_EQ(host.outputs[3].kind, abi::PlanOutput::Kind::none);
}

// Adds 101 elements, of which the argument is all but the first.
float* misaligned(Arguments& arguments) {
  static constexpr std::int64_t kSize = 100;
  float* const data = arguments.random({kSize + 1});
  arguments.views.back().data = data + 1;
  arguments.views.back().sizes = &kSize;
  return data;
}

TEST(Executor, ClonesMisalignedArgumentsAndWritesThemBack) {
  PlanBuilder b;
  const auto x = b.argument("x", {100});
  b.plan.arguments[0].alignment = 64;
  b.launch(
      [](void* const* buffers, const std::int64_t*, void*, std::int64_t begin, std::int64_t end) {
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(buffers[0]) % 64, 0U);
        for (std::int64_t i = begin; i < end; ++i) static_cast<float*>(buffers[0])[i] += 1;
      },
      {x}, {}, 100);
  Executable e(b.done());
  Arguments a;
  float* data = misaligned(a);
  const std::vector<float> before(data, data + 101);
  HeapHost host;
  e.run(call_of(a, host));
  EXPECT_EQ(data[0], before[0]);
  for (std::size_t i = 1; i < 101; ++i) EXPECT_EQ(data[i], before[i] + 1);
}

// A kernel needs it aligned; the op gets the argument itself, with what the kernel wrote, and the
// kernel behind it what the op wrote.
TEST(Executor, EagerCallsGetMisalignedArgumentsThemselves) {
  PlanBuilder b;
  const auto x = b.argument("x", {100});
  b.plan.arguments[0].alignment = 64;
  b.plan.arguments[0].is_written = true;
  const auto add_one = [](void* const* buffers, const std::int64_t*, void*, std::int64_t begin,
                          std::int64_t end) {
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(buffers[0]) % 64, 0U);
    for (std::int64_t i = begin; i < end; ++i) static_cast<float*>(buffers[0])[i] += 1;
  };
  b.launch(add_one, {x}, {}, 100);
  b.plan.steps.push_back({.action = abi::EagerCall{
                              .target = 7,
                              .arguments = {{.kind = abi::EagerArgument::Kind::buffer, .index = x},
                                            {.kind = abi::EagerArgument::Kind::buffer, .index = x}},
                              .name = "aten::thing_"}});
  b.launch(add_one, {x}, {}, 100);
  Executable e(b.done());
  Arguments a;
  float* data = misaligned(a);
  const std::vector<float> before(data, data + 101);
  HeapHost host;
  int calls = 0;
  host.eager = [&](std::uint32_t, std::span<const EagerOperand> operands, std::span<HostTensor>) {
    ++calls;
    for (const EagerOperand& operand : operands) {
      ASSERT_EQ(operand.argument, 0);
      ASSERT_EQ(operand.view.data, data + 1);
    }
    for (std::size_t i = 1; i < 101; ++i) data[i] *= 2;
  };
  e.run(call_of(a, host));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(data[0], before[0]);
  for (std::size_t i = 1; i < 101; ++i) EXPECT_EQ(data[i], 2 * (before[i] + 1) + 1);
}

TEST(Executor, EagerCallsAndTheirLayouts) {
  PlanBuilder b;
  const auto x = b.argument("x", {2, 3});
  const auto r = b.buffer(abi::BufferDecl::Kind::external, "r", {2, 3}, {3, 1}, DType::f32, 0);
  const auto y = b.output("y", {6});
  b.plan.steps.push_back(
      {.action = abi::EagerCall{
           .target = 7,
           .arguments = {{.kind = abi::EagerArgument::Kind::buffer, .index = x},
                         {.kind = abi::EagerArgument::Kind::slot, .index = b.slot(9)}},
           .results = {r},
           .name = "aten::thing"}});
  b.launch(add_size, {r, y}, {1}, 6);
  Executable e(b.done());
  Arguments a;
  const float* in = a.random({2, 3});
  for (const bool transposed : {false, true}) {
    HeapHost host;
    host.eager = [&](std::uint32_t target, std::span<const EagerOperand> operands,
                     std::span<HostTensor> results) {
      ASSERT_EQ(target, 7U);
      ASSERT_EQ(operands[0].argument, 0);
      ASSERT_EQ(operands[1].integer, 9);
      const Shape sizes = {2, 3};
      results[0] = host.make_output(DType::f32, sizes, transposed ? Shape{1, 2} : Shape{3, 1});
      for (std::int64_t i = 0; i < 2; ++i) {
        for (std::int64_t j = 0; j < 3; ++j) {
          static_cast<float*>(results[0].view.data)[transposed ? i + 2 * j : 3 * i + j] =
              2 * in[3 * i + j];
        }
      }
    };
    e.run(call_of(a, host));
    for (int i = 0; i < 6; ++i) ASSERT_EQ(host.floats(0)[i], 2 * in[i] + 1);
  }
  HeapHost wrong;
  wrong.eager = [&](std::uint32_t, std::span<const EagerOperand>, std::span<HostTensor> results) {
    results[0] = wrong.make_output(DType::f32, Shape{2, 4}, Shape{4, 1});
  };
  // So that the caller can run all of it in eager.
  EXPECT_THROW(
      try { e.run(call_of(a, wrong)); } catch (const Unsupported& error) {
        EXPECT_THAT(error.what(), HasSubstr("aten::thing returned"));
        throw;
      },
      Unsupported);
}

TEST(Executor, CopiesBetweenLayouts) {
  PlanBuilder b;
  const auto x = b.argument("x", {3, 5, 7}, {1, 21, 3});
  const auto y = b.output("y", {3, 5, 7});
  b.plan.steps.push_back({.action = abi::CopyStep{.from = x, .to = y}});
  Executable e(b.done());
  Arguments a;
  const float* in = a.random({3, 5, 7}, {1, 21, 3});
  HeapHost host;
  e.run(call_of(a, host));
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 5; ++j) {
      for (int k = 0; k < 7; ++k) {
        ASSERT_EQ(host.floats(0)[35 * i + 7 * j + k], in[i + 21 * j + 3 * k]);
      }
    }
  }
}

TEST(Executor, ConstantsAreReturnedAsCopies) {
  PlanBuilder b;
  auto bytes = std::make_shared<std::vector<std::byte>>(12);
  const float values[] = {1, 2, 3};
  std::memcpy(bytes->data(), values, 12);
  b.plan.constants.push_back({.dtype = DType::f32, .sizes = {3}});
  b.code.constants.emplace_back(bytes);
  const auto c = b.buffer(abi::BufferDecl::Kind::constant, "c", {3}, {1}, DType::f32, 0);
  b.plan.outputs.push_back({.kind = abi::PlanOutput::Kind::buffer,
                            .index = c,
                            .sizes = b.slots({3}),
                            .strides = b.slots({1}),
                            .offset = b.slot(0)});
  Executable e(b.done());
  Arguments a;
  HeapHost first;
  e.run(call_of(a, first));
  static_cast<float*>(first.outputs[0].view.data)[0] = 99;
  HeapHost second;
  e.run(call_of(a, second));
  EXPECT_EQ(second.floats(0)[0], 1);
  EXPECT_EQ(second.floats(0)[2], 3);
}

TEST(Executor, OutOfMemoryIsAnErrorAndNotTheEnd) {
  PlanBuilder b;
  const auto x = b.argument("x", {4});
  const auto t = b.arena("t", {std::int64_t{1} << 44}, 0, 0);
  const auto y = b.output("y", {4});
  b.launch(add_size, {x, t}, {1}, 4);
  b.launch(add_size, {x, y}, {1}, 4);
  Executable e(b.done());
  Arguments a;
  a.random({4});
  HeapHost host;
  EXPECT_THAT(error_of([&] { e.run(call_of(a, host)); }),
              HasSubstr("out of memory: no 67108864.0"));
  host.out_of_memory = true;
  EXPECT_EQ(error_of([&] { e.run(call_of(a, host)); }), "out of memory in plan test");
}

TEST(Executor, ThreadsShareOnePlan) {
  PlanBuilder b;
  const auto x = b.argument("x", {4096});
  const auto t = b.arena("t", {4096}, 0, 1);
  const auto y = b.output("y", {4096});
  b.launch(add_size, {x, t}, {1}, 4096);
  b.launch(add_size, {t, y}, {1}, 4096);
  Executable e(b.done());
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t n = 0; n < 4; ++n) {
    threads.emplace_back([&, n] {
      Arguments a;
      const float* in = a.random({4096}, {}, n + 10);
      for (int repeat = 0; repeat < 50; ++repeat) {
        HeapHost host;
        e.run(call_of(a, host));
        for (int i = 0; i < 4096; ++i) wrong += host.floats(0)[i] != in[i] + 1 + 1;
      }
    });
  }
  for (std::thread& t2 : threads) t2.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Executor, ProfilesEveryStep) {
  PlanBuilder b;
  const auto x = b.argument("x", {1 << 20});
  const auto y = b.output("y", {1 << 20});
  b.launch(add_size, {x, y}, {1}, 1 << 20);
  b.launch(add_size, {x, y}, {1}, 1);
  Executable e(b.done());
  Arguments a;
  a.random({1 << 20});
  HeapHost host;
  const auto times = e.run_profiled(call_of(a, host));
  ASSERT_EQ(times.size(), 2U);
  EXPECT_GT(times[0], 10 * times[1]);
}

// Steps that nest are data so far: the verifier knows them, no runtime runs them.
TEST(Executor, RefusesNestedSteps) {
  const auto error_with = [](auto change) -> std::string {
    PlanBuilder b;
    const auto x = b.argument("x", {4});
    const auto y = b.output("y", {4});
    b.launch(add_size, {x, y}, {1}, 4);
    b.buffer(abi::BufferDecl::Kind::formal, "f", {4}, {1}, DType::f32, 0);
    b.plan.regions = {{b.plan.steps}, {{}}};
    change(b.plan);
    try {
      Executable e(b.done());
    } catch (const Unsupported& error) {
      return error.what();
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_with([](abi::Plan&) {}), "no error");
  const auto is_refused = [&](auto action) {
    return error_with([&](abi::Plan& p) { p.steps.push_back({.action = action}); });
  };
  const std::string not_run = "plan test: a branch, loop or region is not run";
  EXPECT_EQ(is_refused(abi::Branch{0, 0, 1}), not_run);
  EXPECT_EQ(is_refused(abi::Loop{0, 1}), not_run);
  EXPECT_EQ(is_refused(abi::RegionCall{1, {2}, {0}}), not_run);
  EXPECT_THAT(is_refused(abi::Branch{99, 0, 1}), HasSubstr("step 1: slot 99"));
  EXPECT_THAT(is_refused(abi::Branch{0, 0, 2}), HasSubstr("step 1: region 2 of 0 to 2"));
  EXPECT_THAT(is_refused(abi::RegionCall{1, {2}, {}}), HasSubstr("as many formal as actual"));
  EXPECT_THAT(is_refused(abi::RegionCall{1, {1}, {0}}), HasSubstr("y is not a formal buffer"));
  EXPECT_THAT(error_with([](abi::Plan& p) {
                p.regions[1].steps.push_back({.action = abi::Loop{0, 1}});
              }),
              HasSubstr("region 1, step 0: region 1 of 2 to 2"));
  EXPECT_THAT(error_with([](abi::Plan& p) { p.regions[0].steps[0].prepare = true; }),
              HasSubstr("a region has no prepare steps"));
}

TEST(Executor, RefusesPlansThatReferToNothing) {
  const auto error_with = [](auto change) {
    PlanBuilder b;
    const auto x = b.argument("x", {4});
    const auto y = b.output("y", {4});
    b.launch(add_size, {x, y}, {1}, 4);
    change(b);
    return error_of([&] { Executable e(b.done()); });
  };
  EXPECT_EQ(error_with([](PlanBuilder&) {}), "no error");
  EXPECT_THAT(error_with([](PlanBuilder& b) {
                std::get<abi::Launch>(b.plan.steps[0].action).buffers[0] = 9;
              }),
              HasSubstr("step 0: buffer 9 of 2"));
  EXPECT_THAT(error_with([](PlanBuilder& b) { b.plan.buffers[0].bytes = 1000; }),
              HasSubstr("buffer x: slot 1000"));
  EXPECT_THAT(error_with([](PlanBuilder& b) { b.code.functions[0] = nullptr; }),
              HasSubstr("kernel k0 has no code"));
  EXPECT_THAT(error_with([](PlanBuilder& b) { ++b.plan.slot_count; }), HasSubstr("are computed"));
  EXPECT_THAT(error_with([](PlanBuilder& b) { b.code.functions.clear(); }),
              HasSubstr("code of 0 kernels, 1 are needed"));
  EXPECT_THAT(error_with([](PlanBuilder& b) { b.plan.constants.push_back({.sizes = {3}}); }),
              HasSubstr("0 constants, 1 are needed"));
  EXPECT_THAT(error_with([](PlanBuilder& b) {
                b.plan.constants.push_back({.sizes = {3}});
                b.code.constants.emplace_back(std::make_shared<std::vector<std::byte>>(11));
              }),
              HasSubstr("constant 0 has 11 bytes, 12 are needed"));
  EXPECT_THAT(error_with([](PlanBuilder& b) {
                b.plan.constants.push_back({.sizes = {std::int64_t{1} << 62, 8}});
              }),
              HasSubstr("constant 0: sizes that no memory has"));
  EXPECT_THAT(
      error_with([](PlanBuilder& b) { b.plan.buffers[1].kind = abi::BufferDecl::Kind::arena; }),
      HasSubstr("output y lies in the arena"));
  EXPECT_THAT(error_with([](PlanBuilder& b) {
                b.plan.buffers[1] = {.kind = abi::BufferDecl::Kind::alias, .index = 1};
              }),
              HasSubstr("aliases in a circle"));
}

}  // namespace
}  // namespace inkle::runtime::cpu
