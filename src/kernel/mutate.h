// Kernels made wrong in one place, to see whether verifier and interpreter notice.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/interpret.h"

namespace inkle::kernel {

enum class MutationKind : std::uint8_t {
  remove_barrier,  // of threads; a split one: its wait
  remove_fence,
  remove_proxy_fence,
  remove_mma_fence,
  drop_mask,       // the condition of a branch becomes true
  remove_wait,     // copy_wait, bulk_wait, mma_wait, barrier_wait
  remove_commit,   // copy_commit, bulk_commit, mma_commit
  remove_arrive,   // at an mbarrier
  more_under_way,  // copy_wait, bulk_wait, mma_wait leave one group more
  skip_phase,      // the other parity of a barrier_wait
  widen_bound,     // of a loop, a comparison that masks, a limit of a fragment
  change_layout,   // an access of shared memory goes one element further in its last dimension,
                   // around its end; a map swizzles otherwise
  weaken_order,    // one of acquire and release less
  narrow_scope,    // of an order that reaches other blocks: those of the block alone
  remove_shuffle,  // each lane keeps its own value
};
inline constexpr std::size_t kMutationKinds = 15;
[[nodiscard]] std::string_view name_of(MutationKind kind);

struct Mutation {
  MutationKind kind = MutationKind::remove_barrier;
  OperationId operation = kNone;
  MemoryId memory = kNone;  // change_layout of a map
  std::int32_t variant = 0;
};

// All mutations of a kernel, in order of its operations. Those that change nothing for sure are
// left out: a layout of one element, a scope of a launch of one block.
[[nodiscard]] std::vector<Mutation> mutations(const Kernel& kernel);
[[nodiscard]] Kernel mutate(const Kernel& kernel, const Mutation& mutation);
[[nodiscard]] std::string to_string(const Kernel& kernel, const Mutation& mutation);

enum class Verdict : std::uint8_t {
  verifier,     // it is refused before it is run
  interpreter,  // it has findings
  result,       // it runs and computes something else
  survived,
};
struct MutationOutcome {
  Mutation mutation;
  Verdict verdict = Verdict::survived;
  std::string why;
};

struct MutationOptions {
  std::int64_t every = 1;  // tries only every so manyth mutation
  CheckOptions check;
};
// Tries mutations of a kernel from each of some sets of arguments, from which the kernel itself
// runs without findings (else UserError).
[[nodiscard]] std::vector<MutationOutcome> try_mutations(
    const Kernel& kernel, std::span<const std::vector<Instance>> arguments,
    const MutationOptions& options = {});

}  // namespace inkle::kernel
