#include "frontend/pt2/graph_reader.h"

#include <algorithm>

#include "base/error.h"
#include "frontend/pt2/expression.h"

namespace inkle::frontend::pt2 {
namespace {

constexpr std::int64_t kLargestSize = std::int64_t{1} << 48;
constexpr std::size_t kDepthLimit = 32;
constexpr std::size_t kNodeLimit = 1'000'000;

constexpr std::string_view kAten = "torch.ops.aten.";
constexpr std::string_view kHigherOrder = "torch.ops.higher_order.";

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view p) { return text.starts_with(p); });
}

// Checks of the exporting run: on values (kept nowhere, they cannot be evaluated here) or on sizes
// (check_assertion turns those into guards).
bool is_assertion(std::string_view target) {
  return starts_with_any(
      target, {"torch.ops.aten._assert", "torch.ops.aten.sym_constrain",
               "torch.ops.aten._functional_assert", "torch.ops.aten._functional_sym_constrain"});
}

bool is_inlined(std::string_view target) {
  return target == "torch.ops.higher_order.wrap_with_set_grad_enabled" ||
         target == "torch.ops.higher_order.wrap_with_autocast";
}

bool is_symbolic(std::string_view target) {
  return starts_with_any(target, {"_operator.", "math.", "torch.sym_", "torch.ops.aten.sym_"});
}

// "torch.ops.aten.add.Tensor" -> "aten::add.Tensor"; others as they are.
std::string overload_of(const std::string& target) {
  if (!target.starts_with(kAten)) return target;
  std::string name = target.substr(kAten.size());
  if (name.ends_with(".default")) name.resize(name.size() - 8);
  return "aten::" + name;
}

std::string base_of(const std::string& overload) {
  const std::size_t begin = overload.find("::");
  if (begin == overload.npos) return overload;
  return overload.substr(begin + 2, overload.find('.', begin) - begin - 2);
}

// Whether the strides are those of some order of dimensions without gaps, for all sizes.
bool is_dense(const graph::Type& type) {
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < type.rank(); ++d) {
    if (!type.sizes[d].is_constant(1)) order.push_back(d);
  }
  const graph::Sizes& strides = *type.strides;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return sym::hint(strides[a]).value_or(0) < sym::hint(strides[b]).value_or(0);
  });
  std::optional<Expr> expected;
  for (const std::size_t d : order) {
    if (expected ? !(strides[d] == *expected) : !strides[d].is_constant(1)) return false;
    expected = strides[d] * type.sizes[d];
  }
  return true;
}

}  // namespace

std::string source_line(const Json& node) {
  const Json* metadata = find_member(node, "metadata");
  const Json* trace = metadata == nullptr ? nullptr : find_member(*metadata, "stack_trace");
  if (trace == nullptr || !trace->is_string()) return "";
  const std::string& text = trace->get_ref<const std::string&>();
  std::string found;
  for (std::size_t at = text.find("File \""); at != text.npos; at = text.find("File \"", at)) {
    at += 6;
    const std::size_t end = text.find("\", line ", at);
    if (end == text.npos) break;
    const std::string path = text.substr(at, end - at);
    std::size_t digits = end + 8;
    while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
    const std::string line = text.substr(end + 8, digits - end - 8);
    at = digits;
    if (!found.empty() && path.find("/torch/") != path.npos) continue;
    found = path.substr(path.rfind('/') + 1) + ":" + line;
  }
  const bool is_plain = std::all_of(found.begin(), found.end(),
                                    [](char c) { return c > ' ' && c != 0x7f && c != '#'; });
  return is_plain && found.size() < 200 ? found : "";
}

const Operand* Call::find(std::size_t position, std::string_view name) const {
  if (position < args.size() && !args[position].is_keyword) return &args[position].operand;
  for (const Named& a : args) {
    if (a.is_keyword && a.name == name) return &a.operand;
  }
  return nullptr;
}

