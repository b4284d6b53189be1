// Lowering of small graphs, as text.
#include "lower/lower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/text.h"
#include "lower/test_ops.h"

namespace inkle::lower {
namespace {

std::string lowered(const std::string& text) {
  const graph::Graph graph = graph::parse(text, "test.ir", test_table());
  std::string out = loop::to_string(lower(graph));
  // Every lowering is also a test of the text.
  EXPECT_EQ(loop::to_string(loop::parse_program(out, "lowered")), out);
  return out;
}

TEST(Lower, BroadcastAndScalars) {
  EXPECT_EQ(lowered(R"(
  graph @broadcast(%s0: int, %x: f32[s0,1,4], %y: f32[1,1])
      -> f32[s0,1,4] where s0 in 2..64 {
    %0: f32[s0,1,4] = add(%x, s0)  # m.py:1
    %1: f32[s0,1,4] = add(%0, 1.5)
    %2: f32[s0,1,4] = add(%1, %y)
    return %2
  })"),
            R"(loops @broadcast {
  symbols s0 in 2..64
  arguments s0: int, x, y
  x: input 1 f32[s0,1,4]{4,4,1}
  y: input 2 f32[1,1]{1,1}
  t0: f32[s0,1,4]
  t1: f32[s0,1,4]
  out0: output 0 f32[s0,1,4]{4,4,1}
  n0: pointwise [i0: s0, i1: 1, i2: 4] -> t0[i0,i1,i2] { yield add(load x[i0,i1,i2], cast.f32(index(s0))) }  # add at m.py:1
  n1: pointwise [i0: s0, i1: 1, i2: 4] -> t1[i0,i1,i2] { yield add(load t0[i0,i1,i2], 1.5) }  # add
  n2: pointwise [i0: s0, i1: 1, i2: 4] -> out0[i0,i1,i2] { yield add(load t1[i0,i1,i2], load y[i1,0]) }  # add
  return out0 [s0,1,4]{4,4,1}
}
)");
}

// Values are f32 between load and store.
TEST(Lower, ReducedFloatsComputeInF32) {
  EXPECT_EQ(lowered(R"(
  graph @bf16(%x: bf16[4,8])
      -> bf16[4,8], bf16[4], bf16[4] {
    %0: bf16[4,8] = add(%x, %x)
    %1: bf16[4], %2: bf16[4] = moments(%0)
    return %0, %1, %2
  })"),
            R"(loops @bf16 {
  arguments x
  x: input 0 bf16[4,8]{8,1}
  out0: output 0 bf16[4,8]{8,1}
  out1: output 1 bf16[4]{1}
  out2: output 2 bf16[4]{1}
  n0: pointwise [i0: 4, i1: 8] -> out0[i0,i1] {  # add
    %0 = cast.f32(load x[i0,i1])
    yield cast.bf16(add(%0, %0))
  }
  n1: reduce.welford f32 [i0: 4 | r0: 8] -> out1[i0], out2[i0] { yield cast.f32(load out0[i0,r0]) }  # moments
  return out0 [4,8]{8,1}, out1 [4]{1}, out2 [4]{1}
}
)");
}

