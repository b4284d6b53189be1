// What a kernel's vectors say together.
#include "kernel/kernel.h"

#include <algorithm>

#include "base/error.h"

namespace inkle::kernel {

namespace {

Expr extent_of(const Launch& launch, AxisKind kind) {
  Expr product;
  for (const Axis& axis : launch.axes) {
    if (axis.kind != kind) continue;
    product = product.is_null() ? axis.extent : product * axis.extent;
  }
  return product;
}

std::int64_t constant_extent(const Launch& launch, AxisKind kind) {
  const Expr extent = extent_of(launch, kind);
  if (extent.is_null()) return 1;
  const auto value = extent.constant();
  INKLE_CHECK(value.has_value(), "an axis of threads or clusters has no constant extent");
  return *value;
}

}  // namespace

Type Kernel::fragment_type(const FragmentType& type) {
  const auto found = std::find(fragments.begin(), fragments.end(), type);
  const auto at = static_cast<std::uint32_t>(found - fragments.begin());
  if (found == fragments.end()) fragments.push_back(type);
  return {TypeKind::fragment, type.dtype, at};
}

std::int64_t Kernel::threads() const { return constant_extent(launch, AxisKind::thread); }
std::int64_t Kernel::cluster() const { return constant_extent(launch, AxisKind::cluster); }
Expr Kernel::tasks() const { return extent_of(launch, AxisKind::task); }
Expr Kernel::blocks() const {
  const Expr grid = extent_of(launch, AxisKind::grid);
  return grid.is_null() ? grid : grid * cluster();
}

Expr element_count(const Memory& memory) {
  INKLE_CHECK(!memory.shape.empty(), "memory {} has no shape", memory.name);
  Expr count = memory.shape.back() + memory.padding;
  for (std::size_t d = memory.shape.size() - 1; d-- > 0;) count = memory.shape[d] * count;
  return count;
}

std::int64_t element_bytes(const Memory& memory) {
  return memory.space == Space::barrier ? 8 : abi::size_of(memory.dtype);
}

std::size_t rank_of(const Memory& memory) { return memory.shape.empty() ? 1 : memory.shape.size(); }

sym::SymbolInfo facts_of(const Loop& loop) {
  sym::SymbolInfo facts;
  if (loop.begin.is_constant(0)) {
    facts.range.low = 0;
    facts.extent = loop.end;
  } else {
    const std::int64_t high = sym::bounds(loop.end).high;
    facts.range = {sym::bounds(loop.begin).low, high == sym::Range::kMax ? high : high - 1};
    // A loop that never runs.
    if (facts.range.high < facts.range.low) facts.range.high = facts.range.low;
  }
  const std::int64_t step = loop.step.constant().value_or(1);
  if (step > 1 && sym::divides(step, loop.begin)) facts.divisor = step;
  return facts;
}

const Access* access_of(const Operation& operation) {
  switch (operation.op) {
    case Op::load:
    case Op::store:
    case Op::prefetch:
      return &std::get<Access>(operation.detail);
    case Op::atomic:
      return &std::get<Atomic>(operation.detail).access;
    case Op::barrier_init:
    case Op::barrier_arrive:
    case Op::barrier_wait:
      return &std::get<Count>(operation.detail).access;
    case Op::fragment_load:
    case Op::fragment_store:
      return &std::get<FragmentAccess>(operation.detail).access;
    case Op::copy_async:
      return &std::get<Copy>(operation.detail).to;
    default:
      return nullptr;
  }
}

}  // namespace inkle::kernel
