// What the prepare steps of a plan make: which steps, from which weights, where in one block of
// memory. prepared_sets.h keeps the blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "abi/plan.h"
#include "runtime/common/executable.h"
#include "runtime/common/plan_facts.h"
#include "runtime/common/size_program.h"
#include "runtime/common/weight_identity.h"

namespace inkle::runtime::common {

// Prepare steps that are run together. There are two groups at most: steps that read no weight, run
// once an Executable, and the others, run once a set of weights.
struct PreparedGroup {
  struct Weight {
    std::uint32_t tensor;  // number among the tensor arguments
    std::int64_t bytes;
  };
  std::vector<Weight> weights;        // that the steps read
  std::vector<std::uint32_t> steps;   // in order
  std::vector<abi::PlanBuffer> made;  // buffers of kind prepared, and where they lie
  std::vector<std::int64_t> offsets;
  std::int64_t bytes = 0;

  // The weights of a call, in order; `is_sampled`: the host may look at them.
  void identify(const Call& call, bool is_sampled, std::vector<WeightIdentity>& result) const;
  // Makes the buffers, by number, those of one block.
  void bind(std::byte* block, std::span<void*> buffers) const;
};

// Sorts a plan's prepare steps into groups, without empty ones; each buffer begins at a multiple of
// `alignment`. Throws UserError for a step that does what a prepare step must not.
[[nodiscard]] std::vector<PreparedGroup> plan_prepared(const abi::Plan& plan,
                                                       const PlanFacts& facts,
                                                       const SizeProgram& sizes,
                                                       std::int64_t alignment);

// The same in one group, run for each set of weights.
[[nodiscard]] PreparedGroup merged(const std::vector<PreparedGroup>& groups);

}  // namespace inkle::runtime::common
