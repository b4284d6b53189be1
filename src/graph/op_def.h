// The declaration of an op: one row of the op table (ops/table.h). Every layer that handles ops
// asks the row; none knows an op by name.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/type.h"

namespace inkle::ops {
class Lowering;    // ops/lowering.h: records loop nests for one node
class Evaluation;  // ops/interpreter.h: computes one node's reference result
}  // namespace inkle::ops

namespace inkle::graph {

class Builder;    // graph/builder.h
class Inference;  // graph/inference.h: the arguments of one node, while types are derived
struct Node;
struct ValueId;

enum class ParamKind : std::uint8_t {
  operand,  // a tensor or a number (ATen's Tensor and Scalar overloads share a row)
  optional_operand,
  tensor,
  optional_tensor,
  tensor_list,
  optional_tensor_list,
  integer,
  optional_integer,
  integer_list,
  optional_integer_list,
  scalar,  // int, float or bool; keeps which
  optional_scalar,
  real,
  optional_real,
  real_list,
  optional_real_list,
  boolean,
  optional_boolean,
  boolean_list,
  string,
  optional_string,
  dtype,
  optional_dtype,
  device,
  optional_device,
};

struct Param {
  std::string name;
  ParamKind kind = ParamKind::tensor;
  bool has_default = false;
  std::string default_text;  // as it would be printed
};

// "(self: tensor, alpha: scalar = 1) -> tensor, tensor", parsed once. Kinds are written as in
// ParamKind, with "?" for optional and "[]" for a list: "operand", "tensor?", "integer[]?",
// "tensor?[]", "scalar?"; the default of an optional is "none"; a list's is "[0, 1]", a string's is
// quoted, a dtype's its name. "-> tensor..." is variadic.
struct Schema {
  std::vector<Param> params;
  bool any_params = false;       // "...": further arguments of any kind follow (eager only)
  std::size_t result_count = 1;  // kVariadic: as many as the node says (split, unbind)
  static constexpr std::size_t kVariadic = ~std::size_t{0};
};

enum class Trait : std::uint32_t {
  none = 0,
  pointwise = 1u << 0,  // result element depends on the same (broadcast) element of operands
  view = 1u << 1,       // result is an index map of operand 0, no arithmetic
  reduction = 1u << 2,
  commutative = 1u << 3,  // in the first two operands
  random = 1u << 4,       // never merged, folded, moved or dropped twice
  effect = 1u << 5,       // mutates or has an outside effect: kept, in order
  creation = 1u << 6,     // no tensor operand
  contraction = 1u << 7,
  eager_only = 1u << 8,  // no code of ours: call to the host framework
  update = 1u << 9,      // result is operand 0 but for some elements (scatter, index_put,
                         // slice_scatter): may be computed in operand 0's memory
};
[[nodiscard]] constexpr Trait operator|(Trait a, Trait b) {
  return static_cast<Trait>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
[[nodiscard]] constexpr bool has(Trait set, Trait one) {
  return (static_cast<std::uint32_t>(set) & static_cast<std::uint32_t>(one)) != 0;
}

// Deterministic inputs for the generated tests of a row; see ops/samples.h.
struct Sample;

struct OpDef {
  std::string_view name;    // "softmax", unique
  std::string_view schema;  // "(self: tensor, dim: integer) -> tensor"
  std::string_view doc;
  Trait traits = Trait::none;
  // Types of the results; throws UserError with what is wrong. Sizes and dtypes must be exact;
  // strides are set only where the op's meaning fixes them.
  std::vector<Type> (*infer)(Inference&) = nullptr;
  // Exactly one of the next three (none for eager_only rows).
  void (*lower)(ops::Lowering&) = nullptr;
  std::vector<ValueId> (*decompose)(Builder&, const Node&) = nullptr;
  bool library = false;  // lowered to a contraction or call node by `lower`
  // The slow, obvious result; rows with a decomposition may leave it out.
  void (*reference)(ops::Evaluation&) = nullptr;
  // ATen overloads that mean this row with the same argument order, separated by blanks:
  // "aten::add.Tensor aten::add.Scalar". The first one is the way to run it in eager.
  std::string_view aten;
  bool is_imported = true;  // calls of these overloads become this row; else decompositions alone
  std::vector<Sample> (*samples)() = nullptr;
};

// The built-in row "eager": a call to the host framework. Its first argument is the host's name of
// the op, the others are what the host takes; result types are given, not inferred. Every table
// has it.
extern const OpDef kEagerOp;

// Reads "(self: tensor, dim: integer[] = [1, 2], keepdim: boolean = false) -> tensor, tensor".
// Kinds are those of ParamKind: a base name, "[]" for a list, "?" for optional ("tensor?[]" is a
// list with missing entries, "integer[]?" an optional list). Results are "tensor" once or more,
// "()" for none, "tensor..." for as many as the node says. `op` is used in messages; UserError.
[[nodiscard]] Schema parse_schema(std::string_view op, std::string_view text);

// An op table: lookup by name and by ATen overload, parsed schemas. Immutable once made.
class OpTable {
 public:
  explicit OpTable(std::span<const std::span<const OpDef>> families);
  [[nodiscard]] const OpDef* find(std::string_view name) const;
  [[nodiscard]] const OpDef* find_aten(std::string_view overload) const;
  [[nodiscard]] const Schema& schema(const OpDef& op) const;
  [[nodiscard]] std::span<const OpDef* const> all() const { return rows_; }  // by name

 private:
  std::vector<const OpDef*> rows_;
  std::vector<Schema> schemas_;                                  // parallel to rows_
  std::vector<std::pair<std::string_view, const OpDef*>> aten_;  // sorted
};

}  // namespace inkle::graph
