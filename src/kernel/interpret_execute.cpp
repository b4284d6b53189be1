// One operation of one thread: values and control.
#include <array>

#include "abi/plan.h"
#include "base/error.h"
#include "kernel/function.h"
#include "kernel/interpret_machine.h"
#include "loop/scalar.h"

namespace inkle::kernel {

using loop::Opcode;
using loop::OpcodeKind;

namespace {

constexpr auto kIndexFailed = static_cast<std::int32_t>(abi::KernelStatus::index_out_of_range);
constexpr auto kDivisionFailed = static_cast<std::int32_t>(abi::KernelStatus::division_by_zero);

}  // namespace

void Machine::run(Thread& thread, std::int64_t steps) {
  while (steps-- > 0 && !is_stopped_) {
    if (++result_.steps > options_.max_steps) {
      stop(fmt::format("no end within {} steps", options_.max_steps));
      return;
    }
    if (!step(thread)) return;
  }
}

bool Machine::step(Thread& thread) {
  const Instruction& i = at(thread);
  switch (i.code) {
    case Code::move:
      move(thread, i);
      break;
    case Code::index:
    case Code::divide_index:
    case Code::compute:
    case Code::function:
      compute_lanes(thread, i);
      break;
    case Code::indirect:
    case Code::bind:
      indirect(thread, i);
      break;
    case Code::mask_and:
    case Code::mask_and_not:
      mask(thread, i);
      break;
    case Code::jump:
    case Code::jump_if_not:
    case Code::jump_unless_any:
    case Code::loop_test:
    case Code::loop_next:
    case Code::part_end:
    case Code::repeat_begin:
    case Code::repeat_head:
    case Code::repeat_compare:
    case Code::repeat_again:
    case Code::role_test:
      return control(thread, i);
    case Code::finish:
      retire(thread);
      return false;
    case Code::load:
    case Code::store:
    case Code::atomic:
      if (stops_at_visible_ && !thread.is_granted &&
          program_.accesses[i.detail].order != Order::weak) {
        thread.status = Status::visible;
        return false;
      }
      thread.is_granted = false;
      if (i.code == Code::load) {
        load(thread, i);
      } else if (i.code == Code::store) {
        store(thread, i);
      } else {
        atomic(thread, i);
      }
      break;
    default:
      return machine_operation(thread, i);
  }
  ++thread.pc;
  return true;
}

// Operations by which threads work together or with asynchronous agents.
bool Machine::machine_operation(Thread& thread, const Instruction& i) {
  switch (i.code) {
    case Code::barrier:
      return barrier(thread, i);
    case Code::reduce:
    case Code::scan:
    case Code::broadcast:
      return collective(thread, i);
    case Code::transpose:
      transpose(thread, i);
      ++thread.pc;
      return true;
    case Code::shuffle:
      return shuffle(thread, i);
    case Code::barrier_wait:
      return barrier_wait(thread, i);
    case Code::map_head:
      return map_head(thread, i);
    case Code::map_next:
      map_next(thread, i);
      return true;
    case Code::convert_layout:
    case Code::mma:
      return fragment_meeting(thread, i);
    case Code::fragment_fill:
      fill(thread, i);
      break;
    case Code::fragment_load:
    case Code::fragment_store:
      load_or_store_fragment(thread, i);
      break;
    case Code::fence:
      fence(thread, i);
      break;
    case Code::copy_async:
      copy_async(thread, i);
      break;
    case Code::copy_commit:
      commit(thread.copies);
      break;
    case Code::copy_wait:
      wait(thread, thread.copies, kernel_.detail<Count>(i.operation).count);
      break;
    case Code::bulk_commit:
      commit(thread.bulks);
      break;
    case Code::bulk_wait:
      wait(thread, thread.bulks, kernel_.detail<Count>(i.operation).count);
      break;
    case Code::mma_commit:
      commit(thread.multiplies);
      break;
    case Code::mma_wait:
      wait(thread, thread.multiplies, kernel_.detail<Count>(i.operation).count);
      break;
    case Code::mma_fence:
      thread.fenced_stamp = thread.stamp;
      break;
    case Code::barrier_init:
      barrier_init(thread, i);
      break;
    case Code::barrier_arrive:
      barrier_arrive(thread, i);
      break;
    case Code::tma_load:
      tma_load(thread, i);
      break;
    case Code::tma_store:
      tma_store(thread, i);
      break;
    case Code::dependency_wait:
      thread.has_waited_for_dependency = true;
      break;
    case Code::report:
      for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
        if (is_active(thread, i, l)) fail(kernel_.detail<Report>(i.operation).status);
      }
      break;
    default:
      INKLE_CHECK(false, "an instruction of the interpreter has no meaning");
  }
  ++thread.pc;
  return true;
}

// --- Values

void Machine::move(Thread& thread, const Instruction& i) {
  const Ref from = operand(i, 0);
  for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
    if (is_active(thread, i, l)) set(thread, i.result, l, get(thread, from, l));
  }
}

