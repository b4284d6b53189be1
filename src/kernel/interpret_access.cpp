#include "kernel/interpret_access.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "loop/scalar.h"

namespace inkle::kernel {

namespace {

bool is_gpu(const Kernel& kernel) {
  return std::ranges::any_of(kernel.launch.axes,
                             [](const Axis& axis) { return axis.kind != AxisKind::task; });
}

}  // namespace

// --- Addresses

std::int64_t Addresses::element(const Thread& thread, const AccessCode& access, std::uint32_t lane,
                                bool reports) {
  const Layout& layout = this->layout(thread, access.memory);
  std::int64_t position = 0;
  if (access.is_linear) {
    for (const Ref operand : access.operands) position += code_.get(thread, operand, lane);
    if (access.form == Form::wide) position += lane;
    if (position >= 0 && position < layout.elements) return position;
    if (reports) {
      findings_.add(ReportKind::outside, thread, access.memory, 0, 0,
                    fmt::format("offset {} is not in 0..{}", position, layout.elements));
    }
    return -1;
  }
  for (std::size_t d = 0; d < layout.shape.size(); ++d) {
    const std::int64_t value = access.operands.empty()
                                   ? code_.index(thread, access.indices[d], lane)
                                   : code_.get(thread, access.operands[d], lane);
    if (value < 0 || value >= layout.shape[d]) {
      if (reports) {
        findings_.add(
            ReportKind::outside, thread, access.memory, 0, 0,
            fmt::format("index {} of dimension {} is not in 0..{}", value, d, layout.shape[d]));
      }
      return -1;
    }
    position += value * layout.strides[d];
  }
  return position;
}

std::int64_t Addresses::element(const Thread& thread, const FragmentAccessCode& access,
                                std::int64_t row, std::int64_t column) {
  const AccessCode& code = code_.program().accesses[access.access];
  const Layout& layout = this->layout(thread, code.memory);
  std::int64_t first = code.is_linear ? code_.get(thread, code.operands[0], 0) : 0;
  for (std::size_t d = 0; d < layout.shape.size() && !code.is_linear; ++d) {
    const std::int64_t value = code.operands.empty() ? code_.index(thread, code.indices[d], 0)
                                                     : code_.get(thread, code.operands[d], 0);
    first += value * layout.strides[d];
  }
  const std::int64_t panel = access.panel == 0 ? 0 : column / access.panel;
  const std::int64_t in_panel = column - panel * access.panel;
  const std::int64_t at = first + row * code_.index(thread, access.row_stride, 0) +
                          panel * access.panel_stride +
                          in_panel * code_.index(thread, access.column_stride, 0);
  if (at >= 0 && at < layout.elements) return at;
  findings_.add(ReportKind::outside, thread, code.memory, 0, 0,
                fmt::format("element ({}, {}) of the fragment is element {} of {}", row, column, at,
                            layout.elements));
  return -1;
}

Block* Addresses::block_of(const Thread& thread, const AccessCode& access, std::uint32_t lane,
                           bool reports) {
  if (access.rank.is_none()) return thread.block;
  const std::int64_t rank = code_.get(thread, access.rank, lane);
  auto& blocks = thread.block->cluster->blocks;
  if (rank < 0 || rank >= static_cast<std::int64_t>(blocks.size())) {
    if (reports) {
      findings_.add(
          ReportKind::outside, thread, access.memory, 0, 0,
          fmt::format("there is no block of rank {} in a cluster of {}", rank, blocks.size()));
    }
    return nullptr;
  }
  Block* block = blocks[static_cast<std::size_t>(rank)].get();
  if (block->alive == 0 && reports) {
    findings_.add(ReportKind::outside, thread, access.memory, 0, 0,
                  fmt::format("the block of rank {} has ended", rank));
  }
  return block;
}

MemoryLocation Addresses::locate(const Thread& thread, const AccessCode& access, std::uint32_t lane,
                                 bool reports) {
  const std::int64_t at = element(thread, access, lane, reports);
  if (at < 0) return {};
  Block* block = block_of(thread, access, lane, reports);
  if (block == nullptr) return {};
  return location_of(*block, access.memory, at);
}

void Addresses::check_form(const Thread& thread, const Instruction& i, const AccessCode& access) {
  if (i.width == 1 || access.form == Form::each) return;
  std::int64_t first = -1;
  std::uint32_t first_lane = 0;
  for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
    if (!code_.is_active(thread, i, l)) continue;
    const std::int64_t at = element(thread, access, l, false);
    if (at < 0) continue;
    if (first < 0) {
      first = at;
      first_lane = l;
    }
    const std::int64_t expected = access.form == Form::splat ? first : first + l - first_lane;
    if (at == expected) continue;
    findings_.add(ReportKind::form, thread, access.memory, 0, 0,
                  fmt::format("lane {} accesses element {}, as {} it is {}", l, at,
                              name_of(access.form), expected));
    return;
  }
  if (access.form != Form::wide || !is_gpu(code_.kernel()) || is_private(access.memory)) return;
  for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width);
       l += static_cast<std::uint32_t>(access.native)) {
    bool whole = true;
    for (std::uint32_t k = l; k < l + static_cast<std::uint32_t>(access.native); ++k) {
      whole &= code_.is_active(thread, i, k);
    }
    const std::int64_t at = whole ? element(thread, access, l, false) : -1;
    if (at >= 0) check_alignment(thread, access, at);
  }
}

