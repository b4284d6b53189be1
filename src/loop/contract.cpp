// Matrix products, convolutions and attention of the reference interpreter.
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "loop/interpreter.h"

namespace inkle::loop {
namespace {

// A sum of products in long double, or wrapping in 64 bits.
class Dot {
 public:
  explicit Dot(DType accumulator) : dtype_(accumulator) {}
  void add(Scalar a, Scalar b) {
    real_ += static_cast<long double>(a.real) * b.real;
    integer_ += static_cast<std::uint64_t>(a.integer) * static_cast<std::uint64_t>(b.integer);
  }
  void add(Scalar a) { add(a, {.real = 1, .integer = 1}); }
  [[nodiscard]] Scalar result() const {
    return abi::is_float(dtype_) ? make_scalar(dtype_, static_cast<double>(real_))
                                 : make_scalar(dtype_, static_cast<std::int64_t>(integer_));
  }

 private:
  DType dtype_;
  long double real_ = 0;
  std::uint64_t integer_ = 0;
};

using Point = std::vector<std::int64_t>;

// Calls f at every index below `sizes`, row-major.
template <class F>
void for_each_index(const Point& sizes, const F& f) {
  for (const std::int64_t size : sizes) {
    if (size == 0) return;
  }
  Point index(sizes.size(), 0);
  for (;;) {
    f(index);
    std::size_t d = sizes.size();
    while (d > 0 && ++index[d - 1] == sizes[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

// The input position that output position `out` and kernel position `k` meet in, if there is one.
std::optional<std::int64_t> input_position(const Convolution& c, std::size_t d, std::int64_t out,
                                           std::int64_t k, std::int64_t size) {
  std::int64_t position = 0;
  if (c.transposed) {
    const std::int64_t scaled = out + c.padding[d] - k * c.dilation[d];
    if (scaled % c.stride[d] != 0) return std::nullopt;
    position = scaled / c.stride[d];
  } else {
    position = out * c.stride[d] - c.padding[d] + k * c.dilation[d];
  }
  if (position < 0 || position >= size) return std::nullopt;
  return position;
}

Scalar convolve(const Convolution& c, const Memory& x, const Memory& w, const Memory* bias,
                DType accumulator, const Point& out, std::int64_t out_channels) {
  Dot dot(accumulator);
  const std::int64_t per_group = out_channels / c.groups;
  const std::int64_t group = out[1] / per_group;
  const std::int64_t inputs = x.sizes[1] / c.groups;
  for_each_index(Point(w.sizes.begin() + 2, w.sizes.end()), [&](const Point& k) {
    Point at = {out[0], 0};
    for (std::size_t d = 0; d < k.size(); ++d) {
      const auto position = input_position(c, d, out[d + 2], k[d], x.sizes[d + 2]);
      if (!position) return;
      at.push_back(*position);
    }
    for (std::int64_t channel = 0; channel < inputs; ++channel) {
      at[1] = group * inputs + channel;
      Point weight = c.transposed ? Point{at[1], out[1] % per_group} : Point{out[1], channel};
      weight.insert(weight.end(), k.begin(), k.end());
      dot.add(x.read(at), w.read(weight));
    }
  });
  if (bias != nullptr) dot.add(bias->read(std::span(&out[1], 1)));
  return dot.result();
}

// At (o, c, window...) of the weights' gradient: images x, gradients w.
Scalar weight_gradient(const Convolution& c, const Memory& x, const Memory& w, DType accumulator,
                       const Point& out, std::int64_t out_channels) {
  Dot dot(accumulator);
  const std::int64_t group = out[0] / (out_channels / c.groups);
  Point space = w.sizes;
  space.erase(space.begin() + 1);
  for_each_index(space, [&](const Point& p) {
    Point from = {p[0], group * (x.sizes[1] / c.groups) + out[1]};
    Point gradient = {p[0], out[0]};
    for (std::size_t d = 0; d + 1 < p.size(); ++d) {
      const auto position = input_position(c, d, p[d + 1], out[d + 2], x.sizes[d + 2]);
      if (!position) return;
      from.push_back(*position);
      gradient.push_back(p[d + 1]);
    }
    dot.add(x.read(from), w.read(gradient));
  });
  return dot.result();
}

class AttentionRow {
 public:
  AttentionRow(Machine& m, const Attention& a) : m_(m), a_(a) {}

  // Logits of the row (b, h, i), minus infinity where it may not attend.
  std::vector<long double> logits(std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::int64_t length = m_.environment.value(a_.kv_length);
    const std::int64_t features = m_.environment.value(a_.head_dim);
    std::vector<long double> out;
    for (std::int64_t j = 0; j < length; ++j) {
      if (a_.is_causal && j > i) {
        out.push_back(-std::numeric_limits<long double>::infinity());
        continue;
      }
      long double dot = 0;
      for (std::int64_t d = 0; d < features; ++d) {
        const double q = at(a_.q, b, h, i, d).real;
        dot += static_cast<long double>(q) * at(a_.k, b, kv_head(h), j, d).real;
      }
      dot *= a_.scale;
      if (a_.mask) {
        const Scalar mask = at(*a_.mask, b, h, i, j);
        if (m_.memory[a_.mask->buffer].buffer->dtype != DType::boolean)
          dot += mask.real;
        else if (mask.integer == 0)
          dot = a_.hidden;
      }
      out.push_back(dot);
    }
    return out;
  }

  // Whether gradients pass through the logit.
  bool passes(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    if (a_.is_causal && j > i) return false;
    if (!a_.mask || m_.memory[a_.mask->buffer].buffer->dtype != DType::boolean) return true;
    return at(*a_.mask, b, h, i, j).integer != 0;
  }

  // What dropout multiplies the weight by.
  long double factor(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    if (!a_.dropout) return 1;
    const std::int64_t heads = m_.environment.value(a_.heads);
    const std::int64_t row = (b * heads + h) * m_.environment.value(a_.q_length) + i;
    const std::int64_t seed = m_.memory[a_.dropout->seed].read({}).integer;
    const std::int64_t word = attention_word(seed, a_.dropout->number, row, j);
    return word < dropped_below(a_.dropout->p) ? 0 : dropout_scale(a_.dropout->p);
  }

  Scalar query(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t d) {
    return at(a_.q, b, h, i, d);
  }
  Scalar key(std::int64_t b, std::int64_t h, std::int64_t j, std::int64_t d) {
    return at(a_.k, b, kv_head(h), j, d);
  }
  Scalar grad(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t d) {
    return at(a_.gradient->grad, b, h, i, d);
  }

  Scalar value(std::int64_t b, std::int64_t h, std::int64_t j, std::int64_t d) {
    return at(a_.v, b, kv_head(h), j, d);
  }

  std::int64_t kv_head(std::int64_t h) const {
    return h / (m_.environment.value(a_.heads) / m_.environment.value(a_.kv_heads));
  }

 private:
  Scalar at(const Access& access, std::int64_t b, std::int64_t h, std::int64_t r, std::int64_t c) {
    const std::int64_t values[] = {b, h, r, c};
    for (std::size_t n = 0; n < 4; ++n) m_.environment.set(a_.variables[n], values[n]);
    return m_.read(access);
  }

  Machine& m_;
  const Attention& a_;
};

// Adds to the gradients what one row gives.
class AttentionGradient {
 public:
  AttentionGradient(Machine& m, const Nest& nest)
      : m_(m), a_(std::get<Attention>(nest.detail)), row_(m, a_) {
    for (std::size_t n = 0; n < 3; ++n) {
      const Memory& memory = m.memory[nest.stores[n].buffer];
      memories_[n] = &memory;
      std::size_t count = 1;
      for (const std::int64_t size : memory.sizes) count *= static_cast<std::size_t>(size);
      sums_[n].assign(count, 0);
    }
  }

  void add(std::int64_t b, std::int64_t h, std::int64_t i) {
    std::vector<long double> p = row_.logits(b, h, i);
    const Memory& statistics = m_.memory[a_.gradient->statistics];
    const long double most = statistics.read(Point{b, h, i, 0}).real;
    const long double sum = statistics.read(Point{b, h, i, 1}).real;
    const bool empty = std::isinf(most) && most < 0;
    const std::int64_t width = m_.environment.value(a_.value_dim);
    // The sum over columns of weight times gradient. It equals the dot product of the result and
    // its gradient, from which kernels take it for long rows.
    long double level = 0;
    for (std::size_t column = 0; column < p.size() && !empty; ++column) {
      const auto j = static_cast<std::int64_t>(column);
      long double dp = 0;
      for (std::int64_t d = 0; d < width; ++d) {
        dp += static_cast<long double>(row_.grad(b, h, i, d).real) * row_.value(b, h, j, d).real;
      }
      level += std::exp(p[column] - most) / sum * row_.factor(b, h, i, j) * dp;
    }
    for (std::size_t column = 0; column < p.size(); ++column) {
      const auto j = static_cast<std::int64_t>(column);
      p[column] = empty ? (a_.safe ? 0 : std::numeric_limits<long double>::quiet_NaN())
                        : std::exp(p[column] - most) / sum;
      const long double factor = row_.factor(b, h, i, j);
      long double dp = 0;
      for (std::int64_t d = 0; d < width; ++d) {
        const long double g = row_.grad(b, h, i, d).real;
        dp += g * row_.value(b, h, j, d).real;
        add(2, {b, row_.kv_head(h), j, d}, p[column] * factor * g);
      }
      if (!row_.passes(b, h, i, j)) continue;
      const long double ds = p[column] * (dp * factor - level) * a_.scale;
      for (std::int64_t d = 0; d < m_.environment.value(a_.head_dim); ++d) {
        add(0, {b, h, i, d}, ds * row_.key(b, h, j, d).real);
        add(1, {b, row_.kv_head(h), j, d}, ds * row_.query(b, h, i, d).real);
      }
    }
  }

  void store() const {
    for (std::size_t n = 0; n < 3; ++n) {
      std::size_t position = 0;
      for_each_index(memories_[n]->sizes, [&](const Point& at) {
        const auto value = static_cast<double>(sums_[n][position++]);
        memories_[n]->write(at, make_scalar(memories_[n]->buffer->dtype, value));
      });
    }
  }

 private:
  void add(std::size_t n, const Point& at, long double value) {
    std::size_t position = 0;
    for (std::size_t d = 0; d < at.size(); ++d) {
      position = position * static_cast<std::size_t>(memories_[n]->sizes[d]) +
                 static_cast<std::size_t>(at[d]);
    }
    sums_[n][position] += value;
  }

  Machine& m_;
  const Attention& a_;
  AttentionRow row_;
  std::array<const Memory*, 3> memories_{};
  std::array<std::vector<long double>, 3> sums_;
};

}  // namespace

void run_matmul(Machine& machine, const Nest& nest) {
  const auto& matmul = std::get<Matmul>(nest.detail);
  machine.for_each_point(nest.dims, [&] {
    Dot dot(nest.accumulator);
    machine.for_each_point(nest.reduced,
                           [&] { dot.add(machine.read(matmul.a), machine.read(matmul.b)); });
    for (const Store& store : nest.stores) machine.write(store, dot.result(), nest.accumulator);
  });
}

void run_convolution(Machine& machine, const Nest& nest) {
  const auto& c = std::get<Convolution>(nest.detail);
  const Memory* bias = c.bias ? &machine.memory[*c.bias] : nullptr;
  const std::int64_t channels =
      machine.environment.value(nest.dims[c.weight_gradient ? 0 : 1].extent);
  machine.for_each_point(nest.dims, [&] {
    Point out;
    for (const Dim& dim : nest.dims) out.push_back(machine.environment.value(dim.variable));
    const Memory &x = machine.memory[c.x], &w = machine.memory[c.w];
    const Scalar value = c.weight_gradient
                             ? weight_gradient(c, x, w, nest.accumulator, out, channels)
                             : convolve(c, x, w, bias, nest.accumulator, out, channels);
    for (const Store& store : nest.stores) machine.write(store, value, nest.accumulator);
  });
}

void run_attention(Machine& machine, const Nest& nest) {
  const auto& a = std::get<Attention>(nest.detail);
  if (a.gradient) {
    AttentionGradient gradient(machine, nest);
    const Point rows = {machine.environment.value(a.batch), machine.environment.value(a.heads),
                        machine.environment.value(a.q_length)};
    for_each_index(rows, [&](const Point& at) { gradient.add(at[0], at[1], at[2]); });
    gradient.store();
    return;
  }
  AttentionRow row(machine, a);
  const std::vector<Dim> rows(nest.dims.begin(), nest.dims.begin() + 3);
  const std::vector<Dim> features(nest.dims.begin() + 3, nest.dims.end());
  machine.for_each_point(rows, [&] {
    Point at;
    for (const Dim& dim : rows) at.push_back(machine.environment.value(dim.variable));
    std::vector<long double> weights = row.logits(at[0], at[1], at[2]);
    long double maximum = -std::numeric_limits<long double>::infinity();
    for (const long double w : weights) maximum = std::isnan(w) || w > maximum ? w : maximum;
    const bool empty = std::isinf(maximum) && maximum < 0;
    long double sum = 0;
    for (long double& w : weights) {
      w = empty ? (a.safe ? 0 : std::numeric_limits<long double>::quiet_NaN())
                : std::exp(w - maximum);
      sum += w;
    }
    if (a.lse) {
      const double lse = static_cast<double>(empty ? maximum : maximum + std::log(sum));
      const Memory& m = machine.memory[*a.lse];
      m.write(at, make_scalar(m.buffer->dtype, lse));
    }
    if (a.statistics) {
      const Memory& m = machine.memory[*a.statistics];
      const long double values[] = {maximum, empty ? 0 : sum};
      for (std::int64_t n = 0; n < 2; ++n) {
        Point place = at;
        place.push_back(n);
        m.write(place, make_scalar(m.buffer->dtype, static_cast<double>(values[n])));
      }
    }
    for (std::size_t j = 0; j < weights.size(); ++j) {
      weights[j] *= row.factor(at[0], at[1], at[2], static_cast<std::int64_t>(j));
    }
    machine.for_each_point(features, [&] {
      const std::int64_t d = machine.environment.value(features[0].variable);
      long double total =
          empty && !a.safe && !weights.empty() ? std::numeric_limits<long double>::quiet_NaN() : 0;
      for (std::size_t j = 0; j < weights.size(); ++j) {
        if (weights[j] == 0) continue;
        total += weights[j] * row.value(at[0], at[1], static_cast<std::int64_t>(j), d).real;
      }
      if (!empty) total /= sum;
      const Scalar value = make_scalar(nest.accumulator, static_cast<double>(total));
      for (const Store& store : nest.stores) machine.write(store, value, nest.accumulator);
    });
  });
}

}  // namespace inkle::loop
