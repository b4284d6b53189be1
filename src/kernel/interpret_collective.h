// Collectives in their high form and shuffles: values cross between threads, memory is not ordered.
// For interpret_*.cpp only.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernel/interpret_barrier.h"
#include "kernel/interpret_launch.h"

namespace inkle::kernel {

class Collectives {
 public:
  // Runs a thread's code from the entry of a merge to its end.
  using RunMerge = std::function<void(Thread& thread, std::uint32_t entry)>;
  Collectives(const ThreadCode& code, const LaunchMemory& memory, Findings& findings,
              Meetings& meetings, RunMerge run_merge)
      : code_(code),
        memory_(memory),
        findings_(findings),
        meetings_(meetings),
        run_merge_(std::move(run_merge)) {}

  bool collective(Thread& thread, const Instruction& i);  // whether the thread can go on
  bool shuffle(Thread& thread, const Instruction& i);
  void transpose(Thread& thread, const Instruction& i);

 private:
  using State = std::vector<std::int64_t>;
  using States = std::vector<State>;  // by participant
  void all_lanes(const Thread& thread, const Instruction& i);
  void over_lanes(Thread& thread, const Instruction& i);
  void over_axes(std::span<Thread* const> participants, const Instruction& i);
  void reduce(std::span<Thread* const> participants, const Instruction& i, States& states);
  void merge(Thread& thread, const MergeCode& code, State& first, const State& second);
  void exchange(std::span<Thread* const> lanes, const Instruction& i) const;

  const ThreadCode& code_;
  const LaunchMemory& memory_;
  Findings& findings_;
  Meetings& meetings_;
  RunMerge run_merge_;
};

}  // namespace inkle::kernel
