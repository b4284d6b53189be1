// What the kernels of attention and its gradient share: operands of any strides, copies of their
// blocks as f32, products of a few rows held in registers, masks and dropout. For files of this
// folder only.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel/builder.h"
#include "templates/attention.h"
#include "templates/attention_dropout.h"
#include "templates/lane_writer.h"

namespace inkle::templates {

// An array of a task, row-major; of elements of 4 bytes.
struct Array {
  std::string_view name;
  std::vector<Expr> shape;
  DType dtype = DType::f32;  // i32: pairs of bf16
};
[[nodiscard]] Expr stack_bytes(sym::Context& context, std::span<const Array> arrays);

// The constant sizes of a problem that needs() has nothing against.
struct Dimensions {
  std::int64_t head, value;              // features
  std::int64_t head_width, value_width;  // in whole vectors
  std::int64_t columns;                  // of a block, in whole tiles of the registers
  std::int64_t head_pairs, value_pairs;  // of features, in whole vectors
};
[[nodiscard]] Dimensions dimensions_of(const AttentionProblem& problem,
                                       const AttentionConfig& config);

[[nodiscard]] constexpr std::int64_t round_up(std::int64_t v, std::int64_t to) {
  return (v + to - 1) / to * to;
}

// Elements of 4 bytes from a row of a transposed panel to the next: a cache line more than the
// columns take. At a multiple of a page's quarter all rows would lie in the same few sets of the L1
// cache.
[[nodiscard]] constexpr std::int64_t panel_line(std::int64_t columns) { return columns + 16; }

class AttentionWriter {
 public:
  AttentionWriter(const AttentionWriter&) = delete;
  AttentionWriter& operator=(const AttentionWriter&) = delete;

 protected:
  AttentionWriter(const AttentionProblem& problem, const AttentionConfig& config,
                  kernel::Kernel& made, sym::Context& context);
  ~AttentionWriter() = default;

  // --- Declarations
  struct Operand {
    MemoryId memory = 0;
    Expr offset;
    DType dtype = DType::f32;
    bool is_contiguous = false;  // the last index goes along memory
    bool is_constant = false;    // or nowhere
  };
  Operand parameter(const AttentionOperand& operand, kernel::Role role);
  void declare(std::span<const Array> arrays);
  // One of those; kNone where there is none of the name.
  [[nodiscard]] MemoryId array(std::string_view name);

  // --- Memory
  // The element of an operand; the batch is that of the task.
  Expr offset_of(const Operand& operand, Expr head, Expr row, Expr last);
  // Elements [first, first + lanes) along the last index as f32 (bool as it is), where they lie
  // before `end`; there the lanes beyond must not be active.
  ValueId load_lanes(const Operand& operand, Expr head, Expr row, Expr first);
  void store_lanes(const Operand& operand, Expr head, Expr row, Expr first, ValueId v);
  // The same of a row of `count` elements; beyond it there is 0.
  ValueId load_row(const Operand& operand, Expr head, Expr row, std::int64_t first,
                   std::int64_t count);
  void store_row(const Operand& operand, Expr head, Expr row, std::int64_t first,
                 std::int64_t count, ValueId v);
  // --- Blocks
  // Rows [first, first + count) of k or v, transposed: to[feature][column]. Columns up to the next
  // whole tile of the registers are there, those beyond the end without meaning.
  void pack_transposed(const Operand& operand, std::int64_t features, MemoryId to, Expr first,
                       Expr count);
  // The same of bf16 in pairs: to[pair][column], feature f of each 2 lanes with f + lanes.
  void pack_transposed_pairs(const Operand& operand, std::int64_t features, MemoryId to, Expr first,
                             Expr count);
  // Rows [first, first + count) of k or v as pairs a vector apart: to[pair][feature]. Those beyond
  // the end are 0, as what they are multiplied by is; if `is_whole` there are none.
  void pack_column_pairs(const Operand& operand, std::int64_t features, MemoryId to, Expr first,
                         Expr count, bool is_whole);
  // Features [first, first + lanes) of a row and those behind them, as pairs; 0 beyond the end.
  ValueId load_pairs(const Operand& operand, Expr head, Expr row, std::int64_t first,
                     std::int64_t count);
  // A score with the mask of its column, minus infinity where it is not valid. Without
  // `is_there`, scores are read in valid lanes alone.
  ValueId masked_score(const LaneWriter::Lazy& score, bool is_there, ValueId valid, Expr row,
                       Expr column);
  // Elements of the mask; those that are not valid false or 0.
  ValueId mask_lanes(ValueId valid, Expr row, Expr column);

  // The keys of dropout's rounds; before all loops.
  void prepare_dropout();
  // What weights of the columns [first, first + columns) are multiplied by, for a row of head_: to
  // to[0 ...], in whole blocks of kDrawn. `first` is a multiple of kDrawn.
  void draw_factors(MemoryId to, Expr row, Expr first, Expr columns);

  const AttentionProblem& problem_;
  const AttentionConfig& config_;
  kernel::Builder b_;
  Dimensions size_;
  int lanes_ = 0;
  LaneWriter w_;
  Expr zero_, one_;
  // Of the task.
  Expr batch_, head_, kv_head_;
  Operand q_, k_, v_, out_, mask_, lse_, statistics_, seed_;

 private:
  // Tiles of the registers that begin behind the last column, or have it, are 0 from there on.
  void pad_columns(MemoryId to, std::int64_t rows, Expr count);
  void pack_squares(const Operand& operand, const std::vector<Expr>& rows, Expr feature, int count,
                    MemoryId to, Expr column);

  std::optional<DropoutWriter> dropout_;
};

[[nodiscard]] std::vector<Array> forward_arrays(const AttentionProblem& problem,
                                                const AttentionConfig& config);
[[nodiscard]] kernel::Kernel emit_forward(const AttentionProblem& problem,
                                          const AttentionConfig& config, sym::Context& context);
[[nodiscard]] std::vector<Array> gradient_arrays(const AttentionProblem& problem,
                                                 const AttentionConfig& config);
[[nodiscard]] kernel::Kernel emit_gradient(const AttentionProblem& problem,
                                           const AttentionConfig& config, sym::Context& context);

}  // namespace inkle::templates
