// Special values, packed weights, and what the library refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/unsupported.h"
#include "runtime/cpu/magnitudes.h"
#include "runtime/cpu/reference.h"

namespace inkle::runtime::cpu {
namespace {

using abi::PostOpKind;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

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
  EXPECT_TRUE(can_run(call_of(DType::f32, PostOpKind::relu), has_bf16()));
  EXPECT_FALSE(can_run(call_of(DType::f64, PostOpKind::relu), has_bf16()));
  EXPECT_FALSE(can_run(call_of(DType::f16, PostOpKind::relu), has_bf16()));
  EXPECT_TRUE(can_run(call_of(DType::bf16, PostOpKind::relu), true));
  EXPECT_FALSE(can_run(call_of(DType::bf16, PostOpKind::relu), false));
  EXPECT_FALSE(can_run(call_of(DType::f32, PostOpKind::clip), has_bf16()));
}

// A result that is narrower than the operands; nothing makes such a call.
TEST(Library, NamesTheNodeOfACallThatItLacks) {
  PlanBuilder b;
  abi::ConvolutionCall call;
  call.x = b.operand(b.argument("x", {1, 4, 8, 8}));
  call.w = b.operand(b.argument("w", {4, 4, 3, 3}));
  call.y = b.operand(b.output("y", {1, 4, 6, 6}, {}, DType::bf16));
  call.stride = call.dilation = {1, 1};
  call.padding = call.output_padding = {0, 0};
  b.call(call, "(convolution), (relu)");
  try {
    const Executable e(b.done());
    FAIL();
  } catch (const UnsupportedAt& error) {
    EXPECT_EQ(error.nodes(), (std::vector<NodeFault>{{"(convolution)", error.message()}}));
    EXPECT_EQ(error.message(), "(convolution): oneDNN has no implementation to convolve");
  }
}

}  // namespace
}  // namespace inkle::runtime::cpu