// Outputs of their own are copied where their buffer is an input's, or already another output's;
// those in one storage are views of one buffer, an input is itself.
TEST(Lower, ReturnedViews) {
  EXPECT_EQ(lowered(R"(
  graph @views(%x: f32[4,8])
      -> f32[8,4], f32[32], f32[4,8], f32[8,4], f32[8,4], f32[2,4]{4,1}, f32[4,8] {
    %0: f32[8,4] = transpose(%x)
    %1: f32[32] = flatten(%0)
    %2: f32[8,4]{1,8} = add(%0, %0)
    %3: f32[8,4] = add(%2, 1)
    return %0, %1, %2 in 0, %3, %3, %3 in 1 at 8, %x in %x
  })"),
            R"(loops @views {
  arguments x
  x: input 0 f32[4,8]{8,1}
  out2: output 2 f32[8,4]{1,8}
  out3: output 3 f32[8,4]{4,1}
  out0: output 0 f32[8,4]{4,1}
  out1: output 1 f32[32]{1}
  out4: output 4 f32[8,4]{4,1}
  out5: output 5 f32[8,4]{4,1}
  n0: pointwise [i0: 8, i1: 4] -> out2[i0,i1] {  # add
    %0 = load x[i1,i0]
    yield add(%0, %0)
  }
  n1: pointwise [i0: 8, i1: 4] -> out3[i0,i1] { yield add(load out2[i0,i1], 1.0) }  # add
  n2: pointwise [i0: 8, i1: 4] -> out0[i0,i1] { yield load x[i1,i0] }  # output
  n3: pointwise [i0: 32] -> out1[i0] { yield load x[mod(i0,4),floordiv(i0,4)] }  # output
  n4: pointwise [i0: 8, i1: 4] -> out4[i0,i1] { yield load out3[i0,i1] }  # output
  n5: pointwise [i0: 8, i1: 4] -> out5[i0,i1] { yield load out3[i0,i1] }  # output
  return out0 [8,4]{4,1}, out1 [32]{1}, out2 [4,8]{8,1}, out3 [8,4]{4,1}, out4 [8,4]{4,1}, out5 [2,4]{4,1} offset 8, input x [4,8]{8,1}
}
)");
}

// Strides of 0 can repeat an input; a dense promise needs a copy.
TEST(Lower, ReturnedExpansions) {
  EXPECT_EQ(lowered(R"(
  graph @expand(%x: f32[4])
      -> f32[7,4], f32[9,4]{0,1} {
    %0: f32[4] = add(%x, 1)
    %1: f32[7,4] = expand(%0, 7)
    return %1, %x in %x
  })"),
            R"(loops @expand {
  arguments x
  x: input 0 f32[4]{1}
  t0: f32[4]
  out0: output 0 f32[7,4]{4,1}
  n0: pointwise [i0: 4] -> t0[i0] { yield add(load x[i0], 1.0) }  # add
  n1: pointwise [i0: 7, i1: 4] -> out0[i0,i1] { yield load t0[i1] }  # output
  return out0 [7,4]{4,1}, input x [9,4]{0,1}
}
)");
}

// %2 is a view of %x as it was before the copy_, so it is saved first.
TEST(Lower, MutationKeepsOldValues) {
  EXPECT_EQ(lowered(R"(
  graph @mutate(%x: f32[4,8], %y: f32[4,8])
      -> f32[4,8], f32[8,4], f32[4,8] {
    %0: f32[4,8] = add(%x, %y)
    %1: f32[4,8] = copy_(%x, %0)
    %2: f32[8,4] = transpose(%x)
    %3: f32[4,8] = add(%1, %y)
    return %1 in %x, %2, %3
  })"),
            R"(loops @mutate {
  arguments x, y
  x: input 0 f32[4,8]{8,1}
  y: input 1 f32[4,8]{8,1}
  t0: f32[4,8]
  out1: output 1 f32[4,8]{1,4}
  out2: output 2 f32[4,8]{8,1}
  n0: pointwise [i0: 4, i1: 8] -> t0[i0,i1] { yield add(load x[i0,i1], load y[i0,i1]) }  # add
  n1: pointwise [i0: 4, i1: 8] -> out1[i0,i1] { yield load x[i0,i1] }  # copy_
  n2: pointwise [i0: 4, i1: 8] -> x[i0,i1] { yield load t0[i0,i1] }  # copy_
  n3: pointwise [i0: 4, i1: 8] -> out2[i0,i1] { yield add(load x[i0,i1], load y[i0,i1]) }  # add
  return input x [4,8]{8,1}, out1 [8,4]{4,1}, out2 [4,8]{8,1}
}
)");
}

