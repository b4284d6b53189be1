#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "graph/arguments.h"
#include "graph/graph.h"
#include "graph/inference.h"

namespace inkle::graph {

std::vector<Type> infer_types(const Graph& graph, const OpDef& op, std::span<const Argument> args) {
  if (op.infer == nullptr) user_error("{}: types cannot be inferred", op.name);
  Inference inference(graph, op, args);
  std::vector<Type> types = op.infer(inference);
  const std::size_t count = graph.table().schema(op).result_count;
  INKLE_CHECK(count == Schema::kVariadic || count == types.size(),
              "{}: the schema has {} results, inference gives {}", op.name, count, types.size());
  return types;
}

namespace {

bool same_list(const Sizes& a, const Sizes& b) {
  return std::ranges::equal(
      a, b, [](Expr x, Expr y) { return x == y || sym::equal(x, y).value_or(false); });
}

// Strides of dimensions of size 1, and all strides of an empty tensor, mean nothing.
bool same_strides(const Sizes& sizes, const Sizes& a, const Sizes& b) {
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].is_constant(0)) return true;
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].is_constant(1) || a[i] == b[i]) continue;
    if (!sym::equal(a[i], b[i]).value_or(false)) return false;
  }
  return true;
}

}  // namespace

std::string type_difference(const Type& inferred, const Type& given) {
  const bool same = inferred.dtype == given.dtype && inferred.device == given.device &&
                    same_list(inferred.sizes, given.sizes) &&
                    (!inferred.strides || !given.strides ||
                     same_strides(inferred.sizes, *inferred.strides, *given.strides));
  if (same) return {};
  const bool strides = inferred.strides.has_value();
  return fmt::format("{} is given, {} is inferred", to_string(given, strides),
                     to_string(inferred, strides));
}

std::string result_difference(const OpDef& op, const Type& inferred, const Type& given) {
  // Other strides than the view's own mean that the value is wanted as a copy with those.
  if (!has(op.traits, Trait::view)) return type_difference(inferred, given);
  Type free = inferred;
  free.strides.reset();
  return type_difference(free, given);
}

void settle_views(Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (!has(node.op->traits, Trait::view) || node.op->infer == nullptr) continue;
    std::vector<Type> types = infer_types(graph, *node.op, node.args);
    for (std::size_t i = 0; i < types.size(); ++i) {
      Type& type = graph.type(node.results[i]);
      if (!type.strides) type.strides = std::move(types[i].strides);
    }
  }
}

namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph), defined_(graph.value_count(), false) {}

  void run() {
    for (const Input& input : graph_.inputs) {
      if (input.value.is_none()) {
        if (input.symbol.is_null())
          user_error("input {} is neither tensor nor integer", input.name);
        continue;
      }
      define(input.value, "input " + input.name);
      check_type(input.value, "input " + input.name);
      if (!graph_.type(input.value).strides) user_error("input {} has no strides", input.name);
    }
    for (const auto& [value, data] : graph_.constants) constant(value, data);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& n = graph_.nodes[i];
      const std::string where =
          fmt::format("node {} ({}){}", i, n.op == nullptr ? "no op" : n.op->name,
                      n.source.empty() ? "" : " at " + n.source);
      node(n, where);
    }
    for (const Output& output : graph_.outputs) {
      if (const auto* v = std::get_if<ValueId>(&output.value)) use(*v, "an output");
    }
    verify_sharing(graph_);
  }

 private:
  void define(ValueId v, const std::string& where) {
    if (v.index >= defined_.size()) user_error("{}: a value that the graph does not have", where);
    if (defined_[v.index]) user_error("{}: value {} is defined twice", where, v.index);
    defined_[v.index] = true;
  }
  void use(ValueId v, const std::string& where) const {
    if (v.index >= defined_.size() || !defined_[v.index]) {
      user_error("{}: value {} is used before it is defined", where, v.index);
    }
  }
  void check_type(ValueId v, const std::string& where) const {
    const Type& type = graph_.type(v);
    if (type.strides && type.strides->size() != type.sizes.size()) {
      user_error("{}: {} sizes and {} strides", where, type.sizes.size(), type.strides->size());
    }
    for (const Expr size : type.sizes) {
      if (size.is_null()) user_error("{}: a size is missing", where);
      if (sym::bounds(size).high < 0) user_error("{}: negative size in {}", where, to_string(type));
    }
  }

  void constant(ValueId value, const ConstantData& data) {
    define(value, "a literal");
    std::int64_t bytes = abi::size_of(data.dtype);
    for (const std::int64_t size : data.sizes) {
      if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) {
        user_error("a literal of impossible size");
      }
    }
    const Type& type = graph_.type(value);
    bool same = type.dtype == data.dtype && type.sizes.size() == data.sizes.size();
    for (std::size_t i = 0; same && i < data.sizes.size(); ++i) {
      same = type.sizes[i].is_constant(data.sizes[i]);
    }
    if (!same) user_error("a literal whose type is not that of its contents");
    if (!data.bytes || data.bytes->size() != static_cast<std::size_t>(bytes)) {
      user_error("a literal of {} with {} bytes", to_string(type),
                 data.bytes ? data.bytes->size() : 0);
    }
  }

  void node(const Node& n, const std::string& where) {
    if (n.op == nullptr) user_error("{}: it has no op", where);
    for_each_operand(n, [&](ValueId v) { use(v, where); });
    const Schema& schema = graph_.table().schema(*n.op);
    if (n.args.size() < schema.params.size()) user_error("{}: arguments are missing", where);
    std::vector<Argument> args = n.args;
    try {
      complete_arguments(args, *n.op, schema, graph_.context());
      if (n.op->infer != nullptr) check_results(n, infer_types(graph_, *n.op, args));
    } catch (Error& error) {
      error.add_note("in " + where);
      throw;
    }
    for (const ValueId v : n.results) {
      define(v, where);
      check_type(v, where);
    }
  }

  void check_results(const Node& n, const std::vector<Type>& types) const {
    if (types.size() != n.results.size()) {
      user_error("{}: {} results given, {} inferred", n.op->name, n.results.size(), types.size());
    }
    for (std::size_t i = 0; i < types.size(); ++i) {
      const std::string wrong = result_difference(*n.op, types[i], graph_.type(n.results[i]));
      if (!wrong.empty()) user_error("{}: result {}: {}", n.op->name, i, wrong);
    }
  }

  const Graph& graph_;
  std::vector<bool> defined_;
};

}  // namespace

void verify(const Graph& graph) { Verifier(graph).run(); }

}  // namespace inkle::graph
