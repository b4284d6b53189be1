// Which threads may touch one element by two accesses: for place_barriers alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernel/collective.h"
#include "kernel/expr_map.h"
#include "kernel/kernel.h"

namespace inkle::kernel {

// How far a barrier reaches: 0, none; k, parts of a warp of 2^k lanes.
using Reach = int;
inline constexpr Reach kWarpReach = 5;
inline constexpr Reach kBlockReach = 6;
inline constexpr Reach kClusterReach = 7;

// What holds where an access is made: expression == bound, or expression < bound.
struct Guard {
  Expr expression;
  bool is_equality = true;
  Expr bound;
  Expr expanded;  // the expression as Touch's `expanded`
};
using Guards = std::span<const Guard>;
using Exprs = std::span<const Expr>;

// Lists of touches: they live as long as this.
class Lists {
 public:
  template <class T>
  [[nodiscard]] std::span<T> copy(std::span<const T> list) {
    static_assert(std::is_trivially_destructible_v<T>);
    T* const to = static_cast<T*>(memory_.allocate(list.size_bytes(), alignof(T)));
    std::ranges::uninitialized_copy(list, std::span(to, list.size()));
    return {to, list.size()};
  }

 private:
  std::pmr::monotonic_buffer_resource memory_{512};
};

// What a branch's condition says of indices.
void add_guards(const Kernel& kernel, ValueId condition, std::vector<Guard>& guards);

// An access that another thread's may have to wait for, or the other way round; or where one thread
// releases what its block has written, or acquires for its block what others have.
struct Touch {
  enum class Kind : std::uint8_t { access, release, acquire };
  Kind kind = Kind::access;
  OperationId operation = kNone;
  MemoryId memory = kNone;
  bool writes = false;
  bool is_strong = false;  // those do not race with each other
  bool is_remote = false;
  Exprs indices;  // none: anywhere
  // With what bound symbols of a thread stand for, and loops that begin at a thread's own number as
  // begin + step * k.
  Exprs expanded;
  Guards guards;

  [[nodiscard]] bool is_access() const { return kind == Kind::access; }
};

// Symbols with one value for all threads of the block, at both accesses: few, those of outer loops
// first.
class SharedSymbols {
 public:
  void add(Expr symbol) {
    if (contains(symbol)) return;
    symbols_.push_back(symbol);
    ++version_;
  }
  [[nodiscard]] bool contains(Expr symbol) const {
    return std::ranges::find(symbols_, symbol) != symbols_.end();
  }
  [[nodiscard]] std::size_t size() const { return symbols_.size(); }
  // All but the first so many are shared no more.
  void forget(std::size_t size) {
    if (size == symbols_.size()) return;
    symbols_.resize(size);
    ++version_;
  }
  // Another one whenever there are others.
  [[nodiscard]] std::uint64_t version() const { return version_; }

 private:
  std::vector<Expr> symbols_;
  std::uint64_t version_ = 1;
};

class Overlap {
 public:
  Overlap(const Kernel& kernel, sym::Context& context)
      : context_(context), threads_(axes_of(kernel, AxisKind::thread)), sizes_(kernel.sizes) {}

  // The least reach that has all threads of a block that may touch one element by `a` and by `b`.
  [[nodiscard]] Reach reach(const Touch& a, const Touch& b, const SharedSymbols& shared);
  [[nodiscard]] Lists& lists() { return lists_; }
  // Whether guards leave one thread of the block.
  [[nodiscard]] bool is_one_thread(const Touch& touch);
  // Whether no element is touched by both.
  [[nodiscard]] bool is_disjoint(const Touch& a, const Touch& b, const SharedSymbols& shared);

 private:
  using Names = std::vector<std::pair<Expr, Expr>>;

  // The unit of the digit that the axis is of the index; 0: it is none.
  std::int64_t unit(Expr index, std::size_t axis);
  [[nodiscard]] bool is_determined(std::size_t axis, const Touch& a, const Touch& b);
  // is_disjoint by what guards say of sums.
  [[nodiscard]] bool is_disjoint_narrowed(const Touch& a, const Touch& b,
                                          const SharedSymbols& shared);
  // Expressions that are the same at both accesses if they touch one element.
  [[nodiscard]] std::vector<std::pair<Expr, Expr>> determined_by(const Touch& a,
                                                                 const Touch& b) const;
  // Symbols that guards on sums of them leave one value, the least, and that value.
  [[nodiscard]] Names pins(const Touch& touch) const;
  [[nodiscard]] Touch pinned(Touch touch, const Names& pins);
  Expr narrowed(Expr index, const Touch& touch) const;
  // What an answer depends on: indices and guards of both accesses, and what is shared.
  struct Question {
    std::vector<std::uintptr_t> parts;
    friend bool operator==(const Question&, const Question&) = default;
  };
  struct Hash {
    std::size_t operator()(const Question& question) const;
  };

  static void add(const Touch& touch, Question& question);
  [[nodiscard]] bool find_disjoint(const Touch& a, const Touch& b,
                                   const SharedSymbols& shared) const;
  Expr renamed(Expr e, const Touch& touch, const SharedSymbols& shared, Names& names) const;
  sym::SymbolInfo facts(Expr symbol, const Touch& touch, const SharedSymbols& shared) const;
  // What an index may be where the access is made, by what is known of each term alone.
  sym::Range range(Expr index, const Touch& touch, const SharedSymbols& shared) const;
  sym::Range range_of_symbol(Expr symbol, const Touch& touch) const;

  sym::Context& context_;
  std::vector<ThreadAxis> threads_;
  std::vector<Expr> sizes_;
  ExprMap<std::uint32_t> units_at_;  // of an index: where its units begin, one for each axis
  std::vector<std::int64_t> units_;
  std::unordered_map<Question, bool, Hash> disjoint_;  // answers
  Lists lists_;
};

}  // namespace inkle::kernel
