// The inside of flatten(): for interpret_flatten*.cpp only.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernel/fragment.h"
#include "kernel/interpret_code.h"

namespace inkle::kernel {

class Flattener {
 public:
  explicit Flattener(const Kernel& kernel);
  Program run();

 private:
  // --- Slots, constants, instructions
  Ref slot(std::int32_t width, bool varies);
  Ref constant(std::int64_t bits);
  Ref value_slot(const Type& type, bool varies);
  [[nodiscard]] std::int32_t move_width(const Type& type, Ref to) const;
  Instruction& emit(Code code, OperationId operation, std::span<const Ref> operands = {});
  void move(const Type& type, Ref to, Ref from, OperationId operation);
  void move_all(std::span<const ValueId> from, std::span<const Ref> to, OperationId operation);
  [[nodiscard]] Ref ref(ValueId value) const { return values_[value]; }
  [[nodiscard]] std::vector<Ref> refs(std::span<const ValueId> values) const;
  [[nodiscard]] static bool any_varies(std::span<const Ref> refs);
  void bind_arguments(RegionId region, std::span<const Ref> refs);
  [[nodiscard]] std::uint32_t here() const {
    return static_cast<std::uint32_t>(program_.code.size());
  }

  // --- Index expressions
  bool affine(Expr e, std::int64_t coefficient, std::vector<IndexTerm>& terms,
              std::int64_t& constant) const;
  void steps(Expr e);
  [[nodiscard]] Ref symbol(Expr e) const;
  std::uint32_t index(Expr e);
  Ref index_slot(Expr e, OperationId operation);
  std::uint32_t access(const Access& from, std::span<const Ref>& operands);
  std::uint32_t fragment_access(const FragmentAccess& from, std::span<const Ref>& operands);

  // --- Operations
  void region(RegionId id);
  void operation(OperationId id);
  void value_operation(OperationId id);
  void memory_operation(OperationId id);
  void asynchronous_operation(OperationId id);
  void fragment_operation(OperationId id);
  void plain(Code code, OperationId id);
  std::vector<Ref> carried_slots(std::span<const ValueId> initial, OperationId id);
  void counted_loop(const Loop& info, OperationId id, const std::function<void()>& body);
  void loop(OperationId id);
  void repeat(OperationId id);
  void branch(OperationId id);
  void masked_branch(OperationId id, std::span<const Ref> results);
  void vector(OperationId id);
  void fold(OperationId id);
  void fold_level(OperationId id, std::size_t level, std::span<const Ref> totals,
                  std::span<const Ref> states);
  void fold_parts(OperationId id, std::size_t level, std::span<const Ref> totals);
  void roles(OperationId id);
  void collective(OperationId id);
  void transpose(OperationId id);
  void fragment_map(OperationId id);

  const Kernel& kernel_;
  Program program_;
  std::vector<Ref> values_;
  std::unordered_map<std::uint32_t, Ref> symbols_;
  std::unordered_map<std::int64_t, std::uint32_t> constants_;
  std::int32_t width_ = 0;  // of the vector region around; 0: none
  std::int32_t native_ = 1;
  Expr lane_;  // of it
  Ref mask_;
};

}  // namespace inkle::kernel
