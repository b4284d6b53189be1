// Plans of files: what lies outside of its memory is refused before anything runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "base/error.h"
#include "runtime/cpu/plan_builder.h"

namespace inkle::runtime::cpu {
namespace {

using testing::HasSubstr;

void nothing(void* const*, const std::int64_t*, void*, std::int64_t, std::int64_t) {}

// y = x w, of 4 x 8 by 8 x 16, a copy of y's first rows, and a launch that does nothing.
struct Made {
  PlanBuilder b;
  abi::PlanBuffer x, w, y, t, z;
  Made() {
    x = b.argument("x", {4, 8});
    w = b.argument("w", {8, 16});
    t = b.arena("t", {4, 16}, 0, 1);
    y = b.output("y", {4, 16});
    z = b.output("z", {4, 16});
    b.call(abi::MatmulCall{.a = b.operand(x), .b = b.operand(w), .c = b.operand(t)});
    b.plan.steps.push_back({.action = abi::CopyStep{.from = t, .to = y}});
    b.launch(nothing, {y}, {4}, 4);
  }
  abi::MatmulCall& product() {
    return std::get<abi::MatmulCall>(std::get<abi::LibraryCall>(b.plan.steps[0].action));
  }
  abi::Launch& launch() { return std::get<abi::Launch>(b.plan.steps[2].action); }
};

std::string error_with(const std::function<void(Made&)>& change) {
  Made made;
  change(made);
  try {
    const Executable executable(made.b.done(), {.check_bounds = true});
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Bounds, WhatLiesOutsideIsRefused) {
  EXPECT_EQ(error_with([](Made&) {}), "no error");
  EXPECT_THAT(error_with([](Made& m) { m.product().a.offset = m.b.slot(1); }),
              HasSubstr("plan test, step 0: bytes 4 to 132 of x, which has 128"));
  EXPECT_THAT(error_with([](Made& m) { m.product().c.offset = m.b.slot(-1); }),
              HasSubstr("step 0: bytes -4 to 252 of t, which has 256"));
  EXPECT_THAT(error_with([](Made& m) { m.product().b.strides[0] = m.b.slot(17); }),
              HasSubstr("step 0: bytes 0 to 540 of w, which has 512"));
  EXPECT_THAT(error_with([](Made& m) { m.product().b.strides[1] = m.b.slot(-1); }),
              HasSubstr("step 0: bytes -60 to 452 of w"));
  EXPECT_THAT(error_with([](Made& m) { m.b.plan.outputs[0].offset = m.b.slot(4); }),
              HasSubstr("output 0: bytes 16 to 272 of y, which has 256"));
  EXPECT_THAT(error_with([](Made& m) { m.b.plan.buffers[m.x].bytes = m.b.slot(132); }),
              HasSubstr("buffer x: 132 bytes in 128"));
  EXPECT_THAT(error_with([](Made& m) { m.b.plan.buffers[m.t].bytes = m.b.slot(252); }),
              HasSubstr("buffer t: 252 bytes, 256 are touched"));
  EXPECT_THAT(error_with([](Made& m) {
                m.b.plan.buffers[m.t].kind = abi::BufferDecl::Kind::alias;
                m.b.plan.buffers[m.t].index = m.x;
              }),
              HasSubstr("buffer t: 256 bytes in 128"));
  EXPECT_THAT(error_with([](Made& m) { m.b.plan.buffers[m.y].sizes[0] = m.b.slot(3); }),
              HasSubstr("buffer y: 256 bytes in 192"));
  EXPECT_THAT(error_with([](Made& m) {
                m.b.plan.buffers[m.t].sizes = m.b.slots({2, 16});
                m.b.plan.buffers[m.t].strides = m.b.slots({16, 1});
              }),
              HasSubstr("step 1: a copy between unequal sizes"));
}

TEST(Bounds, SizesThatNoMemoryHasAreRefused) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(error_with([](Made& m) { m.b.plan.buffers[m.t].bytes = m.b.slot(-1); }),
              HasSubstr("buffer t: -1 bytes"));
  EXPECT_THAT(error_with([](Made& m) { m.b.plan.buffers[m.t].bytes = m.b.slot(kMost); }),
              HasSubstr("buffer t: 9223372036854775807 bytes"));
  EXPECT_THAT(error_with([](Made& m) { m.b.plan.buffers[m.z].sizes[0] = m.b.slot(-2); }),
              HasSubstr("buffer z: a size of -2"));
  EXPECT_THAT(error_with([](Made& m) { m.product().a.sizes[0] = m.b.slot(kMost); }),
              HasSubstr("step 0: more elements than memory has"));
  EXPECT_THAT(error_with([](Made& m) { m.product().a.strides[0] = m.b.slot(kMost); }),
              HasSubstr("step 0: more elements than memory has"));
  EXPECT_THAT(error_with([](Made& m) { m.launch().scratch_bytes = m.b.slot(kMost); }),
              HasSubstr("step 2: 9223372036854775807 bytes of scratch"));
  EXPECT_THAT(error_with([](Made& m) { m.launch().scratch_bytes = m.b.slot(-64); }),
              HasSubstr("step 2: -64 bytes of scratch"));
}

TEST(Bounds, TablesAreTheirInstances) {
  const auto two = [](Made& m, std::int64_t first, std::int64_t second) {
    m.launch().buffers = {m.y, m.y};
    m.launch().sizes = m.b.slots({4, 4});
    m.launch().extents = m.b.slots({first, second});
  };
  EXPECT_EQ(error_with([&](Made& m) { two(m, 1, 3); }), "no error");
  EXPECT_THAT(error_with([&](Made& m) { two(m, 1, 2); }),
              HasSubstr("step 2: a table whose instances are not its extent"));
  EXPECT_THAT(error_with([&](Made& m) { two(m, 5, -1); }),
              HasSubstr("step 2: an instance of -1 iterations"));
}

TEST(Bounds, OperandsHaveTheRightRanks) {
  EXPECT_THAT(error_with([](Made& m) {
                m.product().a.sizes.pop_back();
                m.product().a.strides.pop_back();
              }),
              HasSubstr("step 0: a matrix product of operands of unequal ranks"));
  EXPECT_THAT(error_with([](Made& m) {
                m.product().has_bias = true;
                m.product().bias = m.b.operand(m.x);
              }),
              HasSubstr("step 0: a bias that is no vector"));
  EXPECT_THAT(error_with([](Made& m) {
                abi::ConvolutionCall call{
                    .x = m.b.operand(m.x), .w = m.b.operand(m.w), .y = m.b.operand(m.y)};
                m.b.plan.steps[0].action = abi::LibraryCall(call);
              }),
              HasSubstr("step 0: a convolution of operands of unequal ranks"));
}

// Of sizes that change, in the call that brings them.
TEST(Bounds, SizesOfACallAreChecked) {
  PlanBuilder b;
  const abi::PlanBuffer x = b.argument("x", {4, 4});
  b.output("y", {4, 4});
  const abi::Slot rows =
      b.instruction({.op = abi::SizeInstruction::Op::size, .b = 0, .immediate = 0});
  b.plan.arguments[0].sizes[0] = rows;
  b.plan.buffers[x].sizes[0] = rows;  // and 64 bytes, whatever the rows
  b.launch(nothing, {x}, {4}, 4);
  Executable executable(b.done(), {.check_bounds = true});
  HeapHost host;
  std::vector<float> data(32);
  const auto run = [&](std::int64_t count) {
    const Shape sizes{count, 4}, strides{4, 1};
    const abi::TensorView view{data.data(), DType::f32, {}, 2, sizes.data(), strides.data()};
    executable.run({.tensors = {&view, 1}, .host = &host});
  };
  EXPECT_NO_THROW(run(4));
  try {
    run(5);
    FAIL() << "rows outside of the buffer";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("buffer x: 64 bytes, 80 are touched"));
  }
  EXPECT_NO_THROW(run(4));
}

}  // namespace
}  // namespace inkle::runtime::cpu
