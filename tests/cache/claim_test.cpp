// Who waits for whom: holders that keep their entry, that keep none, that are killed, that hang.
#include "cache/claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "base/log.h"
#include "cache/store.h"

namespace inkle::cache {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ClaimTest : public testing::Test {
 protected:
  ClaimTest() {
    fs::create_directories(root_);
    set_log_sink([this](std::string_view line) { lines_.emplace_back(line); });
    reset_warnings();
  }
  ~ClaimTest() override {
    set_log_sink({});
    fs::remove_all(root_);
  }
  Claim claim(milliseconds patience = seconds(60)) { return {lock_, patience, {}}; }

  // A process that has the lock, and does nothing.
  pid_t start_holder() {
    const pid_t process = ::fork();
    if (process == 0) {
      const Claim held = claim();
      std::ofstream(root_ / "held") << held.is_held();
      while (true) ::pause();
    }
    while (!fs::exists(root_ / "held")) std::this_thread::sleep_for(milliseconds(1));
    return process;
  }
  static void kill(pid_t process) {
    ::kill(process, SIGKILL);
    ASSERT_EQ(::waitpid(process, nullptr, 0), process);
  }

  const fs::path root_ =
      fs::temp_directory_path() / ("inkle_claim_test_" + std::to_string(::getpid()));
  const fs::path lock_ = root_ / ".lock-1";
  std::vector<std::string> lines_;
};

TEST_F(ClaimTest, OneMakesItAndTheOthersFindIt) {
  std::atomic<int> made = 0, found = 0, entries = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      Claim held = claim();
      EXPECT_TRUE(held.is_held());
      if (entries > 0) {
        ++found;
        held.kept();
        return;
      }
      std::this_thread::sleep_for(milliseconds(20));
      ++made;
      ++entries;
      held.kept();
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(found, 7);
  EXPECT_FALSE(fs::exists(lock_));
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(ClaimTest, WhoeverKeepsNothingIsNotWaitedForAgain) {
  std::optional<Claim> first(claim());
  std::vector<std::thread> threads;
  std::atomic<int> waiting = 0, free = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      ++waiting;
      const Claim other = claim();
      EXPECT_TRUE(other.has_waited());
      if (!other.is_held()) ++free;
    });
  }
  while (waiting < 4) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(100));
  first.reset();
  for (std::thread& t : threads) t.join();
  EXPECT_GE(free, 3);  // one may have taken the lock before it looked
}

TEST_F(ClaimTest, AKilledHolderIsReplaced) {
  for (int i = 0; i < 20; ++i) {
    fs::remove(root_ / "held");
    const pid_t holder = start_holder();
    std::thread killer([&] {
      std::this_thread::sleep_for(milliseconds(i));
      kill(holder);
    });
    Claim after = claim();
    killer.join();
    EXPECT_TRUE(after.is_held());
    after.kept();
  }
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(ClaimTest, PatienceEndsWithOneLine) {
  const pid_t holder = start_holder();
  for (int i = 0; i < 2; ++i) {
    const Claim after = claim(milliseconds(30));
    EXPECT_TRUE(!after.is_held() && after.has_waited());
  }
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("is not waited for")));
  kill(holder);
}

TEST_F(ClaimTest, HostsAreToldOfTheWait) {
  const pid_t holder = start_holder();
  int calls = 0;
  const Claim after(lock_, seconds(60), [&](const std::function<void()>& wait) {
    ++calls;
    kill(holder);
    wait();
  });
  EXPECT_TRUE(after.is_held());
  EXPECT_EQ(calls, 1);
}

TEST_F(ClaimTest, WithoutAFileNobodyWaits) {
  const Claim none(root_ / "no folder" / "x", seconds(60), {});
  EXPECT_FALSE(none.is_held() || none.has_waited());
  fs::create_symlink(root_ / "elsewhere", lock_);
  EXPECT_FALSE(claim().is_held());
  EXPECT_FALSE(fs::exists(root_ / "elsewhere"));
}

TEST_F(ClaimTest, VerifyDeletesWhatNobodyHolds) {
  const Key key{{"processor", "p"}, {"kernel", "a"}};
  const auto store = Store::open(root_ / "kernels");
  {
    const Claim held = store->claim(key, {});
    EXPECT_TRUE(held.is_held());
    EXPECT_EQ(store->verify().deleted, 0U);
    EXPECT_EQ(store->stats().entries, 0U);
  }
  const std::string name = digest_of(text_of(key));
  std::ofstream(root_ / "kernels" / name.substr(0, 2) / (".lock-" + name)) << "left";
  EXPECT_EQ(store->verify().deleted, 1U);
  EXPECT_THAT(lines_, IsEmpty());
}

}  // namespace
}  // namespace inkle::cache
