#include "capi/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/error.h"
#include "capi/gpu_call.h"
#include "package/reason.h"
#include "runtime/common/arguments.h"
#include "runtime/common/errors.h"
#include "runtime/common/plan_check.h"
#include "runtime/common/plan_of_file.h"
#include "runtime/cpu/executor.h"
#include "runtime/cpu/strided_copy.h"
#include "runtime/cuda/executable.h"
#include "runtime/cuda/framework_steps.h"
#include "runtime/cuda/library_choices.h"
#include "runtime/cuda/named_device.h"

namespace inkle::capi {
namespace {

using runtime::common::WrongArgument;

// Unequal in all calls of a process.
std::int64_t next_number() {
  static std::atomic<std::int64_t> last = 0;
  return ++last;
}

std::vector<std::int64_t> values_of(const std::vector<abi::Slot>& from,
                                    const std::vector<std::int64_t>& slots) {
  std::vector<std::int64_t> values;
  for (const abi::Slot s : from) values.push_back(slots[s]);
  return values;
}

void check_plan(const abi::Plan& plan) {
  try {
    runtime::common::check_plan_of_file(plan);
    for (const abi::PlanStep& step : plan.steps) runtime::common::refuse_nested(plan, step);
  } catch (const UserError& error) {
    package::bad_package(package::Reason::bad_plan, "{}", error.what());
  } catch (const Unsupported& error) {
    package::unfit_package(package::Reason::unsupported_plan, "{}", error.what());
  }
}

// What this runtime runs: nothing of a framework, and on the processor nothing of a GPU.
abi::PlanAndCode runnable(abi::PlanAndCode made, const ProgramDevice& device) {
  const bool on_gpu = device.gpu != nullptr;
  check_plan(*made.plan);
  if (on_gpu) {
    if (const auto steps = runtime::cuda::framework_steps(*made.plan); !steps.empty()) {
      package::unfit_package(package::Reason::needs_framework,
                             "plan {}: these ops need a framework: {}", made.plan->name,
                             fmt::join(steps, ", "));
    }
    made.plan = runtime::cuda::plan_on(std::move(made.plan), *device.gpu);
  }
  for (const abi::PlanStep& step : made.plan->steps) {
    if (const auto* eager = std::get_if<abi::EagerCall>(&step.action)) {
      package::unfit_package(package::Reason::needs_framework, "plan {}: {} needs a framework",
                             made.plan->name, eager->name);
    }
  }
  for (const abi::BufferDecl& buffer : made.plan->buffers) {
    if (on_gpu || buffer.device.kind == abi::DeviceKind::cpu) continue;
    package::unfit_package(package::Reason::unsupported_plan,
                           "plan {}: {} lies on a GPU, this is the runtime of processors",
                           made.plan->name, buffer.name);
  }
  return made;
}

std::shared_ptr<runtime::common::Executable> executable_of(const abi::PlanAndCode& made,
                                                           const ProgramDevice& device) {
  if (device.gpu == nullptr) {
    return std::make_shared<runtime::cpu::Executable>(
        made, runtime::cpu::ExecutableOptions{.check_bounds = true});
  }
  return std::make_shared<runtime::cuda::Executable>(
      made, device.gpu, runtime::cuda::ExecutableOptions{.check_bounds = true});
}

}  // namespace

ProgramDevice ProgramDevice::named(std::string_view name) {
  ProgramDevice device{std::string(name), runtime::cuda::open_named(name)};
  if (name == "cuda") device.name = fmt::format("cuda:{}", device.gpu->index());
  return device;
}

Program::Program(std::shared_ptr<const package::Package> package, ProgramDevice device)
    : package_(std::move(package)),
      device_(std::move(device)),
      made_(runnable(package_->made(), device_)),
      plan_(*made_.plan),
      sizes_(plan_),
      executable_(executable_of(made_, device_)),
      number_(next_number()) {
  if (device_.gpu != nullptr) runtime::cuda::give_choices(*device_.gpu, package_->choices());
  if (device_.gpu != nullptr) memory_ = std::make_shared<DeviceMemory>(device_.gpu);
  declare();
  std::shared_ptr<const WeightSet> set = WeightSet::of_package(package_, sizes_);
  const bool is_whole = std::ranges::all_of(
      parameters_, [&](std::uint32_t p) { return set->find(plan_.arguments[p].name) != nullptr; });
  if (is_whole) set_weights(std::move(set));
}

void Program::declare() {
  std::vector<bool> is_weight(plan_.arguments.size());
  for (const std::uint32_t p : package_->parameters()) is_weight[p] = true;
  for (const auto& weight : package_->unchecked_weights()) is_weight[weight.argument] = true;
  for (std::size_t a = 0; a < plan_.arguments.size(); ++a) {
    const abi::PlanArgument& argument = plan_.arguments[a];
    const auto number = static_cast<std::uint32_t>(a);
    tensor_of_.push_back(tensor_count_);
    if (!argument.is_integer) ++tensor_count_;
    if (is_weight[a] || argument.is_parameter) {
      weights_.push_back(declared(argument, number));
      parameters_.push_back(number);
    } else {
      inputs_.push_back(declared(argument, number));
    }
  }
  const std::vector<std::string>& names = package_->output_names();
  for (std::size_t i = 0; i < plan_.outputs.size(); ++i) {
    const abi::PlanOutput& output = plan_.outputs[i];
    Declared made;
    if (output.kind == abi::PlanOutput::Kind::argument) {
      made = declared(plan_.arguments[output.index], output.index);
      made.is_written = false;
    } else if (output.kind == abi::PlanOutput::Kind::buffer) {
      made.dtype = plan_.buffers[output.index].dtype;
      for (const abi::Slot s : output.sizes) {
        bound(s, made.least.emplace_back(), made.most.emplace_back());
      }
    } else {
      made.kind = output.kind == abi::PlanOutput::Kind::integer ? Kind::integer : Kind::none;
    }
    made.name = i < names.size() ? names[i] : fmt::format("output{}", i);
    outputs_.push_back(std::move(made));
  }
}

Declared Program::declared(const abi::PlanArgument& argument, std::uint32_t number) const {
  Declared made{.name = argument.name,
                .kind = argument.is_integer ? Kind::integer : Kind::tensor,
                .dtype = argument.dtype,
                .least = {},
                .most = {},
                .is_written = argument.is_written,
                .argument = number};
  for (const abi::Slot s : argument.sizes) {
    bound(s, made.least.emplace_back(), made.most.emplace_back());
  }
  return made;
}

// What constants and guards against constants say of a size.
void Program::bound(abi::Slot slot, std::int64_t& least, std::int64_t& most) const {
  using Relation = abi::Guard::Relation;
  const auto& slots = sizes_.constant_slots();
  least = sizes_.is_constant(slot) ? slots[slot] : 0;
  most = sizes_.is_constant(slot) ? slots[slot] : INT64_MAX;
  if (sizes_.is_constant(slot)) return;
  for (const abi::Guard& g : plan_.guards) {
    const std::int64_t beyond = g.relation == Relation::less ? 1 : 0;
    if (g.relation == Relation::not_equal) continue;
    if (g.b == slot && sizes_.is_constant(g.a)) least = std::max(least, slots[g.a] + beyond);
    if (g.a == slot && sizes_.is_constant(g.b)) most = std::min(most, slots[g.b] - beyond);
    if (g.relation != Relation::equal) continue;
    if (g.b == slot && sizes_.is_constant(g.a)) most = std::min(most, slots[g.a]);
    if (g.a == slot && sizes_.is_constant(g.b)) least = std::max(least, slots[g.b]);
  }
}

std::shared_ptr<BoundWeights> Program::bound_weights() const {
  const std::lock_guard lock(mutex_);
  return bound_;
}

std::shared_ptr<const WeightSet> Program::weight_set() const {
  const auto bound = bound_weights();
  return bound ? bound->set : nullptr;
}

void Program::set_weights(std::shared_ptr<const WeightSet> set) {
  auto made =
      std::make_shared<BoundWeights>(std::move(set), plan_, parameters_, sizes_, device_.gpu);
  const std::lock_guard lock(mutex_);
  bound_ = std::move(made);
}

void Program::check() const {
  if (const auto set = weight_set()) set->check();
}

void Program::run(std::span<const Value> inputs, Results& results) {
  run_bound(nullptr, inputs, results);
  results.fetch();
}

void Program::run_on(runtime::cuda::Stream stream, std::span<const Value> inputs,
                     Results& results) {
  if (device_.gpu == nullptr) {
    throw WrongArgument(fmt::format("{} runs on the processor, which has no streams", plan_.name));
  }
  run_bound(stream, inputs, results);
}

void Program::run_bound(runtime::cuda::Stream stream, std::span<const Value> inputs,
                        Results& results) {
  results.begin_on(executable_, memory_, stream);
  results.begin(number_, outputs_.size());
  if (inputs.size() != inputs_.size()) {
    std::vector<std::string> names;
    for (const Declared& d : inputs_) names.push_back(d.name);
    throw WrongArgument(fmt::format("{} takes {} inputs ({}), {} were given", plan_.name,
                                    inputs_.size(), fmt::join(names, ", "), inputs.size()));
  }
  // The set as it is now: who replaces it does not disturb this call.
  const std::shared_ptr<BoundWeights> weights = bound_weights();
  if (weights == nullptr) {
    std::vector<std::string> names;
    for (const Declared& d : weights_) names.push_back(d.name);
    const std::string& file = package_->weights_name();
    throw WrongArgument(fmt::format("{} has no weights yet: it needs {}{}", plan_.name,
                                    fmt::join(names, ", "),
                                    file.empty() ? "" : fmt::format(", or {} beside it", file)));
  }
  weights->set->check();
  results.kept_ = weights;
  try {
    if (!weights->is_written) {
      run_with(stream, inputs, weights.get(), results);
    } else {
      const std::lock_guard lock(weights->mutex);
      run_with(stream, inputs, weights.get(), results);
    }
  } catch (const runtime::common::OutOfMemory&) {
    results.forget();
    throw;
  } catch (const UserError& error) {
    results.forget();
    // Sizes that a guard refuses, before anything has run.
    if (!results.has_begun_ && dynamic_cast<const WrongArgument*>(&error) == nullptr) {
      throw WrongArgument(error.what());
    }
    throw;
  } catch (...) {
    results.forget();
    throw;
  }
}

void Program::run_with(runtime::cuda::Stream stream, std::span<const Value> inputs,
                       BoundWeights* weights, Results& r) {
  place(inputs, r);
  r.versions_.assign(tensor_count_, 0);
  for (std::size_t w = 0; w < parameters_.size(); ++w) {
    const std::size_t at = tensor_of_[parameters_[w]];
    r.tensors_[at] = weights->views[w];
    // What calls write is another thing in each.
    r.versions_[at] =
        plan_.arguments[parameters_[w]].is_written ? next_version() : weights->version;
  }
  lay_out(inputs, r);
  if (device_.gpu == nullptr) {
    call(r, r);
  } else {
    call_on_gpu(inputs, r);
    // Those of another stream come after it.
    if (weights->is_written) device_.gpu->synchronize(stream);
  }
}

void Program::call(Results& r, runtime::common::Host& host) {
  executable_->run({.tensors = r.tensors_,
                    .integers = r.integers_,
                    .versions = r.versions_,
                    .host = &host,
                    .check = runtime::common::Check::full});
}

// With the inputs on the GPU. What the program writes into a tensor of the host's is copied back.
void Program::call_on_gpu(std::span<const Value> inputs, Results& r) {
  const runtime::cuda::Scope scope(*device_.gpu);
  GpuCall host(r);
  struct Written {
    abi::TensorView here, there;
  };
  std::vector<Written> written;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs_[i].kind == Kind::integer) continue;
    abi::TensorView& view = r.tensors_[tensor_of_[inputs_[i].argument]];
    const abi::Device wanted = plan_.arguments[inputs_[i].argument].device;
    if (view.device.kind == wanted.kind || view.data == nullptr) continue;
    const abi::TensorView here = std::exchange(view, host.upload(view));
    if (inputs_[i].is_written) written.push_back({here, view});
  }
  call(r, host);
  for (const Written& w : written) host.copy(w.there, w.here);
  if (!written.empty()) device_.gpu->synchronize(host.stream());
}

