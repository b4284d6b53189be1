// Measured schedules in the cache: found by a later process, and never in its way.
#include "driver/measured.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "abi/targets.h"
#include "base/log.h"
#include "codegen/cuda/compiler.h"
#include "driver/pipeline.h"
#include "graph/text.h"
#include "ops/table.h"
#include "runtime/cuda/null_device.h"

namespace inkle::driver {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kArchitecture = "sm_90a";

constexpr std::string_view kSoftmax = R"(
graph @f(%x: bf16[1024,8192]) -> bf16[1024,8192] {
  %0: bf16[1024,8192] = _softmax(%x, -1, false)
  return %0
}
)";

// Programs measured on a device of their own, as by processes that share a folder.
class MeasuredTest : public testing::Test {
 protected:
  struct Run {
    std::string plan;  // with the schedules
    std::size_t launches = 0;
  };

  // `fastest`: threads of a block of the schedule that takes the least time.
  Run run(std::uint32_t fastest, std::int32_t driver = 13000) const {
    abi::DeviceDescription description = abi::typical_device(kArchitecture);
    description.driver_version = driver;
    const auto device = runtime::cuda::make_null_device(description);
    device->set_clock([&](const runtime::cuda::LaunchShape& shape) {
      return shape.threads == fastest ? 1.0 : 2.0;
    });
    Compiler compiler(make_target(device, [store = open()] { return store; }));
    CompileOptions options;
    options.tune = true;
    Run result;
    options.dump = [&](std::string_view stage, const std::string& text) {
      if (stage == "kernels") result.plan = text;
    };
    graph::Graph graph = graph::parse(kSoftmax, "test.ir", ops::op_table());
    for (std::uint32_t v = 0; v < graph.value_count(); ++v) {
      graph.type(graph::ValueId{v}).device = {abi::DeviceKind::cuda, 0};
    }
    (void)compiler.compile(std::move(graph), options);
    result.launches = device->take_launches().size();
    return result;
  }

  std::shared_ptr<cache::Store> open(std::uint64_t limit = cache::kDefaultLimit) const {
    return cache::Store::open(folder_, limit);
  }

  // Of one entry that is not right: a run does not take it, and leaves one that is.
  void expect_measured_anew() const {
    const Run again = run(512);
    EXPECT_GT(again.launches, 20U);
    EXPECT_THAT(again.plan, testing::HasSubstr("rows threads 512 "));
    EXPECT_EQ(run(128).launches, 0U);
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> result;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.path().extension() == ".entry") result.push_back(entry.path());
    }
    return result;
  }

  std::ptrdiff_t warnings() const {
    std::ptrdiff_t count = 0;
    constexpr std::string_view kWarning = "inkle warning: ";
    for (std::size_t at = said_.find(kWarning); at != said_.npos;
         at = said_.find(kWarning, at + 1)) {
      ++count;
    }
    return count;
  }

  void SetUp() override {
    std::string why_not;
    if (!codegen::cuda::find_nvrtc(why_not)) GTEST_SKIP() << why_not;
    set_log_channels("cache");
    reset_warnings();
    set_log_sink([this](std::string_view line) { said_ += std::string(line) + "\n"; });
  }
  void TearDown() override {
    set_log_sink({});
    set_log_channels("");
    fs::remove_all(root_);
  }

  const fs::path root_ = fs::path(testing::TempDir()) / fmt::format("measured{}", ::getpid());
  const fs::path folder_ = root_ / "inkle" / "kernels";
  std::string said_;
};

TEST_F(MeasuredTest, IsFoundByALaterProcess) {
  const Run first = run(512);
  EXPECT_THAT(first.plan, testing::HasSubstr("rows threads 512 "));
  EXPECT_GT(first.launches, 20U);
  EXPECT_EQ(files().size(), 1U);
  // Were it measured again, another would be the fastest.
  const Run second = run(128);
  EXPECT_EQ(second.launches, 0U);
  EXPECT_EQ(second.plan, first.plan);
  EXPECT_THAT(said_, testing::HasSubstr("measured before"));
  EXPECT_EQ(warnings(), 0);
}

TEST_F(MeasuredTest, IsOfOneDriver) {
  (void)run(512);
  const Run other = run(128, 13010);
  EXPECT_THAT(other.plan, testing::HasSubstr("rows threads 128 "));
  EXPECT_EQ(files().size(), 2U);
  EXPECT_THAT(open()->explain(),
              testing::Contains(testing::ContainsRegex("machine: .*13010, not")));
}

