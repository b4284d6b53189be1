// Loads, stores and atomics: where they go and whether they may.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "kernel/interpret_machine.h"
#include "loop/scalar.h"

namespace inkle::kernel {

bool Machine::is_private(MemoryId memory) const {
  const Space space = kernel_.memories[memory].space;
  return space == Space::registers || space == Space::stack;
}

// --- Places

std::int64_t Machine::element(Thread& thread, const AccessCode& access, std::uint32_t lane,
                              bool reports) {
  const Layout& layout =
      tables_[static_cast<std::size_t>(thread.block->instance)].layouts[access.memory];
  std::int64_t position = 0;
  if (access.is_linear) {
    for (const Ref operand : access.operands) position += get(thread, operand, lane);
    if (access.form == Form::wide) position += lane;
    if (position >= 0 && position < layout.elements) return position;
    if (reports) {
      add(ReportKind::outside, thread, access.memory, 0, 0,
          fmt::format("offset {} is not in 0..{}", position, layout.elements));
    }
    return -1;
  }
  for (std::size_t d = 0; d < layout.shape.size(); ++d) {
    const std::int64_t value = access.operands.empty() ? index(thread, access.indices[d], lane)
                                                       : get(thread, access.operands[d], lane);
    if (value < 0 || value >= layout.shape[d]) {
      if (reports) {
        add(ReportKind::outside, thread, access.memory, 0, 0,
            fmt::format("index {} of dimension {} is not in 0..{}", value, d, layout.shape[d]));
      }
      return -1;
    }
    position += value * layout.strides[d];
  }
  return position;
}

Block* Machine::block_of(Thread& thread, const AccessCode& access, std::uint32_t lane,
                         bool reports) {
  if (access.rank.is_none()) return thread.block;
  const std::int64_t rank = get(thread, access.rank, lane);
  auto& blocks = thread.block->cluster->blocks;
  if (rank < 0 || rank >= static_cast<std::int64_t>(blocks.size())) {
    if (reports) {
      add(ReportKind::outside, thread, access.memory, 0, 0,
          fmt::format("there is no block of rank {} in a cluster of {}", rank, blocks.size()));
    }
    return nullptr;
  }
  Block* block = blocks[static_cast<std::size_t>(rank)].get();
  if (block->alive == 0 && reports) {
    add(ReportKind::outside, thread, access.memory, 0, 0,
        fmt::format("the block of rank {} has ended", rank));
  }
  return block;
}

Place Machine::place(Block& block, MemoryId memory, std::int64_t element) {
  const Table& table = tables_[static_cast<std::size_t>(block.instance)];
  const Layout& layout = table.layouts[memory];
  const std::int64_t byte = element * layout.element_bytes;
  if (kernel_.memories[memory].space == Space::shared) {
    const std::int64_t offset = kernel_.memories[memory].offset;
    return {block.shared[memory].get(), offset + swizzled(byte, layout.swizzle), offset};
  }
  return {table.storages[memory], table.offsets[memory] + byte, table.offsets[memory]};
}

Place Machine::locate(Thread& thread, const AccessCode& access, std::uint32_t lane, bool reports) {
  const std::int64_t at = element(thread, access, lane, reports);
  if (at < 0) return {};
  Block* block = block_of(thread, access, lane, reports);
  if (block == nullptr) return {};
  return place(*block, access.memory, at);
}

// Of a wide access lane l must have element first + l, of a splat one all the same.
void Machine::check_form(Thread& thread, const Instruction& i, const AccessCode& access) {
  if (i.width == 1 || access.form == Form::each) return;
  std::int64_t first = -1;
  std::uint32_t first_lane = 0;
  for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
    if (!is_active(thread, i, l)) continue;
    const std::int64_t at = element(thread, access, l, false);
    if (at < 0) continue;
    if (first < 0) {
      first = at;
      first_lane = l;
    }
    const std::int64_t expected = access.form == Form::splat ? first : first + l - first_lane;
    if (at == expected) continue;
    add(ReportKind::form, thread, access.memory, 0, 0,
        fmt::format("lane {} accesses element {}, as {} it is {}", l, at, name_of(access.form),
                    expected));
    return;
  }
  if (access.form != Form::wide || !is_gpu_ || is_private(access.memory)) return;
  for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width);
       l += static_cast<std::uint32_t>(access.native)) {
    bool whole = true;
    for (std::uint32_t k = l; k < l + static_cast<std::uint32_t>(access.native); ++k) {
      whole &= is_active(thread, i, k);
    }
    const std::int64_t at = whole ? element(thread, access, l, false) : -1;
    if (at >= 0) check_alignment(thread, access, at);
  }
}