TEST(Lower, MutationReadsAllBeforeItWrites) {
  EXPECT_EQ(lowered(R"(
  graph @shuffle(%x: f32[4,4])
      -> f32[4,4] {
    %0: f32[4,4] = transpose(%x)
    %1: f32[4,4] = copy_(%x, %0)
    return %1 in %x
  })"),
            R"(loops @shuffle {
  arguments x
  x: input 0 f32[4,4]{4,1}
  t0: f32[4,4]
  n0: pointwise [i0: 4, i1: 4] -> t0[i0,i1] { yield load x[i1,i0] }  # copy_
  n1: pointwise [i0: 4, i1: 4] -> x[i0,i1] { yield load t0[i0,i1] }  # copy_
  return input x [4,4]{4,1}
}
)");
}

TEST(Lower, ScatterInPlaceWhereTheBaseDies) {
  EXPECT_EQ(lowered(R"(
  graph @scatter(%x: f32[4,8], %i: i64[5], %u: f32[5,8])
      -> f32[4,8], f32[4,8] {
    %0: f32[4,8] = add(%x, 0.0)
    %1: f32[4,8] = index_add(%0, %i, %u)
    %2: f32[4,8] = index_add(%1, %i, %u)
    %3: f32[4,8] = index_add(%x, %i, %u)
    return %2, %3
  })"),
            R"(loops @scatter {
  arguments x, i, u
  x: input 0 f32[4,8]{8,1}
  i: input 1 i64[5]{1}
  u: input 2 f32[5,8]{8,1}
  out0: output 0 f32[4,8]{8,1}
  out1: output 1 f32[4,8]{8,1}
  n0: pointwise [i0: 4, i1: 8] -> out0[i0,i1] { yield add(load x[i0,i1], 0.0) }  # add
  n1: scatter [i0: 5, i1: 8] -> add out0[j0,i1] {  # index_add
    %0 = load i[i0]
    j0: 4 = indirect(select(less(%0, 0), add(%0, 4), %0))
    yield load u[i0,i1]
  }
  n2: scatter [i0: 5, i1: 8] -> add out0[j0,i1] {  # index_add
    %0 = load i[i0]
    j0: 4 = indirect(select(less(%0, 0), add(%0, 4), %0))
    yield load u[i0,i1]
  }
  n3: pointwise [i0: 4, i1: 8] -> out1[i0,i1] { yield load x[i0,i1] }  # index_add
  n4: scatter [i0: 5, i1: 8] -> add out1[j0,i1] {  # index_add
    %0 = load i[i0]
    j0: 4 = indirect(select(less(%0, 0), add(%0, 4), %0))
    yield load u[i0,i1]
  }
  return out0 [4,8]{8,1}, out1 [4,8]{8,1}
}
)");
}

TEST(Lower, ScatterCopiesABaseThatLives) {
  EXPECT_EQ(lowered(R"(
  graph @scatter2(%x: f32[4,8], %i: i64[5], %u: f32[5,8])
      -> f32[4,8], f32[4,8] {
    %0: f32[4,8] = add(%x, 0.0)
    %1: f32[4,8] = index_add(%0, %i, %u)
    return %0, %1
  })"),
            R"(loops @scatter2 {
  arguments x, i, u
  x: input 0 f32[4,8]{8,1}
  i: input 1 i64[5]{1}
  u: input 2 f32[5,8]{8,1}
  out0: output 0 f32[4,8]{8,1}
  out1: output 1 f32[4,8]{8,1}
  n0: pointwise [i0: 4, i1: 8] -> out0[i0,i1] { yield add(load x[i0,i1], 0.0) }  # add
  n1: pointwise [i0: 4, i1: 8] -> out1[i0,i1] { yield load out0[i0,i1] }  # index_add
  n2: scatter [i0: 5, i1: 8] -> add out1[j0,i1] {  # index_add
    %0 = load i[i0]
    j0: 4 = indirect(select(less(%0, 0), add(%0, 4), %0))
    yield load u[i0,i1]
  }
  return out0 [4,8]{8,1}, out1 [4,8]{8,1}
}
)");
}

