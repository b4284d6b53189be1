// Asynchronous copies and mbarriers. A copy is an agent of its own: what it does is ordered after
// its issue, and before what follows its wait.
#include <algorithm>

#include "base/error.h"
#include "kernel/interpret_machine.h"

namespace inkle::kernel {

Channel Machine::new_channel(Block& block, AgentKind kind, std::int64_t thread) {
  pages_[block.page].others.push_back({kind, block.instance, block.number, thread});
  return {block.page, block.channels++};
}

void Machine::commit(Groups& groups) {
  ++groups.committed;
  groups.is_open = false;
}

// All but the last `count` groups are done.
void Machine::wait(Thread& thread, Groups& groups, std::int64_t count) {
  const std::int64_t done = groups.committed - count;
  if (done <= 0 || groups.channel.page == kNone) return;
  thread.seen.raise(groups.channel, static_cast<std::uint32_t>(done));
}

// --- cp.async

void Machine::copy_async(Thread& thread, const Instruction& i) {
  const auto& info = kernel_.detail<Copy>(i.operation);
  const AccessCode& from = program_.accesses[i.detail];
  const AccessCode& to = program_.accesses[i.target];
  Groups& groups = thread.copies;
  if (groups.channel.page == kNone) {
    groups.channel = new_channel(*thread.block, AgentKind::copy_async, thread.number);
  }
  const Layout& source =
      tables_[static_cast<std::size_t>(thread.block->instance)].layouts[from.memory];
  const std::int64_t size = source.element_bytes;
  const std::int64_t bytes = info.elements * size;
  const std::uint32_t number = groups.committed + 1;
  const Clock seen = snapshot(thread);
  const Actor actor{groups.channel, number, &seen, &thread.fenced, false, false};
  const Record record{groups.channel, number, i.operation, Scope::thread, false, false};
  for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
    if (!is_active(thread, i, l)) continue;
    const std::int64_t first = element(thread, from, l);
    const std::int64_t target = element(thread, to, l);
    if (first < 0 || target < 0) continue;
    for (const auto& [access, at] : {std::pair(&from, first), std::pair(&to, target)}) {
      const Memory& memory = kernel_.memories[access->memory];
      const bool fits =
          at + info.elements <= tables_[static_cast<std::size_t>(thread.block->instance)]
                                    .layouts[access->memory]
                                    .elements;
      if (!fits) {
        add(ReportKind::outside, thread, access->memory, at * size, at * size + bytes,
            fmt::format("{} elements from {} on are not all inside", info.elements, at));
      }
      if (at * size % bytes != 0 || memory.alignment % bytes != 0) {
        add(ReportKind::misaligned, thread, access->memory, at * size, at * size + bytes,
            fmt::format("a copy of {} bytes is not aligned to them", bytes));
      }
      if (!fits) return;
    }
    check_dependency(thread, from.memory);
    Block* block = block_of(thread, to, l, true);
    if (block == nullptr) continue;
    for (std::int64_t e = 0; e < info.elements; ++e) {
      const Place read = place(*thread.block, from.memory, first + e);
      const Place written = place(*block, to.memory, target + e);
      record_read(thread, from.memory, read, size, actor, record, from.is_constant);
      record_write(thread, to.memory, written, size, actor, record);
      std::copy_n(read.storage->data() + read.byte, size, written.storage->data() + written.byte);
    }
    ++thread.changes;
  }
}

// --- mbarriers

PhaseBarrier* Machine::phase_barrier(Thread& thread, std::uint32_t number, Block** owner) {
  const AccessCode& access = program_.accesses[number];
  const std::int64_t at = element(thread, access, 0);
  Block* block = at < 0 ? nullptr : block_of(thread, access, 0, true);
  if (block == nullptr) return nullptr;
  if (owner != nullptr) *owner = block;
  PhaseBarrier& barrier = block->phase_barriers[access.memory][static_cast<std::size_t>(at)];
  if (barrier.channel.page == kNone) {
    barrier.channel = new_channel(*block, AgentKind::tma, at);
  }
  return &barrier;
}

void Machine::barrier_init(Thread& thread, const Instruction& i) {
  PhaseBarrier* barrier = phase_barrier(thread, i.detail);
  if (barrier == nullptr) return;
  const MemoryId memory = program_.accesses[i.detail].memory;
  if (barrier->is_initialised) {
    add(ReportKind::arrivals, thread, memory, 0, 0, "it is initialised twice");
    return;
  }
  const std::int64_t count = kernel_.detail<Count>(i.operation).count;
  if (count <= 0) add(ReportKind::arrivals, thread, memory, 0, 0, "its phases have no arrivals");
  barrier->is_initialised = true;
  barrier->initialiser = thread.channel;
  barrier->initialised_at = thread.clock;
  barrier->count = barrier->missing = count;
}

