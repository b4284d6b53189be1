// Loads, stores and atomic additions of a kernel as LLVM IR, for the lanes that are active.
#pragma once

#include "codegen/cpu/kernel_values.h"
#include "codegen/cpu/values.h"

namespace inkle::codegen::cpu {

class AccessPrinter {
 public:
  AccessPrinter(Ir& ir, const kernel::Kernel& kernel, KernelValues& values);
  // Bytes that may be read or written where no lane is active.
  void set_spare(Value* spare) { spare_ = spare; }
  void bind(kernel::MemoryId memory, Value* base) { bases_[memory] = base; }

  void load(const kernel::Operation& op);
  void store(const kernel::Operation& op);
  void prefetch(const kernel::Operation& op);
  void atomic(const kernel::Operation& op);
  // Of an element, by its linear offset.
  [[nodiscard]] Value* address(const kernel::Access& access, kernel::ValueId offset);

 private:
  [[nodiscard]] int alignment_of(const kernel::Access& access) const;
  [[nodiscard]] DType dtype_of(const kernel::Access& access) const;
  [[nodiscard]] Value* harmless(Value* address);
  [[nodiscard]] Value* active();  // lanes

  Ir& ir_;
  const kernel::Kernel& kernel_;
  KernelValues& values_;
  Values bases_;  // by MemoryId
  Value* spare_ = nullptr;
};

}  // namespace inkle::codegen::cpu
