#include "runtime/cuda/convolution_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/recent_map.h"
#include "base/threads.h"
#include "runtime/cuda/library_choices.h"

namespace inkle::runtime::cuda {
namespace {

// Candidates of the library's heuristic that are measured, and runs of each after a warm-up.
constexpr int kCandidates = 8;
constexpr int kRuns = 3;
// A candidate that is slower than the best so far by this factor in one run is not run again, but
// for runs below kShort microseconds: one such run says little, and more cost nothing.
constexpr double kHopeless = 1.5;
constexpr double kShort = 300;

// Shapes that are kept; a network has up to a few hundred, dynamic sizes make more.
constexpr std::size_t kMostShapes = 1024;

std::string describe(const ConvolutionShape& s) {
  const char* what = s.result == ConvolutionShape::Result::x   ? "gradient of "
                     : s.result == ConvolutionShape::Result::w ? "gradient of the weights of "
                                                               : "";
  return fmt::format("{}{}x{}x{}x{} by {}x{}x{}x{}{}{}{}", what, s.x[0], s.x[1], s.x[3], s.x[4],
                     s.w[0], s.w[1], s.w[3], s.w[4], s.has_bias ? " bias" : "",
                     s.has_residual ? " residual" : "", s.relu ? " relu" : "");
}

// A small one of channels-last images.
ConvolutionShape small_shape() {
  ConvolutionShape s;
  s.x = s.y = {1, 64, 1, 16, 16};
  s.w = {64, 64, 1, 3, 3};
  s.x_strides = s.y_strides = {64 * 256, 1, 64 * 256, 64 * 16, 64};
  s.w_strides = {64 * 9, 1, 64 * 9, 64 * 3, 64};
  s.stride = s.dilation = {1, 1, 1};
  s.padding = {0, 1, 1};
  return s;
}

class Choice final : public Convolutions {
 public:
  Choice(std::unique_ptr<ConvolutionFinder> finder, Device& device)
      : finder_(std::move(finder)), device_(device) {}
  ~Choice() override {
    settle();
    // A child neither has the thread nor may wait for it.
    if (ahead_.joinable()) (void)new std::jthread(std::move(ahead_));
  }

  void prepare(std::span<const ConvolutionShape> shapes) override {
    const std::vector<ConvolutionShape> wanted = claim(shapes, 2);
    if (!wanted.empty()) search(wanted);
  }

  void foresee(std::vector<ConvolutionShape> shapes) override {
    if (is_forked()) return;
    const std::vector<ConvolutionShape> wanted = claim(shapes, 1);
    if (wanted.empty()) return;
    try {
      const std::lock_guard lock(ahead_mutex_);
      ahead_ = std::jthread([this, before = std::move(ahead_), wanted]() mutable {
        if (before.joinable()) before.join();
        try {
          search(wanted);
        } catch (const std::exception& error) {  // find() reports it again
          log(LogChannel::runtime, "searching convolutions ahead of time: {}", error.what());
        }
      });
    } catch (const std::exception& error) {  // no thread, no memory
      release(wanted);
      log(LogChannel::runtime, "searching convolutions ahead of time: {}", error.what());
    }
  }

  void warm_up() override {
    const std::lock_guard lock(search_mutex_);
    const Scope scope(device_);
    const RelaxedCaptureMode relaxed(device_);
    (void)finder_->find_algorithms(0, small_shape(), kCandidates);
  }

  void settle() noexcept override {
    if (is_forked()) return;
    const std::lock_guard lock(ahead_mutex_);
    if (ahead_.joinable()) ahead_.join();
  }

  std::shared_ptr<const Convolution> find(const ConvolutionShape& shape,
                                          const ConvolutionPointers& pointers, void* workspace,
                                          Stream stream) override {
    std::unique_lock lock(mutex_);
    if (const auto* known = known_.find(shape); known != nullptr) return *known;
    // Waits for every search: a measurement must not compete with them for the CPU.
    searched_.wait(lock, [&] { return claimed_.empty(); });
    if (const auto* known = known_.find(shape); known != nullptr) return *known;
    const bool is_in_place = shape.has_residual && pointers.residual == pointers.y;
    const bool may_measure = !is_in_place && !device_.is_capturing(stream);
    const Found* ready = ready_.find(shape);
    if (ready == nullptr && !may_measure) ready = unmeasured_.find(shape);
    Found all = ready != nullptr ? *ready : ask(shape, may_measure ? kCandidates : 1);
    if (all.algorithms.empty()) {
      log(LogChannel::runtime, "convolution {}: the library has no algorithm", describe(shape));
    } else if (!may_measure && !all.is_chosen) {
      if (ready == nullptr) unmeasured_.set(shape, all);
      return all.algorithms.front();
    }
    std::shared_ptr<const Convolution> found;
    if (!all.algorithms.empty())
      found = decide(shape, std::move(all), pointers, workspace, stream, may_measure);
    known_.set(shape, found);
    ready_.erase(shape);
    unmeasured_.erase(shape);
    return found;
  }

