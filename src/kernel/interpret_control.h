// Jumps and loops of a thread, and repeats that spin. For interpret_*.cpp only.
#pragma once

#include "kernel/interpret_values.h"

namespace inkle::kernel {

class ThreadControl {
 public:
  ThreadControl(const ThreadCode& code, Findings& findings, Watchers& watchers)
      : code_(code), findings_(findings), watchers_(watchers) {}
  bool run(Thread& thread, const Instruction& i);  // whether the thread can go on

 private:
  void repeat_compare(Thread& thread, const Instruction& i) const;
  bool repeat_again(Thread& thread, const Instruction& i);

  const ThreadCode& code_;
  Findings& findings_;
  Watchers& watchers_;
};

}  // namespace inkle::kernel
