// Barriers of threads, and what to say when nobody can go on.
#include <algorithm>

#include "base/error.h"
#include "kernel/interpret_machine.h"

namespace inkle::kernel {

namespace {

constexpr std::size_t kWarpArrival = 16;
constexpr std::size_t kClusterArrival = 17;

}  // namespace

bool Machine::barrier(Thread& thread, const Instruction& i) {
  const auto& info = kernel_.detail<Barrier>(i.operation);
  Block& block = *thread.block;
  ThreadBarrier* barrier = nullptr;
  std::size_t arrival = static_cast<std::size_t>(info.number);
  std::int64_t expected = info.threads > 0 ? info.threads : threads_per_block_;
  if (info.scope == Scope::warp) {
    const std::int64_t size = info.threads > 0 ? info.threads : 32;
    const std::int64_t part = thread.number / size;
    barrier =
        size < 32 ? &block.warp_parts[{size, part}] : &block.warps[static_cast<std::size_t>(part)];
    expected = std::min<std::int64_t>(size, threads_per_block_ - part * size);
    arrival = kWarpArrival;
  } else if (info.scope == Scope::cluster) {
    barrier = &block.cluster->barrier;
    expected = threads_per_block_ * cluster_size_;
    arrival = kClusterArrival;
  } else {
    barrier = &block.barriers.at(static_cast<std::size_t>(info.number));
  }
  if (info.part == Barrier::Part::wait) {
    const std::uint64_t arrived = thread.arrivals[arrival];
    if (arrived == 0) {
      add(ReportKind::divergence, thread, kNone, 0, 0,
          "it waits at a barrier where it did not arrive");
    } else if (barrier->phase < arrived) {
      thread.status = Status::blocked;
      barrier->waiting.push_back(&thread);
      return false;
    } else {
      thread.seen.join(barrier->released);
      thread.fenced.join(barrier->released_fenced);
      thread.arrivals[arrival] = 0;
    }
    ++thread.pc;
    return true;
  }
  if (thread.arrivals[arrival] > barrier->phase) {
    add(ReportKind::divergence, thread, kNone, 0, 0, "it arrives twice at one phase of a barrier");
  }
  if (barrier->arrived == 0) {
    barrier->expected = expected;
    barrier->operation = i.operation;
  } else {
    const bool whole = info.threads == 0;
    const bool splits = info.part != Barrier::Part::both;
    if (barrier->expected != expected || (whole && !splits && barrier->operation != i.operation)) {
      Finding finding{ReportKind::divergence, i.operation, barrier->operation, kNone, 0, 0, {}, {}};
      finding.agents = {agent_of(thread)};
      finding.message = "threads of its scope are at different barriers";
      add(std::move(finding));
    }
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

void Machine::arrive(Thread& thread, ThreadBarrier& barrier) {
  if (!thread.seen.shares_all(barrier.last)) {
    barrier.joined.join(thread.seen);
    barrier.last = thread.seen;
  }
  barrier.joined.raise(thread.channel, thread.clock);
  barrier.joined_fenced.join(thread.fenced);
  ++thread.clock;
}

void Machine::complete(ThreadBarrier& barrier) {
  ++barrier.phase;
  barrier.arrived = 0;
  barrier.released = std::exchange(barrier.joined, {});
  barrier.released_fenced = std::exchange(barrier.joined_fenced, {});
  barrier.last = {};
  for (Thread* thread : barrier.together) {
    // What a thread has seen has been joined.
    thread->seen = barrier.released;
    thread->fenced = barrier.released_fenced;
    wake(*thread);
    ++thread->pc;
  }
  for (Thread* thread : barrier.waiting) wake(*thread);
  barrier.together.clear();
  barrier.waiting.clear();
}

// --- Nobody can go on

void Machine::report_stuck() {
  is_stopped_ = true;
  result_.is_complete = false;
  // One finding for each operation at which threads wait.
  std::vector<OperationId> operations;
  for (const Thread* thread : live_) {
    if (thread->status == Status::finished) continue;
    const OperationId operation = at(*thread).operation;
    if (std::find(operations.begin(), operations.end(), operation) == operations.end()) {
      operations.push_back(operation);
    }
  }
  for (const OperationId operation : operations) {
    Finding finding;
    finding.operation = operation;
    std::int64_t waiting = 0;
    const Thread* first = nullptr;
    for (const Thread* thread : live_) {
      if (thread->status == Status::finished || at(*thread).operation != operation) continue;
      if (first == nullptr) first = thread;
      ++waiting;
    }
    finding.agents = {agent_of(*first)};
    const Op op = operation == kNone ? Op::constant : kernel_[operation].op;
    const bool is_collective = op == Op::barrier || op == Op::reduce || op == Op::scan ||
                               op == Op::broadcast || op == Op::shuffle || op == Op::mma ||
                               op == Op::convert_layout;
    finding.kind = is_collective ? ReportKind::divergence : ReportKind::hang;
    const bool spins = first->status == Status::spinning;
    finding.message =
        fmt::format("{} threads {} here for ever{}", waiting, spins ? "spin" : "wait",
                    next_unit_ < units_.size() ? ", other blocks have not started" : "");
    add(std::move(finding));
  }
}

}  // namespace inkle::kernel