GraphReader::GraphReader(graph::Graph& graph, SourceLocation& place)
    : graph_(graph), builder_(graph), storages_(builder_), place_(place) {}

// --- Sizes and types
// ------------------------------------------------------------------------------

void GraphReader::set_ranges(const Json& constraints) {
  if (!constraints.is_object()) place_.fail("\"range_constraints\" is not an object");
  for (const auto& [name, range] : constraints.items()) {
    sym::SymbolInfo info;
    const Json* low = find_member(range, "min_val");
    const Json* high = find_member(range, "max_val");
    if (low != nullptr && !low->is_null()) info.range.low = integer(place_, *low);
    // Torch states 0 of every dynamic dimension, and of integers that are below 0 in its example.
    if (info.range.low == 0) info.range.low = sym::Range::kMin;
    if (high != nullptr && !high->is_null()) info.range.high = integer(place_, *high);
    if (info.range.low > info.range.high)
      place_.fail(fmt::format("the range of {} is empty", name));
    ranges_.emplace(name, info);
  }
}

Expr GraphReader::symbol(std::string_view name) {
  if (const auto known = graph_.context().find_symbol(name)) return *known;
  const bool is_name = !name.empty() &&
                       (name[0] == '_' || std::isalpha(static_cast<unsigned char>(name[0])) != 0) &&
                       std::all_of(name.begin(), name.end(), [](char c) {
                         return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
                       });
  if (!is_name) place_.fail("a size symbol's name is no name");
  if (name[0] == 'u' || name.starts_with("zu")) unsupported("the size {} depends on data", name);
  sym::SymbolInfo info;
  if (const auto at = ranges_.find(name); at != ranges_.end()) info = at->second;
  return graph_.context().symbol(name, info);
}

// What is the size of a tensor is not negative, and no tensor has more elements than this.
void GraphReader::mark_size(Expr symbol) {
  sym::SymbolInfo info = graph_.context().info(symbol);
  if (info.range.low >= 0 && info.range.high <= kLargestSize) return;
  info.range.low = std::max<std::int64_t>(info.range.low, 0);
  info.range.high = std::min(info.range.high, kLargestSize);
  graph_.context().set_info(symbol, info);
}

Expr GraphReader::size(const Json& sym_int) {
  const auto [kind, value] = union_value(place_, sym_int);
  if (kind == "as_int") return builder_.integer(integer(place_, *value));
  if (kind != "as_expr") place_.fail(fmt::format("a size of kind \"{}\"", kind));
  const Expr e =
      parse_expression(text(place_, member(place_, *value, "expr_str")), graph_.context(),
                       [this](std::string_view name) { return symbol(name); });
  const Json* hint = find_member(*value, "hint");
  if (hint != nullptr && e.kind() == sym::Kind::symbol && find_member(*hint, "as_int") != nullptr) {
    sym::SymbolInfo info = graph_.context().info(e);
    const std::int64_t number = integer(place_, *find_member(*hint, "as_int"));
    if (!info.hint && number >= info.range.low && number <= info.range.high) {
      info.hint = number;
      graph_.context().set_info(e, info);
    }
  }
  return e;
}

std::vector<Expr> GraphReader::sizes(const Json& list) {
  std::vector<Expr> result;
  for (const Json& s : list) result.push_back(size(s));
  return result;
}

graph::Type GraphReader::type(const Json& tensor_meta) {
  graph::Type result;
  result.dtype = scalar_type(place_, member(place_, tensor_meta, "dtype"));
  result.device = device(place_, member(place_, tensor_meta, "device"));
  result.sizes = sizes(array(place_, tensor_meta, "sizes"));
  for (const Expr size : result.sizes) {
    if (size.kind() == sym::Kind::symbol) mark_size(size);
  }
  result.strides = sizes(array(place_, tensor_meta, "strides"));
  if (result.sizes.size() != result.strides->size())
    place_.fail("the numbers of sizes and strides differ");
  if (integer(place_, member(place_, tensor_meta, "layout")) != 7) {
    unsupported("a tensor that is not strided");
  }
  return result;
}

