// Values of threads: operands and results of instructions, index expressions, scalar operations.
// For interpret_*.cpp only.
#pragma once

#include <cstdint>

#include "kernel/interpret_findings.h"

namespace inkle::kernel {

inline void set_slot(Thread& thread, Ref ref, std::uint32_t lane, std::int64_t value) {
  thread.slots[ref.offset() + (ref.varies() ? lane : 0)] = value;
}

// What threads run.
class ThreadCode {
 public:
  ThreadCode(const Kernel& kernel, const Program& program) : kernel_(kernel), program_(program) {}
  [[nodiscard]] const Kernel& kernel() const { return kernel_; }
  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] const Instruction& at(const Thread& thread) const {
    return program_.code[thread.pc];
  }
  [[nodiscard]] Ref operand(const Instruction& i, std::uint32_t number) const {
    return program_.refs[i.operands + number];
  }
  [[nodiscard]] std::int64_t get(const Thread& thread, Ref ref, std::uint32_t lane) const {
    const std::uint32_t at = ref.offset() + (ref.varies() ? lane : 0);
    return ref.is_pool() ? program_.pool[at] : thread.slots[at];
  }
  [[nodiscard]] bool is_active(const Thread& thread, const Instruction& i,
                               std::uint32_t lane) const {
    return i.mask.is_none() || get(thread, i.mask, lane) != 0;
  }
  [[nodiscard]] std::int64_t index(const Thread& thread, std::uint32_t number,
                                   std::uint32_t lane) const;

 private:
  [[nodiscard]] std::int64_t index_steps(const Thread& thread, const IndexProgram& program,
                                         std::uint32_t lane) const;

  const Kernel& kernel_;
  const Program& program_;
};

// Operations on scalars, for all lanes that are active.
class ScalarOperations {
 public:
  ScalarOperations(const ThreadCode& code, Findings& findings) : code_(code), findings_(findings) {}
  void move(Thread& thread, const Instruction& i) const;
  void compute(Thread& thread, const Instruction& i);
  void indirect(Thread& thread, const Instruction& i);
  void mask(Thread& thread, const Instruction& i);

 private:
  [[nodiscard]] std::int64_t evaluate(const Thread& thread, const Instruction& i,
                                      std::uint32_t lane);

  const ThreadCode& code_;
  Findings& findings_;
};

}  // namespace inkle::kernel
