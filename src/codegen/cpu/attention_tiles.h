// What the kernels of attention and of its gradient share: operands of any strides, copies of their
// blocks as f32, products of a few rows held in registers, masks and dropout. For files of this
// folder only.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "codegen/cpu/kernel_code.h"
#include "codegen/cpu/values.h"

namespace inkle::codegen::cpu {

[[nodiscard]] constexpr std::int64_t round_up(std::int64_t v, std::int64_t to) {
  return (v + to - 1) / to * to;
}

class AttentionTiles {
 public:
  AttentionTiles(const AttentionTiles&) = delete;
  AttentionTiles& operator=(const AttentionTiles&) = delete;

 protected:
  AttentionTiles(KernelCode& code, const schedule::AttentionKernel& kernel);
  ~AttentionTiles() = default;

  struct Layout {
    Value* base = nullptr;            // the element with all variables 0
    std::array<Value*, 4> strides{};  // elements: batch, head, row, column or feature
    bool contiguous = false;          // the last one is 1
    bool constant = false;            // the last one is 0
    DType dtype = DType::f32;
  };

  // Rows of a register block.
  static constexpr int kRows = 6;
  // Columns that dropout draws numbers for together (loop::attention_word).
  static constexpr std::int64_t kDrawn = 64;

  // Of the kernel's parameters, in their order.
  void read_layouts();
  // Columns of a block, in whole tiles of a register block.
  [[nodiscard]] std::int64_t column_block() const;

  Value* i64(std::int64_t v) { return ir_.i64(v); }
  Value* at(Value* base, Value* offset) { return ir_.address(float_, base, offset); }
  Value* load_vector(Value* address) { return ir_.load(vector_, address, 4); }
  Value* load_float(Value* address) { return ir_.load(float_, address, 4); }
  void loop(Value* begin, Value* end, std::int64_t step, const std::function<void(Value*)>& body);

  // Places one array after the other in scratch, in multiples of a cache line.
  Value* place(Value* base, std::int64_t& offset, std::int64_t floats);

  // Address of the element (batch_, head, row, 0).
  Value* row_address(const Layout& layout, Value* head, Value* row);
  // Elements [first, first + lanes) along the last index, f32 (or bool lanes), those without mask
  // 0.
  Value* load_lanes(const Layout& layout, Value* row, Value* first, Value* mask);
  // The other way, f32 to the layout's dtype; mask null: all.
  void store_lanes(const Layout& layout, Value* row, std::int64_t first, Value* v, Value* mask);
  // The mask of the lanes of a vector at `first` of a row of `count` elements; null if all.
  Value* tail_mask(std::int64_t first, std::int64_t count);
  void store_tail(Value* v, Value* address, Value* mask);

  // Columns [first, first + count) of a head, transposed: to[feature][column], `columns` apart. A
  // square of lanes x lanes elements at a time; columns beyond the end repeat the last one.
  void pack_transposed(const Layout& layout, std::int64_t features, Value* to, std::int64_t columns,
                       Value* first, Value* count);

  // sums[r][v] + element(r) * panel[v]
  Values multiply(const Values& before, int rows, int vectors, Value* panel,
                  const std::function<Value*(int r)>& element);

  Value* across(Value* v, const std::function<Value*(Value*, Value*)>& combine);
  Value* maximum(Value* a, Value* b);

  // Lanes of the columns from c on that lie before `limit`.
  Value* lanes_before(Value* limit, Value* c);
  // The row's elements of the mask from column `first` on, those that are not valid 0.
  Value* mask_lanes(Value* mask_row, Value* first, Value* valid) {
    return load_lanes(layouts_[kernel_.mask_at()], mask_row, first, valid);
  }

  // The keys of dropout's rounds; where no loop has begun.
  void prepare_dropout();
  // What weights of the columns [first, first + columns) are multiplied by, for the row `absolute`
  // of head_: to to[0 ...], in whole blocks of kDrawn. `first` is a multiple of kDrawn.
  void draw_factors(Value* to, Value* absolute, Value* first, Value* columns);

  KernelCode& code_;
  Ir& ir_;
  const schedule::AttentionKernel& kernel_;
  SizeValues& sizes_;
  int lanes_ = 0;
  int vectors_ = 0;
  std::int64_t head_dim_ = 0;
  std::int64_t value_dim_ = 0;
  std::int64_t value_width_ = 0;  // value_dim_ in whole vectors
  Type* vector_ = nullptr;
  Type* float_ = nullptr;
  std::vector<Layout> layouts_;
  // Of the iteration.
  Value* batch_ = nullptr;
  Value* head_ = nullptr;
  Value* kv_head_ = nullptr;

 private:
  void pack_square(const Layout& layout, const Values& rows, Value* d, Value* c, int features,
                   Value* to, std::int64_t columns);
  void transpose(Values& square);

  std::vector<std::array<Value*, 2>> round_keys_;
};

// The kernel of a gradient; emit_attention calls it.
EmittedKernel emit_attention_gradient(KernelCode& code, const schedule::AttentionKernel& attention,
                                      const Values& arguments);

}  // namespace inkle::codegen::cpu
