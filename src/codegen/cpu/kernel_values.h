// The values of a kernel while it is printed: the current region, and what each value is there.
#pragma once

#include <unordered_map>
#include <vector>

#include "codegen/cpu/ir.h"
#include "kernel/kernel.h"

namespace inkle::codegen::cpu {

class KernelValues {
 public:
  KernelValues(Ir& ir, const kernel::Kernel& kernel);

  // Lanes of the vector region around, and which of them are active; null: all.
  [[nodiscard]] int lanes() const { return lanes_; }
  void set_lanes(int lanes) { lanes_ = lanes; }
  [[nodiscard]] Value* mask() const { return mask_; }
  void set_mask(Value* mask) { mask_ = mask; }

  [[nodiscard]] bool varies(kernel::ValueId v) const { return varies_[v]; }
  void define(kernel::ValueId v, Value* value);
  // As it is, or broadcast to all lanes where its user has lanes.
  [[nodiscard]] Value* get(kernel::ValueId v, bool in_lanes);
  // Each as `as` varies.
  [[nodiscard]] Values get_all(const kernel::Values& list, const kernel::Values& as);
  // Broadcasts that a side of a branch makes do not dominate what follows the branch.
  [[nodiscard]] Values inside_branch(const std::function<Values()>& run);

 private:
  Ir& ir_;
  const kernel::Kernel& kernel_;
  std::vector<bool> varies_;
  Values values_;  // by ValueId
  std::vector<int> depth_;
  std::unordered_map<std::uint64_t, Value*> broadcasts_;  // (value, lanes)
  std::vector<std::uint64_t> made_;                       // keys of broadcasts, in order
  int lanes_ = 1;
  Value* mask_ = nullptr;
};

}  // namespace inkle::codegen::cpu
