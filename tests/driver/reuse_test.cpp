// Kernels of one program serve another if they are the same in all that their code relies on.
#include <gtest/gtest.h>

#include <string>

#include "driver/pipeline.h"
#include "graph/text.h"
#include "ops/table.h"

namespace inkle::driver {
namespace {

std::uint32_t reused(Compiler& compiler, const std::string& facts) {
  const std::string text = "graph @f(%x: f32[s0], %y: f32[s0]) -> f32[s0] where " + facts +
                           " hint 4096 {\n  %0: f32[s0] = add(%x, %y)\n  return %0\n}\n";
  return compiler.compile(graph::parse(text, "test.ir", ops::op_table()), {}).report.kernels_reused;
}

TEST(Reuse, SizesOfOtherFactsAreOtherKernels) {
  Compiler compiler;
  EXPECT_EQ(reused(compiler, "s0 in 2..100000000"), 0);
  EXPECT_EQ(reused(compiler, "s0 in 2..100000000"), 1);
  EXPECT_EQ(reused(compiler, "s0 in 2..100000000 by 8"), 0);  // no tail
  EXPECT_EQ(reused(compiler, "s0 in 2..100000000000"), 0);    // more than 32 bits
}

}  // namespace
}  // namespace inkle::driver
