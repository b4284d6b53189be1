// Updates in place: what they cost, and that they change nothing that somebody still reads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "driver/differential.h"

namespace inkle::driver {
namespace {

std::string chain(bool into_input) {
  std::string text = "graph @chain(%x: f32[64,256], %a: f32[1,256]) -> f32[64,256] {\n";
  text += into_input ? "  %0: f32[1,256] = exp(%a)\n" : "  %0: f32[64,256] = cumsum(%x, 0)\n";
  std::string base = into_input ? "%x" : "%0";
  for (int i = 0; i < 50; ++i) {
    text += fmt::format("  %{0}: f32[64,256] = slice_scatter({1}, %a, 0, {0}, {2})\n", i + 1, base,
                        i + 2);
    base = fmt::format("%{}", i + 1);
  }
  if (into_input) text += "  %51: f32[64,256]{256,1} = copy_(%x, %50)\n";
  return text + (into_input ? "  return %51 in %x\n}\n" : "  return %50\n}\n");
}

TEST(Update, AChainOnATemporaryWritesOnlyWhatChanges) {
  const RunResult run = expect_text_as_interpreted(chain(false));
  EXPECT_EQ(run.report.launches, 51U);
  // The running sum reads and writes all; each update reads the row that it writes.
  EXPECT_EQ(run.report.bytes_moved, (2 * 64 + 50 * 2) * 256 * 4);
}

TEST(Update, AChainThatEndsInItsInputCopiesNothing) {
  const RunResult run = expect_text_as_interpreted(chain(true));
  EXPECT_EQ(run.report.launches, 50U);
  EXPECT_EQ(run.report.bytes_moved, 50 * 2 * 256 * 4);
}

TEST(Update, AnInputThatIsReadAgainKeepsItsOldValueUntilThen) {
  const RunResult run = expect_text_as_interpreted(R"(
graph @later(%x: f32[8,16], %a: f32[2,16]) -> f32[8,16], f32[8,16] {
  %0: f32[8,16] = slice_scatter(%x, %a, 0, 2, 4)
  %1: f32[8,16] = exp(%x)
  %2: f32[8,16]{16,1} = copy_(%x, %0)
  %3: f32[8,16] = slice_scatter(%2, %a, 0, 4, 6)
  return %1, %3
})");
  // One kernel: every element is read before it is overwritten.
  EXPECT_EQ(run.report.launches, 1U);
}

TEST(Update, NewElementsMayBeMadeOfOldOnes) {
  (void)expect_text_as_interpreted(R"(
graph @shift(%x: f32[8,16]) -> f32[8,16] {
  %0: f32[7,16] = slice(%x, 0, 0, 7)
  %1: f32[8,16] = slice_scatter(%x, %0, 0, 1, 8)
  %2: f32[8,16]{16,1} = copy_(%x, %1)
  return %2
})");
}

TEST(Update, IndicesThatRepeatKeepTheLastValue) {
  (void)expect_text_as_interpreted(R"(
graph @put(%x: f32[4,8], %i: i64[40], %v: f32[40,8]) -> f32[4,8] {
  %0: f32[4,8] = index_put(%x, [%i], %v)
  return %0
})");
  (void)expect_text_as_interpreted(R"(
graph @put(%x: f32[4], %i: i64[40], %v: f32[40]) -> f32[4] {
  %0: f32[4] = index_put(%x, [%i], %v)
  return %0
})");
}

TEST(Update, SumsOfEqualIndices) {
  (void)expect_text_as_interpreted(R"(
graph @add(%x: f32[4], %i: i64[40], %v: f32[40]) -> f32[4] {
  %0: f32[4] = index_put(%x, [%i], %v, true)
  return %0
})");
  (void)expect_text_as_interpreted(R"(
graph @add(%x: f32[4,100], %i: i64[33], %v: f32[33,100]) -> f32[4,100] {
  %0: f32[4,100] = index_add(%x, 0, %i, %v)
  return %0
})");
  (void)expect_text_as_interpreted(R"(
graph @same(%x: f32[4,20], %v: f32[33,20]) -> f32[4,20] {
  %i: i64[33] = full([33], 2)
  %0: f32[4,20] = index_add(%x, 0, %i, %v)
  return %0
})");
}

}  // namespace
}  // namespace inkle::driver
