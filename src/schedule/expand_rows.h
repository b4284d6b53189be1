// The expansion of rows: a team of threads runs along the inner loops of one outer iteration.
//
//   team > 32    grid i0 in n, [cluster c in 4,] thread w in team/32, thread t in 32 { stages }
//   team <= 32   grid g in ceildiv(n, threads/team), thread r in threads/team, thread t in team
//                if less(index(g*(threads/team)+r), index(n)) { stages }
//
// A thread has whole accesses of `lanes` elements. What a body does at one of them is a vector
// region; what is reduced is put into registers there and taken up behind it, lane after lane.
//
// expand_rows.cpp has the launch and the stages, expand_row_places.cpp the loops along a row,
// expand_row_reduce.cpp the reductions. For these files only.
#pragma once

#include "schedule/expand_blocks.h"
#include "schedule/expand_states.h"
#include "schedule/keep.h"

namespace inkle::schedule::expansion {

// One access of a thread in a row.
struct RowPlace {
  Expr base;             // the inner variable at lane 0
  bool part = false;     // lanes may lie outside of the row: each is looked at
  bool chooses = false;  // of a part: an access at a time is made for all lanes if they are whole
  bool skewed = false;
  Expr number;  // of the access among those of the thread, where the row is kept
  Expr flight;  // of the access among those in flight
  Usage usage;
};

// A loop whose variable is a multiple of `divisor`.
[[nodiscard]] kernel::Loop multiples(sym::Context& context, Expr begin, Expr end, std::int64_t step,
                                     std::int64_t divisor);

class RowExpander {
 public:
  explicit RowExpander(BlockExpansion& x);
  void run();

 private:
  // What happens at one access, with the states before it and after it.
  using AtPlace = std::function<Values(const RowPlace& place, const Values& carried)>;
  // Inside of the vector region; `active`: of a part, whether the lane is in the row.
  using InLanes = std::function<Values(BodyExpander& body, Expr lane, ValueId active)>;
  struct Wanted {
    std::vector<std::uint32_t> yields;
    bool stores = false;
  };

  // --- expand_rows.cpp
  void launch(const std::function<void()>& stages);
  void declare_scratch();
  void plan_passes();
  [[nodiscard]] std::int64_t kept_registers() const;
  void declare_kept();
  void pass(std::size_t number);
  void once(const Stage& stage);
  void pointwise(const Stage& stage, std::size_t pass);
  void prefetch(const Stage& stage, std::size_t pass);
  ValueId is_first_thread();  // of the team
  [[nodiscard]] bool is_known(Expr symbol) const;
  [[nodiscard]] bool is_direct(const Stage& stage, const loop::Instruction& load) const;
  [[nodiscard]] bool is_packed(const Stage& stage, loop::Val load) const;
  // Lanes that one access of the machine loads; 0 where they are not neighbours.
  [[nodiscard]] std::int64_t packed_lanes(const Stage& stage, loop::Val load) const;
  [[nodiscard]] bool is_given(const Stage& stage, std::size_t pass, loop::Val v) const;
  [[nodiscard]] std::vector<bool> needed(const Stage& stage, std::size_t pass,
                                         const Wanted& wanted) const;
  // Memories with names that no other has.
  kernel::MemoryId shared(const char* prefix, DType dtype, std::int64_t elements);
  kernel::MemoryId registers(const char* prefix, DType dtype, std::vector<std::int64_t> shape);
  [[nodiscard]] Expr constant(std::int64_t value) const { return x_.context().constant(value); }
  [[nodiscard]] std::int64_t members() const {
    return std::int64_t{blocks_.team} * blocks_.cluster;
  }
  [[nodiscard]] std::int64_t step() const { return members() * blocks_.lanes; }

