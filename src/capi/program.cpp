#include "capi/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/error.h"
#include "runtime/common/arguments.h"
#include "runtime/common/errors.h"
#include "runtime/common/plan_check.h"
#include "runtime/cpu/strided_copy.h"

namespace inkle::capi {
namespace {

using runtime::common::WrongArgument;

// Unequal in all calls of a process.
std::int64_t next_number() {
  static std::atomic<std::int64_t> last = 0;
  return ++last;
}

// What this runtime runs: nothing of a framework, nothing of a GPU.
const abi::PlanAndCode& runnable(const abi::PlanAndCode& made) {
  runtime::common::check_references(*made.plan);
  for (const abi::Step& step : made.plan->steps) {
    if (const auto* eager = std::get_if<abi::EagerCall>(&step.action)) {
      unsupported("plan {}: {} needs a framework", made.plan->name, eager->name);
    }
    runtime::common::refuse_nested(*made.plan, step);
  }
  for (const abi::BufferDecl& buffer : made.plan->buffers) {
    if (buffer.device.kind == abi::DeviceKind::cpu) continue;
    unsupported("plan {}: {} lies on a GPU, this is the runtime of processors", made.plan->name,
                buffer.name);
  }
  return made;
}

}  // namespace

Program::Program(std::shared_ptr<const package::Package> package)
    : package_(std::move(package)),
      plan_(*runnable(package_->made()).plan),
      sizes_(plan_),
      executable_(package_->made(), {.check_bounds = true}),
      number_(next_number()) {
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
  auto made = std::make_shared<BoundWeights>(std::move(set), plan_, parameters_, sizes_);
  const std::lock_guard lock(mutex_);
  bound_ = std::move(made);
}

void Program::check() const {
  if (const auto set = weight_set()) set->check();
}

void Program::run(std::span<const Value> inputs, Results& results) {
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
      run_with(inputs, weights.get(), results);
    } else {
      const std::lock_guard lock(weights->mutex);
      run_with(inputs, weights.get(), results);
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

void Program::run_with(std::span<const Value> inputs, BoundWeights* weights, Results& r) {
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
  executable_.run({.tensors = r.tensors_,
                   .integers = r.integers_,
                   .versions = r.versions_,
                   .host = &r,
                   .check = runtime::common::Check::full});
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
  const std::span<const std::int64_t> sizes(view.sizes, static_cast<std::size_t>(view.rank));
  if (view.strides == nullptr) {
    r.strides_[number] = row_major(sizes);
    view.strides = r.strides_[number].data();
  }
  runtime::common::check_type(plan_.arguments[input.argument], view);
  if (std::ranges::any_of(sizes, [](std::int64_t s) { return s < 0; })) {
    throw WrongArgument(
        fmt::format("input {}: {} has a size below zero", input.name, describe(view.dtype, sizes)));
  }
  r.tensors_[tensor_of_[input.argument]] = view;
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
    const std::size_t rank = argument.sizes.size();
    std::vector<std::int64_t> strides;
    for (const abi::Slot s : argument.strides) strides.push_back(r.slots_[s]);
    const std::span<const std::int64_t> sizes(view.sizes, rank);
    const auto copy = r.make_output(view.dtype, sizes, strides);
    runtime::cpu::strided_copy(sizes, abi::size_of(view.dtype), view.data, {view.strides, rank},
                               copy.view.data, strides);
    view = copy.view;
  }
}

}  // namespace inkle::capi
