// A launch in progress: blocks, threads, memory and what orders them. For interpret_*.cpp only.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernel/interpret.h"
#include "kernel/interpret_code.h"
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

// Participants of a collective, a shuffle or a matrix operation that have come.
struct Rendezvous {
  std::vector<Thread*> participants;
  std::int64_t arrived = 0;
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
  std::uint32_t channels = 0;
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

// Of an instance: its memory and sizes.
struct Table {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> extents;   // of the axes
  std::vector<Layout> layouts;         // by memory
  std::vector<Storage*> storages;      // by memory, global and workspace
  std::vector<std::int64_t> offsets;   // bytes of the memory's first element there
  std::vector<std::int64_t> privates;  // slots of a thread's own memory
  std::int64_t private_slots = 0;
  std::int64_t clusters = 0;  // blocks / blocks of a cluster
};

// A bulk copy to shared memory that is under way.
struct BulkCopy {
  Thread* thread = nullptr;
  std::uint32_t instruction = 0;
  std::vector<std::int64_t> box;
  std::int64_t target = 0;  // byte of the shared memory before swizzling
  Block* block = nullptr;   // whose shared memory and barrier
  PhaseBarrier* barrier = nullptr;
  Clock seen, fenced;
};

struct Place {
  Storage* storage = nullptr;
  std::int64_t byte = 0;
  std::int64_t offset = 0;  // of the memory's first element in the storage
};

// What the next operation of a thread does to others: for exploration.
struct Visible {
  std::size_t thread = 0;
  std::uint64_t location = 0;  // 0: several
  bool writes = false;
};

class Machine {
 public:
  Machine(const Kernel& kernel, const Program& program, std::span<const Instance> instances,
          const InterpretOptions& options);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // --- Scheduling, by interpret_schedule.cpp and interpret_explore.cpp
  bool start_blocks();  // as many as may be resident; whether any was started
  // Until the thread stops, at most so many steps.
  void run(Thread& thread, std::int64_t steps);
  [[nodiscard]] std::vector<Thread*>& threads() { return live_; }
  [[nodiscard]] std::vector<BulkCopy>& bulk_copies() { return bulk_copies_; }
  void perform(BulkCopy copy);
  // Makes a thread ready. Those that have become so since the list was last emptied, each once.
  void wake(Thread& thread) {
    thread.status = Status::ready;
    if (!thread.is_listed) woken_.push_back(&thread);
    thread.is_listed = true;
  }
  [[nodiscard]] std::vector<Thread*>& woken() { return woken_; }
  void report_stuck();
  void finish();  // checks of memory when all is done
  [[nodiscard]] bool is_done() const { return unfinished_ == 0 && next_unit_ == units_.size(); }
  [[nodiscard]] bool is_stopped() const { return is_stopped_; }
  void set_units_order(Interleaving order, std::uint64_t seed);
  void stop_at_visible() { stops_at_visible_ = true; }
  [[nodiscard]] Visible visible_of(Thread& thread);
  RunResult take_result();
  [[nodiscard]] const RunResult& result() const { return result_; }

 private:
  // --- Set-up: interpret_machine.cpp
  void bind_instance(const Instance& instance, std::int32_t number);
  void bind_layouts(Table& table, const Instance& instance);
  void bind_storages(Table& table, const Instance& instance);
  void start_cluster(std::int32_t instance, std::int64_t number);
  void start_thread(Block& block, std::uint32_t number);
  void retire(Thread& thread);
  void stop(const std::string& why);

  // --- Findings: interpret_findings.cpp
  void add(ReportKind kind, const Thread& thread, MemoryId memory, std::int64_t begin,
           std::int64_t end, std::string message, const Record* other = nullptr);
  void add(Finding finding);
  [[nodiscard]] bool is_known(ReportKind kind, const Thread& thread, const Record& other,
                              MemoryId memory) const;
  [[nodiscard]] Agent agent_of(Channel channel) const;
  [[nodiscard]] Agent agent_of(const Thread& thread) const;

