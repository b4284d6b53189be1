// What shares a kernel across reshapes, against the interpreter.
#include <fmt/format.h>
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

// `body` reads %x, of 2.6 MB, beside a product that is more memory than sums of parts are.
RunResult beside_a_product(std::string_view results, std::string_view body,
                           std::string_view returned) {
  return expect_text_as_interpreted(fmt::format(
      R"(graph @g(%x: f32[1024,640], %w: f32[640], %b: f32[640], %p: f32[1024,4], %q: f32[4,1024]) -> {}, f32[1024] {{
{}  %8: f32[1024,1024] = mm(%p, %q)
  %9: f32[1024] = sum_dim(%8, [1], false)
  return {}, %9
}})",
      results, body, returned));
}

// Bytes of x once, and of all else.
constexpr std::int64_t kRead = 1024 * 640 * 4;
constexpr std::int64_t kProduct = 2 * 1024 * 1024 * 4 + (1 << 18);

TEST(Fusion, SumsOfRowsAndOfColumnsReadATensorOnce) {
  const RunResult run = beside_a_product("f32[640], f32[1024]",
                                         "  %0: f32[640] = sum_dim(%x, [0], false)\n"
                                         "  %1: f32[1024] = sum_dim(%x, [1], false)\n",
                                         "%0, %1");
  EXPECT_LT(run.report.bytes_moved, kRead + kProduct);
}

TEST(Fusion, ASoftmaxAndAMeanOfColumnsReadATensorOnce) {
  const RunResult run = beside_a_product("f32[1024,640], f32[640]",
                                         "  %0: f32[1024,640] = _softmax(%x, 1, false)\n"
                                         "  %1: f32[640] = mean_dim(%x, [0], false)\n",
                                         "%0, %1");
  EXPECT_LT(run.report.bytes_moved, 2 * kRead + kProduct);
}

TEST(Fusion, AMeanOfWhatASoftmaxMakesIsSummedThere) {
  const RunResult run = beside_a_product("f32[1024,640], f32[640]",
                                         "  %0: f32[1024,640] = _softmax(%x, 1, false)\n"
                                         "  %1: f32[640] = mean_dim(%0, [0], false)\n",
                                         "%0, %1");
  EXPECT_LT(run.report.bytes_moved, 2 * kRead + kProduct);
}

TEST(Fusion, ANormAndASumOfSquaresReadATensorOnce) {
  const RunResult run =
      beside_a_product("f32[1024,640], f32[640], f32[640]",
                       "  %0: f32[1024,640] = layer_norm(%x, [640], %w, %b, 1e-05)\n"
                       "  %1: f32[1024,640] = mul(%x, %x)\n"
                       "  %2: f32[640] = sum_dim(%1, [0], false)\n"
                       "  %3: f32[640] = sum_dim(%x, [0], false)\n",
                       "%0, %2, %3");
  EXPECT_LT(run.report.bytes_moved, 2 * kRead + kProduct);
}

}  // namespace
}  // namespace inkle::driver