void Machine::check_initialised(Thread& thread, const PhaseBarrier& barrier,
                                const AccessCode& access, bool is_asynchronous) {
  if (!barrier.is_initialised) {
    add(ReportKind::uninitialised, thread, access.memory, 0, 0, "the mbarrier is not initialised");
    return;
  }
  const bool is_own = thread.channel == barrier.initialiser;
  if (!is_own && thread.seen.get(barrier.initialiser) < barrier.initialised_at) {
    add(ReportKind::race, thread, access.memory, 0, 0,
        fmt::format("nothing orders it after its initialisation by {}",
                    to_string(agent_of(barrier.initialiser))));
  } else if (is_asynchronous && thread.fenced.get(barrier.initialiser) < barrier.initialised_at) {
    add(ReportKind::proxy, thread, access.memory, 0, 0,
        "no proxy fence stands between the initialisation of the mbarrier and the copy");
  }
}

void Machine::barrier_arrive(Thread& thread, const Instruction& i) {
  PhaseBarrier* barrier = phase_barrier(thread, i.detail);
  if (barrier == nullptr) return;
  const AccessCode& access = program_.accesses[i.detail];
  check_initialised(thread, *barrier, access, false);
  if (!barrier->is_initialised) return;
  if (barrier->missing == 0) {
    add(ReportKind::arrivals, thread, access.memory, 0, 0,
        fmt::format("more than the {} arrivals of a phase", barrier->count));
    return;
  }
  barrier->arrived.join(snapshot(thread));
  barrier->arrived_fenced.join(thread.fenced);
  ++thread.clock;
  ++thread.changes;
  barrier->bytes += kernel_.detail<Count>(i.operation).count;
  --barrier->missing;
  complete_if_due(*barrier);
}

void Machine::complete_if_due(PhaseBarrier& barrier) {
  if (barrier.missing != 0 || barrier.bytes != 0) return;
  barrier.completed = std::exchange(barrier.arrived, {});
  barrier.completed_fenced = std::exchange(barrier.arrived_fenced, {});
  barrier.missing = barrier.count;
  ++barrier.phase;
  for (Thread* thread : barrier.waiting) wake(*thread);
  barrier.waiting.clear();
}

bool Machine::barrier_wait(Thread& thread, const Instruction& i) {
  PhaseBarrier* barrier = phase_barrier(thread, i.detail);
  const AccessCode& access = program_.accesses[i.detail];
  if (barrier == nullptr) {
    ++thread.pc;
    return true;
  }
  check_initialised(thread, *barrier, access, false);
  const std::int64_t parity = get(thread, operand(i, 0), 0) & 1;
  // The phase that is meant: the first of this parity that this thread has not waited for; of the
  // parity that it waited for last, the same again.
  auto known = std::find_if(thread.phases.begin(), thread.phases.end(),
                            [&](const auto& p) { return p.first == barrier; });
  std::int64_t meant = parity == 1 ? -1 : 0;
  if (known != thread.phases.end()) {
    meant = (known->second & 1) == parity ? known->second : known->second + 1;
  }
  if (barrier->phase <= meant) {
    // The parity of the phase before is that of `meant` only one phase later.
    thread.status = Status::blocked;
    if (std::find(barrier->waiting.begin(), barrier->waiting.end(), &thread) ==
        barrier->waiting.end()) {
      barrier->waiting.push_back(&thread);
    }
    return false;
  }
  if (barrier->phase > meant + 1) {
    add(ReportKind::phase, thread, access.memory, 0, 0,
        fmt::format("it waits for phase {} and phase {} is complete", meant, barrier->phase - 1));
    meant = barrier->phase - 1;
  }
  if (known == thread.phases.end()) {
    thread.phases.emplace_back(barrier, meant);
  } else {
    known->second = meant;
  }
  thread.seen.join(barrier->completed);
  thread.fenced.join(barrier->completed_fenced);
  ++thread.pc;
  return true;
}

// --- Bulk copies

