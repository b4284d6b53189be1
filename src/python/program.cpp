#include "python/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#ifdef INKLE_CPU
#include "capi/program.h"
#include "runtime/common/errors.h"
#include "runtime/cpu/strided_copy.h"
#endif
#include "python/dlpack.h"

namespace inkle::python {

namespace nb = nanobind;

#ifdef INKLE_CPU
namespace {

using capi::Declared;
using capi::Kind;
using capi::Program;
using capi::Results;
using capi::Value;
using capi::WeightSet;
using runtime::common::WrongArgument;

// "x: f32[2..64, 3]".
std::string text_of(const Declared& d) {
  if (d.kind == Kind::integer) return d.name + ": int";
  if (d.kind == Kind::none) return d.name + ": none";
  std::vector<std::string> sizes;
  for (std::size_t i = 0; i < d.least.size(); ++i) {
    const std::string most = d.most[i] == INT64_MAX ? "" : std::to_string(d.most[i]);
    sizes.push_back(d.least[i] == d.most[i] ? most : fmt::format("{}..{}", d.least[i], most));
  }
  return fmt::format("{}: {}[{}]", d.name, abi::name_of(d.dtype), fmt::join(sizes, ", "));
}

// An array of Python's, and the view that a call takes of it.
struct Given {
  nb::ndarray<nb::ro> array;
  std::vector<std::int64_t> sizes, strides;
  abi::TensorView view;
};

// A name, for messages, and the array itself, whatever has DLPack or the buffer protocol.
void take(Given& to, const std::string& name, nb::handle from, bool is_written) {
  // A read-only array is no right argument for what the program writes.
  nb::ndarray<> writable;
  const bool is_array = is_written ? nb::try_cast(from, writable) : nb::try_cast(from, to.array);
  if (!is_array) {
    throw WrongArgument(fmt::format("{}: expected {} with DLPack or the buffer protocol, got {}",
                                    name, is_written ? "a writable array" : "an array",
                                    nb::cast<std::string>(nb::str(from.type().attr("__name__")))));
  }
  const auto read = [&](const auto& array) {
    const auto dtype = array.dtype();
    to.view.dtype = dlpack::from_dlpack({dtype.code, dtype.bits, dtype.lanes});
    if (array.device_type() != nb::device::cpu::value) {
      throw WrongArgument(fmt::format("{}: expected a tensor of the CPU", name));
    }
    for (std::size_t d = 0; d < array.ndim(); ++d) {
      to.sizes.push_back(static_cast<std::int64_t>(array.shape(d)));
      to.strides.push_back(static_cast<std::int64_t>(array.stride(d)));
    }
    to.view.data = const_cast<void*>(static_cast<const void*>(array.data()));
  };
  if (is_written) {
    read(writable);
    to.array = nb::ndarray<nb::ro>(writable);
  } else {
    read(to.array);
  }
  if (to.view.dtype == abi::DType::opaque) {
    throw WrongArgument(fmt::format("{}: an array of a dtype that Inkle has no name for", name));
  }
  to.view.rank = static_cast<std::int32_t>(to.sizes.size());
  to.view.sizes = to.sizes.data();
  to.view.strides = to.strides.data();
}

// Arguments of the call, by position and then by name.
std::vector<nb::handle> arranged(const Program& program, const nb::args& args,
                                 const nb::kwargs& kwargs) {
  const std::vector<Declared>& inputs = program.inputs();
  std::vector<nb::handle> arranged(inputs.size());
  std::vector<std::string> names;
  for (const Declared& d : inputs) names.push_back(text_of(d));
  if (args.size() > inputs.size()) {
    throw WrongArgument(fmt::format("expected {} inputs ({}), got {}", inputs.size(),
                                    fmt::join(names, ", "), args.size()));
  }
  for (std::size_t i = 0; i < args.size(); ++i) arranged[i] = args[i];
  for (const auto [key, value] : kwargs) {
    const auto name = nb::cast<std::string>(key);
    const auto found = std::find_if(inputs.begin(), inputs.end(),
                                    [&](const Declared& d) { return d.name == name; });
    if (found == inputs.end()) {
      throw WrongArgument(
          fmt::format("there is no input {}; the inputs are {}", name, fmt::join(names, ", ")));
    }
    nb::handle& place = arranged[static_cast<std::size_t>(found - inputs.begin())];
    if (place.is_valid()) throw WrongArgument(fmt::format("input {} is given twice", name));
    place = value;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!arranged[i].is_valid()) throw WrongArgument("input " + names[i] + " is missing");
  }
  return arranged;
}

// Memory that lives as long as the array does.
template <class Kept>
nb::object array_of(const abi::TensorView& view, std::shared_ptr<Kept> kept) {
  const auto owner = nb::capsule(new std::shared_ptr<Kept>(std::move(kept)), [](void* p) noexcept {
    delete static_cast<std::shared_ptr<Kept>*>(p);
  });
  const auto rank = static_cast<std::size_t>(view.rank);
  const std::vector<std::size_t> sizes(view.sizes, view.sizes + rank);
  const dlpack::DataType type = dlpack::to_dlpack(view.dtype);
  const nb::dlpack::dtype dtype{type.code, type.bits, type.lanes};
  // NumPy has no bf16 and no 8-bit floats: such tensors come as objects with DLPack.
  const bool is_numpy = view.dtype != abi::DType::bf16 && view.dtype != abi::DType::c32 &&
                        view.dtype < abi::DType::f8e4m3fn;
  if (is_numpy) {
    return nb::cast(
        nb::ndarray<nb::numpy>(view.data, rank, sizes.data(), owner, view.strides, dtype));
  }
  return nb::cast(nb::ndarray<>(view.data, rank, sizes.data(), owner, view.strides, dtype));
}

// A result as an array of its own: one that lies in an input or a weight is copied.
nb::object result_of(const Value& value, const std::shared_ptr<Results>& results) {
  if (value.kind == Kind::none) return nb::none();
  if (value.kind == Kind::integer) return nb::int_(value.integer);
  if (!value.is_borrowed) return array_of(value.view, results);
  const std::span<const std::int64_t> sizes(value.view.sizes,
                                            static_cast<std::size_t>(value.view.rank));
  const auto strides = std::make_shared<std::vector<std::int64_t>>(capi::row_major(sizes));
  const std::int64_t bytes = capi::span_bytes(value.view.dtype, sizes, *strides);
  const auto copy =
      std::make_shared<runtime::cpu::Block>(std::max<std::int64_t>(bytes, 1), "a copy of a result");
  runtime::cpu::strided_copy(sizes, abi::size_of(value.view.dtype), value.view.data,
                             {value.view.strides, sizes.size()}, copy->data(), *strides);
  abi::TensorView view = value.view;
  view.data = copy->data();
  view.strides = strides->data();
  return array_of(view, copy);
}

nb::object call(Program& program, const nb::args& args, const nb::kwargs& kwargs) {
  const std::vector<nb::handle> handles = arranged(program, args, kwargs);
  std::vector<Given> given(handles.size());
  std::vector<Value> values(handles.size());
  for (std::size_t i = 0; i < handles.size(); ++i) {
    const Declared& declared = program.inputs()[i];
    if (declared.kind == Kind::integer) {
      values[i].kind = Kind::integer;
      if (!nb::try_cast(handles[i], values[i].integer)) {
        throw WrongArgument("input " + text_of(declared) + ": expected an integer");
      }
      continue;
    }
    take(given[i], "input " + text_of(declared), handles[i], declared.is_written);
    values[i] = {Kind::tensor, 0, given[i].view};
  }
  const auto results = std::make_shared<Results>();
  {
    const nb::gil_scoped_release released;
    program.run(values, *results);
  }
  const auto all = results->values();
  if (all.size() == 1) return result_of(all[0], results);
  nb::list list;
  for (const Value& value : all) list.append(result_of(value, results));
  return nb::tuple(list);
}

std::shared_ptr<const WeightSet> set_of(const nb::dict& arrays) {
  std::vector<Given> given(arrays.size());
  std::vector<capi::NamedView> tensors;
  for (const auto [key, value] : arrays) {
    const auto name = nb::cast<std::string>(key);
    Given& one = given[tensors.size()];
    take(one, "weight " + name, value, false);
    tensors.push_back({name, one.view});
  }
  return WeightSet::copy_of(tensors);
}

// A set as Python holds it.
struct Weights {
  std::shared_ptr<const WeightSet> set;
};

}  // namespace

