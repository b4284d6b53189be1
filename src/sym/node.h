// The inside of sym: interned nodes and the simplifier. For the files of this folder only.
//
// Every node can be read as a term, coefficient * monomial, so that sums merge like sorted lists.
// The rules that the simplifier applies are listed in sym/rules.h under the names used here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/inline_vector.h"
#include "sym/expr.h"

namespace inkle::sym {

// Values of expressions at a few points that satisfy all facts: where one of them contradicts a
// claim, no proof is tried.
inline constexpr int kSamples = 3;

struct Node {
  Context* context = nullptr;
  const Expr* operands = nullptr;
  const Node* monomial = nullptr;   // this node without its coefficient; null for constants
  std::int64_t value = 1;           // the coefficient; of a constant, its value
  std::uint64_t symbol_filter = 0;  // bit (index % 64) of each symbol inside
  std::uint32_t id = 0;
  std::uint32_t hash = 0;
  std::uint32_t count = 0;
  std::uint32_t symbol = 0;  // index of a symbol
  Kind kind = Kind::constant;
  bool has_division = false;  // some factor (of a sum: of some term) is a floordiv or mod
  // Memos, valid while the epoch is the context's.
  mutable std::uint32_t interval_epoch = 0;
  mutable std::uint32_t factor_epoch = 0;
  mutable Range interval;
  mutable std::int64_t factor = 1;
  mutable std::uint32_t sample_epoch = 0;
  mutable bool has_sample[kSamples] = {};
  mutable std::int64_t samples[kSamples] = {};

  [[nodiscard]] std::span<const Expr> all() const { return {operands, count}; }
  [[nodiscard]] const Node* operand(std::size_t i) const { return operands[i].node(); }
  [[nodiscard]] bool is_constant() const { return kind == Kind::constant; }
  [[nodiscard]] bool is_constant(std::int64_t v) const { return is_constant() && value == v; }
};

struct Term {
  std::int64_t coefficient = 0;
  const Node* monomial = nullptr;  // null: the constant term
};
using Terms = InlineVector<Term, 12>;
using Factors = InlineVector<Expr, 8>;

// Floor division and its remainder for b != 0 (and not kMin / -1).
constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  const std::int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}
constexpr std::int64_t floor_mod(std::int64_t a, std::int64_t b) {
  const std::int64_t r = a % b;
  return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
}
// Value of a sum, product, minimum, maximum, quotient or remainder of two numbers; empty on
// overflow and for a divisor of 0.
std::optional<std::int64_t> evaluate(Kind kind, std::int64_t a, std::int64_t b);
// Greatest common divisor, never negative; gcd(0, b) is |b|. kMin is treated as 2^62 (a divisor).
std::int64_t gcd(std::int64_t a, std::int64_t b);

// Total order by structure: symbols by name (i2 before i10), then floordiv, mod, min, max, sums.
// Monomials are in lexicographic order, higher powers first, constants last: a monomial order in
// the sense of polynomial division.
int compare_atoms(const Node* a, const Node* b);
int compare_monomials(const Node* a, const Node* b);
// Factors of a monomial (not of a term with a coefficient): none for null.
std::span<const Expr> factors_of(const Node* const& monomial);
// Terms of a node: none for the constant 0.
void append_terms(const Node* node, Terms& out);

struct Context::Impl {
  enum class Op : std::uint32_t { none, add, sub, mul, floordiv, mod, min, max, nonneg };
  enum class Failure : std::uint8_t { none, overflow, zero_division };

  explicit Impl(Context& owner);

  // --- intern.cpp
  const Node* constant(std::int64_t value);
  const Node* intern(Kind kind, std::span<const Expr> operands, std::int64_t value = 1,
                     const Node* monomial = nullptr);
  const Node* new_symbol(std::string_view name, const SymbolInfo& info);
  const Node* new_index(const SymbolInfo& info);
  const Node* add_symbol(std::string_view name, const SymbolInfo& info);
  const Node* find_memo(Op op, const Node* a, const Node* b) const;
  void keep_memo(Op op, const Node* a, const Node* b, const Node* result);
  void forget();                    // facts have changed
  Expr finish(const Node* result);  // throws what failed

