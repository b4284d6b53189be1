// What the compiler may know of a device, as data: one row for each stands in targets.cpp. Later
// stages ask these fields and never which device it is, so that a new device is a new row.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "abi/device.h"
#include "abi/dtype.h"
#include "abi/library_call.h"

namespace inkle::abi {

// Values of an enumeration of fewer than 64.
template <class Enum>
class SetOf {
 public:
  constexpr SetOf() = default;
  constexpr SetOf(std::initializer_list<Enum> members) {
    for (const Enum e : members) bits_ |= bit(e);
  }
  [[nodiscard]] constexpr bool has(Enum e) const { return (bits_ & bit(e)) != 0; }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  [[nodiscard]] constexpr SetOf without(Enum e) const {
    SetOf rest = *this;
    rest.bits_ &= ~bit(e);
    return rest;
  }
  [[nodiscard]] constexpr SetOf with(Enum e) const {
    SetOf more = *this;
    more.bits_ |= bit(e);
    return more;
  }
  friend constexpr bool operator==(const SetOf&, const SetOf&) = default;

 private:
  static constexpr std::uint64_t bit(Enum e) {
    return std::uint64_t{1} << static_cast<unsigned>(e);
  }
  std::uint64_t bits_ = 0;
};

// Epilogues that a library fuses into a contraction.
enum class FusedWork : std::uint8_t {
  chain,                // a bias and post-ops in any order, with operands of any strides
  residual_activation,  // a bias, one addition of a tensor like the result, one activation
};

// Who writes the matrix products that a template can write: the library, the template, or who is
// expected to take less time, with what could not be fused.
enum class GemmSource : std::uint8_t { library, templates, least };

// Matrix products: which a library computes, and what it is fast at. Without types: none.
struct GemmLibrary {
  std::string_view name;             // empty: there is none
  SetOf<DType> types;                // of both operands and the result
  SetOf<DType> f32_results;          // operands of these may have a result of f32
  SetOf<PostOpKind> post_ops;        // with alpha and beta of 0
  SetOf<PostOpKind> inexact_in_f32;  // post-ops with fewer bits than f32
  FusedWork fused = FusedWork::chain;
  // Operands are matrices with contiguous rows or columns (is_matrix): rows or columns that
  // repeat or overlap are copied.
  bool needs_matrices = false;
  // Unaligned rows are slow: with row_bytes > 0, rows of at least least_row elements, of operands
  // of least_elements, are padded to multiples of so many bytes (pad_gemms).
  std::int64_t row_bytes = 0;
  std::int64_t least_row = 0;
  std::int64_t least_elements = 0;
  double reached = 0;          // part of matrix_flops that GEMMs reach; 0: not measured
  double seconds_of_call = 0;  // what a call costs beside its work
  SetOf<DType> template_types = {DType::f32};  // that a template may write
  GemmSource source = GemmSource::library;     // write_gemms
  // Products of one column of these are loops, as all of one row are: the library adds their terms
  // one after the other on some processors.
  SetOf<DType> column_loops;
};

struct ConvolutionLibrary {
  std::string_view name;
  SetOf<DType> types;
  SetOf<PostOpKind> post_ops;
  FusedWork fused = FusedWork::chain;
  // Of these, as plain convolutions or gradients; others are the host's, which allocates results.
  SetOf<DType> own;
  bool is_open = true;  // false: all are the host's
  bool transposed_with_post_ops = true;
  // Images of these stay as eager has them: the library may round operands to TF32, and does so
  // for other shapes where channels are last than where they are not.
  SetOf<DType> keeps_order;
  bool weights_channels_last = false;  // gradients of weights of f16 and bf16
  std::int64_t least_channels = 0;     // images of fewer are padded; 0: as they are
  // The most products that one f32 accumulator adds sequentially; 0: any number.
  std::int64_t longest_sum = 0;
};

struct AttentionLibrary {
  std::string_view name;
  SetOf<DType> types;
};

struct Libraries {
  GemmLibrary gemm;
  ConvolutionLibrary convolution;
  AttentionLibrary attention;
  // What turns a contraction's sums into a result of f16 or bf16 is kept apart from later work, for
  // the library to do: half the bytes are written and read.
  bool keep_roundings = false;
  // A tensor that is added to a contraction's rounded result may be added before the rounding, by
  // the library: one rounding less than eager's.
  bool adds_before_rounding = false;
  // Calls to eager take strided parts of a buffer as they lie.
  bool eager_takes_parts = false;
};

// Kernels of a processor's threads: loops with vectors along one of them.
struct LoopRules {
  double thread_nanoseconds = 0;    // work from which on a thread of its own pays
  std::int64_t elementwise = 0;     // elements of a block without inner loops
  std::int64_t long_reduction = 0;  // elements from which on threads share one result
  // Sums over columns of rows that are reduced too (split_columns) or made in the same kernel
  // (unfold_reshapes): rows of a part, and sums that a core keeps beside the row.
  std::int64_t part_rows = 0;
  std::int64_t part_sums = 0;
  // Tasks of the GEMM template: rows and columns; and vectors of accumulators in registers.
  std::int64_t gemm_rows = 0;
  std::int64_t gemm_columns = 0;
  std::int64_t gemm_sums = 0;
  // Against the library: how much longer a sum takes it where there are few rows, and how many
  // terms of f32 take as long as another kernel's writing and reading a result.
  std::int64_t gemm_few_rows = 0;
  double gemm_few_rows_gain = 0;
  double gemm_joined_terms = 0;
  // Blocks of attention and of its gradient; rows of keys up to whole_columns are one block.
  std::int64_t attention_rows = 0;
  std::int64_t gradient_rows = 0;
  std::int64_t gradient_columns = 0;
  std::int64_t whole_columns = 0;
};

// Kernels of a GPU's blocks. `access`: what a thread loads at once, vector_bytes.
struct BlockRules {
  std::string_view measured_on;  // the card whose measurements these are; its own or another's
  // Rows that a team of threads shares.
  std::int64_t kept_accesses = 0;       // of a row, in registers of one thread
  std::int64_t most_kept_accesses = 0;  // where a row would otherwise take a cluster, or two reads
  std::int64_t own_block_accesses = 0;  // of a thread, from which a warp is a block of its own
  std::int32_t read_accesses = 0;       // in flight, of a row that is read once
  std::int64_t searched_accesses = 0;   // of a row in which a maximum is searched for
  std::int64_t part_bytes = 0;          // of a split row, in a block (parts_of_row)
  std::int32_t part_accesses = 0;       // of each thread of such a block
  std::int64_t exchanged_bytes = 0;     // that the rows of a block pass between threads
  // Scans.
  std::int32_t scan_threads = 0;
  std::int64_t few_rows = 0;      // of a multiprocessor: with fewer, blocks share a row
  std::int64_t least_chunks = 0;  // of a row that blocks share
  std::int32_t chunk_accesses = 0;
  std::int32_t most_chunk_accesses = 0;  // of one element each
  // Columns.
  std::int64_t long_column = 0;  // in few blocks: fewer columns and more threads in each
  std::int32_t few_columns = 0;  // groups of lanes next to each other
  std::int32_t column_threads = 0;
  std::int64_t column_streams = 0;  // loads of a pass from which on fewer iterations are in flight
  // Sequential rows, with accumulators of their columns in registers (sequential_team).
  std::int64_t sequential_sums = 0;      // of a thread
  std::int64_t sequential_elements = 0;  // of a thread
  std::int64_t sequential_of_warp = 0;   // of a thread whose warp alone has the row
  std::int32_t sequential_warps = 0;     // of a block of such warps
  std::int32_t sequential_threads = 0;
  // Tiles that are transposed through shared memory (share_tile).
  std::int64_t tile_accesses = 0;
  std::int64_t tile_row = 0;        // bytes, at most
  std::int64_t least_tile_row = 0;  // bytes
  std::int64_t tile_bytes = 0;
  std::int64_t large_tiles = 0;  // tiles of block_threads, for each multiprocessor
  std::int64_t large_tile_loads = 0;
  // Bounds on the registers of a thread, as blocks that a multiprocessor is to hold (expand).
  std::int32_t bounded_threads = 0;     // of a multiprocessor, that are to have their registers
  std::int32_t large_tile_blocks = 0;   // of tiles of block_threads in shared memory
  std::int32_t bounded_columns = 0;     // multiprocessors that columns fill, in few blocks
  std::int64_t bounded_sequential = 0;  // elements of a thread that has sequential rows, at most
  std::int32_t bounded_chunk = 0;       // elements of a thread in a chunk of a scan, at least,
  std::int32_t chunk_registers = 0;     // and registers that it has beside them
};

// How reductions are split in parts, so that all of the device has work (split_long_reductions,
// split_columns).
struct SplitRules {
  std::int64_t part_of_row = 0;     // elements
  std::int64_t part_of_column = 0;  // elements
  std::int64_t column_blocks = 0;   // of a multiprocessor
  std::int64_t most_blocks = 0;
  std::int64_t least_rows = 0;     // of a part whose columns are summed
  std::int64_t least_columns = 0;  // shorter rows leave threads of a warp idle
  std::int64_t split_sums = 0;     // that a block keeps
  std::int64_t split_threads = 0;  // of a multiprocessor, with their sums in registers
  std::int64_t split_saves = 0;    // bytes that a call moves less, at least, outside of gradients
  // Last-block reductions (fuse_last_blocks).
  std::int64_t last_block_points = 0;   // for each of its threads
  std::int64_t last_block_numbers = 0;  // of what is no reduction, together
  std::int64_t last_block_rows = 0;     // of parts, of a strip of columns
  std::int64_t last_block_cells = 0;    // blocks that pass their sums in cells of 8 bytes
  std::int64_t last_block_shared = 0;   // bytes in which the last block reduces columns
};

// What threads that share a row cost a fusion. All 0: nothing, one thread has the row.
struct FusionRules {
  std::int64_t row_threads = 0;    // share a long row
  std::int64_t long_row = 0;       // elements
  std::int64_t column_team = 0;    // threads share a column
  std::int64_t many_elements = 0;  // of columns: more than one launch's worth
  std::int64_t kept_of_row = 0;    // bytes that a block keeps for other threads
};

// When a kernel gets hints that its operands were just written, or that its rows stay in L2
// (set_cache_hints). All 0: there are no such hints.
struct CacheRules {
  std::int64_t least_part = 0;    // of the cache: less is still there as a whole
  std::int64_t most_caches = 0;   // more gains little
  std::int64_t written_part = 0;  // of what a kernel moves, one in so many
  friend constexpr bool operator==(const CacheRules&, const CacheRules&) = default;
};

// Output tile of a GEMM that a block computes at a time, on tensor cores that read shared memory.
struct GemmTile {
  std::int32_t rows = 0;
  std::int32_t columns = 0;
  std::int32_t stages = 0;  // of terms that are copied ahead
  // Each of the two warpgroups that multiply has tiles of its own, in turns; else half the rows of
  // one.
  bool ping_pong = false;
  friend bool operator==(const GemmTile&, const GemmTile&) = default;
};

// GEMMs as kernels of blocks.
struct GemmRules {
  std::array<GemmTile, 12> tiles = {};  // to choose from; those of 0 rows are none
  std::int32_t terms = 0;               // of a stage
  std::int32_t group = 0;               // blocks of rows that share columns in L2
  // Clock cycles: of a multiplication of 64 rows by 8 columns by 16 terms, of a byte that is copied
  // to shared memory, of what a tile costs beside: by itself, and for each element of it.
  double multiplication = 0;
  double byte = 0;
  double tile = 0;
  double element = 0;
  // Elements of a ping-pong tile, at most, that leave registers for operands of the epilogue that
  // are as large as the result: those are loaded before the tile is multiplied.
  std::int32_t ping_pong_elements = 0;
  // Parts that terms are multiplied in, where sizes are constant; their sums are added.
  std::int32_t parts = 1;
  // Blocks of columns, at most, each of which computes the left operand again that a kernel made;
  // 0: that kernel stays.
  std::int32_t computed_again = 0;
  friend bool operator==(const GemmRules&, const GemmRules&) = default;
};

// What multiplies small matrices, beside fused multiply-adds of vectors.
enum class MatrixUnit : std::uint8_t { none, avx512_bf16, amx, mma, wgmma, tcgen05 };

struct Target {
  std::string_view row;   // "x86-64-v3", "sm_90a"
  std::string_view card;  // whose figures these are: "H200"; empty: of no card in particular
  DeviceKind kind = DeviceKind::cpu;

