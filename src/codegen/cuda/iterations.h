// Which outer iteration a thread has.
//
//   rows      a team of threads has an outer iteration: t is the thread's number in the team
//   columns   a thread has `lanes` iterations of the last outer loop and one of the others; if a
//             team shares a column, y is the thread's number in the team
//   tile      a thread has a square of iterations of the last two outer loops, which begins at
//             (b, a); or a block has one, the tile (down, across)
// Where rows are walked, a block has a part of them, and its teams one row after the other.
#pragma once

#include <string>

#include "codegen/cuda/body.h"
#include "codegen/cuda/stage.h"

namespace inkle::codegen::cuda {

// Writes to `out_` and names the outer variables in `symbols_`.
class IterationWriter {
 protected:
  IterationWriter(const schedule::Kernel& kernel, const schedule::LoopKernel& loops,
                  const schedule::BlockSchedule& blocks, sym::Context& context)
      : loops_(loops), blocks_(blocks), context_(context), text_{kernel, loops, context} {}

  void size_symbols();
  // Outer variables of iteration `number`, the last of `count` loops fastest.
  void decompose(const std::string& number, std::size_t count, bool wide);
  void decompose(Writer& out, const std::string& number, std::size_t first, std::size_t end,
                 bool wide);
  // Of the first `count` outer loops.
  sym::Expr iterations(std::size_t count);
  void begin_rows();
  // A block's part of the rows; the loop over them.
  WalkText begin_walk();
  void begin_columns();
  void begin_tile();

  const schedule::LoopKernel& loops_;
  const schedule::BlockSchedule& blocks_;
  sym::Context& context_;
  KernelText text_;
  Writer out_;
  Symbols symbols_;
  std::string block_ = "blockIdx.x";  // the block's number in its instance
};

}  // namespace inkle::codegen::cuda