void Program::place(std::span<const Value> inputs, Results& r) const {
  r.tensors_.assign(tensor_count_, {});
  r.integers_.clear();
  r.strides_.resize(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) place_input(inputs_[i], inputs[i], i, r);
}

void Program::place_input(const Declared& input, const Value& given, std::size_t number,
                          Results& r) const {
  if (given.kind != input.kind) {
    throw WrongArgument(fmt::format("input {}: expected {}", input.name,
                                    input.kind == Kind::integer ? "an integer" : "a tensor"));
  }
  if (input.kind == Kind::integer) {
    r.integers_.push_back(given.integer);
    return;
  }
  abi::TensorView view = given.view;
  check_device(input, view);
  const std::span<const std::int64_t> sizes(view.sizes, static_cast<std::size_t>(view.rank));
  if (view.strides == nullptr) {
    r.strides_[number] = row_major(sizes);
    view.strides = r.strides_[number].data();
  }
  // On a GPU, what lies on the host is copied.
  abi::TensorView typed = view;
  if (device_.gpu != nullptr) typed.device = plan_.arguments[input.argument].device;
  runtime::common::check_type(plan_.arguments[input.argument], typed);
  if (std::ranges::any_of(sizes, [](std::int64_t s) { return s < 0; })) {
    throw WrongArgument(
        fmt::format("input {}: {} has a size below zero", input.name, describe(view.dtype, sizes)));
  }
  r.tensors_[tensor_of_[input.argument]] = view;
}

