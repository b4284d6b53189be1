#include "schedule/gemm.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "loop/builder.h"
#include "schedule/buffers.h"
#include "schedule/epilogue_patterns.h"
#include "schedule/gemm_boxes.h"
#include "schedule/gemm_epilogue.h"
#include "schedule/gemm_operand.h"
#include "schedule/gemm_panels.h"
#include "schedule/loops.h"
#include "schedule/stages.h"

namespace inkle::schedule {
namespace {

using loop::BodyBuilder;
using loop::BufferId;
using loop::Val;

// Those of a pair are neighbours, or 16 apart where the product packs the left operand in
// vectors.
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

class GemmMaker {
 public:
  GemmMaker(ScheduledProgram& scheduled, const abi::Target& device, bool training, bool all)
      : scheduled_(scheduled),
        device_(device),
        training_(training),
        all_(all),
        by_boxes_(device.products.terms > 0),
        context_(*scheduled.program.context),
        panels_(scheduled.program, device, training, all) {}

  void run() {
    for (std::size_t s = 0; s < scheduled_.steps.size(); ++s) {
      const auto* matmul = std::get_if<MatmulStep>(&scheduled_.steps[s].action);
      if (matmul == nullptr || !(by_boxes_ ? can_copy(*matmul) : panels_.fits(*matmul))) continue;
      write(s, *matmul);
    }
    std::vector<Step> steps;
    for (std::size_t s = 0; s < scheduled_.steps.size(); ++s) {
      if (const auto pack = packs_.find(s); pack != packs_.end()) {
        steps.push_back(std::move(pack->second));
      }
      if (!gone_.contains(s)) steps.push_back(std::move(scheduled_.steps[s]));
    }
    scheduled_.steps = std::move(steps);
  }

 private:
  [[nodiscard]] const loop::Buffer& buffer(BufferId b) const {
    return scheduled_.program.buffers[b];
  }

  // The same, two neighbouring terms as one.
  static View pairs_of(View a) {
    const std::size_t rank = a.sizes.size();
    a.offset = sym::floordiv(a.offset, 2);
    a.sizes[rank - 1] = sym::floordiv(a.sizes[rank - 1], 2);
    for (std::size_t d = 0; d + 1 < rank; ++d) a.strides[d] = sym::floordiv(a.strides[d], 2);
    return a;
  }

  // Of products on tensor cores, which take bf16 and boxes that the copy engine can take.
  [[nodiscard]] bool can_copy(const MatmulStep& m) const {
    const abi::DType c = buffer(m.c.buffer).dtype;
    for (const View* v : {&m.a, &m.b}) {
      if (buffer(v->buffer).dtype != abi::DType::bf16 || v->sizes.size() != m.c.sizes.size()) {
        return false;
      }
      for (const Expr size : v->sizes) {
        if (size.is_constant(0)) return false;
      }
    }
    if (c != abi::DType::bf16 && c != abi::DType::f32) return false;
    return !m.bias && m.epilogue.empty() && !buffer(m.c.buffer).writes_into &&
           boxes_of(m.a, false, abi::DType::bf16, {}) && boxes_of(m.b, true, abi::DType::bf16, {});
  }

  Param param(BufferId b, ParamRole role) const {
    const loop::Buffer& of = buffer(b);
    const bool ours = of.role == loop::BufferRole::temporary;
    Param p;
    p.dtype = of.dtype;
    p.role = role;
    p.alignment = ours ? 64 : std::max(device_.input_alignment, abi_bytes(of.dtype));
    p.may_alias = of.writes_into.has_value();
    return p;
  }
  // Of panels of what `b` has.
  [[nodiscard]] Param packed_param(BufferId b) const {
    Param p;
    p.dtype = buffer(b).dtype;
    p.role = ParamRole::in;
    p.alignment = 64;
    return p;
  }
  static std::int32_t abi_bytes(abi::DType dtype) {
    return static_cast<std::int32_t>(abi::size_of(dtype));
  }

