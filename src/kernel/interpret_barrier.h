// Threads that wait for each other. For interpret_*.cpp only.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "kernel/interpret_values.h"

namespace inkle::kernel {

// Barriers of a warp, a block, a cluster.
class ThreadBarriers {
 public:
  ThreadBarriers(const Kernel& kernel, const Agents& agents, Findings& findings, Wakeups& wakeups)
      : kernel_(kernel), agents_(agents), findings_(findings), wakeups_(wakeups) {}
  bool barrier(Thread& thread, const Instruction& i);  // whether the thread can go on

 private:
  bool wait(Thread& thread, ThreadBarrier& barrier, std::size_t arrival);
  void check(const Thread& thread, const ThreadBarrier& barrier, const Instruction& i,
             std::int64_t expected);
  static void arrive(Thread& thread, ThreadBarrier& barrier);
  void complete(ThreadBarrier& barrier);

  const Kernel& kernel_;
  const Agents& agents_;
  Findings& findings_;
  Wakeups& wakeups_;
};

// Participants of a collective, a shuffle or a matrix operation that have come.
struct Rendezvous {
  std::vector<Thread*> participants;
  std::int64_t arrived = 0;
};

class Meetings {
 public:
  explicit Meetings(Wakeups& wakeups) : wakeups_(wakeups) {}
  // All participants, in order, once the last has come; null before.
  Rendezvous* meet(Thread& thread, std::uint64_t group, std::int64_t position,
                   std::int64_t participants);
  // As many neighbouring threads of a block as `size`, of which there are `there`.
  Rendezvous* meet_neighbours(Thread& thread, std::int64_t size, std::int64_t there);
  void release(Rendezvous& rendezvous);

 private:
  Wakeups& wakeups_;
  std::unordered_map<std::uint64_t, Rendezvous> rendezvous_;
};

}  // namespace inkle::kernel
