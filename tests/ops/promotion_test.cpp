// Type promotion: the cases where rank or category decides.
#include "ops/promotion.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace inkle::ops {
namespace {

using abi::DType;

DType result(DType a, OperandRank rank_a, DType b, OperandRank rank_b) {
  Promotion promotion;
  promotion.add(a, rank_a);
  promotion.add(b, rank_b);
  return promotion.result();
}

constexpr OperandRank kNumber = OperandRank::number;
constexpr OperandRank kScalar = OperandRank::scalar_tensor;
constexpr OperandRank kTensor = OperandRank::tensor;

TEST(Promotion, PairsOfTensors) {
  EXPECT_EQ(promote(DType::u8, DType::i8), DType::i16);
  EXPECT_EQ(promote(DType::u8, DType::i32), DType::i32);
  EXPECT_EQ(promote(DType::f16, DType::bf16), DType::f32);
  EXPECT_EQ(promote(DType::bf16, DType::i64), DType::bf16);
  EXPECT_EQ(promote(DType::boolean, DType::u8), DType::u8);
}

TEST(Promotion, NumbersOnlyRaiseTheCategory) {
  EXPECT_EQ(result(DType::bf16, kTensor, DType::f32, kNumber), DType::bf16);
  EXPECT_EQ(result(DType::i8, kTensor, DType::i64, kNumber), DType::i8);
  EXPECT_EQ(result(DType::i8, kTensor, DType::f32, kNumber), DType::f32);
  EXPECT_EQ(result(DType::boolean, kTensor, DType::i64, kNumber), DType::i64);
}

TEST(Promotion, ScalarTensorsStandBetween) {
  EXPECT_EQ(result(DType::bf16, kTensor, DType::f64, kScalar), DType::bf16);
  EXPECT_EQ(result(DType::i32, kTensor, DType::f64, kScalar), DType::f64);
  EXPECT_EQ(result(DType::f16, kScalar, DType::f32, kNumber), DType::f16);
}

TEST(Promotion, WhatIsNotComputedIsUnsupported) {
  EXPECT_THROW((void)promote(DType::c64, DType::f32), Unsupported);
}

}  // namespace
}  // namespace inkle::ops
