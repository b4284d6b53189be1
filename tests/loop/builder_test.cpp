// The recording of bodies: what is merged, folded and inlined.
#include "loop/builder.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"

namespace inkle::loop {
namespace {

class Recording : public testing::Test {
 protected:
  sym::Context context;
  Body body;
  BodyBuilder b{body, context};
  Expr n = context.symbol("n", {.range = {.low = 1}});
  Expr i = context.index(n);

  Val x(DType dtype = DType::f32) { return b.load(0, dtype, {i}); }
};

TEST_F(Recording, EqualInstructionsMerge) {
  EXPECT_EQ(b.add(x(), x()), b.add(x(), x()));
  EXPECT_EQ(body.instructions.size(), 2u);
  EXPECT_NE(x(), b.load(1, DType::f32, {i}));
}

TEST_F(Recording, SignedZerosAreDifferentConstants) {
  EXPECT_NE(b.constant(DType::f32, 0.0), b.constant(DType::f32, -0.0));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(b.constant(DType::f32, nan), b.constant(DType::f32, -nan));
}

TEST_F(Recording, OnlyExactIdentitiesFold) {
  const Val v = x();
  const Val zero = b.constant(DType::f32, 0);
  const Val one = b.constant(DType::f32, 1);
  EXPECT_EQ(b.mul(v, one), v);
  EXPECT_EQ(b.div(v, one), v);
  EXPECT_EQ(b.sub(v, zero), v);
  EXPECT_NE(b.add(v, zero), v);  // -0 + 0 is +0
  EXPECT_EQ(b.add(v, b.constant(DType::f32, -0.0)), v);
  EXPECT_NE(b.mul(v, zero), zero);  // NaN, infinity, -0
  EXPECT_NE(b.sub(v, v), zero);
  const Val k = x(DType::i32);
  EXPECT_EQ(b.mul(k, b.constant(DType::i32, 0)), b.constant(DType::i32, 0));
  EXPECT_EQ(b.add(k, b.constant(DType::i32, 0)), k);
  EXPECT_EQ(b.neg(b.neg(v)), v);
  EXPECT_EQ(b.sub(b.constant(DType::i32, 0), k), b.neg(k));
  EXPECT_EQ(b.mul(k, b.constant(DType::i32, -1)), b.neg(k));
  EXPECT_NE(b.sub(zero, v), b.neg(v));  // 0 - 0 is +0
}

TEST_F(Recording, ConstantsFoldWhereExact) {
  EXPECT_EQ(b.add(b.constant(DType::f32, 1.5), b.constant(DType::f32, 2)),
            b.constant(DType::f32, 3.5));
  const Val e = b.unary(Opcode::exp, b.constant(DType::f32, 1));
  EXPECT_EQ(body[e].opcode, Opcode::exp);  // the last bit is the code generator's
  const Val by_zero = b.div(b.constant(DType::i32, 1), b.constant(DType::i32, 0));
  EXPECT_EQ(body[by_zero].opcode, Opcode::div);  // fails when it runs
}

TEST_F(Recording, CastsFoldOnlyWhereNothingIsLost) {
  const Val half = b.load(1, DType::bf16, {i});
  EXPECT_EQ(b.cast(b.cast(half, DType::f32), DType::bf16), half);
  EXPECT_EQ(b.cast(b.cast(half, DType::f32), DType::f64), b.cast(half, DType::f64));
  const Val rounded = b.cast(b.cast(x(), DType::bf16), DType::f32);
  EXPECT_NE(rounded, x());
  const Val narrow = b.cast(x(DType::i64), DType::i32);
  EXPECT_NE(b.cast(narrow, DType::i64), x(DType::i64));
}

TEST_F(Recording, Selects) {
  const Val c = b.load(2, DType::boolean, {i});
  const Val v = x();
  const Val w = b.load(1, DType::f32, {i});
  EXPECT_EQ(b.select(b.constant(DType::boolean, 1), v, w), v);
  EXPECT_EQ(b.select(c, v, v), v);
  EXPECT_EQ(b.select(b.logical_not(c), v, w), b.select(c, w, v));
}

TEST_F(Recording, IndexArithmeticStaysSymbolic) {
  const Val v = b.add(b.index(i), b.constant(DType::i64, 1));
  EXPECT_EQ(v, b.index(i + 1));
  EXPECT_EQ(b.less(b.index(i), b.index(n)), b.constant(DType::boolean, 1));
  EXPECT_EQ(b.binary(Opcode::equal, b.index(i), b.index(i + 1)), b.constant(DType::boolean, 0));
  EXPECT_EQ(body[b.less(b.index(i), b.constant(DType::i64, 5))].opcode, Opcode::less);
  for (const std::int64_t far : {std::int64_t{1} << 48, std::numeric_limits<std::int64_t>::min(),
                                 std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_EQ(body[b.sub(b.constant(DType::i64, far), b.index(i))].opcode, Opcode::sub);
  }
}

TEST_F(Recording, IndirectIsDirectWhereProvable) {
  EXPECT_EQ(b.indirect(b.index(i), n), i);
  EXPECT_EQ(b.indirect_wrapped(b.index(i - n), n), i);
  const Val loaded = x(DType::i64);
  const Expr s = b.indirect(loaded, n);
  EXPECT_NE(s, i);
  EXPECT_EQ(b.indirect(loaded, n), s);
  EXPECT_NE(b.indirect(loaded, n + 1), s);  // another bound is another check
  const Expr unproved = b.indirect(b.index(i + 1), n);
  EXPECT_EQ(unproved.kind(), sym::Kind::symbol);
}

TEST_F(Recording, PredicatedLoads) {
  const Val otherwise = b.constant(DType::f32, 7);
  EXPECT_EQ(b.load_if(b.constant(DType::boolean, 0), otherwise, 0, DType::f32, {i}), otherwise);
  EXPECT_EQ(b.load_if(b.constant(DType::boolean, 1), otherwise, 0, DType::f32, {i}), x());
}

TEST_F(Recording, MixedTypesAreRefused) {
  EXPECT_THROW(b.add(x(), x(DType::i32)), InternalError);
  const Val half = b.load(1, DType::f16, {i});
  EXPECT_THROW(b.add(half, half), InternalError);
  EXPECT_THROW(b.select(x(), x(), x()), InternalError);
}

TEST_F(Recording, InlineSubstitutesAndReplacesLoads) {
  const Val doubled = b.add(x(), x());
  b.yield(doubled);
  Body target;
  BodyBuilder to(target, context);
  const Expr j = context.index(n);
  const std::pair<Expr, Expr> map[] = {{i, j}};
  const auto yields = inline_body(body, map, to, [](BodyBuilder& t, Instruction load) {
    return t.cast(t.load(9, DType::bf16, load.indices), load.dtype);
  });
  ASSERT_EQ(yields.size(), 1u);
  EXPECT_EQ(target.instructions[0].buffer, 9u);
  EXPECT_EQ(target.instructions[0].indices[0], j);
  EXPECT_EQ(target.instructions.size(), 3u);
}

// A table of positions that turns out to be 0, 1, 2... makes the gather a plain load.
TEST_F(Recording, InlineMakesIndirectDirect) {
  const Expr s = b.indirect(x(DType::i64), n);
  b.yield(b.load(3, DType::f32, {s}));
  Body target;
  BodyBuilder to(target, context);
  const auto yields = inline_body(body, {}, to, [](BodyBuilder& t, Instruction load) {
    if (load.buffer == 0) return t.index(load.indices[0]);
    return t.append(std::move(load));
  });
  const Instruction& gathered = target[yields[0]];
  EXPECT_EQ(gathered.buffer, 3u);
  EXPECT_EQ(gathered.indices[0], i);
}

TEST_F(Recording, InlineRenamesIndirectSymbols) {
  const Expr s = b.indirect(x(DType::i64), n);
  b.yield(b.load(3, DType::f32, {s}));
  Body target;
  BodyBuilder to(target, context);
  std::vector<std::pair<Expr, Expr>> renamed;
  const auto yields = inline_body(body, {}, to, nullptr, &renamed);
  ASSERT_EQ(renamed.size(), 1u);
  EXPECT_EQ(renamed[0].first, s);
  EXPECT_NE(renamed[0].second, s);
  EXPECT_EQ(target[yields[0]].indices[0], renamed[0].second);
}

}  // namespace
}  // namespace inkle::loop
