#include "schedule/gemm_left.h"

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
std::optional<Replacements> places(const LoopKernel& loops, Expr stored, const GemmKernel& g,
                                   sym::Context& context) {
  std::vector<Dim> dims = loops.outer;
  const Stage& stage = loops.stages.front();
  dims.insert(dims.end(), stage.inner.begin(), stage.inner.end());
  const std::pair<Expr, Expr> batch = {g.variables[0], g.batch}, row = {g.variables[1], g.rows},
                              term = {g.variables[3], g.terms};
  using Levels = std::vector<std::pair<Expr, Expr>>;
  for (const Levels& levels : {Levels{batch, row, term}, Levels{batch, term, row}}) {
    const auto map = loops_over(dims, levels, context);
    if (map && sym::substitute(stored, *map) == g.a) return map;
  }
  return std::nullopt;
}

// The one load that has an element for each of the operand.
std::optional<std::size_t> load_of_all(const Body& body, const KernelStep& maker,
                                       const Replacements& map, const GemmKernel& g) {
  std::optional<std::size_t> found;
  for (std::size_t v = 0; v < body.instructions.size(); ++v) {
    const Instruction& i = body.instructions[v];
    if (i.opcode == Opcode::indirect || i.opcode == Opcode::random) return std::nullopt;
    if (i.opcode != Opcode::load) continue;
    if (i.operand_count != 0) return std::nullopt;
    const Expr offset = sym::substitute(i.indices[0], map);
    if (!sym::contains(offset, g.variables[1]) || !sym::contains(offset, g.variables[3])) continue;
    if (found || maker.kernel.params[i.buffer].dtype != abi::DType::bf16) return std::nullopt;
    found = v;
  }
  return found;
}

// Rows and terms a fixed distance apart, from the buffer's first element on.
std::optional<View> view_of(BufferId buffer, Expr offset, const GemmKernel& g,
                            sym::Context& context) {
  View view;
  view.buffer = buffer;
  view.offset = context.constant(0);
  Expr rest = offset;
  const std::pair<Expr, Expr> dims[] = {
      {g.variables[0], g.batch}, {g.variables[1], g.rows}, {g.variables[3], g.terms}};
  for (const auto& [variable, extent] : dims) {
    Expr stride = context.constant(0);
    if (!variable.is_constant() && sym::contains(offset, variable)) {
      const auto found = sym::stride(offset, variable);
      if (!found) return std::nullopt;
      stride = *found;
    }
    view.sizes.push_back(extent);
    view.strides.push_back(stride);
    rest = rest - stride * variable;
  }
  if (!rest.is_constant(0)) return std::nullopt;
  return view;
}

}  // namespace

std::optional<LeftOperand> left_operand(const KernelStep& maker, BufferId operand,
                                        const GemmKernel& g, sym::Context& context) {
  if (!is_plain_pointwise(maker)) return std::nullopt;
  const auto& loops = std::get<LoopKernel>(maker.kernel.body);
  if (loops.stages.size() != 1 || loops.stages.front().stores.size() != 1) return std::nullopt;
  const Stage& stage = loops.stages.front();
  const StageStore& store = stage.stores.front();
  if (maker.buffers[store.target] != operand) return std::nullopt;
  const auto map = places(loops, store.offset, g, context);
  if (!map) return std::nullopt;
  const auto all = load_of_all(stage.body, maker, *map, g);
  if (!all) return std::nullopt;
  LeftOperand made;
  const Instruction& copied = stage.body.instructions[*all];
  made.offset = sym::substitute(copied.indices[0], *map);
  const auto view = view_of(maker.buffers[copied.buffer], made.offset, g, context);
  if (!view) return std::nullopt;
  made.copied = *view;
  BodyBuilder body(made.body, context);
  const auto on_load = [&](BodyBuilder& to, Instruction load) {
    const BufferId from = maker.buffers[load.buffer];
    if (from == made.copied.buffer && load.indices[0] == made.offset) return to.row(0, load.dtype);
    const auto at = std::find(made.buffers.begin(), made.buffers.end(), from);
    if (at == made.buffers.end()) made.params.push_back(maker.kernel.params[load.buffer]);
    load.buffer = static_cast<BufferId>(at - made.buffers.begin());
    if (load.buffer == made.buffers.size()) made.buffers.push_back(from);
    return to.append(std::move(load));
  };
  const std::vector<Val> yields = loop::inline_body(stage.body, *map, body, on_load);
  body.yield(body.cast(yields[store.yield], abi::DType::bf16));
  return made;
}

}  // namespace inkle::schedule
