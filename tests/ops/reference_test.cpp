// The interpreter's own arithmetic: rounding, casts, memory, mutation.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "graph/builder.h"
#include "ops/interpreter.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

TEST(Rounding, TiesGoToEven) {
  EXPECT_EQ(round_to(DType::bf16, 1 + 0x1p-8), 1.0);
  EXPECT_EQ(round_to(DType::bf16, 1 + 3 * 0x1p-8), 1 + 0x1p-6);
  EXPECT_EQ(round_to(DType::f16, 1 + 0x1p-11), 1.0);
  EXPECT_EQ(round_to(DType::f16, 0x1p-25), 0.0);
  EXPECT_EQ(round_to(DType::f16, 0x1.8p-25), 0x1p-24);
}

TEST(Rounding, OverflowIsInfinite) {
  EXPECT_EQ(round_to(DType::f16, 65519), 65504.0);
  EXPECT_EQ(round_to(DType::f16, 65520), std::numeric_limits<double>::infinity());
  EXPECT_EQ(round_to(DType::bf16, -3.4e38), -std::numeric_limits<double>::infinity());
}

TEST(Rounding, IntegersWrap) {
  EXPECT_EQ(wrap_to(DType::i8, 200), -56);
  EXPECT_EQ(wrap_to(DType::u8, -1), 255);
  EXPECT_EQ(wrap_to(DType::boolean, 7), 1);
}

TEST(Memory, EveryHalfSurvivesTheRoundTrip) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    std::vector<std::byte> bytes(2 * 65536);
    for (std::size_t i = 0; i < 65536; ++i) {
      bytes[2 * i] = static_cast<std::byte>(i & 255);
      bytes[2 * i + 1] = static_cast<std::byte>(i >> 8);
    }
    const RefTensor t = from_bytes(dtype, {65536}, bytes);
    const std::vector<std::byte> back = to_bytes(t);
    for (std::size_t i = 0; i < 65536; ++i) {
      if (std::isnan(t.real(i))) continue;  // payloads are not kept
      ASSERT_TRUE(back[2 * i] == bytes[2 * i] && back[2 * i + 1] == bytes[2 * i + 1]) << i;
    }
  }
}

TEST(Interpreter, CopyIntoAnInputIsSeenByLaterNodesAndTheCaller) {
  const auto context = std::make_shared<sym::Context>();
  graph::Graph graph(context, op_table());
  const graph::Sizes sizes = {context->constant(2)};
  const graph::ValueId x = graph.add_value({.sizes = sizes});
  graph.inputs.push_back({.name = "x", .value = x});
  graph::Builder builder(graph);
  const graph::ValueId doubled = builder.node("mul", {x, 2.0});
  (void)builder.node("copy_", {x, doubled});
  graph.outputs.push_back({builder.node("add", {x, 1.0})});
  RefTensor input(DType::f32, {2});
  input.set(0, 3.0);
  input.set(1, -1.0);
  std::vector<RefTensor> inputs = {input};
  const auto outputs = interpret(graph, inputs, {});
  EXPECT_EQ(outputs[0].tensor->real(0), 7.0);
  EXPECT_EQ(inputs[0].real(1), -2.0);
}

TEST(Interpreter, WrongInputsAreNamed) {
  const auto context = std::make_shared<sym::Context>();
  graph::Graph graph(context, op_table());
  const graph::ValueId x = graph.add_value({.sizes = {context->constant(2)}});
  graph.inputs.push_back({.name = "x", .value = x});
  std::vector<RefTensor> inputs = {RefTensor(DType::f32, {3})};
  EXPECT_THROW((void)interpret(graph, inputs, {}), UserError);
}

// As in eager, which has the exponential in memory.
TEST(Interpreter, SoftMarginLossLeavesTheRangeWithItsExponential) {
  const auto loss = [](DType dtype, double x) {
    graph::Graph graph(std::make_shared<sym::Context>(), op_table());
    graph::Builder builder(graph);
    const graph::Type type{.dtype = dtype, .sizes = {}, .strides = graph::Sizes{}};
    std::vector<RefTensor> inputs;
    std::vector<graph::ValueId> operands;
    for (const double value : {x, -1.0}) {
      operands.push_back(graph.add_value(type));
      graph.inputs.push_back({.name = "x", .value = operands.back()});
      inputs.emplace_back(dtype, std::vector<std::int64_t>{});
      inputs.back().set(0, value);
    }
    graph.outputs.push_back({builder.node("soft_margin_loss", {operands[0], operands[1]})});
    return interpret(graph, inputs, {})[0].tensor->real(0);
  };
  EXPECT_NEAR(loss(DType::f32, 88), 88, 1e-4);
  EXPECT_EQ(loss(DType::f32, 89), HUGE_VAL);
  EXPECT_NEAR(loss(DType::f64, 89), 89, 1e-10);
}

}  // namespace
}  // namespace inkle::ops
