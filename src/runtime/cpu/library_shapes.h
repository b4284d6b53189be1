// What the compilers of library calls share: operands with numbers in place of slots.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/cpu/library_step.h"

namespace inkle::runtime::cpu {

[[nodiscard]] TensorDescription resolve(const abi::Operand& operand,
                                        std::span<const std::int64_t> slots);
[[nodiscard]] bool has_no_elements(const TensorDescription& t);
// Bytes from the first to the end of the last element.
[[nodiscard]] std::int64_t span_bytes(const TensorDescription& t);

// A vector with stride 1; throws Unsupported for others.
[[nodiscard]] std::optional<TensorDescription> resolve_bias(const abi::Operand& bias,
                                                            std::span<const std::int64_t> slots);

// Post-ops with operands resolved to the destination's rank, broadcast dimensions of size 1.
[[nodiscard]] std::vector<PostOpDescription> resolve(std::span<const abi::PostOp> post_ops,
                                                     const TensorDescription& destination,
                                                     std::span<const std::int64_t> slots);

// oneDNN adds and multiplies right only with an operand that is one element, dense along `channel`
// alone, or laid out as the destination; it reads others at wrong offsets. Strides of a fit operand
// are made exactly what oneDNN compares.
[[nodiscard]] bool fits(PostOpDescription& op, const TensorDescription& destination,
                        std::size_t channel);

// Splits off what must be done apart: the first post-op that does not fit and all after it.
void split_post_ops(std::vector<PostOpDescription> all, CompiledCall& call,
                    std::vector<PostOpDescription>& fused);

// Makes `call.primitive`, and `call.quick` if relu and dtype ask for it. Sets `call.fused`.
void make_primitives(PrimitiveDescription d, CompiledCall& call);

// Reason to refuse what dtypes and kinds alone decide; empty: none.
[[nodiscard]] std::string dtype_objection(const abi::Operand& source, const abi::Operand& weights,
                                          const abi::Operand& destination, const abi::Operand* bias,
                                          std::span<const abi::PostOp> post_ops, bool with_bf16);

}  // namespace inkle::runtime::cpu
