#include "base/concat.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "base/error.h"

namespace inkle {
namespace {

TEST(Concat, NumbersAreText) {
  EXPECT_EQ(std::string(digits(0)), "0");
  EXPECT_EQ(std::string(digits(std::numeric_limits<std::int64_t>::min())), "-9223372036854775808");
  EXPECT_EQ(std::string(numbered('v', 4294967295U)), "v4294967295");
}

TEST(Concat, PartsFollowEachOther) {
  const ShortText name = numbered('w', 12);
  EXPECT_EQ(concat({"const Pack<", "float", ", ", digits(4), "> ", name}),
            "const Pack<float, 4> w12");
  EXPECT_EQ(ShortText({name, ".at[l]"}), ShortText{"w12.at[l]"});
  EXPECT_FALSE(name == ShortText{"w1"});
}

TEST(Concat, ShortTextsHaveALimit) {
  const std::string most(47, 'x');
  EXPECT_EQ(std::string(ShortText{most}), most);
  EXPECT_THROW((ShortText{most, "y"}), InternalError);
  ShortText full{most};
  EXPECT_THROW(full.add(1), InternalError);
}

}  // namespace
}  // namespace inkle
