// The fastest of a library's algorithms for each GEMM: measured once at its first run, unless an
// earlier process has measured it on such a device (library_choices.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/gemms.h"

namespace inkle::runtime::cuda {

// A candidate algorithm for a GEMM.
class GemmAlgorithm : public Gemm {
 public:
  // As run(), but false if the library fails, which some algorithms do only when they run.
  [[nodiscard]] virtual bool try_run(const GemmPointers& pointers, void* workspace,
                                     Stream stream) const = 0;
  // Identifies the algorithm among those of its shape; the same in every process with this version
  // of the library.
  [[nodiscard]] virtual std::string identity() const = 0;
};

using GemmAlgorithms = std::vector<std::shared_ptr<GemmAlgorithm>>;

// Queries the library. Its algorithms must not outlive it.
class GemmFinder {
 public:
  virtual ~GemmFinder() = default;
  // Its name and version.
  [[nodiscard]] virtual std::string library() const = 0;
  // At most `most` algorithms, in the library's order. Throws Unsupported if there is none.
  [[nodiscard]] virtual GemmAlgorithms find_algorithms(const GemmShape& shape,
                                                       const GemmPointers& pointers, int most) = 0;
};

// GEMMs on `device`, which outlives them.
[[nodiscard]] std::unique_ptr<Gemms> choose_among(std::unique_ptr<GemmFinder> finder,
                                                  Device& device);

// Every field of a shape, for keys.
[[nodiscard]] std::string to_string(const GemmShape& shape);

}  // namespace inkle::runtime::cuda
