#include "kernel/derive.h"

#include <fmt/format.h>

#include "kernel/function.h"
#include "kernel/names.h"

namespace inkle::kernel {

using loop::Opcode;
using loop::OpcodeKind;

bool is_compute(Opcode opcode) {
  return opcode == Opcode::random || (opcode >= Opcode::cast && opcode != Opcode::indirect);
}

DType result_of(Opcode opcode, std::span<const Type> operands, DType to) {
  switch (loop::kind_of(opcode)) {
    case OpcodeKind::leaf:
      return DType::i64;
    case OpcodeKind::structure:
      return opcode == Opcode::select ? operands[1].dtype : to;
    case OpcodeKind::unary:
    case OpcodeKind::binary:
    case OpcodeKind::ternary:
      return operands[0].dtype;
    case OpcodeKind::test:
    case OpcodeKind::comparison:
      return DType::boolean;
  }
  return to;
}

std::string check_compute(Opcode opcode, std::span<const Type> operands, const Type& result) {
  const std::string_view name = loop::name_of(opcode);
  if (!is_compute(opcode)) return fmt::format("{} is no operation on values", name);
  if (operands.size() != loop::operand_count(opcode)) {
    return fmt::format("{} of {} operands, not {}", name, operands.size(),
                       loop::operand_count(opcode));
  }
  for (const Type& type : operands) {
    if (type.kind != TypeKind::scalar) return fmt::format("{} of what is no scalar", name);
    if (!abi::is_computable(type.dtype)) {
      return fmt::format("{} of {}", name, abi::name_of(type.dtype));
    }
  }
  if (result.kind != TypeKind::scalar || !abi::is_computable(result.dtype)) {
    return fmt::format("{} gives a type without arithmetic", name);
  }
  const DType first = operands[0].dtype;
  const DType derived = result_of(opcode, operands, result.dtype);
  if (derived != result.dtype) {
    return fmt::format("{} gives {}, not {}", name, abi::name_of(derived),
                       abi::name_of(result.dtype));
  }
  if (opcode == Opcode::cast) return {};
  if (opcode == Opcode::bitcast) {
    if (abi::size_of(first) == abi::size_of(result.dtype)) return {};
    return fmt::format("bitcast of {} to {}", abi::name_of(first), abi::name_of(result.dtype));
  }
  if (opcode == Opcode::select) {
    if (first == DType::boolean && operands[1] == operands[2]) return {};
    return fmt::format("select of {}, {} and {}", abi::name_of(first),
                       abi::name_of(operands[1].dtype), abi::name_of(operands[2].dtype));
  }
  if (opcode == Opcode::random && first != DType::i64) return "random of other types than i64";
  for (const Type& type : operands) {
    if (type.dtype != first) {
      return fmt::format("{} of {} and {}", name, abi::name_of(first), abi::name_of(type.dtype));
    }
  }
  const bool of_floats = opcode >= Opcode::sqrt && opcode <= Opcode::sign_bit;
  const bool of_bits = opcode >= Opcode::bit_and && opcode <= Opcode::shift_right;
  if ((of_floats && !abi::is_float(first)) || (of_bits && abi::is_float(first))) {
    return fmt::format("{} on {}", name, abi::name_of(first));
  }
  if (abi::is_reduced_float(first)) return fmt::format("{} on {}", name, abi::name_of(first));
  return {};
}

std::string check_function(NamedFunction function, std::span<const Type> operands) {
  const FunctionRow& row = row_of(function);
  if (operands.size() != static_cast<std::size_t>(row.operands)) {
    return fmt::format("{} of {} operands, not {}", row.name, operands.size(), row.operands);
  }
  if (row.exact != nullptr) {
    for (std::size_t o = 0; o < operands.size(); ++o) {
      if (operands[o] == scalar_type(row.takes.at(o))) continue;
      return fmt::format("{} takes {} as operand {}", row.name, abi::name_of(row.takes.at(o)), o);
    }
    return {};
  }
  for (const Type& type : operands) {
    if (type == scalar_type(DType::f32)) continue;
    if (type == scalar_type(DType::f64) && type == operands[0]) continue;
    return fmt::format("{} of a type that is not f32 or f64", row.name);
  }
  if (operands.front() != operands.back()) return fmt::format("{} of two types", row.name);
  return {};
}

Type function_type(NamedFunction function, std::span<const Type> operands) {
  const FunctionRow& row = row_of(function);
  return row.exact != nullptr ? scalar_type(row.gives) : operands.front();
}

bool has_own_detail(const Operation& o) {
  switch (o.op) {
    case Op::constant:
      return std::holds_alternative<Immediate>(o.detail);
    case Op::index:
      return std::holds_alternative<IndexOf>(o.detail);
    case Op::divide_index:
      return std::holds_alternative<IndexDivision>(o.detail);
    case Op::compute:
      return std::holds_alternative<Compute>(o.detail);
    case Op::function:
      return std::holds_alternative<Function>(o.detail);
    case Op::indirect:
    case Op::bind:
      return std::holds_alternative<Symbolic>(o.detail);
    case Op::loop:
      return std::holds_alternative<Loop>(o.detail);
    case Op::branch:
      return std::holds_alternative<Branch>(o.detail);
    case Op::vector:
      return std::holds_alternative<Vector>(o.detail);
    case Op::fold:
      return std::holds_alternative<Fold>(o.detail);
    case Op::roles:
      return std::holds_alternative<Roles>(o.detail);
    case Op::load:
    case Op::store:
    case Op::prefetch:
      return std::holds_alternative<Access>(o.detail);
    case Op::atomic:
      return std::holds_alternative<Atomic>(o.detail);
    case Op::reduce:
    case Op::scan:
    case Op::broadcast:
      return std::holds_alternative<Collective>(o.detail);
    case Op::shuffle:
      return std::holds_alternative<Shuffle>(o.detail);
    case Op::barrier:
      return std::holds_alternative<Barrier>(o.detail);
    case Op::fence:
      return std::holds_alternative<Fence>(o.detail);
    case Op::copy_async:
      return std::holds_alternative<Copy>(o.detail);
    case Op::copy_wait:
    case Op::barrier_init:
    case Op::barrier_arrive:
    case Op::barrier_wait:
    case Op::bulk_wait:
    case Op::mma_wait:
      return std::holds_alternative<Count>(o.detail);
    case Op::tma_load:
    case Op::tma_store:
      return std::holds_alternative<Bulk>(o.detail);
    case Op::fragment_load:
    case Op::fragment_store:
      return std::holds_alternative<FragmentAccess>(o.detail);
    case Op::fragment_map:
      return std::holds_alternative<FragmentMap>(o.detail);
    case Op::mma:
      return std::holds_alternative<MatrixMultiply>(o.detail);
    case Op::report:
      return std::holds_alternative<Report>(o.detail);
    case Op::repeat:
    case Op::transpose:
    case Op::copy_commit:
    case Op::bulk_commit:
    case Op::fragment_fill:
    case Op::convert_layout:
    case Op::mma_fence:
    case Op::mma_commit:
    case Op::dependency_wait:
    case Op::launch_dependents:
      return std::holds_alternative<std::monostate>(o.detail);
  }
  return false;
}

std::string to_string(const Kernel& kernel, const Type& type) {
  if (type.kind == TypeKind::scalar) return std::string(abi::name_of(type.dtype));
  if (type.kind == TypeKind::token) return "token";
  if (type.fragment >= kernel.fragments.size()) return "frag<?>";
  const FragmentType& f = kernel.fragments[type.fragment];
  return fmt::format("frag<{}[{},{}] {} {}>", abi::name_of(f.dtype), f.rows, f.columns,
                     name_of(f.holder), name_of(f.layout));
}

}  // namespace inkle::kernel
