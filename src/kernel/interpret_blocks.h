// Blocks of a launch as they become resident, and their threads. For interpret_*.cpp only.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernel/interpret_launch.h"
#include "kernel/interpret_values.h"

namespace inkle::kernel {

class Blocks {
 public:
  Blocks(const ThreadCode& code, const LaunchMemory& memory, Agents& agents, Wakeups& wakeups,
         std::int64_t most_resident);

  void set_order(Interleaving order, std::uint64_t seed);
  bool start();                   // as many as may be resident; whether any was started
  bool finish(Thread& thread);    // whether it was the last of its block
  void release(Block& finished);  // all of whose threads have finished
  [[nodiscard]] std::vector<Thread*>& threads() { return threads_; }
  [[nodiscard]] bool has_unstarted() const { return next_unit_ < units_.size(); }
  [[nodiscard]] bool is_done() const { return unfinished_ == 0 && !has_unstarted(); }

 private:
  void start_cluster(std::int32_t instance, std::int64_t number);
  void start_thread(Block& block, std::uint32_t number);

  const ThreadCode& code_;
  const LaunchMemory& memory_;
  Agents& agents_;
  Wakeups& wakeups_;
  std::int64_t cluster_size_;
  std::int64_t most_resident_;                                // 0: all
  std::vector<std::pair<std::int32_t, std::int64_t>> units_;  // instance, cluster
  std::size_t next_unit_ = 0;
  std::int64_t resident_ = 0;
  std::vector<std::unique_ptr<Cluster>> clusters_;
  std::vector<Thread*> threads_;
  std::int64_t unfinished_ = 0;
};

}  // namespace inkle::kernel
