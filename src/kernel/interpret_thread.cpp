#include "kernel/interpret_thread.h"

namespace inkle::kernel {

void Watchers::begin(Thread& thread) { watchers_.push_back(&thread); }

void Watchers::end(Thread& thread) {
  std::erase(watchers_, &thread);
  thread.reads.clear();
}

void Watchers::touch(Thread& thread, const Storage& storage, std::int64_t byte) {
  ++thread.changes;
  const std::int64_t unit = byte / storage.unit();
  for (Thread* watcher : watchers_) {
    if (watcher == &thread) continue;
    for (ReadEntry& entry : watcher->reads) {
      if (entry.storage != &storage || entry.unit != unit) continue;
      entry.has_changed = true;
      if (watcher->status == Status::spinning) wakeups_.wake(*watcher);
    }
  }
}

}  // namespace inkle::kernel
