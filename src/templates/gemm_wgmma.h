// Matrix products of bf16 on the tensor cores of sm_90a, with pointwise work on their sums.
//
//   blocks of three warpgroups, each block with one tile of the result after the other
//     producer                            one thread
//       for each tile, for each 64 terms
//         wait until a stage is empty; copy a box of a and a box of b to it
//     consumers                           two warpgroups, 64 rows each
//       for each tile
//         for each 64 terms: wait until the stage is full; sums += a * b    registers
//           the stage before is read: it is empty
//         for each 32 columns
//           sums -> shared memory, in rows                                  of its warp alone
//           stores of epilogue(sums), 16 bytes a thread
#pragma once

#include <span>
#include <string>

#include "templates/gemm.h"

namespace inkle::templates {

struct WgmmaConfig {
  std::int32_t rows = 128;  // of a tile: 64 for each warpgroup of consumers
  std::int32_t columns = 256;
  std::int32_t terms = 64;  // of a stage
  std::int32_t stages = 4;
  std::int32_t group = 8;     // blocks of rows whose tiles follow each other
  std::int32_t blocks = 132;  // of the grid, at most
  std::int32_t slice = 32;    // columns of sums that lie in shared memory at a time
  std::int64_t shared_bytes = 227 << 10;
  friend bool operator==(const WgmmaConfig&, const WgmmaConfig&) = default;
};
[[nodiscard]] std::string to_string(const WgmmaConfig& config);

using WgmmaTemplate = Template<GemmProblem, WgmmaConfig>;

[[nodiscard]] std::span<const WgmmaTemplate> wgmma_templates();

}  // namespace inkle::templates
