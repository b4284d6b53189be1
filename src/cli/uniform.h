// Numbers that depend on a seed and a position alone: the same with every library and any threads.
#pragma once

#include <cstdint>

#include "frontend/pt2/tensor_data.h"

namespace inkle::cli {

// Fills a row-major tensor. Real numbers are uniform in [low, high); whole ones between both, ends
// included, unsigned ones from 0. Throws Unsupported for other dtypes.
void fill_uniform(frontend::pt2::TensorData& tensor, double low, double high, std::uint64_t seed);

}  // namespace inkle::cli