bool Machine::compute_lanes(Thread& thread, const Instruction& i) {
  const std::uint32_t first = i.width == 1 ? thread.lane : 0;
  for (std::uint32_t l = first; l < first + static_cast<std::uint32_t>(i.width); ++l) {
    if (is_active(thread, i, l)) set(thread, i.result, l, compute(thread, i, l));
  }
  return true;
}

std::int64_t Machine::compute(Thread& thread, const Instruction& i, std::uint32_t lane) {
  if (i.code == Code::index) return index(thread, i.detail, lane);
  if (i.code == Code::divide_index) {
    const std::int64_t by = get(thread, operand(i, 1), lane);
    const std::array both = {to_scalar(get(thread, operand(i, 0), lane), i.dtype),
                             to_scalar(by == 0 ? 1 : by, i.dtype)};
    const Opcode opcode = i.detail == 1 ? Opcode::remainder : Opcode::floordiv;
    return to_bits(loop::evaluate(opcode, i.dtype, both), i.to);
  }
  const FunctionRow* const named =
      i.code == Code::function ? &row_of(kernel_.detail<Function>(i.operation).function) : nullptr;
  std::array<Scalar, 3> operands;
  if (named != nullptr && named->exact != nullptr) {
    for (std::uint32_t o = 0; o < i.operand_count; ++o) {
      operands[o] = to_scalar(get(thread, operand(i, o), lane), named->takes.at(o));
    }
    return to_bits(named->exact(operands), i.to);
  }
  for (std::uint32_t o = 0; o < i.operand_count; ++o) {
    const DType dtype = i.opcode == Opcode::select && o == 0 ? DType::boolean : i.dtype;
    operands[o] = to_scalar(get(thread, operand(i, o), lane), dtype);
  }
  if (named != nullptr) {
    const std::array real = {operands[0].real, operands[1].real};
    return to_bits(loop::make_scalar(i.to, named->meaning(real)), i.to);
  }
  switch (i.opcode) {
    case Opcode::cast:
      return to_bits(loop::convert(operands[0], i.dtype, i.to), i.to);
    case Opcode::bitcast:
      return to_bits(loop::bit_convert(operands[0], i.dtype, i.to), i.to);
    case Opcode::select:
      return get(thread, operand(i, operands[0].integer != 0 ? 1 : 2), lane);
    case Opcode::random:
      return loop::philox(operands[0].integer, operands[1].integer);
    default:
      break;
  }
  const bool divides = i.opcode == Opcode::div || i.opcode == Opcode::floordiv ||
                       i.opcode == Opcode::remainder || i.opcode == Opcode::fmod;
  if (divides && !abi::is_float(i.dtype) && operands[1].integer == 0) {
    fail(kDivisionFailed);
    return operands[0].integer;
  }
  const std::span<const Scalar> used(operands.data(), i.operand_count);
  return to_bits(loop::evaluate(i.opcode, i.dtype, used), i.to);
}

void Machine::fail(std::int32_t status) {
  if (result_.status == 0) result_.status = status;
}

void Machine::indirect(Thread& thread, const Instruction& i) {
  for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
    if (!is_active(thread, i, l)) continue;
    std::int64_t value = get(thread, operand(i, 0), l);
    const auto& info = kernel_.detail<Symbolic>(i.operation);
    if (i.code == Code::indirect) {
      const std::int64_t extent = index(thread, i.detail, l);
      if (value < 0 || value >= extent) {
        fail(kIndexFailed);
        value = 0;
      }
    } else {
      const sym::Range range = info.symbol.context().info(info.symbol).range;
      if (value < range.low || value > range.high) {
        add(ReportKind::promise, thread, kNone, 0, 0,
            fmt::format("the value {} is not in {}..{} as promised", value, range.low, range.high));
      }
    }
    set(thread, i.result, l, value);
  }
}

// --- Control

void Machine::mask(Thread& thread, const Instruction& i) {
  const std::int64_t wanted = i.code == Code::mask_and ? 1 : 0;
  for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
    const std::int64_t holds = get(thread, operand(i, 0), l) != 0 ? 1 : 0;
    const bool active = is_active(thread, i, l);
    set(thread, i.result, l, active && holds == wanted ? 1 : 0);
    if (i.detail != 0 && l >= i.detail && active && holds == 1) {
      add(ReportKind::promise, thread, kNone, 0, 0,
          fmt::format("lane {} fulfils a condition that only lanes below {} may", l, i.detail));
    }
  }
}

