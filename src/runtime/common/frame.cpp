#include "runtime/common/frame.h"

#include <algorithm>
#include <chrono>

#include "runtime/common/arguments.h"

namespace inkle::runtime::common {

using abi::BufferDecl;
using abi::PlanBuffer;

Frame::Frame(const abi::Plan& plan, const PlanFacts& facts, const SizeProgram& sizes)
    : plan_(plan),
      facts_(facts),
      sizes_(sizes),
      slots_(sizes.constant_slots()),
      buffers_(plan.buffers.size(), nullptr),
      handles_(plan.buffers.size(), nullptr) {}

void Frame::run(const Call& call, double* microseconds) {
  host_ = call.host;
  microseconds_ = microseconds;
  observer_ = call.observer;
  numbers_.clear();
  if (call.check == Check::full) check_types(call);
  if (sizes_.evaluate(call.tensors, call.integers, slots_, is_fresh_) || must_plan()) plan_shapes();
  is_fresh_ = false;
  bind_arguments(call);
  if (allocates_outputs_first()) {
    for (const PlanBuffer b : facts_.output_buffers) make_output(b);
  }
  call.host->begin_steps();
  bind_memory(call);
  prepare(call);
  for (std::size_t s = 0; s < plan_.steps.size(); ++s) {
    if (!plan_.steps[s].prepare) execute_step(s);
  }
  finish();
  const auto view = [this](PlanBuffer root) { return view_of(root); };
  const auto copy = [this](PlanBuffer root, const abi::TensorView& to, std::int64_t bytes) {
    copy_constant(root, to, bytes);
  };
  give_results({plan_, facts_, call, slots_, handles_, numbers_, view, copy});
}

void Frame::check_types(const Call& call) const {
  for (std::size_t a = 0; a < plan_.arguments.size(); ++a) {
    const std::int32_t number = facts_.tensor_number[a];
    if (number >= 0) check_type(plan_.arguments[a], call.tensors[static_cast<std::size_t>(number)]);
  }
}

void Frame::bind_arguments(const Call& call) {
  for (std::size_t a = 0; a < plan_.arguments.size(); ++a) {
    const std::int32_t number = facts_.tensor_number[a];
    if (number < 0) continue;
    const abi::PlanArgument& argument = plan_.arguments[a];
    const abi::TensorView& given = call.tensors[static_cast<std::size_t>(number)];
    // A tensor of a GPU that no step uses may have been freed.
    const bool is_used =
        argument.device.kind == abi::DeviceKind::cpu || !facts_.argument_buffers[a].empty();
    if (call.check == Check::full && is_used) check_geometry(argument, given, slots_);
    for (const PlanBuffer b : facts_.argument_buffers[a]) {
      buffers_[b] = given.data;
      if (!is_aligned(given.data, argument.alignment)) align(argument, b);
    }
  }
}

void Frame::make_output(PlanBuffer buffer) {
  const BufferDecl& decl = plan_.buffers[buffer];
  const HostTensor made = host_->make_output(decl.dtype, {values(decl.sizes), decl.sizes.size()},
                                             {values(decl.strides), decl.strides.size()});
  handles_[buffer] = made.handle;
  buffers_[buffer] = made.view.data;
}

void Frame::run_timed(std::size_t number) {
  if (microseconds_ == nullptr && observer_ == nullptr) [[likely]] {
    run_step(number);
    return;
  }
  const ObservedStep observed(observer_, number);
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  run_step(number);
  if (microseconds_ == nullptr) return;
  microseconds_[number] = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void Frame::lend(PlanBuffer root, std::vector<Lent>& lent) {
  void* const copy = buffers_[root];
  void* const original = original_of(copy);
  if (original == nullptr) return;
  const BufferDecl& decl = plan_.buffers[root];
  if (decl.kind != BufferDecl::Kind::argument || plan_.arguments[decl.index].is_written) {
    refresh(copy, Refreshed::argument);
  }
  buffers_[root] = original;
  lent.push_back({root, copy});
}

void Frame::take_back(const std::vector<Lent>& lent) {
  for (const Lent& l : lent) {
    buffers_[l.buffer] = l.copy;
    refresh(l.copy, Refreshed::copy);
  }
}

// The op gets the tensor itself: what it draws may depend on the address, and it may write.
void Frame::run_eager(const abi::EagerCall& eager) {
  std::vector<Lent> lent;
  std::vector<EagerOperand> operands;
  operands.reserve(eager.arguments.size());
  for (const abi::EagerArgument& a : eager.arguments) {
    EagerOperand operand;
    if (a.kind == abi::EagerArgument::Kind::slot) {
      operand.is_integer = true;
      operand.integer = slots_[a.index];
    } else if (a.part) {
      lend(facts_.roots[a.part->buffer], lent);
      operand.view = part_of(*a.part);
    } else {
      const PlanBuffer root = facts_.roots[a.index];
      lend(root, lent);
      operand.view = view_of(a.index);
      // Aliases may have another geometry than the tensor the host knows.
      const bool is_itself = root == a.index;
      if (is_itself && plan_.buffers[root].kind == BufferDecl::Kind::argument) {
        operand.argument = facts_.tensor_number[plan_.buffers[root].index];
      }
      if (is_itself) operand.handle = handles_[root];
    }
    operands.push_back(operand);
  }
  std::vector<HostTensor> results(eager.results.size());
  host_->call(eager.target, operands, results);
  take_back(lent);
  for (std::size_t i = 0; i < results.size(); ++i) {
    adopt(eager.results[i], results[i], eager.name);
  }
}

bool same_sizes(const abi::TensorView& a, const abi::TensorView& b) {
  return a.dtype == b.dtype && a.rank == b.rank && std::equal(a.sizes, a.sizes + a.rank, b.sizes);
}

bool same_strides(const abi::TensorView& a, const abi::TensorView& b) {
  for (std::int32_t d = 0; d < a.rank; ++d) {
    if (a.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

}  // namespace inkle::runtime::common
