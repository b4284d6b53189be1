#include "runtime/cpu/weight_cache.h"

#include <algorithm>
#include <utility>

#include "runtime/cpu/magnitudes.h"

namespace inkle::runtime::cpu {

PackedWeights::PackedWeights(const Primitive& primitive, const WeightIdentity& weights)
    : source_(weights.data),
      stamp_(weights),
      layout_(primitive.packed_layout()),
      memory_(primitive.packed_bytes(), "a packed copy of weights") {
  primitive.pack(weights.data, memory_.data());
  magnitude_ = largest_magnitude(weights.data, weights.bytes);
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

void WeightCache::forget(const std::byte* begin, const std::byte* end) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const auto& e) {
    if (!e->is_within(begin, end)) return false;
    bytes_ -= e->bytes();
    return true;
  });
}

std::int64_t WeightCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace inkle::runtime::cpu