void Machine::check_alignment(Thread& thread, const AccessCode& access, std::int64_t element) {
  const Memory& memory = kernel_.memories[access.memory];
  const std::int64_t size = element_bytes(memory);
  const std::int64_t all = access.native * size;
  const std::int64_t needed = std::min<std::int64_t>(all & -all, 16);
  if (element * size % needed == 0 && memory.alignment >= needed) return;
  add(ReportKind::misaligned, thread, access.memory, element * size, element * size + all,
      fmt::format("{} bytes together are not aligned to {}", all, needed));
}

void Machine::check_dependency(const Thread& thread, MemoryId memory) {
  if (!program_.has_dependency_wait || thread.has_waited_for_dependency) return;
  if (memory >= kernel_.parameter_count) return;
  const auto instance = static_cast<std::size_t>(thread.block->instance);
  if (!arguments_[instance * kernel_.parameter_count + memory].is_of_earlier_launch) return;
  add(ReportKind::before_dependency, thread, memory, 0, 0, "an earlier launch may still access it");
}

// --- Private memory

Scalar Machine::private_read(Thread& thread, MemoryId memory, std::int64_t element) {
  const Table& table = tables_[static_cast<std::size_t>(thread.block->instance)];
  const auto at = static_cast<std::size_t>(table.privates[memory] + element);
  const std::int64_t size = table.layouts[memory].element_bytes;
  if (thread.private_state[at] == 0) {
    add(ReportKind::uninitialised, thread, memory, element * size, (element + 1) * size,
        "it is read before it is written");
  }
  return to_scalar(thread.privates[at], kernel_.memories[memory].dtype);
}

void Machine::private_write(Thread& thread, MemoryId memory, std::int64_t element, Scalar value) {
  const Table& table = tables_[static_cast<std::size_t>(thread.block->instance)];
  const auto at = static_cast<std::size_t>(table.privates[memory] + element);
  const std::int64_t bits = to_bits(value, kernel_.memories[memory].dtype);
  if (thread.private_state[at] == 0 || thread.privates[at] != bits) ++thread.changes;
  thread.privates[at] = bits;
  thread.private_state[at] = 1;
}

// --- Memory that threads share

Scalar Machine::read(Thread& thread, const AccessCode& access, Place place) {
  const Memory& memory = kernel_.memories[access.memory];
  const std::int64_t bytes = element_bytes(memory);
  check_dependency(thread, access.memory);
  Record record{
      thread.channel, thread.clock, at(thread).operation, access.scope, access.order != Order::weak,
      false};
  record_read(thread, access.memory, place, bytes, actor_of(thread), record, access.is_constant);
  watch(thread, place);
  if (access.order != Order::weak) {
    if (const Version* version = out_of_date(thread, place)) {
      const bool now = access.order == Order::acquire || access.order == Order::acquire_release;
      acquire_from(thread, version->releases, now, access.scope);
      if (!thread.frames.empty()) thread.reads.back().has_changed = true;  // it will be another
      return loop::read_element(memory.dtype, version->value.data());
    }
    acquire(thread, place, access.order, access.scope);
  }
  return loop::read_element(memory.dtype, place.storage->data() + place.byte);
}

