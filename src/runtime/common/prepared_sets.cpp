#include "runtime/common/prepared_sets.h"

#include <algorithm>

#include "base/error.h"

namespace inkle::runtime::common {

bool PreparedSet::is_of(std::span<const WeightIdentity> weights) const {
  return std::equal(stamps_.begin(), stamps_.end(), weights.begin(), weights.end(),
                    [](const WeightStamp& s, const WeightIdentity& w) { return s.is_of(w); });
}

PreparedSets::Entries::const_iterator PreparedSets::find(
    std::span<const WeightIdentity> weights) const {
  return std::find_if(entries_.begin(), entries_.end(),
                      [&](const auto& e) { return e->is_of(weights); });
}

// For one set more.
bool PreparedSets::has_room() const {
  const auto count = static_cast<std::int64_t>(entries_.size()) + 1;
  return entries_.size() < limits_.sets && count * set_bytes_ <= limits_.bytes;
}

std::shared_ptr<PreparedSet> PreparedSets::make(std::span<const WeightIdentity> weights) {
  std::shared_ptr<std::byte> memory = allocate_(set_bytes_);
  if (memory == nullptr) return nullptr;
  return std::make_shared<PreparedSet>(weights, std::move(memory), next_generation_++);
}

std::pair<std::shared_ptr<const PreparedSet>, bool> PreparedSets::get(
    std::span<const WeightIdentity> weights, const std::function<void(const PreparedSet&)>& fill) {
  // Made under the lock: another thread that wants the same set must wait for it anyway.
  const std::lock_guard lock(mutex_);
  const auto found = find(weights);
  if (found != entries_.end()) {
    if ((*found)->is_current(weights)) {
      entries_.splice(entries_.begin(), entries_, found);
      return {entries_.front(), false};
    }
    entries_.erase(found);
  }
  while (!entries_.empty() && !has_room()) entries_.pop_back();
  std::shared_ptr<PreparedSet> made = make(weights);
  INKLE_CHECK(made != nullptr, "no memory for what is derived from weights");
  fill(*made);
  made->is_made_ = true;
  entries_.push_front(made);
  return {std::move(made), true};
}

bool PreparedSets::contains(const PreparedSet& set) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const auto& e) { return e.get() == &set; });
}

PreparedSets::Place PreparedSets::place(std::span<const WeightIdentity> weights, bool may_be_made) {
  const std::lock_guard lock(mutex_);
  if (const auto found = find(weights); found != entries_.end()) {
    const PreparedSet& set = **found;
    const bool is_current = set.is_current(weights);
    if (!is_current && !may_be_made) return {};
    return {set.data(), is_current, set.is_made_ && !is_current};
  }
  if (!may_be_made || !has_room()) return {};
  std::shared_ptr<PreparedSet> made = make(weights);
  if (made == nullptr) return {};
  entries_.push_front(std::move(made));
  return {entries_.front()->data(), false, false};
}

void PreparedSets::note(std::span<const WeightIdentity> weights) {
  const std::lock_guard lock(mutex_);
  const auto found = find(weights);
  INKLE_CHECK(found != entries_.end(), "results of prepare steps that have no place");
  PreparedSet& set = **found;
  set.stamps_ = std::vector<WeightStamp>(weights.begin(), weights.end());
  set.is_made_ = true;
  set.is_outdated_ = false;
}

void PreparedSets::outdate() {
  const std::lock_guard lock(mutex_);
  for (const auto& e : entries_) e->is_outdated_ = true;
}

bool PreparedSets::is_outdated(std::span<const WeightIdentity> weights) const {
  const std::lock_guard lock(mutex_);
  const auto found = find(weights);
  return found != entries_.end() && !(*found)->is_current(weights);
}

std::int64_t PreparedSets::bytes() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(entries_.size()) * set_bytes_;
}

}  // namespace inkle::runtime::common
