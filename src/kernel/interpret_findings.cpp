// Findings as data and as text.
#include <algorithm>
#include <array>

#include "kernel/interpret_machine.h"

namespace inkle::kernel {

namespace {

constexpr std::array<std::string_view, 21> kReportKinds = {"outside",
                                                           "misaligned",
                                                           "uninitialised",
                                                           "read_only",
                                                           "constant_written",
                                                           "not_written",
                                                           "written_again",
                                                           "workspace_left",
                                                           "race",
                                                           "proxy",
                                                           "divergence",
                                                           "hang",
                                                           "phase",
                                                           "arrivals",
                                                           "unfinished",
                                                           "early_use",
                                                           "mma_fence",
                                                           "before_dependency",
                                                           "promise",
                                                           "form",
                                                           "layout"};

}  // namespace

std::string_view name_of(ReportKind kind) {
  const auto at = static_cast<std::size_t>(kind);
  return at < kReportKinds.size() ? kReportKinds[at] : "differs";
}

std::string to_string(const Agent& agent) {
  const std::string where = agent.instance == 0
                                ? fmt::format("block {}", agent.block)
                                : fmt::format("instance {} block {}", agent.instance, agent.block);
  switch (agent.kind) {
    case AgentKind::thread:
      return fmt::format("{} thread {}", where, agent.thread);
    case AgentKind::copy_async:
      return fmt::format("a copy_async of {} thread {}", where, agent.thread);
    case AgentKind::bulk:
      return fmt::format("a tma_store of {} thread {}", where, agent.thread);
    case AgentKind::tma:
      return fmt::format("a tma_load that completes on mbarrier {} of {}", agent.thread, where);
    case AgentKind::mma:
      return fmt::format("a wgmma of {} thread {}", where, agent.thread);
  }
  return where;
}

std::string to_string(const Kernel& kernel, const Finding& finding) {
  std::string text(name_of(finding.kind));
  if (finding.operation != kNone) {
    text += fmt::format(" at {} (operation {})", name_of(kernel[finding.operation].op),
                        finding.operation);
  }
  if (finding.memory != kNone) {
    text += fmt::format(" of {}", kernel.memories[finding.memory].name);
    if (finding.begin < finding.end) text += fmt::format("[{}..{}]", finding.begin, finding.end);
  }
  for (std::size_t a = 0; a < finding.agents.size(); ++a) {
    text += fmt::format("{} {}", a == 0 ? " by" : " and", to_string(finding.agents[a]));
  }
  text += ": " + finding.message;
  if (finding.other != kNone) {
    text += fmt::format("; the other is {} (operation {})", name_of(kernel[finding.other].op),
                        finding.other);
  }
  return text;
}

Agent Machine::agent_of(Channel channel) const {
  const Page& page = pages_[channel.page];
  if (channel.position < threads_per_block_) {
    return {AgentKind::thread, page.instance, page.block, channel.position};
  }
  return page.others[channel.position - static_cast<std::uint32_t>(threads_per_block_)];
}

Agent Machine::agent_of(const Thread& thread) const { return agent_of(thread.channel); }

void Machine::add(ReportKind kind, const Thread& thread, MemoryId memory, std::int64_t begin,
                  std::int64_t end, std::string message, const Record* other) {
  Finding finding{kind, at(thread).operation, kNone, memory, begin, end, {}, std::move(message)};
  finding.agents.push_back(agent_of(thread));
  if (other != nullptr && !other->is_none()) {
    finding.other = other->operation;
    finding.agents.push_back(agent_of(other->channel));
  }
  add(std::move(finding));
}

bool Machine::is_known(ReportKind kind, const Thread& thread, const Record& other,
                       MemoryId memory) const {
  return found_.contains(
      std::tuple(static_cast<int>(kind), at(thread).operation, other.operation, memory));
}

// One for each kind, pair of operations and memory.
void Machine::add(Finding finding) {
  const auto key =
      std::tuple(static_cast<int>(finding.kind), finding.operation, finding.other, finding.memory);
  if (!found_.insert(key).second) return;
  result_.findings.push_back(std::move(finding));
  if (result_.findings.size() >= options_.max_findings) {
    is_stopped_ = true;
    result_.is_complete = false;
  }
}

}  // namespace inkle::kernel
