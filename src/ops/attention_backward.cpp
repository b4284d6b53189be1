// The decomposed gradient of attention: recomputes the scores from query and key, then takes matrix
// products. It stores (batch, head, row, column) matrices, so long sequences stay with the host's
// tiled kernel.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/axes.h"
#include "ops/infer.h"
#include "ops/samples.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

using graph::Argument;
using graph::Builder;
using graph::Node;
using graph::OpDef;
using graph::Sample;
using graph::Trait;
using graph::ValueId;
using infer::Types;

// (grad, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask?, scale?)
constexpr std::size_t kDropout = 6, kCausal = 7, kMask = 8, kScale = 9;

// Scores of one head beyond which the host's kernel, which never stores them, takes less memory.
constexpr std::int64_t kMostScores = 512 * 512;

Types infer_backward(Inference& in) {
  const Type &q = float_tensor(in, 1), &k = float_tensor(in, 2), &v = float_tensor(in, 3);
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4) in.fail("needs 4 dimensions");
  if (in.real(kDropout) != 0) unsupported("attention: dropout in the backward");
  if (!in.context().guard_equal(q.sizes[1], k.sizes[1])) unsupported("attention: grouped heads");
  if (!in.context().guard_equal(q.sizes[0], k.sizes[0])) unsupported("attention: batches differ");
  const auto scores = sym::bounds(q.sizes[2] * k.sizes[2]);
  const auto hint = sym::hint(q.sizes[2] * k.sizes[2]);
  if (hint.value_or(scores.high) > kMostScores) unsupported("attention: too many scores to store");
  if (in.is_none(kScale) && !q.sizes[3].is_constant()) unsupported("attention: a symbolic head");
  return {infer::make(q, q.dtype, q.sizes), infer::make(k, k.dtype, k.sizes),
          infer::make(v, v.dtype, v.sizes)};
}

std::vector<ValueId> decompose_backward(Builder& b, const Node& node) {
  const Inference in(b.graph(), *node.op, node.args);
  const auto given = [&](std::size_t arg) { return std::get<ValueId>(node.args[arg]); };
  const Type q_type = b.type(given(1)), k_type = b.type(given(2));
  const DType dtype = q_type.dtype, compute = abi::compute_type(dtype);
  const auto to = [&](ValueId v, DType t) {
    return b.type(v).dtype == t ? v : b.node("_to_copy", {v, t});
  };
  const auto wide = [&](std::size_t arg) { return to(given(arg), compute); };
  const auto transposed = [&](ValueId v) {
    return b.node("transpose", {v, b.integer(-2), b.integer(-1)});
  };
  const auto product = [&](ValueId x, ValueId y) { return b.node("matmul", {x, y}); };
  const double scale = in.is_none(kScale)
                           ? 1 / std::sqrt(static_cast<double>(*q_type.sizes[3].constant()))
                           : in.real(kScale);
  const ValueId grad = wide(0), q = wide(1), k = wide(2), v = wide(3);
  ValueId scores = b.node("mul", {product(q, transposed(k)), scale});
  const double none = -std::numeric_limits<double>::infinity();
  if (const auto* mask = std::get_if<ValueId>(&node.args[kMask])) {
    scores = b.type(*mask).dtype == DType::boolean ? b.node("where", {*mask, scores, none})
                                                   : b.node("add", {scores, to(*mask, compute)});
  }
  if (in.boolean(kCausal)) {
    const ValueId row = b.node("arange", {q_type.sizes[2], DType::i64});
    const ValueId column = b.node("arange", {k_type.sizes[2], DType::i64});
    const ValueId seen = b.node("le", {column, b.node("unsqueeze", {row, b.integer(1)})});
    scores = b.node("where", {seen, scores, none});
  }
  // Not from the saved logarithm: where scores are large its rounding would scale a whole row. A
  // fully masked row has no gradient.
  const ValueId p = b.node("_safe_softmax", {scores, b.integer(-1)});
  const ValueId dv = product(transposed(p), grad);
  const ValueId dp = product(grad, transposed(v));
  const std::vector<Expr> last = {b.integer(-1)};
  const ValueId level = b.node("sum_dim", {b.node("mul", {grad, wide(4)}), last, true});
  const ValueId ds = b.node("mul", {b.node("mul", {p, b.node("sub", {dp, level})}), scale});
  return {to(product(ds, k), dtype), to(product(transposed(ds), q), dtype), to(dv, dtype)};
}

