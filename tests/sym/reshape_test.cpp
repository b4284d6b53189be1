// What the index algebra of the compiler rests on: views of views fold back to plain variables.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "sym/expr.h"

namespace inkle::sym {
namespace {

using Exprs = std::vector<Expr>;

Expr flatten(Context& context, const Exprs& indices, const Exprs& shape) {
  Expr out = context.constant(0);
  for (std::size_t i = 0; i < indices.size(); ++i) out = out * shape[i] + indices[i];
  return out;
}

// As a view does: dimension d is mod(floordiv(linear, product of later ones), shape[d]).
Exprs unflatten(Context& context, Expr linear, const Exprs& shape) {
  Exprs out(shape.size());
  Expr inner = context.constant(1);
  for (std::size_t d = shape.size(); d-- > 0;) {
    out[d] = mod(floordiv(linear, inner), shape[d]);
    inner = inner * shape[d];
  }
  return out;
}

std::string print(const Exprs& all) {
  std::string out;
  for (const Expr e : all) out += (out.empty() ? "" : " ") + to_string(e);
  return out;
}

class ReshapeTest : public testing::Test {
 protected:
  Expr size(const char* name) {
    SymbolInfo info;
    info.range = {2, 1 << 20};
    return context.symbol(name, info);
  }
  Expr number(std::int64_t v) { return context.constant(v); }
  Exprs indices(const Exprs& shape) {
    Exprs out;
    for (const Expr extent : shape) out.push_back(context.index(extent));
    return out;
  }
  // Reads the indices through the shapes, one view after the other.
  Exprs through(Exprs at, const std::vector<Exprs>& shapes) {
    for (std::size_t i = 0; i + 1 < shapes.size(); ++i) {
      at = unflatten(context, flatten(context, at, shapes[i]), shapes[i + 1]);
    }
    return at;
  }
  void expect_identity(const std::vector<Exprs>& shapes) {
    const Exprs at = indices(shapes.front());
    EXPECT_EQ(print(through(at, shapes)), print(at));
  }

