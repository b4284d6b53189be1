// Writes one kernel of gemm_wgmma. For gemm_wgmma*.cpp only.
#pragma once

#include <functional>
#include <vector>

#include "kernel/builder.h"
#include "templates/gemm_body.h"
#include "templates/gemm_stages.h"
#include "templates/gemm_wgmma.h"

namespace inkle::templates::wgmma {

inline constexpr std::int32_t kWarp = 32;
inline constexpr std::int32_t kWarps = 4;      // of a warpgroup
inline constexpr std::int32_t kConsumers = 2;  // warpgroups
inline constexpr std::int32_t kRows = 64;      // of a fragment, which a warpgroup holds
inline constexpr std::int32_t kTerms = 16;     // of one multiplication
inline constexpr std::int32_t kLanes = 8;      // elements of a thread's accesses in the epilogue
inline constexpr std::int32_t kPadding = 8;    // of a row of sums in shared memory
inline constexpr std::int32_t kPageBytes = 1024;  // eight rows under a swizzle of 128 bytes
inline constexpr std::int64_t kElement = 2;       // bytes of bf16
// Rows or columns of a box of an operand whose terms are not its last dimension.
inline constexpr std::int32_t kPanel = 64;

// Fragments of a warpgroup: those of half a tile, or of a whole one.
[[nodiscard]] inline std::int32_t fragments_of(const WgmmaConfig& config) {
  return config.rows / kRows / (config.ping_pong ? 1 : kConsumers);
}
// Loads of the epilogue that are as large as the result: they are issued ahead.
[[nodiscard]] std::vector<loop::Val> loads_ahead(const GemmProblem& problem);

class Writer {
 public:
  Writer(const GemmProblem& problem, const WgmmaConfig& config, kernel::Kernel& made,
         sym::Context& context);

  void run();

 private:
  using ValueId = kernel::ValueId;
  using MemoryId = kernel::MemoryId;
  using Values = kernel::Values;
  using Indices = std::vector<Expr>;

  // A tile of the result, of some of the terms.
  struct Tile {
    Expr number;              // counts batches, too
    Expr part;                // of the terms
    Expr batch, row, column;  // of the first element
    Expr turn;                // of the block
    Expr first_stage;
  };

  // --- gemm_wgmma_writer.cpp: declarations, small operations, tiles, the producer
  void declare_maps();
  void declare_shared();
  MemoryId shared(std::string name, DType dtype, Indices shape, std::int32_t alignment,
                  std::int32_t swizzle, std::int32_t padding);
  MemoryId stages_of(std::string name, std::size_t operand);
  Expr number(std::int64_t v) { return b_.context().constant(v); }
  Values loop(Expr end, kernel::LoopKind kind, const Values& initial,
              const kernel::Builder::LoopBody& body) {
    return b_.loop(kind, end, initial, body);
  }
  void loop(Expr end, kernel::LoopKind kind, const std::function<void(Expr)>& body);
  void when(ValueId condition, const std::function<void()>& then);
  ValueId is(loop::Opcode opcode, Expr x, Expr y);
  ValueId is_first_lane() { return is(loop::Opcode::equal, lane_, number(0)); }
  void plain(kernel::Op op) { b_.operation(op, {}, {}, {}); }
  void plain(kernel::Op op, std::int64_t amount);
  void barrier_of_warp();
  void init_barriers();
  Tile tile_of(Expr turn);
  [[nodiscard]] Expr turns() const { return sym::ceildiv(tiles_ - block_, blocks_); }
  void produce();
  void copy(std::size_t operand, MemoryId to, const Tile& tile, Expr term, Expr stage_number);

  // --- gemm_wgmma_multiply.cpp: the consumers
  void consume();
  Values multiply(const Tile& tile);
  Values multiply_stage(const Tile& tile, Expr s, const Values& before);
  Values multiply_computed_stage(const Tile& tile, Expr s, const Values& before);
  ValueId computed(const Tile& tile, std::int32_t fragment, Expr stage_number, Expr s, Expr k);
  void release(Expr stage_number, ValueId condition);
  kernel::FragmentAccess tile_access(std::size_t operand, Expr stage_number, Expr first, Expr term);
  [[nodiscard]] Expr row_of(std::int32_t fragment);  // in the tile
  void wait_for_turn(const Tile& tile);

  // --- gemm_wgmma_epilogue.cpp
  void finish(const Tile& tile, const Values& sums);
  void stage_slice(ValueId sums, Expr slice);
  void load_slice(const Tile& tile, std::int32_t fragment, Expr slice);
  void store_slice(const Tile& tile, std::int32_t fragment, Expr slice);
  void for_each_vector(const Tile& tile, std::int32_t fragment, Expr slice,
                       const std::function<void(Expr pass, Expr row, Expr column)>& body);
  void load_vector(const Tile& tile, Expr slice, Expr pass, Expr row, Expr column);
  void store_vector(const Tile& tile, std::int32_t fragment, Expr slice, Expr pass, Expr row,
                    Expr column);
  [[nodiscard]] std::int32_t slices() const { return config_.columns / config_.slice; }
  kernel::Access ahead_of(MemoryId registers, Expr slice, Expr pass, Expr lane);
  void store_parts(const Tile& tile, const Values& sums);
  ValueId is_last_part(const Tile& tile);
  Values add_parts(const Tile& tile, const Values& sums);
  Expr place_of_part(const Tile& tile, Expr part, std::int32_t fragment,
                     const kernel::FragmentMap& at);

  const GemmProblem& problem_;
  const WgmmaConfig& config_;
  kernel::Builder b_;
  StageBarriers barriers_;
  std::vector<MemoryId> parameters_, maps_;
  MemoryId stages_[2] = {}, sums_ = 0, turns_ = 0, tickets_ = 0;
  struct Ahead {
    loop::Val load;
    MemoryId registers;  // [slice ahead][pass][lane]
  };
  std::vector<Ahead> ahead_;
  std::int32_t slices_ahead_ = 0;
  Expr row_tiles_, column_tiles_, matrix_tiles_, tiles_, blocks_, stages_of_tile_;
  Expr block_, group_, warp_, lane_;
};

}  // namespace inkle::templates::wgmma