template <class F>
void Machine::for_each_in_box(const Thread& thread, MemoryId map, std::span<const std::int64_t> box,
                              const F& f) {
  const Memory& memory = kernel_.memories[map];
  const Table& table = tables_[static_cast<std::size_t>(thread.block->instance)];
  const Layout& layout = table.layouts[map];
  std::vector<std::int64_t> at(memory.box.size(), 0);
  std::int64_t count = 1;
  for (const std::int32_t extent : memory.box) count *= extent;
  for (std::int64_t n = 0; n < count; ++n) {
    std::int64_t element = 0;
    bool inside = true;
    for (std::size_t d = 0; d < at.size(); ++d) {
      const std::int64_t index = box[d] + at[d];
      inside &= index >= 0 && index < layout.shape[d];
      element += index * layout.strides[d];
    }
    f(n, inside ? element : -1);
    for (std::size_t d = at.size(); d-- > 0;) {
      if (++at[d] < memory.box[d]) break;
      at[d] = 0;
    }
  }
}

void Machine::tma_load(Thread& thread, const Instruction& i) {
  const auto& info = kernel_.detail<Bulk>(i.operation);
  const AccessCode& to = program_.accesses[i.detail];
  BulkCopy copy;
  copy.thread = &thread;
  copy.instruction = thread.pc;
  for (std::uint32_t o = 0; o < i.operand_count; ++o) {
    copy.box.push_back(get(thread, operand(i, o), 0));
  }
  const std::int64_t first = element(thread, to, 0);
  copy.block = first < 0 ? nullptr : block_of(thread, to, 0, true);
  Block* owner = nullptr;
  copy.barrier = phase_barrier(thread, i.target, &owner);
  if (copy.block == nullptr || copy.barrier == nullptr) return;
  check_initialised(thread, *copy.barrier, program_.accesses[i.target], true);
  check_dependency(thread, kernel_.memories[info.map].of);
  const Memory& map = kernel_.memories[info.map];
  const Memory& shared = kernel_.memories[info.shared.memory];
  copy.target = first * element_bytes(shared);
  if (map.swizzle != shared.swizzle) {
    add(ReportKind::layout, thread, info.shared.memory, 0, 0,
        fmt::format("the map swizzles by {} bytes and the memory by {}", map.swizzle,
                    shared.swizzle));
  }
  if (copy.target % 128 != 0 || shared.alignment % 128 != 0) {
    add(ReportKind::misaligned, thread, info.shared.memory, copy.target, copy.target,
        "a bulk copy to shared memory is not aligned to 128 bytes");
  }
  copy.seen = snapshot(thread);
  copy.fenced = thread.fenced;
  copy.barrier->last_copy = static_cast<std::uint32_t>(copy.barrier->phase + 1);
  copy.barrier->copied_by = i.operation;
  ++thread.changes;
  if (options_.interleaving == Interleaving::in_order) {
    perform(std::move(copy));
  } else {
    bulk_copies_.push_back(std::move(copy));
  }
}

// The last thread of a block has ended.
void Machine::check_finished(Thread& last) {
  Block& block = *last.block;
  const auto unfinished = [&](OperationId operation, MemoryId memory, const char* what) {
    Finding finding;
    finding.kind = ReportKind::unfinished;
    finding.operation = operation;
    finding.memory = memory;
    finding.agents = {agent_of(last)};
    finding.message = fmt::format("the block ends and nobody has waited until the copy {}", what);
    add(std::move(finding));
  };
  for (MemoryId m = 0; m < block.phase_barriers.size(); ++m) {
    for (const PhaseBarrier& barrier : block.phase_barriers[m]) {
      if (barrier.last_copy == 0) continue;
      const bool is_seen = std::any_of(
          block.threads.begin(), block.threads.end(),
          [&](const Thread& t) { return t.seen.get(barrier.channel) >= barrier.last_copy; });
      if (!is_seen) unfinished(barrier.copied_by, m, "has written its memory");
    }
  }
  for (const Thread& thread : block.threads) {
    if (thread.bulks.last == kNone) continue;
    if (thread.seen.get(thread.bulks.channel) < thread.bulks.committed || thread.bulks.is_open) {
      unfinished(thread.bulks.last, kNone, "has read its memory");
    }
  }
}

