// Integer arguments of random programs, of any sign and size, and the ops that take them: as
// numbers, divisors, exponents, positions, lengths and shifts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "ops/interpreter.h"

namespace inkle::driver {

class RandomIntegers {
 public:
  explicit RandomIntegers(std::uint32_t seed) : random_(seed) {}

  [[nodiscard]] std::uint32_t below(std::uint32_t n) { return n == 0 ? 0 : random_() % n; }

  // Arguments of which nothing is stated, or the sign. The hint of each is its value in the first
  // call; `later` has those of another call.
  struct Arguments {
    std::vector<graph::Expr> symbols;
    ops::SymbolValues later;
  };
  [[nodiscard]] const Arguments& declare(sym::Context& context);

  // Appends a node and gives its result; nothing where it is not right.
  using Push = std::function<std::optional<graph::ValueId>(std::string_view op,
                                                           std::vector<graph::Argument> args)>;
  // Appends an op on `v` that takes an integer; whether it was right.
  [[nodiscard]] bool apply(const graph::Graph& graph, graph::ValueId v, const Push& push);

 private:
  struct Operand;  // what `apply` has of the value

  bool apply_number(const Operand& x);
  bool apply_divisor(const Operand& x);
  bool apply_power(const Operand& x);
  bool apply_choice(const Operand& x);
  bool apply_slice(const Operand& x);
  bool apply_position(const Operand& x);
  bool apply_move(const Operand& x);
  bool apply_length(const Operand& x);

  [[nodiscard]] std::int64_t value();
  [[nodiscard]] graph::Expr symbol() { return arguments_.symbols[below(size())]; }
  [[nodiscard]] std::uint32_t size() const {
    return static_cast<std::uint32_t>(arguments_.symbols.size());
  }
  [[nodiscard]] graph::Expr of_one(graph::Expr n);
  [[nodiscard]] graph::Expr of_two(graph::Expr a, graph::Expr b);
  // An expression of the arguments that has a value in both calls.
  [[nodiscard]] graph::Expr any();
  [[nodiscard]] graph::Expr signed_any();  // of a known sign

  using Test = std::function<bool(std::int64_t)>;
  [[nodiscard]] bool always(graph::Expr e, const Test& test) const;

  [[nodiscard]] bool is_defined(graph::Expr e) const {
    return always(e, [](std::int64_t) { return true; });
  }

  std::mt19937 random_;
  Arguments arguments_;
};

}  // namespace inkle::driver
