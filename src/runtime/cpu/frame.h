// The state of one call of an Executable, kept for the next call of the same shapes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/common/frame.h"
#include "runtime/cpu/executor.h"

namespace inkle::runtime::cpu {

// What a step does, with aliases resolved.
struct Executable::BoundStep {
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

class Frame final : public common::Frame {
 public:
  explicit Frame(const Executable& executable);

  // For a plan without dynamic sizes: does ahead of the first call what follows from sizes.
  void prepare_ahead();

  // As common::Frame's.
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

  [[nodiscard]] bool must_plan() const override;
  void plan_shapes() override;
  void align(const abi::PlanArgument& argument, abi::PlanBuffer buffer) override;
  void make_output(abi::PlanBuffer buffer) override;
  void bind_memory(const Call& call) override;
  void bind_scratch();
  void prepare(const Call& call) override;
  void run_step(std::size_t number) override;
  void run_launch(std::size_t number);
  void run_library(const Executable::BoundStep& step);
  void run_copy(const Executable::BoundStep& step);
  void finish() override;
  void copy_constant(abi::PlanBuffer root, const abi::TensorView& to, std::int64_t bytes) override;
  [[nodiscard]] void* original_of(const void* data) const override;
  void refresh(const void* copy, common::Refreshed which) override;
  [[nodiscard]] abi::TensorView part_of(const abi::Operand& operand) override;
  void adopt(abi::PlanBuffer buffer, const HostTensor& result, const std::string& name) override;
  [[nodiscard]] abi::TensorView view_of(abi::PlanBuffer declared) override;

  const Executable& executable_;
  const Call* call_ = nullptr;
  Block block_;  // of the call: arena, then workspace of the library
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
  std::vector<Clone> clones_;
};

}  // namespace inkle::runtime::cpu
