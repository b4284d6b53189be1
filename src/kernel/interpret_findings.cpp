#include "kernel/interpret_findings.h"

#include <algorithm>
#include <array>

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

// --- Agents --------------------------------------------------------------------------------------

std::uint32_t Agents::add_block(std::int32_t instance, std::int64_t block, std::int64_t cluster) {
  pages_.push_back({instance, block, cluster, {}});
  return static_cast<std::uint32_t>(pages_.size() - 1);
}

Channel Agents::add(const Block& block, AgentKind kind, std::int64_t thread) {
  std::vector<Agent>& others = pages_[block.page].others;
  others.push_back({kind, block.instance, block.number, thread});
  return {block.page, threads_per_block_ + static_cast<std::uint32_t>(others.size() - 1)};
}

Agent Agents::at(Channel channel) const {
  const Page& page = pages_[channel.page];
  if (channel.position < threads_per_block_) {
    return {AgentKind::thread, page.instance, page.block, channel.position};
  }
  return page.others[channel.position - threads_per_block_];
}

bool Agents::reaches(Scope scope, Channel from, Channel to) const {
  const Page& a = pages_[from.page];
  const Page& b = pages_[to.page];
  switch (scope) {
    case Scope::thread:
      return from == to;
    case Scope::warp:
      return from.page == to.page && from.position / 32 == to.position / 32;
    case Scope::block:
      return from.page == to.page;
    case Scope::cluster:
      return a.instance == b.instance && a.cluster == b.cluster;
    case Scope::gpu:
    case Scope::system:
      return true;
  }
  return false;
}

// --- Findings ------------------------------------------------------------------------------------

void Findings::add(ReportKind kind, const Thread& thread, MemoryId memory, std::int64_t begin,
                   std::int64_t end, std::string message, const Record* other) {
  Finding finding{kind, operation_of(thread), kNone, memory, begin, end, {}, std::move(message)};
  finding.agents.push_back(agents_.at(thread.channel));
  if (other != nullptr && !other->is_none()) {
    finding.other = other->operation;
    finding.agents.push_back(agents_.at(other->channel));
  }
  add(std::move(finding));
}

bool Findings::is_known(ReportKind kind, const Thread& thread, const Record& other,
                        MemoryId memory) const {
  return found_.contains(
      std::tuple(static_cast<int>(kind), operation_of(thread), other.operation, memory));
}

void Findings::add(Finding finding) {
  const auto key =
      std::tuple(static_cast<int>(finding.kind), finding.operation, finding.other, finding.memory);
  if (!found_.insert(key).second) return;
  result_.findings.push_back(std::move(finding));
  if (result_.findings.size() >= most_) stop();
}

void Findings::fail(std::int32_t status) {
  if (result_.status == 0) result_.status = status;
}

void Findings::stop() {
  is_stopped_ = true;
  result_.is_complete = false;
}

void Findings::stop(std::string why) {
  stop();
  Finding finding;
  finding.kind = ReportKind::hang;
  finding.message = std::move(why);
  add(std::move(finding));
}

}  // namespace inkle::kernel
