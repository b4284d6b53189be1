#include "passes/fold_constants.h"

#include <algorithm>

#include "base/error.h"
#include "graph/builder.h"
#include "ops/interpreter.h"
#include "passes/literals.h"

namespace inkle::passes {
namespace {

using abi::DType;
using graph::Argument;
using graph::Graph;
using graph::has;
using graph::Node;
using graph::ParamKind;
using graph::Rewriter;
using graph::Trait;
using graph::Type;
using graph::ValueId;
using ops::RefTensor;

class Folder {
 public:
  Folder(const Graph& graph, const Options& options)
      : graph_(graph),
        options_(options),
        known_(graph.value_count()),
        is_output_(graph::output_values(graph)) {
    for (const auto& [value, data] : graph.constants) {
      if (small(graph.type(value))) known_[value.index] = decode(data);
    }
  }

  std::optional<Graph> run() {
    for (const Node& node : graph_.nodes) compute(node);
    const auto has_value = [](const std::optional<RefTensor>& known) { return known.has_value(); };
    if (std::ranges::none_of(known_, has_value)) return std::nullopt;
    mark_needed();
    Rewriter rewriter(graph_, graph_.name);
    bool changed = false;
    Graph out =
        std::move(rewriter).run([&](Rewriter& r, const Node& mapped,
                                    const Node& original) -> std::optional<std::vector<ValueId>> {
          if (is_known(original) && !is_needed(original)) {
            changed = true;
            return std::vector<ValueId>(original.results.size());
          }
          std::optional<std::vector<ValueId>> values;
          if (is_folded(original)) {
            values = replace(r, original);
          } else if (!is_known(original)) {
            values = numbers(r, mapped, original);
          }
          changed = changed || values;
          return values;
        });
    if (!changed) return std::nullopt;
    // Literals come before all nodes; the rewriter has made their values on the way.
    for (auto& literal : literals_) out.constants.push_back(std::move(literal));
    return out;
  }

 private:
  // Constant sizes, a dtype the interpreter has, not too many elements.
  bool small(const Type& type) const {
    if (!abi::is_computable(type.dtype)) return false;
    std::int64_t count = 1;
    for (const graph::Expr size : type.sizes) {
      const auto n = size.constant();
      if (!n || __builtin_mul_overflow(count, *n, &count)) return false;
    }
    return options_.freeze || count <= kMaxFoldedElements;
  }

  static RefTensor zeros(const Type& type) {
    std::vector<std::int64_t> sizes;
    for (const graph::Expr size : type.sizes) sizes.push_back(*size.constant());
    return {type.dtype, std::move(sizes)};
  }

  bool is_known(ValueId v) const { return known_[v.index].has_value(); }

  void compute(const Node& node) {
    constexpr Trait kNever = Trait::random | Trait::effect | Trait::eager_only;
    if (has(node.op->traits, kNever) || node.results.empty()) return;
    if (node.op->reference == nullptr && node.op->decompose == nullptr) return;
    bool all = std::ranges::all_of(node.results, [&](ValueId v) { return small(graph_.type(v)); });
    // Of a parameter that must be a tensor a creation op takes no more than dtype and sizes
    // (new_ones, full_like).
    const graph::Schema& schema = graph_.table().schema(*node.op);
    const bool creates = has(node.op->traits, Trait::creation) && !schema.params.empty() &&
                         schema.params.front().kind == ParamKind::tensor;
    graph::for_each_operand(node, [&](ValueId v) {
      const bool like = creates && node.args.front() == Argument(v);
      all = all && (is_known(v) || (like && small(graph_.type(v))));
    });
    if (!all || has_symbol(node)) return;
    std::vector<ValueId> stand_ins;
    graph::for_each_operand(node, [&](ValueId v) {
      if (is_known(v)) return;
      known_[v.index] = zeros(graph_.type(v));
      stand_ins.push_back(v);
    });
    std::vector<RefTensor> results = values_of(node);
    for (const ValueId v : stand_ins) known_[v.index].reset();
    for (std::size_t i = 0; i < results.size(); ++i) {
      known_[node.results[i].index] = std::move(results[i]);
    }
  }

  // A call that eager refuses, for an index out of range, is eager's.
  std::vector<RefTensor> values_of(const Node& node) const {
    try {
      return ops::interpret_node(graph_, node, known_, {});
    } catch (const UserError& error) {
      unsupported("{} of constants: {}", node.op->name, error.message());
    }
  }

  static bool has_symbol(const Node& node) {
    return std::ranges::any_of(node.args, [](const Argument& a) {
      if (const auto* e = std::get_if<graph::Expr>(&a)) return !e->is_constant();
      const auto* list = std::get_if<std::vector<graph::Expr>>(&a);
      return list != nullptr &&
             std::ranges::any_of(*list, [](graph::Expr e) { return !e.is_constant(); });
    });
  }

