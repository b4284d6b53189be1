// Writers that are killed at any moment: no entry that is found is another than was put, the index
// keeps what it was told, and verify() finds nothing but files that nobody reads.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <set>
#include <thread>

#include "base/descriptor.h"
#include "base/log.h"
#include "cache/entry.h"
#include "cache/store.h"

namespace inkle::cache {
namespace {

namespace fs = std::filesystem;

// 40 kills; INKLE_LONG_TESTS=1 takes 1,000.
int kill_count() { return std::getenv("INKLE_LONG_TESTS") != nullptr ? 1000 : 40; }

constexpr int kProcesses = 8;
constexpr unsigned kKeys = 300;
constexpr unsigned kFirst = 20;  // keys that are put before anybody is killed
constexpr std::uint64_t kSmallLimit = std::uint64_t{2} << 20;

Key key_of_number(unsigned number) {
  return {{"build", "b"}, {"processor", "p"}, {"kernel", std::to_string(number)}};
}

// Up to 64 KiB, so that a write takes a while; a function of the key.
std::vector<std::byte> content_of(unsigned number) {
  std::mt19937 random(number);
  std::vector<std::byte> content(1 + random() % (64U << 10));
  for (std::byte& b : content) b = static_cast<std::byte>(random());
  return content;
}

class KilledWriters : public testing::TestWithParam<std::uint64_t> {
 protected:
  KilledWriters() { fs::create_directories(root_); }
  ~KilledWriters() override {
    set_log_sink({});
    fs::remove_all(root_);
  }

  [[nodiscard]] std::shared_ptr<Store> open() const { return Store::open(folder_, GetParam()); }

  // Lines of failures, from any process.
  void report(std::string_view line) const {
    std::ofstream(root_ / "failures", std::ios::app) << line << '\n' << std::flush;
  }

  // Runs in a process of its own.
  pid_t start(const std::function<void()>& body) const {
    const pid_t process = ::fork();
    if (process != 0) return process;
    reset_warnings();
    set_log_sink([this](std::string_view line) {
      // Others may hold the index for longer than a writer waits; that is no damage.
      const bool is_busy = line.find("database is locked") != line.npos;
      if (is_busy) std::ofstream(root_ / "busy", std::ios::app) << line << '\n';
      if (!is_busy) report(line);
    });
    body();
    ::_exit(0);
  }

  using Put = std::function<void(Store&, unsigned number)>;

  // As Store::put does.
  static void put_whole(Store& store, unsigned number) {
    store.put(key_of_number(number), content_of(number));
  }

  // As a writer without the rename would: readers may see a part of the file, and a killed writer
  // leaves it.
  void put_in_place(Store& store, unsigned number) const {
    const std::string text = inkle::cache::text_of(key_of_number(number)), name = digest_of(text);
    const fs::path folder = store.folder() / name.substr(0, 2);
    ::mkdir(folder.c_str(), 0700);
    const std::vector<std::byte> bytes = pack(text, content_of(number));
    const fs::path path = folder / (name + ".entry");
    const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (::write(file.number(), bytes.data(), bytes.size()) < 0) report("cannot write");
  }

  void write_for_ever(unsigned seed, const Put& put) const {
    std::mt19937 random(seed);
    while (true) {
      const auto store = open();
      for (int round = 0; round < 10; ++round) {
        for (int i = 0; i < 4; ++i) put_or_find(*store, random() % kKeys, put);
        store->settle();
      }
      if (random() % 8 == 0) (void)store->verify();
    }
  }

  void put_or_find(Store& store, unsigned number, const Put& put) const {
    const auto found = store.find(key_of_number(number));
    if (found && *found != content_of(number)) {
      report("entry " + std::to_string(number) + " is another");
    }
    if (!found || number % 3 == 0) put(store, number);
  }

