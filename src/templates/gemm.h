// Batches of matrix products with pointwise work on their sums, as kernels of the kernel IR.
// Operands are f32, or pairs of bf16 as i32, of two terms each: terms then count pairs.
//
// A task, which is a block of rows by a block of columns of the result:
//
//   for each part of the terms                          256 of them: sums of sums err less
//     for each panel of columns
//       for each group of rows
//         s := rows * panel                             registers: rows x vectors
//         sums := s or sums + s                         stack [rows][columns]
//   for each row, each vector: stores of epilogue(sums)
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernel/kernel.h"
#include "loop/body.h"
#include "templates/template.h"

namespace inkle::templates {

using abi::DType;
using sym::Expr;

struct GemmParameter {
  DType dtype = DType::f32;
  kernel::Role role = kernel::Role::in;
  std::int32_t alignment = 1;
  bool may_alias = false;
};
struct GemmStore {
  std::uint32_t parameter = 0;
  Expr offset;
  std::uint32_t yield = 0;
};

// An operand that is copied in boxes of the dimensions given, the outermost first (abi::TensorMap).
struct GemmBoxes {
  std::vector<Expr> sizes;
  std::vector<std::int64_t> box;
  std::int32_t swizzle = 0;
  bool terms_last = true;  // else rows, or columns
};

struct GemmProblem {
  std::string name;
  std::vector<Expr> sizes;
  std::vector<std::string> sources;
  std::vector<GemmParameter> parameters;  // a or an operand of it, b in panels, others
  // Batch, row, column, term. One whose extent is 1 may be a constant.
  std::array<Expr, 4> variables;
  Expr batch, rows, columns, terms;
  Expr a;  // offset of an element: of batch, row and term
  // Offset of the first element of the panel that begins at a column: of batch and column. A panel
  // is [term][column], with zeros behind the last column.
  Expr b;
  std::int64_t panel = 0;
  std::int64_t group = 0;  // rows whose sums, of a panel's columns, registers hold; at most
  // Of pairs: multiplied in tile registers. The terms of panels are whole tiles of 16 pairs, with
  // zeros behind the last.
  bool tiles = false;
  std::vector<GemmBoxes> boxes;  // of a and b, where a device copies them so
  // What an element of a is, at each batch, row and term, in f32; buffers are parameters, row value
  // 0, where the body has one, is what lies at a's offset. Without instructions it is that.
  loop::Body left;
  // Of rows that are computed once for each task of a CPU: their terms. Pairs are two of them 16
  // apart of 32, with zeros behind the last, and `terms` counts whole 16 pairs.
  Expr left_terms;
  // What an element of b is, at each batch, column and term, in f32; row value 0 is the panel's
  // element, buffers are parameters. Without instructions it is that. Panels are whole, then.
  loop::Body right;
  // Parameter for sums of parts of the terms, in f32: of each tile, each part.
  std::optional<std::uint32_t> partials;
  // At each batch, row and column; row value 0 is the sum, buffers are parameters.
  loop::Body epilogue;
  std::vector<GemmStore> stores;
};

struct GemmConfig {
  std::int32_t lanes = 8;
  // Of what registers hold of the result: rows, and vectors of each.
  std::int32_t rows = 6;
  std::int32_t vectors = 2;
  // Of a task; whole panels.
  std::int64_t row_block = 96;
  std::int64_t column_block = 128;
  std::int64_t term_block = 256;
  std::int64_t terms_ahead = 0;  // of which panels are prefetched; 0: they are not
  friend bool operator==(const GemmConfig&, const GemmConfig&) = default;
};
[[nodiscard]] std::string to_string(const GemmConfig& config);

using GemmTemplate = Template<GemmProblem, GemmConfig>;

[[nodiscard]] std::span<const GemmTemplate> gemm_templates();
// The first that matches.
[[nodiscard]] const GemmTemplate& gemm_template_of(const GemmProblem& problem);

}  // namespace inkle::templates
