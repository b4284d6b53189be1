// What lowerings of collectives are built from: copies of merges, barriers, positions of threads,
// exchanges among the lanes of a warp. For lower_collectives*.cpp only.
#pragma once

#include <functional>
#include <span>
#include <unordered_set>
#include <vector>

#include "kernel/builder.h"
#include "kernel/collective.h"

namespace inkle::kernel {

inline constexpr std::int64_t kLanesOfWarp = 32;

// A collective that is being lowered.
struct LoweredCollective {
  Collective info;
  CollectivePlan plan;
  RegionId merge = kNone;
  bool whole_warp = true;  // all lanes of the warp come here

  // All axes of a block's threads that take part.
  [[nodiscard]] std::vector<ThreadAxis> members() const;
  [[nodiscard]] Shuffle shuffle(ShuffleKind kind, std::int64_t by) const;
};

class CollectiveEmitter {
 public:
  CollectiveEmitter(Kernel& kernel, sym::Context& context);
  [[nodiscard]] Builder& builder() { return builder_; }

  // The vector region around what is emitted.
  void enter(const Vector& vector);
  void leave();
  [[nodiscard]] bool is_in_vector() const { return !vector_lane_.is_null(); }
  [[nodiscard]] Expr vector_lane() const;  // 0 outside of vector regions
  [[nodiscard]] std::int64_t lanes() const { return vector_width_; }
  // What is emitted stands outside of the vector region around.
  void outside(const std::function<void()>& emit);
  [[nodiscard]] bool is_outside(OperationId id) const { return outside_.contains(id); }

  // Values of the kernel as it was and what stands for them now.
  void replace(const Values& before, const Values& after);
  [[nodiscard]] ValueId same(ValueId value) const;

  // A copy of a merge for these arguments, in the region that is open: what it yields.
  Values merge(RegionId merge, const Values& a, const Values& b);
  // Of each state from another lane.
  Values shuffled(const Values& states, const Shuffle& info, ValueId by = kNone);
  Values from_lane(const LoweredCollective& collective, const Values& states, Expr lane);
  void block_barrier();                                     // outside of the vector region
  void if_zero(Expr e, const std::function<void()>& then);  // no branch where it is always 0

  [[nodiscard]] std::span<const ThreadAxis> threads() const { return threads_; }
  [[nodiscard]] Expr lane() const;                                      // of the thread in its warp
  [[nodiscard]] Expr position(std::span<const ThreadAxis> axes) const;  // row-major among them
  [[nodiscard]] std::vector<ThreadAxis> others(std::span<const ThreadAxis> axes) const;

 private:
  Values inlined(RegionId region);

  Kernel& kernel_;
  sym::Context& context_;
  Builder builder_;
  std::vector<ThreadAxis> threads_;  // all, the last first
  std::vector<ValueId> same_;        // by value as it was; kNone: itself
  std::vector<ValueId> copies_;      // likewise, of values of merges: in the last copy
  Expr vector_lane_;                 // null: none
  std::int32_t vector_width_ = 1;
  std::unordered_set<OperationId> outside_;
};

}  // namespace inkle::kernel
