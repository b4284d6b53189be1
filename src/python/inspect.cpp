#include "python/inspect.h"

#include <fmt/format.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>

#include "base/threads.h"
#include "driver/doctor.h"
#include "driver/inspect.h"
#include "driver/profile.h"
#include "driver/target.h"
#include "python/torch_callable.h"
#include "runtime/common/size_program.h"

namespace inkle::python {
namespace {

// (dtype, sizes, strides, device) of each tensor argument; None for integers and where a size is
// symbolic.
nb::list plan_arguments(const TorchCallable& callable) {
  const abi::Plan& plan = callable.plan();
  const runtime::common::SizeProgram program(plan);
  nb::list result;
  for (const abi::PlanArgument& a : plan.arguments) {
    bool is_known = !a.is_integer;
    const auto numbers = [&](const std::vector<abi::Slot>& slots) {
      nb::list list;
      for (const abi::Slot s : slots) {
        is_known = is_known && program.is_constant(s);
        list.append(program.constant_slots()[s]);
      }
      return list;
    };
    const nb::list sizes = numbers(a.sizes);
    const nb::list strides = numbers(a.strides);
    if (is_known) {
      const std::string device = a.device.kind == abi::DeviceKind::cpu
                                     ? "cpu"
                                     : fmt::format("cuda:{}", callable.device().index);
      result.append(nb::make_tuple(std::string(abi::name_of(a.dtype)), sizes, strides, device));
    } else {
      result.append(nb::none());
    }
  }
  return result;
}

// Of arguments given as integers and (sizes, strides).
std::vector<std::int64_t> slots(const abi::Plan& plan, const nb::list& arguments) {
  std::vector<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>> shapes;
  std::vector<std::int64_t> integers;
  for (const nb::handle h : arguments) {
    if (nb::isinstance<nb::int_>(h)) {
      integers.push_back(nb::cast<std::int64_t>(h));
    } else {
      shapes.push_back(
          nb::cast<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>>(h));
    }
  }
  std::vector<abi::TensorView> views;
  for (const auto& [sizes, strides] : shapes) {
    abi::TensorView view;
    view.rank = static_cast<std::int32_t>(sizes.size());
    view.sizes = sizes.data();
    view.strides = strides.data();
    views.push_back(view);
  }
  return driver::slots_of(plan, views, integers);
}

template <class T>
T get(const nb::dict& facts, const char* key) {
  return nb::cast<T>(facts[key]);
}

driver::Report report_of(const nb::dict& facts) {
  driver::Report report;
  for (const auto& [stage, seconds] :
       get<std::vector<std::pair<std::string, double>>>(facts, "stages")) {
    report.stages.push_back({stage, seconds});
  }
  for (const nb::handle h : nb::cast<nb::list>(facts["steps"])) {
    const auto step = nb::cast<nb::dict>(h);
    report.steps.push_back({get<std::string>(step, "kind"), get<std::string>(step, "label"),
                            get<std::string>(step, "source"), get<std::string>(step, "kernel")});
  }
  report.schedules = get<std::vector<std::string>>(facts, "schedules");
  report.kernels = get<std::uint32_t>(facts, "kernels");
  report.kernels_reused = get<std::uint32_t>(facts, "kernels_reused");
  report.bytes_moved = get<std::int64_t>(facts, "bytes_moved");
  report.bytes_lower_bound = get<std::int64_t>(facts, "bytes_lower_bound");
  report.eager = get<std::vector<std::string>>(facts, "eager");
  return report;
}

// `facts` is what inkle/inspect.py makes.
driver::Inspection inspection_of(const TorchCallable& callable, const nb::dict& facts) {
  driver::Inspection inspection;
  inspection.plan = {std::shared_ptr<void>(), &callable.plan()};
  inspection.code = {std::shared_ptr<void>(), &callable.executable().code()};
  inspection.title = get<std::string>(facts, "title");
  inspection.report = report_of(facts);
  inspection.texts = get<std::vector<std::pair<std::string, std::string>>>(facts, "texts");
  inspection.texts.emplace_back("plan", abi::to_string(callable.plan()));
  inspection.step_microseconds = get<std::vector<double>>(facts, "step_microseconds");
  inspection.call_microseconds = get<double>(facts, "call_microseconds");
  inspection.runs = get<int>(facts, "runs");
  inspection.not_run = get<std::string>(facts, "not_run");
  if (!facts["arguments"].is_none()) {
    inspection.slots = slots(callable.plan(), nb::cast<nb::list>(facts["arguments"]));
  }
  const runtime::common::Executable& executable = callable.executable();
  for (std::size_t s = 0; s < callable.plan().steps.size(); ++s) {
    inspection.implementations.push_back(executable.implementation(s));
  }
  const runtime::common::MemoryReport memory = executable.memory();
  inspection.scratch_bytes = memory.scratch_bytes;
  inspection.packed_weight_bytes = memory.packed_weight_bytes;
  const abi::Device device = callable.device();
  const bool is_gpu = device.kind != abi::DeviceKind::cpu;
  const driver::Compiler compiler(is_gpu ? driver::make_cuda_target(device.index)
                                         : driver::make_cpu_target());
  inspection.device = is_gpu ? compiler.device().name
                             : fmt::format("{}, {} threads", compiler.device().name, num_threads());
  if (inspection.runs > 0) inspection.limits = driver::measure_limits(compiler.device());
  return inspection;
}

std::string inspect_page(const TorchCallable& callable, const nb::dict& facts) {
  return driver::inspect_page(inspection_of(callable, facts));
}

// The table as text, and a dict for each of its rows.
nb::tuple profile_table(const TorchCallable& callable, const nb::dict& facts) {
  const std::vector<driver::ProfileRow> rows = driver::profile_rows(inspection_of(callable, facts));
  const auto or_none = [](const auto& value) { return value ? nb::cast(*value) : nb::none(); };
  nb::list list;
  for (const driver::ProfileRow& row : rows) {
    nb::dict d;
    d["kind"] = row.kind;
    d["name"] = row.name;
    d["label"] = row.label;
    d["source"] = row.source;
    d["calls"] = row.calls;
    d["microseconds"] = row.microseconds;
    d["bytes"] = or_none(row.bytes);
    d["flops"] = or_none(row.flops);
    d["limit_microseconds"] = or_none(row.limit_microseconds);
    d["limit"] = row.limit;
    list.append(d);
  }
  return nb::make_tuple(driver::profile_text(rows), list);
}

}  // namespace

void bind_inspect(nb::module_& m) {
  m.def("plan_arguments", plan_arguments);
  m.def("inspect_page", inspect_page);
  m.def("profile_table", profile_table);
  // (level, topic, what, remedy) of what the installation has.
  m.def("examine", [] {
    nb::list rows;
    for (const driver::Finding& f : driver::examine()) {
      rows.append(nb::make_tuple(std::string(driver::name_of(f.level)), f.topic, f.what, f.remedy));
    }
    return rows;
  });
}

}  // namespace inkle::python
