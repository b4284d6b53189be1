// Attention in training: an op that also returns the row statistics for its gradient, and that
// gradient. Neither stores the weights; dropout's bits are drawn again from the seed.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "loop/scalar.h"
#include "ops/attention.h"
#include "ops/axes.h"
#include "ops/infer.h"
#include "ops/samples.h"
#include "ops/seeded.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

using graph::Argument;
using graph::OpDef;
using graph::Sample;
using graph::Trait;
using infer::Types;

// (query, key, value, attn_mask?, seed?, number, p, is_causal, scale, safe, hidden), in the
// backward after grad, with out and statistics after value.
struct Positions {
  std::size_t q, mask;
  [[nodiscard]] std::size_t seed() const { return mask + 1; }
  [[nodiscard]] std::size_t number() const { return mask + 2; }
  [[nodiscard]] std::size_t p() const { return mask + 3; }
  [[nodiscard]] std::size_t causal() const { return mask + 4; }
  [[nodiscard]] std::size_t scale() const { return mask + 5; }
  [[nodiscard]] std::size_t safe() const { return mask + 6; }
  [[nodiscard]] std::size_t hidden() const { return mask + 7; }
};
constexpr Positions kForward{.q = 0, .mask = 3};
constexpr Positions kBackward{.q = 1, .mask = 6};
constexpr std::size_t kGrad = 0, kOut = 4, kStatistics = 5;

void require_same(Inference& in, Expr a, Expr b, std::string_view message) {
  if (!in.context().guard_equal(a, b)) in.fail(message);
}

void check(Inference& in, Positions at) {
  const Type &q = float_tensor(in, at.q), &k = float_tensor(in, at.q + 1),
             &v = float_tensor(in, at.q + 2);
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4) in.fail("needs 4 dimensions");
  if (k.dtype != q.dtype || v.dtype != q.dtype) in.fail("dtypes differ");
  for (const Type* t : {&k, &v}) {
    require_same(in, q.sizes[0], t->sizes[0], "batch sizes differ");
    require_same(in, k.sizes[1], t->sizes[1], "heads of key and value differ");
    require_same(in, k.sizes[2], t->sizes[2], "lengths of key and value differ");
  }
  require_same(in, q.sizes[3], k.sizes[3], "features of query and key differ");
  if (!in.context().guard_equal(mod(q.sizes[1], k.sizes[1]), in.context().constant(0))) {
    in.fail("key heads do not divide query heads");
  }
  if (in.optional_tensor(at.mask) != nullptr) check_attention_mask(in, at.mask, q, k);
  const double p = in.real(at.p());
  if (!(p >= 0 && p <= 1)) in.fail("p is a probability");
  if (in.optional_tensor(at.seed()) != nullptr) {
    seeded::check(in, at.seed());
  } else if (p != 0) {
    in.fail("dropout needs a seed");
  }
}

Types infer_forward(Inference& in) {
  check(in, kForward);
  const Type& q = in.tensor(0);
  const DType compute = abi::compute_type(q.dtype);
  return {infer::make(q, q.dtype, {q.sizes[0], q.sizes[1], q.sizes[2], in.tensor(2).sizes[3]}),
          infer::make(q, compute, {q.sizes[0], q.sizes[1], q.sizes[2], in.context().constant(2)})};
}

Types infer_backward(Inference& in) {
  check(in, kBackward);
  const Type &q = in.tensor(1), &v = in.tensor(3);
  const Sizes out = {q.sizes[0], q.sizes[1], q.sizes[2], v.sizes[3]};
  for (const std::size_t n : {kGrad, kOut}) {
    const Type& t = float_tensor(in, n);
    if (t.rank() != 4 || t.dtype != q.dtype) in.fail("a gradient of another type");
    for (std::size_t d = 0; d < 4; ++d) require_same(in, t.sizes[d], out[d], "sizes differ");
  }
  const Type& statistics = float_tensor(in, kStatistics);
  if (statistics.rank() != 4 || statistics.dtype != abi::compute_type(q.dtype)) {
    in.fail("statistics of another type");
  }
  Types types;
  for (std::size_t n = 1; n <= 3; ++n) {
    types.push_back(infer::make(in.tensor(n), q.dtype, in.tensor(n).sizes));
  }
  return types;
}