  // --- Execution: interpret_execute.cpp
  bool step(Thread& thread);  // whether the thread can go on
  bool compute_lanes(Thread& thread, const Instruction& i);
  bool control(Thread& thread, const Instruction& i);
  bool machine_operation(Thread& thread, const Instruction& i);
  [[nodiscard]] std::int64_t compute(Thread& thread, const Instruction& i, std::uint32_t lane);
  void move(Thread& thread, const Instruction& i);
  void indirect(Thread& thread, const Instruction& i);
  void mask(Thread& thread, const Instruction& i);
  void repeat_compare(Thread& thread, const Instruction& i);
  bool repeat_again(Thread& thread, const Instruction& i);
  void fail(std::int32_t status);
  [[nodiscard]] Ref operand(const Instruction& i, std::uint32_t number) const {
    return program_.refs[i.operands + number];
  }
  [[nodiscard]] std::int64_t get(const Thread& thread, Ref ref, std::uint32_t lane) const {
    const std::uint32_t at = ref.offset() + (ref.varies() ? lane : 0);
    return ref.is_pool() ? program_.pool[at] : thread.slots[at];
  }
  static void set(Thread& thread, Ref ref, std::uint32_t lane, std::int64_t value) {
    thread.slots[ref.offset() + (ref.varies() ? lane : 0)] = value;
  }
  [[nodiscard]] bool is_active(const Thread& thread, const Instruction& i,
                               std::uint32_t lane) const {
    return i.mask.is_none() || get(thread, i.mask, lane) != 0;
  }
  [[nodiscard]] std::int64_t index(const Thread& thread, std::uint32_t number,
                                   std::uint32_t lane) const;
  [[nodiscard]] std::int64_t index_steps(const Thread& thread, const IndexProgram& program,
                                         std::uint32_t lane) const;
  [[nodiscard]] const Instruction& at(const Thread& thread) const {
    return program_.code[thread.pc];
  }

  // --- Memory: interpret_access.cpp, interpret_race.cpp
  // The element's position in its memory, -1 with a finding where it is outside.
  std::int64_t element(Thread& thread, const AccessCode& access, std::uint32_t lane,
                       bool reports = true);
  Block* block_of(Thread& thread, const AccessCode& access, std::uint32_t lane, bool reports);
  Place locate(Thread& thread, const AccessCode& access, std::uint32_t lane, bool reports = true);
  [[nodiscard]] Place place(Block& block, MemoryId memory, std::int64_t element);
  bool is_private(MemoryId memory) const;
  void check_form(Thread& thread, const Instruction& i, const AccessCode& access);
  void check_alignment(Thread& thread, const AccessCode& access, std::int64_t element);
  void load(Thread& thread, const Instruction& i);
  void store(Thread& thread, const Instruction& i);
  void atomic(Thread& thread, const Instruction& i);
  void update(Thread& thread, const Instruction& i, const AccessCode& access, std::uint32_t lane);
  [[nodiscard]] Scalar private_read(Thread& thread, MemoryId memory, std::int64_t element);
  void private_write(Thread& thread, MemoryId memory, std::int64_t element, Scalar value);
  [[nodiscard]] Scalar read(Thread& thread, const AccessCode& access, Place place);
  void write(Thread& thread, const AccessCode& access, Place place, Scalar value);
  void record_read(const Thread& thread, MemoryId memory, Place place, std::int64_t bytes,
                   const Actor& actor, Record record, bool is_constant);
  void record_write(const Thread& thread, MemoryId memory, Place place, std::int64_t bytes,
                    const Actor& actor, Record record);
  // Whether the two are in order.
  bool check_order(const Thread& thread, MemoryId memory, Place place, const Record& earlier,
                   bool earlier_writes, const Actor& actor, const Record& record);
  void touch(Thread& thread, Storage& storage, std::int64_t unit);
  void watch(Thread& thread, Place place);
  void acquire_from(Thread& thread, std::span<const Release> releases, bool now, Scope scope);
  // --- interpret_history.cpp
  void remember(const Thread& thread, std::uint32_t clock, Place place, std::int64_t bytes,
                std::span<const std::byte> value);
  void note_read(const Thread& thread, History& history, std::int64_t version);
  const Version* out_of_date(Thread& thread, Place place);
  void check_dependency(const Thread& thread, MemoryId memory);
  [[nodiscard]] Actor actor_of(const Thread& thread) const;
  [[nodiscard]] bool reaches(Scope scope, Channel from, Channel to) const;
  [[nodiscard]] Clock snapshot(const Thread& thread) const;
  void acquire(Thread& thread, Place place, Order order, Scope scope);
  void publish(Thread& thread, Place place, Order order, Scope scope, bool continues);
  void fence(Thread& thread, const Instruction& i);

