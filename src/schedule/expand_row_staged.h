// Software prefetch of the next sequential row while the current one is computed: whole accesses
// are copied to shared memory asynchronously, and values that are uniform across the row are loaded
// to registers. Each thread copies what it reads itself.
#pragma once

#include "schedule/expand_row_keep.h"

namespace inkle::schedule::expansion {

class StagedRows {
 public:
  StagedRows(BlockExpansion& x, const RowTeam& team, const RowShape& shape, const RowLoops& loops,
             KeptRow& keep);

  // Bytes of shared memory, and the memory that has them, from its beginning on.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  void place(kernel::Memory memory);
  [[nodiscard]] bool empty() const { return copies_.empty(); }

  // Scalars of a row, which the loop over rows carries; those of the current row.
  [[nodiscard]] Values zeros() const;
  void set_scalars(Values scalars) { own_ = std::move(scalars); }
  // Starts the copies of what this pass reads of a row below `end`, as one commit group, which is
  // empty where there is no row, since waits count groups. Returns the scalars of that row, if they
  // are loaded here.
  Values copy_row(std::size_t pass, Expr row, std::int64_t end, const Values& scalars) const;
  // Waits for the copies of this pass, and loads them into registers.
  void take(const Stage& stage, std::size_t pass);

  // Defines the prefetched values in a body of this pass.
  [[nodiscard]] bool is_given(const Stage& stage, std::size_t pass, loop::Val v) const;
  void provide(const Stage& stage, std::size_t pass, const RowPlace& place, Expr lane,
               BodyExpander& body) const;

 private:
  struct Copy {
    std::size_t pass;
    loop::Val value;
    std::int64_t count;  // accesses of each thread
    kernel::MemoryId memory = kernel::kNone, registers = kernel::kNone;
  };
  struct Scalar {
    std::uint32_t buffer;
    Expr offset;
  };
  void plan_copies();
  void plan_scalars();
  [[nodiscard]] bool is_of_row(const loop::Instruction& load) const;
  [[nodiscard]] bool has_copies(std::size_t pass) const;
  [[nodiscard]] const Scalar* scalar_of(const loop::Instruction& load) const;
  [[nodiscard]] Replacements at_row(Expr row) const;
  void copy(const Stage& stage, const Copy& load, const RowPlace& place,
            const Replacements& row) const;
  [[nodiscard]] Expr thread_of_block() const;

  BlockExpansion& x_;
  kernel::Builder& b_;
  const RowTeam& team_;
  const RowShape& shape_;
  const RowLoops& loops_;
  KeptRow& keep_;
  std::vector<Copy> copies_;
  std::size_t copied_passes_ = 0;
  std::int64_t bytes_ = 0;
  std::vector<Scalar> scalars_;
  Values own_;
};

}  // namespace inkle::schedule::expansion
