// Declarations shared by the files of the expansion.
#pragma once

#include <functional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "schedule/expand.h"
#include "schedule/expand_values.h"
#include "schedule/kernel.h"

namespace inkle::schedule::expansion {

using Replacements = std::vector<std::pair<Expr, Expr>>;

// What the lanes of a vector region run along: in copy u, `variable` is base + u * lanes +
// lane. Without a variable there is one lane and one copy.
struct Lanes {
  Expr variable;
  Expr lane;  // of the vector region around; null: one lane
  Expr base;
  int lanes = 1;
  int copies = 1;
  // Of a GPU, where bounds of `base` do not show: `base` in a symbol of known range, for divisions.
  Expr bounded = {};
  Expr number = {};  // index of the access in its thread: where its column sums are in scratch
};

// A result of a reduction: of each copy, or one value for all lanes.
struct Row {
  Values copies;
  bool varies = false;
};

// Cache hints and ordering of the accesses of a body on a GPU.
struct Usage {
  bool streams = false;  // loads of data that is read once bypass L1
  bool lasts = false;    // loads of data that is read once are evicted from L2 last
  bool leaves = false;   // stores are evicted from L2 first
  bool ahead = false;    // loads are issued in program order, not sunk to their use
  Expr around;           // the loop along a column that the body is in; null elsewhere
};

// The mask of lanes beyond the end of their loop: `whole` holds if no lane is beyond (uniform),
// `active` if this lane is not. kNone, kNone: no lane ever is.
struct LaneMask {
  ValueId whole = kernel::kNone;
  ValueId active = kernel::kNone;
};

struct Expansion {
  kernel::Builder& b;
  const Kernel& scheduled;
  const LoopKernel& loops;
  const Schedule& schedule;
  const abi::Target& target;
  std::vector<kernel::MemoryId> memories;  // parameters, then scratch
  bool columns = false;                    // lanes run along the last outer loop
  std::vector<Row> rows;
  Replacements replaced;                  // variables of loops that run once
  const BlockSchedule* blocks = nullptr;  // of a GPU
  bool aliasing = false;  // of a GPU: loads may read memory that the kernel also writes
  Expr team;              // of a GPU: the index of the row in its block; null: one row a block
  // Of a GPU, kernels with a last-block reduction. The thread index of every part is computed from
  // common thread axes, declared after the grid axes; the parts share the per-thread slots for
  // reductions; stores to some parameters are redirected (`publish`).
  std::function<void()> declare_threads = {};
  bool has_threads = false;
  std::vector<kernel::MemoryId> slots = {};
  std::function<bool(const StageStore& store, ValueId value)> publish = {};
};

// Emits the operations of a body at one place. Values that are uniform across lanes are emitted
// once, the others once for each copy.
class BodyExpander {
 public:
  BodyExpander(Expansion& expansion, const loop::Body& body, Lanes lanes);

  // Of a GPU, before the first value.
  void use(Usage usage) { usage_ = std::move(usage); }
  // Accesses, divisions and checks run for active lanes only; values of other lanes are undefined.
  void mask(LaneMask mask) { mask_ = mask; }
  // Defines v as `value`, in place of its instruction.
  void know(loop::Val v, ValueId value);

  // Emits all that the yields of these indices and the stores' offsets need, in the body's order.
  void evaluate(const std::vector<std::uint32_t>& yields, const std::vector<StageStore>& stores);
  ValueId value(loop::Val v, int copy);
  [[nodiscard]] bool varies(loop::Val v) const { return varying_[v]; }
  // A position as i64 or i32.
  ValueId index(Expr e, int copy, DType dtype);
  void store(const StageStore& store, int copy);
  // All of them, their values first.
  void store(const std::vector<StageStore>& stores);
  // Stores another value in place of the yield; `varies`: it differs between lanes.
  void store(const StageStore& store, ValueId value, bool varies, int copy);

