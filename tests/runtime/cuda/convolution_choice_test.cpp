// The choice among a library's convolutions, with a library and a clock made for tests.
#include "runtime/cuda/convolution_choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <thread>

#include "base/error.h"
#include "runtime/cuda/null_device.h"
#include "test_choices.h"

namespace {
// Allocations of this thread until one fails; negative: none does.
thread_local int allocations_left = -1;
}  // namespace

// Not inline, or the compiler sees malloc and delete, or new and free, as pairs that do not match.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
  if (void* const made = std::malloc(std::max<std::size_t>(bytes, 1)); made != nullptr) return made;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}

namespace inkle::runtime::cuda {
namespace {

using testing::ElementsAre;

// Times of one shape's algorithms, in microseconds; negative: refused when run.
using Times = std::vector<int>;

struct Library {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_shut = false;                 // nobody is answered
  bool fails = false;                   // an answer is an error
  bool breaks = false;                  // a run is an error
  std::vector<std::int64_t> asked;      // batches
  std::map<std::string, int> runs;      // by name
  std::map<std::int64_t, Times> known;  // by batch
  std::vector<std::size_t> workers;     // that asked
  std::vector<std::string> restored;    // algorithms that were asked for by identity
  std::function<void(int)> spend;       // microseconds on the device's clock

  void open() {
    const std::lock_guard lock(mutex);
    is_shut = false;
    changed.notify_all();
  }
  void wait_for_questions(std::size_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return asked.size() >= count; });
  }
};

class TestAlgorithm final : public ConvolutionAlgorithm {
 public:
  TestAlgorithm(Library& library, std::string name, int time)
      : library_(library), name_(std::move(name)), time_(time) {}
  void run(const ConvolutionPointers& p, void* workspace, Stream stream) const override {
    if (!try_run(p, workspace, stream)) throw InternalError("refused");
  }
  bool try_run(const ConvolutionPointers& /*p*/, void* /*workspace*/,
               Stream /*stream*/) const override {
    const std::lock_guard lock(library_.mutex);
    ++library_.runs[name_];
    if (library_.breaks) throw InternalError("the device is out of order");
    if (time_ < 0) return false;
    library_.spend(time_);
    return true;
  }
  std::string name() const override { return name_; }
  std::string identity() const override { return "identity " + name_; }

 private:
  Library& library_;
  std::string name_;
  int time_;
};

class TestFinder final : public ConvolutionFinder {
 public:
  explicit TestFinder(Library& library) : library_(library) {}
  std::string library() const override { return "library 1"; }
  std::shared_ptr<ConvolutionAlgorithm> find_algorithm(std::size_t /*worker*/,
                                                       const ConvolutionShape& shape,
                                                       std::string_view identity) override {
    const std::lock_guard lock(library_.mutex);
    library_.restored.emplace_back(identity);
    const Times& times = library_.known[shape.x[0]];
    for (std::size_t t = 0; t < times.size(); ++t) {
      auto made =
          std::make_shared<TestAlgorithm>(library_, fmt::format("{}.{}", shape.x[0], t), times[t]);
      if (made->identity() == identity) return made;
    }
    return nullptr;
  }
  ConvolutionAlgorithms find_algorithms(std::size_t worker, const ConvolutionShape& shape,
                                        int most) override {
    std::unique_lock lock(library_.mutex);
    library_.asked.push_back(shape.x[0]);
    library_.workers.push_back(worker);
    library_.changed.notify_all();
    library_.changed.wait(lock, [&] { return !library_.is_shut; });
    if (library_.fails) throw InternalError("the library is out of order");
    ConvolutionAlgorithms result;
    const Times& times = library_.known[shape.x[0]];
    for (std::size_t t = 0; t < times.size() && static_cast<int>(t) < most; ++t) {
      result.push_back(
          std::make_shared<TestAlgorithm>(library_, fmt::format("{}.{}", shape.x[0], t), times[t]));
    }
    return result;
  }

 private:
  Library& library_;
};

ConvolutionShape shape(std::int64_t batch) {
  ConvolutionShape s;
  s.x = s.y = {batch, 8, 1, 4, 4};
  s.w = {8, 8, 1, 1, 1};
  return s;
}