  // --- arith.cpp; all of these set `failure` on overflow and then return an arbitrary node
  std::int64_t add_checked(std::int64_t a, std::int64_t b);
  std::int64_t mul_checked(std::int64_t a, std::int64_t b);
  const Node* monomial(Factors& sorted);
  const Node* scaled(std::int64_t coefficient, const Node* monomial);
  const Node* sum(Terms& sorted);
  const Node* sum_unsorted(Terms& terms);
  const Node* combine(const Node* a, const Node* b, std::int64_t scale);  // a + scale * b
  const Node* add(const Node* a, const Node* b);
  const Node* sub(const Node* a, const Node* b);
  const Node* scale(const Node* a, std::int64_t c);
  const Node* mul(const Node* a, const Node* b);
  const Node* mul_monomials(const Node* a, const Node* b);

  // --- recombine.cpp
  const Node* recombine(const Terms& terms);  // null where no rule applies

  // --- divide.cpp
  struct Division {
    const Node* quotient;
    const Node* rest;
  };
  Division divide(const Node* e, const Node* n, bool exact);
  const Node* exact_quotient(const Node* e, const Node* n);  // null if not known to divide
  const Node* floordiv(const Node* e, const Node* n);
  const Node* mod(const Node* e, const Node* n);
  const Node* simplify_division(Kind kind, const Node* e, const Node* n);

  // --- minmax.cpp
  const Node* extreme(Kind kind, const Node* a, const Node* b);

  // --- facts.cpp
  Range interval(const Node* e);
  std::int64_t factor(const Node* e);  // a known divisor >= 0; 0 means that e is 0
  bool divides(const Node* k, const Node* e);
  void take_samples(const Node* e);
  bool refutes_at_most(const Node* a, const Node* b);  // a > b at a sample

  // --- prove.cpp
  bool nonneg(const Node* e);                   // proves e >= 0
  bool at_most(const Node* a, const Node* b);   // proves a <= b
  bool below(const Node* a, const Node* b);     // proves a < b
  bool in_range(const Node* e, const Node* n);  // proves 0 <= e < n

  Context& context;
  Failure failure = Failure::none;
  std::uint32_t epoch = 1;
  // Rewrites and proofs nest, for a quotient's normal form contains sums; beyond these depths sums
  // and divisions stay as they are and proofs look at intervals only. What is computed there is not
  // memoised.
  static constexpr int kDeepestRecombine = 16;
  static constexpr int kDeepestProof = 3;
  static constexpr int kDeepestDivision = 96;
  [[nodiscard]] bool is_limited() const {
    return recombine_depth >= kDeepestRecombine || proof_depth >= kDeepestProof ||
           division_depth >= kDeepestDivision;
  }
  int division_depth = 0;
  int recombine_depth = 0;
  int proof_depth = 0;
  int proof_budget = 0;
  std::uint64_t extent_filter = 0;    // the filter bits of symbols with a symbolic extent
  std::vector<const Node*> positive;  // values >= 0 wherever the goal of this proof has a value
  std::vector<SymbolInfo> infos;
  std::deque<std::string> names;
  std::vector<std::uint64_t> name_keys;
  std::vector<const Node*> symbol_nodes;
  std::unordered_map<std::string_view, const Node*> by_name;  // views of `names`
  // A sum as its terms without the constant, and that; terms null: unknown.
  struct Offset {
    const Node* terms = nullptr;
    std::int64_t constant = 0;
  };
  // Left side less right side of a guard, and the terms negated.
  struct GuardedDifference {
    Offset difference;
    const Node* negated = nullptr;
  };
  std::vector<Guard> guards;
  std::vector<GuardedDifference> differences;  // of the first guards, as far as they were asked for
  std::uint32_t next_index = 0;

 private:
  void* allocate(std::size_t bytes);
  const Node* insert(Node node, std::span<const Expr> operands, std::size_t slot);
  void grow_table();

  struct Memo {
    const Node* a = nullptr;
    const Node* b = nullptr;
    const Node* result = nullptr;
    Op op = Op::none;
    std::uint32_t epoch = 0;
  };
  static constexpr std::size_t kSmallConstants = 256;
  std::vector<const Node*> table_;
  std::vector<Memo> memo_;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::byte* free_ = nullptr;
  std::size_t left_ = 0;
  std::uint32_t count_ = 0;
  const Node* small_[kSmallConstants] = {};
};

// While it lives, failures inside are seen by failed() and do not leave it.
class Attempt {
 public:
  explicit Attempt(Context::Impl& impl) : impl_(impl), saved_(impl.failure) {
    impl_.failure = Context::Impl::Failure::none;
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;
  ~Attempt() { impl_.failure = saved_; }
  [[nodiscard]] bool failed() const { return impl_.failure != Context::Impl::Failure::none; }

 private:
  Context::Impl& impl_;
  Context::Impl::Failure saved_;
};

}  // namespace inkle::sym
