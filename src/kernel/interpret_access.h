// Loads, stores and atomics: where they go and whether they may. For interpret_*.cpp only.
#pragma once

#include <cstdint>
#include <span>

#include "kernel/interpret_history.h"
#include "kernel/interpret_order.h"
#include "kernel/interpret_values.h"

namespace inkle::kernel {

// Elements that accesses refer to, with findings where there is none.
class Addresses {
 public:
  Addresses(const ThreadCode& code, const LaunchMemory& memory, Findings& findings)
      : code_(code), memory_(memory), findings_(findings) {}

  // The element's position in its memory, -1 with a finding where it is outside.
  std::int64_t element(const Thread& thread, const AccessCode& access, std::uint32_t lane,
                       bool reports = true);
  // Of element (row, column) of a fragment.
  std::int64_t element(const Thread& thread, const FragmentAccessCode& access, std::int64_t row,
                       std::int64_t column);
  Block* block_of(const Thread& thread, const AccessCode& access, std::uint32_t lane,
                  bool reports = true);
  MemoryLocation locate(const Thread& thread, const AccessCode& access, std::uint32_t lane,
                        bool reports = true);
  [[nodiscard]] MemoryLocation location_of(Block& block, MemoryId memory,
                                           std::int64_t element) const {
    return memory_.location_of(block, memory, element);
  }
  [[nodiscard]] const Layout& layout(const Thread& thread, MemoryId memory) const {
    return memory_.table(*thread.block).layouts[memory];
  }
  [[nodiscard]] bool is_private(MemoryId memory) const { return memory_.is_private(memory); }
  // Of a wide access lane l must have element first + l, of a splat one all the same.
  void check_form(const Thread& thread, const Instruction& i, const AccessCode& access);
  // No access of what an earlier launch may still access comes before dependency_wait.
  void check_dependency(const Thread& thread, MemoryId memory);
  // An `in` parameter is never written.
  void check_writable(const Thread& thread, MemoryId memory, std::int64_t begin, std::int64_t end);

 private:
  void check_alignment(const Thread& thread, const AccessCode& access, std::int64_t element);

  const ThreadCode& code_;
  const LaunchMemory& memory_;
  Findings& findings_;
};

class Accesses {
 public:
  Accesses(const ThreadCode& code, const LaunchMemory& memory, Addresses& addresses,
           HappensBefore& order, Histories& histories, Watchers& watchers, Findings& findings)
      : code_(code),
        memory_(memory),
        addresses_(addresses),
        order_(order),
        histories_(histories),
        watchers_(watchers),
        findings_(findings) {}

  void load(Thread& thread, const Instruction& i);
  void store(Thread& thread, const Instruction& i);
  void atomic(Thread& thread, const Instruction& i);
  // An element of this position in the access's memory.
  [[nodiscard]] Scalar read(Thread& thread, const AccessCode& access, std::int64_t element);
  void write(Thread& thread, const AccessCode& access, std::int64_t element, Scalar value);

 private:
  [[nodiscard]] Scalar private_read(const Thread& thread, MemoryId memory, std::int64_t element);
  void private_write(Thread& thread, MemoryId memory, std::int64_t element, Scalar value);
  [[nodiscard]] Scalar read(Thread& thread, const AccessCode& access, MemoryLocation location);
  void write(Thread& thread, const AccessCode& access, MemoryLocation location, Scalar value);
  void update(Thread& thread, const Instruction& i, const AccessCode& access, std::uint32_t lane);
  // Puts the value there, of which others are told.
  void change(Thread& thread, MemoryLocation location, std::span<const std::byte> value);

  const ThreadCode& code_;
  const LaunchMemory& memory_;
  Addresses& addresses_;
  HappensBefore& order_;
  Histories& histories_;
  Watchers& watchers_;
  Findings& findings_;
};

}  // namespace inkle::kernel
