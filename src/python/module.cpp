// The extension module inkle._inkle: expressions, the importer, the compiler and compiled programs.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "base/unsupported.h"
#include "driver/pipeline.h"
#include "driver/stored.h"
#include "frontend/torch/importer.h"
#include "graph/text.h"
#include "kernel/passes.h"
#include "ops/exact.h"
#include "ops/table.h"
#include "passes/pipeline.h"
#include "python/inspect.h"
#include "python/partition.h"
#include "python/program.h"
#include "python/torch_callable.h"
#include "python/torch_tensor.h"
#include "runtime/common/errors.h"
#include "schedule/nest_passes.h"

namespace inkle::python {
namespace {

using frontend::torch::Importer;
using graph::Argument;
using graph::Type;
using graph::ValueId;
using sym::Expr;

struct DTypeName {
  abi::DType dtype;
};

abi::DType dtype(const std::string& name) {
  return abi::dtype_from_name(name).value_or(abi::DType::opaque);
}

Expr to_expr(Importer& importer, nb::handle h) {
  if (nb::isinstance<Expr>(h)) return nb::cast<Expr>(h);
  std::int64_t number = 0;
  if (!nb::try_cast(h, number)) {
    unsupported("the integer {} has more than 64 bits", nb::str(h).c_str());
  }
  return importer.context().constant(number);
}

std::vector<Expr> to_exprs(Importer& importer, const nb::sequence& list) {
  std::vector<Expr> result;
  for (const nb::handle h : list) result.push_back(to_expr(importer, h));
  return result;
}

bool is_integer(nb::handle h) { return nb::isinstance<Expr>(h) || nb::isinstance<nb::int_>(h); }

Argument to_argument(Importer& importer, nb::handle h);

Argument list_argument(Importer& importer, nb::handle h) {
  const auto list = nb::cast<nb::sequence>(h);
  bool tensors = false;
  bool booleans = true;
  bool integers = true;
  for (const nb::handle e : list) {
    tensors = tensors || nb::isinstance<ValueId>(e);
    booleans = booleans && nb::isinstance<nb::bool_>(e);
    integers = integers && is_integer(e) && !nb::isinstance<nb::bool_>(e);
  }
  if (tensors) {
    std::vector<ValueId> values;
    for (const nb::handle e : list)
      values.push_back(e.is_none() ? ValueId{} : nb::cast<ValueId>(e));
    return values;
  }
  if (integers) return to_exprs(importer, list);
  if (booleans) return nb::cast<std::vector<bool>>(h);
  return nb::cast<std::vector<double>>(h);
}

// Inside of a handler: raises the error as an exception of this type whose attribute `nodes` are
// pairs of a node's source and the reason; without any, the next handler takes it.
template <class Kind>
void raise_with_nodes(nb::handle type, const Kind& error) {
  const auto* at = dynamic_cast<const ErrorAt<Kind>*>(&error);
  if (at == nullptr) throw;
  nb::object raised = type(error.what());
  nb::list nodes;
  for (const NodeFault& fault : at->nodes()) nodes.append(nb::make_tuple(fault.node, fault.why));
  raised.attr("nodes") = nodes;
  PyErr_SetObject(type.ptr(), raised.ptr());
}

// Python's value of one argument; bool before int, since it is one.
Argument to_argument(Importer& importer, nb::handle h) {
  if (h.is_none()) return graph::None{};
  if (nb::isinstance<ValueId>(h)) return nb::cast<ValueId>(h);
  if (nb::isinstance<nb::bool_>(h)) return nb::cast<bool>(h);
  if (is_integer(h)) return to_expr(importer, h);
  if (nb::isinstance<nb::float_>(h)) return nb::cast<double>(h);
  if (nb::isinstance<nb::str>(h)) return nb::cast<std::string>(h);
  if (nb::isinstance<DTypeName>(h)) return nb::cast<DTypeName>(h).dtype;
  if (nb::isinstance<abi::Device>(h)) return nb::cast<abi::Device>(h);
  if (nb::isinstance<nb::list>(h) || nb::isinstance<nb::tuple>(h)) {
    return list_argument(importer, h);
  }
  unsupported("an argument of Python type {}",
              nb::cast<std::string>(nb::str(nb::handle(h.type()).attr("__name__"))));
}

// (dtype name, sizes, strides or None, device) -> type.
Type to_type(Importer& importer, nb::handle h) {
  const auto t = nb::cast<nb::tuple>(h);
  Type type;
  type.dtype = dtype(nb::cast<std::string>(t[0]));
  type.sizes = to_exprs(importer, nb::cast<nb::sequence>(t[1]));
  if (!t[2].is_none()) type.strides = to_exprs(importer, nb::cast<nb::sequence>(t[2]));
  type.device = nb::cast<abi::Device>(t[3]);
  return type;
}

std::vector<ValueId> call(Importer& importer, const std::string& overload, const nb::list& args,
                          const std::string& source, const nb::list& meta, std::uint32_t target,
                          const std::string& force_eager) {
  std::vector<Argument> arguments;
  for (const nb::handle h : args) arguments.push_back(to_argument(importer, h));
  std::vector<Type> types;
  for (const nb::handle h : meta) types.push_back(to_type(importer, h));
  return importer.call(overload, std::move(arguments), source, types, target, force_eager);
}

nb::dict report_dict(const driver::Report& report) {
  nb::dict result;
  nb::list stages;
  for (const auto& s : report.stages) stages.append(nb::make_tuple(s.stage, s.seconds));
  result["stages"] = stages;
  nb::list steps;
  for (const auto& s : report.steps) {
    nb::dict step;
    step["kind"] = s.kind;
    step["label"] = s.label;
    step["source"] = s.source;
    step["kernel"] = s.kernel;
    steps.append(step);
  }
  result["steps"] = steps;
  result["schedules"] = nb::cast(report.schedules);
  result["kernels"] = report.kernels;
  result["kernels_reused"] = report.kernels_reused;
  result["launches"] = report.launches;
  result["library_calls"] = report.library_calls;
  result["bytes_moved"] = report.bytes_moved;
  result["bytes_lower_bound"] = report.bytes_lower_bound;
  result["eager"] = nb::cast(report.eager);
  result["optional_passes"] = nb::cast(report.optional_passes);
  nb::list not_held;
  for (const auto& op : report.not_held) {
    not_held.append(nb::make_tuple(op.op, op.source, op.reason));
  }
  result["not_held"] = not_held;
  return result;
}

struct Options {
  bool training = false;
  std::string numerics = "eager";
  bool cache = true;
  bool freeze = false;
  bool tune = false;
  bool deterministic = false;
  std::string fail_stage;
  std::size_t pass_limit = PassLimit::kAll;
  nb::object dump = nb::none();
};

driver::CompileOptions compile_options(const Options& options) {
  driver::CompileOptions o;
  o.training = options.training;
  const auto numerics = abi::numerics_named(options.numerics);
  if (!numerics) user_error("there are no numerics '{}'", options.numerics);
  o.numerics = *numerics;
  o.cache = options.cache;
  o.fail_stage = options.fail_stage;
  o.pass_limit = options.pass_limit;
  o.passes.freeze = options.freeze;
  o.tune = options.tune;
  o.deterministic = options.deterministic;
  o.wait_with = [](const std::function<void()>& wait) {
    const nb::gil_scoped_release released;
    wait();
  };
  if (!options.dump.is_none()) {
    o.dump = [dump = options.dump](std::string_view stage, const std::string& text) {
      dump(nb::str(stage.data(), stage.size()), text);
    };
  }
  return o;
}

// (the program as Python calls it, its report)
nb::tuple loaded(const driver::Compiler& compiler, driver::Compiled compiled,
                 const nb::list& targets, const nb::object& as_strided) {
  auto callable = std::make_shared<TorchCallable>(compiler.load(compiled), compiler.location(),
                                                  targets, as_strided);
  const nb::dict report = report_dict(compiled.report);
  if (driver::can_store(compiled)) {
    callable->is_small = driver::has_few_constants(compiled);
    callable->store = [maker = driver::maker_of(compiler.target()), kept = std::move(compiled)] {
      return driver::store(kept, maker);
    };
  }
  return nb::make_tuple(callable, report);
}

nb::tuple restore(const driver::Compiler& compiler, const nb::bytes& bytes, const nb::list& targets,
                  const nb::object& as_strided) {
  const auto* first = static_cast<const std::byte*>(bytes.data());
  driver::Compiled compiled = compiler.restore({first, first + bytes.size()});
  const std::string graph = compiled.graph;
  const nb::tuple made = loaded(compiler, std::move(compiled), targets, as_strided);
  return nb::make_tuple(made[0], made[1], graph);
}

// None where it cannot be stored, or has more constants than caches keep and is not
// `with_constants`.
nb::object stored(const TorchCallable& callable, bool with_constants) {
  if (!callable.store || !(with_constants || callable.is_small)) return nb::none();
  const std::vector<std::byte> bytes = callable.store();
  return nb::bytes(bytes.data(), bytes.size());
}

nb::tuple compile_graph(driver::Compiler& compiler, graph::Graph graph, const Options& options,
                        const nb::list& targets, const nb::object& as_strided) {
  return loaded(compiler, compiler.compile(std::move(graph), compile_options(options)), targets,
                as_strided);
}

nb::tuple compile(driver::Compiler& compiler, Importer& importer, const Options& options,
                  const nb::list& targets, const nb::object& as_strided) {
  return compile_graph(compiler, importer.take(), options, targets, as_strided);
}

using partition::TrainingGraphs;

// The host's kernels for decomposed attention; see LibraryAttention.
std::optional<passes::AttentionCalls> attention_calls(Importer& importer, const nb::object& host,
                                                      const passes::AttentionRequest& request) {
  nb::list tensors;
  for (const auto* type : {&request.query, &request.key, &request.value, &request.grad}) {
    tensors.append(type_object(*type));
  }
  const nb::object bias = request.bias ? type_object(*request.bias) : nb::none();
  const nb::object answer = host(tensors, bias, request.is_causal, request.dropout, request.scale,
                                 nb::make_tuple(request.forward_source, request.backward_source));
  if (answer.is_none()) return std::nullopt;
  const auto types = [&](nb::handle list) {
    std::vector<Type> made;
    for (const nb::handle h : nb::cast<nb::list>(list)) made.push_back(to_type(importer, h));
    return made;
  };
  const auto given = nb::cast<nb::tuple>(answer);
  return passes::AttentionCalls{.name = nb::cast<std::string>(given[0]),
                                .forward = nb::cast<std::uint32_t>(given[1]),
                                .backward = nb::cast<std::uint32_t>(given[2]),
                                .results = types(given[3]),
                                .gradients = types(given[4])};
}

// `tangents`, `written`, `fixed`, `saved_inputs`: of each input of the importer, in order;
// `saved_outputs`: of each output of the forward; `tangent_outputs`: of each input, the output that
// it is the tangent of, or -1; `pure_calls`: of each call to eager, by number, whether its op
// neither draws nor writes.
std::shared_ptr<Partition> partition(const driver::Compiler& compiler, Importer& importer,
                                     const Options& options, std::size_t forward_outputs,
                                     std::vector<bool> tangents, std::vector<bool> written,
                                     std::vector<bool> fixed, std::vector<bool> saved_inputs,
                                     std::vector<bool> saved_outputs,
                                     std::vector<std::int32_t> tangent_outputs,
                                     std::vector<bool> pure_calls, std::int64_t most_bytes,
                                     bool by_bytes, const nb::object& attention) {
  const partition::Joint info{.forward_outputs = forward_outputs,
                              .is_tangent = std::move(tangents),
                              .is_written = std::move(written),
                              .is_static = std::move(fixed),
                              .is_saved_input = std::move(saved_inputs),
                              .is_saved_output = std::move(saved_outputs),
                              .output_of_tangent = std::move(tangent_outputs),
                              .is_pure_call = std::move(pure_calls),
                              .most_bytes = most_bytes};
  std::vector<driver::StageTime> stages;
  const auto weigh = by_bytes ? partition::Weigh::bytes : partition::Weigh::time;
  driver::CompileOptions how = compile_options(options);
  if (!attention.is_none()) {
    how.passes.attention = [&](const passes::AttentionRequest& request) {
      return attention_calls(importer, attention, request);
    };
  }
  TrainingGraphs graphs = compiler.partition(importer.take(), info, weigh, how, stages);
  return std::make_shared<Partition>(Partition{std::move(graphs), std::move(stages)});
}

// The same for forward and backward; what makes views of the results of each.
nb::tuple compile_training(driver::Compiler& compiler, const Partition& partition,
                           const Options& options, const nb::list& targets,
                           const nb::object& of_results, const nb::object& of_gradients) {
  auto both = compiler.compile(partition.graphs.forward, partition.graphs.backward,
                               compile_options(options));
  return nb::make_tuple(loaded(compiler, std::move(both.first), targets, of_results),
                        loaded(compiler, std::move(both.second), targets, of_gradients));
}

void bind_expressions(nb::module_& m) {
  nb::class_<Expr>(m, "Expr")
      .def("__add__", [](Expr a, Expr b) { return a + b; })
      .def("__add__", [](Expr a, std::int64_t b) { return a + b; })
      .def("__mul__", [](Expr a, Expr b) { return a * b; })
      .def("__mul__", [](Expr a, std::int64_t b) { return a * b; })
      .def("__floordiv__", [](Expr a, Expr b) { return sym::floordiv(a, b); })
      .def("__mod__", [](Expr a, Expr b) { return sym::mod(a, b); })
      .def("minimum", [](Expr a, Expr b) { return sym::min(a, b); })
      .def("maximum", [](Expr a, Expr b) { return sym::max(a, b); })
      .def("__str__", [](Expr a) { return sym::to_string(a); });
}

void bind_importer(nb::module_& m) {
  nb::class_<ValueId>(m, "Value").def_ro("index", &ValueId::index);
  nb::class_<DTypeName>(m, "DType").def("__init__", [](DTypeName* self, const std::string& name) {
    new (self) DTypeName{dtype(name)};
  });
  nb::class_<abi::Device>(m, "Device")
      .def("__init__", [](abi::Device* self, bool cuda, std::int32_t index) {
        new (self) abi::Device{cuda ? abi::DeviceKind::cuda : abi::DeviceKind::cpu, index};
      });
  nb::class_<Importer>(m, "Importer")
      .def(nb::init<std::string>())
      .def("symbol", &Importer::symbol, nb::arg("name"), nb::arg("low"), nb::arg("high"),
           nb::arg("hint").none())
      .def("constant", [](Importer& i, std::int64_t v) { return i.context().constant(v); })
      .def("input",
           [](Importer& i, std::string name, nb::handle type, bool is_parameter) {
             return i.input(std::move(name), to_type(i, type), is_parameter);
           })
      .def("integer_input", &Importer::integer_input)
      .def("literal",
           [](Importer& i, nb::handle type, nb::handle tensor) {
             if (!is_tensor(tensor.ptr())) throw nb::type_error("literal: a tensor is needed");
             const abi::TensorView view = borrow(tensor.ptr());
             std::int64_t bytes = abi::size_of(view.dtype);
             for (std::int32_t d = 0; d < view.rank; ++d) bytes *= view.sizes[d];
             const auto* begin = static_cast<const std::byte*>(view.data);
             return i.literal(to_type(i, type), {begin, begin + bytes});
           })
      .def("call", call)
      .def("set_bitwise", &Importer::set_bitwise)
      .def("set_keep", [](Importer& i, int keep) { i.set_keep(static_cast<graph::Keep>(keep)); })
      .def(
          "output", [](Importer& i, ValueId v, bool is_free) { i.output(v, is_free); },
          nb::arg("value"), nb::arg("is_free") = false)
      .def("output_view",
           [](Importer& i, ValueId v, nb::handle view, nb::handle offset, nb::handle memory) {
             const bool is_argument = nb::isinstance<ValueId>(memory);
             i.output_view(v, to_type(i, view), to_expr(i, offset),
                           is_argument ? nb::cast<ValueId>(memory) : ValueId{},
                           is_argument ? 0 : nb::cast<std::uint32_t>(memory));
           })
      .def("output", [](Importer& i, Expr e) { i.output(e); })
      .def("output_as", [](Importer& i, ValueId v,
                           nb::sequence strides) { return i.output_as(v, to_exprs(i, strides)); })
      .def("output_none", &Importer::output_none)
      .def_prop_ro("eager_targets", [](const Importer& i) { return i.eager_targets(); })
      .def_prop_ro("eager", [](const Importer& i) {
        nb::list result;
        for (const auto& e : i.eager()) result.append(nb::make_tuple(e.op, e.source, e.reason));
        return result;
      });
}

// Programs stand in cycles: each knows what runs in its place, which knows the report of the
// program, which knows the program. The attributes that Python code gives a program are looked at
// here, too, since nanobind leaves all to a class that has slots of its own.
PyObject** attributes_of(PyObject* self) {
  return reinterpret_cast<PyObject**>(reinterpret_cast<std::byte*>(self) +
                                      Py_TYPE(self)->tp_dictoffset);
}

int traverse_callable(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(*attributes_of(self));
  if (!nb::inst_ready(self)) return 0;
  return nb::inst_ptr<TorchCallable>(self)->traverse(visit, arg);
}

int clear_callable(PyObject* self) {
  Py_CLEAR(*attributes_of(self));
  if (nb::inst_ready(self)) nb::inst_ptr<TorchCallable>(self)->drop_references();
  return 0;
}

const PyType_Slot kCallableSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_callable)},
                                      {Py_tp_clear, reinterpret_cast<void*>(clear_callable)},
                                      {0, nullptr}};

