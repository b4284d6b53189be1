#include "schedule/bytes.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>

#include "schedule/linear.h"

namespace inkle::schedule {
namespace {

using loop::BufferId;
using loop::Opcode;
using loop::Program;

class Counter {
 public:
  explicit Counter(const Program& program) : program_(program), context_(*program.context) {}

  std::vector<Traffic> run(const Step& step) {
    std::visit([&](const auto& action) { count(action); }, step.action);
    std::vector<Traffic> result;
    for (const auto& [buffer, touched] : touched_) {
      const Expr whole = sym::product(context_, program_.buffers[buffer].sizes);
      const std::int64_t width = abi::size_of(program_.buffers[buffer].dtype);
      result.push_back(
          {buffer, total(touched[0], whole) * width, total(touched[1], whole) * width});
    }
    return result;
  }

 private:
  // Elements by the offset at which an access starts: accesses that start alike touch the same.
  using ElementsByStart = std::map<std::uint32_t, Expr>;

  Expr total(const ElementsByStart& by_start, Expr whole) const {
    Expr sum = context_.constant(0);
    for (const auto& [start, elements] : by_start) sum = sum + elements;
    return at_most(sum, whole);
  }

  // The smaller one where that is known, else by hint: sizes are for people here.
  static Expr at_most(Expr a, Expr b) {
    if (const auto less = sym::less(a, b)) return *less ? a : b;
    const auto x = sym::hint(a);
    const auto y = sym::hint(b);
    return x && y && *x < *y ? a : b;
  }

  void touch(BufferId buffer, bool write, Expr start, Expr elements) {
    ElementsByStart& by_start = touched_[buffer][write ? 1 : 0];
    const auto [at, is_new] = by_start.try_emplace(start.id(), elements);
    if (is_new) return;
    if (at_most(at->second, elements) == at->second) at->second = elements;
  }

  void touch_whole(BufferId buffer, bool write) {
    touch(buffer, write, context_.constant(0),
          sym::product(context_, program_.buffers[buffer].sizes));
  }

  void view(const View& v, bool write) {
    Expr elements = context_.constant(1);
    for (std::size_t d = 0; d < v.sizes.size(); ++d) {
      if (!v.strides[d].is_constant(0)) elements = elements * v.sizes[d];
    }
    touch(v.buffer, write, v.offset, elements);
  }
  void epilogue(const std::vector<Epilogue>& list) {
    for (const Epilogue& e : list) {
      if (e.operand) view(*e.operand, false);
    }
  }

  // The points at which an offset differs: loops that it mentions, or all if an index is indirect.
  void access(BufferId buffer, bool write, Expr offset, const std::vector<Dim>& dims,
              const std::vector<std::pair<Expr, Expr>>& sizes = {}) {
    std::vector<std::pair<Expr, Expr>> zeros = sizes;
    Expr elements = context_.constant(1);
    Expr all = context_.constant(1);
    for (const Dim& dim : dims) {
      zeros.emplace_back(dim.variable, context_.constant(0));
      all = all * dim.extent;
      if (sym::contains(offset, dim.variable)) elements = elements * dim.extent;
    }
    elements = sym::substitute(elements, sizes);
    all = sym::substitute(all, sizes);
    const Expr start = sym::substitute(offset, zeros);
    for (const Expr s : sym::symbols(start)) {
      if (!context_.info(s).extent.is_null()) elements = all;
    }
    touch(buffer, write, start, elements);
  }

