// A map from expressions to small values, in one block of memory: for analyses that meet the same
// few expressions again and again. It only grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sym/expr.h"

namespace inkle::kernel {

template <class T>
class ExprMap {
 public:
  // Null where there is none. Pointers are valid until something new is added.
  [[nodiscard]] const T* find(sym::Expr key) const {
    if (slots_.empty()) return nullptr;
    const Slot& slot = slots_[place(key)];
    return slot.key == nullptr ? nullptr : &slot.value;
  }
  // The value, a default-made one where it is new, and whether it is.
  std::pair<T*, bool> add(sym::Expr key) {
    if (count_ * 2 >= slots_.size()) grow();
    Slot& slot = slots_[place(key)];
    const bool is_new = slot.key == nullptr;
    if (is_new) {
      slot.key = key.node();
      ++count_;
    }
    return {&slot.value, is_new};
  }

 private:
  struct Slot {
    const sym::Node* key = nullptr;
    T value{};
  };

  // Where the key stands, or would stand.
  [[nodiscard]] std::size_t place(sym::Expr key) const {
    const std::size_t mask = slots_.size() - 1;
    const auto address = reinterpret_cast<std::uintptr_t>(key.node());
    std::size_t at = (address * 0x9e3779b97f4a7c15ULL) >> 40 & mask;
    while (slots_[at].key != nullptr && slots_[at].key != key.node()) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 32 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != nullptr) slots_[place(sym::Expr(slot.key))] = slot;
    }
  }

  std::vector<Slot> slots_;  // a power of two
  std::size_t count_ = 0;
};

}  // namespace inkle::kernel
