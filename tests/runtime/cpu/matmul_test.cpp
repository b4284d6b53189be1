// Matrix products against plain loops, over layouts, batches and post-ops.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "runtime/cpu/reference.h"

namespace inkle::runtime::cpu {
namespace {

using abi::PostOpKind;

struct MatmulCase {
  Shape a, b, c;  // sizes
  Shape a_strides, b_strides, c_strides;
  bool bias = false;
  bool weight = false;
  std::vector<PostOpCase> post_ops = {};
};

// Runs the case twice (the second time with packed weights at hand) and compares.
void check(const MatmulCase& m) {
  PlanBuilder b;
  Arguments args;
  const auto pa = b.argument("a", m.a, m.a_strides);
  const auto pb = b.argument("b", m.b, m.b_strides, DType::f32, m.weight);
  const Tensor ta{args.random(m.a, m.a_strides), m.a, m.a_strides};
  const Tensor tb{args.random(m.b, m.b_strides), m.b, m.b_strides};
  const std::size_t rank = m.c.size();
  const std::int64_t depth = m.a[rank - 1];
  Shape a_sizes = m.c, b_sizes = m.c, a_strides = m.a_strides, b_strides = m.b_strides;
  a_sizes[rank - 1] = depth;
  b_sizes[rank - 2] = depth;
  for (std::size_t d = 0; d + 2 < rank; ++d) {
    if (m.a[d] == 1) a_strides[d] = 0;
    if (m.b[d] == 1) b_strides[d] = 0;
  }
  abi::MatmulCall call;
  Tensor bias{nullptr, {m.c[rank - 1]}, {1}};
  if (m.bias) {
    call.has_bias = true;
    call.bias = b.operand(b.argument("bias", bias.sizes));
    bias.data = args.random(bias.sizes);
  }
  std::vector<Tensor> operands;
  add_post_ops(b, m.post_ops, m.c, args, call.post_ops, operands);
  const auto pc = b.output("c", m.c, m.c_strides);
  call.a = b.operand(pa, a_sizes, a_strides);
  call.b = b.operand(pb, b_sizes, b_strides);
  call.c = b.operand(pc);
  call.b_is_weight = m.weight;
  b.call(call);
  Executable e(b.done());
  SCOPED_TRACE(e.implementation(0));
  for (int repeat = 0; repeat < 2; ++repeat) {
    HeapHost host;
    e.run({.tensors = args.views, .host = &host});
    const Tensor tc{host.floats(0), m.c, m.c_strides};
    Shape index(rank, 0);
    bool more = true;
    for (const std::int64_t s : m.c) more &= s != 0;
    for (; more; more = advance(index, m.c)) {
      double sum = m.bias ? bias.data[index[rank - 1]] : 0;
      Shape ia = index, ib = index;
      ia[rank - 1] = 0;
      ib[rank - 2] = 0;
      sum += dot(ta, ia, rank - 1, tb, ib, rank - 2, depth);
      const double expected = with_post_ops(sum, m.post_ops, operands, index);
      ASSERT_NEAR(tc.at(index), expected, 1e-5 * (1 + std::sqrt(static_cast<double>(depth))))
          << testing::PrintToString(index);
    }
  }
}

TEST(Matmul, Layouts) {
  for (const std::int64_t rows : {1, 7, 40, 300}) {
    for (const bool weight : {false, true}) {
      SCOPED_TRACE(rows);
      check({{rows, 48}, {48, 65}, {rows, 65}, {48, 1}, {65, 1}, {65, 1}, true, weight});
      check({{rows, 48}, {48, 65}, {rows, 65}, {48, 1}, {1, 48}, {65, 1}, true, weight});
      check({{rows, 48}, {48, 65}, {rows, 65}, {1, rows}, {1, 48}, {65, 1}, false, weight});
      check({{rows, 48}, {48, 65}, {rows, 65}, {100, 1}, {1, 60}, {70, 1}, true, weight});
      check({{rows, 48}, {48, 1}, {rows, 1}, {48, 1}, {1, 48}, {1, 1}, true, weight});
      check({{rows, 1}, {1, 33}, {rows, 33}, {1, 1}, {1, 1}, {33, 1}, true, weight});
      check({{rows, 48}, {48, 64}, {rows, 64}, {48, 1}, {64, 1}, {1, rows}, false, weight});
      check({{rows, 16}, {16, 8}, {rows, 8}, {32, 2}, {24, 3}, {8, 1}, false, weight});
    }
  }
}

TEST(Matmul, EmptyOperands) {
  check({{0, 4}, {4, 3}, {0, 3}, {4, 1}, {3, 1}, {3, 1}, true});
  check({{5, 4}, {4, 0}, {5, 0}, {4, 1}, {0, 1}, {0, 1}});
  check({{5, 0},
         {0, 3},
         {5, 3},
         {0, 1},
         {3, 1},
         {3, 1},
         true,
         false,
         {{PostOpKind::tanh}, {PostOpKind::add, 0, 0, {5, 3}, {3, 1}}}});
  check({{0, 5, 4}, {0, 4, 3}, {0, 5, 3}, {20, 4, 1}, {12, 3, 1}, {15, 3, 1}});
}

TEST(Matmul, Batches) {
  // [batch, tokens, k] by one weight: rows
  check({{4, 9, 32}, {1, 32, 24}, {4, 9, 24}, {288, 32, 1}, {0, 1, 32}, {216, 24, 1}, true, true});
  // the same with a gap between batches: a loop
  check({{4, 9, 32}, {1, 32, 24}, {4, 9, 24}, {300, 32, 1}, {0, 1, 32}, {216, 24, 1}, true, true});
  check({{6, 9, 32}, {6, 32, 24}, {6, 9, 24}, {288, 32, 1}, {768, 24, 1}, {216, 24, 1}});
  check({{6, 9, 32}, {6, 32, 24}, {6, 9, 24}, {288, 32, 1}, {768, 1, 32}, {216, 24, 1}});
  // heads inside rows: q [b, h, m, d] of [b, m, h, d], k^T likewise, result dense and interleaved
  const Shape q = {2, 3, 17, 16}, kt = {2, 3, 16, 19}, s = {2, 3, 17, 19}, v = {2, 3, 19, 16};
  const Shape q_strides = {17 * 48, 16, 48, 1}, kt_strides = {19 * 48, 16, 1, 48};
  check({q, kt, s, q_strides, kt_strides, dense_strides(s)});
  check({s, v, q, dense_strides(s), {19 * 48, 16, 48, 1}, q_strides});
  // grouped heads: k shared by several
  check(
      {{2, 4, 5, 8}, {2, 1, 8, 6}, {2, 4, 5, 6}, {160, 40, 8, 1}, {48, 0, 6, 1}, {120, 30, 6, 1}});
  check(
      {{1, 4, 5, 8}, {2, 4, 8, 6}, {2, 4, 5, 6}, {0, 40, 8, 1}, {192, 48, 6, 1}, {120, 30, 6, 1}});
}

TEST(Matmul, PostOps) {
  const std::vector<std::vector<PostOpCase>> cases = {
      {{PostOpKind::relu}},
      {{PostOpKind::gelu_erf}},
      {{PostOpKind::gelu_tanh}},
      {{PostOpKind::tanh}, {PostOpKind::linear, 2, 0.5}},
      {{PostOpKind::logistic}},
      {{PostOpKind::swish, 1}},
      {{PostOpKind::hardswish}},
      {{PostOpKind::elu, 0.7}},
      {{PostOpKind::leaky_relu, 0.1}, {PostOpKind::abs}, {PostOpKind::sqrt}, {PostOpKind::square}},
      // kinds that are left to plain loops
      {{PostOpKind::clip, -0.5, 0.5}},
      {{PostOpKind::hardsigmoid}, {PostOpKind::add, 0, 0, {40, 64}, {64, 1}}},
      {{PostOpKind::add, 0, 0, {40, 64}, {64, 1}}, {PostOpKind::clip, 0, 6}},
      {{PostOpKind::linear, 0.1, 0}, {PostOpKind::exp}},
      // operands: whole, of one row, one column, one element, with gaps, transposed
      {{PostOpKind::add, 0, 0, {40, 64}, {64, 1}}},
      {{PostOpKind::mul, 0, 0, {1, 64}, {64, 1}}, {PostOpKind::add, 0, 0, {40, 64}, {64, 1}}},
      {{PostOpKind::mul, 0, 0, {40, 1}, {1, 1}}},
      {{PostOpKind::mul, 0, 0, {1, 1}, {1, 1}}, {PostOpKind::relu}},
      {{PostOpKind::add, 0, 0, {40, 64}, {80, 1}}},
      {{PostOpKind::add, 0, 0, {40, 64}, {1, 40}}},
      {{PostOpKind::mul, 0, 0, {1, 64}, {128, 2}}},
      {{PostOpKind::gelu_erf},
       {PostOpKind::mul, 0, 0, {40, 64}, {64, 1}},
       {PostOpKind::add, 0, 0, {40, 64}, {80, 1}},
       {PostOpKind::tanh}},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    for (const bool weight : {false, true}) {
      check({{40, 32}, {32, 64}, {40, 64}, {32, 1}, {1, 32}, {64, 1}, true, weight, cases[i]});
    }
  }
  // rows of a row: [1, n] results, where whole and one row are the same
  check({{1, 32},
         {32, 64},
         {1, 64},
         {32, 1},
         {1, 32},
         {64, 1},
         true,
         true,
         {{PostOpKind::add, 0, 0, {1, 64}, {64, 1}}}});
  // over batches: whole, and per batch
  const Shape c = {3, 9, 24};
  for (const Shape& operand : {Shape{3, 9, 24}, Shape{3, 1, 24}, Shape{3, 9, 1}, Shape{1, 9, 24},
                               Shape{1, 1, 24}, Shape{3, 1, 1}}) {
    check({{3, 9, 8},
           {3, 8, 24},
           c,
           {72, 8, 1},
           {192, 24, 1},
           {216, 24, 1},
           false,
           false,
           {{PostOpKind::add, 0, 0, operand, dense_strides(operand)}}});
    check({{3, 9, 8},
           {1, 8, 24},
           c,
           {72, 8, 1},
           {0, 24, 1},
           {216, 24, 1},
           true,
           true,
           {{PostOpKind::mul, 0, 0, operand, dense_strides(operand)}}});
  }
}

std::uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}
float from_bf16(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

TEST(Matmul, Bf16) {
  if (!has_bf16()) GTEST_SKIP() << "no bf16 on this machine";
  const std::int64_t rows = 33, depth = 40, columns = 50;
  for (const bool weight : {false, true}) {
    for (const DType result : {DType::bf16, DType::f32}) {
      for (const PostOpKind kind : {PostOpKind::gelu_erf, PostOpKind::clip, PostOpKind::add}) {
        PlanBuilder b;
        Arguments args;
        abi::MatmulCall call;
        call.a = b.operand(b.argument("a", {rows, depth}, {}, DType::bf16));
        call.b = b.operand(b.argument("b", {columns, depth}, {}, DType::bf16, weight),
                           {depth, columns}, {1, depth});
        call.has_bias = true;
        call.bias = b.operand(b.argument("bias", {columns}, {}, DType::bf16));
        call.c = b.operand(b.output("c", {rows, columns}, {}, result));
        call.b_is_weight = weight;
        call.post_ops = {{.kind = kind, .alpha = -1, .beta = 1, .operand = {}}};
        const auto extra = b.argument("extra", {rows, columns}, {}, DType::bf16);
        if (kind == PostOpKind::add) call.post_ops[0].operand = b.operand(extra);
        b.call(call);
        Executable e(b.done());
        SCOPED_TRACE(e.implementation(0));
        std::vector<std::uint16_t*> data;
        std::uint32_t state = 1;
        for (const Shape& sizes :
             {Shape{rows, depth}, {columns, depth}, {columns}, {rows, columns}}) {
          data.push_back(reinterpret_cast<std::uint16_t*>(args.add(sizes, {}, DType::bf16)));
          std::int64_t count = 1;
          for (const std::int64_t s : sizes) count *= s;
          for (std::int64_t i = 0; i < count; ++i) {
            state = state * 1664525U + 1013904223U;
            data.back()[i] = to_bf16(static_cast<float>(state >> 8) / 8388608.0F - 1.0F);
          }
        }
        HeapHost host;
        e.run({.tensors = args.views, .host = &host});
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t j = 0; j < columns; ++j) {
            float sum = from_bf16(data[2][j]);
            for (std::int64_t k = 0; k < depth; ++k) {
              sum += from_bf16(data[0][i * depth + k]) * from_bf16(data[1][j * depth + k]);
            }
            const float expected = apply({.kind = kind, .alpha = -1, .beta = 1, .operand = {}}, sum,
                                         from_bf16(data[3][i * columns + j]));
            const void* out = host.outputs[0].view.data;
            const float got =
                result == DType::f32
                    ? static_cast<const float*>(out)[i * columns + j]
                    : from_bf16(static_cast<const std::uint16_t*>(out)[i * columns + j]);
            const double tolerance = result == DType::f32 ? 2e-5 : 5e-3;
            ASSERT_NEAR(got, expected, tolerance * (1 + std::fabs(expected)));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace inkle::runtime::cpu
