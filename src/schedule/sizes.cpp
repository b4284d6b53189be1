#include "schedule/stages.h"

#include <map>
#include <set>
#include <utility>

namespace inkle::schedule {

using loop::Instruction;
using loop::Opcode;

void for_each_memory(LoopKernel& loops, const std::function<void(std::uint32_t&)>& f) {
  for (Stage& stage : loops.stages) {
    for (Instruction& i : stage.body.instructions) {
      if (i.opcode == Opcode::load) f(i.buffer);
    }
    for (StageStore& store : stage.stores) f(store.target);
  }
}

void collect_sizes(Kernel& kernel, sym::Context& context) {
  std::set<std::uint32_t> bound;
  std::map<std::uint32_t, Expr> used;
  const auto use = [&](Expr e) {
    if (e.is_null()) return;
    for (const Expr s : sym::symbols(e)) used.emplace(s.id(), s);
  };
  const auto bind = [&](Expr variable) { bound.insert(variable.id()); };
  const auto use_loops = [&](const LoopKernel& loops) {
    for (const Dim& dim : loops.outer) {
      bind(dim.variable);
      use(dim.extent);
    }
    for (const Stage& stage : loops.stages) {
      for (const Dim& dim : stage.inner) {
        bind(dim.variable);
        use(dim.extent);
      }
      for (const Instruction& i : stage.body.instructions) {
        for (const Expr e : i.indices) use(e);
        if (i.opcode == Opcode::indirect) bind(i.indices.front());
        if (i.opcode == Opcode::indirect) use(context.info(i.indices.front()).extent);
      }
      for (const StageStore& store : stage.stores) use(store.offset);
    }
    for (const Scratch& scratch : loops.scratch) use(scratch.elements);
  };
  for_each_loops(std::as_const(kernel), use_loops);
  if (auto* a = std::get_if<AttentionKernel>(&kernel.body)) {
    for (const Expr v : a->variables) bind(v);
    for (const Expr e :
         {a->batch, a->heads, a->kv_heads, a->q_length, a->kv_length, a->head_dim, a->value_dim}) {
      use(e);
    }
    for (const Expr e : a->offsets) use(e);
  } else if (auto* g = std::get_if<GemmKernel>(&kernel.body)) {
    for (const Expr v : g->variables) bind(v);
    for (const Expr e : {g->batch, g->rows, g->columns, g->terms, g->a, g->b}) use(e);
    for (const loop::Body* body : {&g->left, &g->right, &g->epilogue}) {
      for (const Instruction& i : body->instructions) {
        for (const Expr e : i.indices) use(e);
      }
    }
    for (const StageStore& store : g->stores) use(store.offset);
    for (const GemmKernel::Boxes& boxes : g->boxes) {
      for (const Expr e : boxes.sizes) use(e);
      for (const Expr e : boxes.strides) use(e);
    }
  }
  kernel.sizes.clear();
  for (const auto& [id, symbol] : used) {
    if (!bound.contains(id)) kernel.sizes.push_back(symbol);
  }
}

}  // namespace inkle::schedule
