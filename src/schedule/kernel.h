// A fused kernel: shared outer loops around a list of stages, every access linearised. This is what
// code generators compile, together with a Schedule, which is data of its own.
//
//   kernel @k0(in p0: f32, in p1: f32, out p2: f32; s0) {
//     for i0 in s0 {
//       row r0 = reduce.max i1 in 768 { %0 = load p0[768*i0+i1]; yield %0 }
//       row r1 = reduce.sum i1 in 768 { ... exp(sub(load p0[768*i0+i1], row r0)) ... }
//       for i1 in 768 { p2[768*i0+i1] = ... }
//     }
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "abi/device.h"
#include "abi/plan.h"
#include "loop/body.h"
#include "loop/program.h"
#include "sym/expr.h"

namespace inkle::schedule {

using abi::DType;
using loop::Body;
using loop::Dim;
using sym::Expr;

enum class ParamRole : std::uint8_t { in, out, inout };

// A pointer parameter. No two parameters overlap in memory unless one is `may_alias`.
struct Param {
  ParamRole role = ParamRole::in;
  DType dtype = DType::f32;
  std::int32_t alignment = 1;  // bytes, known of the pointer
  bool may_alias = false;
};

// A private array of one outer iteration (of one lane block when the outer loop is vectorised:
// then each element holds one value per lane), or of all sequential iterations of one worker.
struct Scratch {
  DType dtype = DType::f32;
  Expr elements;
  bool is_carried = false;  // live across the sequential loops
};

// In which order a reduction combines its terms. Where it is not `free` it depends on the reduced
// loops alone, which then stay as they are, and not on those around them (schedule/numerics.h).
enum class Association : std::uint8_t {
  free,     // as is fastest
  rows,     // lanes run along the last reduced loop
  columns,  // sequential, term after term
};

enum class StageKind : std::uint8_t { pointwise, reduction, scan, scatter };

// When a stage of a kernel with sequential loops runs: before the first sequential iteration, in
// each of them, or after the last.
enum class Phase : std::uint8_t { first, each, last };

// In a stage's body, Instruction::buffer of a load and StageStore::target count parameters first,
// then scratch arrays: buffer b is parameter b if b < params.size(), else scratch b -
// params.size(). `indices` has one entry: the offset in elements, in terms of outer variables,
// inner variables, size symbols and indirect symbols of the body.
struct StageStore {
  std::uint32_t target = 0;
  Expr offset;
  loop::StoreMode mode = loop::StoreMode::overwrite;
  std::uint32_t yield = 0;
};

// Runs once in every outer iteration, in order (but see Phase).
//   pointwise  runs its body at every point of `inner` (once if empty) and stores yields
//   reduction  reduces its yield over `inner` and defines rows first_row, first_row + 1, ...
//              (loop::result_count of them), readable by later stages with Opcode::row; no stores
//   scan       combines its one yield by `reduce` (sum, prod, min, max; in `accumulator`) with the
//              running value, point after point, and stores that at every point: yield 0 of a store
//              stands for it
//   scatter    as pointwise, but point after point: each sees what the earlier ones have stored,
//              and of two that store to one element the later one stays
struct Stage {
  StageKind kind = StageKind::pointwise;
  std::vector<Dim> inner;  // outermost first
  Body body;
  std::vector<StageStore> stores;
  loop::ReduceOp reduce = loop::ReduceOp::sum;
  DType accumulator = DType::f32;
  Association association = Association::free;
  std::uint32_t first_row = 0;
  Phase phase = Phase::each;
};

struct LoopKernel {
  std::vector<Dim> outer;  // outermost first; all iterations are independent
  // How many of the last outer loops are sequential: one worker runs all their iterations, in
  // order, and scratch that a stage of Phase::first fills is live from one to the next. Sums of
  // columns accumulate there across rows:
  //
  // clang-format off
  //   for i0 in 256 {
  //     first for j0 in 768 { t0[j0] = 0 }
  //     sequential i1 in 64 {
  //       r0 = reduce.sum j0 ...
  //       for j0 in 768 { p2[...] = ...; t0[j0] = t0[j0] + ... }
  //     }
  //     last for j0 in 768 { p3[768*i0+j0] = t0[j0] }
  //   }
  // clang-format on
  //
  // Such scratch is accessed only at the indices of the stage's own inner loops, so that the thread
  // of an index may keep it in registers.
  std::size_t sequential = 0;
  std::vector<Stage> stages;
  std::vector<Scratch> scratch;
  std::vector<DType> rows;  // dtype of each row value
};

// Flash-style attention; see loop::Attention for its meaning. Offsets are linear in the four
// variables (batch, head, row, column or feature), strides read by sym::stride.
struct AttentionKernel {
  DType dtype = DType::f32;     // of q, k, v and the output
  std::vector<Expr> variables;  // batch, head, row, column
  Expr batch, heads, kv_heads, q_length, kv_length, head_dim, value_dim;
  // Parameters: q, k, v, out, then mask, lse, statistics and seed if any. Of a gradient: q, k, v,
  // out, gradient of out, statistics, gradients of q, k and v, then mask and seed if any. Offsets
  // in that order. k, v and their gradients are addressed by the kv head; mask over (batch, head,
  // row, column); lse over (batch, head, row), statistics too, two values at each.
  std::vector<Expr> offsets;
  bool has_mask = false;
  DType mask_dtype = DType::boolean;
  bool has_lse = false;
  double scale = 1;
  bool is_causal = false;
  bool safe = true;
  double hidden = loop::kHides;
  bool has_statistics = false;
  bool is_gradient = false;
  struct Dropout {
    std::int64_t number = 0;
    double p = 0;
  };
  std::optional<Dropout> dropout;