  // Generated code: what LLVM takes as processor and features; empty for a GPU.
  std::string_view processor;
  std::string_view features;
  // Of rows alike in vectors the last whose feature the processor has is its own; empty: any has
  // it.
  std::string_view own_feature;
  bool has_fma = true;
  MatrixUnit matrix_unit = MatrixUnit::none;

  // Figures as in DeviceDescription: where a device is at hand, what it tells of itself is in their
  // place. They steer schedules; never correctness.
  std::int32_t vector_bytes = 32;  // of a register, or of one access of a GPU's thread
  std::int32_t vector_registers = 16;
  std::int32_t parallelism = 1;  // threads, or multiprocessors
  std::int32_t warp_size = 1;
  std::int64_t l1_bytes = 32 << 10;  // or the most shared memory of a block
  std::int64_t l2_bytes = 1 << 20;
  std::int64_t l3_bytes = 16 << 20;
  double bytes_per_second = 40e9;  // main memory, all threads
  double flops_f32 = 500e9;        // fused multiply-adds count two, all threads
  // Bytes that tensors given to a plan are aligned to, at least (PlanArgument::alignment).
  std::int32_t input_alignment = 1;

  // Kernels run as blocks of a grid (schedule::BlockSchedule), of threads in warps; if not, as
  // loops of a processor's threads.
  bool has_blocks = false;
  std::int32_t block_threads = 0;     // most of a block
  std::int32_t resident_threads = 0;  // most of a multiprocessor at a time
  std::int32_t registers = 0;         // 32-bit registers of a multiprocessor
  std::int64_t shared_bytes = 0;      // shared memory of a multiprocessor
  std::int32_t cluster_blocks = 1;    // most blocks that can read each other's shared memory
  bool can_wait = false;              // kernels start early and wait for what is queued before
  double functions_per_second = 0;    // exp2, reciprocals and the like, all multiprocessors
  double matrix_flops = 0;            // dense products of bf16

  // A kernel over many tensors has their addresses as parameters of its launch, of so many bytes at
  // most; 0: in memory.
  std::int64_t table_bytes = 0;
  // Scatters that read nothing they write run their points at once, with atomic additions.
  bool scatters_at_once = false;
  // A launch costs more than a scalar that its reader recomputes (move_scalars), or than work that
  // the last block of another launch can do (fuse_last_blocks).
  bool launches_cost = false;

  LoopRules loops;
  BlockRules blocks;
  GemmRules gemm;
  SplitRules split;
  FusionRules fusion;
  CacheRules caches;
  Libraries libraries;
};

}  // namespace inkle::abi
