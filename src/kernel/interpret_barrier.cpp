#include "kernel/interpret_barrier.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace inkle::kernel {

namespace {

constexpr std::size_t kWarpArrival = 16;
constexpr std::size_t kClusterArrival = 17;

}  // namespace

bool ThreadBarriers::barrier(Thread& thread, const Instruction& i) {
  const auto& info = kernel_.detail<Barrier>(i.operation);
  Block& block = *thread.block;
  const auto threads = static_cast<std::int64_t>(block.threads.size());
  ThreadBarrier* barrier = nullptr;
  std::size_t arrival = static_cast<std::size_t>(info.number);
  std::int64_t expected = info.threads > 0 ? info.threads : threads;
  if (info.scope == Scope::warp) {
    const std::int64_t size = info.threads > 0 ? info.threads : 32;
    const std::int64_t part = thread.number / size;
    barrier =
        size < 32 ? &block.warp_parts[{size, part}] : &block.warps[static_cast<std::size_t>(part)];
    expected = std::min<std::int64_t>(size, threads - part * size);
    arrival = kWarpArrival;
  } else if (info.scope == Scope::cluster) {
    barrier = &block.cluster->barrier;
    expected = threads * static_cast<std::int64_t>(block.cluster->blocks.size());
    arrival = kClusterArrival;
  } else {
    barrier = &block.barriers.at(static_cast<std::size_t>(info.number));
  }
  if (info.part == Barrier::Part::wait) return wait(thread, *barrier, arrival);
  if (thread.arrivals[arrival] > barrier->phase) {
    findings_.add(ReportKind::divergence, thread, kNone, 0, 0,
                  "it arrives twice at one phase of a barrier");
  }
  if (barrier->arrived == 0) {
    barrier->expected = expected;
    barrier->operation = i.operation;
  } else {
    check(thread, *barrier, i, expected);
  }
  const bool waits = info.part == Barrier::Part::both;
  arrive(thread, *barrier);
  if (waits) {
    barrier->together.push_back(&thread);
    thread.status = Status::blocked;
  } else {
    thread.arrivals[arrival] = barrier->phase + 1;
    ++thread.pc;
  }
  if (++barrier->arrived < barrier->expected) return !waits;
  complete(*barrier);
  return true;
}

bool ThreadBarriers::wait(Thread& thread, ThreadBarrier& barrier, std::size_t arrival) {
  const std::uint64_t arrived = thread.arrivals[arrival];
  if (arrived == 0) {
    findings_.add(ReportKind::divergence, thread, kNone, 0, 0,
                  "it waits at a barrier where it did not arrive");
  } else if (barrier.phase < arrived) {
    thread.status = Status::blocked;
    barrier.waiting.push_back(&thread);
    return false;
  } else {
    thread.seen.join(barrier.released);
    thread.fenced.join(barrier.released_fenced);
    thread.arrivals[arrival] = 0;
  }
  ++thread.pc;
  return true;
}

// Finds threads of one scope that wait at different barriers.
void ThreadBarriers::check(const Thread& thread, const ThreadBarrier& barrier, const Instruction& i,
                           std::int64_t expected) {
  const auto& info = kernel_.detail<Barrier>(i.operation);
  const bool whole = info.threads == 0;
  const bool splits = info.part != Barrier::Part::both;
  if (barrier.expected == expected && (!whole || splits || barrier.operation == i.operation)) {
    return;
  }
  Finding finding{ReportKind::divergence, i.operation, barrier.operation, kNone, 0, 0, {}, {}};
  finding.agents = {agents_.at(thread.channel)};
  finding.message = "threads of its scope are at different barriers";
  findings_.add(std::move(finding));
}

void ThreadBarriers::arrive(Thread& thread, ThreadBarrier& barrier) {
  if (!thread.seen.shares_all(barrier.last)) {
    barrier.joined.join(thread.seen);
    barrier.last = thread.seen;
  }
  barrier.joined.raise(thread.channel, thread.clock);
  barrier.joined_fenced.join(thread.fenced);
  ++thread.clock;
}

void ThreadBarriers::complete(ThreadBarrier& barrier) {
  ++barrier.phase;
  barrier.arrived = 0;
  barrier.released = std::exchange(barrier.joined, {});
  barrier.released_fenced = std::exchange(barrier.joined_fenced, {});
  barrier.last = {};
  for (Thread* thread : barrier.together) {
    // What a thread has seen has been joined.
    thread->seen = barrier.released;
    thread->fenced = barrier.released_fenced;
    wakeups_.wake(*thread);
    ++thread->pc;
  }
  for (Thread* thread : barrier.waiting) wakeups_.wake(*thread);
  barrier.together.clear();
  barrier.waiting.clear();
}

// --- Rendezvous
// --------------------------------------------------------------------------------------

Rendezvous* Meetings::meet(Thread& thread, std::uint64_t group, std::int64_t position,
                           std::int64_t participants) {
  const std::uint64_t key = (static_cast<std::uint64_t>(thread.pc) << 40) + group;
  Rendezvous& meeting = rendezvous_[key];
  meeting.participants.resize(static_cast<std::size_t>(participants));
  meeting.participants[static_cast<std::size_t>(position)] = &thread;
  thread.status = Status::blocked;
  return ++meeting.arrived == participants ? &meeting : nullptr;
}

Rendezvous* Meetings::meet_neighbours(Thread& thread, std::int64_t size, std::int64_t there) {
  const std::int64_t first = thread.number / size * size;
  const std::uint64_t group =
      (static_cast<std::uint64_t>(thread.block->page) << 12) + static_cast<std::uint64_t>(first);
  return meet(thread, group, thread.number - first, there);
}

void Meetings::release(Rendezvous& rendezvous) {
  const std::vector<Thread*> participants = std::move(rendezvous.participants);
  rendezvous.participants.clear();
  rendezvous.arrived = 0;
  for (Thread* thread : participants) {
    wakeups_.wake(*thread);
    ++thread->pc;
  }
}

}  // namespace inkle::kernel