  // Where the parameters that may be missing are; SIZE_MAX: missing.
  [[nodiscard]] std::size_t mask_at() const { return !has_mask ? SIZE_MAX : is_gradient ? 9 : 4; }
  [[nodiscard]] std::size_t lse_at() const { return has_lse ? 4 + (has_mask ? 1 : 0) : SIZE_MAX; }
  [[nodiscard]] std::size_t statistics_at() const {
    if (is_gradient) return 5;
    return has_statistics ? 4 + (has_mask ? 1 : 0) + (has_lse ? 1 : 0) : SIZE_MAX;
  }
  [[nodiscard]] std::size_t seed_at() const { return dropout ? offsets.size() - 1 : SIZE_MAX; }
  // What the parameter's rows are and have: those of k or of q, and how many columns (none: 0).
  [[nodiscard]] bool is_of_keys(std::size_t param) const {
    return param == 1 || param == 2 || (is_gradient && (param == 7 || param == 8));
  }
  [[nodiscard]] Expr columns_of(std::size_t param) const;
};

// A batch of matrix products by a template, with pointwise work on the sums. All is in terms
// of the four variables, which the offsets of `a` and `b` are linear in.
struct GemmKernel {
  // On a GPU an operand is copied unpacked, in boxes (abi::TensorMap): its dimensions, the
  // outermost first, the batch only where each has a matrix of its own.
  struct Boxes {
    std::vector<Expr> sizes, strides;
    std::vector<std::int64_t> box;
    std::int32_t swizzle = 0;
    bool terms_last = true;  // else rows, or columns
  };
  std::vector<Boxes> boxes;  // of parameters 0 and 1; on a CPU none

  std::vector<Expr> variables;  // batch, row, column, term
  Expr batch, rows, columns, terms;
  Expr a;  // offset in parameter 0, of batch, row and term
  // Parameter 1 holds columns in panels: [batch or 1][panel][term][column of it], zeros behind the
  // last column. The offset of a panel's first element: of batch and column. Without panels, that
  // of an element: of batch, column and term.
  Expr b;
  std::int64_t panel = 0;  // columns of one; 0: not packed
  // a and b are pairs of bf16, of two terms each: offsets, terms and panels count pairs.
  bool pairs = false;
  // Of pairs: multiplied in tile registers; panels then have whole tiles of 16 pairs, with zeros
  // behind the last.
  bool tiles = false;
  std::int64_t group = 0;  // rows whose sums, of a panel's columns, registers hold; at most
  // An element of a at each batch, row and term, in f32, as it would have been stored; buffers are
  // parameters. Row value 0, where the body has one, is what lies at a's offset. Without
  // instructions an element is that.
  Body left;
  // Of rows that the product computes as it packs them: terms, where pairs are two terms 16 apart
  // of 32, with zeros behind the last. Else null.
  Expr left_terms;
  // An element of b at each batch, column and term, in f32: row value 0 is that of the panel,
  // buffers are parameters. Without instructions it is the panel's.
  Body right;
  // The parameter that holds sums of parts of the terms, in f32: [tile][part][element of it].
  std::optional<std::uint32_t> partials;
  // At each batch, row and column: row value 0 is the sum, buffers are parameters.
  Body epilogue;
  std::vector<StageStore> stores;
};

// A team of threads of a GPU runs along the inner loops of one outer iteration (a row).
struct RowBlocks {
  std::int32_t team = 1;     // threads that share a row
  std::int32_t cluster = 1;  // blocks that share a row
  // Values that several stages read stay in registers, so that memory is read once; else each
  // stage reads anew.
  bool keep = false;
  std::int32_t unroll = 1;  // accesses in flight of a loop that is not kept
  // Of one scan: blocks share a row, each thread has so many accesses of it; 0: they do not.
  std::int32_t chunk = 0;
  friend bool operator==(const RowBlocks&, const RowBlocks&) = default;
};

// Threads run along the last outer loop (columns), each with `lanes` of them.
struct ColumnBlocks {
  std::int32_t team = 1;    // threads that share a column
  std::int32_t unroll = 1;  // accesses in flight of an inner loop
  friend bool operator==(const ColumnBlocks&, const ColumnBlocks&) = default;
};

// As columns, without inner loops; transposed through shared memory or registers.
struct TileBlocks {
  // A block has a square of so many iterations each way, which it transposes through shared
  // memory; 0: each thread one of `lanes`, in registers.
  std::int32_t side = 0;
  friend bool operator==(const TileBlocks&, const TileBlocks&) = default;
};

// How the blocks of a GPU share a loop kernel.
struct BlockSchedule {
  using Rows = RowBlocks;
  using Columns = ColumnBlocks;
  using Tile = TileBlocks;