  // The offset of a view's element, `batch` counting row-major over all but the last two.
  Expr offset_in(const View& view, Expr batch, Expr row, Expr column) const {
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

  // Sizes, variables and the left operand.
  [[nodiscard]] GemmKernel problem_of(const MatmulStep& m, bool pairs) const {
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

  void write(std::size_t s, const MatmulStep& m) {
    GemmKernel g = problem_of(m, false);
    Right right = right_of(m, g);
    double computed = 1;
    const auto maker = maker_of(s, m);
    const bool computes = maker && take_operand(*maker, m, g, right);
    std::optional<Left> left;
    if (!computes && !by_boxes_) {
      left = left_of(s, m, g);
      if (!panels_.multiplies(m, left.has_value())) return;
      if (left) {
        take_left(*left, m, g);
      } else if (buffer(m.a.buffer).dtype == abi::DType::bf16) {
        g = problem_of(m, true);
        right = right_of(m, g);
      }
      g.tiles = g.pairs && device_.matrix_unit == abi::MatrixUnit::amx;
      computed = panels_.choose(g, false);
    }
    Expr batches = g.batch;
    if (by_boxes_) {
      take_boxes(g, m);
    } else {
      batches = take_panels(g, right);
    }
    KernelStep step;
    step.buffers = {
        left ? left->operand.buffers[0] : m.a.buffer,
        by_boxes_ ? m.b.buffer : static_cast<BufferId>(scheduled_.program.buffers.size())};
    step.kernel.params = {
        left ? left->operand.params[0] : param(m.a.buffer, ParamRole::in),
        by_boxes_ ? param(m.b.buffer, ParamRole::in) : packed_param(right.buffer)};
    step.buffers.insert(step.buffers.end(), right.others.begin(), right.others.end());
    step.kernel.params.insert(step.kernel.params.end(), right.params.begin(), right.params.end());
    if (left) {
      const ComputedLeft& from = left->operand;
      step.buffers.insert(step.buffers.end(), from.buffers.begin() + 1, from.buffers.end());
      step.kernel.params.insert(step.kernel.params.end(), from.params.begin() + 1,
                                from.params.end());
    }
    if (!write_epilogue(m, g, step)) return;
    choose(step.schedule, g);
    step.kernel.sources = scheduled_.steps[s].sources;
    if (computes) add_missing(step.kernel.sources, scheduled_.steps[*maker].sources);
    if (left) add_missing(step.kernel.sources, scheduled_.steps[left->step].sources);
    step.kernel.body = std::move(g);
    const auto next = reader(s, m, left ? left->operand.buffers : std::vector<BufferId>());
    const bool joined = next && join(*next, m, step);
    // The result is written and read by nobody, or is written alone.
    const double moves = joined ? next->is_only ? 1 : 0.5 : 0;
    const double saved = left ? left->saved : 0;
    if (!computes && !panels_.is_chosen(m, computed, moves, saved)) return;
    if (!by_boxes_) add_pack(s, right, batches, step);
    if (computes) gone_.insert(*maker);
    if (left) gone_.insert(left->step);
    collect_sizes(step.kernel, context_);
    Step& made = scheduled_.steps[joined ? next->step : s];
    if (joined) {
      Step& first = scheduled_.steps[s];
      made.label = first.label + "+" + made.label;
      add_missing(step.kernel.sources, made.sources);
      made.flops = first.flops;
      gone_.insert(s);
    }
    if (left) made.label = scheduled_.steps[left->step].label + "+" + made.label;
    made.sources = step.kernel.sources;
    made.action = std::move(step);
  }

  // What panels are made of: its element of batch, column and term; and what else b is made of.
  struct Right {
    BufferId buffer;
    Expr offset;
    bool is_shared;  // one matrix for all batches, which is packed once
    std::vector<BufferId> others;
    std::vector<Param> params;
  };
  [[nodiscard]] Right right_of(const MatmulStep& m, const GemmKernel& g) const {
    Right right{
        m.b.buffer, offset_in(m.b, g.variables[0], g.variables[3], g.variables[2]), true, {}, {}};
    for (std::size_t d = 0; d + 2 < m.b.sizes.size(); ++d) {
      right.is_shared =
          right.is_shared && (m.b.strides[d].is_constant(0) || m.b.sizes[d].is_constant(1));
    }
    return right;
  }

  // No call changes it.
  [[nodiscard]] bool stays(BufferId b) const {
    const loop::Buffer& of = buffer(b);
    if (of.role != loop::BufferRole::constant && !of.is_parameter) return false;
    const auto& buffers = scheduled_.program.buffers;
    const auto& steps = scheduled_.steps;
    return std::none_of(buffers.begin(), buffers.end(),
                        [&](const loop::Buffer& other) { return other.writes_into == b; }) &&
           std::none_of(steps.begin(), steps.end(),
                        [&](const Step& step) { return contains(writes(step), b); });
  }

  // The step that makes the right operand, for this product alone, of what no call changes.
  [[nodiscard]] std::optional<std::size_t> maker_of(std::size_t s, const MatmulStep& m) const {
    if (by_boxes_ || all_ || training_) return std::nullopt;
    if (buffer(m.a.buffer).dtype != abi::DType::f32 || !panels_.may_compute(m)) return std::nullopt;
    const auto found = only_maker(scheduled_, m.b.buffer, s);
    if (!found || gone_.contains(*found)) return std::nullopt;
    const std::vector<BufferId> read = reads(scheduled_.steps[*found]);
    const bool all_stay =
        std::all_of(read.begin(), read.end(), [&](BufferId b) { return stays(b); });
    return all_stay ? found : std::nullopt;
  }

  bool take_operand(std::size_t maker, const MatmulStep& m, GemmKernel& g, Right& right) const {
    const auto* made = std::get_if<KernelStep>(&scheduled_.steps[maker].action);
    if (made == nullptr) return false;
    auto operand = computed_operand(*made, m.b.buffer, right.offset, g, context_);
    if (!operand || panels_.choose(g, true) == 0) return false;
    right.buffer = operand->packed;
    right.offset = operand->offset;
    right.is_shared = !sym::contains(right.offset, g.variables[0]);
    right.others = std::move(operand->buffers);
    right.params = std::move(operand->params);
    g.right = std::move(operand->body);
    for (loop::Instruction& i : g.right.instructions) {
      if (i.opcode == loop::Opcode::load) i.buffer += 2;  // behind a and the panels
    }
    return true;
  }

  // The left operand, where it is made for this product alone, of what is still there by then.
  struct Left {
    std::size_t step;
    ComputedLeft operand;
    double saved;  // PanelChoice::saved_by_left
  };
  [[nodiscard]] std::optional<Left> left_of(std::size_t s, const MatmulStep& m,
                                            const GemmKernel& g) const {
    if (all_ || m.a.buffer == m.b.buffer) return std::nullopt;
    const auto maker = only_maker(scheduled_, m.a.buffer, s);
    if (!maker || gone_.contains(*maker)) return std::nullopt;
    const auto* made = std::get_if<KernelStep>(&scheduled_.steps[*maker].action);
    if (made == nullptr) return std::nullopt;
    auto operand = computed_left(*made, m.a.buffer, g.a, g, context_);
    if (!operand || changes(operand->buffers, *maker + 1, s)) return std::nullopt;
    const auto saved = panels_.saved_by_left(g, operand->body);
    if (!saved) return std::nullopt;
    return Left{*maker, std::move(*operand), *saved};
  }

  // Whether a step of them may write one of the buffers, or the memory of another's.
  [[nodiscard]] bool changes(const std::vector<BufferId>& buffers, std::size_t first,
                             std::size_t last) const {
    for (std::size_t t = first; t <= last; ++t) {
      for (const BufferId b : writes(scheduled_.steps[t])) {
        if (contains(buffers, b) || buffer(b).writes_into) return true;
      }
    }
    return false;
  }

  void take_left(const Left& left, const MatmulStep& m, GemmKernel& g) const {
    g.left = left.operand.body;
    for (loop::Instruction& i : g.left.instructions) {
      if (i.opcode == loop::Opcode::load && i.buffer > 0) ++i.buffer;  // panels are the second
    }
    g.a = context_.constant(0);
    g.left_terms = g.terms;
    if (buffer(m.a.buffer).dtype != abi::DType::bf16) return;
    constexpr std::int64_t kBlock = 32;
    g.pairs = true;
    g.terms = sym::ceildiv(g.terms, kBlock) * (kBlock / 2);
  }

  void choose(Schedule& schedule, const GemmKernel& g) const {
    if (by_boxes_) {
      schedule.products = choose_products(g, device_);
      schedule.blocks = BlockSchedule{.threads = 128 + schedule.products->rows * 2};
      return;
    }
    panels_.cut(g, schedule);
  }

  // The right operand as it lies.
  void take_boxes(GemmKernel& g, const MatmulStep& m) const {
    g.b = offset_in(m.b, g.variables[0], g.variables[3], g.variables[2]);
    const ProductSchedule tiles = choose_products(g, device_);
    g.boxes = {*boxes_of(m.a, false, abi::DType::bf16, tiles),
               *boxes_of(m.b, true, abi::DType::bf16, tiles)};
  }

  // In panels, which another step makes, for so many batches.
  Expr take_panels(GemmKernel& g, const Right& right) const {
    const auto& v = g.variables;
    const Expr padded = sym::ceildiv(g.columns, g.panel) * g.panel;
    g.b = v[2] * depth(g);
    if (right.is_shared) return context_.constant(1);
    g.b = g.b + v[0] * padded * depth(g);
    return g.batch;
  }

  // What the library would have done behind the product, and the store of the result; false: there
  // is a post-op that it cannot write.
  bool write_epilogue(const MatmulStep& m, GemmKernel& g, KernelStep& step) const {
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

  // b in panels: [batch][panel][term][column], of pairs [batch][panel][pair][column][term of it].
  void add_pack(std::size_t s, const Right& b, Expr batches, const KernelStep& product) {
    const auto& g = std::get<GemmKernel>(product.kernel.body);
    const abi::DType dtype = buffer(b.buffer).dtype;
    std::vector<Expr> sizes = {batches, sym::ceildiv(g.columns, g.panel), depth(g),
                               context_.constant(g.panel)};
    if (g.pairs) sizes.push_back(context_.constant(2));
    loop::Buffer made = temporary(scheduled_.program, b.buffer, dtype, sizes);
    made.strides = dense_strides(context_, sizes, row_major(sizes.size()));
    const BufferId packed = product.buffers[1];
    scheduled_.program.buffers.push_back(std::move(made));
    LoopKernel loops;
    std::vector<Expr> v;
    for (const Expr extent : sizes) {
      v.push_back(context_.index(extent));
      loops.outer.push_back({v.back(), extent});
    }
    Stage stage;
    BodyBuilder body(stage.body, context_);
    const Expr column = v[1] * g.panel + v[3];
    const Expr term = g.pairs ? term_of_pair(g, v[2], v[4]) : v[2];
    std::vector<std::pair<Expr, Expr>> map;
    const Expr at[] = {b.is_shared ? context_.constant(0) : v[0], column, term};
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
    Expr to = context_.constant(0);
    for (std::size_t d = 0; d < v.size(); ++d) {
      to = to + v[d] * (*buffer(packed).strides)[d];
    }
    stage.stores = {{1, to, loop::StoreMode::overwrite, 0}};
    loops.stages.push_back(std::move(stage));
    KernelStep step;
    step.buffers = {b.buffer, packed};
    step.kernel.params = {param(b.buffer, ParamRole::in), param(packed, ParamRole::out)};
    step.kernel.body = std::move(loops);
    order_and_merge_loops(std::get<LoopKernel>(step.kernel.body), context_);
    step.schedule = choose_schedule(step.kernel, device_, context_);
    collect_sizes(step.kernel, context_);
    Step result;
    result.label = "panels";
    result.action = std::move(step);
    packs_.emplace(s, std::move(result));
  }

  // The first step that reads the product, if what the product reads is still there by then.
  struct Reader {
    std::size_t step = 0;
    bool is_only = false;  // nobody else needs the product
  };
  [[nodiscard]] std::optional<Reader> reader(std::size_t s, const MatmulStep& m,
                                             const std::vector<BufferId>& left) const {
    std::optional<std::size_t> found;
    bool is_only = !is_seen_outside(scheduled_.program, m.c.buffer);
    for (std::size_t t = s + 1; t < scheduled_.steps.size(); ++t) {
      if (!contains(reads(scheduled_.steps[t]), m.c.buffer)) continue;
      is_only = is_only && !found;
      if (!found) found = t;
    }
    if (!found || scheduled_.steps[*found].checked != std::vector<std::string>()) {
      return std::nullopt;
    }
    for (std::size_t t = s + 1; t <= *found; ++t) {
      for (const BufferId b : writes(scheduled_.steps[t])) {
        // What is written may be the memory of an input.
        if (b == m.a.buffer || b == m.c.buffer || contains(left, b) || buffer(b).writes_into) {
          return std::nullopt;
        }
        if (by_boxes_ && b == m.b.buffer) return std::nullopt;
      }
    }
    return Reader{*found, is_only};
  }

  bool join(const Reader& next, const MatmulStep& m, KernelStep& step) const {
    const auto* kernel = std::get_if<KernelStep>(&scheduled_.steps[next.step].action);
    return kernel != nullptr && join_epilogue(*kernel, m.c.buffer, next.is_only, step, context_);
  }

  ScheduledProgram& scheduled_;
  const abi::Target& device_;
  bool training_;
  bool all_;
  bool by_boxes_;  // operands are copied as they lie
  sym::Context& context_;
  PanelChoice panels_;
  std::map<std::size_t, Step> packs_;
  std::set<std::size_t> gone_;
};

}  // namespace

void write_gemms(ScheduledProgram& scheduled, const abi::Target& device, bool training, bool all) {
  GemmMaker(scheduled, device, training, all).run();
}

}  // namespace inkle::schedule
