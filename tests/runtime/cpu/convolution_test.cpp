// Convolutions against plain loops, over layouts and post-ops.
#include <gtest/gtest.h>

#include "runtime/cpu/reference.h"

namespace inkle::runtime::cpu {
namespace {

using abi::PostOpKind;

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

// dw[o, c, k...] = the sum of x[n, c of the group, p * stride - padding + k * dilation] * g[n, o,
// p].
double weight_gradient_at(const ConvolutionCase& c, const Tensor& x, const Tensor& g,
                          const Shape& at) {
  double sum = 0;
  const std::int64_t group = at[0] / (c.y[1] / c.groups);
  Shape space = c.y;
  space[1] = 1;
  Shape p(space.size(), 0);
  do {
    Shape from = {p[0], group * (c.x[1] / c.groups) + at[1]};
    Shape gradient = p;
    gradient[1] = at[0];
    bool inside = true;
    for (std::size_t d = 2; d < p.size(); ++d) {
      from.push_back(p[d] * c.stride[d - 2] + at[d] * c.dilation[d - 2] - c.padding[d - 2]);
      inside &= from[d] >= 0 && from[d] < c.x[d];
    }
    if (inside) sum += static_cast<double>(x.at(from)) * g.at(gradient);
  } while (advance(p, space));
  return sum;
}

void check_weight_gradient(const ConvolutionCase& c, bool is_result_last = false) {
  PlanBuilder b;
  Arguments args;
  const auto order = layout(c.x.size(), c.channels_last);
  const Shape x_strides = ordered(c.x, order), g_strides = ordered(c.y, order);
  const Shape w_strides = ordered(c.w, layout(c.w.size(), is_result_last));
  const Tensor x{args.random(c.x, x_strides), c.x, x_strides};
  const Tensor g{args.random(c.y, g_strides), c.y, g_strides};
  abi::ConvolutionCall call{.x = b.operand(b.argument("x", c.x, x_strides)),
                            .w = b.operand(b.argument("g", c.y, g_strides)),
                            .y = b.operand(b.output("dw", c.w, w_strides)),
                            .stride = c.stride,
                            .padding = c.padding,
                            .dilation = c.dilation,
                            .groups = c.groups,
                            .weight_gradient = true};
  b.call(call);
  Executable e(b.done());
  SCOPED_TRACE(e.implementation(0));
  for (int repeat = 0; repeat < 2; ++repeat) {
    HeapHost host;
    e.run({.tensors = args.views, .host = &host});
    const Tensor dw{host.floats(0), c.w, w_strides};
    Shape index(c.w.size(), 0);
    do {
      ASSERT_NEAR(dw.at(index), weight_gradient_at(c, x, g, index), 2e-4)
          << testing::PrintToString(index);
    } while (advance(index, c.w));
  }
}

TEST(Convolution, WeightGradients) {
  const std::vector<ConvolutionCase> cases = {
      {{2, 16, 9, 9}, {32, 16, 1, 1}, {2, 32, 9, 9}, false, {1, 1}, {0, 0}, {1, 1}},
      {{2, 16, 9, 9}, {32, 16, 1, 1}, {2, 32, 5, 5}, false, {2, 2}, {0, 0}, {1, 1}},
      {{1, 3, 19, 17}, {16, 3, 7, 7}, {1, 16, 10, 9}, false, {2, 2}, {3, 3}, {1, 1}},
      {{1, 16, 12, 10}, {24, 16, 3, 3}, {1, 24, 8, 6}, false, {1, 1}, {0, 0}, {2, 2}},
      {{2, 24, 11, 11}, {24, 1, 5, 5}, {2, 24, 6, 6}, false, {2, 2}, {2, 2}, {1, 1}, 24},
      {{2, 24, 8, 8}, {32, 6, 3, 3}, {2, 32, 8, 8}, false, {1, 1}, {1, 1}, {1, 1}, 4},
      {{2, 8, 30}, {12, 8, 3}, {2, 12, 15}, false, {2}, {1}, {1}},
      {{1, 4, 6, 7, 8}, {8, 4, 3, 3, 3}, {1, 8, 6, 7, 8}, false, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
      // rows that no window reaches
      {{1, 8, 10, 10}, {8, 8, 3, 3}, {1, 8, 3, 3}, false, {3, 3}, {0, 0}, {1, 1}}};
  for (ConvolutionCase c : cases) {
    for (const bool last : {false, true}) {
      SCOPED_TRACE(testing::PrintToString(c.w) + (last ? " channels last" : ""));
      c.channels_last = last;
      check_weight_gradient(c);
      check_weight_gradient(c, true);
    }
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

}  // namespace
// Several outputs a group and large windows: oneDNN's product of unrolled patches, which misplaces
// the operands of post-ops.
TEST(Convolution, PostOpsOfGroups) {
  for (const std::int64_t size : {1, 4}) {
    const Shape y = {2, 32, size, size};
    for (const bool last : {false, true}) {
      SCOPED_TRACE(last);
      const auto order = layout(4, last);
      for (const std::vector<PostOpCase>& post_ops :
           {std::vector<PostOpCase>{{PostOpKind::relu}},
            {{PostOpKind::hardswish}},
            {{PostOpKind::mul, 0, 0, {1, 32, 1, 1}, {32, 1, 1, 1}}, {PostOpKind::relu}},
            {{PostOpKind::add, 0, 0, {1, 32, 1, 1}, {32, 1, 1, 1}}},
            {{PostOpKind::relu}, {PostOpKind::add, 0, 0, y, ordered(y, order)}}}) {
        check({{2, 16, 2 * size, 2 * size},
               {32, 1, 7, 7},
               y,
               last,
               {2, 2},
               {3, 3},
               {1, 1},
               16,
               true,
               true,
               false,
               {},
               post_ops});
      }
    }
  }
}

}  // namespace inkle::runtime::cpu