const Json* GraphReader::meta(const std::string& name) const {
  return find_member(object(place_, *scopes_.back().graph, "tensor_values"), name.c_str());
}

// --- Arguments
// ------------------------------------------------------------------------------------

Operand GraphReader::named(const std::string& name, const char* table) {
  const auto at = scopes_.back().values.find(name);
  if (at != scopes_.back().values.end()) return at->second;
  place_.fail(fmt::format("\"{}\" of {} is used before it is defined", name, table));
}

Operand GraphReader::list_argument(std::string_view kind, const Json& list) {
  if (!list.is_array()) place_.fail(fmt::format("\"{}\" is not a list", kind));
  const auto tensor = [&](const Json& t) -> std::optional<TensorId> {
    const Operand o = named(text(place_, member(place_, t, "name")), "tensors");
    if (!std::holds_alternative<TensorId>(o)) place_.fail("a tensor is expected");
    return std::get<TensorId>(o);
  };
  TensorList tensors;
  std::vector<Expr> integers;
  std::vector<double> reals;
  std::vector<bool> booleans;
  for (const Json& e : list) {
    if (kind == "as_tensors") {
      tensors.push_back(tensor(e));
    } else if (kind == "as_optional_tensors") {
      const auto [which, value] = union_value(place_, e);
      tensors.push_back(which == "as_tensor" ? tensor(*value) : std::nullopt);
    } else if (kind == "as_ints") {
      integers.push_back(builder_.integer(integer(place_, e)));
    } else if (kind == "as_sym_ints") {
      const Operand o = argument({{"as_sym_int", e}});
      if (!std::holds_alternative<Expr>(o)) place_.fail("an integer is expected");
      integers.push_back(std::get<Expr>(o));
    } else if (kind == "as_floats") {
      reals.push_back(real(place_, e));
    } else if (kind == "as_bools") {
      booleans.push_back(boolean(place_, e));
    } else {
      unsupported("an argument of kind {}", kind);
    }
  }
  if (kind == "as_tensors" || kind == "as_optional_tensors") return tensors;
  if (kind == "as_floats") return reals;
  if (kind == "as_bools") return booleans;
  return integers;
}

Operand GraphReader::argument(const Json& json) {
  const auto pair = union_value(place_, json);
  const std::string_view kind = pair.first;
  const Json* value = pair.second;
  const auto name_or = [&](const char* literal, auto&& read) -> Operand {
    const auto [which, inner] = union_value(place_, *value);
    if (which == "as_name") return named(text(place_, *inner), literal);
    return read(*inner);
  };
  if (kind == "as_none") return graph::None{};
  if (kind == "as_tensor") return named(text(place_, member(place_, *value, "name")), "tensors");
  if (kind == "as_optional_tensor") {
    const auto [which, inner] = union_value(place_, *value);
    if (which != "as_tensor") return graph::None{};
    return named(text(place_, member(place_, *inner, "name")), "tensors");
  }
  if (kind == "as_int") return builder_.integer(integer(place_, *value));
  if (kind == "as_float") return real(place_, *value);
  if (kind == "as_bool") return boolean(place_, *value);
  if (kind == "as_string") return text(place_, *value);
  if (kind == "as_scalar_type") return scalar_type(place_, *value);
  if (kind == "as_device") return device(place_, *value);
  if (kind == "as_sym_int") {
    return name_or("integers", [&](const Json& j) { return builder_.integer(integer(place_, j)); });
  }
  if (kind == "as_sym_float") {
    return name_or("numbers", [&](const Json& j) { return Operand(real(place_, j)); });
  }
  if (kind == "as_sym_bool") {
    return name_or("booleans", [&](const Json& j) { return Operand(boolean(place_, j)); });
  }
  if (kind == "as_layout") {
    if (integer(place_, *value) != 7) unsupported("a layout that is not strided");
    return std::string("strided");
  }
  if (kind == "as_memory_format") {
    static constexpr const char* kNames[] = {"", "contiguous_format", "channels_last",
                                             "channels_last_3d", "preserve_format"};
    const std::int64_t number = integer(place_, *value);
    if (number < 1 || number > 4) place_.fail("an unknown memory format");
    return std::string(kNames[number]);
  }
  return list_argument(kind, *value);
}

