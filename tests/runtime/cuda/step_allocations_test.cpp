// When a call with donated arguments allocates and frees memory.
#include "runtime/cuda/step_allocations.h"

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
  std::vector<StepAllocations> allocations() const {
    return plan_allocations(plan, roots, bytes, is_kept);
  }
};

TEST(StepAllocationsTest, ArgumentsAreFreedAfterTheirLastUse) {
  Case c(3);
  const auto used_once = c.add(Kind::argument, 0, 1, 64);
  const auto returned = c.add(Kind::argument, 0, 0, 64);
  c.is_kept[returned] = true;
  (void)c.add(Kind::argument, 0, 0, 64, abi::DeviceKind::cpu);
  const std::vector<StepAllocations> steps = c.allocations();
  ASSERT_EQ(steps.size(), 3);
  EXPECT_TRUE(steps[0].freed.empty());
  EXPECT_EQ(steps[1].freed, Buffers{used_once});
  EXPECT_TRUE(steps[2].freed.empty());
}

TEST(StepAllocationsTest, OutputsAndLargeTemporariesAreAllocatedForTheirFirstUse) {
  Case c(3);
  const auto output = c.add(Kind::output, 1, 3, 64);
  const auto large = c.add(Kind::arena, 1, 2, kLeastAllocation);
  (void)c.add(Kind::arena, 1, 2, kLeastAllocation - 1);
  const std::vector<StepAllocations> steps = c.allocations();
  EXPECT_TRUE(steps[0].allocated.empty());
  EXPECT_EQ(steps[1].allocated, (Buffers{output, large}));
  EXPECT_EQ(steps[2].freed, Buffers{large});
}

TEST(StepAllocationsTest, AliasesUseTheMemoryThatTheyLieIn) {
  Case c(4);
  const auto root = c.add(Kind::arena, 2, 2, kLeastAllocation);
  const auto alias = c.add(Kind::alias, 1, 3, kLeastAllocation);
  c.roots[alias] = root;
  const std::vector<StepAllocations> steps = c.allocations();
  EXPECT_EQ(steps[1].allocated, Buffers{root});
  EXPECT_TRUE(steps[2].freed.empty());
  EXPECT_EQ(steps[3].freed, Buffers{root});
}

}  // namespace
}  // namespace inkle::runtime::cuda