void Program::check_device(const Declared& input, const abi::TensorView& view) const {
  if (view.device.kind == abi::DeviceKind::cpu) return;
  if (device_.gpu == nullptr) {
    throw WrongArgument(fmt::format(
        "input {}: expected memory of the host, got a GPU's: the program runs on the processor",
        input.name));
  }
  if (view.device.index != device_.gpu->index()) {
    throw WrongArgument(fmt::format("input {}: it lies on cuda:{}, the program runs on {}",
                                    input.name, view.device.index, device_.name));
  }
  if (plan_.arguments[input.argument].device.kind == abi::DeviceKind::cpu) {
    throw WrongArgument(
        fmt::format("input {}: expected memory of the host, got a GPU's", input.name));
  }
}

// Copies of inputs that lie otherwise than the program wants. The others are checked in full by the
// executable.
void Program::lay_out(std::span<const Value> inputs, Results& r) const {
  const bool is_fresh = r.slots_.empty();
  if (is_fresh) r.slots_ = sizes_.constant_slots();
  try {
    sizes_.evaluate(r.tensors_, r.integers_, r.slots_, is_fresh);
  } catch (...) {
    r.slots_.clear();
    throw;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Declared& input = inputs_[i];
    if (input.kind == Kind::integer) continue;
    const abi::PlanArgument& argument = plan_.arguments[input.argument];
    abi::TensorView& view = r.tensors_[tensor_of_[input.argument]];
    bool is_right = true;
    for (std::size_t d = 0; d < argument.strides.size(); ++d) {
      is_right &= view.sizes[d] <= 1 || view.strides[d] == r.slots_[argument.strides[d]];
    }
    if (is_right || input.is_written) continue;
    // Sizes as declared, so that the strides that were computed hold them.
    for (std::size_t d = 0; d < argument.sizes.size(); ++d) {
      is_right |= view.sizes[d] != r.slots_[argument.sizes[d]];
    }
    if (is_right || view.data == nullptr) continue;
    if (view.device.kind != abi::DeviceKind::cpu) {
      throw WrongArgument(fmt::format(
          "input {}: a tensor on the GPU has to lie as the program wants it, strides are ({}), not "
          "({})",
          input.name, fmt::join(values_of(argument.strides, r.slots_), ", "),
          fmt::join(std::span(view.strides, argument.strides.size()), ", ")));
    }
    const std::size_t rank = argument.sizes.size();
    const std::vector<std::int64_t> strides = values_of(argument.strides, r.slots_);
    const std::span<const std::int64_t> sizes(view.sizes, rank);
    const auto copy = r.make_output(view.dtype, sizes, strides);
    runtime::cpu::strided_copy(sizes, abi::size_of(view.dtype), view.data, {view.strides, rank},
                               copy.view.data, strides);
    view = copy.view;
  }
}

}  // namespace inkle::capi
