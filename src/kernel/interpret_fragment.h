// Fragments: each thread has its own elements; multiplications and changes of layout are done when
// all threads of the holder have come. For interpret_*.cpp only.
//
// The first slot of a fragment is its state: the number of the write that made it, for mma_fence;
// or, negative, of the group of wgmma that is making it.
#pragma once

#include <cstdint>
#include <span>

#include "kernel/fragment.h"
#include "kernel/interpret_access.h"
#include "kernel/interpret_barrier.h"

namespace inkle::kernel {

class Fragments {
 public:
  Fragments(const ThreadCode& code, Addresses& addresses, Accesses& accesses, HappensBefore& order,
            Agents& agents, Findings& findings, Meetings& meetings)
      : code_(code),
        addresses_(addresses),
        accesses_(accesses),
        order_(order),
        agents_(agents),
        findings_(findings),
        meetings_(meetings) {}

  void fill(Thread& thread, const Instruction& i) const;
  void load_or_store(Thread& thread, const Instruction& i);
  void map_head(Thread& thread, const Instruction& i);
  void map_next(Thread& thread, const Instruction& i) const;
  bool together(Thread& thread, const Instruction& i);  // whether the thread can go on

 private:
  struct Matrix;
  void check_ready(Thread& thread, Ref fragment);
  void convert_layout(std::span<Thread* const> threads, const Instruction& i);
  void multiply(std::span<Thread* const> threads, const Instruction& i);
  void check_operands(std::span<Thread* const> threads, const Instruction& i, bool is_asynchronous);
  [[nodiscard]] Matrix gather(std::span<Thread* const> threads, Ref ref,
                              const FragmentType& type) const;
  static void scatter(std::span<Thread* const> threads, Ref ref, const FragmentType& type,
                      const Matrix& matrix);
  [[nodiscard]] Matrix read_tile(const Thread& thread, std::uint32_t number, const Actor& actor);
  [[nodiscard]] const FragmentType& type_of(ValueId value) const;

  const ThreadCode& code_;
  Addresses& addresses_;
  Accesses& accesses_;
  HappensBefore& order_;
  Agents& agents_;
  Findings& findings_;
  Meetings& meetings_;
};

}  // namespace inkle::kernel
