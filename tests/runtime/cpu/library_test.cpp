// Library calls against plain loops in double precision, over layouts, batches and post-ops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "runtime/cpu/magnitudes.h"
#include "runtime/cpu/plan_builder.h"
#include "runtime/cpu/post_ops.h"

namespace inkle::runtime::cpu {
namespace {

using abi::PostOpKind;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Tensor {
  const float* data;
  Shape sizes, strides;
  [[nodiscard]] std::int64_t offset(const Shape& index) const {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < index.size(); ++d) {
      if (sizes[d] != 1) offset += index[d] * strides[d];
    }
    return offset;
  }
  [[nodiscard]] double at(const Shape& index) const { return data[offset(index)]; }
};

// Sum of products along one dimension of each.
double dot(const Tensor& a, const Shape& a_index, std::size_t a_dim, const Tensor& b,
           const Shape& b_index, std::size_t b_dim, std::int64_t count) {
  const float* pa = a.data + a.offset(a_index);
  const float* pb = b.data + b.offset(b_index);
  double sum = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    sum += static_cast<double>(pa[k * a.strides[a_dim]]) * pb[k * b.strides[b_dim]];
  }
  return sum;
}

bool advance(Shape& index, const Shape& sizes) {
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (++index[d] < sizes[d]) return true;
    index[d] = 0;
  }
  return false;
}

// Strides of sizes with the dimensions in `order`, slowest first.
Shape ordered(const Shape& sizes, const std::vector<std::size_t>& order) {
  Shape strides(sizes.size());
  std::int64_t step = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step *= sizes[order[i]];
  }
  return strides;
}

struct PostOpCase {
  PostOpKind kind;
  double alpha = 0;
  double beta = 0;
  Shape sizes, strides;  // of the operand as laid out in memory; size 1: broadcast
};

struct MatmulCase {
  Shape a, b, c;  // sizes
  Shape a_strides, b_strides, c_strides;
  bool bias = false;
  bool weight = false;
  std::vector<PostOpCase> post_ops = {};
};

void add_post_ops(PlanBuilder& b, const std::vector<PostOpCase>& cases, const Shape& result,
                  Arguments& a, std::vector<abi::PostOp>& post_ops, std::vector<Tensor>& operands) {
  for (const PostOpCase& p : cases) {
    abi::PostOp op{.kind = p.kind, .alpha = p.alpha, .beta = p.beta, .operand = {}};
    if (!p.sizes.empty()) {
      const auto buffer = b.argument("p", p.sizes, p.strides);
      Shape strides = p.strides;
      for (std::size_t d = 0; d < result.size(); ++d) {
        if (p.sizes[d] != result[d]) strides[d] = 0;
      }
      op.operand = b.operand(buffer, result, strides);
      operands.push_back({a.random(p.sizes, p.strides), p.sizes, p.strides});
    }
    post_ops.push_back(std::move(op));
  }
}

double with_post_ops(double x, const std::vector<PostOpCase>& cases,
                     const std::vector<Tensor>& operands, const Shape& index) {
  std::size_t operand = 0;
  for (const PostOpCase& p : cases) {
    const double other = p.sizes.empty() ? 0 : operands[operand++].at(index);
    x = apply({.kind = p.kind, .alpha = p.alpha, .beta = p.beta, .operand = {}},
              static_cast<float>(x), static_cast<float>(other));
  }
  return x;
}

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

struct ConvolutionCase {
  Shape x, w, y;
  bool channels_last = false;
  Shape stride, padding, dilation;
  std::int64_t groups = 1;
  bool bias = true;
  bool weight = true;
  bool transposed = false;
  Shape output_padding = {};
  std::vector<PostOpCase> post_ops = {};
};

std::vector<std::size_t> layout(std::size_t rank, bool channels_last) {
  std::vector<std::size_t> order = {0};
  if (!channels_last) order.push_back(1);
  for (std::size_t d = 2; d < rank; ++d) order.push_back(d);
  if (channels_last) order.push_back(1);
  return order;
}

