// Scaled dot-product attention as one op: the frontend keeps it whole, the loop IR has a node for
// it. Ranks other than 4 are views.
#include "ops/attention.h"

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
using graph::OpDef;
using graph::Sample;
using graph::Trait;
using infer::Types;

// Where a row keeps its arguments; q, k and v are 0, 1 and 2. -1: it has none.
struct Positions {
  std::size_t mask, dropout, causal, scale;
  int gqa = -1;
  int safe = -1;  // rows with nothing to attend to give 0; without the argument they do
};
constexpr Positions kSdpa{.mask = 3, .dropout = 4, .causal = 5, .scale = 6, .gqa = 7, .safe = 8};
constexpr Positions kFlash{.mask = 5, .dropout = 3, .causal = 4, .scale = 6};

void require_same(Inference& in, Expr a, Expr b, std::string_view message) {
  if (!in.context().guard_equal(a, b)) in.fail(message);
}

// Heads of a tensor over (batch, head, row, feature) or (batch, row, feature).
Expr head_count(Inference& in, const Type& t) {
  return t.rank() == 4 ? t.sizes[1] : in.context().constant(1);
}
void check_heads(Inference& in, const Positions& p, const Type& q, const Type& k) {
  const Expr heads = head_count(in, q), kv_heads = head_count(in, k);
  const bool grouped = p.gqa >= 0 && in.boolean(static_cast<std::size_t>(p.gqa));
  if (!grouped) {
    require_same(in, heads, kv_heads, "heads of query and key differ");
  } else if (!in.context().guard_equal(mod(heads, kv_heads), in.context().constant(0))) {
    in.fail("key heads do not divide query heads");
  }
}
void check_mask(Inference& in, const Positions& p, const Type& q, const Type& k) {
  if (in.optional_tensor(p.mask) != nullptr) check_attention_mask(in, p.mask, q, k);
}

template <Positions p>
Types attention_type(Inference& in) {
  const Type &q = float_tensor(in, 0), &k = float_tensor(in, 1), &v = float_tensor(in, 2);
  if (q.rank() != 3 && q.rank() != 4) unsupported("sdpa: only 3 or 4 dimensions are compiled");
  if (k.rank() != q.rank() || v.rank() != q.rank()) in.fail("ranks differ");
  if (k.dtype != q.dtype || v.dtype != q.dtype) in.fail("dtypes differ");
  if (in.real(p.dropout) != 0) unsupported("sdpa: dropout is not compiled");
  const std::size_t row = q.rank() - 2, feature = q.rank() - 1;
  require_same(in, q.sizes[feature], k.sizes[feature], "features of query and key differ");
  require_same(in, k.sizes[row], v.sizes[row], "lengths of key and value differ");
  require_same(in, q.sizes[0], k.sizes[0], "batch sizes differ");
  require_same(in, k.sizes[0], v.sizes[0], "batch sizes differ");
  check_heads(in, p, q, k);
  require_same(in, head_count(in, k), head_count(in, v), "heads of key and value differ");
  check_mask(in, p, q, k);
  Sizes sizes = q.sizes;
  sizes.back() = v.sizes.back();
  return {infer::make(q, q.dtype, std::move(sizes))};
}
Types infer_flash(Inference& in) {
  Types types = attention_type<kFlash>(in);
  const Type& q = in.tensor(0);
  const Sizes rows(q.sizes.begin(), q.sizes.end() - 1);
  types.push_back(infer::make(q, abi::compute_type(q.dtype), rows));
  return types;
}