void Addresses::check_alignment(const Thread& thread, const AccessCode& access,
                                std::int64_t element) {
  const Memory& memory = code_.kernel().memories[access.memory];
  const std::int64_t size = element_bytes(memory);
  const std::int64_t all = access.native * size;
  const std::int64_t needed = std::min<std::int64_t>(all & -all, 16);
  if (element * size % needed == 0 && memory.alignment >= needed) return;
  findings_.add(ReportKind::misaligned, thread, access.memory, element * size, element * size + all,
                fmt::format("{} bytes together are not aligned to {}", all, needed));
}

void Addresses::check_dependency(const Thread& thread, MemoryId memory) {
  if (!code_.program().has_dependency_wait || thread.has_waited_for_dependency) return;
  if (memory >= code_.kernel().parameter_count) return;
  if (!memory_.argument(*thread.block, memory).is_of_earlier_launch) return;
  findings_.add(ReportKind::before_dependency, thread, memory, 0, 0,
                "an earlier launch may still access it");
}

void Addresses::check_writable(const Thread& thread, MemoryId memory, std::int64_t begin,
                               std::int64_t end) {
  const Memory& m = code_.kernel().memories[memory];
  if (m.space != Space::global || m.role != Role::in) return;
  findings_.add(ReportKind::read_only, thread, memory, begin, end, "an `in` parameter is written");
}

// --- Private memory

Scalar Accesses::private_read(const Thread& thread, MemoryId memory, std::int64_t element) {
  const Table& table = memory_.table(*thread.block);
  const auto at = static_cast<std::size_t>(table.privates[memory] + element);
  const std::int64_t size = table.layouts[memory].element_bytes;
  if (thread.private_state[at] == 0) {
    findings_.add(ReportKind::uninitialised, thread, memory, element * size, (element + 1) * size,
                  "it is read before it is written");
  }
  return to_scalar(thread.privates[at], code_.kernel().memories[memory].dtype);
}

void Accesses::private_write(Thread& thread, MemoryId memory, std::int64_t element, Scalar value) {
  const Table& table = memory_.table(*thread.block);
  const auto at = static_cast<std::size_t>(table.privates[memory] + element);
  const std::int64_t bits = to_bits(value, code_.kernel().memories[memory].dtype);
  if (thread.private_state[at] == 0 || thread.privates[at] != bits) ++thread.changes;
  thread.privates[at] = bits;
  thread.private_state[at] = 1;
}

// --- Shared and global memory

Scalar Accesses::read(Thread& thread, const AccessCode& access, MemoryLocation location) {
  const Memory& memory = code_.kernel().memories[access.memory];
  const std::int64_t bytes = element_bytes(memory);
  addresses_.check_dependency(thread, access.memory);
  Record record{thread.channel,
                thread.clock,
                code_.at(thread).operation,
                access.scope,
                access.order != Order::weak,
                false};
  order_.record_read(thread, access.memory, location, bytes, actor_of(thread), record,
                     access.is_constant);
  Watchers::watch(thread, *location.storage, location.byte);
  if (access.order != Order::weak) {
    if (const Version* version = histories_.out_of_date(thread, location)) {
      const bool now = access.order == Order::acquire || access.order == Order::acquire_release;
      order_.acquire_from(thread, version->releases, now, access.scope);
      if (!thread.frames.empty()) thread.reads.back().has_changed = true;  // it will be another
      return loop::read_element(memory.dtype, version->value.data());
    }
    order_.acquire(thread, location, access.order, access.scope);
  }
  return loop::read_element(memory.dtype, location.storage->data() + location.byte);
}

void Accesses::write(Thread& thread, const AccessCode& access, MemoryLocation location,
                     Scalar value) {
  const Memory& memory = code_.kernel().memories[access.memory];
  const std::int64_t bytes = element_bytes(memory);
  addresses_.check_dependency(thread, access.memory);
  addresses_.check_writable(thread, access.memory, location.byte, location.byte + bytes);
  Record record{thread.channel,
                thread.clock,
                code_.at(thread).operation,
                access.scope,
                access.order != Order::weak,
                false};
  order_.record_write(thread, access.memory, location, bytes, actor_of(thread), record);
  if (access.order != Order::weak) {
    HappensBefore::publish(thread, location, access.order, access.scope, false);
  } else if (!location.storage->releases().empty()) {
    location.storage->releases().erase(location.byte / location.storage->unit());
  }
  std::array<std::byte, 8> made{};
  loop::write_element(memory.dtype, made.data(), value);
  if (access.order != Order::weak || !location.storage->histories().empty()) {
    histories_.remember(thread, record.clock, location, bytes, made);
  }
  change(thread, location, std::span(made).first(static_cast<std::size_t>(bytes)));
}

