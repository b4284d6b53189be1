// Calls of ops: arguments by position and name into a row's order, views as views, in-place ops as
// a functional op and a write.
#include <algorithm>

#include "base/error.h"
#include "frontend/pt2/graph_reader.h"
#include "graph/arguments.h"

namespace inkle::frontend::pt2 {
namespace {

// Keywords that change where or how memory is laid out, not what is computed; eager's strides of
// outputs come from the file.
bool is_memory_keyword(std::string_view name) {
  static constexpr std::string_view kNames[] = {"layout",        "pin_memory", "non_blocking",
                                                "memory_format", "device",     "implicit"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// The same size for all arguments, as far as can be seen: shown equal, or equal for the example.
bool same_size(Expr a, Expr b) {
  if (a == b) return true;
  if (const auto known = sym::equal(a, b)) return *known;
  const auto x = sym::hint(a);
  const auto y = sym::hint(b);
  return !x || !y || *x == *y;
}

}  // namespace

Argument GraphReader::read(const Operand& operand) {
  if (const auto* t = std::get_if<TensorId>(&operand)) return storages_.read(*t);
  if (const auto* list = std::get_if<TensorList>(&operand)) {
    std::vector<ValueId> values;
    for (const auto& t : *list) values.push_back(t ? storages_.read(*t) : ValueId{});
    return values;
  }
  return std::visit(
      [](const auto& value) -> Argument {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_constructible_v<Argument, const T&> && !std::is_same_v<T, TensorId>) {
          return value;
        } else {
          unsupported("an argument that is a condition on sizes");
        }
      },
      operand);
}

std::vector<Argument> GraphReader::row_arguments(const Call& call, const graph::OpDef& row) {
  const graph::Schema& schema = graph_.table().schema(row);
  std::vector<std::optional<Argument>> given(schema.params.size());
  for (std::size_t i = 0; i < call.args.size(); ++i) {
    const Call::Named& a = call.args[i];
    std::size_t at = i;
    if (a.is_keyword) {
      at = 0;
      while (at < schema.params.size() && schema.params[at].name != a.name) ++at;
      if (at == schema.params.size() && is_memory_keyword(a.name)) continue;
    }
    if (at >= schema.params.size()) {
      unsupported("the argument \"{}\" of {}", a.name, call.overload);
    }
    if (given[at]) place_.fail(fmt::format("the argument \"{}\" is given twice", a.name));
    given[at] = read(a.operand);
  }
  std::vector<Argument> args;
  std::size_t last = given.size();
  while (last > 0 && !given[last - 1]) --last;
  for (std::size_t i = 0; i < last; ++i) {
    if (!given[i] && !schema.params[i].has_default) {
      place_.fail(fmt::format("the argument \"{}\" is missing", schema.params[i].name));
    }
    args.push_back(given[i] ? *given[i]
                            : graph::default_argument(schema.params[i], graph_.context()));
  }
  return args;
}

void GraphReader::check_result(ValueId value, const std::string& name) {
  const Json* m = name.empty() ? nullptr : meta(name);
  if (m == nullptr) return;
  const graph::Type stated = type(*m);
  const graph::Type& inferred = graph_.type(value);
  bool agrees = stated.dtype == inferred.dtype && stated.sizes.size() == inferred.sizes.size();
  for (std::size_t d = 0; agrees && d < stated.sizes.size(); ++d) {
    agrees = same_size(stated.sizes[d], inferred.sizes[d]);
  }
  if (!agrees) {
    place_.fail(fmt::format("\"{}\" is stated to be {}, the op gives {}", name,
                            graph::to_string(stated), graph::to_string(inferred)));
  }
}

TensorId GraphReader::tensor(const Call& call, std::size_t position, std::string_view name) const {
  const Operand* operand = call.find(position, name);
  const auto* found = operand == nullptr ? nullptr : std::get_if<TensorId>(operand);
  if (found == nullptr) place_.fail(fmt::format("the argument \"{}\" is no tensor", name));
  return *found;
}

const graph::Type& GraphReader::type_of(TensorId tensor) {
  return builder_.type(storages_.read(tensor));
}

std::vector<TensorId> GraphReader::call(const Call& c) {
  if (const Composite* composite = find_composite(c.overload))
    return (this->*composite->handler)(c);
  const graph::OpDef* row = graph_.table().find_aten(c.overload);
  if (row != nullptr && !graph::has(row->traits, graph::Trait::effect)) return native(c, *row);
  return in_place(c);
}

std::vector<TensorId> GraphReader::native(const Call& c, const graph::OpDef& row) {
  const std::vector<ValueId> results = builder_.nodes(row.name, row_arguments(c, row));
  for (std::size_t r = 0; r < results.size() && r < c.outputs.size(); ++r) {
    check_result(results[r], c.outputs[r]);
  }
  const ViewKind kind = view_kind(c.base);
  const Operand* first = c.find(0, "self");
  const auto* viewed = first == nullptr ? nullptr : std::get_if<TensorId>(first);
  if (kind != ViewKind::none && viewed != nullptr) {
    return storages_.view(*viewed, c.base, row, graph_.nodes.back().args, results);
  }
  std::vector<TensorId> made;
  for (const ValueId v : results) made.push_back(storages_.make(v));
  return made;
}

std::vector<TensorId> GraphReader::in_place(const Call& c) {
  if (!c.base.ends_with('_')) unsupported("there is no code for {}", c.overload);
  Call functional = c;
  functional.overload.erase(functional.overload.find("::") + 1 + c.base.size(), 1);
  functional.base.pop_back();
  functional.outputs.clear();
  const TensorId target = tensor(c, 0, "self");
  const std::vector<TensorId> results = call(functional);
  INKLE_CHECK(!results.empty(), "{} has no result", functional.overload);
  ValueId value = storages_.read(results[0]);
  const graph::Type written = type_of(target);
  if (builder_.type(value).dtype != written.dtype) {
    value = builder_.node("to_dtype", {value, written.dtype});
  }
  const graph::Sizes& sizes = builder_.type(value).sizes;
  if (sizes.size() != written.sizes.size() ||
      !std::equal(sizes.begin(), sizes.end(), written.sizes.begin(), same_size)) {
    place_.fail("an in-place op changes the sizes of its tensor");
  }
  storages_.write(target, value);
  return {target};
}

}  // namespace inkle::frontend::pt2