// (batch, row, feature) as (batch, 1, row, feature).
Tensor with_heads(Lowering& l, const Tensor& t) {
  if (t.rank() == 4) return t;
  return l.view(t, {t.sizes[0], l.context().constant(1), t.sizes[1], t.sizes[2]}, [](Indices i) {
    return std::vector<Expr>{i[0], i[2], i[3]};
  });
}
template <Positions p>
void lower_attention(Lowering& l) {
  const std::size_t rank = l.tensor(0).rank();
  const Tensor q = with_heads(l, l.tensor(0)), k = with_heads(l, l.tensor(1)),
               v = with_heads(l, l.tensor(2));
  Lowering::AttentionArguments arguments{.q = &q, .k = &k, .v = &v};
  Tensor mask;
  if (const Tensor* given = l.optional_tensor(p.mask)) {
    mask = attention_mask(l, *given, q, k, rank);
    arguments.mask = &mask;
  }
  if (l.args().is_none(p.scale)) {
    const auto features = q.sizes[3].constant();
    if (!features) unsupported("sdpa: a symbolic head size needs a scale");
    arguments.scale = 1 / std::sqrt(static_cast<double>(*features));
  } else {
    arguments.scale = l.args().real(p.scale);
  }
  arguments.is_causal = l.args().boolean(p.causal);
  arguments.safe = p.safe < 0 || l.args().boolean(static_cast<std::size_t>(p.safe));
  arguments.want_lse = l.node().results.size() > 1 && l.is_used(1);
  const std::vector<Tensor> results = l.attention(arguments, l.result_type().dtype);
  const auto without_heads = [&](const Tensor& t) {
    if (rank == 4) return t;
    Sizes sizes = t.sizes;
    sizes.erase(sizes.begin() + 1);
    return l.view(t, std::move(sizes), [](Indices i) {
      std::vector<Expr> full(i.begin(), i.end());
      full.insert(full.begin() + 1, i[0].context().constant(0));
      return full;
    });
  };
  l.result(without_heads(results[0]));
  if (arguments.want_lse) l.result(1, without_heads(results[1]));
}

// Scores of one query row; masked columns are minus infinity.
template <Positions p>
std::vector<double> reference_scores(Evaluation& e, std::vector<std::int64_t> row,
                                     std::vector<std::int64_t> kv_row, double scale) {
  const RefTensor &q = e.tensor(0), &k = e.tensor(1);
  const RefTensor* mask = e.optional_tensor(p.mask);
  const std::size_t length = q.rank() - 2;
  const std::int64_t query = row[length], features = q.sizes.back();
  std::vector<double> scores;
  for (std::int64_t column = 0; column < k.sizes[length]; ++column) {
    double score = 0;
    for (std::int64_t f = 0; f < features; ++f) {
      row[length + 1] = kv_row[length + 1] = f;
      kv_row[length] = column;
      score += q.real(q.at(row)) * k.real(k.at(kv_row));
    }
    score *= scale;
    row[length + 1] = column;
    if (mask != nullptr) {
      const std::size_t m = broadcast_position(*mask, row);
      if (mask->is_real())
        score += mask->real(m);
      else if (mask->integer(m) == 0)
        score = -std::numeric_limits<double>::infinity();
    }
    if (e.boolean(p.causal) && column > query) score = -std::numeric_limits<double>::infinity();
    scores.push_back(score);
  }
  return scores;
}
template <Positions p>
void reference_attention(Evaluation& e) {
  const RefTensor &q = e.tensor(0), &k = e.tensor(1), &v = e.tensor(2);
  const double scale =
      e.is_none(p.scale) ? 1 / std::sqrt(static_cast<double>(q.sizes.back())) : e.real(p.scale);
  const bool safe = p.safe < 0 || e.boolean(static_cast<std::size_t>(p.safe));
  const std::size_t length = q.rank() - 2;
  const std::vector<std::int64_t> rows(q.sizes.begin(), q.sizes.end() - 1);
  for_each_index(rows, [&](std::span<const std::int64_t> indices, std::size_t position) {
    std::vector<std::int64_t> row(indices.begin(), indices.end());
    row.push_back(0);
    std::vector<std::int64_t> kv = row;
    if (q.rank() == 4) kv[1] = row[1] / (q.sizes[1] / k.sizes[1]);
    const std::vector<double> scores = reference_scores<p>(e, row, kv, scale);
    double top = -std::numeric_limits<double>::infinity();
    for (const double s : scores) top = std::max(top, s);
    const bool masked = std::isinf(top) && top < 0;
    double sum = 0;
    for (const double s : scores) sum += masked ? 0 : std::exp(s - top);
    for (std::int64_t f = 0; f < v.sizes.back(); ++f) {
      const bool is_nan = masked && !safe && !scores.empty();
      double y = is_nan ? std::numeric_limits<double>::quiet_NaN() : 0;
      for (std::size_t c = 0; c < scores.size() && !masked; ++c) {
        kv[length] = static_cast<std::int64_t>(c);
        kv[length + 1] = f;
        y += std::exp(scores[c] - top) / sum * v.real(v.at(kv));
      }
      row[length + 1] = f;
      e.result().set(e.result().at(row), y);
    }
    if (e.result_count() > 1) e.result(1).set(position, top + std::log(sum));
  });
}

