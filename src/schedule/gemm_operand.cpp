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

using Levels = std::vector<std::pair<Expr, Expr>>;

// The maker's loops in terms of the product's variables, of which `levels` are a batch and the
// others.
std::optional<Replacements> places(const LoopKernel& loops, Expr stored, Expr element,
                                   const Levels& levels, sym::Context& context) {
  std::vector<Dim> dims = loops.outer;
  const Stage& stage = loops.stages.front();
  dims.insert(dims.end(), stage.inner.begin(), stage.inner.end());
  for (const Levels& order : {levels, Levels{levels[0], levels[2], levels[1]}}) {
    const auto map = loops_over(dims, order, context);
    if (map && sym::substitute(stored, *map) == element) return map;
  }
  return std::nullopt;
}

// Of a kernel that stores nothing but the operand.
const Stage* only_stage(const KernelStep& maker, BufferId operand) {
  if (!is_plain_pointwise(maker)) return nullptr;
  const auto& loops = std::get<LoopKernel>(maker.kernel.body);
  if (loops.stages.size() != 1 || loops.stages.front().stores.size() != 1) return nullptr;
  const Stage& stage = loops.stages.front();
  return maker.buffers[stage.stores.front().target] == operand ? &stage : nullptr;
}

// The position of a load's buffer among those of the product that are `made`'s.
template <class Made>
BufferId position(Made& made, const KernelStep& maker, BufferId load) {
  const BufferId from = maker.buffers[load];
  const auto at = std::find(made.buffers.begin(), made.buffers.end(), from);
  const auto found = static_cast<BufferId>(at - made.buffers.begin());
  if (found == made.buffers.size()) {
    made.buffers.push_back(from);
    made.params.push_back(maker.kernel.params[load]);
  }
  return found;
}

// Uniform or contiguous along a variable.
bool is_row(Expr offset, Expr variable) {
  if (!sym::contains(offset, variable)) return true;
  const auto stride = sym::stride(offset, variable);
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
      if (!is_row(offset, g.variables[2])) return std::nullopt;
      continue;
    }
    if (found) return std::nullopt;
    found = v;
  }
  return found;
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

std::optional<ComputedOperand> computed_operand(const KernelStep& maker, BufferId operand,
                                                Expr element, const GemmKernel& g,
                                                sym::Context& context) {
  const Stage* const stage = only_stage(maker, operand);
  if (stage == nullptr) return std::nullopt;
  const StageStore& store = stage->stores.front();
  const auto map = places(
      std::get<LoopKernel>(maker.kernel.body), store.offset, element,
      {{g.variables[0], g.batch}, {g.variables[3], g.terms}, {g.variables[2], g.columns}}, context);
  if (!map) return std::nullopt;
  const auto narrow = narrow_load(stage->body, maker, *map, g);
  if (!narrow) return std::nullopt;
  ComputedOperand made;
  const Instruction& packed = stage->body.instructions[*narrow];
  made.packed = maker.buffers[packed.buffer];
  made.offset = sym::substitute(packed.indices[0], *map);
  BodyBuilder body(made.body, context);
  const auto on_load = [&](BodyBuilder& to, Instruction load) {
    if (maker.buffers[load.buffer] == made.packed && load.indices[0] == made.offset) {
      return to.row(0, load.dtype);
    }
    load.buffer = position(made, maker, load.buffer);
    return to.append(std::move(load));
  };
  const std::vector<Val> yields = loop::inline_body(stage->body, *map, body, on_load);
  body.yield(body.cast(yields[store.yield], abi::DType::f32));
  return made;
}

namespace {

// What makes the left operand, and its loops in terms of the product's variables.
struct LeftStage {
  const Stage& stage;
  const StageStore& store;
  Replacements map;
};

std::optional<LeftStage> left_stage(const KernelStep& maker, BufferId operand, const GemmKernel& g,
                                    sym::Context& context) {
  const Stage* const stage = only_stage(maker, operand);
  if (stage == nullptr) return std::nullopt;
  const StageStore& store = stage->stores.front();
  auto map = places(
      std::get<LoopKernel>(maker.kernel.body), store.offset, g.a,
      {{g.variables[0], g.batch}, {g.variables[1], g.rows}, {g.variables[3], g.terms}}, context);
  if (!map) return std::nullopt;
  return LeftStage{*stage, store, std::move(*map)};
}

// As it would have been stored.
void yield_left(BodyBuilder& body, Val value, const KernelStep& maker, const StageStore& store) {
  const Val stored = body.cast(value, maker.kernel.params[store.target].dtype);
  body.yield(body.cast(stored, abi::DType::f32));
}

}  // namespace

std::optional<ComputedLeft> computed_left(const KernelStep& maker, BufferId operand,
                                          const GemmKernel& g, sym::Context& context) {
  const auto left = left_stage(maker, operand, g, context);
  if (!left) return std::nullopt;
  const auto& [stage, store, map] = *left;
  for (const Instruction& i : stage.body.instructions) {
    if (i.opcode == Opcode::random || i.opcode == Opcode::row) return std::nullopt;
    if (i.opcode == Opcode::load && !is_row(sym::substitute(i.indices[0], map), g.variables[3])) {
      return std::nullopt;
    }
  }
  ComputedLeft made;
  BodyBuilder body(made.body, context);
  const auto on_load = [&](BodyBuilder& to, Instruction load) {
    load.buffer = position(made, maker, load.buffer);
    return to.append(std::move(load));
  };
  yield_left(body, loop::inline_body(stage.body, map, body, on_load)[store.yield], maker, store);
  if (made.buffers.empty()) return std::nullopt;
  return made;
}

std::optional<CopiedLeft> copied_left(const KernelStep& maker, BufferId operand,
                                      const GemmKernel& g, sym::Context& context) {
  const auto left = left_stage(maker, operand, g, context);
  if (!left) return std::nullopt;
  const auto& [stage, store, map] = *left;
  const auto all = load_of_all(stage.body, maker, map, g);
  if (!all) return std::nullopt;
  CopiedLeft made;
  const Instruction& copied = stage.body.instructions[*all];
  made.offset = sym::substitute(copied.indices[0], map);
  const auto view = view_of(maker.buffers[copied.buffer], made.offset, g, context);
  if (!view) return std::nullopt;
  made.copied = *view;
  BodyBuilder body(made.computed.body, context);
  const auto on_load = [&](BodyBuilder& to, Instruction load) {
    if (maker.buffers[load.buffer] == made.copied.buffer && load.indices[0] == made.offset) {
      return to.row(0, load.dtype);
    }
    load.buffer = position(made.computed, maker, load.buffer);
    return to.append(std::move(load));
  };
  yield_left(body, loop::inline_body(stage.body, map, body, on_load)[store.yield], maker, store);
  return made;
}

}  // namespace inkle::schedule