void bind_compiler(nb::module_& m) {
  nb::class_<Options>(m, "Options")
      .def(nb::init<>())
      .def_rw("training", &Options::training)
      .def_rw("numerics", &Options::numerics)
      .def_rw("cache", &Options::cache)
      .def_rw("freeze", &Options::freeze)
      .def_rw("tune", &Options::tune)
      .def_rw("deterministic", &Options::deterministic)
      .def_rw("fail_stage", &Options::fail_stage)
      .def_rw("pass_limit", &Options::pass_limit)
      .def_rw("dump", &Options::dump, nb::arg().none());
  nb::class_<driver::Compiler>(m, "Compiler")
      .def(nb::init<>())
      .def_static(
          "cuda",
          [](std::int32_t index) {
            return new driver::Compiler(driver::make_cuda_target(index));  // owned by Python
          },
          nb::rv_policy::take_ownership)
      .def_static(
          "null",
          [](const std::string& architecture) {
            return new driver::Compiler(driver::make_null_target(architecture));
          },
          nb::rv_policy::take_ownership)
      .def_prop_ro("device", [](const driver::Compiler& c) { return c.device().name; })
      .def("warm_up", &driver::Compiler::warm_up, nb::call_guard<nb::gil_scoped_release>())
      .def("warm_up_libraries", &driver::Compiler::warm_up_libraries, nb::arg("convolutions"),
           nb::call_guard<nb::gil_scoped_release>())
      .def("settle", &driver::Compiler::settle, nb::call_guard<nb::gil_scoped_release>())
      .def("compile", compile)
      .def("identity", [](const driver::Compiler& c,
                          const Options& options) { return c.identity(compile_options(options)); })
      .def("restore", restore)
      .def("partition", partition, nb::arg("importer"), nb::arg("options"),
           nb::arg("forward_outputs"), nb::arg("tangents"), nb::arg("written"), nb::arg("fixed"),
           nb::arg("saved_inputs"), nb::arg("saved_outputs"), nb::arg("tangent_outputs"),
           nb::arg("pure_calls"), nb::arg("most_bytes"), nb::arg("by_bytes"),
           nb::arg("attention").none() = nb::none())
      .def("compile_training", compile_training);
  nb::class_<TorchCallable>(m, "TorchCallable", nb::dynamic_attr(), nb::is_weak_referenceable(),
                            nb::type_slots(kCallableSlots))
      .def("__call__", &TorchCallable::call)
      .def("set_frozen", &TorchCallable::set_frozen, nb::arg("objects"),
           nb::arg("otherwise").none())
      .def("set_fallback", &TorchCallable::set_fallback, nb::arg("otherwise").none(),
           nb::arg("writes_in_eager") = false)
      .def_rw("fails", &TorchCallable::fails)
      .def_rw("donates_arguments", &TorchCallable::donates_arguments)
      .def("set_repeats", &TorchCallable::set_repeats)
      .def("set_views", &TorchCallable::set_views)
      .def("set_conditions", &TorchCallable::set_conditions)
      .def("use_graphs", &TorchCallable::use_graphs, nb::arg("why_not") = "")
      .def_prop_ro("graphs", &TorchCallable::graph_report)
      .def("stored", stored, nb::arg("with_constants") = false)
      .def("profile", &TorchCallable::profile)
      .def("time_replay", &TorchCallable::time_replay)
      .def_prop_ro("plan", [](const TorchCallable& c) { return abi::to_string(c.plan()); })
      .def_prop_ro("kernel_texts",
                   [](const TorchCallable& c) {
                     std::vector<std::string> texts;
                     for (const auto& k : c.plan().kernels) texts.push_back(k.text);
                     return texts;
                   })
      .def_prop_ro("memory", [](const TorchCallable& c) {
        const auto report = c.executable().memory();
        nb::dict d;
        d["arena"] = report.arena_bytes;
        d["scratch"] = report.scratch_bytes;
        d["packed_weights"] = report.packed_weight_bytes;
        d["prepared"] = report.prepared_bytes;
        return d;
      });
}

