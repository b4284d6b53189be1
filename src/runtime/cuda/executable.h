// Runs plans on a GPU. An Executable is made once of a plan and called often, from any number of
// threads at once: what one call changes lies in a Frame of its own. Work is queued on the host's
// stream; a call returns before it is done.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "abi/code.h"
#include "abi/plan.h"
#include "runtime/common/executable.h"
#include "runtime/common/frame_pool.h"
#include "runtime/common/plan_facts.h"
#include "runtime/common/prepared_plan.h"
#include "runtime/common/prepared_sets.h"
#include "runtime/common/size_program.h"
#include "runtime/cuda/device.h"

namespace inkle::runtime::cuda {

struct ExecutableOptions {
  // Whenever sizes change: that the plan asks for no memory beyond what there is. For plans of
  // files.
  bool check_bounds = false;
};

class Frame;

class Executable final : public common::Executable {
 public:
  // Checks the plan, loads its code and constants. Throws UserError for a plan that makes no sense,
  // Unsupported for what the runtime or the device cannot do.
  Executable(abi::PlanAndCode made, std::shared_ptr<Device> device, ExecutableOptions options = {});
  ~Executable() override;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  // The host must be a DeviceHost. An index out of range that a kernel meets is thrown by a later
  // call (or by run_profiled itself), as the call that met it had returned by then.
  void run(const common::Call& call) override;
  [[nodiscard]] std::vector<double> run_profiled(const common::Call& call) override;

  void throw_failures() override;
  [[nodiscard]] std::string why_not_captured() const override;
  [[nodiscard]] bool is_prepared(const common::Call& call) override;

  [[nodiscard]] const abi::Plan& plan() const override { return *plan_; }
  [[nodiscard]] const abi::Code& code() const override { return *code_; }
  [[nodiscard]] std::span<const std::uint32_t> watched() const override { return watched_; }
  [[nodiscard]] common::MemoryReport memory() const override;
  [[nodiscard]] std::string implementation(std::size_t step) const override;
  [[nodiscard]] const Device& device() const { return *device_; }

 private:
  friend class Frame;
  struct BoundStep;
  void load_constants();
  void plan_prepared();
  [[nodiscard]] std::shared_ptr<std::byte> make_block(std::int64_t bytes) const;
  [[nodiscard]] bool has_prepared() const { return !prepared_group_.made.empty(); }
  // The weights of a call that prepare steps read.
  using Weights = std::vector<common::WeightIdentity>;
  void identify(const common::Call& call, Weights& weights) const {
    prepared_group_.identify(call, false, weights);
  }
  // Where prepare steps write for these weights, and whether they have; none while there is no
  // memory to keep it in.
  struct PreparedPlace {
    common::PreparedSets::Place results;
    SampleJob samples;  // of the weights
  };
  [[nodiscard]] PreparedPlace place_prepared(const Weights& weights, bool may_be_made);
  // The prepare steps have been queued: waits for them, and keeps what shows later whether their
  // weights have changed.
  void note_prepared(const common::Call& call, const Weights& weights, const PreparedPlace& place,
                     Stream stream);
  // Whether samples have been found changed; all sets are to be made anew then.
  void take_changes();
  // Zeroed workspace for one CUDA graph, which may be replayed while others run; null if there is
  // none. It is allocated ahead, by a call that is not captured.
  [[nodiscard]] void* zeros_of_capture(std::int64_t bytes);
  void expect_capture(std::int64_t bytes, Stream stream);
  void make_steps();
  void make_launch(const abi::Launch& launch, BoundStep& step);
  void make_call(const abi::LibraryCall& call, BoundStep& step) const;
  // Whether nothing but kernels and library calls has this argument, and they only read it.
  [[nodiscard]] bool is_given_alone(abi::PlanBuffer root) const;
  // Whether nothing but ops in eager and results have this buffer, and all of it.
  [[nodiscard]] bool is_left_to_host(abi::PlanBuffer root) const;
  void run_with(const common::Call& call, double* microseconds);
  [[nodiscard]] std::unique_ptr<Frame> take_frame();

  std::shared_ptr<const abi::Plan> plan_;
  std::shared_ptr<const abi::Code> code_;
  std::shared_ptr<Device> device_;
  ExecutableOptions options_;
  common::SizeProgram sizes_;
  common::PlanFacts facts_;
  std::vector<bool> is_of_device_;  // by buffer, roots: a kernel or library call has it
  std::vector<bool> is_of_host_;    // likewise: an op in eager or a copy, which may write
  std::vector<bool> is_shared_;     // likewise: another buffer lies in it, or it is returned
  std::vector<std::unique_ptr<Module>> modules_;  // by image
  std::vector<Function> functions_;               // by kernel
  std::vector<BoundStep> steps_;
  void* constants_ = nullptr;              // one block of the device
  std::vector<std::int64_t> constant_at_;  // by constant, in that block
  std::uint32_t* status_ = nullptr;        // by step; written by kernels
  std::uint32_t* changed_ = nullptr;       // likewise: weights are not what was prepared

  common::PreparedGroup prepared_group_;
  std::unique_ptr<common::PreparedSets> prepared_;
  std::vector<std::uint32_t> watched_;  // that prepare steps read
  std::int64_t sample_bytes_ = 0;       // behind each set

  std::vector<void*> zeros_;  // of captured graphs; the last is for the next one if `has_next_`
  std::int64_t next_bytes_ = 0;
  bool has_next_ = false;

  mutable std::mutex mutex_;
  common::FramePool<Frame> frames_;
};

}  // namespace inkle::runtime::cuda