Lowering::AttentionArguments arguments_of(Lowering& l, Positions at, Tensor& mask) {
  Lowering::AttentionArguments a{
      .q = &l.tensor(at.q), .k = &l.tensor(at.q + 1), .v = &l.tensor(at.q + 2)};
  if (const Tensor* given = l.optional_tensor(at.mask)) {
    mask = attention_mask(l, *given, *a.q, *a.k, 4);
    a.mask = &mask;
  }
  a.scale = l.args().real(at.scale());
  a.is_causal = l.args().boolean(at.causal());
  a.safe = l.args().boolean(at.safe());
  a.hidden = l.args().real(at.hidden());
  a.seed = l.optional_tensor(at.seed());
  const auto number = l.args().integer(at.number()).constant();
  if (!number) unsupported("attention: a symbolic number");
  a.number = *number;
  a.p = l.args().real(at.p());
  return a;
}

void lower_forward(Lowering& l) {
  Tensor mask;
  Lowering::AttentionArguments arguments = arguments_of(l, kForward, mask);
  arguments.want_statistics = l.is_used(1);
  const std::vector<Tensor> results = l.attention(arguments, l.result_type().dtype);
  l.result(results[0]);
  if (arguments.want_statistics) l.result(1, results[1]);
}

void lower_backward(Lowering& l) {
  Tensor mask;
  const Lowering::AttentionArguments arguments = arguments_of(l, kBackward, mask);
  const auto results =
      l.attention_gradient(arguments, l.tensor(kGrad), l.tensor(kOut), l.tensor(kStatistics));
  for (std::size_t n = 0; n < 3; ++n) l.result(n, results[n]);
}

// --- Reference
// ------------------------------------------------------------------------------------

class Row {
 public:
  Row(Evaluation& e, Positions at, std::span<const std::int64_t> place)
      : e_(e), at_(at), b_(place[0]), h_(place[1]), i_(place[2]) {
    const RefTensor &q = e.tensor(at.q), &k = e.tensor(at.q + 1);
    kv_head_ = h_ / (q.sizes[1] / k.sizes[1]);
    row_ = (b_ * q.sizes[1] + h_) * q.sizes[2] + i_;
  }

  std::size_t own(const RefTensor& t, std::int64_t feature) const {
    return t.at(std::vector<std::int64_t>{b_, h_, i_, feature});
  }
  std::size_t other(const RefTensor& t, std::int64_t column, std::int64_t feature) const {
    return t.at(std::vector<std::int64_t>{b_, kv_head_, column, feature});
  }

  // False where a bool mask or causality hides the column.
  bool passes(std::int64_t column) const {
    if (e_.boolean(at_.causal()) && column > i_) return false;
    const RefTensor* mask = e_.optional_tensor(at_.mask);
    return mask == nullptr || mask->is_real() || mask->integer(masked(*mask, column)) != 0;
  }
  double score(std::int64_t column) const {
    const RefTensor &q = e_.tensor(at_.q), &k = e_.tensor(at_.q + 1);
    if (e_.boolean(at_.causal()) && column > i_) return -std::numeric_limits<double>::infinity();
    if (!passes(column)) return e_.real(at_.hidden());
    double score = 0;
    for (std::int64_t f = 0; f < q.sizes[3]; ++f) {
      score += q.real(own(q, f)) * k.real(other(k, column, f));
    }
    score *= e_.real(at_.scale());
    const RefTensor* mask = e_.optional_tensor(at_.mask);
    return mask != nullptr && mask->is_real() ? score + mask->real(masked(*mask, column)) : score;
  }
  double factor(std::int64_t column) const {
    const double p = e_.real(at_.p());
    if (p == 0) return 1;
    const std::int64_t seed = e_.tensor(at_.seed()).integer(0);
    const std::int64_t word = loop::attention_word(seed, e_.integer(at_.number()), row_, column);
    return word < loop::dropped_below(p) ? 0 : loop::dropout_scale(p);
  }

 private:
  std::size_t masked(const RefTensor& mask, std::int64_t column) const {
    return broadcast_position(mask, std::vector<std::int64_t>{b_, h_, i_, column});
  }

  Evaluation& e_;
  Positions at_;
  std::int64_t b_, h_, i_, kv_head_ = 0, row_ = 0;
};

