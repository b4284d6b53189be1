#include "python/partition.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "graph/text.h"
#include "ops/table.h"

namespace inkle::python {
namespace {

namespace nb = nanobind;
using graph::Argument;
using graph::Graph;
using graph::Type;
using graph::ValueId;
using sym::Expr;

// An integer, or an expression.
nb::object expr_object(Expr e) {
  if (const auto value = e.constant()) return nb::int_(*value);
  return nb::cast(e);
}

nb::list exprs_list(const std::vector<Expr>& list) {
  nb::list result;
  for (const Expr e : list) result.append(expr_object(e));
  return result;
}

nb::tuple device_tuple(const abi::Device& device) {
  return nb::make_tuple(device.kind == abi::DeviceKind::cuda ? "cuda" : "cpu", device.index);
}

nb::object value_object(ValueId v) { return v.is_none() ? nb::none() : nb::cast(v); }

// Dtypes and devices are tuples, ("dtype", name) and ("device", kind, index).
struct ToObject {
  nb::object operator()(const graph::None&) const { return nb::none(); }
  nb::object operator()(ValueId v) const { return value_object(v); }
  nb::object operator()(Expr e) const { return expr_object(e); }
  nb::object operator()(double d) const { return nb::float_(d); }
  nb::object operator()(bool b) const { return nb::bool_(b); }
  nb::object operator()(const std::string& s) const { return nb::str(s.c_str(), s.size()); }
  nb::object operator()(abi::DType d) const {
    return nb::make_tuple("dtype", std::string(abi::name_of(d)));
  }
  nb::object operator()(const abi::Device& d) const {
    const nb::tuple device = device_tuple(d);
    return nb::make_tuple("device", device[0], device[1]);
  }
  template <class T>
  nb::object operator()(const std::vector<T>& list) const {
    nb::list result;
    for (const auto& item : list) result.append((*this)(static_cast<T>(item)));
    return result;
  }
};

// (position among the inputs or None, type, source, result)
nb::list kept_list(const Partition& partition) {
  nb::list result;
  for (const partition::Kept& kept : partition.graphs.kept) {
    nb::object input = nb::none();
    if (kept.input != partition::Kept::kComputed) input = nb::int_(kept.input);
    result.append(nb::make_tuple(input, type_object(partition.graphs.forward.type(kept.in_forward)),
                                 kept.source, kept.result));
  }
  return result;
}

nb::list stage_list(const Partition& partition) {
  nb::list result;
  for (const auto& s : partition.stages) result.append(nb::make_tuple(s.stage, s.seconds));
  return result;
}

const Graph& graph_of(const Partition& partition, bool is_backward) {
  return is_backward ? partition.graphs.backward : partition.graphs.forward;
}

// Of each input its value, or its symbol.
nb::list inputs_of(const Partition& partition, bool is_backward) {
  nb::list result;
  for (const graph::Input& input : graph_of(partition, is_backward).inputs) {
    result.append(input.value.is_none() ? nb::cast(input.symbol) : value_object(input.value));
  }
  return result;
}

// Of each input its type; None of an integer.
nb::list input_types_of(const Partition& partition, bool is_backward) {
  const Graph& graph = graph_of(partition, is_backward);
  nb::list result;
  for (const graph::Input& input : graph.inputs) {
    result.append(input.value.is_none() ? nb::none() : type_object(graph.type(input.value)));
  }
  return result;
}

// (value, type, bytes)
nb::list literals_of(const Partition& partition, bool is_backward) {
  const Graph& graph = graph_of(partition, is_backward);
  nb::list result;
  for (const auto& [value, data] : graph.constants) {
    const nb::bytes bytes(reinterpret_cast<const char*>(data.bytes->data()), data.bytes->size());
    result.append(nb::make_tuple(value_object(value), type_object(graph.type(value)), bytes));
  }
  return result;
}

// (ATen overloads that mean the op, number of its call to eager or None, arguments, results, their
// types)
nb::list nodes_of(const Partition& partition, bool is_backward) {
  const Graph& graph = graph_of(partition, is_backward);
  nb::list result;
  for (const graph::Node& node : graph.nodes) {
    nb::list arguments, results, types;
    for (const Argument& a : node.args) arguments.append(std::visit(ToObject{}, a));
    for (const ValueId v : node.results) {
      results.append(value_object(v));
      types.append(type_object(graph.type(v)));
    }
    nb::object target = nb::none();
    if (node.eager_target) target = nb::int_(*node.eager_target);
    result.append(nb::make_tuple(std::string(node.op->aten), target, arguments, results, types));
  }
  return result;
}

std::vector<std::string> eager_sources(const Partition& partition, bool is_backward) {
  std::vector<std::string> sources;
  for (const graph::Node& node : graph_of(partition, is_backward).nodes) {
    if (node.eager_target) sources.push_back(node.source);
  }
  return sources;
}

std::vector<std::uint32_t> eager_targets(const Partition& partition, bool is_backward) {
  std::vector<std::uint32_t> targets;
  for (const graph::Node& node : graph_of(partition, is_backward).nodes) {
    if (node.eager_target) targets.push_back(*node.eager_target);
  }
  return targets;
}

nb::object memory_of(const graph::Output& output) {
  switch (output.sharing) {
    case graph::Sharing::own:
      return nb::str("own");
    case graph::Sharing::free:
      return nb::str("free");
    case graph::Sharing::argument:
      return nb::make_tuple(nb::cast(output.argument), expr_object(output.offset));
    case graph::Sharing::storage:
      return nb::make_tuple(nb::int_(output.storage), expr_object(output.offset));
  }
  return nb::none();
}

// (value, integer or None; type; memory: "own", "free", or (the argument's value or the number of
// the storage, offset) of a view of the value)
nb::list outputs_of(const Partition& partition, bool is_backward) {
  const Graph& graph = graph_of(partition, is_backward);
  nb::list result;
  for (const graph::Output& output : graph.outputs) {
    nb::object value = nb::none(), type = nb::none();
    if (const auto* v = std::get_if<ValueId>(&output.value); v != nullptr && !v->is_none()) {
      value = nb::cast(*v);
      type = type_object(graph::output_type(graph, output));
    } else if (const auto* e = std::get_if<Expr>(&output.value)) {
      value = expr_object(*e);
    }
    result.append(nb::make_tuple(value, type, memory_of(output)));
  }
  return result;
}

// A whole program in place of a forward, to be run in eager.
std::shared_ptr<Partition> partition_of_text(const std::string& text) {
  Graph graph = graph::parse(text, "text", ops::op_table());
  Graph none(graph.shared_context(), ops::op_table());
  return std::make_shared<Partition>(
      Partition{{std::move(graph), std::move(none), {}, {}, 0, 0}, {}});
}

bool set_strides(Partition& partition, std::size_t i, const nb::sequence& list) {
  graph::Sizes strides;
  for (const nb::handle h : list) {
    strides.push_back(nb::isinstance<Expr>(h)
                          ? nb::cast<Expr>(h)
                          : partition.graphs.forward.context().constant(nb::cast<std::int64_t>(h)));
  }
  return partition.graphs.set_strides(i, strides);
}

}  // namespace

nb::object type_object(const Type& type) {
  nb::object strides = nb::none();
  if (type.strides) strides = exprs_list(*type.strides);
  return nb::make_tuple(std::string(abi::name_of(type.dtype)), exprs_list(type.sizes), strides,
                        device_tuple(type.device));
}

void bind_cut(nb::module_& m) {
  nb::class_<Partition>(m, "Partition")
      .def_static("of_text", partition_of_text)
      .def_prop_ro("kept", kept_list)
      .def_prop_ro("symbols", [](const Partition& c) { return c.graphs.symbols; })
      .def_prop_ro("bytes", [](const Partition& c) { return c.graphs.bytes; })
      .def_prop_ro("stages", stage_list)
      .def("settle_strides", [](Partition& c) { c.graphs.settle_strides(); })
      .def("set_strides", set_strides)
      .def("inputs", inputs_of)
      .def("input_types", input_types_of)
      .def("literals", literals_of)
      .def("nodes", nodes_of)
      .def("eager_sources", eager_sources)
      .def("eager_targets", eager_targets)
      .def("outputs", outputs_of);
}

}  // namespace inkle::python
