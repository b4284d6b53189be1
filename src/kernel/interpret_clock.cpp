#include "kernel/interpret_clock.h"

#include <algorithm>

namespace inkle::kernel {

std::uint32_t Clock::get(Channel channel) const {
  const auto at = std::lower_bound(pages_.begin(), pages_.end(), channel.page,
                                   [](const Page& p, std::uint32_t n) { return p.number < n; });
  if (at == pages_.end() || at->number != channel.page) return 0;
  return channel.position < at->clocks->size() ? (*at->clocks)[channel.position] : 0;
}

std::vector<std::uint32_t>& Clock::own(Page& page) {
  if (page.clocks.use_count() > 1) {
    page.clocks = std::make_shared<std::vector<std::uint32_t>>(*page.clocks);
  }
  return *page.clocks;
}

void Clock::raise(Channel channel, std::uint32_t clock) {
  const auto at = std::lower_bound(pages_.begin(), pages_.end(), channel.page,
                                   [](const Page& p, std::uint32_t n) { return p.number < n; });
  if (at == pages_.end() || at->number != channel.page) {
    auto clocks = std::make_shared<std::vector<std::uint32_t>>(channel.position + 1);
    clocks->back() = clock;
    pages_.insert(at, {channel.page, std::move(clocks)});
    return;
  }
  if (channel.position < at->clocks->size() && (*at->clocks)[channel.position] >= clock) return;
  std::vector<std::uint32_t>& clocks = own(*at);
  if (clocks.size() <= channel.position) clocks.resize(channel.position + 1);
  clocks[channel.position] = clock;
}

void Clock::join(const Clock& other) {
  auto at = pages_.begin();
  for (const Page& theirs : other.pages_) {
    while (at != pages_.end() && at->number < theirs.number) ++at;
    if (at == pages_.end() || at->number != theirs.number) {
      at = pages_.insert(at, theirs);
      continue;
    }
    if (at->clocks == theirs.clocks) continue;
    std::vector<std::uint32_t>& mine = own(*at);
    const std::vector<std::uint32_t>& more = *theirs.clocks;
    if (mine.size() < more.size()) mine.resize(more.size());
    for (std::size_t i = 0; i < more.size(); ++i) mine[i] = std::max(mine[i], more[i]);
  }
}

bool Clock::shares_all(const Clock& other) const {
  return pages_.size() == other.pages_.size() &&
         std::equal(pages_.begin(), pages_.end(), other.pages_.begin(),
                    [](const Page& a, const Page& b) { return a.clocks == b.clocks; });
}

bool Clock::is_same(const Clock& other) const {
  return pages_.size() == other.pages_.size() &&
         std::equal(
             pages_.begin(), pages_.end(), other.pages_.begin(), [](const Page& a, const Page& b) {
               return a.number == b.number && (a.clocks == b.clocks || *a.clocks == *b.clocks);
             });
}

}  // namespace inkle::kernel
