// Symbolic integers: hash-consed immutable expressions over 64-bit integers, for sizes, strides
// and indices alike. Equality is identity: two expressions of one Context that simplify to the
// same normal form are the same pointer.
//
// Values are mathematical integers that must fit 64 bits; constant arithmetic that overflows
// throws Unsupported. floordiv rounds to minus infinity and mod has the sign of the divisor
// (Python's // and %); a divisor that is the constant 0 throws UserError.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/inline_vector.h"

namespace inkle::sym {

enum class Kind : std::uint8_t { constant, symbol, add, mul, floordiv, mod, min, max };

class Context;
struct Node;  // defined in sym/node.h, for the simplifier and printers only

// A pointer to an interned node; cheap to copy. A default-made Expr is null and may only be
// compared and assigned.
class Expr {
 public:
  Expr() = default;
  explicit Expr(const Node* node) : node_(node) {}

  [[nodiscard]] bool is_null() const { return node_ == nullptr; }
  [[nodiscard]] Kind kind() const;
  [[nodiscard]] Context& context() const;
  [[nodiscard]] bool is_constant() const;
  [[nodiscard]] bool is_constant(std::int64_t value) const;
  [[nodiscard]] std::optional<std::int64_t> constant() const;
  // Operands: of add, its terms (each a monomial, the constant last if not 0); of mul, the factors
  // (the coefficient first if not 1); of floordiv and mod, dividend and divisor; else all.
  [[nodiscard]] std::span<const Expr> operands() const;
  // The symbol's name; kind() must be symbol.
  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] const Node* node() const { return node_; }
  // Position in order of creation, unique in its Context: a deterministic order for sorting.
  [[nodiscard]] std::uint32_t id() const;

  friend bool operator==(Expr a, Expr b) { return a.node_ == b.node_; }

 private:
  const Node* node_ = nullptr;
};

Expr operator+(Expr a, Expr b);
Expr operator+(Expr a, std::int64_t b);
Expr operator-(Expr a, Expr b);
Expr operator-(Expr a, std::int64_t b);
Expr operator-(std::int64_t a, Expr b);
Expr operator-(Expr a);
Expr operator*(Expr a, Expr b);
Expr operator*(Expr a, std::int64_t b);
Expr floordiv(Expr a, Expr b);
Expr floordiv(Expr a, std::int64_t b);
Expr mod(Expr a, Expr b);
Expr mod(Expr a, std::int64_t b);
Expr min(Expr a, Expr b);
Expr max(Expr a, Expr b);
Expr ceildiv(Expr a, std::int64_t b);
Expr ceildiv(Expr a, Expr b);
// Product of all; `one` context for the empty list.
Expr product(Context& context, std::span<const Expr> factors);

// Inclusive bounds; kMin and kMax mean unbounded.
struct Range {
  static constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  static constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  std::int64_t low = kMin;
  std::int64_t high = kMax;
  friend bool operator==(const Range&, const Range&) = default;
};

struct SymbolInfo {
  Range range;
  std::int64_t divisor = 1;          // the value is a multiple of this
  std::optional<std::int64_t> hint;  // a typical value: steers speed, never correctness
  // For iteration variables: 0 <= variable < extent, where the extent may be symbolic.
  Expr extent;
};

// Owns all expressions of one compile. Not for use by several threads at once.
class Context {
 public:
  Context();
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  [[nodiscard]] Expr constant(std::int64_t value);
  // A new symbol; a second one of the same name throws UserError.
  Expr symbol(std::string_view name, SymbolInfo info);
  // A fresh iteration variable "i<k>" with 0 <= v < extent.
  Expr index(Expr extent);
  [[nodiscard]] std::optional<Expr> find_symbol(std::string_view name) const;
  [[nodiscard]] const SymbolInfo& info(Expr symbol) const;
  // Replaces the facts of a symbol (e.g. a narrower range); later simplification uses them.
  void set_info(Expr symbol, SymbolInfo info);

  // A comparison that decides correctness: true if provable; if it is undecided and holds under
  // the hints, it is recorded as a guard and true is returned; else the negation is recorded.
  bool guard_equal(Expr a, Expr b);
  bool guard_less(Expr a, Expr b);
  enum class Relation : std::uint8_t { equal, not_equal, less, greater_equal };
  struct Guard {
    Expr left;
    Relation relation;
    Expr right;
  };
  [[nodiscard]] const std::vector<Guard>& guards() const;

  struct Impl;
  [[nodiscard]] Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Facts, all sound: nullopt or the wider answer where nothing can be shown.
[[nodiscard]] Range bounds(Expr e);
[[nodiscard]] bool divides(std::int64_t k, Expr e);  // e is a multiple of k, always
[[nodiscard]] bool divides(Expr k, Expr e);
[[nodiscard]] std::optional<bool> less(Expr a, Expr b);  // a < b, also by symbolic extents
[[nodiscard]] std::optional<bool> less_equal(Expr a, Expr b);
[[nodiscard]] std::optional<bool> equal(Expr a, Expr b);
// e == coefficient * variable + rest, rest free of the variable; nullopt if e is not linear in it.
[[nodiscard]] std::optional<Expr> stride(Expr e, Expr variable);
[[nodiscard]] bool contains(Expr e, Expr symbol);
// All symbols of e, each once, by id.
using Symbols = InlineVector<Expr, 6>;
[[nodiscard]] Symbols symbols(Expr e);
using Substitution = std::span<const std::pair<Expr, Expr>>;  // symbol -> expression
[[nodiscard]] Expr substitute(Expr e, Substitution map);
// The value under the hints of all symbols; nullopt if one has none.
[[nodiscard]] std::optional<std::int64_t> hint(Expr e);
// Overflow and division by zero throw UserError.
[[nodiscard]] std::int64_t evaluate(Expr e, const std::function<std::int64_t(Expr symbol)>& value);

// Text: "s0*768+i1", "floordiv(s0,2)", "mod(..)", "min(..)", "max(..)"; terms in normal order.
[[nodiscard]] std::string to_string(Expr e);

}  // namespace inkle::sym

namespace inkle {
class Scanner;
}

namespace inkle::sym {
// Reads what to_string writes (any expression of + - * ( ) integers, names and the functions
// above); unknown names are errors.
[[nodiscard]] Expr parse(Scanner& scanner, Context& context);
}  // namespace inkle::sym

template <>
struct std::hash<inkle::sym::Expr> {
  std::size_t operator()(inkle::sym::Expr e) const noexcept {
    return std::hash<const void*>()(e.node());
  }
};
