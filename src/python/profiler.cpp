#include "python/profiler.h"

#include <memory>
#include <string_view>
#include <utility>
#include <variant>

#include "abi/plan_names.h"
#include "python/made_once.h"

namespace inkle::python {
namespace {

// What is looked up in torch once.
struct Profiler {
  // torch.autograd.profiler says there whether one records.
  nb::object module = nb::module_::import_("torch.autograd.profiler");
  PyObject* globals = PyModule_GetDict(module.ptr());
  PyObject* key = PyUnicode_InternFromString("_is_profiler_enabled");
  nb::object make =
      nb::module_::import_("torch").attr("_C").attr("_profiler").attr("_RecordFunctionFast");
};

const Profiler& profiler() {
  static constinit MadeOnce<const Profiler> found;
  return found.get([] { return std::make_unique<const Profiler>(); });
}

// A profiler may end between the lookup and here: no call fails for the want of an event.
nb::object begin_event(const std::string& name) {
  try {
    nb::object event = profiler().make(name.c_str());
    event.attr("__enter__")();
    return event;
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("inkle: an event of the profiler");
    return {};
  }
}

void end_event(nb::object event) {
  if (!event.is_valid()) return;
  try {
    event.attr("__exit__")(nb::none(), nb::none(), nb::none());
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("inkle: an event of the profiler");
  }
}

std::string_view action_name(const abi::LibraryCall& call) {
  return std::visit([](const auto& c) { return abi::name_of_action(&c); }, call);
}

std::string event_name(const abi::Plan& plan, const abi::PlanStep& step) {
  if (const auto* launch = std::get_if<abi::Launch>(&step.action)) {
    return plan.kernels[launch->kernel].name;
  }
  std::string name = "inkle::";
  if (const auto* call = std::get_if<abi::LibraryCall>(&step.action)) {
    name += action_name(*call);
  } else if (const auto* eager = std::get_if<abi::EagerCall>(&step.action)) {
    name += "eager " + eager->name;
  } else {
    name += "copy";
  }
  return name;
}

}  // namespace

bool is_profiled() {
  const Profiler& p = profiler();
  return PyDict_GetItemWithError(p.globals, p.key) == Py_True;
}

ProfilerEvent::ProfilerEvent(const std::string& name) : event_(begin_event(name)) {}

ProfilerEvent::~ProfilerEvent() { end_event(std::move(event_)); }

StepEvents::~StepEvents() = default;

void StepEvents::begin(std::size_t step) {
  const nb::gil_scoped_acquire lock;
  event_ = begin_event(event_name(plan_, plan_.steps[step]));
}

void StepEvents::end() {
  const nb::gil_scoped_acquire lock;
  end_event(std::move(event_));
}

}  // namespace inkle::python
