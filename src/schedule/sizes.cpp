#include "schedule/stages.h"

#include <algorithm>
#include <iterator>
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

std::vector<std::uint32_t> add_parameters(KernelStep& to, const KernelStep& from) {
  std::vector<std::uint32_t> numbers;
  const std::size_t had = to.buffers.size();
  for (std::size_t p = 0; p < from.buffers.size(); ++p) {
    const auto known = std::ranges::find(to.buffers, from.buffers[p]);
    numbers.push_back(static_cast<std::uint32_t>(known - to.buffers.begin()));
    const Param& other = from.kernel.params[p];
    if (known == to.buffers.end()) {
      to.buffers.push_back(from.buffers[p]);
      to.kernel.params.push_back(other);
      continue;
    }
    Param& param = to.kernel.params[numbers.back()];
    param.alignment = std::max(param.alignment, other.alignment);
    param.may_alias = param.may_alias || other.may_alias;
    if (param.role == ParamRole::in && other.role != ParamRole::in) param.role = ParamRole::inout;
  }
  const auto added = static_cast<std::uint32_t>(to.buffers.size() - had);
  for_each_loops(to.kernel, [&](LoopKernel& loops) {
    for_each_memory(loops, [&](std::uint32_t& b) { b += b < had ? 0 : added; });
  });
  return numbers;
}

void collect_sizes(Kernel& kernel, sym::Context& context) {
  std::vector<Expr> bound, used;
  const auto use = [&](Expr e) {
    if (e.is_null()) return;
    for (const Expr s : sym::symbols(e)) used.push_back(s);
  };
  const auto bind = [&](Expr variable) { bound.push_back(variable); };
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
  const auto sort = [](std::vector<Expr>& symbols) {
    std::ranges::sort(symbols, {}, &Expr::id);
    symbols.erase(std::ranges::unique(symbols).begin(), symbols.end());
  };
  sort(bound);
  sort(used);
  kernel.sizes.clear();
  std::ranges::set_difference(used, bound, std::back_inserter(kernel.sizes), {}, &Expr::id,
                              &Expr::id);
}

}  // namespace inkle::schedule