// --- Nodes
// ----------------------------------------------------------------------------------------

bool GraphReader::is_known(const std::string& target) const {
  if (is_assertion(target) || is_inlined(target) || is_symbolic(target)) return true;
  const std::string overload = overload_of(target);
  if (find_composite(overload) != nullptr) return true;
  const auto has_row = [&](const std::string& name) {
    const graph::OpDef* row = graph_.table().find_aten(name);
    return row != nullptr && !graph::has(row->traits, graph::Trait::eager_only);
  };
  if (has_row(overload)) return true;
  const std::string base = base_of(overload);
  if (!base.ends_with('_') || base.ends_with("__")) return false;
  std::string functional = overload;
  functional.erase(functional.find("::") + 1 + base.size(), 1);
  return has_row(functional);
}

void GraphReader::collect_ops(const Json& graph, std::map<std::string, OpUses>& missing,
                              int depth) const {
  if (depth > static_cast<int>(kDepthLimit)) place_.fail("graphs nested too deep");
  const Json& list = array(place_, graph, "nodes");
  if (list.size() > kNodeLimit) place_.fail("more than a million nodes");
  for (const Json& n : list) {
    const std::string& target = text(place_, member(place_, n, "target"));
    if (!is_known(target)) {
      OpUses& uses = missing[target];
      if (uses.count++ == 0) uses.first_source = source_line(n);
    }
    for (const Json& input : array(place_, n, "inputs")) {
      const Json* inner = find_member(member(place_, input, "arg"), "as_graph");
      if (inner != nullptr && is_inlined(target)) {
        collect_ops(object(place_, *inner, "graph"), missing, depth + 1);
      }
    }
  }
}

void GraphReader::require_ops(const Json& graph) {
  std::map<std::string, OpUses> missing;
  collect_ops(graph, missing, 0);
  if (missing.empty()) return;
  std::string list;
  for (const auto& [target, uses] : missing) {
    list += fmt::format("{}{} ({} use{}{}{})", list.empty() ? "" : ", ", target, uses.count,
                        uses.count == 1 ? "" : "s", uses.first_source.empty() ? "" : ", first at ",
                        uses.first_source);
  }
  unsupported("{}: there is no code for {}; it would need PyTorch's eager mode", place_.file, list);
}

void GraphReader::run(const Json& graph, std::map<std::string, Operand> inputs) {
  scopes_.push_back({&graph, std::move(inputs)});
  for (const auto& [name, operand] : scopes_.back().values) {
    if (const auto* t = std::get_if<TensorId>(&operand)) metas_[t->index] = meta(name);
  }
  nodes(graph);
}

void GraphReader::nodes(const Json& graph) {
  const std::string outer = place_.detail;
  std::size_t number = 0;
  for (const Json& n : array(place_, graph, "nodes")) {
    const std::string& target = text(place_, member(place_, n, "target"));
    place_.detail = fmt::format("node {} {}", number++, target);
    const std::string prefix = place_.file + ": ";
    try {
      node(n);
    } catch (const UserError& e) {
      if (e.message().starts_with(prefix)) throw;
      place_.fail(e.message());
    } catch (const Unsupported& e) {
      if (e.message().starts_with(prefix)) throw;
      unsupported("{}{}: {}", prefix, place_.detail, e.message());
    } catch (Error& e) {
      e.add_note(prefix + place_.detail);
      throw;
    }
  }
  place_.detail = outer;
}

