// Helpers of all expansions: arithmetic, conditions, unrolled loops, memories.
#pragma once

#include <functional>

#include "kernel/builder.h"

namespace inkle::schedule::expansion {

using abi::DType;
using kernel::ValueId;
using kernel::Values;
using sym::Expr;

// Threads of a warp.
inline constexpr std::int32_t kWarp = 32;

// Of the first operand's type.
[[nodiscard]] ValueId op(kernel::Builder& b, loop::Opcode opcode, const Values& operands);
// A boolean.
ValueId logic(kernel::Builder& b, loop::Opcode opcode, const Values& operands);
[[nodiscard]] ValueId select(kernel::Builder& b, ValueId condition, ValueId x, ValueId otherwise);
[[nodiscard]] ValueId zero(kernel::Builder& b, DType dtype);
// The least or greatest value of the type; infinities for floats.
[[nodiscard]] ValueId extreme(kernel::Builder& b, DType dtype, bool greatest);
[[nodiscard]] ValueId compare(kernel::Builder& b, loop::Opcode opcode, Expr x, Expr y);
[[nodiscard]] ValueId compare(kernel::Builder& b, loop::Opcode opcode, Expr x, std::int64_t y);
[[nodiscard]] ValueId less(kernel::Builder& b, Expr x, Expr y);

// Runs `f` where the condition holds; with values: else they are those before.
void where(kernel::Builder& b, ValueId condition, const std::function<void()>& f);
[[nodiscard]] Values where(kernel::Builder& b, ValueId condition, const Values& carried,
                           const std::function<Values()>& f);
// Likewise where x < y, without a branch where that is known.
void if_less(kernel::Builder& b, Expr x, Expr y, const std::function<void()>& f);
[[nodiscard]] Values if_less(kernel::Builder& b, Expr x, Expr y, const Values& carried,
                             const std::function<Values()>& f);

// `f` for 0 .. count, one after the other in the code.
Values unrolled(kernel::Builder& b, std::int64_t count, const Values& carried,
                const kernel::Builder::LoopBody& f);
void unrolled(kernel::Builder& b, std::int64_t count, const std::function<void(Expr)>& f);
void in_vector(kernel::Builder& b, std::int64_t lanes, const std::function<void(Expr lane)>& f);
// Likewise, or without a vector and with a null lane where there is one.
void in_lanes(kernel::Builder& b, std::int64_t lanes, const std::function<void(Expr lane)>& f);

// A symbol for the value, of this range and a multiple of `divisor`.
[[nodiscard]] Expr bound(kernel::Builder& b, ValueId value, sym::Range range, std::int64_t divisor);

// A value of 32 bits and a mark that it is there, in one word of 64 bits that is not 0; and the
// value of such a word. One relaxed store publishes both.
[[nodiscard]] ValueId marked(kernel::Builder& b, ValueId value);
[[nodiscard]] ValueId unmarked(kernel::Builder& b, ValueId word, DType dtype);

// Memories with names that no other has.
[[nodiscard]] kernel::MemoryId registers(kernel::Builder& b, const char* prefix, DType dtype,
                                         const std::vector<std::int64_t>& shape);
[[nodiscard]] kernel::MemoryId shared(kernel::Builder& b, const char* prefix, DType dtype,
                                      const std::vector<std::int64_t>& shape);
// A lane of access `number` in registers, or the one element of it: for a null lane.
[[nodiscard]] kernel::Access element_of(kernel::MemoryId memory, Expr number, Expr lane);

}  // namespace inkle::schedule::expansion