// (address, dtype, device kind, device index, sizes, strides)
nb::tuple described(const abi::TensorView& v) {
  const auto rank = static_cast<std::size_t>(v.rank);
  return nb::make_tuple(reinterpret_cast<std::uintptr_t>(v.data),
                        std::string(abi::name_of(v.dtype)), static_cast<int>(v.device.kind),
                        v.device.index, std::vector<std::int64_t>(v.sizes, v.sizes + rank),
                        std::vector<std::int64_t>(v.strides, v.strides + rank));
}

// For tests: what a call finds out about a tensor, in both ways; the short one gives None where it
// cannot be gone.
void bind_reading(nb::module_& m) {
  const auto check = [](nb::handle tensor) {
    if (!is_tensor(tensor.ptr())) throw nb::type_error("a tensor is needed");
  };
  m.def("read_tensor", [check](nb::handle tensor) {
    check(tensor);
    return described(borrow(tensor.ptr()));
  });
  m.def("read_tensor_by_exchange", [check](nb::handle tensor) {
    check(tensor);
    return described(borrow_by_exchange(tensor.ptr()));
  });
  m.def("read_tensor_directly", [check](nb::handle tensor) {
    check(tensor);
    abi::TensorView view;
    return borrow_directly(tensor.ptr(), view) ? nb::object(described(view)) : nb::none();
  });
}

}  // namespace

