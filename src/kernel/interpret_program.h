// Writes a linear program: slots, constants, instructions, index expressions and accesses. For
// interpret_*.cpp only.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernel/interpret_code.h"

namespace inkle::kernel {

// The vector region around.
struct LanesAround {
  std::int32_t width = 0;  // 0: none
  std::int32_t native = 1;
  Expr lane;
  Ref mask;
};

[[nodiscard]] bool any_varies(std::span<const Ref> refs);

class ProgramWriter {
 public:
  ProgramWriter(const Kernel& kernel, const LanesAround& lanes)
      : kernel_(kernel), lanes_(lanes), values_(kernel.values.size()) {}

  [[nodiscard]] Program& program() { return program_; }
  Ref slot(std::int32_t width, bool varies);
  Ref constant(std::int64_t bits);
  Ref value_slot(const Type& type, bool varies);
  // Slots of carried values, holding the initial ones. In a vector region each lane has its own.
  std::vector<Ref> carried_slots(std::span<const ValueId> initial, OperationId id);
  // Where values lie.
  void bind(ValueId value, Ref ref) { values_[value] = ref; }
  void bind_all(std::span<const ValueId> values, std::span<const Ref> refs);
  [[nodiscard]] Ref ref(ValueId value) const { return values_[value]; }
  [[nodiscard]] std::vector<Ref> refs(std::span<const ValueId> values) const;

  Instruction& emit(Code code, OperationId operation, std::span<const Ref> operands = {});
  void move(const Type& type, Ref to, Ref from, OperationId operation);
  // All at once: what is moved may be where another goes.
  void move_all(std::span<const ValueId> from, std::span<const Ref> to, OperationId operation);
  [[nodiscard]] std::uint32_t here() const {
    return static_cast<std::uint32_t>(program_.code.size());
  }
  // The jump goes here.
  void land(std::uint32_t jump) { program_.code[jump].target = here(); }

 private:
  [[nodiscard]] std::int32_t move_width(const Type& type, Ref to) const;

  const Kernel& kernel_;
  const LanesAround& lanes_;
  Program program_;
  std::vector<Ref> values_;
  std::unordered_map<std::int64_t, std::uint32_t> constants_;
};

class IndexWriter {
 public:
  IndexWriter(const Kernel& kernel, const LanesAround& lanes, ProgramWriter& out)
      : kernel_(kernel), lanes_(lanes), out_(out), program_(out.program()) {}
  void define(Expr symbol, Ref ref) { symbols_[symbol.id()] = ref; }
  std::uint32_t index(Expr e);
  Ref index_slot(Expr e, OperationId operation);
  // `operands`: indices that are operands come first and are taken away.
  std::uint32_t access(const Access& from, std::span<const Ref>& operands);
  std::uint32_t fragment_access(const FragmentAccess& from, std::span<const Ref>& operands);

 private:
  bool affine(Expr e, std::int64_t coefficient, std::vector<IndexTerm>& terms,
              std::int64_t& constant) const;
  void steps(Expr e);
  [[nodiscard]] Ref symbol(Expr e) const;

  const Kernel& kernel_;
  const LanesAround& lanes_;
  ProgramWriter& out_;
  Program& program_;
  std::unordered_map<std::uint32_t, Ref> symbols_;
};

}  // namespace inkle::kernel
