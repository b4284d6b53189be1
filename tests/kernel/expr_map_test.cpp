#include "kernel/expr_map.h"

#include <gtest/gtest.h>

namespace inkle::kernel {
namespace {

TEST(ExprMap, KeepsWhatIsAddedWhileItGrows) {
  sym::Context context;
  ExprMap<int> map;
  EXPECT_EQ(map.find(context.constant(0)), nullptr);
  for (int i = 0; i < 1000; ++i) {
    const auto [value, is_new] = map.add(context.constant(i));
    EXPECT_TRUE(is_new);
    EXPECT_EQ(*value, 0);
    *value = i;
  }
  for (int i = 0; i < 1000; ++i) {
    const int* const known = map.find(context.constant(i));
    ASSERT_NE(known, nullptr);
    EXPECT_EQ(*known, i);
    EXPECT_FALSE(map.add(context.constant(i)).second);
  }
  EXPECT_EQ(map.find(context.constant(1000)), nullptr);
}

}  // namespace
}  // namespace inkle::kernel