  // A known result is written as a literal or as `full`, but for creation ops, views of several
  // values (both cost nothing and carry no data) and outputs, which are tensors of their own.
  bool is_folded(const Node& node) const {
    if (!is_known(node)) return false;
    if (has(node.op->traits, Trait::creation)) return false;
    const bool uniform =
        std::ranges::all_of(node.results, [&](ValueId v) { return is_uniform(*known_[v.index]); });
    const bool output =
        std::ranges::any_of(node.results, [&](ValueId v) { return is_output_[v.index]; });
    return uniform || !(output || has(node.op->traits, Trait::view));
  }

  bool is_known(const Node& node) const {
    return !node.results.empty() && is_known(node.results.front());
  }

  bool is_needed(const Node& node) const {
    return std::ranges::any_of(node.results, [&](ValueId v) { return needed_[v.index]; });
  }

  // Values that outputs or nodes that stay make use of; known nodes that nothing needs go.
  void mark_needed() {
    needed_ = is_output_;
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      if (is_known(node) && (is_folded(node) || !is_needed(node))) continue;
      graph::for_each_operand(node, [&](ValueId v) { needed_[v.index] = true; });
    }
  }

  std::vector<ValueId> replace(Rewriter& r, const Node& node) {
    std::vector<ValueId> values;
    for (const ValueId v : node.results) {
      values.push_back(needed_[v.index] ? make(r, v) : ValueId{});
    }
    return values;
  }

  ValueId make(Rewriter& r, ValueId v) {
    const RefTensor& tensor = *known_[v.index];
    const Type& type = graph_.type(v);
    if (is_uniform(tensor)) {
      Argument number = tensor.real(0);
      if (type.dtype == DType::boolean) {
        number = tensor.integer(0) != 0;
      } else if (!tensor.is_real()) {
        number = graph_.context().constant(tensor.integer(0));
      }
      const Argument device =
          type.device == graph::Device{} ? Argument(graph::None{}) : Argument(type.device);
      return r.builder().node("full",
                              {type.sizes, std::move(number), type.dtype, graph::None{}, device});
    }
    Type literal = type;
    literal.strides = graph::contiguous_strides(graph_.context(), type.sizes);
    const ValueId value = r.builder().graph().add_value(literal);
    literals_.emplace_back(value, encode(tensor));
    return value;
  }

  // --- Known tensors as numbers -----------------------------------------------------------------

  std::optional<std::vector<ValueId>> numbers(Rewriter& r, const Node& mapped,
                                              const Node& original) {
    const graph::Schema& schema = graph_.table().schema(*original.op);
    if (!has(original.op->traits, Trait::pointwise)) return std::nullopt;
    std::vector<Argument> args = mapped.args;
    bool any = false;
    for (std::size_t i = 0; i < schema.params.size(); ++i) {
      if (schema.params[i].kind != ParamKind::operand) continue;
      const auto number = as_number(original, i);
      if (!number) continue;
      args[i] = *number;
      any = true;
    }
    if (!any) return std::nullopt;
    std::vector<Type> types = graph::infer_types(r.builder().graph(), *original.op, args);
    for (std::size_t i = 0; i < types.size(); ++i) {
      types[i].strides.reset();
      if (!graph::type_difference(types[i], graph_.type(original.results[i])).empty()) {
        return std::nullopt;
      }
    }
    return r.builder().nodes(original.op->name, std::move(args));
  }

  static int category(DType d) { return abi::is_float(d) ? 2 : d == DType::boolean ? 0 : 1; }

  // The scalar that argument i may become: of a uniform known tensor beside another tensor of at
  // least its category (else promotion would change) that has dimensions or the same dtype.
  std::optional<Argument> as_number(const Node& node, std::size_t i) const {
    const auto* v = std::get_if<ValueId>(&node.args[i]);
    if (v == nullptr || !is_known(*v) || !is_uniform(*known_[v->index])) return std::nullopt;
    const RefTensor& tensor = *known_[v->index];
    bool partner = false;
    for (std::size_t k = 0; k < node.args.size(); ++k) {
      const auto* other = std::get_if<ValueId>(&node.args[k]);
      if (k == i || other == nullptr || is_known(*other)) continue;
      const Type& type = graph_.type(*other);
      partner = partner ||
                (category(type.dtype) >= category(tensor.dtype) && type.dtype != DType::boolean &&
                 (type.rank() > 0 || type.dtype == tensor.dtype));
      // A tensor with dimensions of a wider dtype changes promotion, as a scalar does not.
      if (tensor.rank() > 0 && type.dtype != tensor.dtype) return std::nullopt;
    }
    if (!partner) return std::nullopt;
    if (tensor.is_real()) return Argument(tensor.real(0));
    if (tensor.dtype == DType::boolean) return Argument(tensor.integer(0) != 0);
    return Argument(graph_.context().constant(tensor.integer(0)));
  }

  const Graph& graph_;
  const Options& options_;
  std::vector<std::optional<RefTensor>> known_;
  std::vector<bool> is_output_;
  std::vector<bool> needed_;
  std::vector<std::pair<ValueId, graph::ConstantData>> literals_;
};

}  // namespace

std::optional<Graph> fold_constants(const Graph& graph, PassContext& context) {
  return Folder(graph, context.options).run();
}

}  // namespace inkle::passes