  // Eight writers, one of which is killed and replaced again and again; in the end all are.
  void kill_writers(int kills, const Put& put) const {
    std::mt19937 random(1);
    unsigned seed = 0;
    std::array<pid_t, kProcesses> writers{};
    const auto start_writer = [&] {
      const unsigned mine = ++seed;
      return start([&] { write_for_ever(mine, put); });
    };
    const auto kill_writer = [&](pid_t process) {
      ::kill(process, SIGKILL);
      int status = 0;
      ASSERT_EQ(::waitpid(process, &status, 0), process);
      ASSERT_TRUE(WIFSIGNALED(status)) << "a writer ended by itself: " << status;
    };
    for (pid_t& writer : writers) writer = start_writer();
    for (int kill = 0; kill < kills; ++kill) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 40'000));
      pid_t& writer = writers[random() % writers.size()];
      kill_writer(writer);
      writer = start_writer();
    }
    for (const pid_t writer : writers) kill_writer(writer);
  }

  [[nodiscard]] std::size_t files(const std::function<bool(const fs::path&)>& is_counted) const {
    std::size_t count = 0;
    for (const auto& file : fs::recursive_directory_iterator(folder_)) {
      count += is_counted(file.path()) ? 1 : 0;
    }
    return count;
  }
  [[nodiscard]] std::string text_of(const char* name) const {
    std::ifstream file(root_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const fs::path root_ =
      fs::temp_directory_path() / ("inkle_kill_test_" + std::to_string(::getpid()));
  const fs::path folder_ = root_ / "kernels";
};

TEST_P(KilledWriters, LeaveNoDamage) {
  const auto began = std::chrono::steady_clock::now();
  const pid_t first = start([&] {
    const auto store = open();
    for (unsigned i = 0; i < kFirst; ++i) store->put(key_of_number(i), content_of(i));
    store->settle();
  });
  ASSERT_EQ(::waitpid(first, nullptr, 0), first);

  kill_writers(kill_count(), put_whole);
  EXPECT_EQ(text_of("failures"), "");

  const bool is_limited = GetParam() == kSmallLimit;
  const auto is_entry = [](const fs::path& p) { return p.extension() == ".entry"; };
  const auto is_part = [](const fs::path& p) {
    return p.filename().string().starts_with(".part-");
  };
  const std::size_t parts = files(is_part), entries = files(is_entry);
  EXPECT_GT(entries, kFirst);
  set_log_sink([this](std::string_view line) { report(line); });
  reset_warnings();
  {
    const Index index(folder_ / kIndexName);
    std::set<std::string> names;
    for (const Row& row : index.rows()) names.insert(row.name);
    for (unsigned i = 0; i < kFirst && !is_limited; ++i) {
      EXPECT_EQ(names.count(digest_of(inkle::cache::text_of(key_of_number(i)))), 1U) << i;
    }
  }
  const auto store = open();
  std::size_t found = 0;
  for (unsigned i = 0; i < kKeys; ++i) {
    const auto content = store->find(key_of_number(i));
    found += content ? 1 : 0;
    if (content) {
      ASSERT_EQ(*content, content_of(i)) << i;
    }
  }
  EXPECT_EQ(found, entries);
  const Store::Verified verified = store->verify();
  const std::size_t right = files(is_entry);
  EXPECT_EQ(verified.right, right);
  EXPECT_EQ(verified.deleted, parts);
  EXPECT_EQ(files(is_part), 0U);
  EXPECT_EQ(Index(folder_ / kIndexName).rows().size(), right);
  EXPECT_LE(store->stats().bytes, store->stats().limit);
  const Store::Verified again = store->verify();
  EXPECT_EQ(again.right, right);
  EXPECT_EQ(again.deleted, 0U);
  EXPECT_EQ(text_of("failures"), "");

  const std::string busy = text_of("busy");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  std::printf(
      "%d kills, %d processes, %zu entries, %zu unfinished files, index busy %zu times, "
      "%.1f s\n",
      kill_count(), kProcesses, entries, parts,
      static_cast<std::size_t>(std::count(busy.begin(), busy.end(), '\n')), seconds.count());
}

// What LeaveNoDamage would say of a store that writes its files in place.
TEST_P(KilledWriters, WithoutTheRenameDamageIsFound) {
  ASSERT_NE(open(), nullptr);
  kill_writers(40, [this](Store& store, unsigned number) { put_in_place(store, number); });
  EXPECT_NE(text_of("failures").find("is deleted and made anew"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Limits, KilledWriters, testing::Values(kDefaultLimit, kSmallLimit));

}  // namespace
}  // namespace inkle::cache
