// References of rarer rows and of convolutions, as composite_reference.h has them.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/axes.h"
#include "ops/composite_reference.h"

namespace inkle::ops::composite {
namespace {

using Place = std::vector<std::int64_t>;
using Places = std::span<const std::int64_t>;

template <class F>
void each(Evaluation& e, F&& f) {
  for_each_index(e.result().sizes, [&](Places i, std::size_t p) { f(i, p); });
}

// exp(-target * x), which eager has in memory: beyond the dtype's largest number it is infinite,
// and so is the loss.
double margin_power(const RefTensor& x, double value, double target) {
  return round_to(x.dtype, std::exp(-target * value));
}

double averaged(double gradient, std::int64_t reduction, const RefTensor& x) {
  return reduction == kReduceMean ? gradient / static_cast<double>(x.count()) : gradient;
}

std::vector<std::int64_t> list(const Evaluation& e, std::size_t arg, std::size_t spatial,
                               std::int64_t otherwise) {
  std::vector<std::int64_t> given = e.integers(arg);
  if (given.empty()) given.push_back(otherwise);
  if (given.size() == 1) given.assign(spatial, given[0]);
  return given;
}

struct Window {
  std::vector<std::int64_t> stride, padding, dilation;
  std::int64_t groups = 1;
};

// Adds the convolution of x and w to y, all with a batch. where(index of y, tap, dimension) is the
// index of x that is multiplied there, or nothing.
template <class Where>
void convolve(RefTensor& y, const RefTensor& x, const RefTensor& w, std::int64_t groups,
              bool transposed, const RefTensor* bias, Where&& where) {
  const std::int64_t in_group = x.sizes[1] / groups, out_group = y.sizes[1] / groups;
  const Place taps(w.sizes.begin() + 2, w.sizes.end());
  for_each_index(y.sizes, [&](Places i, std::size_t p) {
    const std::int64_t group = i[1] / out_group;
    double sum = bias == nullptr ? 0 : bias->real(static_cast<std::size_t>(i[1]));
    for_each_index(taps, [&](Places k, std::size_t) {
      Place from = {i[0], 0};
      for (std::size_t d = 0; d < taps.size(); ++d) {
        const std::int64_t at = where(i[d + 2], k[d], d);
        if (at < 0 || at >= x.sizes[d + 2]) return;
        from.push_back(at);
      }
      for (std::int64_t c = 0; c < in_group; ++c) {
        from[1] = group * in_group + c;
        Place tap = transposed ? Place{from[1], i[1] % out_group} : Place{i[1], c};
        tap.insert(tap.end(), k.begin(), k.end());
        sum += x.real(x.at(from)) * w.real(w.at(tap));
      }
    });
    y.set(p, sum);
  });
}

void convolve(Evaluation& e, const Window& window, bool transposed) {
  RefTensor x = e.tensor(0), y = e.result();
  const RefTensor& w = e.tensor(1);
  if (x.rank() < w.rank()) {
    x.sizes.insert(x.sizes.begin(), 1);
    y.sizes.insert(y.sizes.begin(), 1);
  }
  convolve(y, x, w, window.groups, transposed, e.optional_tensor(2),
           [&](std::int64_t place, std::int64_t tap, std::size_t d) -> std::int64_t {
             const std::int64_t reach = tap * window.dilation[d];
             if (!transposed) return place * window.stride[d] + reach - window.padding[d];
             const std::int64_t at = place + window.padding[d] - reach;
             return at % window.stride[d] == 0 ? at / window.stride[d] : -1;
           });
  e.result().reals = std::move(y.reals);
}

}  // namespace

void ref_conv(Evaluation& e) {
  const RefTensor& w = e.tensor(1);
  const std::size_t spatial = w.rank() - 2;
  Window window{list(e, 3, spatial, 1), {}, list(e, 5, spatial, 1), e.integer(6)};
  if (!std::holds_alternative<std::string>(e.node().args[4])) {
    window.padding = list(e, 4, spatial, 0);
  } else {
    for (std::size_t d = 0; d < spatial; ++d) {
      const std::int64_t reach = (w.sizes[d + 2] - 1) * window.dilation[d];
      window.padding.push_back(e.string(4) == "same" ? reach / 2 : 0);
    }
  }
  convolve(e, window, false);
}

void ref_conv_transpose(Evaluation& e) {
  const std::size_t spatial = e.tensor(1).rank() - 2;
  convolve(e,
           {list(e, 3, spatial, 1), list(e, 4, spatial, 0), list(e, 7, spatial, 1), e.integer(6)},
           true);
}

void ref_addr(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &v = e.tensor(1), &w = e.tensor(2);
  const double beta = e.real(3), alpha = e.real(4);
  each(e, [&](Places i, std::size_t p) {
    const double own = beta == 0 ? 0 : beta * x.real(broadcast_position(x, i));
    e.result().set(p, own + alpha * v.real(static_cast<std::size_t>(i[0])) *
                                w.real(static_cast<std::size_t>(i[1])));
  });
}

void ref_angle(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  each(e, [&](Places, std::size_t p) {
    const double v = x.real(p);
    e.result().set(p, std::isnan(v) ? v : v < 0 ? std::numbers::pi : 0.0);
  });
}

void ref_binary_cross_entropy_backward(Evaluation& e) {
  const RefTensor &g = e.tensor(0), &x = e.tensor(1), &target = e.tensor(2);
  const RefTensor* weight = e.optional_tensor(3);
  each(e, [&](Places i, std::size_t p) {
    const double v = x.real(p);
    double d = g.real(broadcast_position(g, i)) * (v - target.real(p));
    d /= std::max((1 - v) * v, 1e-12);
    if (weight != nullptr) d *= weight->real(broadcast_position(*weight, i));
    e.result().set(p, averaged(d, e.integer(4), x));
  });
}

void ref_bucketize(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &bounds = e.tensor(1);
  const bool right = e.boolean(3);
  each(e, [&](Places, std::size_t p) {
    std::int64_t below = 0;
    for (std::size_t b = 0; b < bounds.count(); ++b) {
      const double bound = bounds.real(b), v = x.real(p);
      if (std::isnan(v) || (right ? bound <= v : bound < v)) ++below;
    }
    e.result().set(p, below);
  });
}

void ref_count_nonzero(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const auto groups = reduction_groups(x, axes_of(e, 1, x.rank()));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    e.result().set(
        g, static_cast<std::int64_t>(std::count_if(groups[g].begin(), groups[g].end(),
                                                   [&](std::size_t p) { return x.real(p) != 0; })));
  }
}

