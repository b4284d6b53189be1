#include "base/threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace inkle {
namespace {

using Parts = std::set<std::pair<std::int64_t, std::int64_t>>;

Parts parts_of(std::int64_t begin, std::int64_t end, std::int64_t grain) {
  std::mutex mutex;
  Parts parts;
  parallel_for(begin, end, grain, [&](std::int64_t first, std::int64_t last) {
    const std::lock_guard lock(mutex);
    parts.emplace(first, last);
  });
  return parts;
}

class ThreadsTest : public testing::Test {
 protected:
  ThreadsTest() { set_num_threads(3); }
  ~ThreadsTest() override { set_num_threads(before_); }

 private:
  int before_ = num_threads();
};

TEST_F(ThreadsTest, CoversTheRangeOnceInEqualParts) {
  EXPECT_EQ(parts_of(10, 21, 1), (Parts{{10, 14}, {14, 18}, {18, 21}}));
  EXPECT_EQ(parts_of(-2, 1, 1), (Parts{{-2, -1}, {-1, 0}, {0, 1}}));
}

TEST_F(ThreadsTest, NoPartIsBelowTheGrain) {
  EXPECT_EQ(parts_of(0, 11, 4), (Parts{{0, 6}, {6, 11}}));
  EXPECT_EQ(parts_of(0, 7, 4), (Parts{{0, 7}}));
  EXPECT_EQ(parts_of(0, 3, 100), (Parts{{0, 3}}));
  EXPECT_EQ(parts_of(0, 3, 0), (Parts{{0, 1}, {1, 2}, {2, 3}}));
}

TEST_F(ThreadsTest, EmptyRangeCallsNothing) {
  EXPECT_EQ(parts_of(5, 5, 1), Parts{});
  EXPECT_EQ(parts_of(5, 4, 1), Parts{});
}

TEST_F(ThreadsTest, PartsRunOnDifferentThreads) {
  std::mutex mutex;
  std::set<std::thread::id> ids;
  std::atomic<int> arrived = 0;
  parallel_for(0, 3, 1, [&](std::int64_t, std::int64_t) {
    ++arrived;
    while (arrived.load() < 3) std::this_thread::yield();
    const std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(ids.size(), 3U);
}

TEST_F(ThreadsTest, NestedCallsRunSerially) {
  std::atomic<int> inner = 0;
  parallel_for(0, 3, 1, [&](std::int64_t, std::int64_t) {
    EXPECT_EQ(num_threads(), 1);
    parallel_for(0, 100, 1, [&](std::int64_t first, std::int64_t last) {
      EXPECT_EQ(last - first, 100);
      ++inner;
    });
  });
  EXPECT_EQ(inner.load(), 3);
  EXPECT_EQ(num_threads(), 3);
}

TEST_F(ThreadsTest, RethrowsTheFirstFailureAfterAllPartsEnded) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> ended = 0;
    try {
      parallel_for(0, 3, 1, [&](std::int64_t first, std::int64_t) {
        ++ended;
        if (first > 0) unsupported("part {}", first);
      });
      FAIL() << "no error";
    } catch (const Unsupported& error) {
      EXPECT_STREQ(error.what(), "part 1");
    }
    EXPECT_EQ(ended.load(), 3);
  }
}

TEST_F(ThreadsTest, RawBodyGetsItsContext) {
  std::vector<int> counts(1000, 0);
  parallel_run(
      [](void* context, std::int64_t first, std::int64_t last) {
        auto& all = *static_cast<std::vector<int>*>(context);
        for (std::int64_t i = first; i < last; ++i) ++all[static_cast<std::size_t>(i)];
      },
      &counts, 0, 1000, 1);
  EXPECT_EQ(counts, std::vector<int>(1000, 1));
}

TEST_F(ThreadsTest, FewerThanOneThreadIsAnError) {
  EXPECT_THROW(set_num_threads(0), UserError);
  EXPECT_THROW(set_num_threads(-4), UserError);
  EXPECT_EQ(num_threads(), 3);
}

TEST_F(ThreadsTest, ForkedChildRunsSeriallyAndSaysSoOnce) {
  parts_of(0, 3, 1);  // the pool exists before the fork
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    int lines = 0;
    reset_warnings();
    set_log_sink([&](std::string_view) { ++lines; });
    const bool serial = parts_of(0, 30, 1) == Parts{{0, 30}} && parts_of(0, 9, 1) == Parts{{0, 9}};
    _exit(serial && lines == 1 && num_threads() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(parts_of(0, 3, 1).size(), 3U);
}

}  // namespace
}  // namespace inkle
