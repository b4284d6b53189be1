#include "runtime/cpu/prepared.h"

#include <algorithm>

namespace inkle::runtime::cpu {

PreparedSet::PreparedSet(std::span<const WeightIdentity> weights, std::int64_t bytes,
                         std::int64_t generation, WeightCache& packed)
    : stamps_(weights.begin(), weights.end()),
      generation_(generation),
      packed_(packed),
      memory_(std::max<std::int64_t>(bytes, 1), "what is derived from weights") {}

PreparedSet::~PreparedSet() { packed_.forget(data(), data() + bytes()); }

bool PreparedSet::is_of(std::span<const WeightIdentity> weights) const {
  return std::equal(stamps_.begin(), stamps_.end(), weights.begin(), weights.end(),
                    [](const WeightStamp& s, const WeightIdentity& w) { return s.is_of(w); });
}

std::pair<std::shared_ptr<const PreparedSet>, bool> PreparedSets::get(
    std::span<const WeightIdentity> weights, const std::function<void(const PreparedSet&)>& fill) {
  // Made under the lock: another thread that wants the same set must wait for it anyway.
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const auto& e) { return e->is_of(weights); });
  if (found != entries_.end()) {
    if ((*found)->is_current(weights)) {
      entries_.splice(entries_.begin(), entries_, found);
      return {entries_.front(), false};
    }
    entries_.erase(found);
  }
  const auto count = [&] { return static_cast<std::int64_t>(entries_.size()) + 1; };
  while (!entries_.empty() &&
         (entries_.size() == kMostSets || count() * set_bytes_ > limit_bytes_)) {
    entries_.pop_back();
  }
  auto made =
      std::make_shared<const PreparedSet>(weights, set_bytes_, next_generation_++, *packed_);
  fill(*made);
  entries_.push_front(made);
  return {std::move(made), true};
}

bool PreparedSets::contains(const PreparedSet& set) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const auto& e) { return e.get() == &set; });
}

std::int64_t PreparedSets::bytes() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(entries_.size()) * set_bytes_;
}

}  // namespace inkle::runtime::cpu