void GraphReader::bind(const std::vector<std::string>& names,
                       const std::vector<TensorId>& tensors) {
  if (tensors.size() < names.size()) {
    place_.fail(fmt::format("{} results are named, the op has {}", names.size(), tensors.size()));
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) continue;
    if (!scopes_.back().values.emplace(names[i], tensors[i]).second) {
      place_.fail(fmt::format("\"{}\" is defined twice", names[i]));
    }
    const Json* m = meta(names[i]);
    if (m != nullptr) metas_[tensors[i].index] = m;
  }
}

void GraphReader::node(const Json& n) {
  const std::string& target = text(place_, member(place_, n, "target"));
  builder_.set_source(source_line(n));
  if (is_assertion(target)) return check_assertion(n);
  if (is_symbolic(target)) return symbolic_node(target, n);
  if (target.starts_with(kHigherOrder)) return subgraph(target, n);
  Call c;
  c.overload = overload_of(target);
  c.base = base_of(c.overload);
  for (const Json& input : array(place_, n, "inputs")) {
    const Json* kind = find_member(input, "kind");
    c.args.push_back({text(place_, member(place_, input, "name")),
                      kind != nullptr && integer(place_, *kind) == 2,
                      argument(member(place_, input, "arg"))});
  }
  for (const Json& output : array(place_, n, "outputs")) {
    const auto [kind, value] = union_value(place_, output);
    if (kind == "as_tensor") {
      c.outputs.push_back(text(place_, member(place_, *value, "name")));
    } else if (kind == "as_tensors") {
      if (!value->is_array()) place_.fail("\"as_tensors\" is not a list");
      for (const Json& t : *value) c.outputs.push_back(text(place_, member(place_, t, "name")));
    } else if (kind == "as_none") {
      c.outputs.emplace_back();
    } else {
      unsupported("a result of kind {}: it depends on data", kind);
    }
  }
  bind(c.outputs, call(c));
}

// Arithmetic on sizes: the file holds the resulting expression.
void GraphReader::symbolic_node(const std::string& target, const Json& n) {
  for (const Json& output : array(place_, n, "outputs")) {
    const auto [kind, value] = union_value(place_, output);
    const Json* name_json = find_member(*value, "as_name");
    if (name_json == nullptr) continue;
    const std::string& name = text(place_, *name_json);
    Operand result = Unknown{};
    if (kind == "as_sym_int") {
      result = size(
          member(place_, object(place_, *scopes_.back().graph, "sym_int_values"), name.c_str()));
    } else if (kind == "as_sym_bool" && target.starts_with("_operator.")) {
      const Json& inputs = array(place_, n, "inputs");
      static constexpr std::string_view kRelations[] = {"lt", "le", "gt", "ge", "eq", "ne"};
      for (const std::string_view relation : kRelations) {
        if (target.substr(10) != relation || inputs.size() != 2) continue;
        const Operand left = argument(member(place_, inputs[0], "arg"));
        const Operand right = argument(member(place_, inputs[1], "arg"));
        if (std::holds_alternative<Expr>(left) && std::holds_alternative<Expr>(right)) {
          result = Comparison{std::get<Expr>(left), std::get<Expr>(right), relation};
        }
      }
    }
    if (!scopes_.back().values.emplace(name, result).second) {
      place_.fail(fmt::format("\"{}\" is defined twice", name));
    }
  }
}

// What was asserted of sizes while exporting becomes a guard of the plan.
void GraphReader::check_assertion(const Json& n) {
  const Json& inputs = array(place_, n, "inputs");
  if (inputs.empty()) return;
  const Json& first = member(place_, inputs[0], "arg");
  if (find_member(first, "as_sym_bool") == nullptr) return;
  const Operand asserted = argument(first);
  const auto* c = std::get_if<Comparison>(&asserted);
  if (c == nullptr) return;
  sym::Context& context = graph_.context();
  bool holds = true;
  if (c->relation == "eq") holds = context.guard_equal(c->left, c->right);
  if (c->relation == "lt") holds = context.guard_less(c->left, c->right);
  if (c->relation == "le") holds = context.guard_less(c->left, c->right + 1);
  if (c->relation == "gt") holds = context.guard_less(c->right, c->left);
  if (c->relation == "ge") holds = context.guard_less(c->right, c->left + 1);
  if (!holds) place_.fail("the assertion does not hold for the sizes of the exported example");
}

