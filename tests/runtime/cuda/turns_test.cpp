// When a call that gives up its arguments takes and lets go of memory.
#include "runtime/cuda/turns.h"

#include <gtest/gtest.h>

#include <vector>

namespace inkle::runtime::cuda {
namespace {

using abi::BufferDecl;
using Kind = BufferDecl::Kind;
using Buffers = std::vector<abi::PlanBuffer>;

struct Case {
  abi::Plan plan;
  std::vector<abi::PlanBuffer> roots;
  std::vector<std::int64_t> bytes;
  std::vector<bool> is_kept;

  explicit Case(std::size_t steps) { plan.steps.resize(steps); }

  abi::PlanBuffer add(Kind kind, std::uint32_t first, std::uint32_t last, std::int64_t size,
                      abi::DeviceKind device = abi::DeviceKind::cuda) {
    const auto number = static_cast<abi::PlanBuffer>(roots.size());
    plan.buffers.push_back(
        {.kind = kind, .first_use = first, .last_use = last, .device = {device, 0}});
    roots.push_back(number);
    bytes.push_back(size);
    is_kept.push_back(false);
    return number;
  }
  std::vector<Turn> turns() const { return plan_turns(plan, roots, bytes, is_kept); }
};

TEST(TurnsTest, ArgumentsGoBehindTheirLastUse) {
  Case c(3);
  const auto used_once = c.add(Kind::argument, 0, 1, 64);
  const auto returned = c.add(Kind::argument, 0, 0, 64);
  c.is_kept[returned] = true;
  (void)c.add(Kind::argument, 0, 0, 64, abi::DeviceKind::cpu);
  const std::vector<Turn> turns = c.turns();
  ASSERT_EQ(turns.size(), 3);
  EXPECT_TRUE(turns[0].drops.empty());
  EXPECT_EQ(turns[1].drops, Buffers{used_once});
  EXPECT_TRUE(turns[2].drops.empty());
}

TEST(TurnsTest, OutputsAndLargeWorkingMemoryComeWithTheirFirstUse) {
  Case c(3);
  const auto output = c.add(Kind::output, 1, 3, 64);
  const auto large = c.add(Kind::arena, 1, 2, kLeastPiece);
  (void)c.add(Kind::arena, 1, 2, kLeastPiece - 1);
  const std::vector<Turn> turns = c.turns();
  EXPECT_TRUE(turns[0].takes.empty());
  EXPECT_EQ(turns[1].takes, (Buffers{output, large}));
  EXPECT_EQ(turns[2].drops, Buffers{large});
}

TEST(TurnsTest, AliasesUseTheMemoryThatTheyLieIn) {
  Case c(4);
  const auto root = c.add(Kind::arena, 2, 2, kLeastPiece);
  const auto alias = c.add(Kind::alias, 1, 3, kLeastPiece);
  c.roots[alias] = root;
  const std::vector<Turn> turns = c.turns();
  EXPECT_EQ(turns[1].takes, Buffers{root});
  EXPECT_TRUE(turns[2].drops.empty());
  EXPECT_EQ(turns[3].drops, Buffers{root});
}

}  // namespace
}  // namespace inkle::runtime::cuda