double convolve_at(const ConvolutionCase& c, const Tensor& x, const Tensor& w, const Shape& at) {
  const std::size_t rank = c.x.size();
  double sum = 0;
  const std::int64_t channels = c.x[1] / c.groups;
  const std::int64_t outputs = c.y[1] / c.groups;
  const std::int64_t group = at[1] / outputs;
  Shape kernel(c.w.begin() + 2, c.w.end());
  Shape k(kernel.size(), 0);
  do {
    Shape ix = at;
    bool inside = true;
    for (std::size_t d = 0; d + 2 < rank; ++d) {
      if (c.transposed) {
        const std::int64_t scaled = at[d + 2] + c.padding[d] - k[d] * c.dilation[d];
        inside &= scaled % c.stride[d] == 0;
        ix[d + 2] = scaled / c.stride[d];
        inside &= scaled >= 0;
      } else {
        ix[d + 2] = at[d + 2] * c.stride[d] + k[d] * c.dilation[d] - c.padding[d];
      }
      inside &= ix[d + 2] >= 0 && ix[d + 2] < c.x[d + 2];
    }
    if (!inside) continue;
    ix[1] = group * channels;
    Shape iw = c.transposed ? Shape{ix[1], at[1] % outputs} : Shape{at[1], 0};
    iw.insert(iw.end(), k.begin(), k.end());
    sum += dot(x, ix, 1, w, iw, c.transposed ? 0 : 1, channels);
  } while (advance(k, kernel));
  return sum;
}

void check(const ConvolutionCase& c) {
  PlanBuilder b;
  Arguments args;
  const auto order = layout(c.x.size(), c.channels_last);
  const Shape x_strides = ordered(c.x, order), y_strides = ordered(c.y, order);
  const Tensor x{args.random(c.x, x_strides), c.x, x_strides};
  const Tensor w{args.random(c.w), c.w, dense_strides(c.w)};
  abi::ConvolutionCall call{.x = b.operand(b.argument("x", c.x, x_strides)),
                            .w = b.operand(b.argument("w", c.w, {}, DType::f32, c.weight))};
  Tensor bias{nullptr, {c.y[1]}, {1}};
  if (c.bias) {
    call.has_bias = true;
    call.bias = b.operand(b.argument("bias", bias.sizes));
    bias.data = args.random(bias.sizes);
  }
  std::vector<Tensor> operands;
  add_post_ops(b, c.post_ops, c.y, args, call.post_ops, operands);
  call.y = b.operand(b.output("y", c.y, y_strides));
  call.stride = c.stride;
  call.padding = c.padding;
  call.dilation = c.dilation;
  call.output_padding = c.output_padding;
  call.groups = c.groups;
  call.transposed = c.transposed;
  call.w_is_weight = c.weight;
  b.call(call);
  Executable e(b.done());
  SCOPED_TRACE(e.implementation(0));
  for (int repeat = 0; repeat < 2; ++repeat) {
    HeapHost host;
    e.run({.tensors = args.views, .host = &host});
    const Tensor y{host.floats(0), c.y, y_strides};
    Shape index(c.y.size(), 0);
    do {
      const double sum = convolve_at(c, x, w, index) + (c.bias ? bias.data[index[1]] : 0);
      ASSERT_NEAR(y.at(index), with_post_ops(sum, c.post_ops, operands, index), 1e-4)
          << testing::PrintToString(index);
    } while (advance(index, c.y));
  }
}