TEST(Lower, MatmulThroughATranspose) {
  EXPECT_EQ(lowered(R"(
  graph @contract(%x: f32[4,8], %w: f32[3,8] param)
      -> f32[4,3] {
    %0: f32[8,3] = transpose(%w)
    %1: f32[4,3] = mm(%x, %0)
    return %1
  })"),
            R"(loops @contract {
  arguments x, w
  x: input 0 f32[4,8]{8,1}
  w: input 1 f32[3,8]{8,1} param
  out0: output 0 f32[4,3]{3,1}
  n0: matmul f32 [i0: 4, i1: 3 | r0: 8] -> out0[i0,i1] { mul(load x[i0,r0], load w[i1,r0]) }  # mm
  return out0 [4,3]{3,1}
}
)");
}

TEST(Lower, ConvolutionOperandsAreWhole) {
  EXPECT_EQ(lowered(R"(
  graph @conv(%x: f32[1,2,8,4], %w: f32[6,2,3,3])
      -> f32[1,6,4,8] {
    %0: f32[1,6,4,8] = conv(%x, %w)
    return %0
  })"),
            R"(loops @conv {
  arguments x, w
  x: input 0 f32[1,2,8,4]{64,32,4,1}
  w: input 1 f32[6,2,3,3]{18,9,3,1}
  t0: f32[1,2,4,8]
  out0: output 0 f32[1,6,4,8]{192,32,8,1}
  n0: pointwise [i0: 1, i1: 2, i2: 4, i3: 8] -> t0[i0,i1,i2,i3] { yield load x[i0,i1,i3,i2] }  # conv
  n1: convolution f32 [i0: 1, i1: 6, i2: 4, i3: 8] -> out0[i0,i1,i2,i3] x t0 w w stride [1,1] padding [1,1] dilation [1,1] output_padding [0,0] groups 1  # conv
  return out0 [1,6,4,8]{192,32,8,1}
}
)");
}

TEST(Lower, AttentionWithoutItsSecondResult) {
  EXPECT_EQ(lowered(R"(
  graph @attend(%q: f32[2,4,s0,8], %k: f32[2,2,s0,8], %v: f32[2,2,s0,6])
      -> f32[2,4,s0,6] where s0 in 1..64 {
    %0: f32[2,4,s0,6], %1: f32[2,4,s0] = attend(%q, %k, %v)
    return %0
  })"),
            R"(loops @attend {
  symbols s0 in 1..64
  arguments q, k, v
  q: input 0 f32[2,4,s0,8]{s0*32,s0*8,8,1}
  k: input 1 f32[2,2,s0,8]{s0*16,s0*8,8,1}
  v: input 2 f32[2,2,s0,6]{s0*12,s0*6,6,1}
  out0: output 0 f32[2,4,s0,6]{s0*24,s0*6,6,1}
  n0: attention f32 [i0: 2, i1: 4, i2: s0, i3: 6] -> out0[i0,i1,i2,i3] over [a0: 2, a1: 4, a2: s0, a3: max(s0,8)] q q[a0,a1,a2,a3] k k[a0,a1,a2,a3] v v[a0,a1,a2,a3] sizes [2,4,2,s0,s0,8,6] scale 0.5 causal  # attend
  return out0 [2,4,s0,6]{s0*24,s0*6,6,1}
}
)");
}