 private:
  [[nodiscard]] bool varies(Expr e) const;
  void analyse(loop::Val v);
  ValueId emit(loop::Val v, int copy);
  void need(loop::Val v, std::vector<bool>& needed) const;
  void need_symbols(Expr e, std::vector<bool>& needed) const;
  ValueId load(const loop::Instruction& instruction, int copy);
  // Loads and stores of active lanes only.
  ValueId read(const kernel::Access& access);
  void write(const kernel::Access& access, const std::function<void(const kernel::Access&)>& one);
  [[nodiscard]] bool is_whole(const kernel::Access& access) const;
  // Sets the cache hints of an access on a GPU.
  void annotate(kernel::Access& access, Expr offset, bool is_store) const;
  [[nodiscard]] bool is_read_once(Expr offset) const;
  ValueId random(const loop::Instruction& instruction, loop::Val v, int copy);
  ValueId indirect(const loop::Instruction& instruction, loop::Val v, int copy);
  // The expression at this copy: base and lane for the lane variable, values for indirect symbols.
  Expr at(Expr e, int copy);
  kernel::Access access(std::uint32_t buffer, Expr offset, int copy);
  // Where an indirect index may be into an empty dimension: whether it is in range. Else kNone.
  ValueId valid(Expr offset, int copy);
  [[nodiscard]] bool is_scratch(std::uint32_t buffer) const;

  Expansion& expansion_;
  kernel::Builder& b_;
  const loop::Body& body_;
  Lanes lanes_;
  Usage usage_;
  LaneMask mask_;
  std::vector<bool> varying_;
  std::vector<Values> values_;                                // [copy or 0][val]
  std::unordered_map<const sym::Node*, loop::Val> indirect_;  // symbol -> its instruction
  std::vector<Replacements> symbols_;                         // [copy]: indirect symbols
  std::vector<std::unordered_map<const sym::Node*, ValueId>> valid_;
};

// e with floor divisions of the lane variable by multiples of the lanes simplified, where the lanes
// start at such a multiple: floordiv(64*i + l, 64) is i, mod(64*i + l, 64) is l.
[[nodiscard]] Expr split_lanes(Expr e, Expr lane, std::int64_t lanes);

// One stage. `columns`: the lanes of the last outer loop, or null.
void expand_stage(Expansion& expansion, const Stage& stage, const Lanes* columns);

// Running extremes along a row of a CPU, a vector of lanes at a time, with the stages behind them
// that need nothing but what they have made at the same element: one loop for all.
struct LaneScans {
  std::vector<std::size_t> stages;  // by stage: how many run as one loop from it on; 0: none
  std::vector<bool> kept;           // by buffer: scratch that is read in such a loop only
};
[[nodiscard]] LaneScans lane_scans(const Expansion& expansion);
void scan_in_lanes(Expansion& expansion, std::span<const Stage> stages,
                   const std::vector<bool>& kept);

// Loops over a lane variable in groups of whole vectors with a masked rest, and over others.
struct Chunks {
  std::int64_t steps = 0;
  std::function<Values(const Values& totals)> begin;
  std::function<Values(const Values& totals, const Values& part)> merge;
};
struct LaneRange {
  Expr begin, end;
  std::optional<std::int64_t> count;  // end - begin where that is known now
};
// Runs the body for the copies of a group. Of a rest with fewer copies, only the accumulators of
// those change; `rest`: of the last copy, which lanes are active (none: all).
using GroupBody = std::function<Values(const Lanes& group, int first_copy, const Values& carried)>;

// `shape`: lanes, copies, variable and lane symbol.
Values lane_loop(Expansion& expansion, const Lanes& shape, const LaneRange& range, Values carried,
                 const Chunks* chunks, const GroupBody& body);
// The vectors of one copy in 0 .. end, a multiple of the lanes.
Values whole_vector_loop(Expansion& expansion, const Lanes& shape, Expr end, Values carried,
                         const GroupBody& body);
Values scalar_loop(Expansion& expansion, const loop::Dim& dim, Values carried, const Chunks* chunks,
                   const std::function<Values(const Values& carried)>& body);

}  // namespace inkle::schedule::expansion
