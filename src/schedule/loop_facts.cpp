#include "schedule/loop_facts.h"

#include <algorithm>

#include "schedule/linear.h"

namespace inkle::schedule {

using loop::Opcode;

namespace {

// Shorter rows that are not divisible by the vector width are read element by element.
constexpr std::int64_t kLeastRaggedRow = 512;

}  // namespace

LoopFacts::LoopFacts(const Kernel& kernel, const abi::Target& device, sym::Context& context)
    : kernel_(kernel),
      loops_(std::get<LoopKernel>(kernel.body)),
      device_(device),
      context_(context) {}

std::vector<WeightedOffset> LoopFacts::offsets() const {
  return all_offsets(loops_, kernel_.params.size());
}

std::optional<std::size_t> LoopFacts::column_loop() const {
  double best = 0;
  for (const Stage& stage : loops_.stages) {
    if (stage.inner.empty() || stage.kind == StageKind::scatter) continue;
    best += density(offsets_of(stage, kernel_.params.size()), stage.inner.back().variable);
  }
  std::optional<std::size_t> found;
  for (std::size_t d = 0; d < loops_.outer.size(); ++d) {
    const double score = density(offsets(), loops_.outer[d].variable);
    if (sym::hint(loops_.outer[d].extent).value_or(4096) < 4 || score <= best) continue;
    best = score;
    found = d;
  }
  return found;
}

std::int32_t LoopFacts::lanes_along(Expr variable, Expr extent, bool may_end_ragged) const {
  std::int64_t narrowest = kAccess;
  for (const WeightedOffset& access : offsets()) {
    const auto stride = sym::stride(access.offset, variable);
    const bool dense = sym::contains(access.offset, variable) && stride && stride->is_constant(1);
    if (!dense) continue;
    narrowest = std::min(narrowest, abi::size_of(kernel_.params[access.buffer].dtype));
  }
  if (narrowest == kAccess) return 1;
  auto lanes = static_cast<std::int32_t>(std::min<std::int64_t>(kAccess / narrowest, kMostLanes));
  while (lanes > 1 && !may_end_ragged && !sym::divides(lanes, extent)) lanes /= 2;
  return lanes;
}

bool LoopFacts::has_odd_rows() const {
  if (loops_.outer.size() < 2 || loops_.stages.size() != 1 || kernel_.instances > 1 ||
      loops_.stages[0].kind != StageKind::pointwise) {
    return false;
  }
  const Dim& last = loops_.outer.back();
  if (!last.extent.is_constant() || *last.extent.constant() < kLeastRaggedRow) return false;
  const std::int64_t rows = extent_hint(loops_.outer) / *last.extent.constant();
  if (rows < 4 * std::int64_t{device_.parallelism}) return false;
  // Vector accesses start at the same indices in all buffers.
  Expr common;
  for (const WeightedOffset& access : offsets()) {
    if (!sym::contains(access.offset, last.variable)) continue;
    const auto stride = sym::stride(access.offset, last.variable);
    const bool is_dense = stride && stride->is_constant(1);
    if (!is_dense || (!common.is_null() && !(common == access.offset))) return false;
    common = access.offset;
  }
  return lanes_along(last.variable, last.extent, false) <
         lanes_along(last.variable, last.extent, true);
}

Expr LoopFacts::longest() const {
  Expr longest;
  std::int64_t most = -1;
  for (const Stage& stage : loops_.stages) {
    if (stage.inner.empty()) continue;
    const std::int64_t hint = extent_hint(stage.inner);
    if (hint > most) longest = extent_product(stage.inner, context_);
    most = std::max(most, hint);
  }
  return longest;
}

std::int32_t LoopFacts::row_lanes() const {
  std::int32_t lanes = kMostLanes;
  bool dense_somewhere = false;
  for (const Stage& stage : loops_.stages) {
    if (stage.inner.empty() || stage.phase != Phase::each) continue;
    const Expr extent = stage.inner.back().extent;
    std::int64_t narrowest = kAccess;
    for (const WeightedOffset& access : offsets_of(stage, kernel_.params.size())) {
      const auto stride = sym::stride(access.offset, stage.inner.back().variable);
      const bool dense = sym::contains(access.offset, stage.inner.back().variable) && stride &&
                         stride->is_constant(1);
      if (dense) {
        narrowest = std::min(narrowest, abi::size_of(kernel_.params[access.buffer].dtype));
      }
    }
    if (narrowest < kAccess) {
      lanes = std::min<std::int32_t>(lanes, static_cast<std::int32_t>(kAccess / narrowest));
    }
    dense_somewhere = dense_somewhere || narrowest < kAccess;
    // Rows of one loop may start and end in the middle of an access.
    const bool may_be_ragged =
        stage.inner.size() == 1 && extent_hint(stage.inner) >= kLeastRaggedRow;
    while (lanes > 1 && !may_be_ragged && !sym::divides(lanes, extent)) lanes /= 2;
  }
  return dense_somewhere ? lanes : 1;
}

std::int64_t LoopFacts::handed_over() const {
  std::vector<bool> is_read(loops_.scratch.size(), false);
  for (const Stage& stage : loops_.stages) {
    for (const loop::Instruction& i : stage.body.instructions) {
      if (i.opcode != Opcode::load || i.buffer < kernel_.params.size()) continue;
      if (!is_read_in_place(i, stage)) is_read[i.buffer - kernel_.params.size()] = true;
    }
  }
  std::int64_t bytes = 0;
  for (std::size_t s = 0; s < loops_.scratch.size(); ++s) {
    const Scratch& scratch = loops_.scratch[s];
    if (!is_read[s] || scratch.is_carried || scratch.elements.is_constant(1)) continue;
    bytes += sym::hint(scratch.elements).value_or(4096) * abi::size_of(scratch.dtype);
  }
  return bytes;
}

bool LoopFacts::is_read_in_place(const loop::Instruction& load, const Stage& reader) const {
  const auto is_dense = [&](Expr offset, const Stage& stage) {
    Expr running = context_.constant(1), dense = context_.constant(0);
    for (std::size_t d = stage.inner.size(); d-- > 0;) {
      dense = dense + stage.inner[d].variable * running;
      running = running * stage.inner[d].extent;
    }
    return offset == dense;
  };
  for (const Stage& stage : loops_.stages) {
    for (const StageStore& store : stage.stores) {
      if (store.target != load.buffer) continue;
      return extent_product(stage.inner, context_) == extent_product(reader.inner, context_) &&
             is_dense(store.offset, stage) && is_dense(load.indices[0], reader);
    }
  }
  return false;
}

bool LoopFacts::inner_is_constant() const {
  return std::all_of(loops_.stages.begin(), loops_.stages.end(), [](const Stage& stage) {
    return std::all_of(stage.inner.begin(), stage.inner.end(), [](const Dim& loop) {
      const auto extent = loop.extent.constant();
      return extent && *extent > 0;
    });
  });
}

bool LoopFacts::has_position(const Stage& stage) {
  return stage.kind == StageKind::reduction &&
         (stage.reduce == loop::ReduceOp::argmin || stage.reduce == loop::ReduceOp::argmax);
}

bool LoopFacts::searches(const Stage& stage) const {
  if (!has_position(stage) || stage.inner.empty()) return false;
  const Expr extent = extent_product(stage.inner, context_);
  const auto length = extent.constant();
  const std::int32_t lanes = row_lanes();
  return length && sym::divides(lanes, extent) &&
         *length <= lanes * device_.blocks.searched_accesses * device_.block_threads;
}

bool LoopFacts::reads_again() const {
  std::size_t passes = 0;
  const Stage* before = nullptr;
  for (const Stage& stage : loops_.stages) {
    if (stage.inner.empty()) continue;
    // A maximum and the sum of exponentials below it share one pass (online softmax).
    const bool together = before != nullptr && before->kind == StageKind::reduction &&
                          before->reduce == loop::ReduceOp::max &&
                          stage.kind == StageKind::reduction &&
                          stage.reduce == loop::ReduceOp::sum &&
                          stage.body[stage.body.yields[0]].opcode == Opcode::exp;
    before = &stage;
    if (together) continue;
    ++passes;
    if (stage.kind == StageKind::reduction && stage.reduce == loop::ReduceOp::welford) ++passes;
    if (searches(stage)) ++passes;
  }
  return passes > 1;
}

std::int64_t LoopFacts::row_loads() const {
  std::int64_t most = 0;
  for (const Stage& stage : loops_.stages) {
    if (stage.inner.empty()) continue;
    most = std::max(most, std::count_if(stage.body.instructions.begin(),
                                        stage.body.instructions.end(), [&](const auto& i) {
                                          return i.opcode == Opcode::load && is_of_row(i);
                                        }));
  }
  return most;
}

bool LoopFacts::stores_rows() const {
  const Stage& last = loops_.stages.back();
  return last.kind == StageKind::pointwise && !last.inner.empty();
}

bool LoopFacts::is_of_row(const loop::Instruction& load) const {
  return load.buffer < kernel_.params.size() &&
         std::any_of(loops_.outer.begin(), loops_.outer.end(),
                     [&](const Dim& dim) { return sym::contains(load.indices[0], dim.variable); });
}

bool LoopFacts::is_part() const {
  return loops_.outer.size() == 1 && loops_.stages.size() == 2 &&
         loops_.stages.front().kind == StageKind::reduction &&
         loops_.stages.back().stores.size() == 1;
}

std::int64_t LoopFacts::streams() const {
  std::int64_t count = 0;
  for (const Stage& stage : loops_.stages) {
    if (stage.inner.empty()) continue;
    for (const loop::Instruction& i : stage.body.instructions) {
      if (i.opcode == Opcode::load && sym::contains(i.indices[0], stage.inner.back().variable)) {
        ++count;
      }
    }
  }
  return count;
}

}  // namespace inkle::schedule