TEST_F(MeasuredTest, DamagedEntriesAreDeletedSaidOnceAndMeasuredAgain) {
  (void)run(512);
  const fs::path file = files().at(0);
  std::ifstream stream(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  ASSERT_THAT(bytes, testing::HasSubstr("512"));
  for (const std::string& damaged :
       {std::string(), bytes.substr(0, bytes.size() / 2), "x" + bytes,
        std::string(bytes).replace(bytes.rfind("512"), 3, "256"), std::string(4096, '\xff')}) {
    std::ofstream(file, std::ios::binary) << damaged;
    expect_measured_anew();
  }
  EXPECT_EQ(files().size(), 1U);
  EXPECT_EQ(warnings(), 1);
  EXPECT_THAT(said_, testing::HasSubstr("is deleted and made anew"));
}

TEST_F(MeasuredTest, AnEntryOfAnotherKeyIsNotTaken) {
  (void)run(512);
  const fs::path first = files().at(0);
  (void)run(128, 13010);
  for (const auto& file : files()) {
    if (file != first) fs::copy_file(first, file, fs::copy_options::overwrite_existing);
  }
  const Run again = run(256, 13010);
  EXPECT_GT(again.launches, 20U);
  EXPECT_THAT(said_, testing::HasSubstr("it is of another key"));
}

TEST_F(MeasuredTest, LinksAndEntriesThatOthersMayWriteAreNotTaken) {
  (void)run(512);
  const fs::path file = files().at(0), elsewhere = root_ / "elsewhere";
  fs::copy_file(file, elsewhere);
  fs::remove(file);
  fs::create_symlink(elsewhere, file);
  expect_measured_anew();
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(file)));
  ASSERT_EQ(::chmod(file.c_str(), 0666), 0);
  expect_measured_anew();
  EXPECT_EQ(fs::status(file).permissions() & fs::perms::others_write, fs::perms::none);
  EXPECT_EQ(warnings(), 1);
  ASSERT_EQ(::chmod(folder_.c_str(), 0777), 0);
  EXPECT_GT(run(512).launches, 20U);
  EXPECT_THAT(said_, testing::HasSubstr("nothing is cached"));
}

TEST_F(MeasuredTest, EntriesOfAnotherUserAreNotTaken) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  (void)run(512);
  ASSERT_EQ(::chown(files().at(0).c_str(), 65534, 65534), 0);
  expect_measured_anew();
  EXPECT_THAT(said_, testing::HasSubstr("belongs to another user"));
}

TEST_F(MeasuredTest, CommandsOfTheCacheCoverThem) {
  (void)run(512);
  (void)run(512, 13010);
  const auto store = open();
  EXPECT_EQ(store->stats().entries, 2U);
  EXPECT_EQ(store->verify().right, 2U);
  EXPECT_EQ(store->clear(), 2U);
  EXPECT_EQ(files().size(), 0U);
  EXPECT_THAT(run(128).plan, testing::HasSubstr("rows threads 128 "));
}

TEST_F(MeasuredTest, TheLimitCoversThem) {
  const MeasuredSchedules some([store = open(8 * 5000)] { return store; });
  schedule::BlockSchedule blocks;
  const auto numbered = [](int k) { return MeasuredKey{"m", "h", "s", "c", std::to_string(k)}; };
  for (int k = 0; k < 20; ++k) {
    blocks.threads = 32 * (k + 1);
    some.keep(numbered(k), blocks);
    some.settle();
  }
  EXPECT_LE(files().size(), 9U);
  EXPECT_EQ(some.find(numbered(19)), blocks);
  EXPECT_EQ(some.find(numbered(0)), std::nullopt);
}

TEST_F(MeasuredTest, AFolderThatCannotBeMadeIsNoError) {
  fs::create_directories(root_);
  std::ofstream(root_ / "inkle") << "a file";
  EXPECT_GT(run(512).launches, 20U);
  EXPECT_THAT(said_, testing::HasSubstr("nothing is cached"));
  EXPECT_GT(run(512).launches, 20U);
}

TEST(MeasuredWithoutStore, NothingIsKept) {
  for (const MeasuredSchedules& none :
       {MeasuredSchedules(), MeasuredSchedules([] { return nullptr; })}) {
    none.keep({}, {});
    none.settle();
    EXPECT_EQ(none.find({}), std::nullopt);
  }
}

}  // namespace
}  // namespace inkle::driver
