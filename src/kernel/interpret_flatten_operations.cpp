// Operations without control as instructions.
#include "base/error.h"
#include "kernel/interpret_flatten.h"

namespace inkle::kernel {

using loop::Opcode;

void Flattener::operation(OperationId id) {
  switch (kernel_[id].op) {
    case Op::constant:
    case Op::index:
    case Op::divide_index:
    case Op::compute:
    case Op::function:
    case Op::indirect:
    case Op::bind:
      return value_operation(id);
    case Op::loop:
      return loop(id);
    case Op::repeat:
      return repeat(id);
    case Op::branch:
      return branch(id);
    case Op::vector:
      return vector(id);
    case Op::fold:
      return fold(id);
    case Op::roles:
      return roles(id);
    case Op::load:
    case Op::store:
    case Op::atomic:
      return memory_operation(id);
    case Op::prefetch:
    case Op::launch_dependents:
      return;
    case Op::reduce:
    case Op::scan:
    case Op::broadcast:
      return collective(id);
    case Op::transpose:
      return transpose(id);
    case Op::shuffle: {
      plain(Code::shuffle, id);
      return;
    }
    case Op::barrier:
      return plain(Code::barrier, id);
    case Op::fence:
      return plain(Code::fence, id);
    case Op::dependency_wait:
      out_.program().has_dependency_wait = true;
      return plain(Code::dependency_wait, id);
    case Op::report:
      return plain(Code::report, id);
    case Op::copy_async:
    case Op::copy_commit:
    case Op::copy_wait:
    case Op::barrier_init:
    case Op::barrier_arrive:
    case Op::barrier_wait:
    case Op::tma_load:
    case Op::tma_store:
    case Op::bulk_commit:
    case Op::bulk_wait:
      return asynchronous_operation(id);
    case Op::fragment_map:
      return fragment_map(id);
    case Op::fragment_fill:
    case Op::fragment_load:
    case Op::fragment_store:
    case Op::convert_layout:
    case Op::mma:
    case Op::mma_fence:
    case Op::mma_commit:
    case Op::mma_wait:
      return fragment_operation(id);
  }
}

namespace {

bool is_division(Opcode opcode) {
  return opcode == Opcode::div || opcode == Opcode::floordiv || opcode == Opcode::remainder ||
         opcode == Opcode::fmod;
}

}  // namespace

void Flattener::value_operation(OperationId id) {
  const Operation& op = kernel_[id];
  const Type& type = kernel_.type_of(op.results.at(0));
  if (op.op == Op::constant) {
    const auto& value = kernel_.detail<Immediate>(id);
    const Scalar scalar = abi::is_float(type.dtype) ? loop::make_scalar(type.dtype, value.real)
                                                    : loop::make_scalar(type.dtype, value.integer);
    out_.bind(op.results[0], out_.constant(to_bits(scalar, type.dtype)));
    return;
  }
  const std::vector<Ref> operands = out_.refs(op.operands);
  bool varies = any_varies(operands);
  std::uint32_t detail = 0;
  Code code = Code::function;
  Opcode opcode = Opcode::add;
  if (op.op == Op::index) {
    detail = indices_.index(kernel_.detail<IndexOf>(id).expression);
    varies = out_.program().indices[detail].varies;
    code = Code::index;
  } else if (op.op == Op::divide_index) {
    code = Code::divide_index;
    detail = kernel_.detail<IndexDivision>(id).modulo ? 1 : 0;
  } else if (op.op == Op::compute) {
    opcode = kernel_.detail<Compute>(id).opcode;
    code = Code::compute;
    // A lane that is masked off divides nothing.
    varies |= !lanes_.mask.is_none() && is_division(opcode) && !abi::is_float(type.dtype);
  } else if (op.op == Op::indirect || op.op == Op::bind) {
    const auto& info = kernel_.detail<Symbolic>(id);
    code = op.op == Op::bind ? Code::bind : Code::indirect;
    varies |= !lanes_.mask.is_none();
    if (op.op == Op::indirect) detail = indices_.index(info.extent);
  }
  const Ref result = out_.value_slot(type, varies);
  Instruction& made = out_.emit(code, id, operands);
  made.result = result;
  made.opcode = opcode;
  made.dtype = op.operands.empty() ? type.dtype : kernel_.type_of(op.operands.back()).dtype;
  made.to = type.dtype;
  made.detail = detail;
  made.width = result.varies() ? lanes_.width : 1;
  if (result.varies()) made.mask = lanes_.mask;
  out_.bind(op.results[0], result);
  if (op.op == Op::indirect || op.op == Op::bind) {
    indices_.define(kernel_.detail<Symbolic>(id).symbol, result);
  }
}

void Flattener::memory_operation(OperationId id) {
  const Operation& op = kernel_[id];
  const std::vector<Ref> all = out_.refs(op.operands);
  std::span<const Ref> operands = all;
  const std::uint32_t access = indices_.access(*access_of(op), operands);
  const bool is_masked = !lanes_.mask.is_none();
  bool varies = out_.program().accesses[access].varies || is_masked || any_varies(operands);
  varies &= lanes_.width > 0;
  std::vector<Ref> used(operands.begin(), operands.end());
  Ref result;
  if (!op.results.empty()) {
    result = out_.value_slot(kernel_.type_of(op.results[0]), varies);
    out_.bind(op.results[0], result);
  }
  const Code code = op.op == Op::load    ? Code::load
                    : op.op == Op::store ? Code::store
                                         : Code::atomic;
  Instruction& made = out_.emit(code, id, used);
  made.result = result;
  made.dtype = made.to = kernel_.memories[access_of(op)->memory].dtype;
  made.detail = access;
  made.width = varies ? lanes_.width : 1;
  if (varies) made.mask = lanes_.mask;
}

// An instruction with the operation's operands and results as they are.
void Flattener::plain(Code code, OperationId id) {
  const Operation& op = kernel_[id];
  const std::vector<Ref> operands = out_.refs(op.operands);
  const bool varies = lanes_.width > 0 && (any_varies(operands) || (code == Code::report));
  Ref result;
  if (!op.results.empty() && kernel_.type_of(op.results[0]).kind == TypeKind::scalar) {
    result = out_.value_slot(kernel_.type_of(op.results[0]), varies);
    out_.bind(op.results[0], result);
  }
  Instruction& made = out_.emit(code, id, operands);
  made.result = result;
  made.width = varies ? lanes_.width : 1;
  if (varies) made.mask = lanes_.mask;
}

void Flattener::asynchronous_operation(OperationId id) {
  const Operation& op = kernel_[id];
  const std::vector<Ref> all = out_.refs(op.operands);
  std::span<const Ref> operands = all;
  std::uint32_t detail = 0;
  std::uint32_t second = 0;
  bool varies = false;
  Code code = Code::copy_commit;
  std::vector<Ref> used;
  switch (op.op) {
    case Op::copy_async: {
      const auto& copy = kernel_.detail<Copy>(id);
      detail = indices_.access(copy.from, operands);
      second = indices_.access(copy.to, operands);
      varies = out_.program().accesses[detail].varies || out_.program().accesses[second].varies ||
               !lanes_.mask.is_none();
      code = Code::copy_async;
      break;
    }
    case Op::barrier_init:
    case Op::barrier_arrive:
    case Op::barrier_wait:
      detail = indices_.access(kernel_.detail<Count>(id).access, operands);
      used.assign(operands.begin(), operands.end());
      code = op.op == Op::barrier_init     ? Code::barrier_init
             : op.op == Op::barrier_arrive ? Code::barrier_arrive
                                           : Code::barrier_wait;
      break;
    case Op::tma_load:
    case Op::tma_store: {
      const auto& bulk = kernel_.detail<Bulk>(id);
      const std::size_t dimensions = kernel_.memories[bulk.map].shape.size();
      used.assign(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(dimensions));
      operands = operands.subspan(dimensions);
      detail = indices_.access(bulk.shared, operands);
      if (op.op == Op::tma_load) second = indices_.access(bulk.barrier, operands);
      code = op.op == Op::tma_load ? Code::tma_load : Code::tma_store;
      break;
    }
    default:
      code = op.op == Op::copy_commit   ? Code::copy_commit
             : op.op == Op::copy_wait   ? Code::copy_wait
             : op.op == Op::bulk_commit ? Code::bulk_commit
                                        : Code::bulk_wait;
      break;
  }
  Instruction& made = out_.emit(code, id, used);
  made.detail = detail;
  made.target = second;
  made.width = varies && lanes_.width > 0 ? lanes_.width : 1;
  if (made.width > 1) made.mask = lanes_.mask;
}

void Flattener::fragment_operation(OperationId id) {
  const Operation& op = kernel_[id];
  const std::vector<Ref> all = out_.refs(op.operands);
  std::span<const Ref> operands = all;
  std::uint32_t detail = 0;
  std::uint32_t tiles = 0;
  Code code = Code::mma_fence;
  switch (op.op) {
    case Op::fragment_fill:
      code = Code::fragment_fill;
      break;
    case Op::convert_layout:
      code = Code::convert_layout;
      break;
    case Op::fragment_load:
    case Op::fragment_store:
      detail = indices_.fragment_access(kernel_.detail<FragmentAccess>(id), operands);
      code = op.op == Op::fragment_load ? Code::fragment_load : Code::fragment_store;
      break;
    case Op::mma: {
      const auto& info = kernel_.detail<MatrixMultiply>(id);
      code = Code::mma;
      // c and those of a and b that are fragments come first.
      const std::size_t fragments = 3 - info.shared.size();
      operands = operands.subspan(fragments);
      tiles = static_cast<std::uint32_t>(info.shared.size());
      detail = static_cast<std::uint32_t>(out_.program().fragments.size());
      for (const FragmentAccess& tile : info.shared) indices_.fragment_access(tile, operands);
      operands = std::span<const Ref>(all).first(fragments);
      break;
    }
    default:
      code = op.op == Op::mma_fence    ? Code::mma_fence
             : op.op == Op::mma_commit ? Code::mma_commit
                                       : Code::mma_wait;
      break;
  }
  std::vector<Ref> used(operands.begin(), operands.end());
  Ref result;
  if (!op.results.empty() && kernel_.type_of(op.results[0]).kind == TypeKind::fragment) {
    result = out_.value_slot(kernel_.type_of(op.results[0]), true);
    out_.bind(op.results[0], result);
  }
  Instruction& made = out_.emit(code, id, used);
  made.result = result;
  made.detail = detail;
  made.target = tiles;
}

}  // namespace inkle::kernel
