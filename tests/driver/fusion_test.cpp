// What shares a kernel across reshapes, against the interpreter.
#include <gtest/gtest.h>

#include "driver/differential.h"
#include "graph/text.h"
#include "ops/table.h"

namespace inkle::driver {
namespace {

std::size_t launches_of(std::string_view text) {
  return expect_text_as_interpreted(text).report.launches;
}

TEST(Fusion, ABiasIsSummedWhereItsRowsAreMade) {
  const std::size_t launches =
      launches_of(R"(graph @g(%x: f32[4,24,40], %g: f32[4,24,40]) -> f32[4,24,40], f32[40] {
  %0: f32[4,24,40] = gelu_backward(%g, %x)
  %1: f32[96,40] = view(%0, [96, 40])
  %2: f32[40] = sum_dim(%1, [0], false)
  return %0, %2
})");
  EXPECT_EQ(launches, 1u);
}

TEST(Fusion, RowsOfAReshapeAreTheRowsOfTheTensor) {
  const std::size_t launches = launches_of(R"(graph @g(%x: f32[4,24,40]) -> f32[4,24,40], f32[96] {
  %0: f32[4,24,40] = exp(%x)
  %1: f32[96,40] = view(%0, [96, 40])
  %2: f32[96] = sum_dim(%1, [1], false)
  return %0, %2
})");
  EXPECT_EQ(launches, 1u);
}

TEST(Fusion, APlaceAmongReshapedElementsIsThatOfTheReshape) {
  launches_of(R"(graph @g(%x: f32[4,24,40]) -> i64[40], i64[] {
  %0: f32[4,24,40] = tanh(%x)
  %1: f32[96,40] = view(%0, [96, 40])
  %2: i64[40] = argmax(%1, 0, false)
  %3: f32[40,96] = permute(%1, [1, 0])
  %4: i64[] = argmin(%3)
  return %2, %4
})");
}

TEST(Fusion, ReshapesOfSymbolicSizes) {
  graph::Graph graph = graph::parse(
      R"(graph @g(%x: f32[s0,s1,40], %g: f32[s0,s1,40]) -> f32[s0,s1,40], f32[40] where s0 in 2..64 hint 5, s1 in 2..64 hint 9 {
  %0: f32[s0,s1,40] = gelu_backward(%g, %x)
  %1: f32[s0*s1,40] = view(%0, [s0*s1, 40])
  %2: f32[40] = sum_dim(%1, [0], false)
  return %0, %2
})",
      "text", ops::op_table());
  const ops::SymbolValues symbols = bind_symbols(graph);
  std::vector<ops::RefTensor> inputs;
  for (std::uint32_t i = 0; i < 2; ++i) {
    inputs.push_back(random_tensor(graph.type(graph.inputs[i].value), -2, 2, i + 1));
  }
  const RunResult run = expect_as_interpreted(graph, std::move(inputs), symbols);
  EXPECT_EQ(run.report.launches, 1u);
}

}  // namespace
}  // namespace inkle::driver
