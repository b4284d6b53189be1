// What stages hand to each other: values kept in registers from pass to pass, and memory behind
// barriers.
#include <algorithm>

#include "base/error.h"
#include "codegen/cuda/operation.h"
#include "codegen/cuda/stage.h"

namespace inkle::codegen::cuda {

using loop::Instruction;
using loop::Opcode;
using loop::ReduceOp;
using schedule::StageKind;
using schedule::StageStore;

namespace {

// Registers of a thread for what a row keeps; beyond, functions are computed again rather than kept
// (half of what 512 threads of each of two blocks of a multiprocessor can have).
constexpr std::int64_t kMostKeptRegisters = 48;

}  // namespace

// Values are kept from pass to pass of one iteration.
void StageText::plan_passes() {
  const bool keep = blocks_.keep && by_rows();
  const auto add = [&](bool in_each) {
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const Stage& stage = stages_[s].stage;
      if ((stage.phase == schedule::Phase::each) != in_each) continue;
      passes_.push_back({s, 0});
      if (keep && stage.kind == StageKind::reduction && stage.reduce == ReduceOp::welford &&
          !stage.inner.empty()) {
        passes_.push_back({s, 1});
      }
    }
  };
  add(true);
  if (keep) {
    keep_ = plan_kept(stages_, passes_, false);
    if (kept_registers() > kMostKeptRegisters) keep_ = plan_kept(stages_, passes_, true);
  }
  add(false);
  keep_.known.resize(passes_.size());
}

std::int64_t StageText::kept_registers() const {
  std::int64_t bytes = 0;
  for (const KeptValue& kept : keep_.kept) {
    const Stage& stage = stages_[passes_[kept.first_pass].stage].stage;
    const std::int64_t step = std::int64_t{blocks_.team} * blocks_.cluster * blocks_.lanes;
    const std::int64_t count = (*stage.inner.front().extent.constant() + step - 1) / step;
    bytes += count * blocks_.lanes * abi::size_of(kept.dtype);
  }
  return bytes / 4;
}

// --- Memory between stages ---------------------------------------------------------------------

bool StageText::needs_barrier(const Stage& stage) const {
  return std::any_of(
      stage.body.instructions.begin(), stage.body.instructions.end(),
      [&](const Instruction& i) { return i.opcode == Opcode::load && dirty_[i.buffer]; });
}

void StageText::barrier() {
  std::fill(dirty_.begin(), dirty_.end(), false);
  if (blocks_.team == 1) return;
  if (blocks_.cluster > 1) {
    unsupported("kernel {}: stages of a cluster pass values through memory", kernel_.kernel.name);
  }
  if (by_rows() && blocks_.team <= 32) {
    out_.line("__syncwarp(team<{}>());", blocks_.team);
  } else {
    out_.raw("__syncthreads();");
  }
}

void StageText::note_written(const Stage& stage) {
  const std::size_t params = kernel_.kernel.params.size();
  for (const StageStore& store : stage.stores) {
    // What a walk gathers is in the registers of the one thread that uses it.
    const bool own = store.target >= params && kernel_.loops.scratch[store.target - params].walks;
    dirty_[store.target] = !own;
  }
}

bool StageText::is_read_again(const Stage& stage) const {
  const auto reads = [](const Stage& other, std::uint32_t buffer) {
    return !other.inner.empty() &&
           std::any_of(other.body.instructions.begin(), other.body.instructions.end(),
                       [&](const Instruction& i) {
                         return i.opcode == Opcode::load && i.buffer == buffer;
                       });
  };
  bool is_later = false;
  for (const PreparedStage& other : stages_) {
    if (is_later && std::any_of(stage.body.instructions.begin(), stage.body.instructions.end(),
                                [&](const Instruction& i) {
                                  return i.opcode == Opcode::load && reads(other.stage, i.buffer);
                                })) {
      return true;
    }
    is_later = is_later || &other.stage == &stage;
  }
  return false;
}

void StageText::declare_kept() {
  for (const std::uint32_t r : [&] {
         std::vector<std::uint32_t> rows;
         for (const PreparedStage& s : stages_) {
           rows.insert(rows.end(), s.rows.begin(), s.rows.end());
         }
         return rows;
       }()) {
    const std::string type = type_of(kernel_.loops.rows.at(r));
    if (kernel_.rows_have_lanes)
      out_.line("Pack<{}, {}> r{};", type, blocks_.lanes, r);
    else
      out_.line("{} r{};", type, r);
  }
  for (std::size_t k = 0; k < keep_.kept.size(); ++k) {
    const Stage& stage = stages_[passes_[keep_.kept[k].first_pass].stage].stage;
    const std::int64_t step = std::int64_t{blocks_.team} * blocks_.cluster * blocks_.lanes;
    const std::int64_t size =
        *stage.inner.front().extent.constant() + (skew_of(stage).is_null() ? 0 : blocks_.lanes - 1);
    const std::int64_t count = (size + step - 1) / step;
    const std::string type = type_of(keep_.kept[k].dtype);
    if (blocks_.lanes > 1)
      out_.line("Pack<{}, {}> c{}[{}];", type, blocks_.lanes, k, count);
    else
      out_.line("{} c{}[{}];", type, k, count);
  }
}

}  // namespace inkle::codegen::cuda