void Machine::perform(BulkCopy copy) {
  const Instruction& i = program_.code[copy.instruction];
  const auto& info = kernel_.detail<Bulk>(i.operation);
  const Memory& map = kernel_.memories[info.map];
  Thread& thread = *copy.thread;
  PhaseBarrier& barrier = *copy.barrier;
  const auto clock = static_cast<std::uint32_t>(barrier.phase + 1);
  const Actor actor{barrier.channel, clock, &copy.seen, &copy.fenced, false, true};
  const Record record{barrier.channel, clock, i.operation, Scope::thread, false, true};
  Storage& storage = *copy.block->shared[info.shared.memory];
  const std::int64_t size = element_bytes(map);
  std::int64_t bytes = 0;
  for_each_in_box(thread, info.map, copy.box, [&](std::int64_t n, std::int64_t element) {
    const std::int64_t byte = swizzled(copy.target + n * size, map.swizzle);
    bytes += size;
    if (byte + size > storage.bytes()) {
      add(ReportKind::outside, thread, info.shared.memory, byte, byte + size,
          "the box does not fit into the shared memory");
      return;
    }
    record_write(thread, info.shared.memory, {&storage, byte, 0}, size, actor, record);
    if (element < 0) {
      std::fill_n(storage.data() + byte, size, std::byte{});
      return;
    }
    const Place from = place(*thread.block, map.of, element);
    record_read(thread, map.of, from, size, actor, record, false);
    std::copy_n(from.storage->data() + from.byte, size, storage.data() + byte);
  });
  barrier.bytes -= bytes;
  barrier.arrived.join(copy.seen);
  barrier.arrived.raise(barrier.channel, clock);
  barrier.arrived_fenced.join(copy.fenced);
  complete_if_due(barrier);
}

// Shared memory may be written again after bulk_wait; what the copy writes is seen by nobody of
// this launch.
void Machine::tma_store(Thread& thread, const Instruction& i) {
  const auto& info = kernel_.detail<Bulk>(i.operation);
  const Memory& map = kernel_.memories[info.map];
  const Memory& shared = kernel_.memories[info.shared.memory];
  if (thread.bulks.channel.page == kNone) {
    thread.bulks.channel = new_channel(*thread.block, AgentKind::bulk, thread.number);
    thread.bulk_writes = new_channel(*thread.block, AgentKind::bulk, thread.number);
  }
  const std::int64_t first = element(thread, program_.accesses[i.detail], 0);
  if (first < 0) return;
  std::vector<std::int64_t> box;
  for (std::uint32_t o = 0; o < i.operand_count; ++o) box.push_back(get(thread, operand(i, o), 0));
  check_dependency(thread, map.of);
  if (map.swizzle != shared.swizzle) {
    add(ReportKind::layout, thread, info.shared.memory, 0, 0,
        fmt::format("the map swizzles by {} bytes and the memory by {}", map.swizzle,
                    shared.swizzle));
  }
  if (first * element_bytes(shared) % 128 != 0 || shared.alignment % 128 != 0) {
    add(ReportKind::misaligned, thread, info.shared.memory, 0, 0,
        "a bulk copy from shared memory is not aligned to 128 bytes");
  }
  if (kernel_.memories[map.of].role == Role::in) {
    add(ReportKind::read_only, thread, map.of, 0, 0, "an `in` parameter is written");
  }
  const Clock seen = snapshot(thread);
  const std::uint32_t number = thread.bulks.committed + 1;
  const Actor reader{thread.bulks.channel, number, &seen, &thread.fenced, false, true};
  const Record read{thread.bulks.channel, number, i.operation, Scope::thread, false, true};
  const Actor writer{thread.bulk_writes, number, &seen, &thread.fenced, false, true};
  const Record written{thread.bulk_writes, number, i.operation, Scope::thread, false, true};
  Storage& storage = *thread.block->shared[info.shared.memory];
  const std::int64_t size = element_bytes(map);
  for_each_in_box(thread, info.map, box, [&](std::int64_t n, std::int64_t element) {
    const std::int64_t byte = swizzled(first * size + n * size, map.swizzle);
    if (byte + size > storage.bytes()) {
      add(ReportKind::outside, thread, info.shared.memory, byte, byte + size,
          "the box does not fit into the shared memory");
      return;
    }
    record_read(thread, info.shared.memory, {&storage, byte, 0}, size, reader, read, false);
    if (element < 0) return;
    const Place to = place(*thread.block, map.of, element);
    record_write(thread, map.of, to, size, writer, written);
    std::copy_n(storage.data() + byte, size, to.storage->data() + to.byte);
  });
  thread.bulks.last = i.operation;
  thread.bulks.is_open = true;
  ++thread.changes;
}

}  // namespace inkle::kernel
