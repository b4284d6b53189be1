// Ids, regions, dominance and types of a kernel: nothing else may be asked before. For verify*.cpp
// only.
#pragma once

#include <vector>

#include "kernel/verify_types.h"

namespace inkle::kernel {

class StructureChecker {
 public:
  StructureChecker(Diagnostics& diagnostics, const TypeChecker& types);
  void run();
  [[nodiscard]] bool is_used(ValueId value) const { return used_[value] != 0; }
  [[nodiscard]] bool has_operation(Op op) const;  // in a region of the kernel

 private:
  void region(RegionId id);
  void operation(OperationId id, const Operation& o);
  void use(ValueId value);
  void regions(const Operation& o) const;
  void region_takes(RegionId id, std::span<const Type> arguments,
                    std::span<const Type> yields) const;

  Diagnostics& d_;
  const Kernel& k_;
  const TypeChecker& types_;
  std::vector<std::uint8_t> defined_, used_;  // flags, by value
  std::vector<ValueId> in_scope_;
  std::vector<bool> seen_regions_;
  std::vector<bool> seen_operations_;
};

}  // namespace inkle::kernel
