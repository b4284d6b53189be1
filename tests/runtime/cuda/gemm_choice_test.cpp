// The choice among a library's matrix products, with a library and a clock made for tests.
#include "runtime/cuda/gemm_choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "base/error.h"
#include "runtime/cuda/null_device.h"
#include "test_choices.h"

namespace inkle::runtime::cuda {
namespace {

struct Library {
  std::string version = "library 1";
  std::vector<int> times;  // of its algorithms, in microseconds; negative: refused when run
  std::map<std::string, int> runs;  // by name
  std::function<void(int)> spend;   // microseconds on the device's clock
};

class TestAlgorithm final : public GemmAlgorithm {
 public:
  TestAlgorithm(Library& library, int number, int time)
      : library_(library), number_(number), time_(time) {}
  void run(const GemmPointers& p, void* workspace, Stream stream) const override {
    if (!try_run(p, workspace, stream)) throw InternalError("refused");
  }
  bool try_run(const GemmPointers& /*p*/, void* /*workspace*/, Stream /*stream*/) const override {
    ++library_.runs[name()];
    if (time_ < 0) return false;
    library_.spend(time_);
    return true;
  }
  std::string name() const override { return fmt::format("algorithm {}", number_); }
  std::string identity() const override { return fmt::format("identity {}", number_); }

 private:
  Library& library_;
  int number_, time_;
};

class TestFinder final : public GemmFinder {
 public:
  explicit TestFinder(Library& library) : library_(library) {}
  std::string library() const override { return library_.version; }
  GemmAlgorithms find_algorithms(const GemmShape& /*shape*/, const GemmPointers& /*p*/,
                                 int most) override {
    GemmAlgorithms all;
    for (const int time : library_.times) {
      if (static_cast<int>(all.size()) == most) break;
      all.push_back(std::make_shared<TestAlgorithm>(library_, static_cast<int>(all.size()), time));
    }
    return all;
  }

 private:
  Library& library_;
};

class GemmChoiceTest : public testing::Test {
 protected:
  GemmChoiceTest() { start("card"); }

  // A process that has not run anything.
  void start(const std::string& card) {
    abi::DeviceDescription description;
    description.kind = abi::DeviceKind::cuda;
    description.name = card;
    description.architecture = "sm_90a";
    description.block_threads = 1024;
    description.l1_bytes = 1024;
    choice_.reset();
    device_ = make_null_device(description);
    const std::vector<std::byte> code(1);
    module_ = device_->load({"sm_90a", std::make_shared<const std::vector<std::byte>>(code)});
    abi::DeviceKernel kernel;
    kernel.entry = "clock";
    kernel.block_threads = 32;
    clock_ = module_->function(kernel);
    device_->set_clock([](const LaunchShape& s) { return static_cast<double>(s.blocks); });
    library_.runs.clear();
    library_.spend = [this](int time) {
      void* none = nullptr;
      device_->launch(clock_, {.blocks = static_cast<std::uint32_t>(time), .threads = 32}, nullptr,
                      &none);
    };
    device_->set_library_choices(choices_);
    choice_ = choose_among(std::make_unique<TestFinder>(library_), *device_);
  }

  std::string find(const GemmShape& shape = {.m = 4, .n = 4, .k = 4}, GemmPointers p = {}) {
    return choice_->find(shape, p, nullptr, nullptr)->name();
  }

