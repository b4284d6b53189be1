// Builds a graph out of an FX graph that the Python side walks: one call for each node, in order.
// A node whose ATen overload has no row, or whose row infers other dtypes or sizes than FX's meta
// data say, becomes a call to eager, and the reason is kept.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "graph/builder.h"
#include "graph/graph.h"

namespace inkle::frontend::torch {

using graph::Argument;
using graph::Type;
using graph::ValueId;
using sym::Expr;

struct EagerReason {
  std::string op;
  std::string source;
  std::string reason;
};

class Importer {
 public:
  explicit Importer(std::string name);

  // A size symbol: `low` and `high` inclusive.
  Expr symbol(std::string_view name, std::int64_t low, std::int64_t high,
              std::optional<std::int64_t> hint);
  // Of the graph, also after take().
  [[nodiscard]] sym::Context& context() { return *context_; }

  ValueId input(std::string name, Type type, bool is_parameter);
  void integer_input(std::string name, Expr symbol);
  // A tensor whose contents are part of the graph: row-major `data` of a type with constant sizes.
  ValueId literal(Type type, std::vector<std::byte> data);

  // One FX node. `args` are all arguments of the overload in schema order, defaults filled in;
  // `meta` the types of its results with strides (an entry of dtype opaque stands for a result that
  // is not a tensor: its ValueId is none, and eager must leave it out); `target` the number of the
  // host's callable that runs it in eager. `force_eager` gives a reason not to use the row.
  std::vector<ValueId> call(std::string_view overload, std::vector<Argument> args,
                            std::string source, const std::vector<Type>& meta, std::uint32_t target,
                            std::string_view force_eager);

  // Rows whose bits are not surely eager's (ops/exact.h) are left to eager.
  void set_bitwise(bool is_bitwise) { is_bitwise_ = is_bitwise; }

  // Of the nodes to come.
  void set_keep(graph::Keep keep) { builder_.set_keep(keep); }

  // In a storage of its own, or, if `is_free`, in any.
  void output(ValueId value, bool is_free = false);
  // A view of `value`, of `view`'s sizes and strides, `offset` elements behind its first one: in
  // the memory of `argument`, or, where that is none, in a storage that all outputs of this number
  // share.
  void output_view(ValueId value, Type view, Expr offset, ValueId argument, std::uint32_t storage);
  // Free, with these strides instead of those that FX states. False: something in eager reads the
  // value as FX states it, and so it is returned.
  [[nodiscard]] bool output_as(ValueId value, graph::Sizes strides);
  void output(Expr integer);
  void output_none();

  [[nodiscard]] graph::Graph take() { return std::move(graph_); }
  [[nodiscard]] const std::vector<EagerReason>& eager() const { return eager_; }
  // The host's callables of all calls to eager, by number.
  [[nodiscard]] const std::vector<std::uint32_t>& eager_targets() const { return eager_targets_; }

 private:
  // An op over lists ("aten::_foreach_add.List") as its op on each element; nothing if one of them
  // has no row that takes it.
  std::optional<std::vector<ValueId>> each(std::string_view overload,
                                           const std::vector<Argument>& args,
                                           const std::vector<Type>& meta, std::string& why_not);
  std::optional<std::vector<ValueId>> native(const graph::OpDef& row, std::vector<Argument> args,
                                             const std::vector<Type>& meta, std::string& why_not);
  std::vector<ValueId> in_eager(std::string_view overload, std::uint32_t target,
                                std::vector<Argument> args, const std::vector<Type>& meta);
  // Why the row's bits are not eager's where they must be; empty if they are, or need not be.
  [[nodiscard]] std::string why_not_bitwise(const graph::OpDef& row,
                                            const std::vector<Argument>& args,
                                            const std::vector<Type>& meta) const;
  void fix_strides(ValueId value);
  void fix_read_strides(std::string_view overload, const std::vector<graph::Argument>& args);
  // FX states other strides than the result of `row` has in eager.
  [[nodiscard]] bool is_misstated(const graph::OpDef* row, const std::vector<Argument>& args,
                                  const Type& meta) const;

  std::shared_ptr<sym::Context> context_;
  graph::Graph graph_;
  graph::Builder builder_;
  std::vector<std::optional<graph::Sizes>> strides_;  // FX's, by ValueId
  std::set<ValueId> misstated_;
  bool is_bitwise_ = false;
  std::vector<EagerReason> eager_;
  std::vector<std::uint32_t> eager_targets_;
};

}  // namespace inkle::frontend::torch
