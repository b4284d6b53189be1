#include "schedule/density.h"

#include "schedule/linear.h"

namespace inkle::schedule {

using loop::Instruction;
using loop::Opcode;

std::vector<WeightedOffset> offsets_of(const Stage& stage, std::size_t param_count) {
  std::vector<WeightedOffset> result;
  const auto points = static_cast<double>(extent_hint(stage.inner));
  for (const Instruction& i : stage.body.instructions) {
    if (i.opcode == Opcode::load && i.buffer < param_count) {
      result.push_back({i.indices.front(), false, points, i.buffer});
    }
  }
  for (const StageStore& store : stage.stores) {
    if (store.target < param_count)
      result.push_back({store.offset, true, 2.0 * points, store.target});
  }
  return result;
}

double density(const std::vector<WeightedOffset>& offsets, Expr variable) {
  double score = 0;
  for (const auto& [offset, is_store, weight, buffer] : offsets) {
    if (!sym::contains(offset, variable)) continue;
    const auto stride = sym::stride(offset, variable);
    if (stride && stride->is_constant(1)) {
      score += weight;
    } else {
      score -= weight;
    }
  }
  return score;
}

std::vector<WeightedOffset> all_offsets(const LoopKernel& kernel, std::size_t param_count) {
  std::vector<WeightedOffset> all;
  for (const Stage& stage : kernel.stages) {
    const auto offsets = offsets_of(stage, param_count);
    all.insert(all.end(), offsets.begin(), offsets.end());
  }
  return all;
}

}  // namespace inkle::schedule
