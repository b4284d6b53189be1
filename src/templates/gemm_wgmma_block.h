// What all parts of a kernel of gemm_wgmma share: small operations, the memory that they exchange
// data through, and the tiles of a block. For gemm_wgmma*.cpp only.
#pragma once

#include <functional>
#include <vector>

#include "kernel/builder.h"
#include "templates/gemm_stages.h"
#include "templates/gemm_wgmma.h"

namespace inkle::templates::wgmma {

using kernel::MemoryId;
using kernel::ValueId;
using kernel::Values;

inline constexpr std::int32_t kWarp = 32;
inline constexpr std::int32_t kWarps = 4;      // of a warpgroup
inline constexpr std::int32_t kConsumers = 2;  // warpgroups
inline constexpr std::int32_t kRows = 64;      // of a fragment, which a warpgroup holds
inline constexpr std::int32_t kTerms = 16;     // of one multiplication
inline constexpr std::int32_t kLanes = 8;      // elements of a thread's accesses in the epilogue
inline constexpr std::int32_t kPadding = 8;    // of a row of sums in shared memory
inline constexpr std::int64_t kElement = 2;    // bytes of bf16
// Rows or columns of a box of an operand whose terms are not its last dimension.
inline constexpr std::int32_t kPanel = 64;
// Registers of a thread, once the producer has given up what it does not need.
inline constexpr std::int32_t kProducerRegisters = 40, kConsumerRegisters = 232;

// Fragments of a warpgroup: those of half a tile, or of a whole one.
[[nodiscard]] inline std::int32_t fragments_of(const WgmmaConfig& config) {
  return config.rows / kRows / (config.ping_pong ? 1 : kConsumers);
}

// Operations in the words of these kernels.
class Operations {
 public:
  explicit Operations(kernel::Builder& builder) : b_(builder) {}

  [[nodiscard]] Expr number(std::int64_t v) const { return b_.context().constant(v); }
  Values loop(Expr end, kernel::LoopKind kind, const Values& initial,
              const kernel::Builder::LoopBody& body);
  void loop(Expr end, kernel::LoopKind kind, const std::function<void(Expr)>& body);
  void when(ValueId condition, const std::function<void()>& then);
  ValueId is(loop::Opcode opcode, Expr x, Expr y);
  void plain(kernel::Op op) { b_.operation(op, {}, {}, {}); }
  void plain(kernel::Op op, std::int64_t amount);
  void barrier_of_warp();
  // Of f32, in a warpgroup.
  [[nodiscard]] kernel::Type sums_type(std::int32_t columns);
  Values zeros(std::int32_t fragments, std::int32_t columns);
  // `body` for each element of a fragment, at its row and column; what it yields becomes another.
  using MapBody = std::function<Values(ValueId element, Expr row, Expr column)>;
  Values map(ValueId fragment, const kernel::TypeList& results, const MapBody& body);

 protected:
  kernel::Builder& b_;
};

// A tile of the result, of some of the terms.
struct Tile {
  Expr number;              // counts batches, too
  Expr part;                // of the terms
  Expr batch, row, column;  // of the first element
  Expr turn;                // of the block
  Expr first_stage;
};

// The kernel as such: its parameters, axes and shared memory, and which tiles a block has.
class Block : public Operations {
 public:
  Block(const GemmProblem& problem, const WgmmaConfig& config, kernel::Builder& builder);

  void init_barriers();
  [[nodiscard]] Tile tile_of(Expr turn) const;
  [[nodiscard]] Expr turns() const { return sym::ceildiv(tiles_ - index, blocks_); }
  [[nodiscard]] Expr row_of(std::int32_t fragment) const;  // in the tile
  // From which on a stage of the tile has terms.
  [[nodiscard]] Expr first_term(const Tile& tile, Expr stage) const;
  ValueId is_first_lane() { return is(loop::Opcode::equal, lane, number(0)); }
  [[nodiscard]] kernel::Builder& builder() { return b_; }

  const GemmProblem& problem;
  const WgmmaConfig& config;
  StageBarriers barriers;
  std::vector<MemoryId> parameters, maps;
  MemoryId stages[2] = {};         // of both operands
  MemoryId sums = 0;               // of a slice
  MemoryId turns_to_multiply = 0;  // barriers, by ping-pong
  Expr matrix_tiles;               // of one batch
  Expr stages_of_tile;
  Expr index, group, warp, lane;

 private:
  void declare_maps();
  void declare_shared();
  MemoryId declare(std::string name, DType dtype, std::vector<Expr> shape, std::int32_t alignment,
                   std::int32_t swizzle, std::int32_t padding);
  MemoryId declare_stages(std::string name, std::size_t operand);

  Expr row_tiles_, column_tiles_, tiles_, blocks_;
};

}  // namespace inkle::templates::wgmma