class ConvolutionChoice : public testing::Test {
 protected:
  ConvolutionChoice() {
    abi::DeviceDescription description;
    description.kind = abi::DeviceKind::cuda;
    description.architecture = "sm_90a";
    description.block_threads = 1024;
    description.l1_bytes = 1024;
    device_ = make_null_device(description);
    const std::vector<std::byte> code(1);
    module_ = device_->load({"sm_90a", std::make_shared<const std::vector<std::byte>>(code)});
    abi::DeviceKernel kernel;
    kernel.entry = "clock";
    kernel.block_threads = 32;
    clock_ = module_->function(kernel);
    device_->set_clock([](const LaunchShape& s) { return static_cast<double>(s.blocks); });
    library_.spend = [this](int time) {
      void* none = nullptr;
      device_->launch(clock_, {.blocks = static_cast<std::uint32_t>(time), .threads = 32}, nullptr,
                      &none);
    };
    restart();
  }

  // As another process finds the library.
  void restart() {
    choice_ = choose_among(std::make_unique<TestFinder>(library_), *device_);
    library_.asked.clear();
    library_.runs.clear();
  }

  std::string find(std::int64_t batch) {
    const auto found = choice_->find(shape(batch), {}, nullptr, nullptr);
    return found ? found->name() : "none";
  }

  Library library_;
  std::shared_ptr<NullDevice> device_;
  std::unique_ptr<Module> module_;
  Function clock_ = nullptr;
  std::unique_ptr<Convolutions> choice_;
};

TEST_F(ConvolutionChoice, TheFastestIsTakenAndRemembered) {
  library_.known[1] = {50, -1, 40, 60};
  EXPECT_EQ(find(1), "1.2");
  const auto runs = library_.runs;
  EXPECT_EQ(find(1), "1.2");
  EXPECT_EQ(library_.runs, runs);
  EXPECT_THAT(library_.asked, ElementsAre(1));
  EXPECT_EQ(find(2), "none");
}

TEST_F(ConvolutionChoice, WhatIsMuchSlowerRunsOnceMore) {
  // One run to load it, one to see; three more only for what may win.
  library_.known[1] = {1000, 5000, 1499, 1501, 900, 1400};
  EXPECT_EQ(find(1), "1.4");
  const std::map<std::string, int> expected = {{"1.0", 4}, {"1.1", 2}, {"1.2", 5},
                                               {"1.3", 2}, {"1.4", 5}, {"1.5", 2}};
  EXPECT_EQ(library_.runs, expected);
}

TEST_F(ConvolutionChoice, OneRunSaysLittleOfWhatIsShort) {
  library_.known[1] = {10, 250, 310};
  EXPECT_EQ(find(1), "1.0");
  const std::map<std::string, int> expected = {{"1.0", 4}, {"1.1", 5}, {"1.2", 2}};
  EXPECT_EQ(library_.runs, expected);
}

TEST_F(ConvolutionChoice, WhatIsForeseenIsAskedForOnce) {
  for (std::int64_t b = 1; b <= 20; ++b) library_.known[b] = {static_cast<int>(100 + b), 90};
  std::vector<ConvolutionShape> shapes;
  for (std::int64_t b = 1; b <= 20; ++b) shapes.push_back(shape(b));
  shapes.push_back(shape(3));
  choice_->foresee(shapes);
  choice_->foresee(shapes);
  choice_->prepare(shapes);
  for (std::int64_t b = 1; b <= 20; ++b) EXPECT_EQ(find(b), fmt::format("{}.1", b));
  EXPECT_EQ(library_.asked.size(), 20U);
  for (const std::size_t worker : library_.workers) EXPECT_LT(worker, ConvolutionFinder::kWorkers);
  choice_->foresee(shapes);
  choice_->settle();
  EXPECT_EQ(library_.asked.size(), 20U);
}

