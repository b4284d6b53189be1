// Define-by-run recording of a body. A lowering is a lambda from indices to a value; it runs once
// and what it does is recorded, with equal instructions merged and constants folded where that is
// exact.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loop/body.h"

namespace inkle::loop {

class BodyBuilder {
 public:
  // `body` may hold instructions already: new ones merge with them.
  BodyBuilder(Body& body, sym::Context& context);

  [[nodiscard]] sym::Context& context() { return context_; }
  [[nodiscard]] DType dtype(Val v) const { return body_[v].dtype; }
  [[nodiscard]] const Body& body() const { return body_; }

  // Rounded or wrapped to `dtype`.
  Val constant(DType dtype, double value);
  Val constant(DType dtype, std::int64_t value);
  Val constant(DType dtype, int value) { return constant(dtype, std::int64_t{value}); }
  Val index(Expr e);  // i64
  Val load(BufferId buffer, DType dtype, std::vector<Expr> indices);
  // No memory access where `predicate` is false; the result there is `otherwise` (same dtype).
  Val load_if(Val predicate, Val otherwise, BufferId buffer, DType dtype,
              std::vector<Expr> indices);
  Val row(std::int64_t number, DType dtype);
  // An index symbol 0 <= s < extent whose value is `value` (i64): usable inside load indices.
  // Out-of-range values fail the call with an index error. A value that is itself an index
  // expression and provably in range is returned as it is, without a symbol.
  Expr indirect(Val value, Expr extent);
  // ATen's rule: negative values count from the end; then as indirect.
  Expr indirect_wrapped(Val value, Expr extent);

  // No-op when the dtype is the same already. Also through compute types: see Opcode::cast.
  Val cast(Val v, DType to);
  Val bitcast(Val v, DType to);
  Val select(Val condition, Val a, Val b);
  Val unary(Opcode op, Val a);
  // Operands of one dtype; comparisons give bool.
  Val binary(Opcode op, Val a, Val b);
  Val fma(Val a, Val b, Val c);
  Val random(Val seed, Val offset);

  // Shorthands.
  Val add(Val a, Val b) { return binary(Opcode::add, a, b); }
  Val sub(Val a, Val b) { return binary(Opcode::sub, a, b); }
  Val mul(Val a, Val b) { return binary(Opcode::mul, a, b); }
  Val div(Val a, Val b) { return binary(Opcode::div, a, b); }
  Val min(Val a, Val b) { return binary(Opcode::min, a, b); }
  Val max(Val a, Val b) { return binary(Opcode::max, a, b); }
  Val neg(Val a) { return unary(Opcode::neg, a); }
  Val less(Val a, Val b) { return binary(Opcode::less, a, b); }
  Val logical_and(Val a, Val b) { return binary(Opcode::bit_and, a, b); }
  Val logical_or(Val a, Val b) { return binary(Opcode::bit_or, a, b); }
  Val logical_not(Val a) { return unary(Opcode::bit_not, a); }

  void yield(Val v) { body_.yields.push_back(v); }

  // Appends an instruction as it is (after merging): for rewriters that copy bodies.
  Val append(Instruction instruction);

 private:
  [[nodiscard]] std::optional<Val> fold_identity(Opcode op, Val a, Val b);
  [[nodiscard]] std::optional<Val> fold_index(Opcode op, Val a, Val b);
  [[nodiscard]] std::optional<Expr> as_expression(Val v) const;
  Val make(Opcode op, DType dtype, std::initializer_list<Val> operands);

  Body& body_;
  sym::Context& context_;
  std::unordered_multimap<std::uint64_t, Val> known_;
};

// Copies `from` into `to`: index expressions are substituted, each load is given to `on_load`,
// which returns the value to use instead (or appends the load itself); an empty `on_load` appends
// it. The load's operands are values of `to` already. Returns the new yields. Indirect symbols get
// fresh names; folding applies again, so that an index loaded from an inlined producer of index
// values becomes direct. The symbols of `from` and their replacements are also added to `indirect`
// when given: store indices may name them.
using LoadRewrite = std::function<Val(BodyBuilder&, Instruction load)>;
std::vector<Val> inline_body(const Body& from, sym::Substitution indices, BodyBuilder& to,
                             const LoadRewrite& on_load,
                             std::vector<std::pair<Expr, Expr>>* indirect = nullptr);

// Drops what no yield needs. `indices`: of the stores, which may name indirect symbols.
void drop_unused(Body& body, std::vector<Expr> indices);

}  // namespace inkle::loop
