#include "base/recent_map.h"

#include <gtest/gtest.h>

#include <string>

namespace inkle {
namespace {

TEST(RecentMap, TheLeastRecentlyUsedGoesFirst) {
  RecentMap<std::string, int> map(3);
  map.set("a", 1);
  map.set("b", 2);
  map.set("c", 3);
  ASSERT_NE(map.find("a"), nullptr);
  map.set("d", 4);
  EXPECT_FALSE(map.contains("b"));
  map.set("c", 5);  // used, too
  map.set("e", 6);
  EXPECT_FALSE(map.contains("a"));
  EXPECT_EQ(*map.find("c"), 5);
  EXPECT_EQ(*map.find("d"), 4);
  map.erase("d");
  map.erase("d");
  EXPECT_EQ(map.find("d"), nullptr);
  EXPECT_EQ(map.size(), 2U);
}

}  // namespace
}  // namespace inkle
