// Attention and its gradient as kernels of the kernel IR: a table of templates, each of which says
// what it is for, how it may be configured, what it needs and costs, and writes the kernel.
//
// The forward of a task, which is a block of rows of q of one head:
//
//   q := scale * rows, f32                                    stack [rows][head_dim]
//   for each block of kv columns
//     k := columns transposed                                 stack [head_dim][columns]
//     for each group of rows
//       s := q k                                              registers: rows x vectors
//       maximum, alpha := exp(old - new), s := exp(s - maximum), sum := sum * alpha + sum(s)
//       out := out * alpha + s v                              registers: rows x vectors
//   out := out / sum
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernel/kernel.h"
#include "templates/template.h"

namespace inkle::templates {

using abi::DType;
using sym::Expr;

// A parameter: the offset of an element in terms of the problem's variables.
struct AttentionOperand {
  DType dtype = DType::f32;
  Expr offset;
  std::int32_t alignment = 1;
  bool may_alias = false;
};

// What is computed; loop::Attention says what it means. The kernel's parameters are q, k, v, out,
// then mask, lse, statistics and seed, those that there are; of a gradient q, k, v, out, gradient
// of out, statistics, gradients of q, k and v, then mask and seed.
struct AttentionProblem {
  std::string name;
  std::vector<Expr> sizes;
  std::vector<std::string> sources;
  DType dtype = DType::f32;  // of q, k, v and the result
  // Batch, head (of k, v and their gradients: kv head), row (of k), column or feature.
  std::array<Expr, 4> variables;
  Expr batch, heads, kv_heads, q_length, kv_length, head_dim, value_dim;
  AttentionOperand q, k, v, out;
  std::optional<AttentionOperand> mask;  // added, or bool: false hides
  std::optional<AttentionOperand> lse, statistics;
  struct Gradient {
    AttentionOperand out, q, k, v;
  };
  std::optional<Gradient> gradient;
  struct Dropout {
    AttentionOperand seed;
    std::int64_t number = 0;
    double p = 0;
  };
  std::optional<Dropout> dropout;
  double scale = 1;
  bool is_causal = false;
  bool safe = true;
  double hidden = 0;  // the logit where a bool mask is false
};

struct AttentionConfig {
  std::int32_t lanes = 8;
  // Of what registers hold of a product: rows, and vectors of each.
  std::int32_t rows = 6;
  std::int32_t vectors = 2;
  // Rows of q and columns of k of a block.
  std::int64_t q_block = 32;
  std::int64_t kv_block = 256;
  // Products of bf16 in pairs (dot_bf16): of operands, which nothing is lost of,
  bool pairs = false;
  // and of weights and gradients of scores, which are rounded for it.
  bool rounds_weights = false;
  // By tiles of a core; then `vectors` are the tiles of a row.
  bool tiles = false;
  friend bool operator==(const AttentionConfig&, const AttentionConfig&) = default;
};
[[nodiscard]] std::string to_string(const AttentionConfig& config);

using AttentionTemplate = Template<AttentionProblem, AttentionConfig>;

[[nodiscard]] std::span<const AttentionTemplate> attention_templates();
// The first that matches.
[[nodiscard]] const AttentionTemplate& attention_template_of(const AttentionProblem& problem);

}  // namespace inkle::templates
