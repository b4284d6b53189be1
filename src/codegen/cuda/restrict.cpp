#include "codegen/cuda/restrict.h"

#include <algorithm>
#include <variant>

namespace inkle::codegen::cuda {

using kernel::Kernel;
using kernel::Memory;
using kernel::MemoryId;
using kernel::Op;
using kernel::Operation;

namespace {

// Parameters that are read, and that are written.
struct Use {
  explicit Use(const Kernel& kernel)
      : read(kernel.memories.size()), written(kernel.memories.size()) {
    for (const Operation& o : kernel.operations) add(kernel, o);
  }

  void add(const Kernel& kernel, const Operation& o) {
    switch (o.op) {
      case Op::load:
      case Op::fragment_load:
        read[kernel::access_of(o)->memory] = true;
        break;
      case Op::atomic:
        read[kernel::access_of(o)->memory] = true;
        written[kernel::access_of(o)->memory] = true;
        break;
      case Op::store:
      case Op::fragment_store:
        written[kernel::access_of(o)->memory] = true;
        break;
      case Op::copy_async:
        read[std::get<kernel::Copy>(o.detail).from.memory] = true;
        break;
      case Op::tma_load:
        read[kernel.memories[std::get<kernel::Bulk>(o.detail).map].of] = true;
        break;
      case Op::tma_store:
        written[kernel.memories[std::get<kernel::Bulk>(o.detail).map].of] = true;
        break;
      default:
        break;
    }
  }

  std::vector<bool> read, written;
};

bool orders_threads(const Operation& o) {
  return o.op == Op::barrier || o.op == Op::barrier_wait || o.op == Op::fence;
}

// Of another block, by a counter.
bool acquires(const Operation& o) {
  const kernel::Access* access = kernel::access_of(o);
  return access != nullptr && (access->order == kernel::Order::acquire ||
                               access->order == kernel::Order::acquire_release);
}

}  // namespace

std::vector<bool> restrict_parameters(const Kernel& kernel) {
  const MemoryId count = kernel.parameter_count;
  const std::vector<bool> none(count, false);
  const bool aliasing = std::any_of(kernel.memories.begin(), kernel.memories.begin() + count,
                                    [](const Memory& m) { return m.may_alias; });
  if (aliasing) return none;
  std::vector<bool> out(count, true);
  const bool has_counters = std::ranges::any_of(kernel.operations, acquires);
  if (!has_counters && std::ranges::none_of(kernel.operations, orders_threads)) return out;
  const Use use(kernel);
  for (MemoryId m = 0; m < count; ++m) out[m] = !(use.read[m] && use.written[m]);
  const bool all = std::ranges::find(out, false) == out.end();
  return has_counters && !all ? none : out;
}

}  // namespace inkle::codegen::cuda