TEST_F(ConvolutionChoice, FindWaitsForTheSearchButNotForWhatIsKnown) {
  library_.known = {{1, {10}}, {2, {20}}, {3, {30}}};
  EXPECT_EQ(find(1), "1.0");
  library_.is_shut = true;
  choice_->foresee({shape(2)});  // alone, too
  library_.wait_for_questions(2);
  EXPECT_EQ(find(1), "1.0");
  std::atomic<int> done = 0;
  std::thread waits([&] {
    EXPECT_EQ(find(2), "2.0");
    ++done;
  });
  std::thread other([&] {
    EXPECT_EQ(find(3), "3.0");
    ++done;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(done, 0);
  library_.open();
  waits.join();
  other.join();
  EXPECT_EQ(library_.asked.size(), 3U);
}

TEST_F(ConvolutionChoice, SearchesOfSeveralGraphsFollowEachOther) {
  std::vector<std::thread> threads;
  for (std::int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (std::int64_t b = 1; b <= 10; ++b) choice_->foresee({shape(t + b), shape(100 * t + b)});
      for (std::int64_t b = 1; b <= 10; ++b) EXPECT_EQ(find(t + b), "none");
    });
  }
  for (std::thread& thread : threads) thread.join();
  choice_->settle();
  std::vector<std::int64_t> asked = library_.asked;
  std::sort(asked.begin(), asked.end());
  EXPECT_EQ(std::adjacent_find(asked.begin(), asked.end()), asked.end());
}

TEST_F(ConvolutionChoice, AnErrorAheadIsLeftToWhoAsks) {
  library_.known = {{1, {10}}, {2, {20}}};
  library_.fails = true;
  choice_->foresee({shape(1), shape(2)});
  choice_->settle();
  EXPECT_THROW((void)find(1), InternalError);
  EXPECT_THROW(choice_->prepare(std::vector{shape(1), shape(2)}), InternalError);
  library_.fails = false;
  EXPECT_EQ(find(1), "1.0");
  choice_->prepare(std::vector{shape(1), shape(2)});  // one alone is left to find()
  EXPECT_EQ(find(2), "2.0");
}

TEST_F(ConvolutionChoice, NothingIsMeasuredInARecordingOrInPlace) {
  library_.known[1] = {50, 40};
  device_->set_capturing(true);
  EXPECT_EQ(find(1), "1.0");
  choice_->foresee({shape(1)});
  EXPECT_EQ(find(1), "1.0");
  EXPECT_TRUE(library_.runs.empty());
  device_->set_capturing(false);
  ConvolutionShape adds = shape(1);
  adds.has_residual = true;
  int memory = 0;
  const ConvolutionPointers p{.residual = &memory, .y = &memory};
  EXPECT_EQ(choice_->find(adds, p, nullptr, nullptr)->name(), "1.0");
  EXPECT_TRUE(library_.runs.empty());
  EXPECT_EQ(find(1), "1.1");
}

TEST_F(ConvolutionChoice, WhatIsFoundAheadIsKeptUntilItIsMeasured) {
  library_.known[1] = {50, 40};
  choice_->foresee({shape(1)});
  choice_->settle();
  device_->set_capturing(true);
  EXPECT_EQ(find(1), "1.0");
  EXPECT_EQ(find(1), "1.0");
  device_->set_capturing(false);
  EXPECT_EQ(find(1), "1.1");
  EXPECT_THAT(library_.asked, ElementsAre(1));
}

TEST_F(ConvolutionChoice, TheFavouriteIsAskedForOnceWhereNothingIsMeasured) {
  library_.known[1] = {50, 40};
  device_->set_capturing(true);
  EXPECT_EQ(find(1), "1.0");
  EXPECT_EQ(find(1), "1.0");
  EXPECT_THAT(library_.asked, ElementsAre(1));
  device_->set_capturing(false);
  EXPECT_EQ(find(1), "1.1");
}

TEST_F(ConvolutionChoice, EventsAreFreedWhereARunFails) {
  library_.known[1] = {50, 40};
  library_.breaks = true;
  EXPECT_THROW((void)find(1), InternalError);
  EXPECT_EQ(device_->events(), 0);
  library_.breaks = false;
  EXPECT_EQ(find(1), "1.1");
  EXPECT_EQ(device_->events(), 0);
}

TEST_F(ConvolutionChoice, AThousandShapesAreKept) {
  for (std::int64_t b = 0; b < 1100; ++b) library_.known[b] = {10};
  for (std::int64_t b = 0; b < 1100; ++b) EXPECT_EQ(find(b), fmt::format("{}.0", b));
  EXPECT_EQ(find(1099), "1099.0");
  EXPECT_EQ(library_.asked.size(), 1100U);
  EXPECT_EQ(find(0), "0.0");  // the first to go
  EXPECT_EQ(library_.asked.size(), 1101U);
}