 private:
  struct Found {
    ConvolutionAlgorithms algorithms;
    bool is_chosen = false;  // by an earlier process; there is one alone
  };

  // The one that was measured before, else those that may be.
  Found find_candidates(std::size_t worker, const ConvolutionShape& shape, int most) {
    if (auto algorithm = remembered(worker, shape); algorithm)
      return {{std::move(algorithm)}, true};
    return {finder_->find_algorithms(worker, shape, most)};
  }
  Found ask(const ConvolutionShape& shape, int most) {
    const std::lock_guard asking(search_mutex_);
    return find_candidates(0, shape, most);
  }

  [[nodiscard]] ChoiceKey key_of(const ConvolutionShape& shape) const {
    return {finder_->library(), device_of(device_.description()), to_string(shape)};
  }
  [[nodiscard]] std::shared_ptr<ConvolutionAlgorithm> remembered(std::size_t worker,
                                                                 const ConvolutionShape& shape) {
    const std::shared_ptr<LibraryChoices> choices = device_.library_choices();
    if (!choices) return nullptr;
    const std::optional<std::string> name = choices->find(key_of(shape));
    if (!name) return nullptr;
    std::shared_ptr<ConvolutionAlgorithm> algorithm = finder_->find_algorithm(worker, shape, *name);
    if (!algorithm) {
      log(LogChannel::runtime, "convolution {}: the library has no {}", describe(shape), *name);
    }
    return algorithm;
  }

  // Chooses the algorithm to run from now on; measures only if no earlier process has.
  std::shared_ptr<const Convolution> decide(const ConvolutionShape& shape, Found all,
                                            const ConvolutionPointers& pointers, void* workspace,
                                            Stream stream, bool may_run) {
    const auto runs = [&](const ConvolutionAlgorithm& algorithm) {
      return algorithm.try_run(pointers, workspace, stream);
    };
    if (all.is_chosen) {
      if (!may_run || runs(*all.algorithms.front())) return all.algorithms.front();
      const std::lock_guard asking(search_mutex_);
      all.algorithms = finder_->find_algorithms(0, shape, kCandidates);
    }
    std::shared_ptr<ConvolutionAlgorithm> best =
        fastest(shape, all.algorithms, pointers, workspace, stream);
    const std::shared_ptr<LibraryChoices> choices = device_.library_choices();
    if (!best || !choices) return best;
    // If several processes measure at once (ranks of a job), the first to finish decides for all.
    const auto first = choices->find(key_of(shape));
    const auto same = [&](const auto& algorithm) {
      return first && algorithm->identity() == *first;
    };
    const auto at = std::ranges::find_if(all.algorithms, same);
    if (at != all.algorithms.end() && runs(**at)) return *at;
    choices->keep(key_of(shape), best->identity());
    return best;
  }

  // Claims the shapes that are neither known nor being searched, if there are at least `least`:
  // find() then does not wait for a search longer than for its own.
  std::vector<ConvolutionShape> claim(std::span<const ConvolutionShape> shapes, std::size_t least) {
    const std::lock_guard lock(mutex_);
    std::set<ConvolutionShape> wanted;
    for (const ConvolutionShape& shape : shapes) {
      if (known_.contains(shape) || ready_.contains(shape) || claimed_.contains(shape)) continue;
      wanted.insert(shape);
    }
    if (wanted.size() < least) return {};
    std::vector<ConvolutionShape> list(wanted.begin(), wanted.end());
    claimed_.merge(wanted);  // last, and cannot throw: a claim without a search is never released
    return list;
  }

  void release(const std::vector<ConvolutionShape>& shapes) {
    const std::lock_guard lock(mutex_);
    for (const ConvolutionShape& shape : shapes) claimed_.erase(shape);
    searched_.notify_all();
  }