  void count(const KernelStep& step) {
    if (const auto* attention = std::get_if<AttentionKernel>(&step.kernel.body)) {
      count(step, *attention);
      return;
    }
    if (const auto* gemm = std::get_if<GemmKernel>(&step.kernel.body)) {
      count(step, *gemm);
      return;
    }
    for (std::size_t i = 0; i < step.kernel.instances; ++i) {
      std::vector<std::pair<Expr, Expr>> sizes;
      for (std::size_t s = 0; s < step.kernel.sizes.size() && !step.table.empty(); ++s) {
        sizes.emplace_back(step.kernel.sizes[s], step.table[i][s]);
      }
      const std::size_t params = step.kernel.params.size();
      const auto buffers = std::span(step.buffers).subspan(i * params, params);
      for_each_loops(step.kernel, [&](const LoopKernel& loops) { count(loops, buffers, sizes); });
    }
  }
  void count(const LoopKernel& kernel, std::span<const BufferId> buffers,
             const std::vector<std::pair<Expr, Expr>>& sizes) {
    // What an earlier stage has written at the same iteration is read back from a cache.
    std::vector<bool> written(buffers.size(), false);
    for (const Stage& stage : kernel.stages) {
      std::vector<Dim> dims = kernel.outer;
      dims.insert(dims.end(), stage.inner.begin(), stage.inner.end());
      for (const loop::Instruction& i : stage.body.instructions) {
        const bool counts = i.opcode == Opcode::load && i.buffer < buffers.size();
        if (counts && !written[i.buffer]) {
          access(buffers[i.buffer], false, i.indices.front(), dims, sizes);
        }
      }
      for (const StageStore& store : stage.stores) {
        if (store.target >= buffers.size()) continue;
        access(buffers[store.target], true, store.offset, dims, sizes);
      }
      if (stage.kind == StageKind::scatter) continue;
      for (const StageStore& store : stage.stores) {
        if (store.target < buffers.size()) written[store.target] = true;
      }
    }
  }
  void count(const KernelStep& step, const AttentionKernel& a) {
    for (std::size_t p = 0; p < a.offsets.size(); ++p) {
      const bool writes = step.kernel.params[p].role != ParamRole::in;
      if (p == a.seed_at()) {
        access(step.buffers[p], writes, a.offsets[p], {});
        continue;
      }
      const bool is_kv = a.is_of_keys(p);
      std::vector<Dim> dims = {{a.variables[0], a.batch},
                               {a.variables[1], is_kv ? a.kv_heads : a.heads},
                               {a.variables[2], is_kv ? a.kv_length : a.q_length}};
      if (p != a.lse_at()) dims.push_back({a.variables[3], a.columns_of(p)});
      access(step.buffers[p], writes, a.offsets[p], dims);
    }
  }
  void count(const KernelStep& step, const GemmKernel& g) {
    const auto& v = g.variables;
    const Expr terms = g.pairs ? g.terms * 2 : g.terms;
    const std::vector<Dim> left = {{v[0], g.batch}, {v[1], g.rows}, {v[3], terms}};
    const bool reads_a = g.left.instructions.empty() ||
                         std::ranges::any_of(g.left.instructions, [](const loop::Instruction& i) {
                           return i.opcode == loop::Opcode::row;
                         });
    if (reads_a) access(step.buffers[0], false, g.a, left);
    loads(step, g.left, left);
    touch_whole(step.buffers[1], false);
    const std::vector<Dim> right = {{v[0], g.batch}, {v[2], g.columns}, {v[3], terms}};
    loads(step, g.right, right);
    if (g.partials) {
      for (const bool writes : {true, false}) touch_whole(step.buffers[*g.partials], writes);
    }
    const std::vector<Dim> dims = {{v[0], g.batch}, {v[1], g.rows}, {v[2], g.columns}};
    loads(step, g.epilogue, dims);
    for (const StageStore& store : g.stores) {
      access(step.buffers[store.target], true, store.offset, dims);
    }
  }
  void loads(const KernelStep& step, const loop::Body& body, const std::vector<Dim>& dims) {
    for (const loop::Instruction& i : body.instructions) {
      if (i.opcode == loop::Opcode::load) {
        access(step.buffers[i.buffer], false, i.indices.front(), dims);
      }
    }
  }
  void count(const MatmulStep& step) {
    view(step.a, false);
    view(step.b, false);
    if (step.bias) view(*step.bias, false);
    epilogue(step.epilogue);
    view(step.c, true);
  }
  void count(const ConvolutionStep& step) {
    view(step.x, false);
    view(step.w, false);
    if (step.bias) view(*step.bias, false);
    epilogue(step.epilogue);
    view(step.y, true);
  }
  void count(const AttentionStep& step) {
    for (const View* v : {&step.q, &step.k, &step.v}) view(*v, false);
    if (step.mask) view(*step.mask, false);
    view(step.out, true);
  }
  void count(const EagerStep& step) {
    for (const auto& argument : step.call.arguments) {
      if (const auto* b = std::get_if<BufferId>(&argument)) touch_whole(*b, false);
    }
    for (const BufferId b : step.call.results) touch_whole(b, true);
  }

  const Program& program_;
  sym::Context& context_;
  std::map<BufferId, std::array<ElementsByStart, 2>> touched_;  // read, written
};

// Operands that a contraction has to read.
std::vector<BufferId> contraction_operands(const Step& step) {
  if (const auto* m = std::get_if<MatmulStep>(&step.action)) return {m->a.buffer, m->b.buffer};
  if (const auto* c = std::get_if<ConvolutionStep>(&step.action)) return {c->x.buffer, c->w.buffer};
  if (const auto* a = std::get_if<AttentionStep>(&step.action)) {
    return {a->q.buffer, a->k.buffer, a->v.buffer};
  }
  if (const auto* k = std::get_if<KernelStep>(&step.action)) {
    if (std::holds_alternative<AttentionKernel>(k->kernel.body)) {
      return {k->buffers[0], k->buffers[1], k->buffers[2]};
    }
    if (std::holds_alternative<GemmKernel>(k->kernel.body)) return {k->buffers[0], k->buffers[1]};
  }
  return {};
}

Expr larger(Expr a, Expr b) {
  if (a.is_null()) return b;
  return sym::hint(a).value_or(0) < sym::hint(b).value_or(0) ? b : a;
}

}  // namespace

std::vector<Traffic> traffic(const Step& step, const Program& program) {
  return Counter(program).run(step);
}

void count_step_bytes(Step& step, const Program& program) {
  step.bytes = program.context->constant(0);
  for (const Traffic& t : traffic(step, program)) step.bytes = step.bytes + t.read + t.written;
}

void count_bytes(ScheduledProgram& scheduled) {
  const Program& program = scheduled.program;
  sym::Context& context = *program.context;
  Expr moved = context.constant(0);
  std::map<BufferId, Expr> least;
  for (const Step& step : scheduled.steps) {
    if (step.prepare) continue;
    moved = moved + step.bytes;
    const std::vector<BufferId> operands = contraction_operands(step);
    for (const Traffic& t : traffic(step, program)) {
      const bool counts = program.buffers[t.buffer].role != loop::BufferRole::temporary ||
                          std::find(operands.begin(), operands.end(), t.buffer) != operands.end();
      if (counts) least[t.buffer] = larger(least[t.buffer], larger(t.read, t.written));
    }
  }
  scheduled.bytes_moved = moved;
  scheduled.bytes_lower_bound = context.constant(0);
  for (const auto& [buffer, bytes] : least) {
    scheduled.bytes_lower_bound = scheduled.bytes_lower_bound + bytes;
  }
}

}  // namespace inkle::schedule