  // --- expand_row_places.cpp
  void find_skew();
  [[nodiscard]] bool is_skewed(const Stage& stage) const;
  [[nodiscard]] bool is_ragged(const Stage& stage) const;
  // Accesses of a thread in a kept row.
  [[nodiscard]] std::int64_t accesses_of(const Stage& stage) const;
  Values kept(const Stage& stage, const Usage& usage, const Values& carried, const AtPlace& f);
  Values looped(const Stage& stage, const Values& carried, const AtPlace& f);
  Values batched(const Stage& stage, const RowPlace& place, const Values& carried,
                 const AtPlace& f);
  Values ragged(const Stage& stage, const RowPlace& place, const Values& carried, const AtPlace& f);
  // What comes after the elements before a row's first whole access.
  struct Ragged {
    Expr head;   // so many elements
    Expr shift;  // of the inner variable against a multiple of the lanes
  };
  struct Ahead {  // a load ahead of its use
    loop::Val value;
    kernel::MemoryId registers;
  };
  Ragged after_skew();
  Values whole_accesses(const Stage& stage, const RowPlace& place, const Ragged& row,
                        std::vector<Ahead> loads, Values states, const AtPlace& f);
  Values ragged_end(const Stage& stage, const RowPlace& place, const Ragged& row,
                    const Values& states, const AtPlace& f);
  ValueId masked(ValueId value, std::int64_t mask);
  Values whole_or_part(const Stage& stage, const RowPlace& place, const Values& carried,
                       const AtPlace& f);
  Values in_flight(const Stage& stage, Expr first, Expr end, const RowPlace& place,
                   const Values& carried, const AtPlace& f);
  Values in_lanes(const Stage& stage, std::size_t pass, const RowPlace& place, const Wanted& wanted,
                  const InLanes& f);
  void provide(const Stage& stage, std::size_t pass, const RowPlace& place, Expr lane,
               BodyExpander& body);
  void in_vector(const std::function<void(Expr lane)>& f);
  void capture(std::size_t pass, const RowPlace& place, Expr lane, BodyExpander& body);
  void find_batch(const Stage& stage);
  [[nodiscard]] kernel::Access element_of(kernel::MemoryId memory, Expr number, Expr lane) const;
  [[nodiscard]] ValueId active(const Stage& stage, const RowPlace& place, Expr lane);
  [[nodiscard]] ValueId whole(const Stage& stage, const RowPlace& place);
  // Values where the condition holds, else those before.
  Values where(ValueId condition, const Values& carried, const std::function<Values()>& f);
  Values if_below(Expr a, Expr b, const Values& carried, const std::function<Values()>& f);
  // A symbol for the value, of this range and a multiple of `divisor`.
  Expr bound(ValueId value, sym::Range range, std::int64_t divisor);

  // --- expand_row_reduce.cpp
  Values along(const Stage& stage, std::size_t pass, const Values& carried, const AtPlace& f);
  // Elements of a thread in registers: of one access, or of all of a kept row.
  struct Elements {
    kernel::MemoryId memory;
    DType dtype;
    Expr number;  // of the access
  };
  Elements elements(DType dtype, std::int64_t accesses = 1);
  ValueId load(const Elements& elements, Expr lane);
  // The yield's values at an access.
  void put(const Stage& stage, std::size_t pass, const RowPlace& place, const Elements& to,
           ValueId otherwise = kernel::kNone);
  using OfLane = std::function<Values(Expr lane, const Values& carried)>;
  Values in_order(std::int64_t from, const Values& carried, const OfLane& f);
  Values in_row(const Stage& stage, const RowPlace& place, const Values& carried, const OfLane& f);
  ValueId first_of(const Elements& own, ValueId value, ValueId none,
                   const std::function<ValueId(Expr lane)>& position);
  using Merge = std::function<Values(const Values& a, const Values& b)>;
  Values join(const Values& states, const Merge& merge);
  Values join_cluster(const Values& states, const Merge& merge);
  Values join(GpuReducer& reducer, const Values& states);
  void define(std::uint32_t row, ValueId value);
  void reduction(const PreparedStage& prepared, std::size_t pass);
  void single(const PreparedStage& prepared);
  void simple(const PreparedStage& prepared, std::size_t pass);
  void best(const PreparedStage& prepared, std::size_t pass);
  void search(const PreparedStage& prepared, std::size_t pass);
  void moments(const PreparedStage& prepared, std::size_t pass);
  void moments_kept(const PreparedStage& prepared, std::size_t pass);
  void exponentials(const PreparedStage& prepared, std::size_t pass);
  ValueId op(loop::Opcode opcode, const Values& operands);
  ValueId logic(loop::Opcode opcode, const Values& operands);

  // --- expand_row_scan.cpp
  struct Scanned {
    ValueId before, carry;
  };
  ValueId shuffle(kernel::ShuffleKind kind, ValueId value, std::int32_t by);
  ValueId is_at_least(Expr e, std::int64_t bound);
  ValueId select(ValueId condition, ValueId a, ValueId b);
  ValueId scan_lanes(GpuReducer& reducer, ValueId x, Expr lane, std::int32_t count);
  Scanned scan_warp(GpuReducer& reducer, ValueId x, ValueId carry, Expr lane, std::int32_t width);
  Scanned scan_team(GpuReducer& reducer, ValueId x, ValueId carry, Expr side,
                    kernel::MemoryId slots);
  void put_or_none(const Stage& stage, std::size_t pass, const RowPlace& place, const Elements& to,
                   ValueId none);
  ValueId scan_elements(GpuReducer& reducer, const Elements& own);
  void store_running(const Stage& stage, std::size_t pass, const RowPlace& place,
                     const Elements& own, GpuReducer& reducer, ValueId before);
  void check_scan(std::size_t pass) const;
  void scan(const Stage& stage, std::size_t pass);

