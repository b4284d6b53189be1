// The state of lower_collectives: one walk over the kernel that rebuilds its regions.
// lower_collectives.cpp has the walk, lower_collectives_reduce.cpp and lower_collectives_scan.cpp
// the collectives, split_vector.h takes vector regions apart. For these files only.
#pragma once

#include <functional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kernel/builder.h"
#include "kernel/collective.h"
#include "kernel/variance.h"

namespace inkle::kernel {

class CollectiveLowering {
 public:
  CollectiveLowering(Kernel& kernel, sym::Context& context);
  void run();

 private:
  // --- lower_collectives.cpp
  void region(RegionId id);
  void operation(OperationId id);
  void control(OperationId id, Variance condition);
  void vector_region(OperationId id);
  void collective(OperationId id);
  [[nodiscard]] ValueId same(ValueId value) const;
  // A copy of a merge for these arguments, in the region that is open: what it yields.
  Values inlined(RegionId merge, const Values& arguments);
  Values inlined(RegionId region, std::unordered_map<ValueId, ValueId>& to);
  // What is emitted stands outside of the vector region around.
  void outside(const std::function<void()>& emit);
  void barrier(Scope scope);
  void if_zero(Expr e, const std::function<void()>& then);  // no branch where it is always 0
  [[nodiscard]] Expr lane() const;                          // number of the thread in its warp
  [[nodiscard]] Expr position(std::span<const ThreadAxis> axes) const;  // row-major among them
  [[nodiscard]] std::vector<ThreadAxis> others(std::span<const ThreadAxis> axes) const;
  [[nodiscard]] Expr vector_lane() const;  // 0 outside of vector regions
  [[nodiscard]] std::int64_t lanes() const { return vector_width_; }
  // Which half of scratch memory is this iteration's: its number among those of the loops around.
  [[nodiscard]] Expr parity() const;
  [[nodiscard]] Access scratch_access(MemoryId scratch, Expr place) const;
  ValueId load_scratch(MemoryId scratch, Expr place, ValueId rank = kNone);
  void store_scratch(MemoryId scratch, Expr place, ValueId value);

  // --- lower_collectives_reduce.cpp
  Values reduce(const Operation& o);
  Values merge(const Values& a, const Values& b);
  Values exchange_all(const Values& states, std::int64_t by);
  Values exchange(const Values& states, std::span<const ThreadAxis> axes);
  Values chain(const Values& states, const ThreadAxis& axis, std::int64_t count);
  Values across_warps(const Values& states);
  Values joined_warps(Expr first);
  Values tree(std::vector<Values> parts, std::span<const ThreadAxis> axes);
  void column_rows(const ThreadAxis& axis, Expr rows, const std::function<void(Expr)>& body);
  Values columns(const Values& states, const ThreadAxis& axis);
  void interleave(std::span<const MemoryId> scratch);
  Values across_cluster(const Values& states);
  MemoryId cluster_memory(MemoryId scratch);

  // --- lower_collectives_scan.cpp
  // What is known of a scan, for others of the same states.
  struct Scanned {
    RegionId region = kNone;
    Values states;
    std::vector<AxisId> axes;
    RegionId merge = kNone;
    Values all;                 // scanned within the warp
    Values totals;              // of the warps, scanned: that of warp w in lane w
    Values before;              // of the warps before this one; of the first, anything
    std::vector<Values> parts;  // through memory: after each participant
    Values inclusive;           // the results of the inclusive scan
  };
  Values scan(const Operation& o);
  Scanned& scanned(const Values& states);
  Values scan_lanes(const Values& states, Expr position, std::int64_t count, std::int64_t stride);
  Values scan_warp(Scanned& known, const Values& first);
  Values scan_warps(Scanned& known, const Values& first);
  Values scan_totals(const Values& all, Expr lane);
  Values scan_memory(Scanned& known, const Values& first);
  Values broadcast(const Operation& o);
  Values last_of_scan(ValueId value);
  // Of each state from another lane.
  Values shuffled(const Values& states, const Shuffle& info, ValueId by = kNone);
  [[nodiscard]] Shuffle shuffle(ShuffleKind kind, std::int64_t by) const;
  Values from_lane(const Values& states, Expr lane);
  Values selected(ValueId condition, const Values& a, const Values& b);
  ValueId is_at_least(Expr e, std::int64_t bound);

  Kernel& kernel_;
  sym::Context& context_;
  Builder builder_;
  VarianceAnalysis variance_;        // of the kernel as it was
  std::vector<ThreadAxis> threads_;  // all, the last first
  std::unordered_map<ValueId, ValueId> same_;
  std::vector<MemoryId> left_;  // scratch that a reduction of columns has been read from
  // Scratch of two states that lie beside each other: places count by two.
  std::unordered_set<MemoryId> interleaved_;

  // Where the walk is.
  Variance control_ = Variance::kernel;
  std::vector<Loop> loops_;        // around, outermost first
  Expr vector_lane_;               // of the vector region around; null: none
  std::int32_t vector_width_ = 1;  // and how many there are
  std::unordered_set<OperationId> outside_;

  // The collective that is being lowered.
  Collective info_;
  CollectivePlan plan_;
  RegionId merge_ = kNone;
  bool whole_warp_ = true;  // all lanes of the warp come here
  std::vector<Scanned> scanned_;
};

}  // namespace inkle::kernel
