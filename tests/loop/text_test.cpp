// Programs as text: what is printed parses to the same text, and wrong text is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "loop/program.h"

namespace inkle::loop {
namespace {

void round_trip(const std::string& text) {
  EXPECT_EQ(to_string(parse_program(text, "test.ir")), text);
}

TEST(LoopText, Norm) {
  round_trip(R"(loops @norm {
  symbols s0 in 2..4096 divisor 2 hint 8
  arguments s0: int, x, g
  x: input 1 f32[s0,768]{768,1}
  g: input 2 f32[768]{1} param
  out0: output 0 f32[s0,768]{768,1}
  t0: f32[s0]
  t1: f32[s0]
  n0: reduce.welford f32 [i0: s0 | r0: 768] -> t0[i0], t1[i0] { yield load x[i0,r0] }  # norm at model.py:2
  n1: pointwise [i0: s0, i1: 768] -> out0[i0,i1] { yield mul(mul(sub(load x[i0,i1], load t0[i0]), rsqrt(add(div(load t1[i0], 768.0), 1e-12))), load g[i1]) }  # norm
  return out0 [s0,768]{768,1}
}
)");
}

constexpr const char* kEveryKind = R"(loops @kinds {
  symbols s0 in 1.., s1 in ..
  arguments s0: int, n: int = s1, x, w, ids = i
  data 0 "0000803f"
  x: input 2 f32[s0,4,8,8]{256,1,32,4} cuda 1
  w: input 3 f32[6,2,3,3]{18,9,3,1}
  i: input 4 i64[s0]{1}
  c: constant 0 f32[1]{1}
  y: output 0 f32[s0,6,8,8]{384,64,8,1}
  sums: f32[s0,8]
  table: bf16[10,s0] offset s0*2
  mixed: f32[2,3,4,5] writes_into w
  lse: f32[2,3,4]
  k: f32[2,1,7,5]
  mask: bool[4,7]
  t5: f32[s0,8]{8,1}
  n0: convolution f32 [i0: s0, i1: 6, i2: 8, i3: 8] -> y[i0,i1,i2,i3] x x w w bias c stride [1,1] padding [1,1] dilation [1,1] output_padding [0,0] groups 2 transposed
  n1: scan.sum f32 [i0: s0 | r0: 8] -> sums[i0,r0] { yield load x[i0,0,0,r0] }
  n2: scatter [i0: s0] -> add table[j0,i0] {  # scatter
    j0: 10 = indirect(load i[i0])
    yield cast.bf16(load sums[i0,mod(i0,8)])
  }
  n3: matmul f64 [i0: s0, i1: s0 | r0: 8] -> sums[i0,0] { mul(load sums[i0,r0], load sums[i1,r0]) }
  n4: attention f32 [i0: 2, i1: 3, i2: 4, i3: 5] -> mixed[i0,i1,i2,i3] over [a0: 2, a1: 3, a2: 7, a3: 7] q mixed[a0,a1,a2,a3] k k[a0,a1,a2,a3] v k[a0,0,a2,a3] mask mask[a2,a3] sizes [2,3,1,4,7,5,5] scale 0.125 causal unsafe lse lse  # attend at a.py:3
  n5: eager "aten::sort" target 7 (sums, int s0+1) -> (t5)  # aten::sort
  return y [s0,6,8,8]{384,64,8,1}, input x [s0,4]{256,1} offset 5, int s0*2, none
}
)";

TEST(LoopText, EveryKindOfNest) { round_trip(kEveryKind); }

TEST(LoopText, LogitsOfHiddenColumns) {
  const std::string before = " unsafe lse lse";
  for (const char* hidden : {"-10000.0", "inf", "nan"}) {
    std::string text = kEveryKind;
    text.insert(text.find(before) + before.size(), fmt::format(" hidden {}", hidden));
    round_trip(text);
  }
}

