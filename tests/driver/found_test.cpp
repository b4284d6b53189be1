// Programs that were wrong once, as random ones have found and reduced them.
#include <gtest/gtest.h>

#include "driver/differential.h"

namespace inkle::driver {
namespace {

TEST(Found, OnlyTheLogSumExpOfAttention) {
  expect_text_as_interpreted(R"(
graph @lse(%q: f32[2,3,7,16], %k: f32[2,3,7,16], %v: f32[2,3,7,16]) -> f32[2,3,7] {
  %0: f32[2,3,7,16], %1: f32[2,3,7] =
      _scaled_dot_product_flash_attention_for_cpu(%q, %k, %v, 0.0, true)
  return %1
}
)");
}

TEST(Found, SumsAcrossTheHalvesOfWhatIsReadTwice) {
  expect_text_as_interpreted(R"(
graph @halves(%x: f32[8], %y: f32[8]) -> f32[4], f32[2,4] {
  %0: f32[8] = sigmoid_backward(%x, %y)
  %1: f32[8] = mul(%0, 2)
  %2: f32[8] = add(%0, %1)
  %3: f32[2,4] = view(%2, [2, 4])
  %4: f32[4] = sum_dim(%3, [0])
  %5: f32[8] = sub(%y, %x)
  %6: f32[8] = mul(%5, %5)
  %7: f32[2,4] = view(%6, [2, 4])
  %8: f32[2,4] = _softmax(%7, 0, false)
  return %4, %8
}
)");
}

TEST(Found, ProductOfBatchesWithGaps) {
  expect_text_as_interpreted(R"(
graph @gaps(%x: f32[3,5,7]{41,8,1}, %a: f32[3,5,19]{101,20,1}, %b: f32[3,19,7]{1,21,3})
    -> f32[3,5,7] {
  %0: f32[3,5,7] = baddbmm(%x, %a, %b, 1.0, 0.25)
  return %0
}
)");
}

TEST(Found, ProductOfTwoRepeatedMatrices) {
  expect_text_as_interpreted(R"(
graph @repeated(%x: f32[5,7]) -> f32[2,3,5,4] {
  %0: f32[2,3,5,7] = expand(%x, [2, 3, 5, 7])
  %1: f32[2,3,4,7] = slice(%0, 2, 1, 5)
  %2: f32[2,3,5,4] = einsum("bhqd,bhkd->bhqk", [%0, %1])
  return %2
}
)");
}

TEST(Found, PaddedColumnsOfOneNumber) {
  expect_text_as_interpreted(R"(
graph @columns(%x: f32[3,5,7]) -> f32[2,18,16] {
  %0: f32[] = max(%x)
  %1: f32[2,3,7,6] = expand(%0, [2, 3, 7, 6])
  %2: f32[2,18,16] = im2col(%1, [3, 2], [1, 2], [1, 0], [2, 1])
  return %2
}
)");
}

TEST(Found, HalvesOfWhatIsComputedInDoubles) {
  expect_text_as_interpreted(R"(
graph @halves(%x: f32[]) -> f16[3,5] {
  %0: f32[3,5]{0,0} = expand(%x, [3, 5])
  %1: f32[3,5] = asinh(%0)
  %2: f16[3,5] = _to_copy(%1, f16)
  return %2
}
)");
}

TEST(Found, RepeatedTensorOfNothing) {
  expect_text_as_interpreted(R"(
graph @nothing(%x: f32[]) -> f32[0,4]{0,0}, f32[0,7] {
  %0: f32[0,6]{0,0} = expand(%x, [0, 6])
  %1: f32[0,4]{0,0} = reshape(%0, [0, 4])
  %2: f32[0,7] = reshape(%1, [0, 7])
  %3: f32[0,7] = mish(%2)
  %4: f32[] = sum(%3)
  %5: f32[]{} = copy_(%x, %4)
  return %1, %3
}
)");
}

TEST(Found, DoublesRoundedToHalves) {
  expect_text_as_interpreted(R"(
graph @halves(%x: f64[3,5,37]) -> f16[3,5] {
  %0: f64[3,5] = var(%x, [2], 1.0, false)
  %1: f16[3,5] = _to_copy(%0, f16)
  %2: f16[3,5] = erf(%1)
  return %2
}
)");
}

// Whose exponentials doubles do not hold.
TEST(Found, GradientOfAttentionWithLargeScores) {
  expect_text_as_interpreted(R"(
graph @large(%g: f32[1,2,5,8], %x: f32[1,2,5,8], %k: f32[1,2,5,8], %lse: f32[1,2,5]) -> f32[1,2,5,8] {
  %0: f32[1,2,5,8] = mul(%x, 600.0)
  %1: f32[1,2,5,8], %2: f32[1,2,5,8], %3: f32[1,2,5,8] = _scaled_dot_product_flash_attention_for_cpu_backward(%g, %0, %k, %g, %x, %lse, 0.0, true)
  return %3
}
)");
}

// The mean of nothing is 0, its deviation NaN, in eager too.
TEST(Found, MomentsOfNothing) {
  expect_text_as_interpreted(R"(
graph @nothing(%x: bf16[3,0,7]) -> bf16[3,1,1], bf16[3,1,1] {
  %0: bf16[3,0,7], %1: bf16[3,1,1], %2: bf16[3,1,1] = native_layer_norm(%x, [0, 7], none, none, 1e-12)
  return %1, %2
}
)");
}

// A product over one number, a reduction, reads an input that is overwritten.
TEST(Found, UpdatesComeBehindProductsOfOneNumber) {
  expect_text_as_interpreted(R"(
graph @product(%x: f32[1,1,1], %w: f32[1,1]) -> f64[1,4,1,8] {
  %0: f32[1,1,1] = baddbmm(%x, %x, %x, 1.0, 0.25)
  %1: f32[1,1]{1,1} = reshape(%x, [1, 1])
  %2: f32[1,1] = mm(%w, %1)
  %3: f32[1,1] = mul(%2, 2.5)
  %4: f32[1,4,1,8] = expand(%3, [1, 4, 1, 8])
  %5: f64[1,4,1,8] = _to_copy(%4, f64)
  %6: f32[1,1,1]{1,1,1} = copy_(%x, %0)
  return %5
}
)");
}

TEST(Found, InstanceNormOfNothing) {
  expect_text_as_interpreted(R"(
graph @nothing(%x: f32[3,6,5,0], %w: f32[6]) -> f32[3,6,5,0] {
  %0: f32[3,6,5,0] = instance_norm(%x, %w, %w, none, none, true, 0.1, 1e-05, true)
  return %0
}
)");
}

TEST(Found, ExpandAsThatIsReturned) {
  expect_text_as_interpreted(R"(
graph @repeated(%x: f32[5,1], %y: f32[5,3]) -> f32[3,5]{0,1} {
  %0: f32[5,3] = expand_as(%x, %y)
  %1: f32[3,5] = transpose(%0, 0, 1)
  return %1
}
)");
}

TEST(Found, ExpandAsOfStatedStrides) {
  expect_text_as_interpreted(R"(
graph @dense(%x: f32[1,5], %y: f32[3,5]) -> f32[3,5] {
  %0: f32[3,5] = expand_as(%x, %y)
  return %0
}
)");
}

TEST(Found, NoRepeats) {
  expect_text_as_interpreted(R"(
graph @never(%x: f32[5,3]) -> f32[5,0] {
  %0: f32[5,3] = sigmoid(%x)
  %1: f32[5,0] = repeat_interleave(%0, 0, 1)
  return %1
}
)");
}

TEST(Found, ProductOfAnArgumentThatIsWrittenBeforeItsEpilogue) {
  expect_text_as_interpreted(R"(
graph @written(%x: f32[4,4]) -> f32[4,4] {
  %0: f32[4,4] = mm(%x, %x)
  %1: f32[4,2] = full([4, 2], 1.0)
  %2: f32[4,4] = slice_scatter(%x, %1, 1, 0, 4, 2)
  %3: f32[4,4] = relu(%0)
  %4: f32[4,4] = copy_(%x, %2)
  return %3
}
)");
}

TEST(Found, RangeOfTheLargestIntegers) {
  expect_text_as_interpreted(R"(
graph @range(%n: int) -> i64[7] where n hint 9223372036854775800 {
  %0: i64[7] = arange_start(n, n+7)
  return %0
}
)");
}

}  // namespace
}  // namespace inkle::driver
