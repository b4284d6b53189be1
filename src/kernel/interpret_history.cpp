#include "kernel/interpret_history.h"

#include <algorithm>

namespace inkle::kernel {

void Histories::remember(const Thread& thread, std::uint32_t clock, MemoryLocation location,
                         std::int64_t bytes, std::span<const std::byte> value) const {
  if (!is_kept_) return;
  const std::int64_t unit = location.byte / location.storage->unit();
  History& history = location.storage->histories()[unit];
  if (history.versions.empty()) {
    Version before;
    std::copy_n(location.storage->data() + location.byte, bytes, before.value.begin());
    history.versions.push_back(std::move(before));
  }
  Version version;
  version.channel = thread.channel;
  version.clock = clock;
  std::copy_n(value.begin(), bytes, version.value.begin());
  const auto published = location.storage->releases().find(unit);
  if (published != location.storage->releases().end()) version.releases = published->second;
  history.versions.push_back(std::move(version));
  if (history.versions.size() > History::kMost) {
    history.versions.erase(history.versions.begin());
    ++history.first;
  }
}

namespace {

void note_read(const Thread& thread, History& history, std::int64_t version) {
  for (History::Seen& seen : history.reads) {
    if (seen.channel != thread.channel) continue;
    seen = {thread.channel, thread.clock, std::max(seen.version, version)};
    return;
  }
  history.reads.push_back({thread.channel, thread.clock, version});
}

}  // namespace

const Version* Histories::out_of_date(const Thread& thread, MemoryLocation location) {
  auto& histories = location.storage->histories();
  const auto at = histories.find(location.byte / location.storage->unit());
  if (at == histories.end()) return nullptr;
  History& history = at->second;
  const auto sees = [&](Channel channel, std::uint32_t clock) {
    return channel == thread.channel || thread.seen.get(channel) >= clock;
  };
  // The oldest that it may see: what is ordered before the read, written or read, is not older.
  const std::int64_t last = history.first + static_cast<std::int64_t>(history.versions.size()) - 1;
  std::int64_t oldest = history.first;
  for (const History::Seen& read : history.reads) {
    if (sees(read.channel, read.clock)) oldest = std::max(oldest, read.version);
  }
  for (std::int64_t v = last; v > oldest; --v) {
    const Version& version = history.versions[static_cast<std::size_t>(v - history.first)];
    if (version.channel.page == kNone || sees(version.channel, version.clock)) oldest = v;
  }
  std::int64_t chosen = last;
  if (oldest < last && random_() % 3 == 0) {
    chosen =
        oldest + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(last - oldest));
  }
  note_read(thread, history, chosen);
  if (chosen == last) return nullptr;
  return &history.versions[static_cast<std::size_t>(chosen - history.first)];
}

}  // namespace inkle::kernel
