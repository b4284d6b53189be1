// From a plan's matrix product to what cuBLASLt is asked for.
#include "runtime/cuda/matmul.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "base/error.h"

namespace inkle::runtime::cuda {
namespace {

using abi::DType;

// A call whose slots are made on demand.
struct Product {
  abi::MatmulCall call;
  std::vector<std::int64_t> slots = {0};

  abi::Operand operand(std::initializer_list<std::int64_t> sizes,
                       std::initializer_list<std::int64_t> strides, DType dtype = DType::bf16) {
    abi::Operand o{.dtype = dtype};
    for (const std::int64_t s : sizes) o.sizes.push_back(slot(s));
    for (const std::int64_t s : strides) o.strides.push_back(slot(s));
    return o;
  }
  abi::Slot slot(std::int64_t value) {
    slots.push_back(value);
    return static_cast<abi::Slot>(slots.size() - 1);
  }
  GemmPlan plan() const { return plan_gemm(call, slots); }
};

TEST(MatmulTest, WeightsAreReadInPlace) {
  Product p;
  p.call.a = p.operand({64, 32}, {32, 1});
  p.call.b = p.operand({32, 16}, {1, 32});
  p.call.c = p.operand({64, 16}, {16, 1});
  const GemmPlan plan = p.plan();
  EXPECT_FALSE(plan.swapped);
  EXPECT_EQ(plan.shape.m, 64);
  EXPECT_EQ(plan.shape.n, 16);
  EXPECT_EQ(plan.shape.k, 32);
  EXPECT_EQ(plan.shape.b_depth, 1);
  EXPECT_EQ(plan.shape.b_column, 32);
  EXPECT_TRUE(plan.loops.empty());
}

TEST(MatmulTest, BatchesThatShareWeightsAreRows) {
  Product p;
  p.call.a = p.operand({4, 64, 32}, {2048, 32, 1});
  p.call.b = p.operand({4, 32, 16}, {0, 1, 32});
  p.call.c = p.operand({4, 64, 16}, {1024, 16, 1});
  const GemmPlan plan = p.plan();
  EXPECT_EQ(plan.shape.m, 256);
  EXPECT_EQ(plan.shape.batch, 1);
}

TEST(MatmulTest, HeadsOfAttentionAreABatchAndALoop) {
  Product p;  // [2, 4, 8, 16] out of [2, 8, 4, 16]
  p.call.a = p.operand({2, 4, 8, 16}, {512, 16, 64, 1});
  p.call.b = p.operand({2, 4, 16, 8}, {512, 16, 1, 64});
  p.call.c = p.operand({2, 4, 8, 8}, {256, 64, 8, 1});
  const GemmPlan plan = p.plan();
  EXPECT_EQ(plan.shape.batch, 4);
  ASSERT_EQ(plan.loops.size(), 1U);
  EXPECT_EQ(plan.loops[0].extent, 2);
  EXPECT_EQ(plan.loops[0].a, 512 * 2);
  EXPECT_EQ(plan.loops[0].d, 256 * 2);
}

TEST(MatmulTest, AResultByColumnsSwapsTheOperands) {
  Product p;
  p.call.a = p.operand({64, 32}, {32, 1});
  p.call.b = p.operand({32, 16}, {16, 1});
  p.call.c = p.operand({64, 16}, {1, 64});
  const GemmPlan plan = p.plan();
  EXPECT_TRUE(plan.swapped);
  EXPECT_EQ(plan.shape.m, 16);
  EXPECT_EQ(plan.shape.n, 64);
  EXPECT_EQ(plan.shape.d_row, 64);
}

TEST(MatmulTest, WhatHasNoUnitStrideIsRefused) {
  Product p;
  p.call.a = p.operand({64, 32}, {64, 2});
  p.call.b = p.operand({32, 16}, {16, 1});
  p.call.c = p.operand({64, 16}, {16, 1});
  EXPECT_THROW(p.plan(), Unsupported);
}

TEST(MatmulTest, OddWideRowsAreMadeInParts) {
  Product p;
  p.call.a = p.operand({8192, 768}, {768, 1});
  p.call.b = p.operand({768, 50257}, {1, 768});
  p.call.c = p.operand({8192, 50257}, {50257, 1});
  const GemmPlan plan = p.plan();
  EXPECT_EQ(padded_row_bytes(plan), 50264 * 2);
  EXPECT_EQ(padded_rows(plan) % 128, 0);
  EXPECT_GT(padded_rows(plan), 0);
  EXPECT_LE(padded_rows(plan) * padded_row_bytes(plan), 40 << 20);

  Product even;
  even.call.a = even.operand({8192, 768}, {768, 1});
  even.call.b = even.operand({768, 50256}, {1, 768});
  even.call.c = even.operand({8192, 50256}, {50256, 1});
  EXPECT_EQ(padded_rows(even.plan()), 0);
}

TEST(MatmulTest, EpiloguesOfTheLibrary) {
  abi::MatmulCall call;
  call.a.dtype = call.b.dtype = call.c.dtype = DType::bf16;
  EXPECT_EQ(why_not(call), "");
  abi::PostOp relu, add, erf;
  relu.kind = abi::PostOpKind::relu;
  add.kind = abi::PostOpKind::add;
  add.operand.dtype = DType::bf16;
  erf.kind = abi::PostOpKind::gelu_erf;
  call.post_ops = {add, relu};
  EXPECT_EQ(why_not(call), "");
  call.post_ops = {relu, add};
  EXPECT_EQ(why_not(call), "order of the post-ops");
  call.post_ops = {erf};
  EXPECT_EQ(why_not(call), "gelu_erf");
  call.post_ops.clear();
  call.has_bias = true;
  call.bias.dtype = DType::f32;
  EXPECT_EQ(why_not(call), "type of the bias");
  call.has_bias = false;
  call.b.dtype = DType::f32;
  EXPECT_EQ(why_not(call), "types of the operands");
}

}  // namespace
}  // namespace inkle::runtime::cuda
