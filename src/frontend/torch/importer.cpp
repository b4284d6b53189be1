#include "frontend/torch/importer.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "ops/exact.h"
#include "ops/infer.h"
#include "ops/table.h"

namespace inkle::frontend::torch {

using graph::Sharing;

namespace {

// Integers where the schema wants reals, tensors where it takes numbers, and so on.
Argument convert(Argument argument, graph::ParamKind kind) {
  using graph::ParamKind;
  const bool wants_real = kind == ParamKind::real || kind == ParamKind::optional_real;
  if (wants_real) {
    if (const auto* e = std::get_if<Expr>(&argument)) {
      if (const auto value = e->constant()) return static_cast<double>(*value);
    }
  }
  if (kind == ParamKind::real_list || kind == ParamKind::optional_real_list) {
    if (const auto* list = std::get_if<std::vector<Expr>>(&argument)) {
      std::vector<double> reals;
      for (const Expr e : *list) {
        if (!e.is_constant()) return argument;
        reals.push_back(static_cast<double>(*e.constant()));
      }
      return reals;
    }
  }
  if (auto* list = std::get_if<std::vector<Expr>>(&argument); list != nullptr && list->empty()) {
    if (kind == ParamKind::tensor_list || kind == ParamKind::optional_tensor_list) {
      return std::vector<ValueId>{};
    }
  }
  return argument;
}

// Both are stated of the same tensor: where that cannot be shown it becomes a guard.
bool same_sizes(const graph::Sizes& a, const graph::Sizes& b, sym::Context& context) {
  if (a.size() != b.size()) return false;
  std::vector<std::size_t> guarded;
  for (std::size_t d = 0; d < a.size(); ++d) {
    if (a[d] == b[d] || sym::equal(a[d], b[d]).value_or(false)) continue;
    const auto left = sym::hint(a[d]), right = sym::hint(b[d]);
    if (sym::equal(a[d], b[d]).has_value() || !left || left != right) return false;
    guarded.push_back(d);
  }
  for (const std::size_t d : guarded) (void)context.guard_equal(a[d], b[d]);
  return true;
}

// The arguments of a row "narrow" for a slice of a length that torch knows by its guards
// (s0 of min(s1, s0 + 1) - 1); nothing if the place where it starts is not known as well.
std::optional<std::vector<Argument>> as_narrow(const graph::Graph& graph,
                                               const std::vector<Argument>& slice,
                                               const Type& result) {
  if (slice.size() != 5 || !std::holds_alternative<ValueId>(slice[0])) return std::nullopt;
  const Type& x = graph.type(std::get<ValueId>(slice[0]));
  const auto integer = [&](std::size_t i) -> std::optional<Expr> {
    const auto* e = std::get_if<Expr>(&slice[i]);
    return e == nullptr ? std::nullopt : std::optional(*e);
  };
  const auto given = integer(1), start = integer(2), end = integer(3), step = integer(4);
  if (!given || !given->is_constant() || !step || !step->is_constant(1)) return std::nullopt;
  const std::int64_t d = *given->constant() + (*given->constant() < 0 ? x.rank() : 0);
  if (d < 0 || d >= static_cast<std::int64_t>(x.rank()) || result.rank() != x.rank()) {
    return std::nullopt;
  }
  const auto dim = static_cast<std::size_t>(d);
  const Expr zero = graph.context().constant(0), size = x.sizes[dim], length = result.sizes[dim];
  const auto not_negative = [&](Expr e) { return sym::bounds(e).low >= 0 ? e : max(e, zero); };
  constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();
  Expr from = zero;
  if (!end || end->is_constant(kNoEnd)) {
    from = not_negative(size - length);
  } else if (start && sym::bounds(*start).high < 0) {
    from = not_negative(size + *start);
  } else if (start) {
    // What is not empty starts inside.
    const bool is_inside =
        sym::bounds(length).low >= 1 || sym::less_equal(*start, size).value_or(false);
    if (sym::bounds(*start).low < 0 || !is_inside) return std::nullopt;
    from = *start;
  }
  return std::vector<Argument>{slice[0], *given, from, length};
}

constexpr std::string_view kForeach = "aten::_foreach_";

// The overload of one element for an op over lists, by what follows the prefix. Lists of tensors
// become tensors, so that "List" and "Tensor" are one.
std::string element_overload(std::string_view name) {
  const std::size_t dot = name.find('.');
  std::string base = "aten::" + std::string(name.substr(0, dot));
  const std::string_view overload = dot == name.npos ? "" : name.substr(dot + 1);
  if (base == "aten::norm") return "aten::linalg_vector_norm";
  if (base == "aten::pow") {
    if (overload == "ScalarAndTensor") return base + ".Scalar";
    return base + (overload == "List" ? ".Tensor_Tensor" : ".Tensor_Scalar");
  }
  const bool with_tensor = overload == "List" || overload == "Tensor";
  for (const char* one : {"add", "sub", "mul", "div"}) {
    if (base == std::string("aten::") + one) return base + (with_tensor ? ".Tensor" : ".Scalar");
  }
  if (base == "aten::lerp") return base + (with_tensor ? ".Tensor" : ".Scalar");
  return base;
}

// Entry i of a list; anything else is the same for all.
Argument element(const Argument& argument, std::size_t i, sym::Context& context) {
  if (const auto* tensors = std::get_if<std::vector<ValueId>>(&argument)) return tensors->at(i);
  if (const auto* reals = std::get_if<std::vector<double>>(&argument)) return reals->at(i);
  if (const auto* integers = std::get_if<std::vector<Expr>>(&argument)) return integers->at(i);
  if (const auto* flags = std::get_if<std::vector<bool>>(&argument)) {
    return context.constant(flags->at(i) ? 1 : 0);
  }
  return argument;
}

bool repeats(const Type& type) {
  for (std::size_t d = 0; type.strides && d < type.rank(); ++d) {
    if ((*type.strides)[d].is_constant(0) && !type.sizes[d].is_constant(1)) return true;
  }
  return false;
}

}  // namespace

Importer::Importer(std::string name)
    : context_(std::make_shared<sym::Context>()),
      graph_(context_, ops::op_table()),
      builder_(graph_) {
  graph_.name = std::move(name);
}

Expr Importer::symbol(std::string_view name, std::int64_t low, std::int64_t high,
                      std::optional<std::int64_t> hint) {
  if (const auto known = context().find_symbol(name)) return *known;
  sym::SymbolInfo info;
  info.range = {low, high};
  info.hint = hint;
  return context().symbol(name, info);
}

ValueId Importer::input(std::string name, Type type, bool is_parameter) {
  const ValueId value = graph_.add_value(std::move(type));
  graph_.inputs.push_back({std::move(name), value, {}, is_parameter});
  strides_.resize(graph_.value_count());
  return value;
}

void Importer::integer_input(std::string name, Expr symbol) {
  graph_.inputs.push_back({std::move(name), {}, symbol, false});
}

ValueId Importer::literal(Type type, std::vector<std::byte> data) {
  graph::ConstantData constant{type.dtype, {}, nullptr};
  std::int64_t bytes = abi::size_of(type.dtype);
  for (const Expr size : type.sizes) {
    if (!size.is_constant()) unsupported("a literal tensor of symbolic sizes");
    constant.sizes.push_back(*size.constant());
    bytes *= *size.constant();
  }
  if (bytes != static_cast<std::int64_t>(data.size())) {
    user_error("a literal of {} bytes has {}", bytes, data.size());
  }
  constant.bytes = std::make_shared<const std::vector<std::byte>>(std::move(data));
  type.strides.reset();
  const ValueId value = graph_.add_value(std::move(type));
  graph_.constants.emplace_back(value, std::move(constant));
  strides_.resize(graph_.value_count());
  return value;
}

std::optional<std::vector<ValueId>> Importer::native(const graph::OpDef& row,
                                                     std::vector<Argument> args,
                                                     const std::vector<Type>& meta,
                                                     std::string& why_not) {
  const graph::Schema& schema = graph_.table().schema(row);
  if (args.size() > schema.params.size()) {
    why_not = "the row has fewer parameters than the overload";
    return std::nullopt;
  }
  for (std::size_t i = 0; i < args.size(); ++i) {
    args[i] = convert(std::move(args[i]), schema.params[i].kind);
  }
  const std::size_t nodes_before = graph_.nodes.size();
  std::vector<ValueId> results;
  try {
    results = builder_.nodes(row.name, std::move(args));
  } catch (const InternalError&) {
    throw;
  } catch (const Error& e) {
    why_not = e.message();
    graph_.nodes.resize(nodes_before);
    return std::nullopt;
  }
  for (std::size_t r = 0; r < results.size() && r < meta.size(); ++r) {
    if (meta[r].dtype == abi::DType::opaque) continue;
    const Type& inferred = graph_.type(results[r]);
    if (inferred.dtype != meta[r].dtype || !same_sizes(inferred.sizes, meta[r].sizes, context())) {
      why_not = fmt::format("result {} was inferred as {} and is {}", r, graph::to_string(inferred),
                            graph::to_string(meta[r]));
      graph_.nodes.resize(nodes_before);
      return std::nullopt;
    }
  }
  if (results.size() < meta.size()) {
    why_not = fmt::format("the row has {} results, the overload {}", results.size(), meta.size());
    graph_.nodes.resize(nodes_before);
    return std::nullopt;
  }
  return results;
}

std::optional<std::vector<ValueId>> Importer::each(std::string_view overload,
                                                   const std::vector<Argument>& args,
                                                   const std::vector<Type>& meta,
                                                   std::string& why_not) {
  const std::string name = element_overload(overload.substr(kForeach.size()));
  const graph::OpDef* row = graph_.table().find_aten(name);
  if (row == nullptr) {
    why_not = fmt::format("no row for {}", name);
    return std::nullopt;
  }
  const std::size_t nodes_before = graph_.nodes.size();
  std::vector<ValueId> results;
  for (std::size_t i = 0; i < meta.size(); ++i) {
    std::vector<Argument> one;
    for (const Argument& argument : args) one.push_back(element(argument, i, context()));
    if (row->name == "linalg_vector_norm") {  // (self, ord, dtype): of all dimensions
      one.insert(one.begin() + 2, {Argument{graph::None{}}, Argument{false}});
    }
    why_not = why_not_bitwise(*row, one, {meta[i]});
    auto made = why_not.empty() ? native(*row, std::move(one), {meta[i]}, why_not) : std::nullopt;
    if (!made) {
      graph_.nodes.resize(nodes_before);
      return std::nullopt;
    }
    results.push_back(made->front());
  }
  return results;
}

// Results that are no tensors stay out of the graph.
std::vector<ValueId> Importer::in_eager(std::string_view overload, std::uint32_t target,
                                        std::vector<Argument> args, const std::vector<Type>& meta) {
  std::vector<Type> types;
  for (const Type& type : meta) {
    if (type.dtype != abi::DType::opaque) types.push_back(type);
  }
  eager_targets_.push_back(target);
  const std::vector<ValueId> made =
      builder_.eager(std::string(overload), target, std::move(args), std::move(types));
  std::vector<ValueId> results;
  std::size_t next = 0;
  for (const Type& type : meta) {
    results.push_back(type.dtype == abi::DType::opaque ? ValueId{} : made[next++]);
  }
  return results;
}

std::vector<ValueId> Importer::call(std::string_view overload, std::vector<Argument> args,
                                    std::string source, const std::vector<Type>& meta,
                                    std::uint32_t target, std::string_view force_eager) {
  builder_.set_source(source);
  std::string why_not(force_eager);
  const graph::OpDef* row = graph_.table().find_aten(overload);
  std::optional<std::vector<ValueId>> results;
  const bool is_each = overload.starts_with(kForeach);
  if (is_each && why_not.empty()) results = each(overload, args, meta, why_not);
  if (row == nullptr && !is_each && why_not.empty()) why_not = "no row in the op table";
  if (row != nullptr && graph::has(row->traits, graph::Trait::eager_only) && why_not.empty()) {
    why_not = "its row has no code";
  }
  if (row != nullptr && why_not.empty()) why_not = why_not_bitwise(*row, args, meta);
  if (why_not.empty() && !is_each) {
    fix_read_strides(overload, args);
    results = native(*row, args, meta, why_not);
    if (!results && row->name == "slice" && meta.size() == 1) {
      if (auto narrow = as_narrow(graph_, args, meta[0])) {
        std::string refusal;
        results = native(*graph_.table().find("narrow"), *std::move(narrow), meta, refusal);
      }
    }
    // A view row stands for the op that copies too (aten::expand_copy).
    if (results && graph::has(row->traits, graph::Trait::view) &&
        overload.find("_copy") != std::string_view::npos) {
      for (ValueId& value : *results) value = builder_.node("clone", {value});
    }
  }
  if (!results) {
    log(LogChannel::fallback, "{} at {}: {}", overload, source, why_not);
    eager_.push_back({std::string(overload), source, why_not});
    graph::Node probe;
    probe.args = args;
    graph::for_each_operand(probe, [&](ValueId v) { fix_strides(v); });
    std::vector<Type> types = meta;
    for (Type& type : types) {
      if (!is_misstated(row, args, type)) continue;
      type.strides.reset();
      if (!graph::has(row->traits, graph::Trait::view)) {
        type.strides = graph::contiguous_strides(context(), type.sizes);
      }
    }
    results = in_eager(overload, target, args, types);
  }
  strides_.resize(graph_.value_count());
  for (std::size_t r = 0; r < results->size() && r < meta.size(); ++r) {
    const ValueId result = (*results)[r];
    if (result.is_none()) continue;
    if (is_misstated(row, args, meta[r])) {
      misstated_.insert(result);
    } else {
      strides_[result.index] = meta[r].strides;
    }
  }
  return *results;
}

// What an op writes has an element for each index. Where FX states a stride of 0 (torch 2.11 does
// for slice_scatter of an expanded tensor), eager's result is contiguous. So is that of `angle` of
// complex numbers, which FX takes to lie as its operand.
bool Importer::is_misstated(const graph::OpDef* row, const std::vector<Argument>& args,
                            const Type& meta) const {
  if (row == nullptr) return false;
  if (row->name == "angle") {
    const auto* operand = args.empty() ? nullptr : std::get_if<ValueId>(&args.front());
    if (operand != nullptr && graph_.type(*operand).dtype == abi::DType::c64) return true;
  }
  if (!graph::has(row->traits, graph::Trait::view)) return repeats(meta);
  const auto* base = args.empty() ? nullptr : std::get_if<ValueId>(&args.front());
  return base != nullptr && misstated_.contains(*base);
}

std::string Importer::why_not_bitwise(const graph::OpDef& row, const std::vector<Argument>& args,
                                      const std::vector<Type>& meta) const {
  if (!is_bitwise_) return {};
  ops::ExactQuery query{&row, args, {}, meta};
  graph::Node probe;
  probe.args = args;
  graph::for_each_operand(probe, [&](ValueId v) {
    if (!v.is_none()) query.operands.push_back(&graph_.type(v));
  });
  const std::string_view reason = ops::why_not_exact(query);
  return reason.empty() ? std::string() : fmt::format("numerics=bitwise: {}", reason);
}

// Rows that look at memory need their operand's strides; those that keep them, where elements may
// share memory.
void Importer::fix_read_strides(std::string_view overload, const std::vector<Argument>& args) {
  const bool looks = overload.find("as_strided") != std::string_view::npos;
  const bool keeps = overload.find("_scatter") != std::string_view::npos;
  if (!looks && !keeps) return;
  for (const Argument& a : args) {
    const auto* v = std::get_if<ValueId>(&a);
    if (v == nullptr || v->index >= strides_.size() || !strides_[v->index]) continue;
    if (looks || !ops::infer::are_apart(graph_.type(*v).sizes, *strides_[v->index]))
      fix_strides(*v);
  }
}

void Importer::fix_strides(ValueId value) {
  if (value.is_none()) return;
  Type& type = graph_.type(value);
  if (value.index < strides_.size() && strides_[value.index]) type.strides = strides_[value.index];
}

void Importer::output(ValueId value, bool is_free) {
  fix_strides(value);
  graph_.outputs.push_back({.value = value, .sharing = is_free ? Sharing::free : Sharing::own});
}
void Importer::output_view(ValueId value, Type view, Expr offset, ValueId argument,
                           std::uint32_t storage) {
  const bool is_argument = !argument.is_none();
  Type& whole = graph_.type(value);
  if (!is_argument) fix_strides(value);
  // Views count on the layout: what FX has misstated is laid out as the views say.
  if (!is_argument && !whole.strides) {
    whole.strides = graph::contiguous_strides(context(), whole.sizes);
  }
  graph_.outputs.push_back({.value = value,
                            .sharing = is_argument ? Sharing::argument : Sharing::storage,
                            .argument = argument,
                            .storage = storage,
                            .view = std::move(view),
                            .offset = offset});
}
bool Importer::output_as(ValueId value, graph::Sizes strides) {
  Type& type = graph_.type(value);
  const bool is_free = !type.strides;
  if (is_free) type.strides = std::move(strides);
  graph_.outputs.push_back({.value = value, .sharing = Sharing::free});
  return is_free;
}
void Importer::output(Expr integer) { graph_.outputs.push_back({integer}); }
void Importer::output_none() { graph_.outputs.push_back({graph::None{}}); }

}  // namespace inkle::frontend::torch