  std::variant<Columns, Rows, Tile> mapping;
  std::int32_t threads = 256;  // of a block
  std::int32_t lanes = 1;      // neighbouring elements of a thread, of one memory access
  // Inputs were written by the previous step; they and the results are not reused soon.
  bool recent = false;
  // What is read once is evicted from L2 after the rest.
  bool lasting = false;

  template <class Mapping>
  [[nodiscard]] bool is() const {
    return std::holds_alternative<Mapping>(mapping);
  }
  // The mapping, which must be this one.
  [[nodiscard]] const Rows& rows() const { return std::get<Rows>(mapping); }
  [[nodiscard]] const Columns& columns() const { return std::get<Columns>(mapping); }
  [[nodiscard]] const Tile& tile() const { return std::get<Tile>(mapping); }
  // Blocks that share a row.
  [[nodiscard]] std::int32_t cluster() const { return is<Rows>() ? rows().cluster : 1; }
  // Whether blocks share a row in chunks.
  [[nodiscard]] bool has_chunks() const { return is<Rows>() && rows().chunk != 0; }
  // Accesses of a loop in flight.
  [[nodiscard]] std::int32_t unroll() const {
    if (is<Tile>()) return 1;
    return is<Rows>() ? rows().unroll : columns().unroll;
  }
  // Threads that share a row or a column.
  [[nodiscard]] std::int32_t team() const {
    if (is<Tile>()) return 1;
    return is<Rows>() ? rows().team : columns().team;
  }
  friend bool operator==(const BlockSchedule&, const BlockSchedule&) = default;
};

// On a GPU: a last-block reduction, the second stage of a split reduction, over the same
// parameters: the last block of a loop kernel to finish runs it. A parameter that the kernel writes
// and its last-block reduction reads is `out`.
struct LastBlock {
  struct Part {
    LoopKernel loops;
    BlockSchedule blocks;  // but for the number of threads, which is the kernel's
  };
  std::vector<Part> parts;  // one after the other
  // By the last block of each strip of columns, which reads what blocks of that strip have written;
  // else all of it by the last block of all.
  bool by_strips = false;
  // It reads nothing that the kernel writes: it only waits until the blocks have read their inputs.
  bool after_reads = false;
  // Parameters of which each block writes one element of 4 bytes, at its own index, and that are
  // all that is read: blocks publish them in the workspace and need not wait for their stores.
  std::vector<std::uint32_t> cells;
};

// On a GPU: another loop kernel over the same parameters, which blocks of the same launch run. None
// reads or overwrites what another writes.
struct Beside {
  LoopKernel loops;
  BlockSchedule blocks;  // the number of threads is the kernel's
  std::optional<LastBlock> last_block;
};

struct Kernel {
  std::string name;
  std::vector<Param> params;
  std::vector<Expr> sizes;  // size symbols passed at run time, in this order
  std::variant<LoopKernel, AttentionKernel, GemmKernel> body;
  std::optional<LastBlock> last_block;
  // The first blocks run the body, those after them the first of these, and so on.
  std::vector<Beside> beside;
  // A launch runs the kernel so many times, on buffers and sizes of its own each: a table.
  std::uint32_t instances = 1;
  std::vector<std::string> sources;  // the user's lines, for reports only
};

// Every loop kernel of it: body, parts of last-block reductions, those beside; none where the body
// is no loop kernel.
void for_each_loops(Kernel& kernel, const std::function<void(LoopKernel&)>& f);
void for_each_loops(const Kernel& kernel, const std::function<void(const LoopKernel&)>& f);

// Threads of a tile in registers along the last loop and along the one before it. A warp has 8 by 4
// of them, so that it reads 128 bytes of each of 4 x lanes rows, or 64 of each of 8 x lanes the
// other way.
inline constexpr std::int32_t kTileAcross = 8;
inline constexpr std::int32_t kTileDown = 16;

// How blocks share a GEMM: two warpgroups multiply, half of a tile of the result each or,
// by `ping_pong`, a tile each in turns; terms are copied `stages` ahead.
struct GemmSchedule {
  std::int32_t rows = 128;
  std::int32_t columns = 256;
  std::int32_t stages = 4;
  bool ping_pong = false;
  std::int32_t parts = 1;     // of the terms, whose sums are added
  std::int32_t terms = 64;    // of a stage
  std::int32_t group = 8;     // blocks of rows whose tiles follow each other
  std::int32_t blocks = 132;  // most of the grid; each has tile after tile
  friend bool operator==(const GemmSchedule&, const GemmSchedule&) = default;
};

// Everything that differs between machines. Printable, replayable.
struct Schedule {
  // Loop kernels: vectorise the last outer loop (columns) instead of each stage's last inner loop.
  bool vector_outer = false;
  std::int32_t lanes = 8;   // elements of one vector value, whatever their dtype
  std::int32_t unroll = 4;  // independent accumulators, or vectors in flight
  // vector_outer: elements of the last outer loop given to one parallel iteration.
  std::int64_t block = 1024;
  // vector_outer with two outer loops or more: the blocks of the last loop count slower than the
  // loop before it, so that iterations go down a strip of columns. What is stored by rows and
  // read by columns then visits each cache line of both once.
  bool strips = false;
  // Attention: rows of q and columns of k of a block. Matrix products: rows and columns of a task.
  std::int64_t row_block = 32;
  std::int64_t column_block = 256;
  // Least parallel iterations worth a thread of their own.
  std::int64_t grain = 1;
  // On a GPU; the other fields are then unused.
  std::optional<BlockSchedule> blocks;
  // On a GPU, of GEMMs; of `blocks` then the threads count.
  std::optional<GemmSchedule> gemm;
};

// Parallel iterations [0, extent) of the kernel function under this schedule:
//   loop kernels: product(outer but sequential), or with vector_outer product(outer but last) *
//   ceildiv(last, block); attention: batch * heads * ceildiv(q_length, row_block); its gradient:
//   batch * kv_heads; matrix products: batch * ceildiv(rows, row_block) * ceildiv(columns,
//   column_block).
// With `blocks`: blocks of the grid, of all that run side by side. An iteration number counts
// row-major, the last loop fastest (with `strips` the last but one).
[[nodiscard]] Expr parallel_extent(const Kernel& kernel, const Schedule& schedule,
                                   sym::Context& context);
// The same of one loop kernel on a GPU.
[[nodiscard]] Expr grid_extent(const LoopKernel& loops, const BlockSchedule& blocks,
                               sym::Context& context);

// Of a scan in chunks: blocks of a row.
[[nodiscard]] Expr chunks_of(const LoopKernel& loops, const BlockSchedule& blocks,
                             sym::Context& context);

// What a kernel reports at the start of its scratch (abi/plan.h).
using abi::KernelStatus;
using abi::kStatusBytes;

// Canonical text: parameters, variables and sizes renamed in order, so that structurally equal
// kernels print alike; the cache key is the hash of it and of the schedule's text.
[[nodiscard]] std::string to_string(const Kernel& kernel);
[[nodiscard]] std::string to_string(const Schedule& schedule);
[[nodiscard]] std::string to_string(const BlockSchedule& blocks);
// Reads what to_string writes of a block schedule, or that from "rows", "columns" or "tile" on.
// Throws UserError.
[[nodiscard]] BlockSchedule parse_blocks(std::string_view text);

}  // namespace inkle::schedule