  // Searches claimed shapes and releases their claims, also when it throws.
  void search(const std::vector<ConvolutionShape>& wanted) {
    try {
      std::vector<Found> found = search_all(wanted);
      const std::lock_guard lock(mutex_);
      for (std::size_t w = 0; w < wanted.size(); ++w) {
        ready_.set(wanted[w], std::move(found[w]));
      }
    } catch (...) {
      release(wanted);
      throw;
    }
    release(wanted);
  }

  std::vector<Found> search_all(const std::vector<ConvolutionShape>& wanted) {
    const std::lock_guard lock(search_mutex_);
    const auto start = std::chrono::steady_clock::now();
    const auto workers = std::min(wanted.size(), ConvolutionFinder::kWorkers);
    std::vector<Found> found(wanted.size());
    parallel_for(
        0, static_cast<std::int64_t>(workers), 1, [&](std::int64_t first, std::int64_t last) {
          const Scope scope(device_);
          const RelaxedCaptureMode relaxed(device_);
          for (auto c = static_cast<std::size_t>(first); c < static_cast<std::size_t>(last); ++c) {
            for (std::size_t w = c; w < wanted.size(); w += workers) {
              found[w] = find_candidates(c, wanted[w], kCandidates);
            }
          }
        });
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start;
    log(LogChannel::runtime, "algorithms for {} convolutions, found by {} threads in {:.0f} ms",
        wanted.size(), workers, spent.count());
    return found;
  }

  std::shared_ptr<ConvolutionAlgorithm> fastest(const ConvolutionShape& shape,
                                                const ConvolutionAlgorithms& all,
                                                const ConvolutionPointers& pointers,
                                                void* workspace, Stream stream) {
    const OwnedEvent start(device_);
    const OwnedEvent end(device_);
    const auto time_of = [&](const ConvolutionAlgorithm& algorithm, int runs) {
      device_.record(start.get(), stream);
      for (int r = 0; r < runs; ++r) algorithm.run(pointers, workspace, stream);
      device_.record(end.get(), stream);
      return device_.microseconds(start.get(), end.get()) / runs;
    };
    std::shared_ptr<ConvolutionAlgorithm> best;
    std::string times;
    for (const auto& algorithm : all) {
      if (!algorithm->try_run(pointers, workspace, stream)) continue;
      double time = best ? time_of(*algorithm, 1) : 0;
      if (!best || time < std::max(kShort, kHopeless * best->microseconds())) {
        time = time_of(*algorithm, kRuns);
      }
      algorithm->set_microseconds(time);
      times += fmt::format(" {} {:.1f},", algorithm->name(), time);
      if (!best || time < best->microseconds()) best = algorithm;
    }
    log(LogChannel::runtime, "convolution {}: {} of{} us", describe(shape),
        best ? best->name() : "none", times);
    return best;
  }

  // A child has no thread of its parent's.
  [[nodiscard]] bool is_forked() const { return ::getpid() != process_; }

  std::unique_ptr<ConvolutionFinder> finder_;
  Device& device_;
  const ::pid_t process_ = ::getpid();
  std::mutex search_mutex_;  // of the finder; taken after the other
  std::mutex mutex_;
  std::condition_variable searched_;
  std::set<ConvolutionShape> claimed_;  // being looked for
  RecentMap<ConvolutionShape, std::shared_ptr<const Convolution>> known_{kMostShapes};
  RecentMap<ConvolutionShape, Found> ready_{kMostShapes};  // found ahead, not measured yet
  // The library's favourites, of shapes that were asked for only where nothing may be measured.
  RecentMap<ConvolutionShape, Found> unmeasured_{kMostShapes};
  std::mutex ahead_mutex_;
  std::jthread ahead_;
};

}  // namespace

std::unique_ptr<Convolutions> choose_among(std::unique_ptr<ConvolutionFinder> finder,
                                           Device& device) {
  return std::make_unique<Choice>(std::move(finder), device);
}

std::string to_string(const ConvolutionShape& shape) {
  // All fields: one that is added does not compile here.
  const auto& [result, dtype, x, w, y, x_strides, w_strides, y_strides, residual_strides, stride,
               padding, dilation, is_volume, has_bias, has_residual, relu, alignment] = shape;
  return fmt::format(
      "result {}, {}, x {} {}, w {} {}, y {} {}, residual {}, stride {} padding {} dilation {}, "
      "volume {:d}, bias {:d}, residual {:d}, relu {:d}, alignment {}",
      static_cast<int>(result), abi::name_of(dtype), x, x_strides, w, w_strides, y, y_strides,
      residual_strides, stride, padding, dilation, is_volume, has_bias, has_residual, relu,
      alignment);
}

}  // namespace inkle::runtime::cuda