TEST(Convolution, Layouts) {
  for (const bool last : {false, true}) {
    SCOPED_TRACE(last);
    check({{2, 16, 9, 9}, {32, 16, 1, 1}, {2, 32, 9, 9}, last, {1, 1}, {0, 0}, {1, 1}});
    check({{2, 16, 9, 9}, {32, 16, 1, 1}, {2, 32, 5, 5}, last, {2, 2}, {0, 0}, {1, 1}});
    check({{1, 3, 19, 17}, {16, 3, 7, 7}, {1, 16, 10, 9}, last, {2, 2}, {3, 3}, {1, 1}});
    check(
        {{1, 16, 12, 10}, {24, 16, 3, 3}, {1, 24, 12, 10}, last, {1, 1}, {1, 1}, {1, 1}, 1, false});
    check({{1, 16, 12, 10}, {24, 16, 3, 3}, {1, 24, 8, 6}, last, {1, 1}, {0, 0}, {2, 2}});
    check({{2, 24, 11, 11}, {24, 1, 5, 5}, {2, 24, 6, 6}, last, {2, 2}, {2, 2}, {1, 1}, 24});
    check({{2, 24, 8, 8}, {32, 6, 3, 3}, {2, 32, 8, 8}, last, {1, 1}, {1, 1}, {1, 1}, 4});
    check(
        {{1, 17, 8, 8}, {9, 17, 3, 3}, {1, 9, 8, 8}, last, {1, 1}, {1, 1}, {1, 1}, 1, true, false});
    check({{1, 1, 8, 8}, {4, 1, 3, 3}, {1, 4, 6, 6}, last, {1, 1}, {0, 0}, {1, 1}});
    check({{3, 8, 1, 1}, {5, 8, 1, 1}, {3, 5, 1, 1}, last, {1, 1}, {0, 0}, {1, 1}});
    check({{2, 8, 30}, {12, 8, 3}, {2, 12, 15}, last, {2}, {1}, {1}});
    check(
        {{1, 4, 6, 7, 8}, {8, 4, 3, 3, 3}, {1, 8, 6, 7, 8}, last, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}});
    // rows that no window reaches
    check({{1, 8, 10, 10}, {8, 8, 3, 3}, {1, 8, 3, 3}, last, {3, 3}, {0, 0}, {1, 1}});
  }
}

TEST(Convolution, Transposed) {
  for (const bool last : {false, true}) {
    SCOPED_TRACE(last);
    check({{2, 8, 5, 5},
           {8, 6, 3, 3},
           {2, 6, 10, 10},
           last,
           {2, 2},
           {1, 1},
           {1, 1},
           1,
           true,
           true,
           true,
           {1, 1}});
    check({{1, 8, 5, 6},
           {8, 6, 2, 2},
           {1, 6, 10, 12},
           last,
           {2, 2},
           {0, 0},
           {1, 1},
           1,
           true,
           true,
           true,
           {0, 0}});
    check({{1, 8, 5, 5},
           {8, 3, 3, 3},
           {1, 6, 9, 9},
           last,
           {1, 1},
           {0, 0},
           {2, 2},
           2,
           false,
           true,
           true,
           {0, 0}});
  }
}

