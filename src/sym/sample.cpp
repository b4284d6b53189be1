// Values of expressions at sample points: indices first or last, sizes in different orders.
#include <algorithm>
#include <array>
#include <optional>

#include "sym/expr.h"
#include "sym/node.h"

namespace inkle::sym {
namespace {

constexpr std::array<std::int64_t, 8> kPrimes = {7, 11, 13, 17, 19, 23, 29, 31};

// A value near `wanted` that has the symbol's range and divisor.
std::optional<std::int64_t> admissible(const SymbolInfo& info, std::int64_t wanted) {
  const std::int64_t step = info.divisor;
  std::int64_t v = std::clamp(wanted, info.range.low, info.range.high);
  if (__builtin_mul_overflow(floor_div(v, step), step, &v)) return std::nullopt;
  if (v < info.range.low && __builtin_add_overflow(v, step, &v)) return std::nullopt;
  if (v < info.range.low || v > info.range.high) return std::nullopt;
  return v;
}

std::optional<std::int64_t> sample_symbol(Context::Impl& impl, const Node* e, int which) {
  const SymbolInfo& info = impl.infos[e->symbol];
  if (!info.extent.is_null()) {
    const Node* extent = info.extent.node();
    impl.take_samples(extent);
    if (!extent->has_sample[which] || extent->samples[which] < 1) return std::nullopt;
    const std::int64_t last = extent->samples[which] - 1;
    SymbolInfo facts = info;
    facts.range.low = std::max<std::int64_t>(facts.range.low, 0);
    facts.range.high = std::min(facts.range.high, last);
    if (facts.range.low > facts.range.high) return std::nullopt;
    return admissible(facts, which == 1 ? 0 : last);
  }
  const std::size_t place = e->symbol % kPrimes.size();
  switch (which) {
    case 0:
      return admissible(info, kPrimes[place] * info.divisor);
    case 1:
      return admissible(info, kPrimes[kPrimes.size() - 1 - place] * info.divisor);
    default:
      return admissible(info, info.range.low == Range::kMin ? -5 : info.range.low);
  }
}

std::optional<std::int64_t> sample(Context::Impl& impl, const Node* e, int which) {
  if (e->is_constant()) return e->value;
  if (e->kind == Kind::symbol) return sample_symbol(impl, e, which);
  std::optional<std::int64_t> out;
  for (std::size_t i = 0; i < e->count; ++i) {
    const Node* node = e->operand(i);
    impl.take_samples(node);
    if (!node->has_sample[which]) return std::nullopt;
    const std::int64_t next = node->samples[which];
    out = i == 0 ? next : evaluate(e->kind, *out, next);
    if (!out) return std::nullopt;
  }
  return out;
}

}  // namespace

void Context::Impl::take_samples(const Node* e) {
  if (e->sample_epoch == epoch) return;
  for (int which = 0; which < kSamples; ++which) {
    const std::optional<std::int64_t> value = sample(*this, e, which);
    e->has_sample[which] = value.has_value();
    e->samples[which] = value.value_or(0);
  }
  e->sample_epoch = epoch;
}

bool Context::Impl::refutes_at_most(const Node* a, const Node* b) {
  take_samples(a);
  take_samples(b);
  for (int which = 0; which < kSamples; ++which) {
    if (a->has_sample[which] && b->has_sample[which] && a->samples[which] > b->samples[which]) {
      return true;
    }
  }
  return false;
}

}  // namespace inkle::sym