  // --- expand_row_chunks.cpp: rows that blocks share
  struct Chunks {
    Expr of_row;        // chunks
    Expr number, row;   // of the block's chunk
    Expr cells_of_row;  // places in the workspace for what chunks and groups of them make
    kernel::MemoryId tickets = kernel::kNone, flags = kernel::kNone, totals = kernel::kNone;
  };
  void launch_chunks(const std::function<void()>& stages);
  void scan_chunk(const Stage& stage, std::size_t pass);
  Scanned warps_before(GpuReducer& reducer, ValueId own, ValueId none);
  ValueId chunks_before(GpuReducer& reducer, ValueId total, ValueId none);
  void leave(Expr cell, ValueId value);
  ValueId wait_for(Expr cell);
  void clear_cells();
  // Adds one to a ticket; what it was.
  ValueId take_ticket(std::int64_t ticket, kernel::Order order);
  [[nodiscard]] RowPlace chunk_place(const Stage& stage, Expr number) const;

  // --- expand_row_sequential.cpp
  // A load of a sequential row that is under way to shared memory while the row before is worked
  // on. Each thread copies what it reads itself.
  struct Staged {
    std::size_t pass;
    loop::Val value;
    std::int64_t count;   // accesses of each thread
    std::int64_t offset;  // bytes
    kernel::MemoryId memory, registers;
  };
  // A number of each sequential row, loaded while the row before is worked on.
  struct Number {
    std::uint32_t buffer;
    Expr offset;
  };
  [[nodiscard]] bool walks() const { return x_.loops().walked != 0; }
  void launch_walk(const std::function<void()>& stages);
  [[nodiscard]] std::int32_t blocks_at_once() const;
  [[nodiscard]] std::int64_t sums_of(const Scratch& scratch) const;
  void walk();
  Values each_walked(const Values& carried,
                     const std::function<Values(Expr row, const Values& carried)>& body);
  void phase(Phase phase);
  [[nodiscard]] bool is_of_row(const loop::Instruction& load) const;
  void plan_numbers();
  void plan_staged();
  void declare_walk_memory();
  [[nodiscard]] std::int64_t joined_bytes(const Scratch& scratch) const;
  Values zeros();
  Replacements at_row(Expr row);
  Values stage_row(std::size_t pass, Expr row, const Values& numbers);
  void copy(const Stage& stage, const Staged& load, const RowPlace& place, const Replacements& row);
  [[nodiscard]] Expr thread_of_block() const;
  void unstage(const Stage& stage, std::size_t pass);
  void provide_row(const Stage& stage, std::size_t pass, const RowPlace& place, Expr lane,
                   BodyExpander& body);
  using EachSum = std::function<void(std::size_t scratch, Expr number, Expr lane)>;
  void each_sum(const EachSum& f);
  void begin_sums();
  void join_teams();
  void sums_of_row(const PreparedStage& prepared, std::size_t pass);
  [[nodiscard]] std::size_t first_scratch() const { return x_.e.scheduled.params.size(); }

  BlockExpansion& x_;
  kernel::Builder& b_;
  const BlockSchedule& blocks_;
  Expr warp_, lane_;  // of a team of several warps
  Expr thread_;       // the thread's position in the row's team
  Expr position_;     // that in one symbol, of which less is computed
  Expr team_number_;  // of a block's teams; null: there is one
  std::vector<kernel::AxisId> team_;
  std::vector<RowPass> passes_;
  KeepPlan keep_;
  std::vector<kernel::MemoryId> kept_;  // of each kept value
  std::vector<bool> fetched_;           // kept values that are loaded ahead of their pass
  bool reads_twice_ = false;            // what rows hold has been read, and is read again

  Chunks chunks_;

  // Sequential rows.
  std::int64_t teams_ = 1;  // of a block
  std::int64_t walked_rows_ = 0;
  std::vector<Staged> staged_;
  std::size_t staged_passes_ = 0;
  std::int64_t walk_bytes_ = 0;
  std::vector<Number> numbers_;
  Values own_;                            // the numbers of the row
  std::vector<kernel::MemoryId> joined_;  // of each scratch

  std::vector<Ahead> batch_;
  // Rows that are no whole number of accesses start anywhere in memory: at this offset. Accesses
  // start up to lanes - 1 elements before it, where they are aligned.
  Expr start_;
  Expr start_extent_;  // of the loops that it is for
  Expr skew_;          // start - aligned
  Expr aligned_;
};

}  // namespace inkle::schedule::expansion
