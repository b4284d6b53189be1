#include <gtest/gtest.h>

#include "runtime/cpu/plan_builder.h"

namespace inkle::runtime::cpu {
namespace {

TEST(PlanText, EveryKindOfLine) {
  using Op = abi::SizeInstruction::Op;
  PlanBuilder b;
  b.plan.arguments.push_back({.name = "s0", .is_integer = true});
  const auto s0 = b.instruction({.op = Op::argument, .immediate = 0});
  const auto one = b.slot(1);
  const auto sum = b.instruction({.op = Op::add, .a = s0, .b = one});
  const auto product = b.instruction({.op = Op::mul, .a = sum, .b = b.slot(64)});
  b.plan.guards.push_back({.relation = abi::Guard::Relation::less, .a = s0, .b = b.slot(4096)});
  const auto x = b.argument("x", {8, 64});
  const auto w = b.argument("w", {32, 64}, {}, DType::f32, true);
  const auto t = b.arena("t", {8, 64}, 0, 1);
  const auto y = b.output("y", {8, 32}, {1, 8});
  b.launch([](void* const*, const std::int64_t*, void*, std::int64_t, std::int64_t) {}, {x, t},
           {64}, 8);
  std::get<abi::Launch>(b.plan.steps[0].action).extent = product;
  abi::MatmulCall m;
  m.a = b.operand(t);
  m.b = b.operand(w, {64, 32}, {1, 64});
  m.c = b.operand(y);
  m.post_ops = {{.kind = abi::PostOpKind::gelu_erf},
                {.kind = abi::PostOpKind::add, .operand = b.operand(x, {8, 32}, {64, 1}, 32)}};
  b.call(m);
  b.plan.steps.push_back({.action = abi::CopyStep{.from = x, .to = t}});
  b.plan.outputs.push_back({.kind = abi::PlanOutput::Kind::buffer,
                            .index = y,
                            .sizes = b.slots({8}),
                            .strides = b.slots({1}),
                            .offset = b.slot(8)});
  b.plan.outputs.push_back({.kind = abi::PlanOutput::Kind::argument, .index = 1});
  b.plan.outputs.push_back({.kind = abi::PlanOutput::Kind::integer, .index = sum});
  EXPECT_EQ(abi::to_string(b.plan), R"(plan @test(s0: int, x: f32[8,64], w: f32[32,64] parameter) {
  guard s0 < 4096
  t = arena f32[8,64] in steps 0..1
  y = output f32[8,32] strides (1,8)
  launch k0 (x, t) over (s0 + 1)*64 sizes [64]  # model.py:7
  call matmul (t[8,64], w[64,32; 1,64]) -> y[8,32; 1,8] post-ops {gelu_erf, add x[8,32; 64,1]+32}  # model.py:9
  copy x -> t
  return y, y[8]+8, x, s0 + 1
}
)");
}

}  // namespace
}  // namespace inkle::runtime::cpu
