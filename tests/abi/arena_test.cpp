#include "abi/arena.h"

#include <gtest/gtest.h>

#include <random>

namespace inkle::abi {
namespace {

TEST(Arena, ReusesWhatIsDead) {
  const std::vector<Lifetime> l = {{100, 0, 1}, {100, 1, 2}, {100, 2, 3}, {0, 0, 3}};
  const ArenaLayout layout = assign_offsets(l);
  EXPECT_EQ(layout.offsets, (std::vector<std::int64_t>{0, 128, 0, 0}));
  EXPECT_EQ(layout.bytes, 256);
  EXPECT_EQ(peak_bytes(l), 256);
}

TEST(Arena, TakesTheTightestGap) {
  // 512 and 128 bytes fall free at step 1 between blocks that stay; 64 bytes go where 128 were.
  const std::vector<Lifetime> l = {{1024, 0, 9}, {512, 0, 0}, {256, 0, 9}, {128, 0, 0}, {64, 1, 9}};
  const ArenaLayout layout = assign_offsets(l);
  EXPECT_EQ(layout.bytes, peak_bytes(l));
}

TEST(Arena, NothingAtAll) {
  EXPECT_EQ(assign_offsets({}).bytes, 0);
  EXPECT_EQ(peak_bytes({}), 0);
}

TEST(Arena, NoTwoLiveBuffersOverlap) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> l;
    const std::size_t count = random() % 60;
    for (std::size_t i = 0; i < count; ++i) {
      const auto first = static_cast<std::uint32_t>(random() % 30);
      const auto last = first + static_cast<std::uint32_t>(random() % 8);
      l.push_back({static_cast<std::int64_t>(random() % 5000), first, last});
    }
    const ArenaLayout layout = assign_offsets(l);
    for (std::size_t i = 0; i < l.size(); ++i) {
      ASSERT_EQ(layout.offsets[i] % kArenaAlignment, 0);
      ASSERT_LE(layout.offsets[i] + l[i].bytes, layout.bytes);
      for (std::size_t j = 0; j < i; ++j) {
        const bool in_time = l[i].first <= l[j].last && l[j].first <= l[i].last;
        const bool in_space = layout.offsets[i] < layout.offsets[j] + l[j].bytes &&
                              layout.offsets[j] < layout.offsets[i] + l[i].bytes;
        ASSERT_FALSE(in_time && in_space && l[i].bytes > 0 && l[j].bytes > 0);
      }
    }
    ASSERT_GE(layout.bytes, peak_bytes(l));
    ASSERT_LE(layout.bytes, 2 * peak_bytes(l));
    ASSERT_EQ(assign_offsets(l).offsets, layout.offsets);
  }
}

}  // namespace
}  // namespace inkle::abi
