#include "ops/composite_reference.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "ops/axes.h"

namespace inkle::ops::composite {
namespace {

using Place = std::vector<std::int64_t>;
using Places = std::span<const std::int64_t>;

std::size_t last(const RefTensor& t, std::size_t back = 0) { return t.rank() - 1 - back; }

std::int64_t elements(Places sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

// Each element of the result is the element of argument 0 at from(its indices).
template <class From>
void move_elements(Evaluation& e, From&& from) {
  const RefTensor& x = e.tensor(0);
  for_each_index(e.result().sizes, [&](Places i, std::size_t p) {
    e.result().copy_element(p, x, x.at(from(Place(i.begin(), i.end()))));
  });
}

// A sum of products in the type of the result.
class Sum {
 public:
  explicit Sum(bool is_real) : is_real_(is_real) {}
  void add(const RefTensor& a, std::size_t i, const RefTensor& b, std::size_t j) {
    if (is_real_) {
      real_ += a.real(i) * b.real(j);
    } else {
      integer_ += a.integer(i) * b.integer(j);
    }
  }
  void store(RefTensor& to, std::size_t at) const {
    is_real_ ? to.set(at, real_) : to.set(at, integer_);
  }

 private:
  bool is_real_;
  double real_ = 0;
  std::int64_t integer_ = 0;
};

// --- Losses

// Losses of elements, weighted, as the reduction (the last argument) has them.
template <class Loss>
void reduced(Evaluation& e, Loss&& loss) {
  const RefTensor& x = e.tensor(0);
  const std::int64_t reduction = e.integer(e.size() - 1);
  const RefTensor* weight = e.optional_tensor(2);
  double sum = 0;
  for_each_index(x.sizes, [&](Places i, std::size_t p) {
    double one = loss(i, p);
    if (weight != nullptr) one *= weight->real(broadcast_position(*weight, i));
    if (reduction == kReduceNone) e.result().set(p, one);
    sum += one;
  });
  if (reduction == kReduceNone) return;
  e.result().set(0, reduction == kReduceMean ? sum / static_cast<double>(x.count()) : sum);
}

// Negative log likelihoods: log(x, indices) of the class that the target names.
template <class Log>
void likelihood(Evaluation& e, Log&& log) {
  const RefTensor &x = e.tensor(0), &target = e.tensor(1);
  const RefTensor* weight = e.optional_tensor(2);
  const std::size_t dim = x.rank() == 1 ? 0 : 1;
  const std::int64_t reduction = e.integer(3), ignored = e.integer(4);
  double sum = 0, weights = 0;
  const auto one = [&](Places i, std::size_t p) {
    const std::int64_t c = target.integer(p);
    if (c == ignored) {
      if (reduction == kReduceNone) e.result().set(p, 0.0);
      return;
    }
    Place place(i.begin(), i.end());
    place.insert(place.begin() + static_cast<std::ptrdiff_t>(dim), c);
    const double w = weight == nullptr ? 1 : weight->real(static_cast<std::size_t>(c));
    const double loss = -w * log(place, dim);
    if (reduction == kReduceNone) e.result().set(p, loss);
    sum += loss;
    weights += w;
  };
  for_each_index(target.sizes, one);
  if (reduction == kReduceNone) return;
  e.result().set(0, reduction == kReduceMean ? sum / weights : sum);
}

}  // namespace

void ref_binary_cross_entropy(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &target = e.tensor(1);
  reduced(e, [&](Places, std::size_t p) {
    const double t = target.real(p);
    return -(t * std::max(std::log(x.real(p)), -100.0) +
             (1 - t) * std::max(std::log1p(-x.real(p)), -100.0));
  });
}

void ref_binary_cross_entropy_with_logits(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &target = e.tensor(1);
  const RefTensor* positive = e.optional_tensor(3);
  reduced(e, [&](Places i, std::size_t p) {
    const double v = x.real(p), t = target.real(p);
    const double w = positive == nullptr ? 1 : positive->real(broadcast_position(*positive, i));
    const auto log_sigmoid = [](double z) {
      return std::min(z, 0.0) - std::log1p(std::exp(-std::abs(z)));
    };
    return -(w * t * log_sigmoid(v) + (1 - t) * log_sigmoid(-v));
  });
}

void ref_nll(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  likelihood(e, [&](const Place& place, std::size_t) { return x.real(x.at(place)); });
}

void ref_cross_entropy(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  likelihood(e, [&](Place place, std::size_t dim) {
    const double own = x.real(x.at(place));
    double most = -INFINITY, sum = 0;
    for (place[dim] = 0; place[dim] < x.sizes[dim]; ++place[dim]) {
      most = std::max(most, x.real(x.at(place)));
    }
    for (place[dim] = 0; place[dim] < x.sizes[dim]; ++place[dim]) {
      sum += std::exp(x.real(x.at(place)) - most);
    }
    return own - most - std::log(sum);
  });
}

// --- Products

void ref_einsum(Evaluation& e) {
  std::string text(e.string(0));
  std::erase(text, ' ');
  const std::vector<const RefTensor*> tensors = e.tensors(1);
  const std::size_t arrow = text.find("->");
  std::vector<std::string> inputs = {""};
  for (const char c : text.substr(0, arrow)) {
    c == ',' ? (void)inputs.emplace_back() : (void)(inputs.back() += c);
  }
  std::map<char, std::int64_t> sizes, uses;
  for (std::size_t t = 0; t < inputs.size(); ++t) {
    for (std::size_t d = 0; d < inputs[t].size(); ++d) {
      sizes[inputs[t][d]] = tensors[t]->sizes[d];
      ++uses[inputs[t][d]];
    }
  }
  std::string output = arrow == std::string::npos ? "" : text.substr(arrow + 2);
  if (arrow == std::string::npos) {
    for (const auto& [letter, count] : uses) {
      if (count == 1) output += letter;
    }
  }
  std::string inner;
  Place inner_sizes;
  for (const auto& [letter, size] : sizes) {
    if (output.find(letter) != std::string::npos) continue;
    inner += letter;
    inner_sizes.push_back(size);
  }
  for_each_index(e.result().sizes, [&](Places i, std::size_t p) {
    double sum = 0;
    for_each_index(inner_sizes, [&](Places j, std::size_t) {
      double product = 1;
      for (std::size_t t = 0; t < inputs.size(); ++t) {
        Place place;
        for (const char c : inputs[t]) {
          const std::size_t at = output.find(c);
          place.push_back(at != std::string::npos ? i[at] : j[inner.find(c)]);
        }
        product *= tensors[t]->real(tensors[t]->at(place));
      }
      sum += product;
    });
    e.result().set(p, sum);
  });
}

void ref_linear(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &w = e.tensor(1);
  const RefTensor* bias = e.optional_tensor(2);
  const std::int64_t terms = x.sizes.back();
  const std::int64_t columns = w.rank() == 1 ? 1 : w.sizes[0];
  for (std::size_t p = 0; p < e.result().count(); ++p) {
    const auto row = static_cast<std::int64_t>(p) / columns;
    const auto column = static_cast<std::int64_t>(p) % columns;
    double sum =
        bias == nullptr ? 0 : bias->real(bias->rank() == 0 ? 0 : static_cast<std::size_t>(column));
    for (std::int64_t k = 0; k < terms; ++k) {
      sum += x.real(static_cast<std::size_t>(row * terms + k)) *
             w.real(static_cast<std::size_t>(column * terms + k));
    }
    e.result().set(p, sum);
  }
}

void ref_matmul(Evaluation& e) {
  RefTensor x = e.tensor(0), y = e.tensor(1);
  const bool is_row = x.rank() == 1, is_column = y.rank() == 1;
  if (is_row) x.sizes.insert(x.sizes.begin(), 1);
  if (is_column) y.sizes.push_back(1);
  Place sizes = e.result().sizes;
  if (is_row) sizes.insert(sizes.end() - (is_column ? 0 : 1), 1);
  if (is_column) sizes.push_back(1);
  const std::int64_t terms = x.sizes.back();
  // The position in an operand, whose batches broadcast.
  const auto at = [](const RefTensor& t, Places batch, std::int64_t row, std::int64_t column) {
    Place place;
    for (std::size_t d = 0; d + 2 < t.rank(); ++d) {
      place.push_back(t.sizes[d] == 1 ? 0 : batch[batch.size() - (t.rank() - 2) + d]);
    }
    place.push_back(row);
    place.push_back(column);
    return t.at(place);
  };
  for_each_index(sizes, [&](Places i, std::size_t p) {
    const Places batch = i.first(i.size() - 2);
    Sum sum(e.result().is_real());
    for (std::int64_t k = 0; k < terms; ++k) {
      sum.add(x, at(x, batch, i[i.size() - 2], k), y, at(y, batch, k, i.back()));
    }
    sum.store(e.result(), p);
  });
}

void ref_outer(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &y = e.tensor(1);
  for_each_index(e.result().sizes, [&](Places i, std::size_t p) {
    Sum product(e.result().is_real());
    product.add(x, static_cast<std::size_t>(i[0]), y, static_cast<std::size_t>(i[1]));
    product.store(e.result(), p);
  });
}

// The power is rounded to the exponent's type first; that of an integer has f64's range.
void ref_ldexp(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &exponent = e.tensor(1);
  for_each_index(e.result().sizes, [&](Places i, std::size_t p) {
    double power = std::exp2(exponent.real(broadcast_position(exponent, i)));
    if (exponent.is_real()) power = round_to(exponent.dtype, power);
    e.result().set(p, x.real(broadcast_position(x, i)) * power);
  });
}

// --- Norms and sums

void ref_instance_norm(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const RefTensor *weight = e.optional_tensor(1), *bias = e.optional_tensor(2);
  const auto points = static_cast<std::size_t>(elements(Places(x.sizes).subspan(2)));
  const auto channels = static_cast<std::size_t>(x.sizes[1]);
  for (std::size_t first = 0; first < x.count(); first += points) {
    double mean = 0, var = 0;
    for (std::size_t p = first; p < first + points; ++p) mean += x.real(p);
    mean /= static_cast<double>(points);
    for (std::size_t p = first; p < first + points; ++p) var += std::pow(x.real(p) - mean, 2);
    var /= static_cast<double>(points);
    const std::size_t c = first / points % channels;
    const double scale = (weight == nullptr ? 1 : weight->real(c)) / std::sqrt(var + e.real(7));
    for (std::size_t p = first; p < first + points; ++p) {
      e.result().set(p, (x.real(p) - mean) * scale + (bias == nullptr ? 0 : bias->real(c)));
    }
  }
}

void ref_nansum(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const auto groups = reduction_groups(x, axes_of(e, 1, x.rank()));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    double real = 0;
    std::int64_t integer = 0;
    for (const std::size_t p : groups[g]) {
      if (x.is_real() && std::isnan(x.real(p))) continue;
      real += x.real(p);
      integer += x.integer(p);
    }
    e.result().is_real() ? e.result().set(g, real) : e.result().set(g, integer);
  }
}

// --- Elements that move

void ref_channel_shuffle(Evaluation& e) {
  const std::int64_t groups = e.integer(1), each = e.tensor(0).sizes[1] / groups;
  move_elements(e, [&](Place i) {
    i[1] = i[1] % groups * each + i[1] / groups;
    return i;
  });
}

void ref_expand_as(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  for_each_index(e.result().sizes, [&](Places i, std::size_t p) {
    e.result().copy_element(p, x, broadcast_position(x, i));
  });
}

void ref_matrix_transpose(Evaluation& e) {
  move_elements(e, [](Place i) {
    std::swap(i[i.size() - 1], i[i.size() - 2]);
    return i;
  });
}

void ref_pad(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const std::vector<std::int64_t> pad = e.integers(1);
  const double fill = e.is_none(3) ? 0 : e.real(3);
  for_each_index(e.result().sizes, [&](Places i, std::size_t p) {
    Place place(i.begin(), i.end());
    bool inside = true;
    for (std::size_t d = 0; d < x.rank(); ++d) {
      const std::size_t back = last(x, d);
      if (2 * back < pad.size()) place[d] -= pad[2 * back];
      inside = inside && place[d] >= 0 && place[d] < x.sizes[d];
    }
    if (inside) {
      e.result().copy_element(p, x, x.at(place));
    } else if (x.is_real()) {
      e.result().set(p, fill);
    } else {
      e.result().set(p, static_cast<std::int64_t>(fill));
    }
  });
}

void ref_pixel_shuffle(Evaluation& e) {
  const std::int64_t f = e.integer(1);
  move_elements(e, [&](Place i) {
    const std::size_t c = i.size() - 3;
    i[c] = (i[c] * f + i[c + 1] % f) * f + i[c + 2] % f;
    i[c + 1] /= f;
    i[c + 2] /= f;
    return i;
  });
}

void ref_pixel_unshuffle(Evaluation& e) {
  const std::int64_t f = e.integer(1);
  move_elements(e, [&](Place i) {
    const std::size_t c = i.size() - 3;
    i[c + 1] = i[c + 1] * f + i[c] / f % f;
    i[c + 2] = i[c + 2] * f + i[c] % f;
    i[c] /= f * f;
    return i;
  });
}

void ref_stack(Evaluation& e) {
  const std::vector<const RefTensor*> tensors = e.tensors(0);
  const std::size_t dim = e.dim(e.integer(1), e.result().rank());
  for_each_index(e.result().sizes, [&](Places i, std::size_t p) {
    const RefTensor& from = *tensors[static_cast<std::size_t>(i[dim])];
    Place place(i.begin(), i.end());
    place.erase(place.begin() + static_cast<std::ptrdiff_t>(dim));
    e.result().copy_element(p, from, from.at(place));
  });
}

void ref_take(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &index = e.tensor(1);
  for (std::size_t p = 0; p < index.count(); ++p) {
    const std::int64_t at = index.integer(p);
    const auto count = static_cast<std::int64_t>(x.count());
    e.result().copy_element(p, x, static_cast<std::size_t>(at < 0 ? at + count : at));
  }
}

void ref_type_as(Evaluation& e) {
  const RefTensor x = cast(e.tensor(0), e.result().dtype);
  for (std::size_t p = 0; p < x.count(); ++p) e.result().copy_element(p, x, p);
}

void ref_unpool(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &index = e.tensor(1);
  const std::size_t spatial = e.integers(2).size();
  const Places from = Places(x.sizes).last(spatial), to = Places(e.result().sizes).last(spatial);
  const auto read = static_cast<std::size_t>(elements(from));
  const auto written = static_cast<std::size_t>(elements(to));
  for (std::size_t p = 0; p < x.count(); ++p) {
    const std::size_t plane = p / read;
    e.result().copy_element(plane * written + static_cast<std::size_t>(index.integer(p)), x, p);
  }
}

}  // namespace inkle::ops::composite