TEST(Convolution, PostOps) {
  const Shape y = {2, 32, 9, 9};
  for (const bool last : {false, true}) {
    SCOPED_TRACE(last);
    const auto order = layout(4, last);
    for (const std::vector<PostOpCase>& post_ops :
         {std::vector<PostOpCase>{{PostOpKind::relu}},
          {{PostOpKind::hardswish}},
          {{PostOpKind::clip, 0, 6}},
          {{PostOpKind::mul, 0, 0, {1, 32, 1, 1}, {32, 1, 1, 1}},
           {PostOpKind::add, 0, 0, {1, 32, 1, 1}, {32, 1, 1, 1}},
           {PostOpKind::relu}},
          {{PostOpKind::add, 0, 0, y, ordered(y, order)}, {PostOpKind::relu}},
          {{PostOpKind::add, 0, 0, y, ordered(y, layout(4, !last))}, {PostOpKind::relu}},
          {{PostOpKind::mul, 0, 0, {2, 32, 1, 1}, {32, 1, 1, 1}}}}) {
      check({{2, 16, 9, 9},
             {32, 16, 3, 3},
             y,
             last,
             {1, 1},
             {1, 1},
             {1, 1},
             1,
             true,
             true,
             false,
             {},
             post_ops});
      check({{2, 16, 9, 9},
             {32, 16, 1, 1},
             y,
             last,
             {1, 1},
             {0, 0},
             {1, 1},
             1,
             true,
             true,
             false,
             {},
             post_ops});
      check({{2, 32, 9, 9},
             {32, 1, 3, 3},
             y,
             last,
             {1, 1},
             {1, 1},
             {1, 1},
             32,
             true,
             true,
             false,
             {},
             post_ops});
    }
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

// One row of special values through every kind that oneDNN does: as plain loops do them.
TEST(PostOps, SpecialValuesAsEager) {
  const std::vector<float> values = {kNan,  kInfinity, -kInfinity, 0.0F,  -0.0F, 3e38F, -3e38F,
                                     88.0F, -87.0F,    1e-30F,     -7.0F, 2.5F,  -0.3F, 20.0F};
  const auto rows = static_cast<std::int64_t>(values.size());
  const std::vector<PostOpCase> kinds = {{PostOpKind::relu},
                                         {PostOpKind::gelu_erf},
                                         {PostOpKind::gelu_tanh},
                                         {PostOpKind::tanh},
                                         {PostOpKind::logistic},
                                         {PostOpKind::swish, 1},
                                         {PostOpKind::hardswish},
                                         {PostOpKind::hardsigmoid},
                                         {PostOpKind::elu, 1},
                                         {PostOpKind::leaky_relu, 0.01},
                                         {PostOpKind::leaky_relu, 0},
                                         {PostOpKind::clip, -1, 1},
                                         {PostOpKind::linear, 2, 1},
                                         {PostOpKind::abs},
                                         {PostOpKind::square},
                                         {PostOpKind::sqrt},
                                         {PostOpKind::exp}};
  for (const PostOpCase& kind : kinds) {
    for (const std::int64_t columns : {16, 23}) {
      PlanBuilder b;
      Arguments args;
      abi::MatmulCall call;
      call.a = b.operand(b.argument("a", {rows, 1}));
      call.b = b.operand(b.argument("b", {1, columns}));
      call.c = b.operand(b.output("c", {rows, columns}));
      call.post_ops = {{.kind = kind.kind, .alpha = kind.alpha, .beta = kind.beta, .operand = {}}};
      b.call(call);
      Executable e(b.done());
      std::copy(values.begin(), values.end(), args.add({rows, 1}));
      std::fill_n(args.add({1, columns}), columns, 1.0F);
      HeapHost host;
      e.run({.tensors = args.views, .host = &host});
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        const float x = values[static_cast<std::size_t>(i / columns)];
        const float expected =
            apply({.kind = kind.kind, .alpha = kind.alpha, .beta = kind.beta, .operand = {}}, x, 0);
        const float got = host.floats(0)[i];
        // oneDNN multiplies by (x + 3) / 6 and does not overflow where eager's x * 6 does.
        if (kind.kind == PostOpKind::hardswish && x > 5e37F && x < kInfinity) continue;
        SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind.kind) << " of " << x);
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(got)) << got;
        } else if (std::isinf(expected)) {
          ASSERT_EQ(got, expected);
        } else {
          ASSERT_NEAR(got, expected, 2e-6 * (1 + std::fabs(expected)));
        }
      }
    }
  }
}

