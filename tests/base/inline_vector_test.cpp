#include "base/inline_vector.h"

#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

namespace inkle {
namespace {

using Small = InlineVector<int, 3>;

std::vector<int> all(const Small& v) { return {v.begin(), v.end()}; }

TEST(InlineVector, HoldsWhatAVectorHolds) {
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) { return static_cast<std::ptrdiff_t>(random() % n); };
  Small small;
  std::vector<int> vector;
  for (int step = 0; step < 3000; ++step) {
    const std::ptrdiff_t at = below(vector.size() + 1);
    switch (below(7)) {
      case 0:
      case 1:
        small.push_back(step);
        vector.push_back(step);
        break;
      case 2: {
        const std::vector<int> more(static_cast<std::size_t>(below(4)), step);
        small.insert(small.begin() + at, more.begin(), more.end());
        vector.insert(vector.begin() + at, more.begin(), more.end());
        break;
      }
      case 3:
        if (vector.empty()) break;
        small.erase(small.begin() + at, small.end());
        vector.erase(vector.begin() + at, vector.end());
        break;
      case 4: {
        Small copy = small;
        small = {step};
        small = std::move(copy);
        EXPECT_TRUE(copy.empty());  // NOLINT(bugprone-use-after-move)
        break;
      }
      case 5:
        small.resize(static_cast<std::size_t>(at) + 1, 9);
        vector.resize(static_cast<std::size_t>(at) + 1, 9);
        break;
      default:
        small = Small(small.begin(), small.begin() + at);
        vector.resize(static_cast<std::size_t>(at));
    }
    ASSERT_EQ(all(small), vector) << step;
  }
}

TEST(InlineVector, CopiesAreApart) {
  Small a = {1, 2, 3, 4};
  Small b = a;
  b[0] = 5;
  EXPECT_EQ(all(a), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_FALSE(a == b);
  a = b;
  EXPECT_TRUE(a == b);
  EXPECT_EQ(a.at(3), 4);
  EXPECT_THROW((void)a.at(4), std::out_of_range);
}

}  // namespace
}  // namespace inkle