// The transposed operand is copied: a call takes whole buffers.
TEST(Lower, EagerOperandsAndResults) {
  EXPECT_EQ(lowered(R"(
  graph @eager(%x: f32[4,8])
      -> f32[8,4] {
    %0: f32[4,8] = add(%x, 1)
    %1: f32[8,4] = transpose(%0)
    %2: f32[8,4] = eager "aten::foo" 5 (%1, 3, %x)
    return %2
  })"),
            R"(loops @eager {
  arguments x
  x: input 0 f32[4,8]{8,1}
  t0: f32[4,8]
  t1: f32[8,4]{4,1}
  out0: output 0 f32[8,4]{4,1}
  n0: pointwise [i0: 4, i1: 8] -> t0[i0,i1] { yield add(load x[i0,i1], 1.0) }  # add
  n1: pointwise [i0: 8, i1: 4] -> t1[i0,i1] { yield load t0[i1,i0] }  # eager
  n2: eager "aten::foo" target 5 (t1, int 3, x) -> (out0)  # aten::foo
  return out0 [8,4]{4,1}
}
)");
}

TEST(Lower, ScanAndDeadReduction) {
  EXPECT_EQ(lowered(R"(
  graph @scan(%x: f32[4,8])
      -> f32[4,8] {
    %0: f32[4,8] = cumsum(%x)
    %1: f32[4] = row_sum(%0)
    return %0
  })"),
            R"(loops @scan {
  arguments x
  x: input 0 f32[4,8]{8,1}
  out0: output 0 f32[4,8]{8,1}
  n0: scan.sum f32 [i0: 8 | r0: 4] -> out0[r0,i0] { yield load x[r0,i0] }  # cumsum
  return out0 [4,8]{8,1}
}
)");
}

// A literal is never returned itself: its memory belongs to the program.
TEST(Lower, Literals) {
  EXPECT_EQ(lowered(R"(
  graph @literal(%x: f32[2])
      -> f32[2], f32[2] {
    %c0: f32[2] = literal [1.0, 2.0]
    %0: f32[2] = add(%x, %c0)
    return %0, %c0
  })"),
            R"(loops @literal {
  arguments x
  data 0 "0000803f00000040"
  x: input 0 f32[2]{1}
  c0: constant 0 f32[2]{1}
  out0: output 0 f32[2]{1}
  out1: output 1 f32[2]{1}
  n0: pointwise [i0: 2] -> out0[i0] { yield add(load x[i0], load c0[i0]) }  # add
  n1: pointwise [i0: 2] -> out1[i0] { yield load c0[i0] }  # output
  return out0 [2]{1}, out1 [2]{1}
}
)");
}

template <class Kind>
std::string error_of(const std::string& text) {
  const graph::Graph graph = graph::parse(text, "test.ir", test_table());
  try {
    static_cast<void>(lower(graph));
  } catch (const Kind& e) {
    return e.what();
  }
  return "nothing thrown";
}

TEST(Lower, ErrorsNameOpAndLine) {
  EXPECT_THAT(error_of<Unsupported>("graph @p(%x: f32[4]) -> f32[4] {\n"
                                    "  %0: f32[4] = no_lowering(%x)  # model.py:7\n"
                                    "  return %0\n}"),
              testing::AllOf(testing::HasSubstr("no lowering for op 'no_lowering'"),
                             testing::HasSubstr("model.py:7")));
  EXPECT_THAT(error_of<Unsupported>("graph @p(%x: c64[4]) -> c64[4] {\n"
                                    "  %0: c64[4] = add(%x, 1)\n  return %0\n}"),
              testing::HasSubstr("c64"));
  EXPECT_THAT(error_of<Unsupported>("graph @p(%x: f32[4]) -> f32[4] {\n"
                                    "  %0: f32[4] = add(%x, 1)\n"
                                    "  %1: f32[4] = copy_(%0, %x)\n  return %1\n}"),
              testing::HasSubstr("not a graph input"));
  EXPECT_THAT(error_of<InternalError>("graph @p(%x: f32[2,2]) -> f32[4] {\n"
                                      "  %0: f32[4] = wrong(%x)\n  return %0\n}"),
              testing::HasSubstr("is lowered as f32[2,2]"));
}

}  // namespace
}  // namespace inkle::lower
