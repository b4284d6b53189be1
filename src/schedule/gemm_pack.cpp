#include "schedule/gemm_pack.h"

#include <optional>
#include <utility>

#include "loop/builder.h"
#include "schedule/buffers.h"
#include "schedule/gemm_steps.h"
#include "schedule/loops.h"
#include "schedule/stages.h"

namespace inkle::schedule {

using loop::BodyBuilder;
using loop::BufferId;
using loop::Val;

namespace {

// Those of a pair are neighbours, or 16 apart where the product packs the left operand in vectors.
Expr term_of_pair(const GemmKernel& g, Expr pair, Expr half) {
  constexpr std::int64_t kLanes = 16;
  if (g.left_terms.is_null()) return pair * 2 + half;
  return sym::floordiv(pair, kLanes) * (2 * kLanes) + sym::mod(pair, kLanes) + half * kLanes;
}

// Terms of panels.
Expr depth(const GemmKernel& g) {
  constexpr std::int64_t kTile = 16;
  return g.tiles ? sym::ceildiv(g.terms, kTile) * kTile : g.terms;
}

// From b to panels, at loops of these variables.
Stage pack_stage(const RightOperand& b, const GemmKernel& g, abi::DType dtype,
                 const std::vector<Expr>& v, const std::vector<Expr>& strides,
                 sym::Context& context) {
  Stage stage;
  BodyBuilder body(stage.body, context);
  const Expr column = v[1] * g.panel + v[3];
  const Expr term = g.pairs ? term_of_pair(g, v[2], v[4]) : v[2];
  std::vector<std::pair<Expr, Expr>> map;
  const Expr at[] = {b.is_shared ? context.constant(0) : v[0], column, term};
  const Expr of[] = {g.variables[0], g.variables[2], g.variables[3]};
  for (std::size_t i = 0; i < std::size(at); ++i) {
    if (!of[i].is_constant()) map.emplace_back(of[i], at[i]);
  }
  const std::vector<Expr> from = {sym::substitute(b.offset, map)};
  std::optional<Val> exists;
  if (!sym::divides(g.panel, g.columns)) {
    exists = body.less(body.index(column), body.index(g.columns));
  }
  const Expr terms = !g.left_terms.is_null() ? g.left_terms : g.pairs ? g.terms * 2 : g.terms;
  if (terms != (g.pairs ? depth(g) * 2 : depth(g))) {
    const Val is_term = body.less(body.index(term), body.index(terms));
    exists = exists ? body.logical_and(*exists, is_term) : is_term;
  }
  body.yield(exists ? body.load_if(*exists, body.constant(dtype, 0.0), 0, dtype, from)
                    : body.load(0, dtype, from));
  Expr to = context.constant(0);
  for (std::size_t d = 0; d < v.size(); ++d) to = to + v[d] * strides[d];
  stage.stores = {{1, to, loop::StoreMode::overwrite, 0}};
  return stage;
}

}  // namespace

Param panel_param(abi::DType dtype, ParamRole role) {
  Param p;
  p.dtype = dtype;
  p.role = role;
  p.alignment = 64;
  return p;
}

RightOperand right_of(const MatmulStep& m, const GemmKernel& g) {
  RightOperand right{
      m.b.buffer, offset_in(m.b, g.variables[0], g.variables[3], g.variables[2]), true, {}, {}};
  for (std::size_t d = 0; d + 2 < m.b.sizes.size(); ++d) {
    right.is_shared =
        right.is_shared && (m.b.strides[d].is_constant(0) || m.b.sizes[d].is_constant(1));
  }
  return right;
}

Expr take_panels(GemmKernel& g, const RightOperand& right, sym::Context& context) {
  const auto& v = g.variables;
  const Expr padded = sym::ceildiv(g.columns, g.panel) * g.panel;
  g.b = v[2] * depth(g);
  if (right.is_shared) return context.constant(1);
  g.b = g.b + v[0] * padded * depth(g);
  return g.batch;
}

// [batch][panel][term][column], of pairs [batch][panel][pair][column][term of it].
Step pack_step(const RightOperand& right, const Param& from, Expr batches,
               const KernelStep& product, loop::Program& program, const abi::Target& device) {
  sym::Context& context = *program.context;
  const auto& g = std::get<GemmKernel>(product.kernel.body);
  std::vector<Expr> sizes = {batches, sym::ceildiv(g.columns, g.panel), depth(g),
                             context.constant(g.panel)};
  if (g.pairs) sizes.push_back(context.constant(2));
  const std::vector<Expr> strides = dense_strides(context, sizes, row_major(sizes.size()));
  loop::Buffer made = temporary(program, right.buffer, from.dtype, sizes);
  made.strides = strides;
  program.buffers.push_back(std::move(made));
  LoopKernel loops;
  std::vector<Expr> variables;
  for (const Expr extent : sizes) {
    variables.push_back(context.index(extent));
    loops.outer.push_back({variables.back(), extent});
  }
  loops.stages.push_back(pack_stage(right, g, from.dtype, variables, strides, context));
  KernelStep step;
  step.buffers = {right.buffer, product.buffers[1]};
  step.kernel.params = {from, panel_param(from.dtype, ParamRole::out)};
  step.kernel.body = std::move(loops);
  order_and_merge_loops(std::get<LoopKernel>(step.kernel.body), context);
  step.schedule = choose_schedule(step.kernel, device, context);
  collect_sizes(step.kernel, context);
  Step result;
  result.label = "panels";
  result.action = std::move(step);
  return result;
}

}  // namespace inkle::schedule
