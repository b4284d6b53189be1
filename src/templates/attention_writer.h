// What the kernels of attention and of its gradient share: operands of any strides, copies of their
// blocks as f32, products of a few rows held in registers, masks and dropout. For files of this
// folder only.
#pragma once

#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel/builder.h"
#include "templates/attention.h"

namespace inkle::templates {

using kernel::MemoryId;
using kernel::ValueId;
using kernel::Values;
using loop::Opcode;

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
  std::int64_t head_pairs;               // of features, in whole vectors
};
[[nodiscard]] Dimensions dimensions_of(const AttentionProblem& problem,
                                       const AttentionConfig& config);

[[nodiscard]] constexpr std::int64_t round_up(std::int64_t v, std::int64_t to) {
  return (v + to - 1) / to * to;
}

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
  // The whole kernel is one region of vectors: scalars in it are those of the task.
  void in_lanes(const std::function<void()>& body);

  // --- Values
  Expr number(std::int64_t v) { return b_.context().constant(v); }
  ValueId f32(double v) { return b_.real(DType::f32, v); }
  ValueId i64(std::int64_t v) { return b_.integer(DType::i64, v); }
  ValueId compute(Opcode opcode, const Values& operands);  // of the first operand's type
  ValueId compare(Opcode opcode, ValueId a, ValueId b);
  ValueId select(ValueId condition, ValueId a, ValueId b);
  ValueId exp_of_negative(ValueId x);
  // f32 that are bf16 already, or that are rounded, as pairs.
  ValueId pair(ValueId low, ValueId high);
  ValueId rounded_pair(ValueId low, ValueId high);
  // f32 of all lanes joined by halves.
  ValueId across(Opcode opcode, ValueId v);

  // --- Memory. Indices are those of lane 0.
  ValueId load_scalar(MemoryId memory, std::vector<Expr> indices);
  void store_scalar(MemoryId memory, std::vector<Expr> indices, ValueId v);
  ValueId load_vector(MemoryId memory, std::vector<Expr> indices);
  void store_vector(MemoryId memory, std::vector<Expr> indices, ValueId v);
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
  // `body` for the lanes of a vector at `first` of a row of `count` elements.
  void in_row(std::int64_t first, std::int64_t count, const std::function<void()>& body);

  // --- Control
  void loop(Expr begin, Expr end, std::int64_t step, const std::function<void(Expr)>& body);
  enum class Runs : std::uint8_t { perhaps, surely };
  Values loop(Expr begin, Expr end, std::int64_t step, Runs runs, const Values& initial,
              const kernel::Builder::LoopBody& body);

  // --- Blocks
  // Rows [first, first + count) of k or v, transposed: to[feature][column]. Columns up to the next
  // whole tile of the registers are there, those beyond the end without meaning.
  void pack_transposed(const Operand& operand, std::int64_t features, MemoryId to, Expr first,
                       Expr count);
  // The same of bf16 in pairs: to[pair][column], feature f of each 2 lanes with f + lanes.
  void pack_transposed_pairs(const Operand& operand, std::int64_t features, MemoryId to, Expr first,
                             Expr count);
  // Features [first, first + lanes) of a row and those behind them, as pairs; 0 beyond the end.
  ValueId load_pairs(const Operand& operand, Expr head, Expr row, std::int64_t first,
                     std::int64_t count);
  // A block of registers: sums[r][v] = before[r][v] + sum over k in [begin, end) of element(r, k) *
  // panel(v, k), vector v of `vectors` in row r of `rows`. Elements are f32 or pairs of bf16.
  struct Block {
    int rows = 0, vectors = 0;
  };
  using Panel = std::function<ValueId(int v, Expr k)>;
  using Element = std::function<ValueId(int r, Expr k)>;
  Values product(Block block, const Values& before, Expr begin, Expr end, Runs runs,
                 const Panel& panel, const Element& element);
  using StoreSum = std::function<void(int r, int v, ValueId sum)>;
  static void for_each_sum(Block block, const Values& sums, const StoreSum& store);
  [[nodiscard]] Values zeros(Block block);

  ValueId first_lanes(std::int64_t count);
  // Lanes of the columns from c on that lie before `limit`.
  ValueId lanes_before(Expr limit, Expr c);
  // `v` of the lanes that are valid, `otherwise` of the others, which make no accesses for it.
  using Lazy = std::function<ValueId()>;
  ValueId where(ValueId valid, const Lazy& v, ValueId otherwise);
  // A score with the mask of its column, minus infinity where it is not valid. Without
  // `is_there`, scores are read in valid lanes alone.
  ValueId masked_score(const Lazy& score, bool is_there, ValueId valid, Expr row, Expr column);
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
  Expr lane_;
  Expr zero_, one_;
  // Of the task.
  Expr batch_, head_, kv_head_;
  Operand q_, k_, v_, out_, mask_, lse_, statistics_, seed_;

 private:
  using Words = std::array<ValueId, 4>;
  void philox_round(Words& counter, const std::array<ValueId, 2>& key);
  // Tiles of the registers that begin behind the last column, or have it, are 0 from there on.
  void pad_columns(MemoryId to, std::int64_t rows, Expr count);
  void pack_squares(const Operand& operand, const std::vector<Expr>& rows, Expr feature, int count,
                    MemoryId to, Expr column);

  ValueId lane_number_ = kernel::kNone;  // i32
  std::vector<std::array<ValueId, 2>> round_keys_;
};

// Columns that dropout draws numbers for together (loop::attention_word).
inline constexpr std::int64_t kDrawn = 64;

[[nodiscard]] std::vector<Array> forward_arrays(const AttentionProblem& problem,
                                                const AttentionConfig& config);
[[nodiscard]] kernel::Kernel emit_forward(const AttentionProblem& problem,
                                          const AttentionConfig& config, sym::Context& context);
[[nodiscard]] std::vector<Array> gradient_arrays(const AttentionProblem& problem,
                                                 const AttentionConfig& config);
[[nodiscard]] kernel::Kernel emit_gradient(const AttentionProblem& problem,
                                           const AttentionConfig& config, sym::Context& context);

}  // namespace inkle::templates
