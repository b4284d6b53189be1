#include "kernel/lower_collectives_scratch.h"

#include <algorithm>
#include <utility>

namespace inkle::kernel {

Expr CollectiveScratch::parity() const {
  Expr number = builder_.context().constant(0);
  for (const Loop& l : loops_) {
    if (&l != &loops_.front()) number = number * sym::ceildiv(l.end - l.begin, l.step);
    number = number + sym::floordiv(l.variable - l.begin, l.step);
  }
  return sym::mod(number, 2);
}

Access CollectiveScratch::access(MemoryId scratch, Expr place) const {
  Access access;
  access.memory = scratch;
  if (builder_.kernel().memories[scratch].shape.size() > 1) access.indices.push_back(parity());
  access.indices.push_back(interleaved_.contains(scratch) ? place * 2 : place);
  return access;
}

ValueId CollectiveScratch::load(MemoryId scratch, Expr place, ValueId rank) {
  Access from = access(scratch, place);
  if (rank == kNone) return builder_.load(std::move(from));
  from.remote = true;
  const Type type = scalar_type(builder_.kernel().memories[scratch].dtype);
  return builder_.operation(Op::load, {rank}, {type}, std::move(from))[0];
}

void CollectiveScratch::store(MemoryId scratch, Expr place, ValueId value) {
  builder_.store(access(scratch, place), value);
}

void CollectiveScratch::interleave(std::span<const MemoryId> scratch) {
  if (scratch.size() != 2 || scratch[0] > scratch[1]) return;
  Memory& first = builder_.kernel().memories[scratch[0]];
  Memory& second = builder_.kernel().memories[scratch[1]];
  const std::int64_t bytes = abi::size_of(first.dtype);
  const bool is_used =
      was_read(scratch) || interleaved_.contains(scratch[0]) || interleaved_.contains(scratch[1]);
  const auto places = element_count(first).constant();
  if (is_used || !places || first.shape.size() != 1 || second.shape != first.shape ||
      abi::size_of(second.dtype) != bytes || bytes > 8 || first.of != kNone || second.of != kNone) {
    return;
  }
  sym::Context& context = builder_.context();
  first.shape = {context.constant(2 * *places)};
  first.alignment = std::max<std::int32_t>(first.alignment, static_cast<std::int32_t>(2 * bytes));
  second.shape = {context.constant(2 * *places - 1)};
  second.alignment = static_cast<std::int32_t>(bytes);
  second.of = scratch[0];
  second.offset = bytes;
  interleaved_.insert(scratch.begin(), scratch.end());
}

void CollectiveScratch::mark_read(std::span<const MemoryId> scratch) {
  read_.insert(scratch.begin(), scratch.end());
}

bool CollectiveScratch::was_read(std::span<const MemoryId> scratch) const {
  return std::ranges::any_of(scratch, [&](MemoryId m) { return read_.contains(m); });
}

}  // namespace inkle::kernel
