#include "runtime/cpu/weight_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/cpu/magnitudes.h"

namespace inkle::runtime::cpu {

PackedWeights::PackedWeights(const Primitive& primitive, const WeightIdentity& weights)
    : weights_(weights),
      layout_(primitive.packed_layout()),
      sample_(sample(weights)),
      memory_(primitive.packed_bytes(), "a packed copy of weights") {
  primitive.pack(weights.data, memory_.data());
  magnitude_ = largest_magnitude(weights.data, weights.bytes);
}

PackedWeights::Sample PackedWeights::sample(const WeightIdentity& weights) {
  Sample result{};
  const std::int64_t step = weights.bytes / static_cast<std::int64_t>(kLines);
  for (std::size_t line = 0; line < kLines; ++line) {
    const std::int64_t at = static_cast<std::int64_t>(line) * step;
    const std::int64_t count = std::min<std::int64_t>(64, weights.bytes - at);
    if (count <= 0) break;
    std::memcpy(result.data() + 8 * line, weights.data + at, static_cast<std::size_t>(count));
  }
  return result;
}

bool PackedWeights::is_of(const WeightIdentity& weights, const std::string& layout) const {
  return weights.data == weights_.data && weights.bytes == weights_.bytes && layout == layout_;
}

bool PackedWeights::is_current(const WeightIdentity& weights) const {
  return weights.data == weights_.data && weights.bytes == weights_.bytes &&
         weights.version == weights_.version && sample(weights) == sample_;
}

std::shared_ptr<const PackedWeights> WeightCache::get(const Primitive& primitive,
                                                      const WeightIdentity& weights) {
  // Packing under the lock: another thread that wants the same copy must wait for it anyway.
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) {
    return e->is_of(weights, primitive.packed_layout());
  });
  if (found != entries_.end()) {
    if ((*found)->is_current(weights)) {
      entries_.splice(entries_.begin(), entries_, found);
      return entries_.front();
    }
    bytes_ -= (*found)->bytes();
    entries_.erase(found);
  }
  auto made = std::make_shared<const PackedWeights>(primitive, weights);
  bytes_ += made->bytes();
  entries_.push_front(made);
  while (bytes_ > limit_bytes_ && entries_.size() > 1) {
    bytes_ -= entries_.back()->bytes();
    entries_.pop_back();
  }
  return made;
}

std::int64_t WeightCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace inkle::runtime::cpu
