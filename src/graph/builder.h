// Appends nodes to a graph, deriving their types. Decompositions and passes write with it, so that
// a rewrite reads like the mathematics.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace inkle::graph {

class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) {}

  [[nodiscard]] Graph& graph() { return graph_; }
  [[nodiscard]] sym::Context& context() { return graph_.context(); }
  [[nodiscard]] const Type& type(ValueId value) const { return graph_.type(value); }

  // Appends the op with these arguments (missing trailing ones take the schema's defaults); types
  // come from the row's inference. Unknown names and wrong arguments throw UserError.
  std::vector<ValueId> nodes(std::string_view op, std::vector<Argument> args);
  // The same for ops of one result.
  ValueId node(std::string_view op, std::vector<Argument> args);
  // Named arguments after the positional ones are not supported: order is the schema's.

  // A call to the host framework; `args` are the host's, without its name.
  std::vector<ValueId> eager(std::string name, std::uint32_t target, std::vector<Argument> args,
                             std::vector<Type> types);

  // Copies a node of another graph (same context and table) with operands mapped by the caller.
  std::vector<ValueId> copy(const Node& node, const Graph& from, std::vector<Argument> mapped_args);

  // The source line given to nodes appended from now on.
  void set_source(std::string source) { source_ = std::move(source); }
  void set_keep(Keep keep) { keep_ = keep; }

  [[nodiscard]] Expr integer(std::int64_t value) { return context().constant(value); }
  // A rank-0 or shaped tensor filled with a number.
  ValueId full(const Sizes& sizes, double value, DType dtype, Device device = {});

 private:
  Graph& graph_;
  std::string source_;
  Keep keep_ = Keep::free;
};

// Runs `visit` on every node of `graph` in order and collects the rebuilt graph. `visit` gets the
// node with operands already mapped to the new graph; it returns the values that replace its
// results, or nothing to have the node copied as it is. Inputs, outputs, constants and symbols are
// carried over. Types of replaced values keep the original strides when they are fixed, and an
// output stays a tensor of its own: where the replacement is an input, a literal, another output or
// has other fixed strides, a `clone` is put behind it.
class Rewriter {
 public:
  Rewriter(const Graph& from, std::string_view name);
  [[nodiscard]] Builder& builder() { return builder_; }
  [[nodiscard]] const Graph& from() const { return from_; }
  // Of a value that `run` has come by.
  [[nodiscard]] ValueId mapped(ValueId old) const;
  // Whether any visit has replaced a node.
  [[nodiscard]] bool changed() const { return changed_; }

  using Visit = std::function<std::optional<std::vector<ValueId>>(Rewriter&, const Node& mapped,
                                                                  const Node& original)>;
  // `run` empties the rewriter of its graph; call it once.
  Graph run(const Visit& visit) &&;

 private:
  ValueId adopt(ValueId original, ValueId replacement);

  const Graph& from_;
  Graph to_;
  Builder builder_;
  std::vector<ValueId> map_;
  std::vector<bool> is_output_;  // by values of from_
  std::vector<bool> own_;        // values of to_ that no output may be: inputs, outputs, literals
  bool changed_ = false;
};

}  // namespace inkle::graph
