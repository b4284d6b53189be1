// The host of a plan under torch: reads tensors through torch's DLPack exchange table, lets torch
// allocate results, and runs what was left to eager by calling Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "abi/plan.h"
#include "runtime/common/executable.h"
#include "runtime/cuda/host.h"

namespace inkle::python {

namespace nb = nanobind;

using runtime::common::EagerOperand;
using runtime::common::HostTensor;
using runtime::common::Output;

// In HostContext::view_of, beside numbers of results.
constexpr std::int32_t kOfItsMemory = -1, kOfNothing = -2;

// What all calls of a program share.
struct HostContext {
  const abi::Plan* plan = nullptr;
  std::span<const std::uint32_t> watched;  // tensor arguments whose versions are of use
  abi::Device device;                      // that everything runs on
  nb::list targets;                        // Python callables for calls to eager, by number
  nb::object as_strided;
  // Of each argument of the plan, what every call looks at, close together.
  struct Argument {
    std::uint32_t position = 0;  // in the caller's list
    bool is_integer = false;
    bool is_parameter = false;
  };
  std::vector<Argument> arguments;
  // By result: the earlier result that is the very same tensor, -1 where none is. Empty: none.
  std::vector<std::int32_t> repeats;
  // TorchCallable::set_views().
  std::vector<std::int32_t> view_of;
  std::vector<std::uint32_t> apart;
  // TorchCallable::set_conditions().
  std::vector<std::uint32_t> conditions;
};

// One result of a call: nothing, an integer, or a view of a tensor.
struct ResultRecipe {
  abi::PlanOutput::Kind kind = abi::PlanOutput::Kind::none;
  std::int64_t integer = 0;
  bool is_condition = false;            // that integer is a bool
  std::int32_t argument = -1;           // tensor argument whose storage it is
  nb::object base;                      // else: the tensor whose storage it is
  bool is_whole = false;                // exactly that tensor
  bool is_early = false;                // that tensor was made before any step
  std::int32_t view_of = kOfItsMemory;  // HostContext::view_of
  std::vector<std::int64_t> sizes, strides;
  std::int64_t byte_offset = 0;  // from the first element of what it is a view of
  std::int32_t repeats = -1;     // HostContext::repeats

  // A view of result view_of.
  [[nodiscard]] bool is_of_result() const { return view_of >= 0 && !is_whole; }
};

// State of one call, kept for the next. The interpreter's lock is held but between begin_steps()
// and the first give().
class TorchHost final : public runtime::cuda::DeviceHost {
 public:
  explicit TorchHost(const HostContext& context) : context_(context) {
    outputs_.resize(context.plan->outputs.size(), nullptr);
    data_.resize(outputs_.size(), nullptr);
  }
  ~TorchHost() override { clear(); }
  TorchHost(const TorchHost&) = delete;
  TorchHost& operator=(const TorchHost&) = delete;

  // Reads the caller's arguments; keeps the tensors alive, as the caller may clear its list. With
  // `places_only`, of weights only where they lie: the guards of Dynamo have compared the rest, and
  // reading it once more would take longer than all else that a replay needs.
  void read(const nb::list& arguments, bool places_only = false);
  // Reads what `places_only` has left out.
  void read_rest();
  // Then: counters of writes to the weights that derived copies are kept of.
  void read_versions();
  // Empties the caller's list: from now on this object alone keeps the arguments alive, and frees
  // each after its last use.
  void take_over(const nb::list& arguments);
  // Fills the list again after a failure; false if some tensor is gone.
  [[nodiscard]] bool give_back(nb::list arguments) const;
  [[nodiscard]] runtime::common::Call call_data();
  // Told of the steps of this call, which it outlives.
  void observe(runtime::common::StepObserver* observer) { observer_ = observer; }
  // The call of what was read, results to take() after it; the interpreter's lock is held again
  // however it ends. The other one gives microseconds of each step.
  void run(runtime::common::Executable& executable);
  [[nodiscard]] std::vector<double> run_profiled(runtime::common::Executable& executable);
  [[nodiscard]] bool has_begun() const { return has_begun_; }
  [[nodiscard]] nb::object take();
  // Of the arguments that were read.
  [[nodiscard]] std::span<PyObject* const> tensors() const { return tensors_; }
  [[nodiscard]] std::span<const abi::TensorView> views() const { return views_; }
  [[nodiscard]] std::span<const std::int64_t> integers() const { return integers_; }
  // The call reads and writes another tensor of the same geometry in place of argument `number`; of
  // a CPU tensor that kernels read, a copy on the device, while results are captured.
  void replace(std::size_t number, nb::object tensor);
  // Results are not made, only described: recipes() then has one for each. `begin` is called before
  // the first step, when tensors for results have been made.
  void record_results(nb::object begin) {
    is_capturing_ = true;
    begin_capture_ = std::move(begin);
  }
  [[nodiscard]] std::vector<ResultRecipe> take_recipes() { return std::move(recipes_); }
  // The result that a recipe describes; `base` is the tensor that it is, or is a view of: of
  // recipe.view_of where that is a result, else of its memory.
  [[nodiscard]] nb::object make(const ResultRecipe& recipe, const nb::object& base) const;
  // Drops all references; the vectors keep their memory.
  void clear();

  HostTensor make_output(abi::DType dtype, std::span<const std::int64_t> sizes,
                         std::span<const std::int64_t> strides) override;
  void begin_steps() override;
  void call(std::uint32_t target, std::span<const EagerOperand> operands,
            std::span<HostTensor> results) override;
  void give(std::uint32_t position, const Output& output) override;

  runtime::cuda::Stream stream() override;
  void* allocate(std::int64_t bytes) override;
  void release(runtime::common::Handle handle) override;
  void release_argument(std::uint32_t number) override;
  void copy(const abi::TensorView& from, const abi::TensorView& to) override;
  std::optional<HostTensor> convolution(
      const runtime::cuda::ConvolutionArguments& arguments) override;
  std::optional<HostTensor> attention(const runtime::cuda::AttentionArguments& arguments) override;

 private:
  struct Slot {
    nb::object object;
    abi::TensorView view;
    bool is_early = false;             // made before any step
    mutable bool is_known = false;     // outside the call, as an eager op returned it
    mutable bool is_returned = false;  // as a result, whole
  };

  class EndOfSteps;

  // Takes the interpreter's lock back if a call has ended without a result.
  void end_steps();
  HostTensor keep(nb::object tensor);
  nb::object operand_object(const EagerOperand& operand) const;
  ResultRecipe describe(std::uint32_t position, const Output& output);

  const HostContext& context_;
  std::vector<PyObject*> tensors_;  // owned
  std::vector<abi::TensorView> views_;
  std::vector<std::int64_t> integers_;
  std::vector<std::int64_t> versions_;
  std::deque<Slot> slots_;          // handles point into it
  std::vector<PyObject*> outputs_;  // owned
  std::vector<const void*> data_;   // of described results: the first element
  bool has_places_only_ = false;
  bool donates_arguments_ = false;
  runtime::common::StepObserver* observer_ = nullptr;
  bool is_capturing_ = false;
  nb::object begin_capture_;
  std::vector<ResultRecipe> recipes_;
  PyThreadState* thread_ = nullptr;  // while the lock is not held
  bool has_begun_ = false;
};

}  // namespace inkle::python
