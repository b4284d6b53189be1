// The cache's store: what was put is found, what was damaged is not, and no folder stops a program.
#include "cache/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "cache/entry.h"
#include "cache/index.h"
#include "package/format.h"
#include "package/hash.h"

namespace inkle::cache {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::byte> content(std::size_t size, int seed = 1) {
  std::vector<std::byte> made(size);
  for (std::size_t i = 0; i < size; ++i)
    made[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
  return made;
}

// 200 damaged entries; INKLE_LONG_TESTS=1 takes 10,000.
int case_count() { return std::getenv("INKLE_LONG_TESTS") != nullptr ? 10'000 : 200; }

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    fs::create_directories(root_);
    set_log_sink([this](std::string_view line) { lines_.emplace_back(line); });
    reset_warnings();
  }
  ~StoreTest() override {
    set_log_sink({});
    fs::remove_all(root_);
  }
  std::shared_ptr<Store> open(std::uint64_t limit = kDefaultLimit) {
    return Store::open(root_ / "kernels", limit);
  }
  std::vector<fs::path> entries() {
    std::vector<fs::path> found;
    for (const auto& e : fs::recursive_directory_iterator(root_)) {
      if (e.path().extension() == ".entry") found.push_back(e.path());
    }
    return found;
  }
  static std::vector<char> read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void write(const fs::path& path, const std::vector<char>& bytes) {
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

  const fs::path root_ =
      fs::temp_directory_path() / ("inkle_store_test_" + std::to_string(::getpid()));
  const Key key_{{"processor", "p"}, {"kernel", "a\nb\\c="}};
  std::vector<std::string> lines_;
};

TEST_F(StoreTest, WhatWasPutIsFoundByLaterProcesses) {
  EXPECT_EQ(open()->find(key_), std::nullopt);
  open()->put(key_, content(5000));
  EXPECT_EQ(open()->find(key_), content(5000));
  open()->put(key_, content(10, 2));
  EXPECT_EQ(open()->find(key_), content(10, 2));
  EXPECT_EQ(open()->find({{"processor", "q"}, {"kernel", "a\nb\\c="}}), std::nullopt);
  EXPECT_EQ(open()->stats().entries, 1U);
  EXPECT_EQ(key_of(text_of(key_)), key_);
  EXPECT_THAT(lines_, ElementsAre());
}

TEST_F(StoreTest, DamageIsDeletedSaidOnceAndMadeAnew) {
  std::mt19937 random(1);
  open()->put(key_, content(600));
  const fs::path path = entries().at(0);
  const std::vector<char> good = read(path);
  int refused = 0;
  for (int i = 0; i < case_count(); ++i) {
    std::vector<char> bad = good;
    const std::size_t at = random() % bad.size();
    const std::uint64_t huge = (std::uint64_t{1} << (32 + random() % 32)) - random() % 2;
    if (i % 6 == 0) bad.resize(at);
    if (i % 6 == 1) bad.resize(bad.size() + 1 + at, static_cast<char>(random()));
    if (i % 6 == 2) std::memcpy(bad.data() + std::min(at, bad.size() - 8), &huge, 8);
    if (i % 6 == 3) std::memcpy(bad.data() + 8 * (random() % 20), &huge, 8);  // header and table
    if (i % 6 > 3) bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
    write(path, bad);
    const auto found = open()->find(key_);
    refused += found ? 0 : 1;
    if (found) {
      ASSERT_EQ(*found, content(600)) << i;  // zeros between header and entry
    } else {
      ASSERT_FALSE(fs::exists(path)) << i;
    }
    open()->put(key_, content(600));
    ASSERT_EQ(read(path), good);
  }
  EXPECT_GT(refused, case_count() / 2);
  std::printf("%d entries were damaged, %d refused\n", case_count(), refused);
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_THAT(lines_[0], HasSubstr("an entry of the cache is deleted and made anew"));
}

TEST_F(StoreTest, ClaimsOfSizeAreCheckedThoughTheHashesAreRight) {
  for (const std::uint64_t claimed :
       {std::uint64_t{1} << 63, ~std::uint64_t{0}, std::uint64_t{1} << 40, std::uint64_t{4096}}) {
    std::vector<std::byte> data(100);
    std::memcpy(data.data(), &claimed, sizeof claimed);
    std::vector<package::Section> sections{
        {.kind = package::SectionKind::code, .target = "entry", .bytes = data.size()}};
    auto file = package::write_header(sections, std::vector{package::hash_of_section(data)});
    file.resize(sections[0].offset);
    file.insert(file.end(), data.begin(), data.end());
    EXPECT_THAT([&] { (void)unpack(file); },
                testing::ThrowsMessage<UserError>(HasSubstr("its key is too long")));
  }
}

TEST_F(StoreTest, AnEntryOfAnotherKeyIsNotTaken) {
  const Key other{{"processor", "q"}};
  open()->put(key_, content(10));
  const fs::path first = entries().at(0);
  open()->put(other, content(20));
  for (const fs::path& path : entries()) {
    if (path != first) fs::copy_file(first, path, fs::copy_options::overwrite_existing);
  }
  EXPECT_EQ(open()->find(other), std::nullopt);
  EXPECT_EQ(open()->find(key_), content(10));
}

TEST_F(StoreTest, TheLeastRecentlyUsedGoFirst) {
  const auto numbered = [](int i) { return Key{{"kernel", std::to_string(i)}}; };
  const auto store = open(10 * (4096 + 4000));
  for (int i = 0; i < 10; ++i) store->put(numbered(i), content(3900));
  for (const int i : {0, 3}) EXPECT_TRUE(store->find(numbered(i)));
  store->settle();
  EXPECT_EQ(store->stats().entries, 10U);
  for (int i = 10; i < 13; ++i) store->put(numbered(i), content(3900));
  store->settle();
  EXPECT_LE(store->stats().bytes, store->stats().limit);
  for (const int i : {0, 3, 12}) EXPECT_TRUE(store->find(numbered(i))) << i;
  for (const int i : {1, 2}) EXPECT_FALSE(store->find(numbered(i))) << i;
}

TEST_F(StoreTest, VerifyDeletesWhatIsWrongAndKnowsWhatIsThere) {
  const auto store = open();
  for (int i = 0; i < 4; ++i) store->put({{"kernel", std::to_string(i)}}, content(100));
  const auto all = entries();
  std::vector<char> bad = read(all[0]);
  bad.back() = static_cast<char>(bad.back() ^ 1);
  write(all[0], bad);
  fs::rename(all[1], all[1].parent_path() / (std::string(64, 'f') + ".entry"));
  write(all[2].parent_path() / ".part-999999999-0", {'x'});
  write(all[2].parent_path() / (".part-" + std::to_string(::getpid()) + "-0"), {'x'});
  fs::remove(store->folder() / kIndexName);
  const auto again = open();
  const Store::Verified verified = again->verify();
  EXPECT_EQ(verified.right, 2U);
  EXPECT_EQ(verified.deleted, 3U);
  EXPECT_EQ(again->stats().entries, 2U);
  EXPECT_EQ(again->clear(), 2U);
  EXPECT_EQ(again->stats().entries, 0U);
}

TEST_F(StoreTest, ExplainsWhatMissedAndWhichFieldDiffers) {
  const auto store = open();
  const std::string digest = digest_of("text");
  store->put({{"code", "1"}, {"processor", "p"}, {"kernel", digest}}, content(10));
  EXPECT_FALSE(store->find({{"code", "2"}, {"processor", "p"}, {"kernel", digest}}, "softmax_0"));
  store->settle();
  const std::string first = "kernel softmax_0 " + digest.substr(0, 12) + ": code: 2, not 1";
  EXPECT_THAT(store->explain(), ElementsAre(first));
  EXPECT_FALSE(store->find({{"code", "1"}, {"processor", "p"}, {"kernel", "j"}}));
  EXPECT_FALSE(store->find({{"processor", "p"}, {"kernel", digest}}, "softmax_1"));
  EXPECT_FALSE(store->find({{"code", "1"}, {"processor", "p"}, {"graph", "j"}}, "main"));
  store->settle();
  EXPECT_THAT(store->explain(),
              ElementsAre("graph main j: no other entry is of this graph",
                          "kernel softmax_1 " + digest.substr(0, 12) + ": code: nothing, not 1",
                          "kernel j: no other entry is of this kernel", first));
}

TEST_F(StoreTest, OthersFoldersAndLinksAreRefused) {
  fs::create_directories(root_ / "other");
  fs::create_symlink(root_ / "other", root_ / "kernels");
  EXPECT_EQ(open(), nullptr);
  EXPECT_THAT(lines_.at(0), HasSubstr("nothing is cached"));
  fs::remove(root_ / "kernels");
  fs::create_directories(root_ / "kernels");
  ::chmod((root_ / "kernels").c_str(), 0777);
  EXPECT_EQ(open(), nullptr);
  ::chmod((root_ / "kernels").c_str(), 0700);
  const auto store = open();
  ASSERT_NE(store, nullptr);
  store->put(key_, content(10));
  const fs::path path = entries().at(0);
  ::chmod(path.c_str(), 0666);
  EXPECT_EQ(store->find(key_), std::nullopt);
  store->put(key_, content(10));
  fs::rename(path, root_ / "elsewhere");
  fs::create_symlink(root_ / "elsewhere", path);
  EXPECT_EQ(store->find(key_), std::nullopt);
}

// Neither read nor written; entries are found without it.
TEST_F(StoreTest, AnIndexThatIsNotOursAloneIsNotUsed) {
  open()->put(key_, content(10));
  const fs::path index = root_ / "kernels" / kIndexName;
  const std::vector<char> before = read(index);
  const auto expect_left = [&](std::string_view why) {
    reset_warnings();
    lines_.clear();
    const auto store = open();
    EXPECT_EQ(store->find(key_), content(10));
    store->put(key_, content(10));
    store->settle();
    EXPECT_EQ(read(index), before);
    ASSERT_EQ(lines_.size(), 1U) << why;
    EXPECT_THAT(lines_[0], HasSubstr(why));
  };
  ASSERT_EQ(::chmod(index.c_str(), 0666), 0);
  expect_left("index-3.db may be written by other users");
  ASSERT_EQ(::chmod(index.c_str(), 0600), 0);
  write(index.string() + "-wal", {'x'});
  ASSERT_EQ(::chmod((index.string() + "-wal").c_str(), 0620), 0);
  expect_left("index-3.db-wal may be written by other users");
  fs::remove(index.string() + "-wal");
  if (::geteuid() == 0) {  // nobody else can give a file away
    ASSERT_EQ(::chown(index.c_str(), 65534, 65534), 0);
    expect_left("index-3.db belongs to another user");
    ASSERT_EQ(::chown(index.c_str(), 0, 0), 0);
  }
  fs::rename(index, root_ / "elsewhere");
  fs::create_symlink(root_ / "elsewhere", index);
  expect_left("index-3.db is no file");
}

TEST_F(StoreTest, ALinkInThePathOfAnEntryIsNotFollowed) {
  open()->put(key_, content(10));
  const fs::path folder = entries().at(0).parent_path(), elsewhere = root_ / "elsewhere";
  fs::rename(folder, elsewhere);
  fs::create_symlink(elsewhere, folder);
  const auto store = open();
  EXPECT_EQ(store->find(key_), std::nullopt);
  store->put(key_, content(20));
  EXPECT_EQ(store->find(key_), std::nullopt);
  EXPECT_EQ(store->verify().deleted, 0U);
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_THAT(lines_[0], HasSubstr("is no folder"));
  fs::remove(folder);
  fs::rename(elsewhere, folder);
  EXPECT_EQ(open()->find(key_), content(10));
}

// Whatever the clock says, the least recently used go first.
TEST_F(StoreTest, TimesOfFilesDoNotMatter) {
  const auto numbered = [](int i) { return Key{{"kernel", std::to_string(i)}}; };
  const auto store = open(4 * (4096 + 4000));
  for (int i = 0; i < 4; ++i) store->put(numbered(i), content(3900));
  store->settle();
  for (const fs::path& path : entries()) {
    fs::last_write_time(path, fs::file_time_type::clock::now() + std::chrono::hours(1'000'000));
  }
  store->put(numbered(4), content(3900));
  store->settle();
  EXPECT_TRUE(store->find(numbered(4)));
  EXPECT_FALSE(store->find(numbered(0)));
  EXPECT_EQ(lines_.size(), 0U);
}

TEST_F(StoreTest, TwoBuildsShareAFolder) {
  const auto of_build = [](const char* build) {
    return Key{{"build", build}, {"processor", "p"}, {"kernel", "k"}};
  };
  const auto first = open(), second = open();
  first->put(of_build("1"), content(10, 1));
  EXPECT_EQ(second->find(of_build("2")), std::nullopt);
  second->put(of_build("2"), content(20, 2));
  first->settle();
  second->settle();
  EXPECT_EQ(first->find(of_build("1")), content(10, 1));
  EXPECT_EQ(second->find(of_build("2")), content(20, 2));
  EXPECT_THAT(second->explain(), ElementsAre("kernel k: build: 2, not 1"));
  EXPECT_EQ(open()->verify().right, 2U);
  EXPECT_THAT(lines_, ElementsAre());
}

// A file of a format that this build cannot read.
std::vector<char> with_version(std::vector<char> file, std::size_t at, std::uint32_t version) {
  package::FileHeader header;
  std::memcpy(&header, file.data(), sizeof header);
  const std::size_t table = header.section_count * sizeof(package::SectionEntry);
  std::memcpy(file.data() + at, &version, sizeof version);
  const auto start = std::as_writable_bytes(std::span(file.data(), sizeof header + table));
  std::fill_n(start.begin() + offsetof(package::FileHeader, hash), sizeof header.hash, std::byte{});
  header.hash = package::hash_of_header(start);
  std::memcpy(file.data() + offsetof(package::FileHeader, hash), &header.hash, sizeof header.hash);
  return file;
}

TEST_F(StoreTest, EntriesOfAnotherFormatStay) {
  open()->put(key_, content(10));
  const fs::path path = entries().at(0);
  const std::vector<char> good = read(path);
  for (const std::size_t at : {offsetof(package::FileHeader, format_version),
                               offsetof(package::FileHeader, abi_version)}) {
    std::vector<char> other = with_version(good, at, 2);
    for (const bool has_our_layout : {true, false}) {
      if (!has_our_layout) {
        other.resize(sizeof(package::FileHeader) + 10);
        const std::uint32_t many = 1000;
        std::memcpy(other.data() + offsetof(package::FileHeader, section_count), &many, 4);
      }
      write(path, other);
      const auto store = open();
      EXPECT_EQ(store->find(key_), std::nullopt);
      const Store::Verified verified = store->verify();
      EXPECT_EQ(verified.deleted, 0U);
      EXPECT_EQ(verified.of_other_versions, 1U);
      EXPECT_EQ(read(path), other);
      EXPECT_THAT(lines_, ElementsAre());
      store->put(key_, content(10));
      EXPECT_EQ(read(path), good);
    }
    // A file of ours whose version was damaged is of no other version.
    std::vector<char> damaged = good;
    damaged[at] = 2;
    write(path, damaged);
    EXPECT_EQ(open()->verify().deleted, 1U);
    EXPECT_FALSE(fs::exists(path));
  }
}

// Each of two processes sees what the other has changed.
TEST_F(StoreTest, TheIndexAddsUpWhatIsThere) {
  fs::create_directories(root_);
  Index one(root_ / "index"), other(root_ / "index");
  EXPECT_EQ(one.bytes(), 0U);
  one.update({{"a", 100, key_}, {"b", 20, key_}}, {});
  other.update({{"c", 3, key_}, {"a", 100, key_}}, {});
  EXPECT_EQ(one.bytes(), 123U);
  other.update({{"b", 50, key_}, {"b", 40, key_}}, {});
  EXPECT_EQ(one.bytes(), 143U);
  one.remove({"a", "unknown"});
  EXPECT_EQ(other.bytes(), 43U);
  other.clear();
  EXPECT_EQ(one.bytes(), 0U);
  one.update({{"a", 7, key_}}, {});
  EXPECT_EQ(other.bytes(), 7U);
}

// It is not even opened.
TEST_F(StoreTest, IndexesOfOtherLayoutsStay) {
  const std::vector<char> bytes{'t', 'a', 'b', 'l', 'e', 's'};
  fs::create_directories(root_ / "kernels");
  const std::vector<fs::path> others{root_ / "kernels" / "index-2.db",
                                     root_ / "kernels" / "index-4.db"};
  for (const fs::path& path : others) write(path, bytes);
  const auto store = open();
  store->put(key_, content(10));
  EXPECT_EQ(store->find(key_), content(10));
  store->settle();
  EXPECT_EQ(Index(root_ / "kernels" / kIndexName).rows().size(), 1U);
  EXPECT_EQ(store->verify().right, 1U);
  EXPECT_EQ(store->clear(), 1U);
  for (const fs::path& path : others) EXPECT_EQ(read(path), bytes);
  EXPECT_THAT(lines_, ElementsAre());
}

TEST_F(StoreTest, AFileInPlaceOfAFolderStopsNobody) {
  write(root_ / "kernels", {'x'});
  EXPECT_EQ(open(), nullptr);
  fs::remove(root_ / "kernels");
  const auto store = open();
  fs::remove_all(root_ / "kernels");
  write(root_ / "kernels", {'x'});
  store->put(key_, content(10));
  EXPECT_EQ(store->find(key_), std::nullopt);
  store->settle();
}

TEST_F(StoreTest, SeveralMayBeTheFirst) {
  constexpr int kTurns = 50, kOpeners = 8;
  for (int turn = 0; turn < kTurns; ++turn) {
    const fs::path folder = root_ / std::to_string(turn);
    std::barrier at_once(kOpeners);
    std::vector<std::thread> openers;
    for (int n = 0; n < kOpeners; ++n) {
      openers.emplace_back([&, n] {
        at_once.arrive_and_wait();
        const auto store = Store::open(folder);
        const Key key{{"kernel", std::to_string(n)}};
        store->put(key, content(100));
        store->settle();
      });
    }
    for (std::thread& opener : openers) opener.join();
    const auto rows = Index(folder / kIndexName).rows();
    EXPECT_EQ(rows.size(), kOpeners);
  }
  EXPECT_THAT(lines_, testing::IsEmpty());
}

TEST_F(StoreTest, SeveralWritersLeaveWholeEntries) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto store = open();
      for (int i = 0; i < 20; ++i) {
        store->put({{"kernel", std::to_string(i)}}, content(300, i));
        const auto found = store->find({{"kernel", std::to_string((i + t) % 20)}});
        if (found) {
          EXPECT_EQ(*found, content(300, (i + t) % 20));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(open()->verify().right, 20U);
}

}  // namespace
}  // namespace inkle::cache
