// The state of one call of a plan, kept for the next call of the same shapes, and the order in
// which a call is made. A runtime derives from it what depends on its device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "abi/plan.h"
#include "abi/tensor_view.h"
#include "runtime/common/executable.h"
#include "runtime/common/plan_facts.h"
#include "runtime/common/results.h"
#include "runtime/common/size_program.h"

namespace inkle::runtime::common {

// A step of a call, as its observer sees it, if there is one.
class ObservedStep {
 public:
  ObservedStep(StepObserver* observer, std::size_t step) : observer_(observer) {
    if (observer_ != nullptr) observer_->begin(step);
  }
  ~ObservedStep() {
    if (observer_ != nullptr) observer_->end();
  }
  ObservedStep(const ObservedStep&) = delete;
  ObservedStep& operator=(const ObservedStep&) = delete;

 private:
  StepObserver* observer_;
};

enum class Refreshed : std::uint8_t { argument, copy };

class Frame {
 public:
  // All of which outlive it.
  Frame(const abi::Plan& plan, const PlanFacts& facts, const SizeProgram& sizes);
  virtual ~Frame() = default;
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

 protected:
  // One call, from its arguments to its results; `microseconds`, if given, has a place for every
  // step. The functions below are called in their order here. After an exception the frame must not
  // be used again.
  void run(const Call& call, double* microseconds);

  // Plans again although the sizes have not changed.
  [[nodiscard]] virtual bool must_plan() const { return false; }
  // Everything that follows from the slots.
  virtual void plan_shapes() = 0;
  // Buffer `buffer`, which holds this argument, is less aligned than the plan assumes.
  virtual void align(const abi::PlanArgument& argument, abi::PlanBuffer buffer) = 0;
  // Whether outputs are made before the first step; else steps make them.
  [[nodiscard]] virtual bool allocates_outputs_first() const { return true; }
  virtual void make_output(abi::PlanBuffer buffer);
  // Working memory, then what prepare steps make.
  virtual void bind_memory(const Call& call) = 0;
  virtual void prepare(const Call& call) = 0;
  // Runs step number `number`: with what surrounds it in a call, timed, by itself.
  virtual void execute_step(std::size_t number) { run_timed(number); }
  virtual void run_timed(std::size_t number);
  virtual void run_step(std::size_t number) = 0;
  virtual void finish() = 0;
  // Copies `bytes` of a constant into a tensor that the host has made.
  virtual void copy_constant(abi::PlanBuffer root, const abi::TensorView& to,
                             std::int64_t bytes) = 0;

  // Runs an op of the host's.
  void run_eager(const abi::EagerCall& eager);
  // Of an aligned copy that stands for a tensor during the call: where that lies; else null.
  [[nodiscard]] virtual void* original_of(const void* data) const = 0;
  // Gives the tensor what its copy holds, or the copy what the tensor holds.
  virtual void refresh(const void* copy, Refreshed which) = 0;
  [[nodiscard]] virtual abi::TensorView part_of(const abi::Operand& operand) = 0;
  virtual void adopt(abi::PlanBuffer buffer, const HostTensor& result, const std::string& name) = 0;

  // The buffer as the plan declares it, where its root lies.
  [[nodiscard]] virtual abi::TensorView view_of(abi::PlanBuffer declared) = 0;
  // Numbers of `dims` slots, in memory that lives until the next call of the frame.
  const std::int64_t* values(const std::vector<abi::Slot>& dims) {
    return numbers_.of(dims, slots_);
  }

  const abi::Plan& plan_;
  const PlanFacts& facts_;
  const SizeProgram& sizes_;
  std::vector<std::int64_t> slots_;
  bool is_fresh_ = true;
  std::vector<void*> buffers_;   // by buffer; roots only
  std::vector<Handle> handles_;  // by buffer; of outputs and externals
  double* microseconds_ = nullptr;
  StepObserver* observer_ = nullptr;

 private:
  void check_types(const Call& call) const;
  void bind_arguments(const Call& call);
  // Buffers that have aligned copies lie in the tensors themselves until the copies are taken back.
  struct Lent {
    abi::PlanBuffer buffer;
    void* copy;
  };
  void lend(abi::PlanBuffer root, std::vector<Lent>& lent);
  void take_back(const std::vector<Lent>& lent);

  Host* host_ = nullptr;
  ViewNumbers numbers_;
};

[[nodiscard]] bool same_sizes(const abi::TensorView& a, const abi::TensorView& b);
// Where there is more than one element along a dimension.
[[nodiscard]] bool same_strides(const abi::TensorView& a, const abi::TensorView& b);

}  // namespace inkle::runtime::common
