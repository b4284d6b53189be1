#include "templates/gemm_epilogue.h"

namespace inkle::templates {

using kernel::Form;
using kernel::MemoryId;
using kernel::ValueId;
using loop::Instruction;
using loop::Opcode;

void GemmEpilogue::write(ValueId sum, Expr batch, Expr row, Expr column) {
  sum_ = sum;
  batch_ = batch;
  row_ = row;
  column_ = column;
  values_.clear();
  for (loop::Val v = 0; v < problem_.epilogue.instructions.size(); ++v) {
    values_.push_back(value(problem_.epilogue[v]));
  }
  for (const GemmStore& store : problem_.stores) {
    const MemoryId to = parameters_.at(store.parameter);
    const ValueId v = values_.at(problem_.epilogue.yields.at(store.yield));
    const Expr offset = at(store.offset);
    const Form form = form_of(offset) == Form::wide ? Form::wide : Form::each;
    b_.store(to, {offset}, b_.cast(v, b_.kernel().memories[to].dtype), form);
  }
}

Expr GemmEpilogue::at(Expr e) const {
  const Expr values[] = {batch_, row_, column_};
  std::vector<std::pair<Expr, Expr>> map;
  for (std::size_t v = 0; v < std::size(values); ++v) {
    const Expr variable = problem_.variables[v];
    if (!variable.is_constant()) map.emplace_back(variable, values[v]);
  }
  return sym::substitute(e, map);
}

Form GemmEpilogue::form_of(Expr offset) const {
  if (!sym::contains(offset, lane_)) return Form::splat;
  const auto stride = sym::stride(offset, lane_);
  return stride && stride->is_constant(1) ? Form::wide : Form::each;
}

ValueId GemmEpilogue::value(const Instruction& i) {
  switch (i.opcode) {
    case Opcode::constant:
      return abi::is_float(i.dtype) ? b_.real(i.dtype, i.real) : b_.integer(i.dtype, i.integer);
    case Opcode::index:
      return b_.index(at(i.indices[0]));
    case Opcode::row:
      return sum_;
    case Opcode::load:
      return load(i);
    default:
      break;
  }
  kernel::Values operands;
  for (const loop::Val operand : i.used()) operands.push_back(values_.at(operand));
  return b_.compute(i.opcode, i.dtype, operands);
}

ValueId GemmEpilogue::load(const Instruction& i) {
  const MemoryId from = parameters_.at(i.buffer);
  const kernel::Memory& memory = b_.kernel().memories[from];
  kernel::Access access;
  access.memory = from;
  access.indices = {at(i.indices[0])};
  access.form = form_of(access.indices[0]);
  access.constant = memory.role == kernel::Role::in && !memory.may_alias;
  if (i.operand_count == 0) return b_.load(access);
  return b_.branch(
      values_.at(i.operands[0]), [&] { return kernel::Values{b_.load(access)}; },
      [&] { return kernel::Values{values_.at(i.operands[1])}; })[0];
}

}  // namespace inkle::templates
