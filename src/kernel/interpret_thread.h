// Threads, blocks and clusters of a launch in progress, and what their threads wait for. For
// interpret_*.cpp only.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernel/interpret_memory.h"

namespace inkle::kernel {

enum class Status : std::uint8_t {
  ready,
  blocked,   // until another agent lets it go on
  spinning,  // an iteration of a repeat changed nothing: until something that it read changes
  visible,   // before an access by which threads synchronise: until it is granted
  finished,
};

struct Block;
struct Thread;

// mbarrier: the phase numbered `phase` is under way.
struct PhaseBarrier {
  bool is_initialised = false;
  Channel initialiser;
  std::uint32_t initialised_at = 0;
  std::int64_t count = 0, missing = 0, bytes = 0, phase = 0;
  Clock arrived, arrived_fenced;      // of this phase
  Clock completed, completed_fenced;  // of the last
  Channel channel;                    // of the copies that complete on it
  std::vector<Thread*> waiting;
  std::uint32_t last_copy = 0;  // clock of the last that was issued
  OperationId copied_by = kNone;
};

// A barrier of a warp, a block, a cluster.
struct ThreadBarrier {
  std::int64_t arrived = 0, expected = 0;
  std::uint64_t phase = 0;
  OperationId operation = kNone;
  Clock joined, joined_fenced;      // of this phase
  Clock last;                       // joined already
  Clock released, released_fenced;  // of the last
  std::vector<Thread*> together;    // they go on when it is complete
  std::vector<Thread*> waiting;     // they look again
};

// Asynchronous work of a thread in groups: so many are committed and waited for.
struct Groups {
  Channel channel;
  std::uint32_t committed = 0;
  bool is_open = false;      // something was issued since
  OperationId last = kNone;  // by this operation
};

struct ReadEntry {
  Storage* storage = nullptr;
  std::int64_t unit = 0;
  bool has_changed = false;
};

// A repeat under way: what its iteration has read starts at `first_read`.
struct Frame {
  std::size_t first_read = 0;
  std::uint64_t changes = 0;
  bool has_moved = false;
};

struct Thread {
  Block* block = nullptr;
  std::uint32_t number = 0;  // in its block
  std::size_t order = 0;     // in the machine's list
  std::uint32_t pc = 0;
  std::uint32_t lane = 0;  // of the merge under way
  Status status = Status::ready;
  bool is_granted = false;
  bool is_listed = false;   // among those that have become ready
  bool is_waiting = false;  // for a split barrier, an mbarrier: only for messages
  bool has_waited_for_dependency = false;
  std::vector<std::int64_t> slots, privates;
  std::vector<std::uint8_t> private_state;  // 1: initialised
  Clock seen, fenced;
  std::uint32_t clock = 1;
  Channel channel;
  std::optional<Release> fence_release;
  std::vector<Release> pending;  // of relaxed reads, for a fence to acquire
  Groups copies, bulks, multiplies;
  Channel bulk_writes;
  std::uint32_t stamp = 1, fenced_stamp = 0;  // of fragments written; those before mma_fence
  std::vector<Frame> frames;
  std::vector<ReadEntry> reads;
  std::uint64_t changes = 0;
  std::vector<std::pair<PhaseBarrier*, std::int64_t>> phases;  // last waited for
  std::array<std::uint64_t, 18>
      arrivals{};  // phase of its arrival, plus 1; by number, warp, cluster
};

struct Cluster;

struct Block {
  Cluster* cluster = nullptr;
  std::int32_t instance = 0;
  std::int64_t number = 0;
  std::int64_t rank = 0;
  std::uint32_t page = 0;
  std::int64_t alive = 0;
  std::vector<Thread> threads;
  std::vector<std::shared_ptr<Storage>> shared;           // by memory; of one and parts of it, one
  std::vector<std::vector<PhaseBarrier>> phase_barriers;  // by memory
  std::array<ThreadBarrier, 16> barriers;
  std::vector<ThreadBarrier> warps;
  std::map<std::pair<std::int64_t, std::int64_t>, ThreadBarrier> warp_parts;  // by lanes and number
};

struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;
  ThreadBarrier barrier;
  std::int64_t alive = 0;
};

// Makes threads ready, and lists those that have become so since the list was last emptied, each
// once.
class Wakeups {
 public:
  void wake(Thread& thread) {
    thread.status = Status::ready;
    if (!thread.is_listed) woken_.push_back(&thread);
    thread.is_listed = true;
  }
  [[nodiscard]] std::vector<Thread*>& woken() { return woken_; }

 private:
  std::vector<Thread*> woken_;
};

// Threads inside of a repeat, with what its iteration has read: one that spins goes on when that
// changes.
class Watchers {
 public:
  explicit Watchers(Wakeups& wakeups) : wakeups_(wakeups) {}
  void begin(Thread& thread);
  void end(Thread& thread);
  static void watch(Thread& thread, Storage& storage, std::int64_t byte) {
    if (!thread.frames.empty()) thread.reads.push_back({&storage, byte / storage.unit(), false});
  }
  // The thread has changed this byte's unit.
  void touch(Thread& thread, const Storage& storage, std::int64_t byte);

 private:
  Wakeups& wakeups_;
  std::vector<Thread*> watchers_;
};

}  // namespace inkle::kernel
