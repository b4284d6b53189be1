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
  for (const Type& type : operands) {
    if (type == scalar_type(DType::f32)) continue;
    if (type == scalar_type(DType::f64) && type == operands[0]) continue;
    return fmt::format("{} of a type that is not f32 or f64", row.name);
  }
  if (operands.front() != operands.back()) return fmt::format("{} of two types", row.name);
  return {};
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
