// Writes what the lanes of one vector region compute: values, accesses, loops, and products of a
// few rows held in registers. For files of this folder only.
#pragma once

#include <functional>
#include <vector>

#include "kernel/builder.h"

namespace inkle::templates {

using abi::DType;
using kernel::MemoryId;
using kernel::ValueId;
using kernel::Values;
using loop::Opcode;
using sym::Expr;

enum class Runs : std::uint8_t { perhaps, surely };

// A block of registers: vector v of `vectors` in row r of `rows`.
struct Block {
  int rows = 0, vectors = 0;
};
using Panel = std::function<ValueId(int v, Expr k)>;
using Element = std::function<ValueId(int r, Expr k)>;
using StoreSum = std::function<void(int r, int v, ValueId sum)>;
void for_each_sum(Block block, const Values& sums, const StoreSum& store);

// A loop over [begin, end) with carried values.
Values write_loop(kernel::Builder& builder, Expr begin, Expr end, std::int64_t step, Runs runs,
                  const Values& initial, const kernel::Builder::LoopBody& body);

class LaneWriter {
 public:
  LaneWriter(kernel::Builder& builder, int lanes) : b_(builder), lanes_(lanes) {}
  // The whole kernel is one region of vectors: scalars in it are those of the task.
  void in_lanes(const std::function<void()>& body);
  [[nodiscard]] Expr lane() const { return lane_; }

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
  using Merge = std::function<ValueId(ValueId a, ValueId b)>;
  ValueId across(const Merge& merge, ValueId v);

  // --- Memory. Indices are those of lane 0.
  ValueId load_scalar(MemoryId memory, std::vector<Expr> indices);
  void store_scalar(MemoryId memory, std::vector<Expr> indices, ValueId v);
  ValueId load_vector(MemoryId memory, std::vector<Expr> indices);
  void store_vector(MemoryId memory, std::vector<Expr> indices, ValueId v);

  // --- Control
  ValueId first_lanes(std::int64_t count);
  // Lanes of the columns from c on that lie before `limit`.
  ValueId lanes_before(Expr limit, Expr c);
  // `v` of the lanes that are valid, `otherwise` of the others, which make no accesses for it.
  using Lazy = std::function<ValueId()>;
  ValueId where(ValueId valid, const Lazy& v, ValueId otherwise);
  // `body` for the lanes of a vector at `first` of a row of `count` elements.
  void in_row(std::int64_t first, std::int64_t count, const std::function<void()>& body);
  void loop(Expr begin, Expr end, std::int64_t step, const std::function<void(Expr)>& body);
  Values loop(Expr begin, Expr end, std::int64_t step, Runs runs, const Values& initial,
              const kernel::Builder::LoopBody& body);

  // sums[r][v] = before[r][v] + sum over k in [begin, end) of element(r, k) * panel(v, k). Elements
  // are f32 or pairs of bf16.
  Values product(Block block, const Values& before, Expr begin, Expr end, Runs runs,
                 const Panel& panel, const Element& element);
  [[nodiscard]] Values zeros(Block block);

 private:
  kernel::Builder& b_;
  int lanes_;
  Expr lane_;
  ValueId lane_number_ = kernel::kNone;  // i32
};

}  // namespace inkle::templates
