#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace inkle {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class LogTest : public testing::Test {
 protected:
  LogTest() {
    set_log_sink([this](std::string_view line) { lines_.emplace_back(line); });
    set_log_channels("");
    reset_warnings();
  }
  ~LogTest() override {
    set_log_sink({});
    set_log_channels("");
  }

  std::vector<std::string> lines_;
};

TEST_F(LogTest, ChannelsAreSilentUntilNamed) {
  log(LogChannel::fusion, "n{}+n{}", 0, 1);
  EXPECT_THAT(lines_, IsEmpty());
  set_log_channels("passes,fusion");
  EXPECT_TRUE(log_enabled(LogChannel::passes));
  EXPECT_FALSE(log_enabled(LogChannel::cache));
  log(LogChannel::fusion, "n{}+n{}", 0, 1);
  log(LogChannel::cache, "arena {}", 7);
  EXPECT_THAT(lines_, ElementsAre("inkle fusion: n0+n1"));
}

TEST_F(LogTest, AllNamesEveryChannel) {
  set_log_channels("all");
  EXPECT_THAT(log_channels(), Contains("fusion"));
  for (std::size_t c = 0; c < log_channels().size(); ++c) {
    EXPECT_TRUE(log_enabled(static_cast<LogChannel>(c))) << log_channels()[c];
    EXPECT_EQ(name(static_cast<LogChannel>(c)), log_channels()[c]);
  }
}

TEST_F(LogTest, UnknownChannelIsAnErrorAndChangesNothing) {
  set_log_channels("codegen");
  try {
    set_log_channels("fusion,fuson");
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("unknown log channel fuson, expected all or some of"));
    EXPECT_THAT(error.what(), HasSubstr("fusion"));
  }
  EXPECT_TRUE(log_enabled(LogChannel::codegen));
  EXPECT_FALSE(log_enabled(LogChannel::fusion));
}

TEST_F(LogTest, WarnsOncePerKey) {
  EXPECT_TRUE(warn("a", "first {}", 1));
  EXPECT_FALSE(warn("a", "second {}", 2));
  EXPECT_TRUE(warn("b", "third"));
  EXPECT_THAT(lines_, ElementsAre("inkle warning: first 1", "inkle warning: third"));
}

TEST_F(LogTest, WithoutSinkLinesGoToStandardError) {
  set_log_sink({});
  testing::internal::CaptureStderr();
  warn("c", "braces {} stay", "{}");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "inkle warning: braces {} stay\n");
}

}  // namespace
}  // namespace inkle
