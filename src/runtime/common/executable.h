// A plan that can be run, whatever the device: what the callers of both runtimes see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "abi/code.h"
#include "abi/plan.h"
#include "abi/tensor_view.h"
#include "runtime/common/host.h"

namespace inkle::runtime::common {

enum class Check : std::uint8_t {
  full,     // dtype, device, rank, sizes and strides of every argument
  trusted,  // the caller has checked those (Dynamo's guards): alignment only
};

// Told of each step of a call, on the thread that runs it. Neither function may throw.
class StepObserver {
 public:
  StepObserver() = default;
  virtual ~StepObserver() = default;
  StepObserver(const StepObserver&) = delete;
  StepObserver& operator=(const StepObserver&) = delete;

  virtual void begin(std::size_t step) = 0;
  virtual void end() = 0;
};

// One call. Arguments are in the plan's order, tensors and integers counted apart.
struct Call {
  std::span<const abi::TensorView> tensors;
  std::span<const std::int64_t> integers;
  // Counters of writes to the tensors, to notice changed weights; may be empty, and may be 0 for
  // tensors that are not among Executable::watched().
  std::span<const std::int64_t> versions = {};
  Host* host = nullptr;
  Check check = Check::full;
  // Arguments are donated: the host is told as soon as one is dead.
  bool donates_arguments = false;
  // Of a call that is captured: CPU tensors that kernels read are copies on the device.
  bool has_device_copies = false;
  StepObserver* observer = nullptr;
};

struct MemoryReport {
  std::int64_t arena_bytes = 0;    // of the latest shapes
  std::int64_t scratch_bytes = 0;  // kernels' scratch of all threads, library workspace
  std::int64_t packed_weight_bytes = 0;
  std::int64_t prepared_bytes = 0;  // results of prepare steps, all sets
};

class Executable {
 public:
  virtual ~Executable() = default;

  // Thread-safe. Throws UserError (a wrong argument, by name; an index out of range, with the
  // source line; out of memory), and what the host throws. After an exception, mutated arguments
  // hold anything; the Executable stays usable.
  virtual void run(const Call& call) = 0;

  // The same, timed: microseconds of each step, in order; 0 for prepare steps that were not due.
  [[nodiscard]] virtual std::vector<double> run_profiled(const Call& call) = 0;

  // Throws what kernels of earlier calls met after these had returned; run() does so first.
  virtual void throw_failures() {}
  // Why a call must not be captured as a CUDA graph; empty if it may.
  [[nodiscard]] virtual std::string why_not_captured() const { return "it runs on the CPU"; }

  // Whether the results of the prepare steps for these arguments are current, so that a CUDA graph
  // that reads them may be replayed.
  [[nodiscard]] virtual bool is_prepared(const Call& /*call*/) { return true; }

  [[nodiscard]] virtual const abi::Plan& plan() const = 0;
  [[nodiscard]] virtual const abi::Code& code() const = 0;
  // Tensor arguments, by number, that derived copies are kept of: their versions are of use.
  [[nodiscard]] virtual std::span<const std::uint32_t> watched() const = 0;
  [[nodiscard]] virtual MemoryReport memory() const = 0;
  // Name of the library's implementation of a step for the shapes seen last; empty for others.
  [[nodiscard]] virtual std::string implementation(std::size_t step) const = 0;
};

}  // namespace inkle::runtime::common