void reference_backward(Evaluation& e) {
  const RefTensor &g = e.tensor(0), &q = e.tensor(1), &k = e.tensor(2), &v = e.tensor(3),
                  &out = e.tensor(4);
  const RefTensor* mask = e.optional_tensor(kMask);
  const double scale =
      e.is_none(kScale) ? 1 / std::sqrt(static_cast<double>(q.sizes[3])) : e.real(kScale);
  const auto at = [](const RefTensor& t, std::int64_t a, std::int64_t h, std::int64_t r,
                     std::int64_t f) {
    return t.at(std::vector<std::int64_t>{a, h, r, f});
  };
  const auto add = [](RefTensor& t, std::size_t p, double x) { t.set(p, t.real(p) + x); };
  const auto score_of = [&](std::vector<std::int64_t> i) {
    if (e.boolean(kCausal) && i[3] > i[2]) return -std::numeric_limits<double>::infinity();
    double score = 0;
    for (std::int64_t f = 0; f < q.sizes[3]; ++f) {
      score += q.real(at(q, i[0], i[1], i[2], f)) * k.real(at(k, i[0], i[1], i[3], f)) * scale;
    }
    if (mask == nullptr) return score;
    const std::size_t m = broadcast_position(*mask, i);
    if (mask->is_real()) return score + mask->real(m);
    return mask->integer(m) != 0 ? score : -std::numeric_limits<double>::infinity();
  };
  const std::vector<std::int64_t> rows = {q.sizes[0], q.sizes[1], q.sizes[2]};
  for_each_index(rows, [&](std::span<const std::int64_t> i, std::size_t) {
    const std::int64_t a = i[0], h = i[1], row = i[2];
    std::vector<double> p;
    double top = -std::numeric_limits<double>::infinity(), sum = 0, level = 0;
    for (std::int64_t column = 0; column < k.sizes[2]; ++column) {
      p.push_back(score_of({a, h, row, column}));
      top = std::max(top, p.back());
    }
    const bool sees_any = !std::isinf(top);
    for (double& x : p) sum += x = sees_any ? std::exp(x - top) : 0;
    for (std::int64_t f = 0; f < v.sizes[3]; ++f) {
      level += g.real(at(g, a, h, row, f)) * out.real(at(out, a, h, row, f));
    }
    for (std::int64_t column = 0; sum > 0 && column < k.sizes[2]; ++column) {
      const double weight = p[static_cast<std::size_t>(column)] / sum;
      double dp = 0;
      for (std::int64_t f = 0; f < v.sizes[3]; ++f) {
        dp += g.real(at(g, a, h, row, f)) * v.real(at(v, a, h, column, f));
        add(e.result(2), at(v, a, h, column, f), weight * g.real(at(g, a, h, row, f)));
      }
      const double ds = weight * (dp - level) * scale;
      for (std::int64_t f = 0; f < q.sizes[3]; ++f) {
        add(e.result(0), at(q, a, h, row, f), ds * k.real(at(k, a, h, column, f)));
        add(e.result(1), at(k, a, h, column, f), ds * q.real(at(q, a, h, row, f)));
      }
    }
  });
}

template <bool causal>
std::vector<Argument> sample(SampleBuilder& s) {
  const auto rows = [&](std::int64_t length) {
    return s.tensor({s.size(2), s.constant(3), s.size(length), s.constant(8)});
  };
  const std::int64_t columns = causal ? 5 : 9;
  std::vector<Argument> arguments = {
      rows(5),       rows(5), rows(columns),
      rows(columns), rows(5), s.tensor({s.size(2), s.constant(3), s.size(5)}, 1, 3),
      0.0,           causal};
  if (!causal) arguments.push_back(s.tensor({s.size(5), s.size(9)}));
  return arguments;
}
std::vector<Sample> samples_backward() {
  return {{"causal", sample<true>, {DType::f32, DType::f64}}, {"masked", sample<false>}};
}

constexpr OpDef kAttentionBackward[] = {
    {.name = "_scaled_dot_product_flash_attention_for_cpu_backward",
     .schema = "(grad_out: tensor, query: tensor, key: tensor, value: tensor, out: tensor, "
               "logsumexp: tensor, dropout_p: real, is_causal: boolean, "
               "attn_mask: optional_tensor = none, scale: optional_real = none) "
               "-> tensor, tensor, tensor",
     .doc = "Gradients of attention with respect to query, key and value.",
     .traits = Trait::contraction,
     .infer = infer_backward,
     .decompose = decompose_backward,
     .reference = reference_backward,
     .aten = "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
     .samples = samples_backward},
};

}  // namespace

std::span<const OpDef> attention_backward_ops() { return kAttentionBackward; }

}  // namespace inkle::ops