  // --- Threads together: interpret_barrier.cpp, interpret_collective.cpp
  bool barrier(Thread& thread, const Instruction& i);
  void arrive(Thread& thread, ThreadBarrier& barrier);
  void complete(ThreadBarrier& barrier);
  // All participants, in order, once the last has come; empty before.
  Rendezvous* meet(Thread& thread, std::uint64_t group, std::int64_t position,
                   std::int64_t participants);
  void release(Rendezvous& rendezvous);
  bool collective(Thread& thread, const Instruction& i);
  void collective_lanes(Thread& thread, const Instruction& i);
  void transpose(Thread& thread, const Instruction& i);
  void all_lanes(const Thread& thread, const Instruction& i);
  void collective_axes(std::span<Thread* const> participants, const Instruction& i);
  using States = std::vector<std::vector<std::int64_t>>;  // by participant
  void merge(Thread& thread, const MergeCode& code, std::vector<std::int64_t>& first,
             const std::vector<std::int64_t>& second);
  void run_merge(Thread& thread, const MergeCode& code);
  bool shuffle(Thread& thread, const Instruction& i);
  void exchange(std::span<Thread* const> lanes, const Instruction& i);

  // --- Asynchronous work: interpret_asynchronous.cpp
  Channel new_channel(Block& block, AgentKind kind, std::int64_t thread);
  void copy_async(Thread& thread, const Instruction& i);
  void commit(Groups& groups);
  void wait(Thread& thread, Groups& groups, std::int64_t count);
  PhaseBarrier* phase_barrier(Thread& thread, std::uint32_t access, Block** block = nullptr);
  void check_finished(Thread& last);  // of its block: bulk copies that nobody has waited for
  void check_initialised(Thread& thread, const PhaseBarrier& barrier, const AccessCode& access,
                         bool is_asynchronous);
  void barrier_init(Thread& thread, const Instruction& i);
  void barrier_arrive(Thread& thread, const Instruction& i);
  bool barrier_wait(Thread& thread, const Instruction& i);
  void complete_if_due(PhaseBarrier& barrier);
  void tma_load(Thread& thread, const Instruction& i);
  void tma_store(Thread& thread, const Instruction& i);
  template <class F>
  void for_each_in_box(const Thread& thread, MemoryId map, std::span<const std::int64_t> box,
                       const F& f);

  // --- Fragments: interpret_fragment.cpp
  bool fragment(Thread& thread, const Instruction& i);
  void check_ready(Thread& thread, Ref fragment);
  void fill(Thread& thread, const Instruction& i);
  void load_or_store_fragment(Thread& thread, const Instruction& i);
  bool map_head(Thread& thread, const Instruction& i);
  void map_next(Thread& thread, const Instruction& i);
  bool fragment_meeting(Thread& thread, const Instruction& i);
  void convert_layout(std::span<Thread* const> threads, const Instruction& i);
  void multiply(std::span<Thread* const> threads, const Instruction& i);
  struct Matrix;
  [[nodiscard]] Matrix gather(std::span<Thread* const> threads, Ref ref, const FragmentType& type);
  void scatter(std::span<Thread* const> threads, Ref ref, const FragmentType& type,
               const Matrix& matrix);
  [[nodiscard]] Matrix read_tile(Thread& thread, std::uint32_t number, const Actor& actor);
  [[nodiscard]] const FragmentType& fragment_of(ValueId value) const;
  [[nodiscard]] std::int64_t fragment_element_place(Thread& thread,
                                                    const FragmentAccessCode& access,
                                                    std::int64_t row, std::int64_t column);

  const Kernel& kernel_;
  const Program& program_;
  InterpretOptions options_;
  RunResult result_;
  std::set<std::tuple<int, OperationId, OperationId, MemoryId>> found_;
  std::vector<Table> tables_;
  std::vector<Argument> arguments_;  // of all instances
  std::vector<std::unique_ptr<Storage>> storages_;
  std::vector<std::vector<std::byte>> workspaces_;
  std::int64_t threads_per_block_ = 1, cluster_size_ = 1;
  bool is_gpu_ = false;
  std::vector<std::pair<std::int32_t, std::int64_t>> units_;  // instance, cluster
  std::size_t next_unit_ = 0;
  std::int64_t resident_ = 0;  // blocks
  std::vector<std::unique_ptr<Cluster>> clusters_;
  std::vector<Thread*> live_;
  std::vector<Thread*> woken_;
  std::int64_t unfinished_ = 0;
  struct Page {
    std::int32_t instance = 0;
    std::int64_t block = 0;
    std::int64_t cluster = 0;
    std::vector<Agent> others;  // channels beyond the threads
  };
  std::vector<Page> pages_;
  std::unordered_map<std::uint64_t, Rendezvous> rendezvous_;
  std::vector<BulkCopy> bulk_copies_;
  std::vector<Thread*> watchers_;
  bool stops_at_visible_ = false;
  std::mt19937_64 random_;  // which value a relaxed read sees
  bool is_stopped_ = false;
};

// A whole run, by the options' interleaving.
void run_schedule(Machine& machine, const InterpretOptions& options);

}  // namespace inkle::kernel