void Machine::write(Thread& thread, const AccessCode& access, Place place, Scalar value) {
  const Memory& memory = kernel_.memories[access.memory];
  const std::int64_t bytes = element_bytes(memory);
  check_dependency(thread, access.memory);
  if (memory.space == Space::global && memory.role == Role::in) {
    add(ReportKind::read_only, thread, access.memory, place.byte, place.byte + bytes,
        "an `in` parameter is written");
  }
  Record record{
      thread.channel, thread.clock, at(thread).operation, access.scope, access.order != Order::weak,
      false};
  record_write(thread, access.memory, place, bytes, actor_of(thread), record);
  if (access.order != Order::weak) {
    publish(thread, place, access.order, access.scope, false);
  } else if (!place.storage->releases().empty()) {
    place.storage->releases().erase(place.byte / place.storage->unit());
  }
  std::byte* data = place.storage->data() + place.byte;
  std::array<std::byte, 8> made{};
  loop::write_element(memory.dtype, made.data(), value);
  if (access.order != Order::weak || !place.storage->histories().empty()) {
    remember(thread, record.clock, place, bytes, made);
  }
  if (std::equal(made.begin(), made.begin() + bytes, data)) return;
  std::copy(made.begin(), made.begin() + bytes, data);
  touch(thread, *place.storage, place.byte / place.storage->unit());
}

void Machine::load(Thread& thread, const Instruction& i) {
  const AccessCode& access = program_.accesses[i.detail];
  check_form(thread, i, access);
  const std::uint32_t first = i.width == 1 ? thread.lane : 0;
  for (std::uint32_t l = first; l < first + static_cast<std::uint32_t>(i.width); ++l) {
    if (!is_active(thread, i, l)) continue;
    Scalar value;
    if (is_private(access.memory)) {
      const std::int64_t at = element(thread, access, l);
      if (at >= 0) value = private_read(thread, access.memory, at);
    } else {
      const Place place = locate(thread, access, l);
      if (place.storage != nullptr) value = read(thread, access, place);
    }
    set(thread, i.result, l, to_bits(value, i.dtype));
  }
}

void Machine::store(Thread& thread, const Instruction& i) {
  const AccessCode& access = program_.accesses[i.detail];
  check_form(thread, i, access);
  const std::uint32_t first = i.width == 1 ? thread.lane : 0;
  for (std::uint32_t l = first; l < first + static_cast<std::uint32_t>(i.width); ++l) {
    if (!is_active(thread, i, l)) continue;
    const Scalar value = to_scalar(get(thread, operand(i, 0), l), i.dtype);
    if (is_private(access.memory)) {
      const std::int64_t at = element(thread, access, l);
      if (at >= 0) private_write(thread, access.memory, at, value);
    } else {
      const Place place = locate(thread, access, l);
      if (place.storage != nullptr) write(thread, access, place, value);
    }
  }
}

// --- Atomics

void Machine::atomic(Thread& thread, const Instruction& i) {
  const AccessCode& access = program_.accesses[i.detail];
  for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
    if (is_active(thread, i, l)) update(thread, i, access, l);
  }
}

namespace {

Scalar combine(AtomicOp op, DType dtype, Scalar old, Scalar value, Scalar desired) {
  const auto apply = [&](loop::Opcode opcode) {
    const DType compute = abi::compute_type(dtype);
    const std::array operands = {loop::convert(old, dtype, compute),
                                 loop::convert(value, dtype, compute)};
    return loop::convert(loop::evaluate(opcode, compute, operands), compute, dtype);
  };
  switch (op) {
    case AtomicOp::add:
      return apply(loop::Opcode::add);
    case AtomicOp::exchange:
      return value;
    case AtomicOp::min:
      return apply(loop::Opcode::min);
    case AtomicOp::max:
      return apply(loop::Opcode::max);
    case AtomicOp::bit_or:
      return apply(loop::Opcode::bit_or);
    case AtomicOp::compare_exchange:
      return to_bits(old, dtype) == to_bits(value, dtype) ? desired : old;
  }
  return old;
}

}  // namespace

