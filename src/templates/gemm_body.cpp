#include "templates/gemm_body.h"

#include <fmt/format.h>

#include <algorithm>

namespace inkle::templates {

using kernel::Form;
using kernel::MemoryId;
using kernel::ValueId;
using loop::Instruction;
using loop::Opcode;

std::vector<MemoryId> begin_kernel(const GemmProblem& problem, kernel::Builder& builder) {
  kernel::Kernel& made = builder.kernel();
  made.name = problem.name;
  made.sizes = problem.sizes;
  made.sources = problem.sources;
  std::vector<MemoryId> declared;
  for (const GemmParameter& parameter : problem.parameters) {
    kernel::Memory memory;
    memory.name = fmt::format("p{}", declared.size());
    memory.dtype = parameter.dtype;
    memory.role = parameter.role;
    memory.alignment = parameter.alignment;
    memory.may_alias = parameter.may_alias;
    declared.push_back(builder.parameter(std::move(memory)));
  }
  return declared;
}

kernel::Values GemmBody::run(const loop::Body& body, ValueId given, const GemmIndices& indices) {
  given_ = given;
  indices_ = indices;
  values_.clear();
  for (loop::Val v = 0; v < body.instructions.size(); ++v) {
    const auto found = std::ranges::find(loaded, v, [](const auto& l) { return l.first; });
    values_.push_back(found != loaded.end() ? b_.load(found->second) : value(body[v]));
  }
  kernel::Values result;
  for (const loop::Val v : body.yields) result.push_back(values_.at(v));
  return result;
}

void GemmBody::store(ValueId sum, const GemmIndices& indices) {
  const kernel::Values made = run(problem_.epilogue, sum, indices);
  for (const GemmStore& store : problem_.stores) {
    const MemoryId to = parameters_.at(store.parameter);
    const Expr offset = at(store.offset, indices);
    const Form form = form_of(offset) == Form::wide ? Form::wide : Form::each;
    b_.store(to, {offset}, b_.cast(made.at(store.yield), b_.kernel().memories[to].dtype), form);
  }
}

Expr GemmBody::at(Expr e, const GemmIndices& indices) const {
  const Expr values[] = {indices.batch, indices.row, indices.column, indices.term};
  std::vector<std::pair<Expr, Expr>> map;
  for (std::size_t v = 0; v < problem_.variables.size(); ++v) {
    const Expr variable = problem_.variables[v];
    if (!variable.is_constant() && !values[v].is_null()) map.emplace_back(variable, values[v]);
  }
  return sym::substitute(e, map);
}

Form GemmBody::form_of(Expr offset) const {
  if (lane_.is_null()) return Form::each;
  if (!sym::contains(offset, lane_)) return Form::splat;
  const auto stride = sym::stride(offset, lane_);
  return stride && stride->is_constant(1) ? Form::wide : Form::each;
}

ValueId GemmBody::value(const Instruction& i) {
  switch (i.opcode) {
    case Opcode::constant:
      return abi::is_float(i.dtype) ? b_.real(i.dtype, i.real) : b_.integer(i.dtype, i.integer);
    case Opcode::index:
      return b_.index(at(i.indices[0], indices_));
    case Opcode::row:
      return given_;
    case Opcode::load:
      return load(i);
    default:
      break;
  }
  kernel::Values operands;
  for (const loop::Val operand : i.used()) operands.push_back(values_.at(operand));
  return b_.compute(i.opcode, i.dtype, operands);
}

ValueId GemmBody::load(const Instruction& i) {
  const MemoryId from = parameters_.at(i.buffer);
  const kernel::Memory& memory = b_.kernel().memories[from];
  kernel::Access access;
  access.memory = from;
  access.indices = {at(i.indices[0], indices_)};
  access.form = form_of(access.indices[0]);
  access.constant = constant_loads && memory.role == kernel::Role::in && !memory.may_alias;
  if (i.operand_count == 0) return b_.load(access);
  return b_.branch(
      values_.at(i.operands[0]), [&] { return kernel::Values{b_.load(access)}; },
      [&] { return kernel::Values{values_.at(i.operands[1])}; })[0];
}

}  // namespace inkle::templates
