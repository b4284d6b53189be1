// Which agent does what in a launch, and what was found to be wrong. For interpret_*.cpp only.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernel/interpret.h"
#include "kernel/interpret_code.h"
#include "kernel/interpret_thread.h"

namespace inkle::kernel {

// Agents by their channel: threads, and the asynchronous ones of their block.
class Agents {
 public:
  explicit Agents(std::int64_t threads_per_block)
      : threads_per_block_(static_cast<std::uint32_t>(threads_per_block)) {}
  // A block's page.
  std::uint32_t add_block(std::int32_t instance, std::int64_t block, std::int64_t cluster);
  Channel add(const Block& block, AgentKind kind, std::int64_t thread);
  [[nodiscard]] Agent at(Channel channel) const;
  // Whether an operation of `from` at this scope is seen by `to`.
  [[nodiscard]] bool reaches(Scope scope, Channel from, Channel to) const;

 private:
  struct Page {
    std::int32_t instance = 0;
    std::int64_t block = 0;
    std::int64_t cluster = 0;
    std::vector<Agent> others;  // channels beyond the threads
  };
  std::uint32_t threads_per_block_;
  std::vector<Page> pages_;
};

// One for each kind, pair of operations and memory.
class Findings {
 public:
  Findings(const Program& program, const Agents& agents, std::size_t most)
      : program_(program), agents_(agents), most_(most) {}

  void add(ReportKind kind, const Thread& thread, MemoryId memory, std::int64_t begin,
           std::int64_t end, std::string message, const Record* other = nullptr);
  void add(Finding finding);
  [[nodiscard]] bool is_known(ReportKind kind, const Thread& thread, const Record& other,
                              MemoryId memory) const;
  // The kernel reports a failure; the first one counts.
  void fail(std::int32_t status);
  // The run ends here, with a finding.
  void stop(std::string why);
  void stop();
  [[nodiscard]] bool is_stopped() const { return is_stopped_; }
  [[nodiscard]] RunResult take() { return std::move(result_); }

 private:
  [[nodiscard]] OperationId operation_of(const Thread& thread) const {
    return program_.code[thread.pc].operation;
  }

  const Program& program_;
  const Agents& agents_;
  std::size_t most_;
  RunResult result_;
  std::set<std::tuple<int, OperationId, OperationId, MemoryId>> found_;
  bool is_stopped_ = false;
};

}  // namespace inkle::kernel
