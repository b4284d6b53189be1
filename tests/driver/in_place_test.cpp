// Results that take the memory of operands, against the interpreter and against the same program
// with memory of its own for each.
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "driver/differential.h"
#include "graph/text.h"
#include "ops/table.h"

namespace inkle::driver {
namespace {

std::ptrdiff_t temporaries(const abi::Plan& plan) {
  return std::ranges::count(plan.buffers, abi::BufferDecl::Kind::arena, &abi::BufferDecl::kind);
}

// Expects so many temporaries fewer, and the same bits.
void expect_saved(std::string_view text, std::ptrdiff_t saved) {
  SCOPED_TRACE(text);
  const RunResult in_place = expect_text_as_interpreted(text);
  graph::Graph graph = graph::parse(text, "text", ops::op_table());
  CompileOptions options;
  options.skip_passes = {"reuse_operands"};
  std::vector<ops::RefTensor> inputs;
  for (std::uint32_t i = 0; i < graph.inputs.size(); ++i) {
    inputs.push_back(random_tensor(graph.type(graph.inputs[i].value), -2, 2, i + 1));
  }
  const RunResult again = compile_and_run(graph, inputs);
  const RunResult apart = compile_and_run(graph, inputs, {}, options);
  EXPECT_EQ(temporaries(*apart.plan) - temporaries(*in_place.plan), saved);
  ASSERT_EQ(again.outputs.size(), apart.outputs.size());
  for (std::size_t i = 0; i < again.outputs.size(); ++i) {
    EXPECT_EQ(ops::to_bytes(*again.outputs[i].tensor), ops::to_bytes(*apart.outputs[i].tensor));
  }
}

TEST(InPlace, BetweenProducts) {
  expect_saved(R"(graph @f(%x: f32[37,29], %w: f32[29,31], %v: f32[31,23]) -> f32[37,23] {
  %0: f32[37,31] = mm(%x, %w)
  %1: f32[37,31] = sin(%0)
  %2: f32[37,23] = mm(%1, %v)
  return %2
})",
               1);
}

TEST(InPlace, TwoResultsOfTwoOperands) {
  expect_saved(
      R"(graph @f(%x: f32[37,29], %w: f32[29,31], %v: f32[31,23]) -> f32[37,23], f32[37,23] {
  %0: f32[37,31] = mm(%x, %w)
  %1: f32[37,29] = sin(%x)
  %2: f32[37,31] = mm(%1, %w)
  %3: f32[37,31] = sub(%0, %2)
  %4: f32[37,31] = add(%0, %2)
  %5: f32[37,31] = cos(%3)
  %6: f32[37,31] = sin(%4)
  %7: f32[37,23] = mm(%5, %v)
  %8: f32[37,23] = mm(%6, %v)
  return %7, %8
})",
      2);
}

TEST(InPlace, NotWhatAnotherIterationReads) {
  expect_saved(R"(graph @f(%x: f32[36,36], %w: f32[36,36]) -> f32[36,36] {
  %0: f32[36,36] = mm(%x, %w)
  %1: f32[36,36] = permute(%0, [1, 0])
  %2: f32[36,36] = flip(%0, [1])
  %3: f32[36,36] = add(%1, %2)
  %4: f32[36,36] = sin(%3)
  %5: f32[36,36] = mm(%4, %w)
  return %5
})",
               0);
}

TEST(InPlace, NotWhatIsReadAfterwards) {
  expect_saved(R"(graph @f(%x: f32[36,36], %w: f32[36,36]) -> f32[36,36], f32[36,36] {
  %0: f32[36,36] = mm(%x, %w)
  %1: f32[36,36] = sin(%0)
  %2: f32[36,36] = mm(%1, %w)
  %3: f32[36,36] = mm(%0, %2)
  return %3, %2
})",
               0);
}

}  // namespace
}  // namespace inkle::driver
