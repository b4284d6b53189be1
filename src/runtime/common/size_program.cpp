#include "runtime/common/size_program.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace inkle::runtime::common {
namespace {

using abi::Guard;
using abi::SizeInstruction;
using Op = SizeInstruction::Op;

bool is_leaf(Op op) { return op == Op::argument || op == Op::size || op == Op::stride; }

std::int64_t compute(Op op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Op::add:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Op::mul:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Op::floordiv:
    case Op::mod: {
      if (b == 0) user_error("division by zero in a size");
      overflow = b == -1 && a == INT64_MIN;
      if (overflow) break;
      const bool inexact = a % b != 0 && ((a < 0) != (b < 0));
      result = op == Op::floordiv ? a / b - (inexact ? 1 : 0) : a % b + (inexact ? b : 0);
      break;
    }
    case Op::min:
      result = std::min(a, b);
      break;
    case Op::max:
      result = std::max(a, b);
      break;
    case Op::constant:
    case Op::argument:
    case Op::size:
    case Op::stride:
      break;
  }
  if (overflow) user_error("a size is too large for 64 bits ({} and {})", a, b);
  return result;
}

bool holds(Guard::Relation relation, std::int64_t a, std::int64_t b) {
  switch (relation) {
    case Guard::Relation::equal:
      return a == b;
    case Guard::Relation::not_equal:
      return a != b;
    case Guard::Relation::less:
      return a < b;
    case Guard::Relation::less_equal:
      return a <= b;
  }
  return false;
}

}  // namespace

SizeProgram::SizeProgram(const abi::Plan& plan) : plan_(&plan) {
  // So no slot stays unset, and a small file cannot ask for much memory.
  if (plan.slot_count != plan.size_program.size()) {
    user_error("plan {}: {} slots, {} are computed", plan.name, plan.slot_count,
               plan.size_program.size());
  }
  constants_.assign(plan.slot_count, 0);
  std::vector<std::uint32_t> rank_in_kind;
  std::uint32_t integers = 0;
  std::uint32_t tensors = 0;
  for (const abi::PlanArgument& a : plan.arguments) {
    rank_in_kind.push_back(a.is_integer ? integers++ : tensors++);
  }
  enum class State : std::uint8_t { unset, constant, dynamic };
  std::vector<State> state(plan.slot_count, State::unset);
  const auto known = [&](abi::Slot slot) {
    return slot < state.size() && state[slot] != State::unset;
  };
  for (const SizeInstruction& i : plan.size_program) {
    if (i.result >= plan.slot_count || state[i.result] != State::unset) {
      user_error("plan {}: slot {} is out of range or written twice", plan.name, i.result);
    }
    if (i.op == Op::constant) {
      constants_[i.result] = i.immediate;
      state[i.result] = State::constant;
      continue;
    }
    if (is_leaf(i.op)) {
      const auto argument = static_cast<std::uint64_t>(i.immediate);
      if (argument >= plan.arguments.size() ||
          plan.arguments[argument].is_integer != (i.op == Op::argument)) {
        user_error("plan {}: slot {} reads a wrong argument {}", plan.name, i.result, i.immediate);
      }
      leaves_.push_back({i.op, rank_in_kind[argument], static_cast<std::int32_t>(i.b), i.result});
      state[i.result] = State::dynamic;
      continue;
    }
    if (!known(i.a) || !known(i.b)) {
      user_error("plan {}: slot {} is computed from a slot not yet set", plan.name, i.result);
    }
    if (state[i.a] == State::constant && state[i.b] == State::constant) {
      constants_[i.result] = compute(i.op, constants_[i.a], constants_[i.b]);
      state[i.result] = State::constant;
    } else {
      dynamic_.push_back(i);
      state[i.result] = State::dynamic;
    }
  }
  for (const State s : state) is_constant_.push_back(s == State::constant);
  for (const Guard& g : plan.guards) {
    if (!known(g.a) || !known(g.b)) user_error("plan {}: a guard reads an unset slot", plan.name);
    if (state[g.a] == State::constant && state[g.b] == State::constant &&
        !holds(g.relation, constants_[g.a], constants_[g.b])) {
      user_error("plan {}: {} never holds", plan.name, g.message);
    }
  }
}

bool SizeProgram::evaluate(std::span<const abi::TensorView> tensors,
                           std::span<const std::int64_t> integers, std::span<std::int64_t> slots,
                           bool fresh) const {
  bool changed = fresh;
  for (const Leaf& leaf : leaves_) {
    std::int64_t value = 0;
    if (leaf.op == Op::argument) {
      value = integers[leaf.index];
    } else {
      const abi::TensorView& t = tensors[leaf.index];
      if (leaf.dimension >= t.rank) {
        user_error("tensor argument {} has rank {}, dimension {} is needed", leaf.index, t.rank,
                   leaf.dimension);
      }
      value = (leaf.op == Op::size ? t.sizes : t.strides)[leaf.dimension];
    }
    changed |= slots[leaf.result] != value;
    slots[leaf.result] = value;
  }
  if (!changed) return false;
  for (const SizeInstruction& i : dynamic_) slots[i.result] = compute(i.op, slots[i.a], slots[i.b]);
  check_guards(slots);
  return true;
}

void SizeProgram::check_guards(std::span<const std::int64_t> slots) const {
  for (const Guard& g : plan_->guards) {
    if (!holds(g.relation, slots[g.a], slots[g.b])) {
      user_error("{}: {} {} {} does not hold", g.message, slots[g.a], abi::symbol_of(g.relation),
                 slots[g.b]);
    }
  }
}

}  // namespace inkle::runtime::common