std::vector<Sample> samples_sdpa() {
  return {{"plain",
           [](SampleBuilder& s) -> std::vector<Argument> {
             const auto x = [&](std::int64_t length) {
               return s.tensor({s.size(2), s.constant(3), s.size(length), s.constant(8)});
             };
             return {x(5), x(9), x(9)};
           },
           float_dtypes()},
          {"causal",
           [](SampleBuilder& s) -> std::vector<Argument> {
             const auto x = [&] {
               return s.tensor({s.size(2), s.constant(3), s.size(7), s.constant(16)});
             };
             return {x(), x(), x(), graph::None{}, 0.0, true, 0.5};
           },
           float_dtypes()},
          {"masked",
           [](SampleBuilder& s) -> std::vector<Argument> {
             const auto x = [&](std::int64_t length) {
               return s.tensor({s.size(2), s.constant(3), s.size(length), s.constant(8)});
             };
             return {x(5), x(9), x(9),
                     s.tensor(DType::boolean, {s.size(2), s.constant(1), s.size(5), s.size(9)})};
           },
           float_dtypes(), true},
          {"grouped",
           [](SampleBuilder& s) -> std::vector<Argument> {
             const auto x = [&](std::int64_t heads) {
               return s.tensor({s.size(2), s.constant(heads), s.size(7), s.constant(8)});
             };
             return {x(4), x(2), x(2), graph::None{}, 0.0, true, graph::None{}, true};
           },
           float_dtypes()}};
}
std::vector<Sample> samples_flash() {
  return {{"causal",
           [](SampleBuilder& s) -> std::vector<Argument> {
             const auto x = [&] {
               return s.tensor({s.size(2), s.constant(3), s.size(7), s.constant(16)});
             };
             return {x(), x(), x(), 0.0, true};
           },
           float_dtypes(), true}};
}

constexpr OpDef kAttention[] = {
    {.name = "_scaled_dot_product_flash_attention_for_cpu",
     .schema = "(query: tensor, key: tensor, value: tensor, dropout_p: real = 0.0, "
               "is_causal: boolean = false, attn_mask: optional_tensor = none, "
               "scale: optional_real = none) -> tensor, tensor",
     .doc = "Attention and the log-sum-exp of each row of scores.",
     .traits = Trait::contraction,
     .infer = infer_flash,
     .lower = lower_attention<kFlash>,
     .reference = reference_attention<kFlash>,
     .aten = "aten::_scaled_dot_product_flash_attention_for_cpu",
     .samples = samples_flash},
    {.name = "sdpa",
     .schema = "(query: tensor, key: tensor, value: tensor, attn_mask: optional_tensor = none, "
               "dropout_p: real = 0.0, is_causal: boolean = false, scale: optional_real = none, "
               "enable_gqa: boolean = false, safe: boolean = true) -> tensor",
     .doc = "softmax(query key^T * scale + mask) value; rows with nothing to attend to give 0, or "
            "NaN where safe is false.",
     .traits = Trait::contraction,
     .infer = attention_type<kSdpa>,
     .lower = lower_attention<kSdpa>,
     .reference = reference_attention<kSdpa>,
     .aten = "aten::scaled_dot_product_attention inkle::attention",
     .samples = samples_sdpa},
};

}  // namespace

void check_attention_mask(Inference& in, std::size_t argument, const Type& q, const Type& k) {
  const Type& mask = infer::computable(in, argument);
  if (mask.dtype != DType::boolean && !abi::is_float(mask.dtype)) {
    in.fail("the mask must be bool or float");
  }
  if (mask.rank() > q.rank() || mask.rank() < 2) unsupported("sdpa: a mask of this rank");
  Sizes full = q.sizes;
  full.back() = k.sizes[k.rank() - 2];
  for (std::size_t d = 0; d < mask.rank(); ++d) {
    const Expr size = mask.sizes[d];
    if (size.is_constant(1)) continue;
    if (!in.context().guard_equal(size, full[q.rank() - mask.rank() + d])) {
      in.fail("the mask does not broadcast");
    }
  }
}

Tensor attention_mask(Lowering& l, const Tensor& mask, const Tensor& q, const Tensor& k,
                      std::size_t rank) {
  const Sizes sizes = mask.sizes;
  const std::size_t missing = rank - sizes.size();
  return l.view(mask, {q.sizes[0], q.sizes[1], q.sizes[2], k.sizes[2]}, [=](Indices i) {
    std::vector<Expr> full(i.begin(), i.end());
    if (rank == 3) full.erase(full.begin() + 1);
    std::vector<Expr> own;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const Expr index = full[missing + d];
      own.push_back(is_one(sizes[d]) ? index.context().constant(0) : index);
    }
    return own;
  });
}

std::span<const OpDef> attention_ops() { return kAttention; }

}  // namespace inkle::ops
