// A library call of a plan: compiled once a shape, bound once a frame, run often.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi/library_call.h"
#include "runtime/cpu/magnitudes.h"
#include "runtime/cpu/onednn_primitive.h"
#include "runtime/cpu/post_ops.h"
#include "runtime/cpu/weight_cache.h"

namespace inkle::runtime::cpu {

// How to do a call for given sizes. Operands count as in Role: source, weights, destination, bias,
// then the operands of post-ops.
struct CompiledCall {
  bool is_empty = false;                       // the destination has no elements
  bool is_fill = false;                        // nothing to sum over: destination = post_ops(bias)
  std::shared_ptr<const Primitive> primitive;  // else
  // The same with the quick form of relu, null if there is no relu; same layout of packed weights.
  std::shared_ptr<const Primitive> quick;
  std::vector<PostOpDescription> fused;     // post-ops of the primitive
  std::int64_t terms = 0;                   // products summed for one result
  std::int64_t source_span = 0;             // bytes of memory that the source lies in
  std::vector<std::int64_t> operand_spans;  // of the operands of `fused`
  // The primitive runs once for every point of these, operands stepping by bytes.
  struct Loop {
    std::int64_t extent = 1;
    std::vector<std::int64_t> steps;
  };
  std::vector<Loop> loops;
  // Trailing post-ops that the primitive does not do, over the whole destination.
  std::vector<PostOpDescription> rest;
  std::size_t rest_operand = 0;  // pointer number of the first operand of `rest`
  TensorDescription destination;
  std::size_t channel = 0;  // dimension of the destination that bias is along
  std::optional<TensorDescription> bias;
  std::int64_t weight_span = 0;  // bytes of memory that the weights lie in
};

// Sizes and strides come from `slots`. `stable_weights`: the weights are the same from call to
// call, so packing them once is free. Throws Unsupported, UserError (memory).
[[nodiscard]] CompiledCall compile(const abi::MatmulCall& call, std::span<const std::int64_t> slots,
                                   bool stable_weights);
[[nodiscard]] CompiledCall compile(const abi::ConvolutionCall& call,
                                   std::span<const std::int64_t> slots, bool stable_weights);

// Whether dtypes and post-op kinds of the call are those of oneDNN on a processor with bf16, or
// without: has_bf16() for this one.
[[nodiscard]] bool can_run(const abi::MatmulCall& call, bool with_bf16);
[[nodiscard]] bool can_run(const abi::ConvolutionCall& call, bool with_bf16);

class LibraryStep {
 public:
  // The part of a frame that belongs to this step.
  struct State {
    std::shared_ptr<const CompiledCall> compiled;
    std::unique_ptr<Execution> execution;
    std::unique_ptr<Execution> quick;
    std::shared_ptr<const PackedWeights> packed;
    std::vector<std::int64_t> key;
    std::vector<void*> pointers;
  };

  // `call` outlives this object; its buffers are already roots of aliases. `source`: of the step,
  // the contraction's own node first.
  LibraryStep(const abi::LibraryCall& call, std::string_view source, bool stable_weights);

  // Finds or makes what the slots ask for. Thread-safe. What the library lacks is Unsupported at
  // the contraction's node.
  void bind(std::span<const std::int64_t> slots, State& state);
  // Bytes of scratchpad that run() needs in this state.
  [[nodiscard]] std::int64_t scratchpad_bytes(const State& state) const;
  // Thread-safe for distinct states. `version` and `is_sampled` of the weights as in
  // WeightIdentity.
  void run(std::span<void* const> buffers, std::span<const std::int64_t> slots, State& state,
           std::byte* scratchpad, WeightCache& weights, std::int64_t version, bool is_sampled,
           Magnitudes& magnitudes) const;

  // Buffer that holds the weights.
  [[nodiscard]] abi::PlanBuffer weights_buffer() const { return operands_[1]->buffer; }
  // By Role; null where there is none.
  [[nodiscard]] std::span<const abi::Operand* const> operands() const { return operands_; }
  [[nodiscard]] bool has_stable_weights() const { return stable_weights_; }

 private:
  struct Known {
    std::vector<std::int64_t> key;
    std::shared_ptr<const CompiledCall> compiled;
  };
  [[nodiscard]] double bound(const CompiledCall& c, const State& state, float weights,
                             Magnitudes& magnitudes) const;
  [[nodiscard]] double operand_bound(std::size_t operand, std::int64_t span, const State& state,
                                     double useful, Magnitudes& magnitudes) const;
  void execute(Execution& execution, const CompiledCall& c, State& state,
               std::byte* scratchpad) const;

  const abi::LibraryCall* call_;
  std::string node_;
  bool stable_weights_;
  std::vector<const abi::Operand*> operands_;  // by Role; null: no bias
  std::vector<abi::Slot> key_slots_;
  std::mutex mutex_;
  std::vector<Known> known_;  // most recent last
};

}  // namespace inkle::runtime::cpu
