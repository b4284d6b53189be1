// A map of bounded size: the least recently used entry makes room for a new one.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <utility>

namespace inkle {

template <class Key, class Value>
class RecentMap {
 public:
  // `most` entries, 1 at least.
  explicit RecentMap(std::size_t most) : most_(most) {}

  // Null where there is none. What is found has been used last; valid until the next set() or
  // erase().
  [[nodiscard]] Value* find(const Key& key) {
    const auto place = places_.find(key);
    if (place == places_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, place->second);
    return &place->second->second;
  }
  [[nodiscard]] bool contains(const Key& key) const { return places_.contains(key); }
  [[nodiscard]] std::size_t size() const { return places_.size(); }

  // In place of what was there.
  void set(const Key& key, Value value) {
    if (Value* const known = find(key); known != nullptr) {
      *known = std::move(value);
      return;
    }
    std::list<Entry> made;
    made.emplace_front(key, std::move(value));
    places_.emplace(key, made.begin());
    entries_.splice(entries_.begin(), made);
    if (entries_.size() > most_) erase(Key(entries_.back().first));
  }
  void erase(const Key& key) {
    const auto place = places_.find(key);
    if (place == places_.end()) return;
    entries_.erase(place->second);
    places_.erase(place);
  }

 private:
  using Entry = std::pair<Key, Value>;
  std::size_t most_;
  std::list<Entry> entries_;  // the last used first
  std::map<Key, typename std::list<Entry>::iterator> places_;
};

}  // namespace inkle
