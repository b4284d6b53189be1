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
#include "capi/program.h"
#include "driver/kept_choices.h"
#include "python/device_array.h"
#include "python/dlpack.h"
#include "runtime/common/errors.h"
#include "runtime/cpu/strided_copy.h"

namespace inkle::python {

namespace nb = nanobind;

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

// The consumer of arrays: a CPU program, or a CUDA program that queues its call on a stream.
struct Taker {
  bool is_gpu = false;
  runtime::cuda::Stream stream = nullptr;

  // An array of a GPU, as its DLPack capsule, for what is queued on the stream; else nothing.
  [[nodiscard]] nb::object on_gpu(nb::handle from) const {
    if (!is_gpu || !nb::hasattr(from, "__dlpack_device__")) return {};
    const nb::object device = from.attr("__dlpack_device__")();
    if (nb::cast<int>(nb::int_(device[0])) != dlpack::kCuda) return {};
    const auto number = reinterpret_cast<std::uintptr_t>(stream);
    return from.attr("__dlpack__")(nb::arg("stream") = number == 0 ? 1 : number);
  }
};

// A name, for messages, and the array itself, whatever has DLPack or the buffer protocol.
void take(Given& to, const std::string& name, nb::handle from, bool is_written, const Taker& by) {
  const nb::object kept = by.on_gpu(from);
  if (kept.is_valid()) from = kept;
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
    if (by.is_gpu && array.device_type() == nb::device::cuda::value) {
      to.view.device = {abi::DeviceKind::cuda, static_cast<std::int32_t>(array.device_id())};
    } else if (array.device_type() != nb::device::cpu::value) {
      throw WrongArgument(fmt::format("{}: expected a CPU tensor", name));
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

// A result as an array of its own: one that lies in an input or a weight is copied.
nb::object result_of(const Value& value, const std::shared_ptr<Results>& results) {
  if (value.kind == Kind::none) return nb::none();
  if (value.kind == Kind::integer) return nb::int_(value.integer);
  if (!value.is_borrowed) return array_of(value.view, results);
  const std::span<const std::int64_t> sizes(value.view.sizes,
                                            static_cast<std::size_t>(value.view.rank));
  const std::vector<std::int64_t> strides = capi::row_major(sizes);
  const std::int64_t bytes = capi::span_bytes(value.view.dtype, sizes, strides);
  const auto copy =
      std::make_shared<runtime::cpu::Block>(std::max<std::int64_t>(bytes, 1), "a copy of a result");
  runtime::cpu::strided_copy(sizes, abi::size_of(value.view.dtype), value.view.data,
                             {value.view.strides, sizes.size()}, copy->data(), strides);
  abi::TensorView view = value.view;
  view.data = copy->data();
  view.strides = strides.data();
  return array_of(view, copy);
}

// Inputs as a call takes them; `given` outlives it.
std::vector<Value> values_of(const Program& program, const std::vector<nb::handle>& handles,
                             const Taker& by, std::vector<Given>& given) {
  given.resize(handles.size());
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
    take(given[i], "input " + text_of(declared), handles[i], declared.is_written, by);
    values[i] = {Kind::tensor, 0, given[i].view};
  }
  return values;
}

// One result as it is, several as a tuple.
template <class Make>
nb::object all_of(std::span<const Value> values, Make&& make) {
  if (values.size() == 1) return make(std::size_t{0});
  nb::list list;
  for (std::size_t i = 0; i < values.size(); ++i) list.append(make(i));
  return nb::tuple(list);
}

// Queued on the stream; `waits`: to its end.
nb::object call_on_gpu(Program& program, runtime::cuda::Stream stream, bool waits,
                       const nb::args& args, const nb::kwargs& kwargs) {
  std::vector<Given> given;
  const Taker by{true, stream};
  const std::vector<Value> values = values_of(program, arranged(program, args, kwargs), by, given);
  const auto all = std::make_shared<DeviceResults>();
  {
    const nb::gil_scoped_release released;
    program.run_on(stream, values, all->results);
    all->results.own_all();
    if (waits) all->results.wait();
  }
  const auto results = all->results.values();
  return all_of(results, [&](std::size_t i) -> nb::object {
    if (results[i].kind == Kind::none) return nb::none();
    if (results[i].kind == Kind::integer) return nb::int_(results[i].integer);
    return nb::cast(DeviceArray(all, i));
  });
}

nb::object call(Program& program, const nb::args& args, const nb::kwargs& kwargs) {
  if (program.device().gpu != nullptr) return call_on_gpu(program, nullptr, true, args, kwargs);
  std::vector<Given> given;
  const std::vector<Value> values =
      values_of(program, arranged(program, args, kwargs), Taker{}, given);
  const auto results = std::make_shared<Results>();
  {
    const nb::gil_scoped_release released;
    program.run(values, *results);
  }
  const auto all = results->values();
  return all_of(all, [&](std::size_t i) { return result_of(all[i], results); });
}

nb::object run_on(Program& program, nb::handle stream, const nb::args& args,
                  const nb::kwargs& kwargs) {
  return call_on_gpu(program, stream_of(stream), false, args, kwargs);
}

std::shared_ptr<const WeightSet> set_of(const nb::dict& arrays) {
  std::vector<Given> given(arrays.size());
  std::vector<capi::NamedView> tensors;
  for (const auto [key, value] : arrays) {
    const auto name = nb::cast<std::string>(key);
    Given& one = given[tensors.size()];
    take(one, "weight " + name, value, false, Taker{});
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
  bind_device_array(m);
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
      .def("run_on", run_on,
           "On a GPU: run_on(stream, ...) queues the call on that stream and returns; results are "
           "there for what the stream does next.")
      .def_prop_ro("device", [](const Program& p) { return p.device().name; })
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
      [](const std::string& path, const std::optional<std::string>& key,
         const std::string& device) {
        capi::ProgramDevice chosen = capi::ProgramDevice::named(device);
        if (chosen.gpu != nullptr) driver::keep_choices(*chosen.gpu);
        auto package = package::Package::open(path, package::Package::Use::run,
                                              chosen.architecture(), package::Trust::of(key));
        return new Program(std::move(package), std::move(chosen));
      },
      nb::arg("path"), nb::arg("key") = nb::none(), nb::arg("device") = "cpu",
      nb::rv_policy::take_ownership, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace inkle::python
