// numerics=fast: removes a rounding to f16 or bf16 whose result the next op widens again.
#include <optional>

#include "loop/builder.h"
#include "schedule/numerics.h"

namespace inkle::schedule {
namespace {

using loop::Instruction;
using loop::Opcode;
using loop::Val;

// The value before rounding, if `v` widens it again to the type that it had.
std::optional<Val> rounded_twice(const loop::Body& body, Val v) {
  const Instruction& wide = body[v];
  if (wide.opcode != Opcode::cast) return std::nullopt;
  const Instruction& narrow = body[wide.operands[0]];
  if (narrow.opcode != Opcode::cast || !abi::is_reduced_float(narrow.dtype)) return std::nullopt;
  const Val before = narrow.operands[0];
  if (body[before].dtype != wide.dtype || !abi::is_float(wide.dtype)) return std::nullopt;
  return before;
}

void drop_roundings(loop::Body& body, const std::vector<StageStore>& stores) {
  std::vector<Val> now(body.instructions.size());
  bool changed = false;
  for (Val v = 0; v < now.size(); ++v) {
    Instruction& i = body.instructions[v];
    for (std::uint8_t o = 0; o < i.operand_count; ++o) i.operands[o] = now[i.operands[o]];
    const auto before = rounded_twice(body, v);
    now[v] = before.value_or(v);
    changed = changed || before.has_value();
  }
  if (!changed) return;
  for (Val& v : body.yields) v = now[v];
  std::vector<Expr> indices;
  for (const StageStore& store : stores) indices.push_back(store.offset);
  loop::drop_unused(body, std::move(indices));
}

void drop_roundings(LoopKernel& loops) {
  for (Stage& stage : loops.stages) drop_roundings(stage.body, stage.stores);
}

}  // namespace

void drop_roundings(std::vector<Step>& steps) {
  for (Step& step : steps) {
    auto* kernel = std::get_if<KernelStep>(&step.action);
    if (kernel == nullptr) continue;
    for_each_loops(kernel->kernel, [](LoopKernel& loops) { drop_roundings(loops); });
    if (auto* gemm = std::get_if<GemmKernel>(&kernel->kernel.body)) {
      drop_roundings(gemm->epilogue, gemm->stores);
    }
  }
}

}  // namespace inkle::schedule
