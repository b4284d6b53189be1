#include "kernel/interpret_order.h"

#include <algorithm>

namespace inkle::kernel {

Actor actor_of(const Thread& thread) {
  return {thread.channel, thread.clock, &thread.seen, &thread.fenced, true, false};
}

namespace {

bool sees(const Actor& actor, const Record& earlier) {
  if (actor.is_thread && earlier.channel == actor.channel) return true;
  return actor.seen->get(earlier.channel) >= earlier.clock;
}

// Whoever is ordered after `later` is ordered after `earlier`, and is checked against `later` at
// least as strictly.
bool covers(const Actor& actor, const Record& later, const Record& earlier) {
  if (!sees(actor, earlier)) return false;
  if (later.is_asynchronous != earlier.is_asynchronous) return false;
  return !later.is_strong || (earlier.is_strong && earlier.scope == later.scope);
}

}  // namespace

bool HappensBefore::check_order(const Thread& thread, MemoryId memory, MemoryLocation location,
                                const Record& earlier, bool earlier_writes, const Actor& actor,
                                const Record& record) {
  const std::int64_t begin = location.byte - location.offset;
  const std::int64_t end = begin + location.storage->unit();
  if (!sees(actor, earlier)) {
    const bool both_strong = earlier.is_strong && record.is_strong &&
                             agents_.reaches(earlier.scope, earlier.channel, record.channel) &&
                             agents_.reaches(record.scope, record.channel, earlier.channel);
    if (both_strong) return true;
    if (findings_.is_known(ReportKind::race, thread, earlier, memory)) return false;
    findings_.add(
        ReportKind::race, thread, memory, begin, end,
        fmt::format("nothing orders it after {} by {}", earlier_writes ? "a write" : "a read",
                    to_string(agents_.at(earlier.channel))),
        &earlier);
    return false;
  }
  // What threads have read need not be fenced: a read is over when its value is there.
  if (!record.is_asynchronous || earlier.is_asynchronous || !earlier_writes) return true;
  if (actor.fenced->get(earlier.channel) >= earlier.clock) return true;
  if (findings_.is_known(ReportKind::proxy, thread, earlier, memory)) return false;
  findings_.add(ReportKind::proxy, thread, memory, begin, end,
                fmt::format("no proxy fence stands between it and a write by {}",
                            to_string(agents_.at(earlier.channel))),
                &earlier);
  return false;
}

void HappensBefore::record_read(const Thread& thread, MemoryId memory, MemoryLocation location,
                                std::int64_t bytes, const Actor& actor, Record record,
                                bool is_constant) {
  Storage& storage = *location.storage;
  for (std::int64_t b = location.byte; b < location.byte + bytes; b += storage.unit()) {
    Storage::Cell& cell = storage.cell(b / storage.unit());
    const MemoryLocation here{&storage, b, location.offset};
    if (!cell.is_initialised) {
      findings_.add(ReportKind::uninitialised, thread, memory, b - location.offset,
                    b - location.offset + storage.unit(), "it is read before it is written");
      cell.is_initialised = true;  // once is enough
    }
    if (is_constant) {
      cell.is_read_as_constant = true;
      if (cell.writes > 0) {
        findings_.add(ReportKind::constant_written, thread, memory, b - location.offset,
                      b - location.offset + storage.unit(),
                      "the launch has written what it reads as constant", &cell.write);
      }
    }
    bool in_order =
        cell.write.is_none() || check_order(thread, memory, here, cell.write, true, actor, record);
    if (Storage::More* more = storage.more(cell)) {
      for (const Record& w : more->writes) {
        in_order &= check_order(thread, memory, here, w, true, actor, record);
      }
      std::erase_if(more->reads, [&](const Record& r) { return covers(actor, record, r); });
    }
    if (!in_order) storage.forget(cell);
    if (cell.read.is_none() || covers(actor, record, cell.read)) {
      cell.read = record;
    } else {
      storage.make_more(cell).reads.push_back(record);
    }
  }
}

void HappensBefore::record_write(const Thread& thread, MemoryId memory, MemoryLocation location,
                                 std::int64_t bytes, const Actor& actor, Record record) {
  Storage& storage = *location.storage;
  for (std::int64_t b = location.byte; b < location.byte + bytes; b += storage.unit()) {
    Storage::Cell& cell = storage.cell(b / storage.unit());
    const MemoryLocation here{&storage, b, location.offset};
    if (cell.is_read_as_constant) {
      findings_.add(ReportKind::constant_written, thread, memory, b - location.offset,
                    b - location.offset + storage.unit(),
                    "the launch writes what it has read as constant", &cell.read);
    }
    cell.is_initialised = true;
    cell.writes = static_cast<std::uint8_t>(std::min(cell.writes + 1, 2));
    bool in_order =
        cell.write.is_none() || check_order(thread, memory, here, cell.write, true, actor, record);
    if (!cell.read.is_none()) {
      in_order &= check_order(thread, memory, here, cell.read, false, actor, record);
    }
    if (Storage::More* more = storage.more(cell)) {
      for (const Record& w : more->writes) {
        in_order &= check_order(thread, memory, here, w, true, actor, record);
      }
      for (const Record& r : more->reads) {
        in_order &= check_order(thread, memory, here, r, false, actor, record);
      }
      std::erase_if(more->writes, [&](const Record& w) { return covers(actor, record, w); });
      std::erase_if(more->reads, [&](const Record& r) { return covers(actor, record, r); });
    }
    if (!in_order) storage.forget(cell);
    if (!cell.read.is_none() && covers(actor, record, cell.read)) cell.read = {};
    if (cell.write.is_none() || covers(actor, record, cell.write)) {
      cell.write = record;
    } else {
      storage.make_more(cell).writes.push_back(record);
    }
  }
}

// --- Acquire and release

Clock snapshot(const Thread& thread) {
  Clock clock = thread.seen;
  clock.raise(thread.channel, thread.clock);
  return clock;
}

namespace {

// Kept few: what the same block has published at the same scope is joined.
void add_release(std::vector<Release>& list, const Release& release) {
  for (Release& r : list) {
    if (r.channel.page != release.channel.page || r.scope != release.scope) continue;
    if (r.scope < Scope::block && r.channel != release.channel) continue;
    r.seen.join(release.seen);
    r.fenced.join(release.fenced);
    return;
  }
  list.push_back(release);
}

}  // namespace

void HappensBefore::acquire(Thread& thread, MemoryLocation location, Order order,
                            Scope scope) const {
  auto& releases = location.storage->releases();
  const auto at = releases.find(location.byte / location.storage->unit());
  if (at == releases.end()) return;
  const bool now = order == Order::acquire || order == Order::acquire_release;
  acquire_from(thread, at->second, now, scope);
}

void HappensBefore::acquire_from(Thread& thread, std::span<const Release> releases, bool now,
                                 Scope scope) const {
  for (const Release& release : releases) {
    if (!agents_.reaches(release.scope, release.channel, thread.channel)) continue;
    if (!agents_.reaches(scope, thread.channel, release.channel)) continue;
    if (now) {
      thread.seen.join(release.seen);
      thread.fenced.join(release.fenced);
    } else {
      add_release(thread.pending, release);
    }
  }
}

void HappensBefore::publish(Thread& thread, MemoryLocation location, Order order, Scope scope,
                            bool continues) {
  const std::int64_t unit = location.byte / location.storage->unit();
  std::vector<Release>& releases = location.storage->releases()[unit];
  if (!continues) releases.clear();
  if (order == Order::release || order == Order::acquire_release) {
    add_release(releases, {snapshot(thread), thread.fenced, thread.channel, scope});
    ++thread.clock;
  } else if (thread.fence_release) {
    Release release = *thread.fence_release;
    release.scope = std::min(release.scope, scope);
    add_release(releases, release);
  }
}

void HappensBefore::fence(Thread& thread, const Fence& info) const {
  if (info.proxy) {
    thread.fenced.join(snapshot(thread));
    ++thread.clock;
    return;
  }
  const bool acquires = info.order == Order::acquire || info.order == Order::acquire_release;
  const bool releases = info.order == Order::release || info.order == Order::acquire_release;
  if (acquires) {
    for (const Release& release : thread.pending) {
      if (!agents_.reaches(info.scope, thread.channel, release.channel)) continue;
      thread.seen.join(release.seen);
      thread.fenced.join(release.fenced);
    }
  }
  if (releases) {
    thread.fence_release = Release{snapshot(thread), thread.fenced, thread.channel, info.scope};
    ++thread.clock;
  }
}

}  // namespace inkle::kernel
