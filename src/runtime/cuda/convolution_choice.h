// The fastest of a library's ways for each convolution: found by shape, also ahead and beside the
// caller, and measured once where it is first run, unless an earlier process has measured it on
// such a device (library_choices.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cuda/convolutions.h"

namespace inkle::runtime::cuda {

// A convolution that has not been chosen yet.
class Way : public Convolution {
 public:
  // As run(), but false where the library refuses, which some ways do only then.
  [[nodiscard]] virtual bool try_run(const ConvolutionPointers& pointers, void* workspace,
                                     Stream stream) const = 0;
  // What tells it from the others of its shape; the same in every process with this version of the
  // library.
  [[nodiscard]] virtual std::string identity() const = 0;
  [[nodiscard]] double microseconds() const override { return microseconds_; }
  void set_microseconds(double value) { microseconds_ = value; }

 private:
  std::atomic<double> microseconds_ = 0;  // measured while others may have it, unmeasured
};

using Ways = std::vector<std::shared_ptr<Way>>;

// What asks the library. Its ways live no longer than it does.
class WayFinder {
 public:
  // Threads that ask at once.
  static constexpr std::size_t kWorkers = 8;

  virtual ~WayFinder() = default;
  // Its name and version.
  [[nodiscard]] virtual std::string library() const = 0;
  // Ways that fit the workspace, `most` at most, the library's favourite first. Called by several
  // threads at once with different workers below kWorkers, each in a Scope of the device. Throws as
  // the library fails.
  [[nodiscard]] virtual Ways ways(std::size_t worker, const ConvolutionShape& shape, int most) = 0;
  // Likewise, the one of this identity, without making the others ready; null: there is none.
  [[nodiscard]] virtual std::shared_ptr<Way> way(std::size_t worker, const ConvolutionShape& shape,
                                                 std::string_view identity) = 0;
};

// Convolutions on `device`, which outlives them.
[[nodiscard]] std::unique_ptr<Convolutions> choose_among(std::unique_ptr<WayFinder> finder,
                                                         Device& device);

// All of a shape, for keys.
[[nodiscard]] std::string to_string(const ConvolutionShape& shape);

}  // namespace inkle::runtime::cuda
