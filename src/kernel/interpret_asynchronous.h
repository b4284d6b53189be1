// Asynchronous copies and mbarriers. A copy is an agent of its own: what it does is ordered after
// its issue, and before what follows its wait. For interpret_*.cpp only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernel/interpret_access.h"

namespace inkle::kernel {

void commit(Groups& groups);
// All but the last `count` groups are done.
void wait(Thread& thread, const Groups& groups, std::int64_t count);

class PhaseBarriers {
 public:
  PhaseBarriers(const ThreadCode& code, Addresses& addresses, Agents& agents, Findings& findings,
                Wakeups& wakeups)
      : code_(code),
        addresses_(addresses),
        agents_(agents),
        findings_(findings),
        wakeups_(wakeups) {}

  PhaseBarrier* find(const Thread& thread, std::uint32_t access);
  void check_initialised(const Thread& thread, const PhaseBarrier& barrier, MemoryId memory,
                         bool is_asynchronous);
  void init(Thread& thread, const Instruction& i);
  void arrive(Thread& thread, const Instruction& i);
  bool wait(Thread& thread, const Instruction& i);  // whether the thread can go on
  void complete_if_due(PhaseBarrier& barrier);

 private:
  const ThreadCode& code_;
  Addresses& addresses_;
  Agents& agents_;
  Findings& findings_;
  Wakeups& wakeups_;
};

// A bulk copy to shared memory that is under way.
struct BulkCopy {
  Thread* thread = nullptr;
  std::uint32_t instruction = 0;
  std::vector<std::int64_t> box;
  std::int64_t target = 0;  // byte of the shared memory before swizzling
  Block* block = nullptr;   // whose shared memory and barrier
  PhaseBarrier* barrier = nullptr;
  Clock seen, fenced;
};

class AsynchronousCopies {
 public:
  // `at_once`: bulk loads are done where they are issued.
  AsynchronousCopies(const ThreadCode& code, Addresses& addresses, HappensBefore& order,
                     Agents& agents, PhaseBarriers& barriers, Findings& findings, bool at_once)
      : code_(code),
        addresses_(addresses),
        order_(order),
        agents_(agents),
        barriers_(barriers),
        findings_(findings),
        at_once_(at_once) {}

  void copy(Thread& thread, const Instruction& i);
  void bulk_load(Thread& thread, const Instruction& i);
  void bulk_store(Thread& thread, const Instruction& i);
  [[nodiscard]] std::vector<BulkCopy>& pending() { return pending_; }
  void perform(BulkCopy copy);
  // After the last thread of a block: finds bulk copies that were not waited for.
  void check_finished(const Thread& last);

 private:
  struct Ends {  // of a copy of elements
    const AccessCode &from, &to;
    std::int64_t first = 0, target = 0;
  };
  bool check_copy(const Thread& thread, const Ends& ends, std::int64_t elements, std::int64_t size);
  void check_bulk(const Thread& thread, const Bulk& info, std::int64_t byte, const char* direction);
  // Whether the element's bytes lie in the shared memory.
  bool fits(const Thread& thread, const Storage& storage, MemoryId memory, std::int64_t byte,
            std::int64_t size);
  template <class F>
  void for_each_in_box(const Thread& thread, MemoryId map, std::span<const std::int64_t> box,
                       const F& f) const;

  const ThreadCode& code_;
  Addresses& addresses_;
  HappensBefore& order_;
  Agents& agents_;
  PhaseBarriers& barriers_;
  Findings& findings_;
  bool at_once_;
  std::vector<BulkCopy> pending_;
};

}  // namespace inkle::kernel
