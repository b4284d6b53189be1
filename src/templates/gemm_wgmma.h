// Matrix products of bf16 on the tensor cores of sm_90a, with pointwise work on their sums and on
// elements of the left operand.
//
//   blocks of three warpgroups, each block with one tile of the result after the other
//     producer                            one thread
//       for each tile, for each 64 terms
//         wait until a stage is empty; copy boxes of a and of b to it
//     consumers                           two warpgroups, half the rows each; by ping-pong
//       for each tile                     a tile each, one multiplies while the other stores
//         what the epilogue reads of other operands -> registers, the first of it
//         for each 64 terms: wait until the stage is full; sums += a * b    registers
//           the stage before is read: it is empty
//         for each 32 columns
//           sums -> shared memory, in rows                                  of its warp alone
//           stores of epilogue(sums), 16 bytes a thread
//
// An operand may have its terms last or its rows (columns). With `left`, a goes from shared memory
// through registers. With split-K (parts of the terms), partial sums go to global memory, and the
// last warp to finish its rows adds them, in the order of the parts.
#pragma once

#include <span>
#include <string>

#include "templates/gemm.h"

namespace inkle::templates {

struct WgmmaConfig {
  std::int32_t rows = 128;  // of a tile
  std::int32_t columns = 256;
  bool ping_pong = false;   // each warpgroup of consumers has tiles of its own
  std::int32_t parts = 1;   // of the terms
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