// relu in its quick form where all is finite, in its slow one where NaN may come up: within a sum,
// after layers whose bounds have grown, and from other post-ops' operands.
TEST(PostOps, ReluKeepsNanWhereverItComesFrom) {
  constexpr std::int64_t kSize = 16;
  constexpr int kLayers = 40;
  for (const bool weight : {false, true}) {
    PlanBuilder b;
    const auto x = b.argument("x", {kSize, kSize});
    const auto w = b.argument("w", {kSize, kSize}, {}, DType::f32, weight);
    const auto extra = b.argument("extra", {kSize, kSize});
    abi::PlanBuffer from = x;
    for (std::uint32_t i = 0; i < kLayers; ++i) {
      const auto to =
          i + 1 < kLayers ? b.arena("t", {kSize, kSize}, i, i + 1) : b.output("y", {kSize, kSize});
      abi::MatmulCall call;
      call.a = b.operand(from);
      call.b = b.operand(w);
      call.c = b.operand(to);
      call.b_is_weight = weight;
      call.post_ops = {{.kind = PostOpKind::add, .operand = b.operand(extra)},
                       {.kind = PostOpKind::relu, .operand = {}}};
      b.call(call);
      from = to;
    }
    Executable e(b.done());
    const auto last = [&](float x0, float w0, float extra0) {
      Arguments a;
      float* px = a.add({kSize, kSize});
      float* pw = a.add({kSize, kSize});
      float* pe = a.add({kSize, kSize});
      for (std::int64_t i = 0; i < kSize * kSize; ++i) {
        const bool diagonal = i / kSize == i % kSize;
        px[i] = x0;
        pw[i] = diagonal ? w0 : 0.0F;
        pe[i] = extra0;
      }
      pw[1] = -w0;  // column 1: x1 - x0
      HeapHost host;
      e.run({.tensors = a.views, .host = &host});
      return std::vector<float>(host.floats(0), host.floats(0) + 3);
    };
    EXPECT_EQ(last(3, 1, 0), (std::vector<float>{3, 0, 3}));
    EXPECT_EQ(last(-3, 1, 0), (std::vector<float>{0, 0, 0}));
    EXPECT_EQ(last(3, 1, 1)[0], 3 + kLayers);
    // inf, inf - inf, and from the next layer on inf * 0
    const auto overflow = last(3e38F, 4, 0);
    EXPECT_TRUE(std::isnan(overflow[0]));
    EXPECT_TRUE(std::isnan(overflow[1]));
    const auto late = last(1, 16, 0);  // overflows far down
    EXPECT_TRUE(std::isnan(late[0]));
    EXPECT_TRUE(std::isnan(late[1]));
    EXPECT_TRUE(std::isnan(last(1, 1, kNan)[0]));
    EXPECT_EQ(last(1, 1, -kInfinity)[0], 0);
    EXPECT_TRUE(std::isnan(last(kNan, 1, 0)[0]));
  }
}

TEST(Magnitudes, SeeEveryElement) {
  std::vector<float> x(200000, 0.5F);
  for (const std::size_t at : {0UL, 1UL, 63UL, 64UL, 40000UL, 199990UL, 199999UL}) {
    for (const std::size_t count : {at + 1, x.size()}) {
      const auto bytes = static_cast<std::int64_t>(4 * count);
      for (const float value : {-7.0F, 3e38F}) {
        x[at] = value;
        EXPECT_EQ(largest_magnitude(x.data(), bytes), std::fabs(value));
      }
      for (const float value : {kNan, -kNan, -kInfinity}) {
        x[at] = value;
        EXPECT_EQ(largest_magnitude(x.data(), bytes), kInfinity);
      }
      x[at] = 0.5F;
    }
  }
  EXPECT_EQ(largest_magnitude(x.data(), 0), 0);
}

