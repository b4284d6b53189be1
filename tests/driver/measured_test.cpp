// Measured schedules on disk: found by a later process, and never in its way.
#include "driver/measured.h"
#include "abi/targets.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "base/log.h"
#include "codegen/cuda/compiler.h"
#include "driver/pipeline.h"
#include "graph/text.h"
#include "ops/table.h"
#include "runtime/cuda/null_device.h"

namespace inkle::driver {
namespace {

constexpr std::string_view kArchitecture = "sm_90a";

constexpr auto kOverwrite = std::filesystem::copy_options::overwrite_existing;

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
    Compiler compiler(make_target(device, folder_));
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

  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> result;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      result.push_back(entry.path());
    }
    return result;
  }

  void SetUp() override {
    std::string why_not;
    if (!codegen::cuda::find_nvrtc(why_not)) GTEST_SKIP() << why_not;
    set_log_channels("cache");
    set_log_sink([this](std::string_view line) { said_ += std::string(line) + "\n"; });
  }
  void TearDown() override {
    set_log_sink({});
    set_log_channels("");
    std::filesystem::remove_all(root_);
  }

  std::filesystem::path root_ =
      std::filesystem::path(testing::TempDir()) / fmt::format("measured{}", ::getpid());
  std::filesystem::path folder_ = root_ / "inkle" / "schedules";
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
  const auto is_others = std::filesystem::perms::group_all | std::filesystem::perms::others_all;
  EXPECT_EQ(std::filesystem::status(folder_).permissions() & is_others,
            std::filesystem::perms::none);
}

TEST_F(MeasuredTest, IsOfOneDriver) {
  (void)run(512);
  const Run other = run(128, 13010);
  EXPECT_THAT(other.plan, testing::HasSubstr("rows threads 128 "));
  EXPECT_EQ(files().size(), 2U);
}

TEST_F(MeasuredTest, DamagedFilesAreReplaced) {
  (void)run(512);
  const std::filesystem::path file = files().at(0);
  std::string text;
  std::getline(std::ifstream(file), text, '\0');
  for (const std::string& damaged :
       {std::string(), text.substr(0, text.size() / 2), "x" + text,
        std::string(text).replace(text.find("512"), 3, "256"), std::string(4096, '\xff')}) {
    said_.clear();
    std::ofstream(file) << damaged;
    const Run again = run(512);
    EXPECT_GT(again.launches, 20U);
    EXPECT_THAT(again.plan, testing::HasSubstr("rows threads 512 "));
    EXPECT_THAT(said_, testing::HasSubstr("is damaged"));
    EXPECT_EQ(run(128).launches, 0U);
  }
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(MeasuredTest, AFileOfAnotherKeyIsNotTaken) {
  (void)run(512);
  const std::filesystem::path first = files().at(0);
  (void)run(128, 13010);
  for (const auto& file : files()) {
    if (file != first) std::filesystem::copy_file(first, file, kOverwrite);
  }
  const Run again = run(256, 13010);
  EXPECT_GT(again.launches, 20U);
  EXPECT_THAT(said_, testing::HasSubstr("is damaged"));
}

TEST_F(MeasuredTest, AFolderThatCannotBeMadeIsNoError) {
  std::filesystem::create_directories(root_);
  std::ofstream(root_ / "inkle") << "a file";
  EXPECT_GT(run(512).launches, 20U);
  EXPECT_THAT(said_, testing::HasSubstr("cannot be written"));
  EXPECT_GT(run(512).launches, 20U);
}

TEST_F(MeasuredTest, TheOldestAreDeleted) {
  const MeasuredSchedules some(folder_, 8);
  schedule::BlockSchedule blocks;
  for (int k = 0; k < 8; ++k) {
    blocks.threads = 32 * (k + 1);
    some.keep(fmt::format("key {}", k), blocks);
    some.trim();
  }
  EXPECT_EQ(files().size(), 8U);
  const auto now = std::filesystem::file_time_type::clock::now();
  for (const auto& file : files()) std::filesystem::last_write_time(file, now);
  some.keep("key 3", blocks);  // replaces
  EXPECT_EQ(files().size(), 8U);
  some.keep("newest", blocks);
  some.trim();
  EXPECT_EQ(files().size(), 7U);
  EXPECT_EQ(some.find("newest"), blocks);
  EXPECT_EQ(some.find("never"), std::nullopt);
  EXPECT_EQ(MeasuredSchedules({}).find("newest"), std::nullopt);
}

}  // namespace
}  // namespace inkle::driver
