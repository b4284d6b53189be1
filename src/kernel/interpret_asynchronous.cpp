#include "kernel/interpret_asynchronous.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace inkle::kernel {

void commit(Groups& groups) {
  ++groups.committed;
  groups.is_open = false;
}

void wait(Thread& thread, const Groups& groups, std::int64_t count) {
  const std::int64_t done = groups.committed - count;
  if (done <= 0 || groups.channel.page == kNone) return;
  thread.seen.raise(groups.channel, static_cast<std::uint32_t>(done));
}

// --- mbarriers

PhaseBarrier* PhaseBarriers::find(const Thread& thread, std::uint32_t number) {
  const AccessCode& access = code_.program().accesses[number];
  const std::int64_t at = addresses_.element(thread, access, 0);
  Block* block = at < 0 ? nullptr : addresses_.block_of(thread, access, 0);
  if (block == nullptr) return nullptr;
  PhaseBarrier& barrier = block->phase_barriers[access.memory][static_cast<std::size_t>(at)];
  if (barrier.channel.page == kNone) {
    barrier.channel = agents_.add(*block, AgentKind::tma, at);
  }
  return &barrier;
}

void PhaseBarriers::init(Thread& thread, const Instruction& i) {
  PhaseBarrier* barrier = find(thread, i.detail);
  if (barrier == nullptr) return;
  const MemoryId memory = code_.program().accesses[i.detail].memory;
  if (barrier->is_initialised) {
    findings_.add(ReportKind::arrivals, thread, memory, 0, 0, "it is initialised twice");
    return;
  }
  const std::int64_t count = code_.kernel().detail<Count>(i.operation).count;
  if (count <= 0)
    findings_.add(ReportKind::arrivals, thread, memory, 0, 0, "its phases have no arrivals");
  barrier->is_initialised = true;
  barrier->initialiser = thread.channel;
  barrier->initialised_at = thread.clock;
  barrier->count = barrier->missing = count;
}

void PhaseBarriers::check_initialised(const Thread& thread, const PhaseBarrier& barrier,
                                      MemoryId memory, bool is_asynchronous) {
  if (!barrier.is_initialised) {
    findings_.add(ReportKind::uninitialised, thread, memory, 0, 0,
                  "the mbarrier is not initialised");
    return;
  }
  const bool is_own = thread.channel == barrier.initialiser;
  if (!is_own && thread.seen.get(barrier.initialiser) < barrier.initialised_at) {
    findings_.add(ReportKind::race, thread, memory, 0, 0,
                  fmt::format("nothing orders it after its initialisation by {}",
                              to_string(agents_.at(barrier.initialiser))));
  } else if (is_asynchronous && thread.fenced.get(barrier.initialiser) < barrier.initialised_at) {
    findings_.add(ReportKind::proxy, thread, memory, 0, 0,
                  "no proxy fence stands between the initialisation of the mbarrier and the copy");
  }
}

void PhaseBarriers::arrive(Thread& thread, const Instruction& i) {
  PhaseBarrier* barrier = find(thread, i.detail);
  if (barrier == nullptr) return;
  const AccessCode& access = code_.program().accesses[i.detail];
  check_initialised(thread, *barrier, access.memory, false);
  if (!barrier->is_initialised) return;
  if (barrier->missing == 0) {
    findings_.add(ReportKind::arrivals, thread, access.memory, 0, 0,
                  fmt::format("more than the {} arrivals of a phase", barrier->count));
    return;
  }
  barrier->arrived.join(snapshot(thread));
  barrier->arrived_fenced.join(thread.fenced);
  ++thread.clock;
  ++thread.changes;
  barrier->bytes += code_.kernel().detail<Count>(i.operation).count;
  --barrier->missing;
  complete_if_due(*barrier);
}

void PhaseBarriers::complete_if_due(PhaseBarrier& barrier) {
  if (barrier.missing != 0 || barrier.bytes != 0) return;
  barrier.completed = std::exchange(barrier.arrived, {});
  barrier.completed_fenced = std::exchange(barrier.arrived_fenced, {});
  barrier.missing = barrier.count;
  ++barrier.phase;
  for (Thread* thread : barrier.waiting) wakeups_.wake(*thread);
  barrier.waiting.clear();
}

