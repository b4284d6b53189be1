// The graph IR: a list of nodes in execution order over typed values. Functional but for nodes
// with the effect trait (copy_ into an input). Passes take a graph and return a new one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "graph/op_def.h"
#include "graph/type.h"

namespace inkle::graph {

struct ValueId {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t index = kNone;
  [[nodiscard]] bool is_none() const { return index == kNone; }
  friend auto operator<=>(const ValueId&,
                          const ValueId&) = default;  // NOLINT(modernize-use-nullptr)
};

struct None {
  friend bool operator==(const None&, const None&) = default;
};

// One argument of a node, of the kind that the schema says. An integer is an Expr, also where the
// schema takes a scalar; a missing entry of a tensor list is a ValueId that is none.
using Argument =
    std::variant<None, ValueId, std::vector<ValueId>, Expr, std::vector<Expr>, double,
                 std::vector<double>, bool, std::vector<bool>, std::string, DType, Device>;

// Of a joint graph's forward values, whether the backward may compute them again: it decides
// (free), it keeps them, or it computes them again whatever that costs (checkpointing).
enum class Keep : std::uint8_t { free, saved, recomputed };

struct Node {
  const OpDef* op = nullptr;
  std::vector<Argument> args;  // one for each parameter of the schema, defaults filled in
  std::vector<ValueId> results;
  std::string source;  // "model.py:12", "" if unknown
  // For calls to eager: number in the host's table of callables; the op is then kEagerOp.
  std::optional<std::uint32_t> eager_target;
  // Of nodes with the update trait: operand 0 is not read afterwards, and its memory may become the
  // result, also where it is an input (that a later copy_ of the result into it makes official).
  bool in_place = false;
  Keep keep = Keep::free;
};

struct Input {
  std::string name;
  ValueId value;              // none for an integer input
  Expr symbol;                // null for a tensor input
  bool is_parameter = false;  // a weight: the same tensor from call to call
};

// In which memory an output is returned. A contract with the caller: a write to one output must
// reach those that share its storage, and no others.
enum class Sharing : std::uint8_t {
  own,       // "%1": a storage that neither an argument nor another output has
  argument,  // "%1 in %x": the memory of argument x
  storage,   // "%1 in 0": storage number 0, which all outputs in it share
  free,      // "free %1": whatever costs least; the caller does not write to it
};

struct Output {
  // A tensor, an integer, or nothing. In an argument or a shared storage: all that lies in it, at
  // its end the contents of the argument.
  std::variant<None, ValueId, Expr> value;
  Sharing sharing = Sharing::own;
  ValueId argument;           // of Sharing::argument: the input
  std::uint32_t storage = 0;  // of Sharing::storage
  // In an argument or a shared storage: sizes and strides of what is returned, and where it begins
  // behind the first element of `value` ("at 6").
  Type view;
  Expr offset;

  // A view by explicit sizes and strides.
  [[nodiscard]] bool is_view() const {
    return sharing == Sharing::argument || sharing == Sharing::storage;
  }
};

struct ConstantData {  // contents of a literal tensor
  DType dtype;
  std::vector<std::int64_t> sizes;  // row-major
  std::shared_ptr<const std::vector<std::byte>> bytes;
};

class Graph {
 public:
  explicit Graph(std::shared_ptr<sym::Context> context, const OpTable& table)
      : context_(std::move(context)), table_(&table) {}

  std::string name = "main";
  std::vector<Input> inputs;
  std::vector<Node> nodes;
  std::vector<Output> outputs;
  // Literal tensors: values that are neither inputs nor results.
  std::vector<std::pair<ValueId, ConstantData>> constants;

  [[nodiscard]] sym::Context& context() const { return *context_; }
  [[nodiscard]] const std::shared_ptr<sym::Context>& shared_context() const { return context_; }
  [[nodiscard]] const OpTable& table() const { return *table_; }

  ValueId add_value(Type type);
  [[nodiscard]] const Type& type(ValueId value) const { return types_[value.index]; }
  [[nodiscard]] Type& type(ValueId value) { return types_[value.index]; }
  [[nodiscard]] std::size_t value_count() const { return types_.size(); }

 private:
  std::shared_ptr<sym::Context> context_;
  const OpTable* table_;
  std::vector<Type> types_;  // by ValueId
};

// Calls `f` for each tensor operand, in order, also those inside lists; none entries left out.
void for_each_operand(const Node& node, const std::function<void(ValueId)>& f);
void replace_operands(Node& node, const std::function<ValueId(ValueId)>& f);
// For each value the number of uses by nodes and outputs.
[[nodiscard]] std::vector<std::uint32_t> use_counts(const Graph& graph);
// The producing node's index for each value; -1 for inputs and constants.
[[nodiscard]] std::vector<std::int32_t> producers(const Graph& graph);

// For each value the one that owns its memory: views and effects hand their first operand's on.
[[nodiscard]] std::vector<ValueId> memory_owners(const Graph& graph);
// The type of what a tensor output returns.
[[nodiscard]] const Type& output_type(const Graph& graph, const Output& output);

// How the sharing of the outputs of `after` differs from that of `before`, naming outputs by their
// position; "" if it does not. Storages are compared by their sets of outputs, not by number.
[[nodiscard]] std::string sharing_difference(const Graph& before, const Graph& after);

// For each value whether it is an output.
[[nodiscard]] std::vector<bool> output_values(const Graph& graph);
// The types that the row infers for these complete arguments; UserError as the row says.
[[nodiscard]] std::vector<Type> infer_types(const Graph& graph, const OpDef& op,
                                            std::span<const Argument> args);
// What differs between an inferred type and a given one, "" if they agree. Strides must agree only
// where both are set.
[[nodiscard]] std::string type_difference(const Type& inferred, const Type& given);

// The same for a result of this op: strides of a view are never wrong, only a wish.
[[nodiscard]] std::string result_difference(const OpDef& op, const Type& inferred,
                                            const Type& given);
// Gives each view with free strides those that inference finds from its operand, if any: what the
// parser does, so that text and graph agree.
void settle_views(Graph& graph);

// Throws UserError naming the node: operands defined before use, arguments as the schema says,
// result types as inference says, views of outputs inside of the values that they are views of.
void verify(const Graph& graph);
// Of that, what concerns the memory of outputs.
void verify_sharing(const Graph& graph);

}  // namespace inkle::graph