void GraphReader::subgraph(const std::string& target, const Json& n) {
  const Json& inputs = array(place_, n, "inputs");
  if (!is_inlined(target)) unsupported("control flow");
  std::size_t at = 0;
  while (at < inputs.size() &&
         find_member(member(place_, inputs[at], "arg"), "as_graph") == nullptr) {
    ++at;
  }
  if (at == inputs.size()) place_.fail("a graph is missing among the arguments");
  if (target.ends_with("autocast")) {
    // (device, dtype, enabled, ..., graph, operands): the graph holds the ops before autocast.
    const Operand enabled =
        at > 2 ? argument(member(place_, inputs[2], "arg")) : Operand(graph::None{});
    if (!std::holds_alternative<bool>(enabled) || std::get<bool>(enabled)) {
      unsupported("autocast inside an exported program");
    }
  }
  if (scopes_.size() > kDepthLimit) place_.fail("graphs nested too deep");
  const Json& inner =
      object(place_, member(place_, member(place_, inputs[at], "arg"), "as_graph"), "graph");
  const Json& parameters = array(place_, inner, "inputs");
  if (parameters.size() != inputs.size() - at - 1) {
    place_.fail("the graph takes another number of arguments");
  }
  std::map<std::string, Operand> values;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto [kind, value] = union_value(place_, parameters[i]);
    const Json* name = find_member(*value, kind == "as_tensor" ? "name" : "as_name");
    if (name == nullptr) continue;
    values.emplace(text(place_, *name), argument(member(place_, inputs[at + 1 + i], "arg")));
  }
  scopes_.push_back({&inner, std::move(values)});
  nodes(inner);
  std::vector<Operand> results;
  for (const Json& o : array(place_, inner, "outputs")) {
    const Operand value = argument(o);
    if (const auto* list = std::get_if<TensorList>(&value)) {
      for (const auto& t : *list) results.push_back(t ? Operand(*t) : Operand(graph::None{}));
    } else {
      results.push_back(value);
    }
  }
  scopes_.pop_back();
  std::size_t r = 0;
  const auto give = [&](const Json& name) {
    if (r >= results.size()) place_.fail("the graph has fewer results than are named");
    if (!scopes_.back().values.emplace(text(place_, name), results[r++]).second) {
      place_.fail("a name is defined twice");
    }
  };
  for (const Json& output : array(place_, n, "outputs")) {
    const auto [kind, value] = union_value(place_, output);
    if (kind == "as_tensors") {
      if (!value->is_array()) place_.fail("\"as_tensors\" is not a list");
      for (const Json& t : *value) give(member(place_, t, "name"));
    } else if (kind == "as_tensor") {
      give(member(place_, *value, "name"));
    } else if (const Json* name = find_member(*value, "as_name")) {
      give(*name);
    } else {
      ++r;
    }
  }
}

Operand GraphReader::output(const Json& json) { return argument(json); }

void GraphReader::fix_strides(ValueId value, const Json& json) {
  const Json* tensor = find_member(json, "as_tensor");
  const Json* m = tensor == nullptr ? nullptr : meta(text(place_, member(place_, *tensor, "name")));
  if (m == nullptr || graph_.type(value).strides) return;
  const graph::Type wanted = type(*m);
  if (wanted.sizes.size() == graph_.type(value).sizes.size() && is_dense(wanted)) {
    graph_.type(value).strides = wanted.strides;
  }
}

}  // namespace inkle::frontend::pt2