std::vector<std::int64_t> rows_of(const RefTensor& q) {
  return {q.sizes[0], q.sizes[1], q.sizes[2]};
}

void reference_forward(Evaluation& e) {
  const RefTensor &q = e.tensor(0), &v = e.tensor(2);
  for_each_index(rows_of(q), [&](std::span<const std::int64_t> i, std::size_t) {
    const Row row(e, kForward, i);
    std::vector<double> p;
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::int64_t c = 0; c < v.sizes[2]; ++c) {
      p.push_back(row.score(c));
      top = std::max(top, p.back());
    }
    const bool empty = std::isinf(top) && top < 0;
    for (double& x : p) sum += x = empty ? 0 : std::exp(x - top);
    for (std::int64_t f = 0; f < v.sizes[3]; ++f) {
      const bool is_nan = empty && !p.empty() && !e.boolean(kForward.safe());
      double y = is_nan ? std::numeric_limits<double>::quiet_NaN() : 0;
      for (std::int64_t c = 0; c < v.sizes[2] && !empty; ++c) {
        y += p[static_cast<std::size_t>(c)] / sum * row.factor(c) * v.real(row.other(v, c, f));
      }
      e.result().set(row.own(e.result(), f), y);
    }
    e.result(1).set(row.own(e.result(1), 0), top);
    e.result(1).set(row.own(e.result(1), 1), sum);
  });
}

void reference_backward(Evaluation& e) {
  const RefTensor &g = e.tensor(kGrad), &q = e.tensor(1), &k = e.tensor(2), &v = e.tensor(3),
                  &statistics = e.tensor(kStatistics);
  const double scale = e.real(kBackward.scale());
  const auto add = [](RefTensor& t, std::size_t p, double x) { t.set(p, t.real(p) + x); };
  for_each_index(rows_of(q), [&](std::span<const std::int64_t> i, std::size_t) {
    const Row row(e, kBackward, i);
    const double top = statistics.real(row.own(statistics, 0));
    const double sum = statistics.real(row.own(statistics, 1));
    const bool empty = std::isinf(top) && top < 0;
    // The sum over columns of weight times gradient. It equals the dot product of out and its
    // gradient, from which kernels take it for long rows.
    double level = 0;
    for (std::int64_t c = 0; c < k.sizes[2] && !empty; ++c) {
      double dp = 0;
      for (std::int64_t f = 0; f < v.sizes[3]; ++f) {
        dp += g.real(row.own(g, f)) * v.real(row.other(v, c, f));
      }
      level += std::exp(row.score(c) - top) / sum * row.factor(c) * dp;
    }
    for (std::int64_t c = 0; c < k.sizes[2]; ++c) {
      const double none =
          e.boolean(kBackward.safe()) ? 0 : std::numeric_limits<double>::quiet_NaN();
      const double p = empty ? none : std::exp(row.score(c) - top) / sum;
      const double factor = row.factor(c);
      double dp = 0;
      for (std::int64_t f = 0; f < v.sizes[3]; ++f) {
        dp += g.real(row.own(g, f)) * v.real(row.other(v, c, f));
        add(e.result(2), row.other(v, c, f), p * factor * g.real(row.own(g, f)));
      }
      if (!row.passes(c)) continue;
      const double ds = p * (dp * factor - level) * scale;
      for (std::int64_t f = 0; f < q.sizes[3]; ++f) {
        add(e.result(0), row.own(q, f), ds * k.real(row.other(k, c, f)));
        add(e.result(1), row.other(k, c, f), ds * q.real(row.own(q, f)));
      }
    }
  });
}

// --- Samples
// --------------------------------------------------------------------------------------

enum class Kind : std::uint8_t { plain, causal, masked, hidden, dropped };

std::vector<Argument> options(SampleBuilder& s, Kind kind, std::int64_t rows,
                              std::int64_t columns) {
  Argument mask = graph::None{}, seed = graph::None{};
  if (kind == Kind::masked) mask = s.tensor({s.size(rows), s.size(columns)});
  if (kind == Kind::hidden) {
    mask = s.tensor(DType::boolean, {s.size(2), s.constant(1), s.constant(1), s.size(columns)});
  }
  const bool drops = kind == Kind::dropped;
  if (drops) seed = s.tensor(DType::i64, {}, -9, 9);
  const double hidden = kind == Kind::hidden ? -1e4 : -std::numeric_limits<double>::infinity();
  return {mask, seed,  s.constant(drops ? 2 : 0), drops ? 0.25 : 0.0, kind == Kind::causal, 0.3,
          true, hidden};
}

