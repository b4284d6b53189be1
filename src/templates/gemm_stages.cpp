#include "templates/gemm_stages.h"

#include <utility>

namespace inkle::templates {

using kernel::Op;

namespace {

kernel::Count count_at(kernel::MemoryId barrier, Expr at, std::int64_t count) {
  kernel::Count detail;
  detail.access.memory = barrier;
  detail.access.indices = {at};
  detail.count = count;
  return detail;
}

}  // namespace

kernel::MemoryId declare_barriers(kernel::Builder& builder, std::string_view name,
                                  std::int64_t count) {
  kernel::Memory memory;
  memory.name = name;
  memory.space = kernel::Space::barrier;
  memory.dtype = kernel::DType::i64;
  memory.shape = {builder.context().constant(count)};
  memory.alignment = 8;
  return builder.memory(std::move(memory));
}

void init_barrier(kernel::Builder& builder, kernel::MemoryId barrier, Expr at,
                  std::int64_t arrivals) {
  builder.operation(Op::barrier_init, {}, {}, count_at(barrier, at, arrivals));
}

void arrive(kernel::Builder& builder, kernel::MemoryId barrier, Expr at, std::int64_t bytes) {
  builder.operation(Op::barrier_arrive, {}, {}, count_at(barrier, at, bytes));
}

void wait_for_phase(kernel::Builder& builder, kernel::MemoryId barrier, Expr at, Expr phase,
                    bool skips) {
  kernel::Count detail = count_at(barrier, at, 0);
  detail.has_phase = skips;
  kernel::Values operands;
  if (skips) operands.push_back(builder.index(phase));
  // What -1 is, too, without a negative number.
  operands.push_back(builder.cast(builder.index(sym::mod(phase + 2, 2)), kernel::DType::i32));
  builder.operation(Op::barrier_wait, operands, {}, detail);
}

}  // namespace inkle::templates