Scalar Accesses::read(Thread& thread, const AccessCode& access, std::int64_t element) {
  if (addresses_.is_private(access.memory)) return private_read(thread, access.memory, element);
  return read(thread, access, addresses_.location_of(*thread.block, access.memory, element));
}

void Accesses::write(Thread& thread, const AccessCode& access, std::int64_t element, Scalar value) {
  if (addresses_.is_private(access.memory)) {
    return private_write(thread, access.memory, element, value);
  }
  write(thread, access, addresses_.location_of(*thread.block, access.memory, element), value);
}

void Accesses::change(Thread& thread, MemoryLocation location, std::span<const std::byte> value) {
  std::byte* data = location.storage->data() + location.byte;
  if (std::equal(value.begin(), value.end(), data)) return;
  std::copy(value.begin(), value.end(), data);
  watchers_.touch(thread, *location.storage, location.byte);
}

void Accesses::load(Thread& thread, const Instruction& i) {
  const AccessCode& access = code_.program().accesses[i.detail];
  addresses_.check_form(thread, i, access);
  const std::uint32_t first = i.width == 1 ? thread.lane : 0;
  for (std::uint32_t l = first; l < first + static_cast<std::uint32_t>(i.width); ++l) {
    if (!code_.is_active(thread, i, l)) continue;
    Scalar value;
    if (addresses_.is_private(access.memory)) {
      const std::int64_t at = addresses_.element(thread, access, l);
      if (at >= 0) value = private_read(thread, access.memory, at);
    } else {
      const MemoryLocation location = addresses_.locate(thread, access, l);
      if (location.storage != nullptr) value = read(thread, access, location);
    }
    set_slot(thread, i.result, l, to_bits(value, i.dtype));
  }
}

void Accesses::store(Thread& thread, const Instruction& i) {
  const AccessCode& access = code_.program().accesses[i.detail];
  addresses_.check_form(thread, i, access);
  const std::uint32_t first = i.width == 1 ? thread.lane : 0;
  for (std::uint32_t l = first; l < first + static_cast<std::uint32_t>(i.width); ++l) {
    if (!code_.is_active(thread, i, l)) continue;
    const Scalar value = to_scalar(code_.get(thread, code_.operand(i, 0), l), i.dtype);
    if (addresses_.is_private(access.memory)) {
      const std::int64_t at = addresses_.element(thread, access, l);
      if (at >= 0) private_write(thread, access.memory, at, value);
    } else {
      const MemoryLocation location = addresses_.locate(thread, access, l);
      if (location.storage != nullptr) write(thread, access, location, value);
    }
  }
}

// --- Atomics

void Accesses::atomic(Thread& thread, const Instruction& i) {
  const AccessCode& access = code_.program().accesses[i.detail];
  for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
    if (code_.is_active(thread, i, l)) update(thread, i, access, l);
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

void Accesses::update(Thread& thread, const Instruction& i, const AccessCode& access,
                      std::uint32_t lane) {
  const MemoryLocation location = addresses_.locate(thread, access, lane);
  if (location.storage == nullptr) return;
  const Memory& memory = code_.kernel().memories[access.memory];
  const std::int64_t bytes = element_bytes(memory);
  // An atomic without an order is a relaxed one of the whole device.
  const bool is_weak = access.order == Order::weak;
  const Order order = is_weak ? Order::relaxed : access.order;
  const Scope scope = is_weak ? Scope::gpu : access.scope;
  addresses_.check_dependency(thread, access.memory);
  addresses_.check_writable(thread, access.memory, location.byte, location.byte + bytes);
  const Record record{thread.channel, thread.clock, i.operation, scope, true, false};
  order_.record_read(thread, access.memory, location, bytes, actor_of(thread), record, false);
  Watchers::watch(thread, *location.storage, location.byte);
  const bool acquires = order == Order::acquire || order == Order::acquire_release;
  order_.acquire(thread, location, acquires ? Order::acquire : Order::relaxed, scope);
  const Scalar old = loop::read_element(memory.dtype, location.storage->data() + location.byte);
  const AtomicOp op = code_.kernel().detail<Atomic>(i.operation).op;
  const Scalar value = to_scalar(code_.get(thread, code_.operand(i, 0), lane), i.dtype);
  const Scalar desired = op == AtomicOp::compare_exchange
                             ? to_scalar(code_.get(thread, code_.operand(i, 1), lane), i.dtype)
                             : Scalar{};
  const Scalar made = combine(op, memory.dtype, old, value, desired);
  if (!i.result.is_none()) set_slot(thread, i.result, lane, to_bits(old, i.dtype));
  const bool writes =
      op != AtomicOp::compare_exchange || to_bits(old, i.dtype) == to_bits(value, i.dtype);
  if (!writes) return;
  order_.record_write(thread, access.memory, location, bytes, actor_of(thread), record);
  HappensBefore::publish(thread, location, order, scope, true);
  std::array<std::byte, 8> bits{};
  loop::write_element(memory.dtype, bits.data(), made);
  histories_.remember(thread, record.clock, location, bytes, bits);
  change(thread, location, std::span(bits).first(static_cast<std::size_t>(bytes)));
}

}  // namespace inkle::kernel