bool Machine::control(Thread& thread, const Instruction& i) {
  ++thread.pc;
  switch (i.code) {
    case Code::jump:
      thread.pc = i.target;
      return true;
    case Code::jump_if_not:
      if (get(thread, operand(i, 0), thread.lane) == 0) thread.pc = i.target;
      return true;
    case Code::jump_unless_any:
      for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
        if (get(thread, operand(i, 0), l) != 0) return true;
      }
      thread.pc = i.target;
      return true;
    case Code::loop_test: {
      const std::int64_t step = get(thread, operand(i, 2), 0);
      if (step <= 0) {
        stop(fmt::format("a loop has the step {}", step));
        return false;
      }
      if (get(thread, operand(i, 0), 0) >= get(thread, operand(i, 1), 0)) thread.pc = i.target;
      return true;
    }
    case Code::loop_next:
      set(thread, operand(i, 0), 0, get(thread, operand(i, 0), 0) + get(thread, operand(i, 1), 0));
      thread.pc = i.target;
      return true;
    case Code::part_end: {
      const std::int64_t length = get(thread, operand(i, 2), 0) * i.detail;
      set(thread, i.result, 0,
          std::min(get(thread, operand(i, 0), 0) + length, get(thread, operand(i, 1), 0)));
      return true;
    }
    case Code::role_test: {
      const std::int64_t warp = thread.number / 32;
      if (warp < i.detail || warp >= i.detail + i.width) thread.pc = i.target;
      return true;
    }
    case Code::repeat_begin:
      if (thread.frames.empty()) watchers_.push_back(&thread);
      thread.frames.push_back({thread.reads.size(), thread.changes, false});
      return true;
    case Code::repeat_head:
      thread.reads.resize(thread.frames.back().first_read);
      thread.frames.back().changes = thread.changes;
      thread.frames.back().has_moved = false;
      return true;
    case Code::repeat_compare:
      repeat_compare(thread, i);
      return true;
    default:
      return repeat_again(thread, i);
  }
}

void Machine::repeat_compare(Thread& thread, const Instruction& i) {
  const std::uint32_t count = i.operand_count / 2;
  for (std::uint32_t o = 0; o < count; ++o) {
    const Ref next = operand(i, o);
    const Ref carried = operand(i, count + o);
    thread.frames.back().has_moved |=
        next.bits != carried.bits &&
        (next.varies() || get(thread, next, 0) != get(thread, carried, 0));
  }
}

// An iteration that has changed nothing is the same again until something that it has read changes.
bool Machine::repeat_again(Thread& thread, const Instruction& i) {
  Frame& frame = thread.frames.back();
  if (get(thread, operand(i, 0), 0) == 0) {
    thread.frames.pop_back();
    if (thread.frames.empty()) {
      std::erase(watchers_, &thread);
      thread.reads.clear();
    }
    return true;
  }
  thread.pc = i.target;
  bool changed = frame.has_moved || frame.changes != thread.changes;
  for (std::size_t r = frame.first_read; r < thread.reads.size(); ++r) {
    changed |= thread.reads[r].has_changed;
  }
  if (changed) return true;
  thread.status = Status::spinning;
  return false;
}

// --- Index expressions

std::int64_t Machine::index(const Thread& thread, std::uint32_t number, std::uint32_t lane) const {
  const IndexProgram& program = program_.indices[number];
  if (!program.is_affine) return index_steps(thread, program, lane);
  std::int64_t value = program.constant;
  for (std::uint32_t t = program.first; t < program.first + program.count; ++t) {
    const IndexTerm& term = program_.terms[t];
    value += term.coefficient * get(thread, term.value, lane);
  }
  return value;
}

std::int64_t Machine::index_steps(const Thread& thread, const IndexProgram& program,
                                  std::uint32_t lane) const {
  std::array<std::int64_t, 32> stack;
  std::size_t top = 0;
  for (std::uint32_t s = program.first; s < program.first + program.count; ++s) {
    const IndexStep& step = program_.steps[s];
    if (step.kind == IndexStepKind::push || step.kind == IndexStepKind::constant) {
      INKLE_CHECK(top < stack.size(), "an index expression is nested too deeply");
      stack[top++] =
          step.kind == IndexStepKind::push ? get(thread, step.value, lane) : step.constant;
      continue;
    }
    const std::int64_t b = stack[--top];
    std::int64_t& a = stack[top - 1];
    const bool divides = step.kind == IndexStepKind::floordiv || step.kind == IndexStepKind::mod;
    if (divides && b == 0) user_error("kernel {}: an index divides by zero", kernel_.name);
    switch (step.kind) {
      case IndexStepKind::add:
        a += b;
        break;
      case IndexStepKind::mul:
        a *= b;
        break;
      case IndexStepKind::min:
        a = std::min(a, b);
        break;
      case IndexStepKind::max:
        a = std::max(a, b);
        break;
      default: {
        const std::int64_t remainder = a % b;
        const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
        a = step.kind == IndexStepKind::mod ? (adjust ? remainder + b : remainder)
                                            : a / b - (adjust ? 1 : 0);
        break;
      }
    }
  }
  return stack[0];
}

}  // namespace inkle::kernel