bool PhaseBarriers::wait(Thread& thread, const Instruction& i) {
  PhaseBarrier* barrier = find(thread, i.detail);
  const AccessCode& access = code_.program().accesses[i.detail];
  if (barrier == nullptr) {
    ++thread.pc;
    return true;
  }
  check_initialised(thread, *barrier, access.memory, false);
  const bool has_phase = code_.kernel().detail<Count>(i.operation).has_phase;
  const std::int64_t parity = code_.get(thread, code_.operand(i, has_phase ? 1 : 0), 0) & 1;
  // The phase that is meant: the first of this parity that this thread has not waited for; of the
  // parity that it waited for last, the same again.
  auto known = std::find_if(thread.phases.begin(), thread.phases.end(),
                            [&](const auto& p) { return p.first == barrier; });
  std::int64_t meant = parity == 1 ? -1 : 0;
  if (known != thread.phases.end()) {
    meant = (known->second & 1) == parity ? known->second : known->second + 1;
  }
  if (has_phase) {
    meant = code_.get(thread, code_.operand(i, 0), 0);
    if ((meant & 1) != parity || barrier->phase < meant) {
      findings_.add(ReportKind::phase, thread, access.memory, 0, 0,
                    fmt::format("it waits for phase {} by parity {} when phase {} is under way",
                                meant, parity, barrier->phase));
      ++thread.pc;
      return true;
    }
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
    findings_.add(
        ReportKind::phase, thread, access.memory, 0, 0,
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

// --- cp.async ------------------------------------------------------------------------------------

// Whether both ends lie in their memories.
bool AsynchronousCopies::check_copy(const Thread& thread, const Ends& ends, std::int64_t elements,
                                    std::int64_t size) {
  const std::int64_t bytes = elements * size;
  for (const auto& [access, at] :
       {std::pair(&ends.from, ends.first), std::pair(&ends.to, ends.target)}) {
    const Memory& memory = code_.kernel().memories[access->memory];
    const bool fits = at + elements <= addresses_.layout(thread, access->memory).elements;
    if (!fits) {
      findings_.add(ReportKind::outside, thread, access->memory, at * size, at * size + bytes,
                    fmt::format("{} elements from {} on are not all inside", elements, at));
    }
    if (at * size % bytes != 0 || memory.alignment % bytes != 0) {
      findings_.add(ReportKind::misaligned, thread, access->memory, at * size, at * size + bytes,
                    fmt::format("a copy of {} bytes is not aligned to them", bytes));
    }
    if (!fits) return false;
  }
  return true;
}

void AsynchronousCopies::copy(Thread& thread, const Instruction& i) {
  const auto& info = code_.kernel().detail<Copy>(i.operation);
  const AccessCode& from = code_.program().accesses[i.detail];
  const AccessCode& to = code_.program().accesses[i.target];
  Groups& groups = thread.copies;
  if (groups.channel.page == kNone) {
    groups.channel = agents_.add(*thread.block, AgentKind::copy_async, thread.number);
  }
  const std::int64_t size = addresses_.layout(thread, from.memory).element_bytes;
  const std::uint32_t number = groups.committed + 1;
  const Clock seen = snapshot(thread);
  const Actor actor{groups.channel, number, &seen, &thread.fenced, false, false};
  const Record record{groups.channel, number, i.operation, Scope::thread, false, false};
  for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
    if (!code_.is_active(thread, i, l)) continue;
    const std::int64_t first = addresses_.element(thread, from, l);
    const std::int64_t target = addresses_.element(thread, to, l);
    if (first < 0 || target < 0) continue;
    if (!check_copy(thread, {from, to, first, target}, info.elements, size)) return;
    addresses_.check_dependency(thread, from.memory);
    Block* block = addresses_.block_of(thread, to, l);
    if (block == nullptr) continue;
    for (std::int64_t e = 0; e < info.elements; ++e) {
      const MemoryLocation read = addresses_.location_of(*thread.block, from.memory, first + e);
      const MemoryLocation written = addresses_.location_of(*block, to.memory, target + e);
      order_.record_read(thread, from.memory, read, size, actor, record, from.is_constant);
      order_.record_write(thread, to.memory, written, size, actor, record);
      std::copy_n(read.storage->data() + read.byte, size, written.storage->data() + written.byte);
    }
    ++thread.changes;
  }
}

// --- Bulk copies

template <class F>
void AsynchronousCopies::for_each_in_box(const Thread& thread, MemoryId map,
                                         std::span<const std::int64_t> box, const F& f) const {
  const Memory& memory = code_.kernel().memories[map];
  const Layout& layout = addresses_.layout(thread, map);
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

void AsynchronousCopies::check_bulk(const Thread& thread, const Bulk& info, std::int64_t byte,
                                    const char* direction) {
  const Memory& map = code_.kernel().memories[info.map];
  const Memory& shared = code_.kernel().memories[info.shared.memory];
  if (map.swizzle != shared.swizzle) {
    findings_.add(ReportKind::layout, thread, info.shared.memory, 0, 0,
                  fmt::format("the map swizzles by {} bytes and the memory by {}", map.swizzle,
                              shared.swizzle));
  }
  if (byte % 128 != 0 || shared.alignment % 128 != 0) {
    findings_.add(
        ReportKind::misaligned, thread, info.shared.memory, byte, byte,
        fmt::format("a bulk copy {} shared memory is not aligned to 128 bytes", direction));
  }
}

bool AsynchronousCopies::fits(const Thread& thread, const Storage& storage, MemoryId memory,
                              std::int64_t byte, std::int64_t size) {
  if (byte + size <= storage.bytes()) return true;
  findings_.add(ReportKind::outside, thread, memory, byte, byte + size,
                "the box does not fit into the shared memory");
  return false;
}

void AsynchronousCopies::bulk_load(Thread& thread, const Instruction& i) {
  const auto& info = code_.kernel().detail<Bulk>(i.operation);
  const AccessCode& to = code_.program().accesses[i.detail];
  BulkCopy copy;
  copy.thread = &thread;
  copy.instruction = thread.pc;
  for (std::uint32_t o = 0; o < i.operand_count; ++o) {
    copy.box.push_back(code_.get(thread, code_.operand(i, o), 0));
  }
  const std::int64_t first = addresses_.element(thread, to, 0);
  copy.block = first < 0 ? nullptr : addresses_.block_of(thread, to, 0);
  copy.barrier = barriers_.find(thread, i.target);
  if (copy.block == nullptr || copy.barrier == nullptr) return;
  barriers_.check_initialised(thread, *copy.barrier, code_.program().accesses[i.target].memory,
                              true);
  addresses_.check_dependency(thread, code_.kernel().memories[info.map].of);
  const Memory& shared = code_.kernel().memories[info.shared.memory];
  copy.target = first * element_bytes(shared);
  check_bulk(thread, info, copy.target, "to");
  copy.seen = snapshot(thread);
  copy.fenced = thread.fenced;
  copy.barrier->last_copy = static_cast<std::uint32_t>(copy.barrier->phase + 1);
  copy.barrier->copied_by = i.operation;
  ++thread.changes;
  if (at_once_) {
    perform(std::move(copy));
  } else {
    pending_.push_back(std::move(copy));
  }
}

void AsynchronousCopies::check_finished(const Thread& last) {
  const Block& block = *last.block;
  const auto unfinished = [&](OperationId operation, MemoryId memory, const char* what) {
    Finding finding;
    finding.kind = ReportKind::unfinished;
    finding.operation = operation;
    finding.memory = memory;
    finding.agents = {agents_.at(last.channel)};
    finding.message = fmt::format("the block ends without a wait until the copy {}", what);
    findings_.add(std::move(finding));
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

void AsynchronousCopies::perform(BulkCopy copy) {
  const Instruction& i = code_.program().code[copy.instruction];
  const auto& info = code_.kernel().detail<Bulk>(i.operation);
  const Memory& map = code_.kernel().memories[info.map];
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
    if (!fits(thread, storage, info.shared.memory, byte, size)) return;
    order_.record_write(thread, info.shared.memory, {&storage, byte, 0}, size, actor, record);
    if (element < 0) {
      std::fill_n(storage.data() + byte, size, std::byte{});
      return;
    }
    const MemoryLocation from = addresses_.location_of(*thread.block, map.of, element);
    order_.record_read(thread, map.of, from, size, actor, record, false);
    std::copy_n(from.storage->data() + from.byte, size, storage.data() + byte);
  });
  barrier.bytes -= bytes;
  barrier.arrived.join(copy.seen);
  barrier.arrived.raise(barrier.channel, clock);
  barrier.arrived_fenced.join(copy.fenced);
  barriers_.complete_if_due(barrier);
}

// Shared memory may be written again after bulk_wait; no thread of this launch sees what the copy
// writes.
void AsynchronousCopies::bulk_store(Thread& thread, const Instruction& i) {
  const auto& info = code_.kernel().detail<Bulk>(i.operation);
  const Memory& map = code_.kernel().memories[info.map];
  const Memory& shared = code_.kernel().memories[info.shared.memory];
  if (thread.bulks.channel.page == kNone) {
    thread.bulks.channel = agents_.add(*thread.block, AgentKind::bulk, thread.number);
    thread.bulk_writes = agents_.add(*thread.block, AgentKind::bulk, thread.number);
  }
  const std::int64_t first = addresses_.element(thread, code_.program().accesses[i.detail], 0);
  if (first < 0) return;
  std::vector<std::int64_t> box;
  for (std::uint32_t o = 0; o < i.operand_count; ++o)
    box.push_back(code_.get(thread, code_.operand(i, o), 0));
  addresses_.check_dependency(thread, map.of);
  check_bulk(thread, info, first * element_bytes(shared), "from");
  if (code_.kernel().memories[map.of].role == Role::in) {
    findings_.add(ReportKind::read_only, thread, map.of, 0, 0, "an `in` parameter is written");
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
    if (!fits(thread, storage, info.shared.memory, byte, size)) return;
    order_.record_read(thread, info.shared.memory, {&storage, byte, 0}, size, reader, read, false);
    if (element < 0) return;
    const MemoryLocation to = addresses_.location_of(*thread.block, map.of, element);
    order_.record_write(thread, map.of, to, size, writer, written);
    std::copy_n(storage.data() + byte, size, to.storage->data() + to.byte);
  });
  thread.bulks.last = i.operation;
  thread.bulks.is_open = true;
  ++thread.changes;
}

}  // namespace inkle::kernel
