#include "graph/builder.h"

#include "base/error.h"
#include "graph/arguments.h"
#include "graph/inference.h"

namespace inkle::graph {

std::vector<ValueId> Builder::nodes(std::string_view op, std::vector<Argument> args) {
  const OpDef* row = graph_.table().find(op);
  if (row == nullptr) user_error("unknown op '{}'", op);
  complete_arguments(args, *row, graph_.table().schema(*row), context());
  Node node{.op = row, .source = source_, .keep = keep_};
  for (Type& type : infer_types(graph_, *row, args)) {
    node.results.push_back(graph_.add_value(std::move(type)));
  }
  node.args = std::move(args);
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.back().results;
}

ValueId Builder::node(std::string_view op, std::vector<Argument> args) {
  const std::vector<ValueId> results = nodes(op, std::move(args));
  INKLE_CHECK(results.size() == 1, "{} has {} results, one is wanted", op, results.size());
  return results.front();
}

std::vector<ValueId> Builder::eager(std::string name, std::uint32_t target,
                                    std::vector<Argument> args, std::vector<Type> types) {
  Node node{.op = &kEagerOp, .source = source_, .eager_target = target, .keep = keep_};
  node.args.reserve(args.size() + 1);
  node.args.emplace_back(std::move(name));
  for (Argument& argument : args) node.args.push_back(std::move(argument));
  for (Type& type : types) node.results.push_back(graph_.add_value(std::move(type)));
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.back().results;
}

std::vector<ValueId> Builder::copy(const Node& node, const Graph& from,
                                   std::vector<Argument> mapped_args) {
  Node made{.op = node.op,
            .args = std::move(mapped_args),
            .source = node.source.empty() ? source_ : node.source,
            .eager_target = node.eager_target,
            .in_place = node.in_place,
            .keep = node.keep};
  // Mapped operands have the types of the old ones, so results have, too.
  for (const ValueId v : node.results) made.results.push_back(graph_.add_value(from.type(v)));
  graph_.nodes.push_back(std::move(made));
  return graph_.nodes.back().results;
}

ValueId Builder::full(const Sizes& sizes, double value, DType dtype, Device device) {
  Argument number = value;
  if (dtype == DType::boolean) {
    number = value != 0;
  } else if (!abi::is_float(dtype) && value >= -9.0e18 && value <= 9.0e18) {
    number = context().constant(static_cast<std::int64_t>(value));
  }
  const Argument where = device == Device{} ? Argument(None{}) : Argument(device);
  return node("full", {sizes, std::move(number), dtype, None{}, where});
}

// --- Rewriter -----------------------------------------------------------------------------------

Rewriter::Rewriter(const Graph& from, std::string_view name)
    : from_(from),
      to_(from.shared_context(), from.table()),
      builder_(to_),
      map_(from.value_count()),
      is_output_(output_values(from)) {
  to_.name = name;
  const auto carry = [&](ValueId old) {
    map_[old.index] = to_.add_value(from.type(old));
    return map_[old.index];
  };
  for (const Input& input : from.inputs) {
    Input copy = input;
    if (!input.value.is_none()) copy.value = carry(input.value);
    to_.inputs.push_back(std::move(copy));
  }
  for (const auto& [value, data] : from.constants) to_.constants.emplace_back(carry(value), data);
  own_.assign(to_.value_count(), true);
}

ValueId Rewriter::mapped(ValueId old) const {
  const ValueId now = map_.at(old.index);
  INKLE_CHECK(!now.is_none(), "a rewrite reads a value of {} before it is there", from_.name);
  return now;
}

namespace {

// Torch's guards may equate what the graph states as two sizes, as those of a gradient and of its
// value. Then a guard of this graph does.
void equate_sizes(sym::Context& context, const Type& a, const Type& b) {
  if (a.sizes.size() != b.sizes.size()) return;
  for (std::size_t d = 0; d < a.sizes.size(); ++d) {
    const auto left = sym::hint(a.sizes[d]), right = sym::hint(b.sizes[d]);
    if (left && left == right) (void)context.guard_equal(a.sizes[d], b.sizes[d]);
  }
}

}  // namespace

// The value that stands for `original` when the visitor gave `replacement`.
ValueId Rewriter::adopt(ValueId original, ValueId replacement) {
  own_.resize(to_.value_count(), false);
  const Type& wanted = from_.type(original);
  const Type& got = to_.type(replacement);
  const Type wanted_sizes{wanted.dtype, wanted.device, wanted.sizes, {}};
  const Type got_sizes{got.dtype, got.device, got.sizes, {}};
  std::string wrong = type_difference(wanted_sizes, got_sizes);
  if (!wrong.empty()) {
    equate_sizes(to_.context(), wanted, got);
    wrong = type_difference(wanted_sizes, got_sizes);
  }
  INKLE_CHECK(wrong.empty(), "a rewrite changed a type: {} was {}", to_string(got),
              to_string(wanted));
  const bool output = is_output_[original.index];
  const bool strides_clash = !type_difference(wanted, got).empty();
  const bool taken = output && own_[replacement.index];
  if (strides_clash || taken || (wanted.strides && own_[replacement.index] && !got.strides)) {
    replacement = builder_.node("clone", {replacement});
    own_.resize(to_.value_count(), false);
    to_.type(replacement).strides = std::nullopt;
  }
  if (wanted.strides && !to_.type(replacement).strides) {
    to_.type(replacement).strides = wanted.strides;
  }
  if (output) own_[replacement.index] = true;
  return replacement;
}

Graph Rewriter::run(const Visit& visit) && {
  for (const Node& original : from_.nodes) {
    Node mapped = original;
    replace_operands(mapped, [&](ValueId v) { return map_[v.index]; });
    builder_.set_source(original.source);
    builder_.set_keep(original.keep);
    const auto replaced = visit(*this, mapped, original);
    if (!replaced) {
      const auto results = builder_.copy(original, from_, std::move(mapped.args));
      own_.resize(to_.value_count(), false);
      for (std::size_t i = 0; i < results.size(); ++i) {
        map_[original.results[i].index] = results[i];
        if (is_output_[original.results[i].index]) own_[results[i].index] = true;
      }
      continue;
    }
    changed_ = true;
    INKLE_CHECK(replaced->size() == original.results.size(), "{}: {} results replaced by {}",
                original.op->name, original.results.size(), replaced->size());
    for (std::size_t i = 0; i < replaced->size(); ++i) {
      if ((*replaced)[i].is_none()) continue;  // unused, says the visitor
      map_[original.results[i].index] = adopt(original.results[i], (*replaced)[i]);
    }
  }
  for (const Output& output : from_.outputs) {
    Output copy = output;
    if (auto* v = std::get_if<ValueId>(&copy.value)) {
      *v = map_[v->index];
      INKLE_CHECK(!v->is_none(), "a rewrite dropped an output");
    }
    if (!copy.argument.is_none()) copy.argument = map_[copy.argument.index];
    to_.outputs.push_back(copy);
  }
  settle_views(to_);
  return std::move(to_);
}

}  // namespace inkle::graph
