#include "schedule/gemm_steps.h"

#include <algorithm>
#include <utility>

#include "loop/builder.h"
#include "schedule/buffers.h"
#include "schedule/epilogue_patterns.h"
#include "schedule/gemm_epilogue.h"
#include "schedule/stages.h"

namespace inkle::schedule {

using loop::BodyBuilder;
using loop::BufferId;
using loop::Val;

namespace {

// The same, two neighbouring terms as one.
View pairs_of(View a) {
  const std::size_t rank = a.sizes.size();
  a.offset = sym::floordiv(a.offset, 2);
  a.sizes[rank - 1] = sym::floordiv(a.sizes[rank - 1], 2);
  for (std::size_t d = 0; d + 1 < rank; ++d) a.strides[d] = sym::floordiv(a.strides[d], 2);
  return a;
}

bool is_seen_outside(const loop::Program& program, BufferId b) {
  if (program.buffers[b].role != loop::BufferRole::temporary) return true;
  const auto& outputs = program.outputs;
  return std::any_of(outputs.begin(), outputs.end(), [&](const loop::ProgramOutput& o) {
    return o.kind == loop::ProgramOutput::Kind::buffer && o.buffer == b;
  });
}

}  // namespace

Expr offset_in(const View& view, Expr batch, Expr row, Expr column) {
  const std::size_t rank = view.sizes.size();
  Expr offset = view.offset + row * view.strides[rank - 2] + column * view.strides[rank - 1];
  Expr rest = batch;
  for (std::size_t d = rank - 2; d-- > 0;) {
    const Expr digit = d == 0 ? rest : sym::mod(rest, view.sizes[d]);
    offset = offset + digit * view.strides[d];
    rest = d == 0 ? rest : sym::floordiv(rest, view.sizes[d]);
  }
  return offset;
}

std::optional<std::size_t> only_maker(const ScheduledProgram& scheduled, BufferId operand,
                                      std::size_t reader) {
  if (is_seen_outside(scheduled.program, operand)) return std::nullopt;
  std::optional<std::size_t> found;
  for (std::size_t t = 0; t < scheduled.steps.size(); ++t) {
    const Step& step = scheduled.steps[t];
    if (t != reader && contains(reads(step), operand)) return std::nullopt;
    if (!contains(writes(step), operand)) continue;
    if (found || t > reader || !step.checked.empty()) return std::nullopt;
    found = t;
  }
  return found;
}

bool contains(const std::vector<BufferId>& list, BufferId b) {
  return std::find(list.begin(), list.end(), b) != list.end();
}

void GemmSteps::for_each_product(const std::function<void(std::size_t, const MatmulStep&)>& write) {
  for (std::size_t s = 0; s < scheduled_.steps.size(); ++s) {
    const auto* matmul = std::get_if<MatmulStep>(&scheduled_.steps[s].action);
    if (matmul != nullptr) write(s, *matmul);
  }
}

void GemmSteps::finish() {
  std::vector<Step> steps;
  for (std::size_t s = 0; s < scheduled_.steps.size(); ++s) {
    if (const auto made = before_.find(s); made != before_.end()) {
      steps.push_back(std::move(made->second));
    }
    if (!gone_.contains(s)) steps.push_back(std::move(scheduled_.steps[s]));
  }
  scheduled_.steps = std::move(steps);
}

Param GemmSteps::param(BufferId b, ParamRole role) const {
  const loop::Buffer& of = buffer(b);
  const bool ours = of.role == loop::BufferRole::temporary;
  Param p;
  p.dtype = of.dtype;
  p.role = role;
  p.alignment =
      ours ? 64
           : std::max(device_.input_alignment, static_cast<std::int32_t>(abi::size_of(of.dtype)));
  p.may_alias = of.writes_into.has_value();
  return p;
}

GemmKernel GemmSteps::problem_of(const MatmulStep& m, bool pairs) const {
  const std::size_t rank = m.c.sizes.size();
  GemmKernel g;
  g.pairs = pairs;
  const View a = pairs ? pairs_of(m.a) : m.a;
  g.batch = context_.constant(1);
  for (std::size_t d = 0; d + 2 < rank; ++d) g.batch = g.batch * m.c.sizes[d];
  g.rows = m.c.sizes[rank - 2];
  g.columns = m.c.sizes[rank - 1];
  g.terms = a.sizes[rank - 1];
  for (const Expr extent : {g.batch, g.rows, g.columns, g.terms}) {
    g.variables.push_back(context_.index(extent));
  }
  const auto& v = g.variables;
  g.a = offset_in(a, v[0], v[1], v[3]);
  return g;
}

bool GemmSteps::write_epilogue(const MatmulStep& m, GemmKernel& g, KernelStep& step) const {
  const auto& v = g.variables;
  BodyBuilder body(g.epilogue, context_);
  const auto operand = [&](const View& view, Expr offset) {
    const auto at = static_cast<std::uint32_t>(step.buffers.size());
    step.buffers.push_back(view.buffer);
    step.kernel.params.push_back(param(view.buffer, ParamRole::in));
    return body.cast(body.load(at, buffer(view.buffer).dtype, {offset}), abi::DType::f32);
  };
  Val x = body.row(0, abi::DType::f32);
  if (m.bias) x = body.add(x, operand(*m.bias, m.bias->offset + v[2] * m.bias->strides[0]));
  for (const Epilogue& e : m.epilogue) {
    if (e.operand) {
      const Val other = operand(*e.operand, offset_in(*e.operand, v[0], v[1], v[2]));
      x = e.kind == abi::PostOpKind::add ? body.add(x, other) : body.mul(x, other);
      continue;
    }
    const auto next = append_activation(body, e.kind, e.alpha, e.beta, x);
    if (!next) return false;
    x = *next;
  }
  body.yield(body.cast(x, buffer(m.c.buffer).dtype));
  g.stores = {{static_cast<std::uint32_t>(step.buffers.size()), offset_in(m.c, v[0], v[1], v[2]),
               loop::StoreMode::overwrite, 0}};
  step.buffers.push_back(m.c.buffer);
  step.kernel.params.push_back(param(m.c.buffer, ParamRole::out));
  return true;
}

std::optional<GemmSteps::Reader> GemmSteps::reader(std::size_t s, const MatmulStep& m,
                                                   const std::vector<BufferId>& read) const {
  std::optional<std::size_t> found;
  bool is_only = !is_seen_outside(scheduled_.program, m.c.buffer);
  for (std::size_t t = s + 1; t < scheduled_.steps.size(); ++t) {
    if (!contains(reads(scheduled_.steps[t]), m.c.buffer)) continue;
    is_only = is_only && !found;
    if (!found) found = t;
  }
  if (!found || !scheduled_.steps[*found].checked.empty()) return std::nullopt;
  if (changes(read, s + 1, *found) || changes({m.c.buffer}, s + 1, *found)) return std::nullopt;
  return Reader{*found, is_only};
}

bool GemmSteps::changes(const std::vector<BufferId>& buffers, std::size_t first,
                        std::size_t last) const {
  for (std::size_t t = first; t <= last; ++t) {
    for (const BufferId b : writes(scheduled_.steps[t])) {
      // What is written may be the memory of an input.
      if (contains(buffers, b) || buffer(b).writes_into) return true;
    }
  }
  return false;
}

bool GemmSteps::join(const Reader& next, const MatmulStep& m, KernelStep& step) const {
  const auto* kernel = std::get_if<KernelStep>(&scheduled_.steps[next.step].action);
  return kernel != nullptr && join_epilogue(*kernel, m.c.buffer, next.is_only, step, context_);
}

std::size_t GemmSteps::place(std::size_t s, KernelStep step, const Reader* joined) {
  collect_sizes(step.kernel, context_);
  const std::size_t at = joined != nullptr ? joined->step : s;
  Step& made = scheduled_.steps[at];
  if (joined != nullptr) {
    Step& first = scheduled_.steps[s];
    made.label = first.label + "+" + made.label;
    add_missing(step.kernel.sources, made.sources);
    made.flops = first.flops;
    gone_.insert(s);
  }
  made.sources = step.kernel.sources;
  made.action = std::move(step);
  return at;
}

void GemmSteps::absorb(std::size_t maker, std::size_t at) {
  Step& made = scheduled_.steps[at];
  made.label = scheduled_.steps[maker].label + "+" + made.label;
  gone_.insert(maker);
}

}  // namespace inkle::schedule
