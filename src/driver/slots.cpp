#include "driver/slots.h"

#include "base/error.h"

namespace inkle::driver {

using abi::SizeInstruction;
using abi::Slot;
using sym::Expr;

SlotTable::SlotTable(abi::Plan& plan, const loop::Program& program)
    : plan_(plan), program_(program) {}

Slot SlotTable::emit(SizeInstruction instruction) {
  instruction.result = plan_.slot_count++;
  plan_.size_program.push_back(instruction);
  return instruction.result;
}

Slot SlotTable::combine(SizeInstruction::Op op, Slot a, Slot b) {
  SizeInstruction instruction;
  instruction.op = op;
  instruction.a = a;
  instruction.b = b;
  return emit(instruction);
}

Slot SlotTable::constant(std::int64_t value) { return slot(program_.context->constant(value)); }

Slot SlotTable::leaf(Expr symbol) {
  SizeInstruction instruction;
  for (std::size_t a = 0; a < program_.arguments.size(); ++a) {
    const loop::Argument& argument = program_.arguments[a];
    if (argument.buffer || !(argument.symbol == symbol)) continue;
    instruction.op = SizeInstruction::Op::argument;
    instruction.immediate = static_cast<std::int64_t>(a);
    return emit(instruction);
  }
  for (std::size_t a = 0; a < program_.arguments.size(); ++a) {
    if (!program_.arguments[a].buffer) continue;
    const loop::Buffer& buffer = program_.buffers[*program_.arguments[a].buffer];
    const auto find = [&](const std::vector<Expr>& list, SizeInstruction::Op op) {
      for (std::size_t d = 0; d < list.size(); ++d) {
        if (!(list[d] == symbol)) continue;
        instruction.op = op;
        instruction.immediate = static_cast<std::int64_t>(a);
        instruction.b = static_cast<Slot>(d);
        return true;
      }
      return false;
    };
    if (find(buffer.sizes, SizeInstruction::Op::size) ||
        (buffer.strides && find(*buffer.strides, SizeInstruction::Op::stride))) {
      return emit(instruction);
    }
  }
  unsupported("size symbol {} is not an argument nor a size of one", symbol.name());
}

Slot SlotTable::compute(Expr e) {
  using sym::Kind;
  using Op = SizeInstruction::Op;
  const auto fold = [&](Op op) {
    Slot total = slot(e.operands()[0]);
    for (std::size_t i = 1; i < e.operands().size(); ++i) {
      total = combine(op, total, slot(e.operands()[i]));
    }
    return total;
  };
  switch (e.kind()) {
    case Kind::constant: {
      SizeInstruction instruction;
      instruction.op = Op::constant;
      instruction.immediate = *e.constant();
      return emit(instruction);
    }
    case Kind::symbol:
      return leaf(e);
    case Kind::add:
      return fold(Op::add);
    case Kind::mul:
      return fold(Op::mul);
    case Kind::floordiv:
      return fold(Op::floordiv);
    case Kind::mod:
      return fold(Op::mod);
    case Kind::min:
      return fold(Op::min);
    case Kind::max:
      return fold(Op::max);
  }
  INKLE_CHECK(false, "unknown kind of expression");
}

Slot SlotTable::slot(Expr e) {
  INKLE_CHECK(!e.is_null(), "a size is missing");
  if (const auto at = known_.find(e); at != known_.end()) return at->second;
  const Slot made = compute(e);
  known_.emplace(e, made);
  return made;
}

std::vector<Slot> SlotTable::slots(const std::vector<Expr>& list) {
  std::vector<Slot> result;
  for (const Expr e : list) result.push_back(slot(e));
  return result;
}

}  // namespace inkle::driver