NB_MODULE(_inkle, m) {
  nb::set_leak_warnings(false);
  m.doc() = "Inkle's compiler and runtime.";
  // Eager raises RuntimeError or ValueError for most wrong programs, IndexError or RuntimeError for
  // an index out of range; what is caught there is caught here.
  static nb::exception<UserError> user_error(
      m, "UserError", nb::make_tuple(nb::handle(PyExc_ValueError), nb::handle(PyExc_RuntimeError)));
  static nb::exception<runtime::common::WrongArgument> wrong_argument(m, "WrongArgument",
                                                                      user_error);
  static nb::exception<runtime::common::OutOfRange> out_of_range(
      m, "OutOfRange", nb::make_tuple(user_error, nb::handle(PyExc_IndexError)));
  static nb::exception<Unsupported> unsupported(m, "Unsupported", PyExc_NotImplementedError);
  static nb::exception<InternalError> internal_error(m, "InternalError", PyExc_RuntimeError);
  // Errors that name nodes of the program have them as an attribute: pairs of node and reason.
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Unsupported& error) {
      raise_with_nodes(unsupported, error);
    } catch (const UserError& error) {
      raise_with_nodes(user_error, error);
    }
  });
  bind_expressions(m);
  bind_importer(m);
  bind_cut(m);
  bind_compiler(m);
  bind_inspect(m);
  bind_program(m);
  bind_reading(m);
  m.def("ops_markdown", &ops::ops_markdown);
  m.def("exact_rows_markdown", &ops::exact_rows_markdown);
  nb::list numerics;
  for (const std::string_view name : abi::kNumericsNames) {
    numerics.append(nb::str(name.data(), name.size()));
  }
  m.attr("NUMERICS") = nb::tuple(numerics);
  m.def(
      "kernel_passes",
      [](bool gpu) {
        std::vector<std::string> names;
        for (const kernel::KernelPass& pass : gpu ? kernel::gpu_passes() : kernel::cpu_passes()) {
          names.emplace_back(pass.name);
        }
        return names;
      },
      nb::arg("gpu"));
  m.def("check_settings", &driver::check_settings);
  m.def("graph_passes", [] {
    std::vector<std::string> names;
    for (const passes::Pass& pass : passes::all_passes()) names.emplace_back(pass.name);
    return names;
  });
  m.def("nest_passes", [] {
    std::vector<std::string> names;
    for (const schedule::NestPass& pass : schedule::nest_passes()) names.emplace_back(pass.name);
    return names;
  });
  m.def("has_row", [](const std::string& overload) {
    const graph::OpDef* row = ops::op_table().find_aten(overload);
    return row != nullptr && !graph::has(row->traits, graph::Trait::eager_only);
  });
}

}  // namespace inkle::python
