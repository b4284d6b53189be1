// The graph of a torch.export program: JSON nodes in, graph nodes out, over storages that take the
// mutation away.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "frontend/pt2/functional.h"
#include "frontend/pt2/json.h"
#include "graph/builder.h"

namespace inkle::frontend::pt2 {

using abi::Device;
using abi::DType;

// A comparison of sizes, by name in the file; what is not one is nothing that can be computed.
struct Comparison {
  Expr left, right;
  std::string_view relation;  // "lt", "le", "gt", "ge", "eq", "ne"
};
struct Unknown {};  // e.g. a boolean of a function that is not followed

using TensorList = std::vector<std::optional<TensorId>>;
// An argument of a node: as graph::Argument, but tensors are names of storages.
using Operand = std::variant<graph::None, TensorId, TensorList, Expr, std::vector<Expr>, double,
                             std::vector<double>, bool, std::vector<bool>, std::string, DType,
                             Device, Comparison, Unknown>;
struct Call {
  std::string overload;  // "aten::add.Tensor"
  std::string base;      // "add"
  struct Named {
    std::string name;
    bool is_keyword = false;
    Operand operand;
  };
  std::vector<Named> args;
  std::vector<std::string> outputs;  // names of all results, lists flattened

  // Positional argument number `position` or the one of this name; null if not given.
  [[nodiscard]] const Operand* find(std::size_t position, std::string_view name) const;
};

struct OpUses {
  std::size_t count = 0;
  std::string first_source;
};

class GraphReader {
 public:
  GraphReader(graph::Graph& graph, SourceLocation& place);

  // {"s0": {"min_val": 2, "max_val": 64}}; call it before anything is read.
  void set_ranges(const Json& constraints);
  [[nodiscard]] graph::Type type(const Json& tensor_meta);
  // SymInt: {"as_int": 3} or an expression.
  Expr size(const Json& sym_int);
  [[nodiscard]] Storages& storages() { return storages_; }

  // Unsupported, naming them all, if some ops of the graph (and of graphs inside) have no code.
  void require_ops(const Json& graph);
  // Reads all nodes. `inputs` are the values of the graph's inputs, by name.
  void run(const Json& graph, std::map<std::string, Operand> inputs);

  // After run: the value of an output argument of the top graph, and its eager strides.
  [[nodiscard]] Operand output(const Json& argument);
  void fix_strides(ValueId value, const Json& argument);

 private:
  struct Scope {
    const Json* graph = nullptr;
    std::map<std::string, Operand> values;
  };
  using Handler = std::vector<TensorId> (GraphReader::*)(const Call&);
  struct Composite {
    std::string_view overload;
    Handler handler;
  };
  static const Composite* find_composite(std::string_view overload);

  // --- Reading (graph_reader.cpp) ---
  Expr symbol(std::string_view name);
  void mark_size(Expr symbol);
  [[nodiscard]] std::vector<Expr> sizes(const Json& list);
  [[nodiscard]] const Json* meta(const std::string& name) const;
  Operand argument(const Json& value);
  [[nodiscard]] Operand list_argument(std::string_view kind, const Json& list);
  Operand named(const std::string& name, const char* table);
  void collect_ops(const Json& graph, std::map<std::string, OpUses>& missing, int depth) const;
  [[nodiscard]] bool is_known(const std::string& target) const;
  void nodes(const Json& graph);
  void node(const Json& node);
  void symbolic_node(const std::string& target, const Json& node);
  void subgraph(const std::string& target, const Json& node);
  void check_assertion(const Json& node);
  void bind(const std::vector<std::string>& names, const std::vector<TensorId>& tensors);

  // --- Calls (calls.cpp) ---
  std::vector<TensorId> call(const Call& call);
  std::vector<TensorId> in_place(const Call& call);
  std::vector<TensorId> native(const Call& call, const graph::OpDef& row);
  [[nodiscard]] std::vector<Argument> row_arguments(const Call& call, const graph::OpDef& row);
  Argument read(const Operand& operand);
  void check_result(ValueId value, const std::string& name);
  TensorId tensor(const Call& call, std::size_t position, std::string_view name) const;
  [[nodiscard]] const graph::Type& type_of(TensorId tensor);

  // --- Ops that have no row of their own (composites.cpp) ---
  std::vector<TensorId> convert(const Call& call);
  std::vector<TensorId> type_as(const Call& call);
  std::vector<TensorId> copy(const Call& call);
  std::vector<TensorId> contiguous(const Call& call);
  std::vector<TensorId> reshape(const Call& call);
  std::vector<TensorId> like_other(const Call& call);
  std::vector<TensorId> reversed(const Call& call);
  std::vector<TensorId> diff(const Call& call);
  std::vector<TensorId> extremum(const Call& call);
  std::vector<TensorId> pad(const Call& call);
  std::vector<TensorId> dropout(const Call& call);
  std::vector<TensorId> same(const Call& call);
  std::vector<TensorId> batch_norm(const Call& call);
  std::vector<TensorId> attention(const Call& call);
  std::vector<TensorId> broadcast_tensors(const Call& call);
  std::vector<TensorId> meshgrid(const Call& call);
  std::vector<TensorId> einsum(const Call& call);  // einsum.cpp
  std::vector<TensorId> converted(TensorId from, DType dtype, bool copy);
  // Whether eager's tensors of these names share memory although the op may copy.
  [[nodiscard]] bool is_viewed(TensorId from, const std::string& result) const;

  graph::Graph& graph_;
  Builder builder_;
  Storages storages_;
  SourceLocation& place_;
  std::map<std::string, sym::SymbolInfo, std::less<>> ranges_;
  std::vector<Scope> scopes_;
  std::map<std::uint32_t, const Json*> metas_;  // eager's tensor of a TensorId, where known
};

// "model.py:12" of a node's stack trace, "" if it has none: the innermost line outside torch.
[[nodiscard]] std::string source_line(const Json& node);

}  // namespace inkle::frontend::pt2
