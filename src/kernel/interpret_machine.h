// A launch in progress. For interpret_*.cpp only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernel/interpret.h"
#include "kernel/interpret_access.h"
#include "kernel/interpret_asynchronous.h"
#include "kernel/interpret_blocks.h"
#include "kernel/interpret_collective.h"
#include "kernel/interpret_control.h"
#include "kernel/interpret_fragment.h"

namespace inkle::kernel {

// What the next operation of a thread does to others: for exploration.
struct Visible {
  std::size_t thread = 0;
  std::uint64_t location = 0;  // 0: several
  bool writes = false;
};

// Driven by interpret_schedule.cpp and interpret_explore.cpp.
class Machine {
 public:
  Machine(const Kernel& kernel, const Program& program, std::span<const Instance> instances,
          const InterpretOptions& options);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Until the thread stops, at most so many steps.
  void run(Thread& thread, std::int64_t steps);
  [[nodiscard]] Blocks& blocks() { return blocks_; }
  [[nodiscard]] Wakeups& wakeups() { return wakeups_; }
  [[nodiscard]] std::vector<BulkCopy>& bulk_copies() { return copies_.pending(); }
  void perform(BulkCopy copy) { copies_.perform(std::move(copy)); }
  void stop_at_visible() { stops_at_visible_ = true; }
  [[nodiscard]] Visible visible_of(Thread& thread);
  void report_stuck();
  void finish() { memory_.check_written(findings_); }  // when all is done
  [[nodiscard]] bool is_stopped() const { return findings_.is_stopped(); }
  RunResult take_result();

 private:
  bool step(Thread& thread);  // whether the thread can go on
  bool machine_operation(Thread& thread, const Instruction& i);
  void run_merge(Thread& thread, std::uint32_t entry);
  void retire(Thread& thread);

  ThreadCode code_;
  std::int64_t most_steps_;
  std::int64_t steps_ = 0;
  bool stops_at_visible_ = false;
  Agents agents_;
  Findings findings_;
  LaunchMemory memory_;
  Wakeups wakeups_;
  Watchers watchers_;
  Blocks blocks_;
  HappensBefore order_;
  Histories histories_;
  Addresses addresses_;
  Accesses accesses_;
  ScalarOperations scalars_;
  ThreadControl control_;
  ThreadBarriers barriers_;
  Meetings meetings_;
  Collectives collectives_;
  PhaseBarriers phase_barriers_;
  AsynchronousCopies copies_;
  Fragments fragments_;
};

// A whole run, by the options' interleaving.
void run_schedule(Machine& machine, const InterpretOptions& options);

}  // namespace inkle::kernel
