#include "schedule/numerics.h"

#include <fmt/format.h>

#include <algorithm>

namespace inkle::schedule {
namespace {

using loop::Nest;
using loop::NestKind;
using loop::Program;
using loop::ReduceOp;

// Whether the result depends on the order of the terms; a min or max does for +0 and -0.
bool has_order(const Nest& nest) {
  if (nest.kind != NestKind::reduction || nest.stores.empty()) return false;
  if (!abi::is_float(nest.accumulator)) return false;
  switch (nest.reduce) {
    case ReduceOp::sum:
    case ReduceOp::prod:
    case ReduceOp::min:
    case ReduceOp::max:
    case ReduceOp::welford:
    case ReduceOp::online_softmax:
      return true;
    case ReduceOp::argmin:
    case ReduceOp::argmax:
    case ReduceOp::any:
    case ReduceOp::all:
      return false;
  }
  return false;
}

// The loops around the reduced ones must not matter: one of them may be the batch.
Association association_of(const Nest& nest) {
  const auto last = std::find_if(nest.reduced.rbegin(), nest.reduced.rend(),
                                 [](const loop::Dim& dim) { return !dim.extent.is_constant(1); });
  if (last == nest.reduced.rend()) return Association::columns;
  for (const loop::Instruction& i : nest.body.instructions) {
    if (i.opcode != loop::Opcode::load || i.indices.empty()) continue;
    const bool moves = std::any_of(i.indices.begin(), i.indices.end(),
                                   [&](sym::Expr e) { return sym::contains(e, last->variable); });
    if (moves && !sym::contains(i.indices.back(), last->variable)) return Association::columns;
  }
  return Association::rows;
}

// Whether GPU threads may share the terms of one of its sums.
bool is_float_sum(const Stage& stage) {
  const bool adds = stage.reduce == ReduceOp::sum || stage.reduce == ReduceOp::prod ||
                    stage.reduce == ReduceOp::welford || stage.reduce == ReduceOp::online_softmax;
  const bool combines = stage.kind == StageKind::reduction || stage.kind == StageKind::scan;
  return combines && adds && abi::is_float(stage.accumulator);
}

// Whether GPU threads may add to one float element with atomics.
bool adds_to_floats(const Kernel& kernel, const Stage& stage) {
  return std::any_of(stage.stores.begin(), stage.stores.end(), [&](const StageStore& store) {
    return store.mode == loop::StoreMode::atomic_add && store.target < kernel.params.size() &&
           abi::is_float(kernel.params[store.target].dtype);
  });
}

std::string why_not_invariant(const Kernel& kernel) {
  const auto* loops = std::get_if<LoopKernel>(&kernel.body);
  if (loops == nullptr) return {};
  const std::vector<Stage>& stages = loops->stages;
  if (std::any_of(stages.begin(), stages.end(), is_float_sum)) {
    return "the number of GPU threads that share a sum depends on how many sums there are";
  }
  const bool adds = std::any_of(stages.begin(), stages.end(),
                                [&](const Stage& stage) { return adds_to_floats(kernel, stage); });
  return adds ? "GPU threads add to an element in any order" : "";
}

std::string why_not_invariant(const Step& step, bool in_blocks) {
  if (std::holds_alternative<MatmulStep>(step.action)) {
    return in_blocks ? "the library's matrix products have an order of their own for each size"
                     : "the GEMM template does not support this matrix product";
  }
  if (std::holds_alternative<ConvolutionStep>(step.action)) {
    return "the library's convolutions may have an order of their own for each size";
  }
  if (std::holds_alternative<AttentionStep>(step.action)) {
    return "the library's attention may have an order of its own for each size";
  }
  if (std::holds_alternative<EagerStep>(step.action)) return "it runs in eager";
  return in_blocks ? why_not_invariant(std::get<KernelStep>(step.action).kernel) : "";
}

}  // namespace

bool fixes_order(const Options& options) {
  return options.numerics == abi::Numerics::batch_invariant && !options.target.has_blocks;
}

Associations associations_of(const Program& program) {
  Associations result;
  for (const Nest& nest : program.nests) {
    if (has_order(nest)) result.emplace(nest.stores.front().buffer, association_of(nest));
  }
  return result;
}

void add_contractions(const Program& program, Associations& associations) {
  for (const Nest& nest : program.nests) {
    if (has_order(nest)) {
      associations.try_emplace(nest.stores.front().buffer, Association::columns);
    }
  }
}

std::vector<NotHeld> not_held(const ScheduledProgram& scheduled, const Options& options) {
  std::vector<NotHeld> result;
  if (options.numerics != abi::Numerics::batch_invariant) return result;
  const bool in_blocks = options.target.has_blocks;
  for (const Step& step : scheduled.steps) {
    std::string reason = why_not_invariant(step, in_blocks);
    if (reason.empty()) continue;
    std::string source = fmt::format("{}", fmt::join(step.sources, ", "));
    result.push_back({step.label, std::move(source), std::move(reason)});
  }
  return result;
}

}  // namespace inkle::schedule
