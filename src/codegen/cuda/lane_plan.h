// How the operations of a vector region are printed. A thread's lanes are an unrolled loop; vector
// accesses and what is uniform over the lanes come before or after it:
//
//   const Pack<bf16, 8> w3 = load_constant<8, 8>(p0 + ...);              before
//   for (int l = 0; l < 8; ++l) { const float v4 = to_f32(w3, l); ... }  lanes
//   store<8>(p1 + ..., w5);                                              after
//
// A segment is such a triple. A lane's value that is used in its own segment alone is a variable of
// the loop, others are arrays.
#pragma once

#include <unordered_map>
#include <vector>

#include "kernel/kernel.h"

namespace inkle::codegen::cuda {

struct Segment {
  std::vector<kernel::OperationId> before, lanes, after;
  std::uint32_t number = 0;
};

class LanePlan {
 public:
  explicit LanePlan(const kernel::Kernel& kernel);

  // Of a region that is a vector region, or inside of one and not inside of its lanes; null:
  // others.
  [[nodiscard]] const std::vector<Segment>* segments(kernel::RegionId region) const {
    return plans_[region].empty() ? nullptr : &plans_[region];
  }
  [[nodiscard]] bool varies(kernel::ValueId v) const { return varies_[v]; }
  // Of a value that varies: whether it is an array.
  [[nodiscard]] bool is_array(kernel::ValueId v) const { return !is_lane_[v] || is_stored_[v]; }
  // Whether the value is a variable in the loop over the lanes of this segment.
  [[nodiscard]] bool is_lane_of(kernel::ValueId v, std::uint32_t segment) const {
    return is_lane_[v] && segment_of_[v] == segment;
  }
  [[nodiscard]] bool is_stored(kernel::ValueId v) const { return is_stored_[v]; }
  // Elements of the widest aligned access of a wide access; 1 where lanes go one by one.
  [[nodiscard]] int width(kernel::OperationId o) const { return widths_[o]; }
  // A cast whose results only vector accesses store: lanes are narrowed in pairs.
  [[nodiscard]] bool narrows_pairs(kernel::OperationId o) const { return pairs_[o]; }

 private:
  struct Effects;
  struct Open;  // the segment that is being filled, and what it does

  void find_vectors(kernel::RegionId region);
  void find_widths(kernel::RegionId region, const kernel::Vector& vector);
  void find_pairs();
  void plan(kernel::RegionId region);
  void place(kernel::OperationId o, Open& open, std::vector<Segment>& done);
  void flush(Open& open, std::vector<Segment>& done);
  [[nodiscard]] Effects effects(const kernel::Operation& op) const;
  [[nodiscard]] bool varies(sym::Expr e) const;
  [[nodiscard]] bool is_lane_operation(kernel::OperationId o) const;
  [[nodiscard]] bool is_after(kernel::OperationId o) const;
  [[nodiscard]] bool needs_lanes(kernel::OperationId o, std::uint32_t segment) const;
  void take_lanes(kernel::OperationId o, std::uint32_t segment);
  void note_uses(kernel::RegionId region);
  void note_use(kernel::ValueId v, std::uint32_t segment);
  template <class F>
  void for_each_symbol(const kernel::Operation& op, const F& f) const;
  template <class F>
  void for_each_use(const kernel::Operation& op, bool inside, const F& f) const;

  const kernel::Kernel& k_;
  std::vector<bool> varies_;
  std::vector<bool> is_lane_, is_stored_;
  std::vector<std::uint32_t> segment_of_;  // of a lane's value
  std::vector<int> widths_;                // by operation
  std::vector<bool> pairs_;                // by operation
  std::vector<kernel::OperationId> vectors_;
  std::unordered_map<const sym::Node*, kernel::ValueId> symbols_;  // of indirect and bind
  std::vector<std::vector<Segment>> plans_;                        // by region; empty: none
  std::uint32_t segments_ = 0;
  sym::Expr lane_;  // of the region that is being planned
};

// Of random words of consecutive counters: the operation that is their counter; null: others.
[[nodiscard]] const kernel::Operation* first_counter(const kernel::Kernel& kernel,
                                                     const kernel::Operation& op);

}  // namespace inkle::codegen::cuda
