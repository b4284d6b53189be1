// Memory of a kernel as text, at the point that is being printed.
#pragma once

#include "codegen/cuda/value_text.h"

namespace inkle::codegen::cuda {

class MemoryText {
 public:
  MemoryText(const kernel::Kernel& kernel, ValueText& values);

  [[nodiscard]] ShortText name(kernel::MemoryId m) const;
  // Writes one element; of the lane, where the text stands inside of the lanes.
  void element(Writer& to, const kernel::Access& access) const;
  // The address of lane 0's.
  void address(Writer& to, const kernel::Access& access) const;
  [[nodiscard]] std::string element(const kernel::Access& access) const;
  [[nodiscard]] std::string address(const kernel::Access& access) const;
  // Lanes of the packs of which the memory is an array, one for all lanes; 0: single elements.
  [[nodiscard]] int pack_lanes(kernel::MemoryId m) const { return packs_[m]; }
  [[nodiscard]] bool is_packs(kernel::MemoryId m) const { return packs_[m] != 0; }
  // The pack of a vector access to such memory.
  void pack_of(Writer& to, const kernel::Access& access) const;

 private:
  void find_packs(kernel::RegionId region, int lanes, sym::Expr lane);

  const kernel::Kernel& k_;
  ValueText& values_;
  std::vector<int> packs_;  // by memory
};

}  // namespace inkle::codegen::cuda
