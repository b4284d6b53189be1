// Runs plans on the CPU. An Executable is made once of a plan and called often, from any number of
// threads at once: what one call changes lies in a Frame of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "abi/plan.h"
#include "abi/tensor_view.h"
#include "runtime/cpu/host.h"
#include "runtime/cpu/library_step.h"
#include "runtime/cpu/memory_pool.h"
#include "runtime/cpu/prepared.h"
#include "runtime/cpu/size_program.h"
#include "runtime/cpu/weight_cache.h"

namespace inkle::runtime::cpu {

enum class Check : std::uint8_t {
  full,     // dtype, device, rank, sizes and strides of every argument
  trusted,  // the caller has checked those (Dynamo's guards): alignment only
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
};

struct ExecutableOptions {
  // Working memory; null: a pool of its own. Executables that share one hold the memory of the
  // hungriest, not of all.
  std::shared_ptr<MemoryPool> memory;
  std::int64_t packed_weights_limit = std::int64_t{4} << 30;  // bytes
  // Results of prepare steps, of all sets of weights together; one set is kept however large.
  std::int64_t prepared_limit = std::int64_t{4} << 30;  // bytes
  // Fill arenas, outputs and scratch with this byte before use, to show reads of garbage; < 0: no.
  int poison = -1;
};

struct MemoryReport {
  std::int64_t arena_bytes = 0;    // of the latest shapes
  std::int64_t scratch_bytes = 0;  // kernels' scratch of all threads, library workspace
  std::int64_t packed_weight_bytes = 0;
  std::int64_t prepared_bytes = 0;  // results of prepare steps, all sets
};

class Frame;

class Executable {
 public:
  // Checks the plan. Shapes that do not depend on arguments are planned and compiled here. Throws
  // UserError for a plan that makes no sense (packages come from files) and what compile() throws.
  explicit Executable(std::shared_ptr<const abi::Plan> plan, ExecutableOptions options = {});
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  // Thread-safe. Throws UserError (a wrong argument, by name; an index out of range, with the
  // source line; out of memory), and what the host throws. After an exception, mutated arguments
  // hold anything; the Executable stays usable.
  void run(const Call& call);

  // The same, timed: microseconds of each step, in order; 0 for prepare steps that were not due.
  [[nodiscard]] std::vector<double> run_profiled(const Call& call);

  [[nodiscard]] const abi::Plan& plan() const { return *plan_; }
  // Tensor arguments, by number, that derived copies are kept of: their versions are of use.
  [[nodiscard]] std::span<const std::uint32_t> watched() const { return watched_; }
  [[nodiscard]] MemoryReport memory() const;
  // Name of the library's implementation of a step for the shapes seen last; empty for others.
  [[nodiscard]] std::string implementation(std::size_t step) const;

 private:
  friend class Frame;
  struct Step;

  void resolve_aliases();
  void number_arguments();
  void align_constants();
  void check_outputs() const;
  void make_steps();
  void add_library_step(const abi::LibraryCall& call, bool prepare);
  void make_groups();
  void release_outdated() const;
  [[nodiscard]] std::unique_ptr<Frame> take_frame();
  void give_back(std::unique_ptr<Frame> frame);
  void run_with(const Call& call, double* microseconds);

  std::shared_ptr<const abi::Plan> plan_;
  ExecutableOptions options_;
  SizeProgram sizes_;
  mutable WeightCache weights_;              // thread-safe
  std::vector<abi::PlanBuffer> roots_;       // by buffer: itself, or what it is an alias of
  std::vector<std::int32_t> tensor_number_;  // by plan argument; -1 for integers
  std::uint32_t tensor_count_ = 0;
  std::uint32_t integer_count_ = 0;
  std::vector<std::vector<abi::PlanBuffer>> argument_buffers_;  // by plan argument
  std::vector<abi::PlanBuffer> output_buffers_;
  std::vector<abi::LibraryCall> calls_;  // with roots for buffers; stable addresses
  std::vector<Step> steps_;
  std::vector<std::unique_ptr<LibraryStep>> library_steps_;
  std::vector<PreparedGroup> groups_;
  std::vector<std::uint32_t> group_of_;  // by buffer, of those of kind prepared
  std::vector<std::uint32_t> watched_;
  std::vector<Block> constants_;  // aligned copies
  std::vector<void*> constant_data_;

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Frame>> idle_;
  MemoryReport report_;
  std::vector<std::string> implementations_;  // by library step
};

}  // namespace inkle::runtime::cpu
