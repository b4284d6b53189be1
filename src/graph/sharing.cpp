// The contract of outputs about memory: what `verify` asks of one graph, and what the runner of
// passes asks of the graphs before and after a pass.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "graph/graph.h"
#include "graph/text.h"

namespace inkle::graph {
namespace {

bool same(Expr a, Expr b) { return a == b || sym::equal(a, b).value_or(false); }

bool same(const Sizes& a, const Sizes& b) {
  return std::ranges::equal(a, b, [](Expr x, Expr y) { return same(x, y); });
}

bool is_tensor(const Output& output) {
  const auto* v = std::get_if<ValueId>(&output.value);
  return v != nullptr && !v->is_none();
}

// By position among the inputs: values of two graphs have different numbers.
std::size_t argument_of(const Graph& graph, const Output& output) {
  const auto input = std::ranges::find(graph.inputs, output.argument, &Input::value);
  return static_cast<std::size_t>(input - graph.inputs.begin());
}

bool shares(const Graph& graph, std::size_t i, std::size_t j) {
  const Output& a = graph.outputs[i];
  const Output& b = graph.outputs[j];
  if (!is_tensor(a) || !is_tensor(b) || a.sharing != b.sharing) return false;
  if (a.sharing == Sharing::argument) return a.argument == b.argument;
  return a.sharing == Sharing::storage && a.storage == b.storage;
}

std::string place(const Graph& graph, const Output& output) {
  switch (output.sharing) {
    case Sharing::own:
      return "a storage of its own";
    case Sharing::argument:
      return "argument " + graph.inputs[argument_of(graph, output)].name;
    case Sharing::storage:
      return fmt::format("storage {}", output.storage);
    case Sharing::free:
      return "any storage";
  }
  INKLE_CHECK(false, "a sharing that is none");
}

bool same_place(const Graph& before, const Graph& after, std::size_t i) {
  const Output& a = before.outputs[i];
  const Output& b = after.outputs[i];
  if (a.sharing != b.sharing) return false;
  return a.sharing != Sharing::argument || argument_of(before, a) == argument_of(after, b);
}

std::string view_text(const Output& output) {
  return fmt::format("{} at {}", to_string(output.view, true), sym::to_string(output.offset));
}

bool same_view(const Output& a, const Output& b) {
  return a.view.dtype == b.view.dtype && same(a.view.sizes, b.view.sizes) &&
         same(*a.view.strides, *b.view.strides) && same(a.offset, b.offset);
}

std::string output_difference(const Graph& before, const Graph& after, std::size_t i) {
  const Output& a = before.outputs[i];
  const Output& b = after.outputs[i];
  if (is_tensor(a) != is_tensor(b)) return fmt::format("output {} is a tensor or is not", i);
  if (!is_tensor(a)) return {};
  if (!same_place(before, after, i)) {
    return fmt::format("output {} was in {} and is in {}", i, place(before, a), place(after, b));
  }
  if (!a.is_view()) return {};
  if (!same_view(a, b)) {
    return fmt::format("output {} was {} and is {}", i, view_text(a), view_text(b));
  }
  if (a.sharing != Sharing::storage) return {};
  const Type& was = before.type(std::get<ValueId>(a.value));
  const Type& is = after.type(std::get<ValueId>(b.value));
  // Strides of dimensions of size 1 mean nothing: the elements lie alike.
  if (is.strides && type_difference(was, is).empty()) return {};
  return fmt::format("what output {} is a view of was {} and is {}", i, to_string(was, true),
                     to_string(is, true));
}

// The offset of the last element; null where there is none.
Expr last_element(const Sizes& sizes, const Sizes& strides, Expr offset) {
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (!(sym::bounds(sizes[d]).low >= 1)) return {};
    offset = offset + (sizes[d] - 1) * strides[d];
  }
  return offset;
}

void verify_view(const Graph& graph, const Output& output, const std::string& where) {
  const Type& whole = graph.type(std::get<ValueId>(output.value));
  const Type& view = output.view;
  if (!view.strides || view.strides->size() != view.sizes.size() || output.offset.is_null()) {
    user_error("{}: a view without strides or offset", where);
  }
  if (view.dtype != whole.dtype || !(view.device == whole.device)) {
    user_error("{}: {} is a view of {}", where, to_string(view), to_string(whole));
  }
  if (output.sharing == Sharing::argument) return;  // its memory may be more than the argument is
  if (!whole.strides) user_error("{}: a view of a value without strides", where);
  const Expr zero = graph.context().constant(0);
  const Expr last = last_element(view.sizes, *view.strides, output.offset);
  const Expr end = last_element(whole.sizes, *whole.strides, zero);
  const bool is_outside =
      sym::bounds(output.offset).high < 0 ||
      (!last.is_null() && !end.is_null() && !sym::less_equal(last, end).value_or(true));
  if (is_outside) {
    user_error("{}: {} is no part of {}", where, view_text(output), to_string(whole, true));
  }
}

}  // namespace

const Type& output_type(const Graph& graph, const Output& output) {
  return output.is_view() ? output.view : graph.type(std::get<ValueId>(output.value));
}

std::string sharing_difference(const Graph& before, const Graph& after) {
  const std::size_t count = before.outputs.size();
  if (count != after.outputs.size()) {
    return fmt::format("{} outputs have become {}", count, after.outputs.size());
  }
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = i + 1; j < count; ++j) {
      const bool did = shares(before, i, j), does = shares(after, i, j);
      if (did && !does) return fmt::format("outputs {} and {} no longer share memory", i, j);
      if (does && !did) return fmt::format("outputs {} and {} have come to share memory", i, j);
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (std::string text = output_difference(before, after, i); !text.empty()) return text;
  }
  return {};
}

void verify_sharing(const Graph& graph) {
  std::map<std::uint32_t, ValueId> values;  // by storage
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const Output& output = graph.outputs[i];
    const std::string where = fmt::format("output {}", i);
    if (!output.is_view()) continue;
    if (!is_tensor(output)) user_error("{}: what is no tensor has no memory", where);
    const ValueId value = std::get<ValueId>(output.value);
    if (output.sharing == Sharing::storage) {
      const auto [known, is_new] = values.emplace(output.storage, value);
      if (!is_new && known->second != value) {
        user_error("{}: storage {} holds two values", where, output.storage);
      }
    } else {
      const std::size_t number = argument_of(graph, output);
      if (number == graph.inputs.size()) user_error("{}: it is in no argument", where);
      const Type& argument = graph.type(output.argument);
      const Type& whole = graph.type(value);
      if (argument.dtype != whole.dtype || !same(argument.sizes, whole.sizes)) {
        user_error("{}: {} is not all of argument {}", where, to_string(whole),
                   graph.inputs[number].name);
      }
    }
    verify_view(graph, output, where);
  }
}

}  // namespace inkle::graph
