#include "schedule/gemm_operand.h"

#include <algorithm>
#include <utility>

#include "loop/builder.h"
#include "schedule/gemm_epilogue.h"

namespace inkle::schedule {
namespace {

using loop::BodyBuilder;
using loop::BufferId;
using loop::Instruction;
using loop::Opcode;
using loop::Val;
using Replacements = std::vector<std::pair<Expr, Expr>>;

// The maker's loops in terms of the product's variables.
std::optional<Replacements> places(const LoopKernel& loops, Expr stored, Expr element,
                                   const GemmKernel& g, sym::Context& context) {
  std::vector<Dim> dims = loops.outer;
  const Stage& stage = loops.stages.front();
  dims.insert(dims.end(), stage.inner.begin(), stage.inner.end());
  const std::pair<Expr, Expr> batch = {g.variables[0], g.batch},
                              column = {g.variables[2], g.columns},
                              term = {g.variables[3], g.terms};
  using Levels = std::vector<std::pair<Expr, Expr>>;
  for (const Levels& levels : {Levels{batch, term, column}, Levels{batch, column, term}}) {
    const auto map = loops_over(dims, levels, context);
    if (map && sym::substitute(stored, *map) == element) return map;
  }
  return std::nullopt;
}

// Neighbouring columns read one element, or neighbours.
bool is_row(Expr offset, const GemmKernel& g) {
  if (!sym::contains(offset, g.variables[2])) return true;
  const auto stride = sym::stride(offset, g.variables[2]);
  return stride && stride->is_constant(1);
}

// The one load that has an element for each of the operand, in fewer bytes.
std::optional<std::size_t> narrow_load(const Body& body, const KernelStep& maker,
                                       const Replacements& map, const GemmKernel& g) {
  std::optional<std::size_t> found;
  for (std::size_t v = 0; v < body.instructions.size(); ++v) {
    const Instruction& i = body.instructions[v];
    if (i.opcode != Opcode::load) continue;
    if (i.operand_count != 0) return std::nullopt;
    const Expr offset = sym::substitute(i.indices[0], map);
    const bool has_all =
        sym::contains(offset, g.variables[2]) && sym::contains(offset, g.variables[3]);
    if (!has_all || abi::size_of(maker.kernel.params[i.buffer].dtype) >= 4) {
      if (!is_row(offset, g)) return std::nullopt;
      continue;
    }
    if (found) return std::nullopt;
    found = v;
  }
  return found;
}

}  // namespace

std::optional<ComputedOperand> computed_operand(const KernelStep& maker, BufferId operand,
                                                Expr element, const GemmKernel& g,
                                                sym::Context& context) {
  if (!is_plain_pointwise(maker)) return std::nullopt;
  const auto& loops = std::get<LoopKernel>(maker.kernel.body);
  if (loops.stages.size() != 1 || loops.stages.front().stores.size() != 1) return std::nullopt;
  const Stage& stage = loops.stages.front();
  const StageStore& store = stage.stores.front();
  if (maker.buffers[store.target] != operand) return std::nullopt;
  const auto map = places(loops, store.offset, element, g, context);
  if (!map) return std::nullopt;
  const auto narrow = narrow_load(stage.body, maker, *map, g);
  if (!narrow) return std::nullopt;
  ComputedOperand made;
  const Instruction& packed = stage.body.instructions[*narrow];
  made.packed = maker.buffers[packed.buffer];
  made.offset = sym::substitute(packed.indices[0], *map);
  BodyBuilder body(made.body, context);
  const auto on_load = [&](BodyBuilder& to, Instruction load) {
    if (maker.buffers[load.buffer] == made.packed && load.indices[0] == made.offset) {
      return to.row(0, load.dtype);
    }
    const BufferId from = maker.buffers[load.buffer];
    const auto at = std::find(made.buffers.begin(), made.buffers.end(), from);
    if (at == made.buffers.end()) made.params.push_back(maker.kernel.params[load.buffer]);
    load.buffer = static_cast<BufferId>(at - made.buffers.begin());
    if (load.buffer == made.buffers.size()) made.buffers.push_back(from);
    return to.append(std::move(load));
  };
  const std::vector<Val> yields = loop::inline_body(stage.body, *map, body, on_load);
  body.yield(body.cast(yields[store.yield], abi::DType::f32));
  return made;
}

}  // namespace inkle::schedule
