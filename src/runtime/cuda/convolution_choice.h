// The fastest of a library's algorithms for each convolution: searched by shape, also ahead of time
// on another thread, and measured once at its first run, unless an earlier process has measured it
// on such a device (library_choices.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cuda/convolutions.h"

namespace inkle::runtime::cuda {

// A candidate algorithm for a convolution.
class ConvolutionAlgorithm : public Convolution {
 public:
  // As run(), but false if the library fails, which some algorithms do only when they run.
  [[nodiscard]] virtual bool try_run(const ConvolutionPointers& pointers, void* workspace,
                                     Stream stream) const = 0;
  // Identifies the algorithm among those of its shape; the same in every process with this version
  // of the library.
  [[nodiscard]] virtual std::string identity() const = 0;
  [[nodiscard]] double microseconds() const override { return microseconds_; }
  void set_microseconds(double value) { microseconds_ = value; }

 private:
  std::atomic<double> microseconds_ = 0;  // measured while others may have it, unmeasured
};

using ConvolutionAlgorithms = std::vector<std::shared_ptr<ConvolutionAlgorithm>>;

// Queries the library. Its algorithms must not outlive it.
class ConvolutionFinder {
 public:
  // Threads that query at once.
  static constexpr std::size_t kWorkers = 8;

  virtual ~ConvolutionFinder() = default;
  // Its name and version.
  [[nodiscard]] virtual std::string library() const = 0;
  // At most `most` algorithms that fit the workspace, in the library's order. Called by several
  // threads at once with different workers below kWorkers, each in a Scope of the device. Throws as
  // the library fails.
  [[nodiscard]] virtual ConvolutionAlgorithms find_algorithms(std::size_t worker,
                                                              const ConvolutionShape& shape,
                                                              int most) = 0;
  // Likewise, the one of this identity, without making the others ready; null: there is none.
  [[nodiscard]] virtual std::shared_ptr<ConvolutionAlgorithm> find_algorithm(
      std::size_t worker, const ConvolutionShape& shape, std::string_view identity) = 0;
};

// Convolutions on `device`, which outlives them.
[[nodiscard]] std::unique_ptr<Convolutions> choose_among(std::unique_ptr<ConvolutionFinder> finder,
                                                         Device& device);

// Every field of a shape, for keys.
[[nodiscard]] std::string to_string(const ConvolutionShape& shape);

}  // namespace inkle::runtime::cuda
