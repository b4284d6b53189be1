// Arguments of one call: arrays from files, weights, and random numbers where nothing was given.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "abi/tensor_view.h"
#include "cli/model.h"

namespace inkle::cli {

// Both ends are included for whole numbers.
struct Range {
  double low = 0, high = 0;
};

struct ArgumentOptions {
  std::vector<std::string> inputs;  // "name=file.npy", or "file.npy" for the next one
  std::vector<std::string> sizes;   // "s0=8": sizes of random inputs
  std::uint64_t seed = 0;
  bool random = true;  // fill what was not given; else it is an error
  // By tensor input: its random numbers are uniform in its range, and depend on its number, the
  // seed and nothing else. Empty: the ranges below, from one generator for all inputs.
  std::vector<Range> ranges;
};

// What Executable::run takes. Tensors and integers are in the graph's order, counted apart.
struct Arguments {
  std::vector<TensorData> tensors;
  std::vector<std::int64_t> integers;
  [[nodiscard]] std::vector<abi::TensorView> views() const;
};

// UserError names the input and says what was expected: wrong dtype, rank or size, sizes outside a
// symbol's range, names that the graph lacks, a number of ranges that is not that of the tensors.
// Random floats are in [-1, 1), integers 0 or 1, unless ranges are given.
[[nodiscard]] Arguments make_arguments(const Model& model, const ArgumentOptions& options);

}  // namespace inkle::cli
