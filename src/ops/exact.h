// Which rows give eager's bits, for numerics=bitwise: one table, which docs/numerics.md prints.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace inkle::ops {

// Where a row's bits are eager's.
enum class Exact : std::uint8_t {
  always,
  integers,  // of integers and bool alone: sums of floats have an order
  // Of floats with alpha = 1, as ATen's kernels multiply and add at once; of f16 and bf16 with
  // operands, numbers too, that are of it, as ATen's kernels round them first.
  sums,
  f32_f64,  // not of f16 and bf16
  casts,    // not of floats to u8
  floats,   // of floats alone
};

// Where they are on a GPU, too.
enum class ExactOnGpu : std::uint8_t {
  yes,
  no,
  no_integers,  // eager's remainders by 0 have all bits set
  no_bytes,     // eager converts limits to u8, negative ones too
  own_numbers,  // of f16 and bf16 if numbers are of it, as ATen's kernels round them first
};

struct ExactRow {
  std::string_view row;
  Exact where = Exact::always;
  ExactOnGpu on_gpu = ExactOnGpu::yes;
  friend bool operator==(const ExactRow&, const ExactRow&) = default;
};

// Sorted by name. Views are exact without a line.
[[nodiscard]] std::span<const ExactRow> exact_rows();
[[nodiscard]] std::string_view meaning_of(Exact where);
[[nodiscard]] std::string_view meaning_of(ExactOnGpu where);

struct ExactQuery {
  const graph::OpDef* row = nullptr;
  std::span<const graph::Argument> args;
  std::vector<const graph::Type*> operands;
  std::span<const graph::Type> results;
};
// Why the results may have other bits than eager's; empty: they have eager's.
[[nodiscard]] std::string_view why_not_exact(const ExactQuery& query);

// The table as docs/numerics.md has it.
[[nodiscard]] std::string exact_rows_markdown();

}  // namespace inkle::ops
