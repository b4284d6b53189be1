#include "runtime/cuda/gemm_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/recent_map.h"
#include "runtime/cuda/library_choices.h"

namespace inkle::runtime::cuda {
namespace {

// Candidates of the library's heuristic that are measured, and runs of each after a warm-up. Its
// first choice is the fastest for about half of the shapes of transformers.
constexpr int kCandidates = 8;
constexpr int kRuns = 4;
// Shapes that are kept; a network has up to a few hundred, dynamic sizes make more.
constexpr std::size_t kMostShapes = 1024;

class GemmChoice final : public Gemms {
 public:
  GemmChoice(std::unique_ptr<GemmFinder> finder, Device& device)
      : finder_(std::move(finder)), device_(device) {}

  std::shared_ptr<const Gemm> find(const GemmShape& shape, const GemmPointers& pointers,
                                   void* workspace, Stream stream) override {
    const std::lock_guard lock(mutex_);
    if (const auto* known = known_.find(shape); known != nullptr) return *known;
    const GemmAlgorithms all = finder_->find_algorithms(shape, pointers, kCandidates);
    INKLE_CHECK(!all.empty(), "a GEMM without candidate algorithms");
    // With the residual in place of the result, a second run would add it twice.
    const bool is_in_place = shape.has_residual && pointers.c == pointers.d;
    const bool may_measure = !is_in_place && !device_.is_capturing(stream);
    const auto runs = [&](const GemmAlgorithm& algorithm) {
      return !may_measure || algorithm.try_run(pointers, workspace, stream);
    };
    std::shared_ptr<GemmAlgorithm> found = remembered(shape, all);
    if (found && !runs(*found)) found = nullptr;
    if (!found) {
      if (!may_measure) return all.front();
      found = fastest(shape, all, pointers, workspace, stream);
      // If several processes measure at once (ranks of a job), the first to finish decides for all.
      if (auto first = remembered(shape, all); first && runs(*first)) {
        found = std::move(first);
      } else {
        keep(shape, *found);
      }
    }
    known_.set(shape, found);
    return found;
  }

 private:
  [[nodiscard]] ChoiceKey key_of(const GemmShape& shape) const {
    return {finder_->library(), device_of(device_.description()), to_string(shape)};
  }

  // The one that was measured before, if it is one of these.
  [[nodiscard]] std::shared_ptr<GemmAlgorithm> remembered(const GemmShape& shape,
                                                          const GemmAlgorithms& all) const {
    const std::shared_ptr<LibraryChoices> choices = device_.library_choices();
    if (!choices) return nullptr;
    const std::optional<std::string> name = choices->find(key_of(shape));
    if (!name) return nullptr;
    const auto at = std::ranges::find_if(
        all, [&](const auto& algorithm) { return algorithm->identity() == *name; });
    if (at != all.end()) return *at;
    log(LogChannel::runtime, "GEMM [{}, {}] k {} batch {}: the library has no {}", shape.m, shape.n,
        shape.k, shape.batch, *name);
    return nullptr;
  }

  void keep(const GemmShape& shape, const GemmAlgorithm& algorithm) const {
    if (const auto choices = device_.library_choices(); choices) {
      choices->keep(key_of(shape), algorithm.identity());
    }
  }

  std::shared_ptr<GemmAlgorithm> fastest(const GemmShape& s, const GemmAlgorithms& all,
                                         const GemmPointers& pointers, void* workspace,
                                         Stream stream) const {
    const OwnedEvent start(device_);
    const OwnedEvent end(device_);
    std::shared_ptr<GemmAlgorithm> best;
    double least = 0;
    double first = 0;
    for (const auto& candidate : all) {
      if (!candidate->try_run(pointers, workspace, stream)) continue;
      device_.record(start.get(), stream);
      for (int r = 0; r < kRuns; ++r) candidate->run(pointers, workspace, stream);
      device_.record(end.get(), stream);
      const double time = device_.microseconds(start.get(), end.get()) / kRuns;
      if (first == 0) first = time;
      if (!best || time < least) {
        best = candidate;
        least = time;
      }
    }
    if (!best)
      unsupported("every algorithm of the library fails for GEMM [{}, {}] k {}", s.m, s.n, s.k);
    log(LogChannel::runtime, "GEMM [{}, {}] k {} batch {}: {} in {:.1f} us, first {:.1f} us", s.m,
        s.n, s.k, s.batch, best->name(), least, first);
    return best;
  }

  std::unique_ptr<GemmFinder> finder_;
  Device& device_;
  std::mutex mutex_;
  RecentMap<GemmShape, std::shared_ptr<const Gemm>> known_{kMostShapes};
};

}  // namespace

std::unique_ptr<Gemms> choose_among(std::unique_ptr<GemmFinder> finder, Device& device) {
  return std::make_unique<GemmChoice>(std::move(finder), device);
}

std::string to_string(const GemmShape& shape) {
  // All fields: one that is added does not compile here.
  const auto& [in, out, m, n, k, batch, a_row, a_depth, a_batch, b_depth, b_column, b_batch, c_row,
               c_batch, d_row, d_batch, has_bias, has_residual, activation, alignment,
               has_workspace] = shape;
  return fmt::format(
      "{} to {}, m {} n {} k {} batch {}, a {} {} {}, b {} {} {}, c {} {}, d {} {}, bias {:d}, "
      "residual {:d}, activation {}, alignment {}, workspace {:d}",
      abi::name_of(in), abi::name_of(out), m, n, k, batch, a_row, a_depth, a_batch, b_depth,
      b_column, b_batch, c_row, c_batch, d_row, d_batch, has_bias, has_residual,
      static_cast<int>(activation), alignment, has_workspace);
}

}  // namespace inkle::runtime::cuda