template <Kind kind>
std::vector<Argument> sample_forward(SampleBuilder& s) {
  const std::int64_t columns = kind == Kind::causal ? 5 : 9, kv = kind == Kind::plain ? 2 : 4;
  const auto tensor = [&](std::int64_t heads, std::int64_t length) {
    return s.tensor({s.size(2), s.constant(heads), s.size(length), s.constant(8)});
  };
  std::vector<Argument> arguments = {tensor(4, 5), tensor(kv, columns), tensor(kv, columns)};
  for (Argument& a : options(s, kind, 5, columns)) arguments.push_back(std::move(a));
  return arguments;
}

template <Kind kind>
std::vector<Argument> sample_backward(SampleBuilder& s) {
  const std::int64_t columns = kind == Kind::causal ? 5 : 9, kv = kind == Kind::plain ? 2 : 4;
  const auto tensor = [&](std::int64_t heads, std::int64_t length) {
    return s.tensor({s.size(2), s.constant(heads), s.size(length), s.constant(8)});
  };
  std::vector<Argument> arguments = {tensor(4, 5), tensor(4, 5), tensor(kv, columns),
                                     tensor(kv, columns), tensor(4, 5)};
  arguments.push_back(s.tensor(abi::compute_type(s.dtype()),
                               {s.size(2), s.constant(4), s.size(5), s.constant(2)}, 1, 3));
  for (Argument& a : options(s, kind, 5, columns)) arguments.push_back(std::move(a));
  return arguments;
}

std::vector<Sample> samples_forward() {
  return {{"grouped", sample_forward<Kind::plain>, float_dtypes()},
          {"causal", sample_forward<Kind::causal>, float_dtypes(), true},
          {"masked", sample_forward<Kind::masked>, float_dtypes()},
          {"hidden", sample_forward<Kind::hidden>, float_dtypes()},
          {"dropped", sample_forward<Kind::dropped>, float_dtypes()}};
}
std::vector<Sample> samples_backward() {
  return {{"grouped", sample_backward<Kind::plain>, float_dtypes()},
          {"causal", sample_backward<Kind::causal>, float_dtypes(), true},
          {"masked", sample_backward<Kind::masked>, float_dtypes()},
          {"hidden", sample_backward<Kind::hidden>, float_dtypes()},
          {"dropped", sample_backward<Kind::dropped>, float_dtypes()}};
}

constexpr OpDef kRows[] = {
    {.name = "attend",
     .schema = "(query: tensor, key: tensor, value: tensor, attn_mask: optional_tensor = none, "
               "seed: optional_tensor = none, number: integer = 0, p: real = 0.0, "
               "is_causal: boolean = false, scale: real = 1.0, safe: boolean = true, "
               "hidden: real = -inf) -> tensor, tensor",
     .doc = "dropout(softmax(query key^T * scale + mask)) value, and of each row the largest score "
            "and the sum of exp(score - that). Scores are `hidden` where a bool mask is false.",
     .traits = Trait::contraction,
     .infer = infer_forward,
     .lower = lower_forward,
     .reference = reference_forward,
     .aten = "inkle::attend",
     .samples = samples_forward},
    {.name = "attend_backward",
     .schema = "(grad: tensor, query: tensor, key: tensor, value: tensor, out: tensor, "
               "statistics: tensor, attn_mask: optional_tensor = none, "
               "seed: optional_tensor = none, number: integer = 0, p: real = 0.0, "
               "is_causal: boolean = false, scale: real = 1.0, safe: boolean = true, "
               "hidden: real = -inf) -> tensor, tensor, tensor",
     .doc = "Gradients of attend with respect to query, key and value.",
     .traits = Trait::contraction,
     .infer = infer_backward,
     .lower = lower_backward,
     .reference = reference_backward,
     .aten = "inkle::attend_backward",
     .samples = samples_backward},
};

}  // namespace

std::span<const OpDef> attention_training_ops() { return kRows; }

}  // namespace inkle::ops