void ref_dist(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &y = e.tensor(1);
  const double p = e.real(2);
  Place sizes = x.rank() >= y.rank() ? x.sizes : y.sizes;
  const Place& other = x.rank() >= y.rank() ? y.sizes : x.sizes;
  for (std::size_t d = 0; d < other.size(); ++d) {
    std::int64_t& size = sizes[sizes.size() - other.size() + d];
    if (size == 1) size = other[d];
  }
  double sum = 0, most = 0, least = INFINITY;
  for_each_index(sizes, [&](Places i, std::size_t) {
    const double d = std::abs(x.real(broadcast_position(x, i)) - y.real(broadcast_position(y, i)));
    sum += p == 0 ? (d != 0 ? 1 : 0) : std::pow(d, p);
    most = std::max(most, d);
    least = std::min(least, d);
  });
  e.result().set(0, p == INFINITY    ? most
                    : p == -INFINITY ? least
                    : p == 0         ? sum
                                     : std::pow(sum, 1 / p));
}

void ref_glu_backward(Evaluation& e) {
  const RefTensor &g = e.tensor(0), &x = e.tensor(1);
  const std::size_t dim = e.dim(e.integer(2), x.rank());
  const std::int64_t half = x.sizes[dim] / 2;
  each(e, [&](Places i, std::size_t p) {
    Place first(i.begin(), i.end());
    first[dim] %= half;
    Place second = first;
    second[dim] += half;
    const double gate = 1 / (1 + std::exp(-x.real(x.at(second))));
    const double from = g.real(g.at(first)) * gate;
    e.result().set(p, i[dim] < half ? from : from * (1 - gate) * x.real(x.at(first)));
  });
}

void ref_isin(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &tests = e.tensor(1);
  each(e, [&](Places, std::size_t p) {
    bool found = false;
    for (std::size_t t = 0; t < tests.count(); ++t) found = found || x.real(p) == tests.real(t);
    e.result().set(p, std::int64_t{found != e.boolean(3)});
  });
}

void ref_logit_backward(Evaluation& e) {
  const RefTensor &g = e.tensor(0), &x = e.tensor(1);
  const double low = e.is_none(2) ? 0 : e.real(2);
  each(e, [&](Places, std::size_t p) {
    const double v = x.real(p);
    const bool outside = v < low || v > 1 - low;
    e.result().set(p, outside ? (e.is_none(2) ? std::nan("") : 0.0) : g.real(p) / (v * (1 - v)));
  });
}

void ref_mvlgamma(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const auto count = static_cast<double>(e.integer(1));
  each(e, [&](Places, std::size_t p) {
    double sum = count * (count - 1) / 4 * std::log(std::numbers::pi);
    for (double j = 0; j < count; ++j) sum += std::lgamma(x.real(p) - 0.5 * j);
    e.result().set(p, sum);
  });
}

void ref_prelu_backward(Evaluation& e) {
  const RefTensor &g = e.tensor(0), &x = e.tensor(1), &w = e.tensor(2);
  each(e, [&](Places i, std::size_t p) {
    const double gradient = g.real(broadcast_position(g, i)), v = x.real(broadcast_position(x, i));
    const double slope = w.real(broadcast_position(w, i));
    e.result(0).set(p, v > 0 ? gradient : slope * gradient);
    e.result(1).set(p, v > 0 ? 0.0 : v * gradient);
  });
}

void ref_soft_margin_loss(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &target = e.tensor(1);
  const std::int64_t reduction = e.integer(2);
  double sum = 0;
  for_each_index(x.sizes, [&](Places i, std::size_t p) {
    const double loss =
        std::log1p(margin_power(x, x.real(p), target.real(broadcast_position(target, i))));
    if (reduction == kReduceNone) e.result().set(p, loss);
    sum += loss;
  });
  if (reduction != kReduceNone) e.result().set(0, averaged(sum, reduction, x));
}

void ref_soft_margin_loss_backward(Evaluation& e) {
  const RefTensor &g = e.tensor(0), &x = e.tensor(1), &target = e.tensor(2);
  each(e, [&](Places i, std::size_t p) {
    const double t = target.real(p), power = margin_power(x, x.real(p), t);
    const double d = -t * power / (1 + power) * g.real(broadcast_position(g, i));
    e.result().set(p, averaged(d, e.integer(3), x));
  });
}

void ref_trace(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  double real = 0;
  std::int64_t integer = 0;
  for (std::int64_t d = 0; d < std::min(x.sizes[0], x.sizes[1]); ++d) {
    const auto p = static_cast<std::size_t>(d * x.sizes[1] + d);
    real += x.real(p);
    integer += x.integer(p);
  }
  e.result().is_real() ? e.result().set(0, real) : e.result().set(0, integer);
}

}  // namespace inkle::ops::composite
