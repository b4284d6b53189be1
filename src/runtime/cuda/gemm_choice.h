// The fastest of a library's algorithms for each matrix product: measured once where it is first
// run, unless an earlier process has measured it on such a device (library_choices.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/gemms.h"

namespace inkle::runtime::cuda {

// A product that has not been chosen yet.
class GemmWay : public Gemm {
 public:
  // As run(), but false where the library refuses, which some algorithms do only then.
  [[nodiscard]] virtual bool try_run(const GemmPointers& pointers, void* workspace,
                                     Stream stream) const = 0;
  // What tells it from the others of its shape; the same in every process with this version of the
  // library.
  [[nodiscard]] virtual std::string identity() const = 0;
};

using GemmWays = std::vector<std::shared_ptr<GemmWay>>;

// What asks the library. Its ways live no longer than it does.
class GemmFinder {
 public:
  virtual ~GemmFinder() = default;
  // Its name and version.
  [[nodiscard]] virtual std::string library() const = 0;
  // `most` at most, the library's favourite first. Throws Unsupported if there is none.
  [[nodiscard]] virtual GemmWays ways(const GemmShape& shape, const GemmPointers& pointers,
                                      int most) = 0;
};

// Products on `device`, which outlives them.
[[nodiscard]] std::unique_ptr<Gemms> choose_among(std::unique_ptr<GemmFinder> finder,
                                                  Device& device);

// All of a shape, for keys.
[[nodiscard]] std::string to_string(const GemmShape& shape);

}  // namespace inkle::runtime::cuda
