// Happens-before: what each access of memory that threads share is checked against, and what
// acquires, releases and fences order. For interpret_*.cpp only.
#pragma once

#include <cstdint>
#include <span>

#include "kernel/interpret_launch.h"

namespace inkle::kernel {

[[nodiscard]] Actor actor_of(const Thread& thread);
[[nodiscard]] Clock snapshot(const Thread& thread);

class HappensBefore {
 public:
  HappensBefore(const Agents& agents, Findings& findings) : agents_(agents), findings_(findings) {}

  void record_read(const Thread& thread, MemoryId memory, MemoryLocation location,
                   std::int64_t bytes, const Actor& actor, Record record, bool is_constant);
  void record_write(const Thread& thread, MemoryId memory, MemoryLocation location,
                    std::int64_t bytes, const Actor& actor, Record record);
  // A read of a location that is at least relaxed: what was published there is seen, now (acquire)
  // or with the next fence.
  void acquire(Thread& thread, MemoryLocation location, Order order, Scope scope) const;
  void acquire_from(Thread& thread, std::span<const Release> releases, bool now, Scope scope) const;
  // A write of a location that is at least relaxed. `continues`: it is an atomic, so what others
  // have published there still holds.
  static void publish(Thread& thread, MemoryLocation location, Order order, Scope scope,
                      bool continues);
  void fence(Thread& thread, const Fence& info) const;

 private:
  // Whether the two are in order.
  bool check_order(const Thread& thread, MemoryId memory, MemoryLocation location,
                   const Record& earlier, bool earlier_writes, const Actor& actor,
                   const Record& record);

  const Agents& agents_;
  Findings& findings_;
};

}  // namespace inkle::kernel
