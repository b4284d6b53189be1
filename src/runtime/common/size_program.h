// Evaluates a plan's size bytecode. What depends on no argument is evaluated once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "abi/plan.h"
#include "abi/tensor_view.h"

namespace inkle::runtime::common {

class SizeProgram {
 public:
  // Checks that every slot is written once and before it is read, and that instructions name
  // arguments of the right kind. Keeps a reference to `plan`. Throws UserError.
  explicit SizeProgram(const abi::Plan& plan);

  // All slots, those that depend on arguments 0.
  [[nodiscard]] const std::vector<std::int64_t>& constant_slots() const { return constants_; }
  [[nodiscard]] bool is_constant() const { return leaves_.empty(); }
  // The slot depends on no argument.
  [[nodiscard]] bool is_constant(abi::Slot slot) const { return is_constant_[slot]; }

  // Writes the slots that depend on arguments into `slots` (slot_count values that started as
  // constant_slots() and are only written by this function). Unless `fresh`, the slots hold the
  // result of an earlier evaluation that succeeded, and nothing is done when all leaves are as they
  // were. True if anything was evaluated. `integers` and `tensors` are the plan's arguments, each
  // kind in order. Checks the guards. Throws UserError on overflow, division by zero, an argument
  // of too small a rank, or a guard that fails.
  bool evaluate(std::span<const abi::TensorView> tensors, std::span<const std::int64_t> integers,
                std::span<std::int64_t> slots, bool fresh) const;

 private:
  struct Leaf {
    abi::SizeInstruction::Op op;
    std::uint32_t index;  // among the arguments of its kind
    std::int32_t dimension;
    abi::Slot result;
  };
  void check_guards(std::span<const std::int64_t> slots) const;

  const abi::Plan* plan_;
  std::vector<std::int64_t> constants_;
  std::vector<bool> is_constant_;  // by slot
  std::vector<Leaf> leaves_;
  std::vector<abi::SizeInstruction> dynamic_;  // arithmetic on leaves
};

}  // namespace inkle::runtime::common