  Context context;
};

TEST_F(ReshapeTest, SameShapeIsIdentity) {
  const Expr s0 = size("s0");
  const Expr s1 = size("s1");
  expect_identity({{s0, s1, number(768)}, {s0, s1, number(768)}});
  expect_identity({{number(7), number(5), number(3)}, {number(7), number(5), number(3)}});
  expect_identity({{s0, s1 * 2 + 1, s1}, {s0, s1 * 2 + 1, s1}});
}

TEST_F(ReshapeTest, MergeAndSplitAgain) {
  const Expr a = size("a");
  const Expr b = size("b");
  const Expr c = size("c");
  expect_identity({{a, b, c}, {a * b, c}, {a, b, c}});
  expect_identity({{a, b, c}, {a * b * c}, {a, b, c}});
  expect_identity({{a, b, c}, {a, b * c}, {a * b, c}, {a, b, c}});
  expect_identity({{a, b, number(768)},
                   {a * b, number(768)},
                   {a, b, number(12), number(64)},
                   {a, b, number(768)}});
}

TEST_F(ReshapeTest, HeadsOfAttention) {
  const Expr s0 = size("s0");
  const Expr s1 = size("s1");
  const Exprs heads = indices({s0, s1, number(12), number(64)});
  const Exprs back = through(heads, {{s0, s1, number(12), number(64)}, {s0 * s1, number(768)}});
  EXPECT_EQ(print(back), "i0*s1+i1 i2*64+i3");
  const Exprs rows = indices({s0 * s1, number(768)});
  EXPECT_EQ(print(through(rows, {{s0 * s1, number(768)}, {s0, s1, number(12), number(64)}})),
            "floordiv(i4,s1) mod(i4,s1) floordiv(i5,64) mod(i5,64)");
  // Split and merged again.
  expect_identity({{s0 * s1, number(768)},
                   {s0, s1, number(12), number(64)},
                   {s0 * s1, number(12), number(64)},
                   {s0 * s1 * 768},
                   {s0 * s1, number(768)}});
}

TEST_F(ReshapeTest, HalfOfADimension) {
  SymbolInfo even;
  even.range = {2, 4096};
  even.divisor = 2;
  const Expr a = size("a");
  const Expr b = context.symbol("b", even);
  const Expr c = size("c");
  const Expr half = floordiv(b, 2);
  EXPECT_EQ(to_string(half * 2), "b");
  expect_identity({{a, b, c}, {a * b, c}, {a, half, number(2), c}, {a, b, c}});
  expect_identity({{a, half, number(2), c}, {a, b, c}, {a * b, c}, {a, half, number(2), c}});
}

TEST_F(ReshapeTest, SizesOfConvolutions) {
  // Heights like floordiv(s-1,2)+1 are sums, and their products are distributed.
  const Expr n = size("n");
  const Expr s = size("s");
  const Expr t = size("t");
  const Expr h = floordiv(s - 1, 2) + 1;
  const Expr w = floordiv(t - 1, 2) + 1;
  expect_identity({{n, number(64), h, w}, {n * 64, h * w}, {n, number(64), h, w}});
  expect_identity({{n, number(64), h, w}, {n, number(64), h * w}, {n, number(64), h, w}});
  expect_identity(
      {{n, h, w, number(64)}, {n, h * w, number(64)}, {n * h * w * 64}, {n, h, w, number(64)}});
}

TEST_F(ReshapeTest, Concrete) {
  for (const std::vector<std::vector<std::int64_t>>& shapes :
       std::vector<std::vector<std::vector<std::int64_t>>>{
           {{8, 128, 384}, {1024, 384}, {8, 128, 12, 32}, {1024, 12, 32}, {8, 128, 384}},
           {{4, 6, 10}, {24, 10}, {2, 12, 10}, {240}, {4, 6, 10}},
           {{4, 6, 10}, {8, 30}, {240}, {4, 6, 10}},
           {{6, 4}, {4, 6}, {3, 8}, {6, 4}},
           {{1, 5, 1, 7}, {35}, {5, 7}, {1, 5, 1, 7}}}) {
    std::vector<Exprs> symbolic;
    for (const auto& shape : shapes) {
      Exprs row;
      for (const std::int64_t v : shape) row.push_back(number(v));
      symbolic.push_back(row);
    }
    Exprs at;
    for (const Expr extent : symbolic.front()) {
      at.push_back(extent.is_constant(1) ? number(0) : context.index(extent));
    }
    EXPECT_EQ(print(through(at, symbolic)), print(at));
  }
}

// Windows: overlapping patches, unshuffle and roll, as vision models use them.
TEST_F(ReshapeTest, PixelShuffleAndBack) {
  const Expr n = size("n");
  const Expr h = size("h");
  const Expr w = size("w");
  // [n, c*4, h, w] -> [n, c, 2, 2, h, w] permuted to [n, c, h, 2, w, 2] -> [n, c, 2h, 2w]
  const Exprs at = indices({n, number(16), h * 2, w * 2});
  const Exprs six = unflatten(context, flatten(context, at, {n, number(16), h * 2, w * 2}),
                              {n, number(16), h, number(2), w, number(2)});
  EXPECT_EQ(print(six), "i0 i1 floordiv(i2,2) mod(i2,2) floordiv(i3,2) mod(i3,2)");
  const Expr linear = flatten(context, six, {n, number(16), h, number(2), w, number(2)});
  EXPECT_EQ(to_string(linear), to_string(flatten(context, at, {n, number(16), h * 2, w * 2})));
}

TEST_F(ReshapeTest, WindowPartitionAndReverse) {
  const Expr n = size("n");
  const Exprs image = {n, number(56), number(56), number(96)};
  const Exprs split = {n, number(8), number(7), number(8), number(7), number(96)};
  const Exprs at = indices(image);
  Exprs six = unflatten(context, flatten(context, at, image), split);
  std::swap(six[2], six[3]);
  Exprs permuted = split;
  std::swap(permuted[2], permuted[3]);
  const Exprs windows = {n * 64, number(49), number(96)};
  const Exprs in_windows = unflatten(context, flatten(context, six, permuted), windows);
  Exprs back = unflatten(context, flatten(context, in_windows, windows), permuted);
  std::swap(back[2], back[3]);
  EXPECT_EQ(print(unflatten(context, flatten(context, back, split), image)), print(at));
}

// Every chain of random factorisations of one number ends where it began.
TEST_F(ReshapeTest, RandomChains) {
  const std::vector<std::vector<std::int64_t>> shapes = {
      {720},          {2, 360},      {360, 2},   {6, 120},    {8, 90},       {24, 30},
      {2, 3, 120},    {4, 5, 36},    {9, 8, 10}, {3, 16, 15}, {2, 3, 4, 30}, {5, 2, 8, 9},
      {12, 3, 2, 10}, {2, 2, 2, 90}, {10, 72},   {16, 45},    {15, 4, 3, 4}, {20, 36}};
  std::uint32_t state = 1;
  const auto pick = [&] {
    state = state * 1664525 + 1013904223;
    return shapes[(state >> 16) % shapes.size()];
  };
  int exact = 0;
  for (int round = 0; round < 300; ++round) {
    const auto first = pick();
    std::vector<std::vector<std::int64_t>> chain = {first, pick(), pick(), first};
    Exprs at;
    for (const std::int64_t v : first) at.push_back(context.index(number(v)));
    std::vector<Exprs> symbolic;
    for (const auto& shape : chain) {
      Exprs row;
      for (const std::int64_t v : shape) row.push_back(number(v));
      symbolic.push_back(row);
    }
    const std::string got = print(through(at, symbolic));
    if (got == print(at)) ++exact;
    EXPECT_EQ(got, print(at)) << testing::PrintToString(chain);
  }
  EXPECT_EQ(exact, 300);
}

}  // namespace
}  // namespace inkle::sym
