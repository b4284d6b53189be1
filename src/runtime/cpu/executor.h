// Runs plans on the CPU. An Executable is made once of a plan and called often, from any number of
// threads at once: what one call changes lies in a Frame of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "abi/code.h"
#include "abi/plan.h"
#include "abi/tensor_view.h"
#include "runtime/cpu/common.h"
#include "runtime/cpu/library_step.h"
#include "runtime/cpu/memory_pool.h"
#include "runtime/cpu/weight_cache.h"

namespace inkle::runtime::cpu {

struct ExecutableOptions {
  // Working memory; null: a pool of its own. Executables that share one hold the memory of the
  // hungriest, not of all.
  std::shared_ptr<MemoryPool> memory;
  std::int64_t packed_weights_limit = std::int64_t{4} << 30;  // bytes
  // Results of prepare steps, of all sets of weights together; one set is kept however large.
  std::int64_t prepared_limit = std::int64_t{4} << 30;  // bytes
  // Fill arenas, outputs and scratch with this byte before use, to show reads of garbage; < 0: no.
  int poison = -1;
  // Whenever sizes change: that the plan asks for no memory beyond what there is. For plans of
  // files.
  bool check_bounds = false;
};

class Frame;

class Executable final : public common::Executable {
 public:
  // Checks the plan. Shapes that do not depend on arguments are planned and compiled here. Throws
  // UserError for a plan that makes no sense (packages come from files) and what compile() throws.
  explicit Executable(abi::PlanAndCode made, ExecutableOptions options = {});
  ~Executable() override;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  void run(const Call& call) override;
  [[nodiscard]] std::vector<double> run_profiled(const Call& call) override;
  [[nodiscard]] const abi::Plan& plan() const override { return *plan_; }
  [[nodiscard]] const abi::Code& code() const override { return *code_; }
  [[nodiscard]] std::span<const std::uint32_t> watched() const override { return watched_; }
  [[nodiscard]] MemoryReport memory() const override;
  [[nodiscard]] std::string implementation(std::size_t step) const override;

 private:
  friend class Frame;
  struct BoundStep;

  void align_constants();
  void make_steps();
  void add_library_step(const abi::LibraryCall& call, const std::string& source, bool prepare);
  void make_groups();
  [[nodiscard]] std::shared_ptr<std::byte> make_block(std::int64_t bytes) const;
  void release_outdated() const;
  [[nodiscard]] std::unique_ptr<Frame> take_frame();
  void run_with(const Call& call, double* microseconds);

  std::shared_ptr<const abi::Plan> plan_;
  std::shared_ptr<const abi::Code> code_;
  ExecutableOptions options_;
  SizeProgram sizes_;
  common::PlanFacts facts_;
  mutable WeightCache weights_;          // thread-safe
  std::vector<abi::LibraryCall> calls_;  // with roots for buffers; stable addresses
  std::vector<BoundStep> steps_;
  std::vector<std::unique_ptr<LibraryStep>> library_steps_;
  std::vector<PreparedGroup> groups_;
  std::vector<std::unique_ptr<PreparedSets>> sets_;  // by group
  std::vector<std::uint32_t> group_of_;              // by buffer, of those of kind prepared
  std::vector<std::uint32_t> watched_;
  std::vector<Block> constants_;  // aligned copies
  std::vector<void*> constant_data_;

  common::FramePool<Frame> frames_;
};

}  // namespace inkle::runtime::cpu