void Machine::update(Thread& thread, const Instruction& i, const AccessCode& access,
                     std::uint32_t lane) {
  const Place place = locate(thread, access, lane);
  if (place.storage == nullptr) return;
  const Memory& memory = kernel_.memories[access.memory];
  const std::int64_t bytes = element_bytes(memory);
  // An atomic without an order is a relaxed one of the whole device.
  const bool is_weak = access.order == Order::weak;
  const Order order = is_weak ? Order::relaxed : access.order;
  const Scope scope = is_weak ? Scope::gpu : access.scope;
  check_dependency(thread, access.memory);
  if (memory.space == Space::global && memory.role == Role::in) {
    add(ReportKind::read_only, thread, access.memory, place.byte, place.byte + bytes,
        "an `in` parameter is written");
  }
  const Record record{thread.channel, thread.clock, i.operation, scope, true, false};
  record_read(thread, access.memory, place, bytes, actor_of(thread), record, false);
  watch(thread, place);
  const bool acquires = order == Order::acquire || order == Order::acquire_release;
  acquire(thread, place, acquires ? Order::acquire : Order::relaxed, scope);
  std::byte* data = place.storage->data() + place.byte;
  const Scalar old = loop::read_element(memory.dtype, data);
  const AtomicOp op = kernel_.detail<Atomic>(i.operation).op;
  const Scalar value = to_scalar(get(thread, operand(i, 0), lane), i.dtype);
  const Scalar desired = op == AtomicOp::compare_exchange
                             ? to_scalar(get(thread, operand(i, 1), lane), i.dtype)
                             : Scalar{};
  const Scalar made = combine(op, memory.dtype, old, value, desired);
  if (!i.result.is_none()) set(thread, i.result, lane, to_bits(old, i.dtype));
  const bool writes =
      op != AtomicOp::compare_exchange || to_bits(old, i.dtype) == to_bits(value, i.dtype);
  if (!writes) return;
  record_write(thread, access.memory, place, bytes, actor_of(thread), record);
  publish(thread, place, order, scope, true);
  std::array<std::byte, 8> bits{};
  loop::write_element(memory.dtype, bits.data(), made);
  remember(thread, record.clock, place, bytes, bits);
  if (std::equal(bits.begin(), bits.begin() + bytes, data)) return;
  std::copy(bits.begin(), bits.begin() + bytes, data);
  touch(thread, *place.storage, place.byte / place.storage->unit());
}

// --- Spinning

void Machine::watch(Thread& thread, Place place) {
  if (thread.frames.empty()) return;
  thread.reads.push_back({place.storage, place.byte / place.storage->unit(), false});
}

void Machine::touch(Thread& thread, Storage& storage, std::int64_t unit) {
  ++thread.changes;
  for (Thread* watcher : watchers_) {
    if (watcher == &thread) continue;
    for (ReadEntry& entry : watcher->reads) {
      if (entry.storage != &storage || entry.unit != unit) continue;
      entry.has_changed = true;
      if (watcher->status == Status::spinning) wake(*watcher);
    }
  }
}

Visible Machine::visible_of(Thread& thread) {
  const Instruction& i = at(thread);
  const AccessCode& access = program_.accesses[i.detail];
  Visible visible{thread.order, 0, i.code != Code::load};
  if (i.width > 1) return visible;
  const Place place = locate(thread, access, 0, false);
  if (place.storage == nullptr) return visible;
  std::uint64_t owner = static_cast<std::uint64_t>(thread.block->instance);
  if (kernel_.memories[access.memory].space == Space::shared) {
    const Block* block = block_of(thread, access, 0, false);
    owner = (1ULL << 32) + block->page;
  }
  visible.location = ((owner * 4099 + access.memory) << 24) +
                     static_cast<std::uint64_t>(place.byte - place.offset) + 1;
  return visible;
}

}  // namespace inkle::kernel