TEST(LoopText, Expressions) {
  round_trip(R"(loops @ops {
  arguments x, h, k, b
  x: input 0 f32[16]{1}
  h: input 1 f16[16]{1}
  k: input 2 i32[16]{1}
  b: input 3 bool[16]{1}
  out0: output 0 f32[16]{1}
  out1: output 1 i32[16]{1}
  n0: pointwise [i0: 16] -> out0[i0], out1[i0] {
    %0 = load b[i0]
    %1 = cast.f32(load_if(%0, -inf:f16, h[i0-1]))
    %2 = 0.1
    %3 = fma(%1, %2, %2)
    yield select(bit_and(%0, is_nan(%3)), %3, nan), add(bitcast.i32(%1), add(load k[i0], 7:i32))
  }
  n1: pointwise [i0: 16] -> out0[i0] {  # one load too early for its place
    %0 = load x[i0]
    %1 = load h[i0]
    %2 = load b[i0]
    yield select(%2, cast.f32(%1), %0)
  }
  n2: pointwise [i0: 16] -> out0[i0] { yield cast.f32(mul(random(index(i0), 5), -3)) }
  return out0 [16]{1}, out1 [16]{1}
}
)");
}

void expect_error(const std::string& text, const std::string& message) {
  try {
    static_cast<void>(parse_program(text, "bad.ir"));
    FAIL() << "accepted: " << text;
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr(message));
    EXPECT_THAT(e.what(), testing::HasSubstr("bad.ir"));
  }
}

std::string with_nest(const std::string& nest) {
  return "loops @p {\n  arguments x\n  x: input 0 f32[4]{1}\n  h: bf16[4]\n"
         "  out0: output 0 f32[4]{1}\n  " +
         nest + "\n  return out0 [4]{1}\n}\n";
}

TEST(LoopText, Errors) {
  expect_error("", "expected 'loops'");
  expect_error("loops @p { return } x", "text after");
  expect_error("loops @p { arguments y return }", "no buffer 'y'");
  expect_error(with_nest("n0: pointless [i0: 4] -> out0[i0] { yield 1.0 }"), "no kind of nest");
  expect_error(with_nest("n0: reduce [i0: 4] -> out0[i0] { yield 1.0 }"), "kind of reduction");
  expect_error(with_nest("n0: pointwise [i0: 4] -> out0[i0,i0] { yield 1.0 }"), "2 indices");
  expect_error(with_nest("n0: pointwise [i0: 4] -> out0[i9] { yield 1.0 }"), "i9");
  expect_error(with_nest("n0: pointwise [i0: 4] -> out0[i0] { yield frob(1.0) }"), "no operation");
  expect_error(with_nest("n0: pointwise [i0: 4] -> out0[i0] { yield add(1.0) }"), "too few");
  expect_error(with_nest("n0: pointwise [i0: 4] -> out0[i0] { yield %0 }"), "no value %0");
  expect_error(with_nest("n0: pointwise [i0: 4] -> out0[i0] { yield add(1.0, 1) }"), "add of");
  expect_error(with_nest("n0: pointwise [i0: 4] -> out0[i0] { yield 1 }"), "store of i64");
  expect_error(with_nest("n0: pointwise [i0: 4] -> out0[i0] { yield exp(load h[i0]) }"), "bf16");
  expect_error(with_nest("n0: pointwise [i0: 4, i0: 4] -> out0[i0] { yield 1.0 }"), "twice");
  expect_error(with_nest("n0: reduce.sum f32 [i0: 4] -> out0[i0] { yield 1.0 }"), "nothing to");
}

// Damaged text is refused with a UserError or means something else; nothing else happens.
void survive(const std::string& text) {
  try {
    static_cast<void>(to_string(parse_program(text, "damaged.ir")));
  } catch (const UserError&) {
  } catch (const Unsupported&) {
  }
}

TEST(LoopText, DamagedText) {
  const std::string text = kEveryKind;
  for (std::size_t end = 0; end < text.size(); ++end) survive(text.substr(0, end));
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const char c : {'9', 'i', '[', '-'}) {
      std::string damaged = text;
      damaged[at] = c;
      survive(damaged);
    }
    std::string shorter = text;
    survive(shorter.erase(at, 1));
  }
}

}  // namespace
}  // namespace inkle::loop