  std::shared_ptr<TestChoices> choices_ = std::make_shared<TestChoices>();
  Library library_;
  std::shared_ptr<NullDevice> device_;
  std::unique_ptr<Module> module_;
  Function clock_ = nullptr;
  std::unique_ptr<Gemms> choice_;
};

TEST_F(GemmChoiceTest, TheFastestIsTakenAndKept) {
  library_.times = {50, -1, 40, 60};
  EXPECT_EQ(find(), "algorithm 2");
  const auto runs = library_.runs;
  EXPECT_EQ(find(), "algorithm 2");
  EXPECT_EQ(library_.runs, runs);
  EXPECT_EQ(choices_->times_kept, 1);
}

TEST_F(GemmChoiceTest, ALaterProcessMeasuresNothing) {
  library_.times = {50, 45, 40, 60};
  EXPECT_EQ(find(), "algorithm 2");
  library_.times = {30, 45, 40, 60};  // the clock says something else today
  start("card");
  EXPECT_EQ(find(), "algorithm 2");
  const std::map<std::string, int> once = {{"algorithm 2", 1}};
  EXPECT_EQ(library_.runs, once);
  EXPECT_EQ(choices_->times_kept, 1);
}

TEST_F(GemmChoiceTest, AnotherVersionCardOrShapeIsMeasured) {
  library_.times = {50, 40};
  EXPECT_EQ(find(), "algorithm 1");
  library_.times = {30, 40};
  library_.version = "library 2";
  start("card");
  EXPECT_EQ(find(), "algorithm 0");
  library_.version = "library 1";
  start("another card");
  EXPECT_EQ(find(), "algorithm 0");
  start("card");
  EXPECT_EQ(find({.m = 4, .n = 4, .k = 5}), "algorithm 0");
  EXPECT_EQ(find(), "algorithm 1");
  EXPECT_EQ(choices_->kept.size(), 4U);
}

TEST_F(GemmChoiceTest, WhatTheLibraryDoesNotKnowOrRefusesIsMeasured) {
  library_.times = {50, 40};
  EXPECT_EQ(find(), "algorithm 1");
  for (auto& [key, algorithm] : choices_->kept) algorithm = "identity 17";
  start("card");
  EXPECT_EQ(find(), "algorithm 1");
  EXPECT_EQ(choices_->kept.begin()->second, "identity 1");
  library_.times = {50, -1};
  start("card");
  EXPECT_EQ(find(), "algorithm 0");
  EXPECT_EQ(choices_->kept.begin()->second, "identity 0");
}

// As a package carries them to another process.
TEST_F(GemmChoiceTest, WhatAProgramBringsIsNotMeasuredAgain) {
  const auto measured = std::make_shared<ChoicesInMemory>();
  device_->set_library_choices(measured);
  library_.times = {50, 45, 40, 60};
  EXPECT_EQ(find(), "algorithm 2");
  const auto given = measured->all();
  ASSERT_EQ(given.size(), 1U);
  EXPECT_EQ(given[0].algorithm, "identity 2");
  library_.times = {30, 45, 40, 60};
  start("card");
  give_choices(*device_, given);
  EXPECT_EQ(find(), "algorithm 2");
  EXPECT_EQ(choices_->times_kept, 0);  // what comes with a program is not what this machine found
  const std::map<std::string, int> once = {{"algorithm 2", 1}};
  EXPECT_EQ(library_.runs, once);
  // Beside it, the machine's own are found and kept.
  EXPECT_EQ(find({.m = 4, .n = 4, .k = 5}), "algorithm 0");
  EXPECT_EQ(choices_->times_kept, 1);
}

TEST_F(GemmChoiceTest, WhatAProgramBringsInVainIsMeasured) {
  const auto measured = std::make_shared<ChoicesInMemory>();
  device_->set_library_choices(measured);
  library_.times = {50, 40};
  EXPECT_EQ(find(), "algorithm 1");
  const auto given = measured->all();
  for (const std::string& card : {std::string("card"), std::string("another card")}) {
    library_.times = {50, -1};  // refused, or measured on another card
    start(card);
    give_choices(*device_, given);
    EXPECT_EQ(find(), "algorithm 0");
  }
  EXPECT_EQ(choices_->times_kept, 2);
  start("card");  // two programs, the later one's first; none is lost
  auto other = given;
  other[0].problem += " of another program";
  give_choices(*device_, given);
  give_choices(*device_, other);
  const auto& all = dynamic_cast<ChoicesInMemory&>(*device_->library_choices());
  EXPECT_EQ(all.all().size(), 2U);
}

TEST_F(GemmChoiceTest, WhereNothingMayBeMeasuredTheKeptOneIsTaken) {
  library_.times = {50, 40};
  device_->set_capturing(true);
  EXPECT_EQ(find(), "algorithm 0");
  EXPECT_EQ(choices_->times_kept, 0);
  device_->set_capturing(false);
  EXPECT_EQ(find(), "algorithm 1");
  start("card");
  device_->set_capturing(true);
  EXPECT_EQ(find(), "algorithm 1");
  EXPECT_TRUE(library_.runs.empty());
}

TEST_F(GemmChoiceTest, InPlaceNothingIsRun) {
  library_.times = {50, 40};
  int memory = 0, other = 0;
  const GemmShape adds{.m = 4, .n = 4, .k = 4, .has_residual = true};
  const GemmPointers p{.c = &memory, .d = &memory};
  EXPECT_EQ(find(adds, p), "algorithm 0");
  EXPECT_TRUE(library_.runs.empty());
  EXPECT_EQ(find(adds, {.c = &other, .d = &memory}), "algorithm 1");
  start("card");
  EXPECT_EQ(find(adds, p), "algorithm 1");
  EXPECT_TRUE(library_.runs.empty());
}

// Of two processes that measure at once.
TEST_F(GemmChoiceTest, TheFirstToEndDecides) {
  library_.times = {50, 40};
  library_.spend = [this, spend = library_.spend](int time) {
    spend(time);
    GemmShape shape{.m = 4, .n = 4, .k = 4};
    choices_->kept[TestChoices::text_of(
        {"library 1", device_of(device_->description()), to_string(shape)})] = "identity 0";
  };
  EXPECT_EQ(find(), "algorithm 0");
  EXPECT_EQ(choices_->times_kept, 0);
}

TEST(GemmShapeText, AllFieldsAreInIt) {
  using A = GemmShape::Activation;
  using T = abi::DType;
  std::set<std::string> texts = {to_string(GemmShape())};
  std::size_t count = 1;
  const auto other = [&](auto change) {
    GemmShape s;
    change(s);
    texts.insert(to_string(s));
    ++count;
  };
  other([](GemmShape& s) { s.in = T::bf16; });
  other([](GemmShape& s) { s.out = T::bf16; });
  for (const auto field :
       {&GemmShape::m, &GemmShape::n, &GemmShape::k, &GemmShape::batch, &GemmShape::a_row,
        &GemmShape::a_depth, &GemmShape::a_batch, &GemmShape::b_depth, &GemmShape::b_column,
        &GemmShape::b_batch, &GemmShape::c_row, &GemmShape::c_batch, &GemmShape::d_row,
        &GemmShape::d_batch}) {
    other([&](GemmShape& s) { s.*field = 7; });
  }
  for (const auto field : {&GemmShape::has_bias, &GemmShape::has_residual}) {
    other([&](GemmShape& s) { s.*field = true; });
  }
  other([](GemmShape& s) { s.activation = A::relu; });
  other([](GemmShape& s) { s.alignment = 4; });
  other([](GemmShape& s) { s.has_workspace = false; });
  EXPECT_EQ(texts.size(), count);
}

}  // namespace
}  // namespace inkle::runtime::cuda