void bind_program(nb::module_& m) {
  nb::class_<Declared>(m, "Declared", "What a program takes or gives.")
      .def_ro("name", &Declared::name)
      .def_prop_ro("dtype",
                   [](const Declared& d) {
                     if (d.kind == Kind::tensor) return std::string(abi::name_of(d.dtype));
                     return std::string(d.kind == Kind::integer ? "int" : "none");
                   })
      .def_ro("least", &Declared::least, "Smallest sizes, by dimension.")
      .def_ro("most", &Declared::most, "Largest sizes; equal ones are fixed.")
      .def_ro("is_written", &Declared::is_written)
      .def("__repr__", text_of);
  nb::class_<Weights>(m, "WeightSet", "Weights by name, shared by the programs that use them.");
  nb::class_<Program>(m, "Program", "A program of a package; may be called from several threads.")
      .def("__call__", call)
      .def_prop_ro("target", &Program::target)
      .def_prop_ro("inputs", &Program::inputs)
      .def_prop_ro("outputs", &Program::outputs)
      .def_prop_ro("parameters", &Program::weights, "The weights that it takes.")
      .def("check", &Program::check, nb::call_guard<nb::gil_scoped_release>(),
           "Reads all weights and checks their hashes.")
      .def_prop_rw(
          "weights",
          [](const Program& p) {
            auto set = p.weight_set();
            if (set == nullptr) throw WrongArgument("the program has no weights yet");
            return Weights{std::move(set)};
          },
          [](Program& p, nb::handle weights) {
            if (nb::isinstance<Weights>(weights)) {
              p.set_weights(nb::cast<Weights&>(weights).set);
            } else {
              p.set_weights(set_of(nb::cast<nb::dict>(weights)));
            }
          })
      .def("__repr__", [](const Program& p) {
        std::vector<std::string> inputs, outputs;
        for (const Declared& d : p.inputs()) inputs.push_back(text_of(d));
        for (const Declared& d : p.outputs()) outputs.push_back(text_of(d));
        return fmt::format("Program({}) -> ({})", fmt::join(inputs, ", "),
                           fmt::join(outputs, ", "));
      });
  m.def(
      "load",
      [](const std::string& path, const std::optional<std::string>& key) {
        return new Program(
            package::Package::open(path, package::Package::Use::run, {}, package::Trust::of(key)));
      },
      nb::arg("path"), nb::arg("key") = nb::none(), nb::rv_policy::take_ownership,
      nb::call_guard<nb::gil_scoped_release>());
}

#else

void bind_program(nb::module_& m) {
  m.def(
      "load",
      [](const std::string& path, const std::optional<std::string>&) {
        unsupported("{}: this module was built without the runtime of processors", path);
      },
      nb::arg("path"), nb::arg("key") = nb::none());
}

#endif

}  // namespace inkle::python
