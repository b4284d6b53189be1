#include "kernel/interpret_values.h"

#include <algorithm>
#include <array>

#include "abi/plan.h"
#include "base/error.h"
#include "kernel/function.h"
#include "loop/scalar.h"

namespace inkle::kernel {

using loop::Opcode;

namespace {

constexpr auto kIndexFailed = static_cast<std::int32_t>(abi::KernelStatus::index_out_of_range);
constexpr auto kDivisionFailed = static_cast<std::int32_t>(abi::KernelStatus::division_by_zero);

}  // namespace

// --- Index expressions ---------------------------------------------------------------------------

std::int64_t ThreadCode::index(const Thread& thread, std::uint32_t number,
                               std::uint32_t lane) const {
  const IndexProgram& program = program_.indices[number];
  if (!program.is_affine) return index_steps(thread, program, lane);
  std::int64_t value = program.constant;
  for (std::uint32_t t = program.first; t < program.first + program.count; ++t) {
    const IndexTerm& term = program_.terms[t];
    value += term.coefficient * get(thread, term.value, lane);
  }
  return value;
}

std::int64_t ThreadCode::index_steps(const Thread& thread, const IndexProgram& program,
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

// --- Scalar operations ---------------------------------------------------------------------------

void ScalarOperations::move(Thread& thread, const Instruction& i) const {
  const Ref from = code_.operand(i, 0);
  for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
    if (code_.is_active(thread, i, l)) set_slot(thread, i.result, l, code_.get(thread, from, l));
  }
}

void ScalarOperations::compute(Thread& thread, const Instruction& i) {
  const std::uint32_t first = i.width == 1 ? thread.lane : 0;
  for (std::uint32_t l = first; l < first + static_cast<std::uint32_t>(i.width); ++l) {
    if (code_.is_active(thread, i, l)) set_slot(thread, i.result, l, evaluate(thread, i, l));
  }
}

std::int64_t ScalarOperations::evaluate(const Thread& thread, const Instruction& i,
                                        std::uint32_t lane) {
  if (i.code == Code::index) return code_.index(thread, i.detail, lane);
  if (i.code == Code::divide_index) {
    const std::int64_t by = code_.get(thread, code_.operand(i, 1), lane);
    const std::array both = {to_scalar(code_.get(thread, code_.operand(i, 0), lane), i.dtype),
                             to_scalar(by == 0 ? 1 : by, i.dtype)};
    const Opcode opcode = i.detail == 1 ? Opcode::remainder : Opcode::floordiv;
    return to_bits(loop::evaluate(opcode, i.dtype, both), i.to);
  }
  const FunctionRow* const named =
      i.code == Code::function ? &row_of(code_.kernel().detail<Function>(i.operation).function)
                               : nullptr;
  std::array<Scalar, 3> operands;
  if (named != nullptr && named->exact != nullptr) {
    for (std::uint32_t o = 0; o < i.operand_count; ++o) {
      operands[o] = to_scalar(code_.get(thread, code_.operand(i, o), lane), named->takes.at(o));
    }
    return to_bits(named->exact(operands), i.to);
  }
  for (std::uint32_t o = 0; o < i.operand_count; ++o) {
    const DType dtype = i.opcode == Opcode::select && o == 0 ? DType::boolean : i.dtype;
    operands[o] = to_scalar(code_.get(thread, code_.operand(i, o), lane), dtype);
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
      return code_.get(thread, code_.operand(i, operands[0].integer != 0 ? 1 : 2), lane);
    case Opcode::random:
      return loop::philox(operands[0].integer, operands[1].integer);
    default:
      break;
  }
  const bool divides = i.opcode == Opcode::div || i.opcode == Opcode::floordiv ||
                       i.opcode == Opcode::remainder || i.opcode == Opcode::fmod;
  if (divides && !abi::is_float(i.dtype) && operands[1].integer == 0) {
    findings_.fail(kDivisionFailed);
    return operands[0].integer;
  }
  const std::span<const Scalar> used(operands.data(), i.operand_count);
  return to_bits(loop::evaluate(i.opcode, i.dtype, used), i.to);
}

void ScalarOperations::indirect(Thread& thread, const Instruction& i) {
  for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
    if (!code_.is_active(thread, i, l)) continue;
    std::int64_t value = code_.get(thread, code_.operand(i, 0), l);
    const auto& info = code_.kernel().detail<Symbolic>(i.operation);
    if (i.code == Code::indirect) {
      const std::int64_t extent = code_.index(thread, i.detail, l);
      if (value < 0 || value >= extent) {
        findings_.fail(kIndexFailed);
        value = 0;
      }
    } else {
      const sym::Range range = info.symbol.context().info(info.symbol).range;
      if (value < range.low || value > range.high) {
        findings_.add(
            ReportKind::promise, thread, kNone, 0, 0,
            fmt::format("the value {} is not in {}..{} as promised", value, range.low, range.high));
      }
    }
    set_slot(thread, i.result, l, value);
  }
}

void ScalarOperations::mask(Thread& thread, const Instruction& i) {
  const std::int64_t wanted = i.code == Code::mask_and ? 1 : 0;
  for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
    const std::int64_t holds = code_.get(thread, code_.operand(i, 0), l) != 0 ? 1 : 0;
    const bool active = code_.is_active(thread, i, l);
    set_slot(thread, i.result, l, active && holds == wanted ? 1 : 0);
    if (i.detail != 0 && l >= i.detail && active && holds == 1) {
      findings_.add(
          ReportKind::promise, thread, kNone, 0, 0,
          fmt::format("lane {} fulfils a condition that only lanes below {} may", l, i.detail));
    }
  }
}

}  // namespace inkle::kernel
