// The state of one call of an Executable, kept for the next call of the same shapes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cpu/executor.h"

namespace inkle::runtime::cpu {

// What a step does, with aliases resolved.
struct Executable::Step {
  enum class Kind : std::uint8_t { launch, library, eager, copy };
  Kind kind = Kind::launch;
  bool prepare = false;
  std::uint32_t library = 0;  // number among the library steps
  abi::KernelFunction function = nullptr;
  const abi::Launch* launch = nullptr;
  const abi::EagerCall* eager = nullptr;
  std::vector<abi::PlanBuffer> buffers;   // roots; of a copy: from, to
  std::vector<abi::PlanBuffer> declared;  // as written in the plan: geometry of views
};

class Frame {
 public:
  explicit Frame(const Executable& executable);

  // For a plan without dynamic sizes: does ahead of the first call what follows from sizes.
  void prepare();

  // Runs the plan; `microseconds`, if given, has a place for every step. After an exception the
  // frame must not be used again.
  void run(const Call& call, double* microseconds);

  // Lets go of prepared sets that the executable keeps no more.
  void release_outdated();

  [[nodiscard]] MemoryReport memory() const;
  [[nodiscard]] const LibraryStep::State& library_state(std::size_t i) const { return library_[i]; }

 private:
  // A misaligned argument, copied for the length of the call.
  struct Clone {
    Block block;
    void* original;
    std::int64_t bytes;
  };

  void bind_arguments(const Call& call);
  void plan_shapes();
  void clone_misaligned(const abi::PlanArgument& argument, abi::PlanBuffer buffer);
  void make_outputs(Host& host);
  void bind_memory(Block& block);
  void run_prepared(const Call& call, Block& block, double* microseconds);
  void identify(const PreparedGroup& group, const Call& call);
  void bind_prepared(const PreparedGroup& group, const PreparedSet& set);
  void run_timed(const Call& call, Block& block, double* microseconds);
  void run_step(const Executable::Step& step, const Call& call, Block& block);
  void run_launch(const Executable::Step& step);
  void run_library(const Executable::Step& step, const Call& call, Block& block);
  void run_eager(const Executable::Step& step, Host& host);
  void run_copy(const Executable::Step& step);
  void adopt(abi::PlanBuffer buffer, const HostTensor& result, Host& host, const std::string& name);
  void write_back();
  void give_results(const Call& call);

  // Numbers of `dims` slots, in memory that lives until the next call of the frame.
  const std::int64_t* values(const std::vector<abi::Slot>& dims) {
    return numbers_.of(dims, slots_);
  }
  abi::TensorView view_of(abi::PlanBuffer declared);

  const Executable& executable_;
  const abi::Plan& plan_;
  std::vector<std::int64_t> slots_;
  bool is_fresh_ = true;
  std::vector<void*> buffers_;   // by buffer; roots only
  std::vector<Handle> handles_;  // by buffer; of outputs and externals
  std::vector<std::pair<abi::PlanBuffer, std::int64_t>> arena_;  // buffer, offset
  std::int64_t arena_bytes_ = 0;
  std::int64_t library_bytes_ = 0;
  std::byte* bound_to_ = nullptr;                             // block that arena_ pointers are into
  std::vector<std::shared_ptr<const PreparedSet>> prepared_;  // by group
  std::vector<WeightIdentity> identities_;
  Block scratch_;
  std::int64_t scratch_stride_ = 0;  // bytes from one thread's scratch to the next
  std::int64_t scratch_wanted_ = 0;
  int threads_ = 0;
  int planned_threads_ = 0;  // that the library steps are bound for
  std::vector<LibraryStep::State> library_;
  Magnitudes magnitudes_;
  // By step; of a launch over a table the iterations before each instance and before their end.
  std::vector<std::vector<std::int64_t>> starts_;
  std::vector<void*> launch_buffers_;
  std::vector<std::int64_t> launch_sizes_;
  common::ViewNumbers numbers_;
  std::vector<Clone> clones_;
  std::size_t step_number_ = 0;
};

}  // namespace inkle::runtime::cpu