TEST_F(ConvolutionChoice, NobodyWaitsForASearchThatMemoryLackedFor) {
  ::alarm(60);
  for (int n = 0; n < 40; ++n) {
    std::vector<ConvolutionShape> shapes = {shape(2 * n), shape(2 * n + 1)};
    allocations_left = n;
    try {
      choice_->foresee(std::move(shapes));
    } catch (const std::bad_alloc&) {  // before anything was claimed
    }
    allocations_left = -1;
    EXPECT_EQ(find(2 * n), "none");
  }
  ::alarm(0);
}

TEST_F(ConvolutionChoice, ItsEndWaitsForTheSearch) {
  library_.is_shut = true;
  choice_->foresee({shape(1)});
  library_.wait_for_questions(1);
  std::thread opens([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    library_.open();
  });
  choice_.reset();
  opens.join();
}

TEST_F(ConvolutionChoice, AForkedChildDoesNotWaitForItsParentsThread) {
  library_.is_shut = true;
  choice_->foresee({shape(1)});
  library_.wait_for_questions(1);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    choice_->settle();
    choice_->foresee({shape(2)});
    choice_.reset();
    ::_exit(7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  library_.open();
}

TEST_F(ConvolutionChoice, ALaterProcessAsksForTheKeptOneAlone) {
  const auto choices = std::make_shared<TestChoices>();
  device_->set_library_choices(choices);
  for (std::int64_t b = 1; b <= 4; ++b) library_.known[b] = {50, 40, 60};
  for (std::int64_t b = 1; b <= 4; ++b) EXPECT_EQ(find(b), fmt::format("{}.1", b));
  EXPECT_EQ(choices->times_kept, 4);
  for (std::int64_t b = 1; b <= 4; ++b) library_.known[b][0] = 10;
  restart();
  choice_->foresee({shape(1), shape(2)});
  for (std::int64_t b = 1; b <= 3; ++b) EXPECT_EQ(find(b), fmt::format("{}.1", b));
  device_->set_capturing(true);
  EXPECT_EQ(find(4), "4.1");
  const std::map<std::string, int> once = {{"1.1", 1}, {"2.1", 1}, {"3.1", 1}};
  EXPECT_EQ(library_.runs, once);
  EXPECT_TRUE(library_.asked.empty());
  EXPECT_EQ(library_.restored.size(), 4U);
  EXPECT_EQ(choices->times_kept, 4);
}

TEST_F(ConvolutionChoice, WhatTheLibraryDoesNotKnowOrRefusesIsMeasured) {
  const auto choices = std::make_shared<TestChoices>();
  device_->set_library_choices(choices);
  library_.known[1] = {50, 40};
  EXPECT_EQ(find(1), "1.1");
  choices->kept.begin()->second = "identity of another library";
  restart();
  EXPECT_EQ(find(1), "1.1");
  EXPECT_EQ(choices->kept.begin()->second, "identity 1.1");
  library_.known[1] = {50, -1};
  for (const bool ahead : {false, true}) {
    choices->kept.begin()->second = "identity 1.1";
    restart();
    if (ahead) choice_->foresee({shape(1)});
    EXPECT_EQ(find(1), "1.0");
    EXPECT_EQ(choices->kept.begin()->second, "identity 1.0");
  }
}

TEST(ConvolutionShapeText, AllFieldsAreInIt) {
  std::set<std::string> texts = {to_string(ConvolutionShape())};
  std::size_t count = 1;
  const auto other = [&](auto change) {
    ConvolutionShape s;
    change(s);
    texts.insert(to_string(s));
    ++count;
  };
  using S = ConvolutionShape;
  other([](S& s) { s.result = S::Result::w; });
  other([](S& s) { s.dtype = abi::DType::f16; });
  for (const auto field :
       {&S::x, &S::w, &S::y, &S::x_strides, &S::w_strides, &S::y_strides, &S::residual_strides}) {
    for (std::size_t d = 0; d < 5; ++d) other([&](S& s) { (s.*field)[d] = 7; });
  }
  for (const auto field : {&S::stride, &S::padding, &S::dilation}) {
    for (std::size_t d = 0; d < 3; ++d) other([&](S& s) { (s.*field)[d] = 7; });
  }
  for (const auto field : {&S::is_volume, &S::has_bias, &S::has_residual, &S::relu}) {
    other([&](S& s) { s.*field = true; });
  }
  other([](S& s) { s.alignment = 4; });
  EXPECT_EQ(texts.size(), count);
}

}  // namespace
}  // namespace inkle::runtime::cuda
