#include <gtest/gtest.h>

#include "base/error.h"
#include "driver/kernels_on_host.h"
#include "graph/text.h"
#include "ops/table.h"

namespace inkle::driver {
namespace {

using ops::RefTensor;

// Means of rows, and a part of them whose length is a quotient by an int.
constexpr const char* kPart = R"(graph @part(%x: f32[2,2], %n: int)
    -> f32[2,1], f32[-floordiv(7,n)+2,1] where n hint 2147483648 {
  %0: f32[2,1] = mean_dim(%x, [1], true)
  %1: f32[2,1] = remainder(%0, n)
  %2: f32[-floordiv(7,n)+2,1]{1,1} = narrow(%0, 0, max(floordiv(7,n),0), -floordiv(7,n)+2)
  return %1, %2
}
)";

// What threads of a warp have written is read by others of it, behind a barrier.
constexpr const char* kRows = R"(graph @rows(%x: i64[10,5]) -> i64[10,5], bool[10,5,5] {
  %0: i64[5] = arange(5, none, none, cpu, false)
  %1: i64[10,1] = amin(%x, [-1], true)
  %2: bool[10,5] = lt(%0, %1)
  %3: i64[10,5] = where(%2, %x, -1)
  %4: i64[10,5,1] = unsqueeze(%3, -1)
  %5: bool[10,5,5] = eq(%0, %4)
  return %3, %5
}
)";

RefTensor numbers(std::vector<std::int64_t> sizes) {
  RefTensor x(abi::DType::f32, std::move(sizes));
  for (std::size_t p = 0; p < x.count(); ++p) x.set(p, static_cast<double>(p % 7) - 3);
  return x;
}

// 126 times the int, of which numbers of blocks were quotients, is beyond 64 bits.
TEST(KernelsOnHost, LengthsThatLargeIntsComputeAreThoseOfTheCall) {
  for (const std::int64_t n :
       {std::int64_t{1} << 31, std::int64_t{378269659238656814}, std::int64_t{7}}) {
    graph::Graph graph = graph::parse(kPart, "part", ops::op_table());
    const ops::SymbolValues symbols = {{graph.inputs[1].symbol, n}};
    std::vector<RefTensor> inputs = {numbers({2, 2})};
    const HostedCall call = run_on_host(graph, inputs, symbols);
    EXPECT_EQ(call.kernels, 1u);
    const auto want = ops::interpret(graph, inputs, symbols);
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(ops::to_bytes(*call.outputs[i].tensor), ops::to_bytes(*want[i].tensor))
          << i << " of " << n;
    }
  }
}

TEST(KernelsOnHost, RacesAreFound) {
  const graph::Graph graph = graph::parse(kRows, "rows", ops::op_table());
  const RefTensor x(abi::DType::i64, {10, 5});
  EXPECT_EQ(run_on_host(graph, {x}, {}).kernels, 1u);
  EXPECT_THROW((void)run_on_host(graph, {x}, {}, {.skip = {"place_barriers"}}), InternalError);
}

}  // namespace
}  // namespace inkle::driver