// Weights that change in place, other weights at another address, and back.
TEST(Weights, ChangesAreNoticed) {
  PlanBuilder b;
  abi::MatmulCall call;
  call.a = b.operand(b.argument("a", {16, 64}));
  const auto w = b.argument("w", {48, 64}, {}, DType::f32, true);
  call.b = b.operand(w, {64, 48}, {1, 64});
  call.c = b.operand(b.output("c", {16, 48}));
  call.b_is_weight = true;
  b.call(call);
  Executable e(b.done());
  Arguments args;
  std::fill_n(args.add({16, 64}), 16 * 64, 1.0F);
  float* first = args.add({48, 64});
  Arguments other;
  float* second = other.add({48, 64});
  std::fill_n(first, 48 * 64, 1.0F);
  std::fill_n(second, 48 * 64, 2.0F);
  std::vector<std::int64_t> versions = {0, 0};
  const auto result = [&](std::int64_t at) {
    HeapHost host;
    e.run({.tensors = args.views, .versions = versions, .host = &host});
    return host.floats(0)[at];
  };
  EXPECT_EQ(result(0), 64);
  const std::int64_t packed = e.memory().packed_weight_bytes;
  EXPECT_GE(packed, 48 * 64 * 4);
  std::fill_n(first, 48 * 64, 3.0F);  // in place, without a version
  EXPECT_EQ(result(0), 192);
  EXPECT_EQ(e.memory().packed_weight_bytes, packed);
  args.views[1] = other.views[0];
  EXPECT_EQ(result(0), 128);
  EXPECT_EQ(e.memory().packed_weight_bytes, 2 * packed);
  second[64 * 5 + 37] = 100;  // one element: the version tells
  versions[1] = 1;
  EXPECT_EQ(result(5), 128 + 98);
}

TEST(Weights, TheCacheIsBounded) {
  PlanBuilder b;
  abi::MatmulCall call;
  call.a = b.operand(b.argument("a", {16, 64}));
  call.b = b.operand(b.argument("w", {64, 64}, {}, DType::f32, true));
  call.c = b.operand(b.output("c", {16, 64}));
  call.b_is_weight = true;
  b.call(call);
  Executable e(b.done(), {.packed_weights_limit = 40000});  // two copies of 16 KiB
  Arguments args;
  std::fill_n(args.add({16, 64}), 16 * 64, 1.0F);
  args.views.emplace_back();
  std::vector<Arguments> sets(5);
  for (std::size_t s = 0; s < 5; ++s) {
    std::fill_n(sets[s].add({64, 64}), 64 * 64, static_cast<float>(s));
  }
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (std::size_t s = 0; s < 5; ++s) {
      args.views[1] = sets[s].views[0];
      HeapHost host;
      e.run({.tensors = args.views, .host = &host});
      ASSERT_EQ(host.floats(0)[9], static_cast<float>(64 * s));
      ASSERT_LE(e.memory().packed_weight_bytes, 40000);
    }
  }
}

TEST(Library, SaysWhatItCannotDo) {
  PlanBuilder b;
  const auto call_of = [&](DType dtype, PostOpKind kind) {
    abi::MatmulCall call;
    call.a = b.operand(b.argument("a", {8, 8}, {}, dtype));
    call.b = call.c = call.a;
    call.post_ops = {{.kind = kind, .operand = call.a}};
    return call;
  };
  EXPECT_TRUE(can_run(call_of(DType::f32, PostOpKind::relu)));
  EXPECT_FALSE(can_run(call_of(DType::f64, PostOpKind::relu)));
  EXPECT_FALSE(can_run(call_of(DType::f16, PostOpKind::relu)));
  EXPECT_EQ(can_run(call_of(DType::bf16, PostOpKind::relu)), has_bf16());
  EXPECT_FALSE(can_run(call_of(DType::f32, PostOpKind::clip)));
  abi::MatmulCall call = call_of(DType::f32, PostOpKind::add);
  Executable slots(b.done());
  EXPECT_EQ(why_not(call, SizeProgram(b.plan).constant_slots()), "");
  call.post_ops[0].operand = b.operand(0, {8, 8}, {1, 8});
  EXPECT_EQ(why_not(call, SizeProgram(b.plan).constant_slots()), "layout of a post-op's operand");
}

}  // namespace
}  // namespace inkle::runtime::cpu
