// The text of a plan that parses back.
#include "abi/plan_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace inkle::abi {
namespace {

// Every kind of line, of step and of field.
constexpr std::string_view kText = R"(plan name="every \"kind\"" slots=6
argument name="s0" integer
argument name="x" sizes=[0,1] strides=[1,2] alignment=64 written device=(kind=cuda index=1)
argument name="w" dtype=bf16 parameter
size op=argument
size result=1 immediate=64
size result=2 immediate=1
size result=3 op=size b=1 immediate=1
size result=4 op=floordiv a=3 b=1
size result=5 immediate=-9223372036854775808
guard relation=less_equal b=1 message="s0 is at most 64"
constant dtype=i64 sizes=[2,3]
kernel name="k0" key="00ff" text="kernel {\n}\n"
kernel name="k1" device=(image=1 entry="k1" threads=128 shared_bytes=1024 cluster=2 workspace can_fail waits)
buffer name="x" kind=argument index=1 sizes=[0,1] strides=[1,2] bytes=1
buffer name="t" bytes=1 first_use=1 last_use=2
buffer name="u" kind=alias index=1 dtype=c64
buffer name="f" kind=formal
step launch=(kernel=1 buffers=[0,1] sizes=[1] extent=1 grain=2 scratch_bytes=1 extents=[1,1]) prepare bytes=0 flops=1 source="model.py:7" checked="model.py:8"
step matmul=(a=(buffer=1 dtype=f64 offset=1 sizes=[0] strides=[1]) has_bias bias=(buffer=2) b_is_weight post_ops=[(kind=clip alpha=-0.0 beta=0.1),(kind=add operand=(buffer=1)),()])
step convolution=(x=(buffer=1) stride=[1,-2] padding=[0] dilation=[1] output_padding=[0] groups=4 transposed weight_gradient w_is_weight)
step attention=(q=(buffer=1) has_mask mask=(buffer=2) scale=0.125 causal)
step attention=()
step eager=(target=3 name="aten::sort" arguments=[(index=1 part=(buffer=1)),(kind=slot index=2)] results=[1,2])
step copy=(from=1 to=2)
step branch=(condition=1 else_region=1)
step loop=(trips=1 body=1)
step call=(formals=[3] actuals=[1])
region
region steps=[(copy=(from=1 to=2) source="model.py:9"),(loop=(trips=2 body=2))]
region steps=[(launch=())]
output index=1 sizes=[0] strides=[1] offset=2
output kind=integer
output kind=none
)";

TEST(PlanText, PrintingIsTheInverseOfParsing) {
  const Plan plan = parse_plan(kText, "every.plan");
  EXPECT_EQ(print_plan(plan), kText);
  EXPECT_EQ(plan.steps.size(), 10U);
  EXPECT_EQ(plan.regions.size(), 3U);
  EXPECT_EQ(plan.size_program[5].immediate, INT64_MIN);
  EXPECT_EQ(plan.kernels[1].device->block_threads, 128);
  const auto& matmul = std::get<MatmulCall>(std::get<LibraryCall>(plan.steps[1].action));
  EXPECT_EQ(matmul.post_ops[0].kind, PostOpKind::clip);
  EXPECT_EQ(matmul.post_ops[1].operand.buffer, 1U);
  EXPECT_EQ(std::get<AttentionCall>(std::get<LibraryCall>(plan.steps[4].action)).scale, 1);
}

TEST(PlanText, FieldsMayComeInAnyOrderAndLinesToo) {
  const Plan plan = parse_plan("plan slots=1 name=\"p\" output kind=none size immediate=7", "f");
  EXPECT_EQ(print_plan(plan), "plan name=\"p\" slots=1\nsize immediate=7\noutput kind=none\n");
}

std::string error_of(std::string_view text) {
  try {
    (void)parse_plan(text, "f");
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(PlanText, WhatIsNoPlanIsRefusedWithItsPlace) {
  using testing::HasSubstr;
  EXPECT_THAT(error_of("graph @g"), HasSubstr("f:1:1: expected 'plan'"));
  EXPECT_THAT(error_of("plan\nlaunch x=1"), HasSubstr("no plan has a"));
  EXPECT_THAT(error_of("plan\nsize op=power"), HasSubstr("power is no op"));
  EXPECT_THAT(error_of("plan\nsize result=-1"), HasSubstr("f:2:15: -1 is out of range"));
  EXPECT_THAT(error_of("plan\nsize result=4294967296"), HasSubstr("4294967296 is out of range"));
  EXPECT_THAT(error_of("plan\nbuffer colour=1"), HasSubstr("there is no field 'colour' here"));
  EXPECT_THAT(error_of("plan\nargument integer=1"), HasSubstr("there is no field 'integer' here"));
  EXPECT_THAT(error_of("plan\nstep launch=(buffers=[1,)"),
              HasSubstr("f:2:25: expected an integer"));
  EXPECT_THAT(error_of("plan\nstep copy=(from=1"), HasSubstr("expected ')'"));
}

}  // namespace
}  // namespace inkle::abi
