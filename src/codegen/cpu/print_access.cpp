#include "codegen/cpu/print_access.h"

#include <algorithm>

#include "base/error.h"
#include "codegen/cpu/ir_operations.h"

namespace inkle::codegen::cpu {

using kernel::Access;
using kernel::Form;
using kernel::Operation;
using kernel::ValueId;

AccessPrinter::AccessPrinter(Ir& ir, const kernel::Kernel& kernel, KernelValues& values)
    : ir_(ir), kernel_(kernel), values_(values), bases_(kernel.memories.size(), nullptr) {}

// Pairs in a parameter of bf16 lie as that does.
int AccessPrinter::alignment_of(const Access& access) const {
  const kernel::Memory& memory = kernel_.memories[access.memory];
  const auto size = static_cast<int>(abi::size_of(memory.dtype));
  return memory.space == kernel::Space::global ? std::min(size, memory.alignment) : size;
}
DType AccessPrinter::dtype_of(const Access& access) const {
  return kernel_.memories[access.memory].dtype;
}

Value* AccessPrinter::address(const Access& access, ValueId offset) {
  INKLE_CHECK(access.is_lowered, "kernel {}: an access that is not lowered", kernel_.name);
  return cpu::address(ir_, memory_type(ir_, dtype_of(access), 1), bases_[access.memory],
                      values_.get(offset, false));
}

// Where no lane is active, bytes that may be read or written.
Value* AccessPrinter::harmless(Value* address) {
  return values_.mask() == nullptr ? address
                                   : select(ir_, any(ir_, values_.mask()), address, spare_);
}

Value* AccessPrinter::active() {
  if (values_.mask() != nullptr) return values_.mask();
  return first_lanes(ir_, values_.lanes(), values_.lanes());
}

void AccessPrinter::load(const Operation& op) {
  const auto& access = std::get<Access>(op.detail);
  const DType dtype = dtype_of(access);
  const int alignment = alignment_of(access);
  Value* from = address(access, op.operands[0]);
  if (!values_.varies(op.results[0])) {
    Value* loaded = cpu::load(ir_, memory_type(ir_, dtype, 1), harmless(from), alignment);
    values_.define(op.results[0], to_register(ir_, loaded, dtype));
    return;
  }
  Type* type = memory_type(ir_, dtype, values_.lanes());
  Value* loaded = nullptr;
  if (access.form == Form::wide) {
    loaded = values_.mask() == nullptr
                 ? cpu::load(ir_, type, from, alignment)
                 : masked_load(ir_, type, from, alignment, values_.mask(), zero(type));
  } else if (!access.has_lane_offset) {  // one element, loaded in each lane
    loaded = broadcast(ir_, cpu::load(ir_, memory_type(ir_, dtype, 1), harmless(from), alignment),
                       values_.lanes());
  } else {
    loaded =
        gather(ir_, type, from, values_.get(op.operands[1], true), alignment, active(), zero(type));
  }
  values_.define(op.results[0], to_register(ir_, loaded, dtype));
}

void AccessPrinter::store(const Operation& op) {
  const auto& access = std::get<Access>(op.detail);
  const DType dtype = dtype_of(access);
  const int alignment = static_cast<int>(abi::size_of(dtype));
  Value* to = address(access, op.operands[0]);
  const ValueId stored = op.operands.back();
  const bool scattered =
      access.has_lane_offset || (access.form == Form::each && values_.varies(stored));
  if (values_.lanes() == 1 || (access.form != Form::wide && !scattered)) {
    cpu::store(ir_, to_memory(ir_, values_.get(stored, false), dtype), harmless(to), alignment);
    return;
  }
  Value* value = to_memory(ir_, values_.get(stored, true), dtype);
  if (scattered) {
    Value* offsets = access.has_lane_offset ? values_.get(op.operands[1], true)
                                            : zero(ir_.integer_type(32, values_.lanes()));
    scatter(ir_, value, to, offsets, alignment, active());
  } else if (values_.mask() == nullptr) {
    cpu::store(ir_, value, to, alignment);
  } else {
    masked_store(ir_, value, to, alignment, values_.mask());
  }
}

void AccessPrinter::prefetch(const Operation& op) {
  cpu::prefetch(ir_, address(std::get<Access>(op.detail), op.operands[0]));
}

void AccessPrinter::atomic(const Operation& op) {
  const auto& detail = std::get<kernel::Atomic>(op.detail);
  const DType dtype = dtype_of(detail.access);
  if (detail.op != kernel::AtomicOp::add || detail.needs_old ||
      (dtype != DType::f32 && dtype != DType::f64 && dtype != DType::i32 && dtype != DType::i64)) {
    unsupported("kernel {}: no atomic addition of {}", kernel_.name, abi::name_of(dtype));
  }
  Value* base = address(detail.access, op.operands[0]);
  Value* offsets = detail.access.has_lane_offset ? values_.get(op.operands[1], true) : nullptr;
  Value* value = values_.get(op.operands.back(), true);
  Type* type = memory_type(ir_, dtype, 1);
  for (int lane = 0; lane < values_.lanes(); ++lane) {
    const auto add_lane = [&] {
      Value* to = base;
      if (offsets != nullptr) {
        Value* offset = resize_signed(ir_, extract(ir_, offsets, lane), ir_.integer_type(64));
        to = cpu::address(ir_, type, to, offset);
      }
      atomic_add(ir_, to, extract(ir_, value, lane), static_cast<int>(abi::size_of(dtype)));
      return Values();
    };
    if (values_.mask() == nullptr)
      add_lane();
    else
      ir_.branch(extract(ir_, values_.mask(), lane), true, add_lane, [] { return Values(); });
  }
}

}  // namespace inkle::codegen::cpu
