// One operation of a kernel without regions, as lines of CUDA C++: a fixed text for each.
#pragma once

#include "codegen/cuda/memory_text.h"

namespace inkle::codegen::cuda {

class OperationPrinter {
 public:
  OperationPrinter(const kernel::Kernel& kernel, const LanePlan& plan, ValueText& text,
                   const MemoryText& memory, Writer& out)
      : k_(kernel), plan_(plan), text_(text), memory_(memory), out_(out) {}

  void print(kernel::OperationId o);
  [[nodiscard]] bool can_fail() const { return can_fail_; }
  // One element that is read where the condition holds, and what it is elsewhere.
  void load_if(kernel::ValueId result, kernel::ValueId condition, const kernel::Access& access,
               kernel::ValueId otherwise);

 private:
  // The definition of a value in pieces: what it is stands between `begin` and `end`.
  void begin(kernel::ValueId v);
  void end(kernel::ValueId v);
  template <class... Parts>
  void define(kernel::ValueId v, const Parts&... parts) {
    begin(v);
    out_.add(parts...);
    end(v);
  }
  void store_lane(kernel::ValueId v);
  void begin_pack(kernel::ValueId v);
  // A pack of the value for all lanes: its array, or one that is filled here.
  [[nodiscard]] ShortText pack_of(kernel::ValueId v);
  [[nodiscard]] bool is_whole(kernel::OperationId o) const;
  void index(const kernel::Operation& op);
  void compute(const kernel::Operation& op);
  void random(const kernel::Operation& op, const kernel::Operation& counter);
  void narrow(const kernel::Operation& op);
  void function(const kernel::Operation& op);
  void load(kernel::OperationId o);
  void store(kernel::OperationId o);
  void atomic(const kernel::Operation& op);
  void indirect(const kernel::Operation& op);
  void bind(const kernel::Operation& op);
  void shuffle(const kernel::Operation& op);
  void barrier(const kernel::Barrier& barrier);
  void fence(const kernel::Fence& fence);
  void copy(const kernel::Copy& copy);

  const kernel::Kernel& k_;
  const LanePlan& plan_;
  ValueText& text_;
  const MemoryText& memory_;
  Writer& out_;
  bool can_fail_ = false;
  int fills_ = 0;
};

}  // namespace inkle::codegen::cuda
