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
#include "schedule/loops.h"
#include "schedule/stages.h"

namespace inkle::schedule {
namespace {

// Of fewer columns most of a panel is zeros (2048x256 by 256x1 takes 2.6 times as long as the
// library); sums of fewer terms are stored as often as they are added to (2048x13 by 13x512: 1.3).
constexpr std::int64_t kLeastColumns = 8;
constexpr std::int64_t kLeastTerms = 16;

using loop::BodyBuilder;
using loop::BufferId;
using loop::Val;

// What registers hold of the result: a panel's columns of a group's rows. Sums that are computed
// count, needed or not; a vector of each row alone leaves the multipliers waiting for splats (on a
// Zen 4 with AVX-512, by 128x768x768: 12 rows by 2 vectors 0.98 of 8 by 3, 6 by 4 0.97 to 0.99).
struct Block {
  std::int64_t vectors;  // of a panel
  double cost;           // of a sum
};
constexpr Block kBlocks[] = {{3, 1.0}, {4, 1.005}, {2, 1.02}, {1, 1.2}};
constexpr std::int64_t kMostRows = 12;  // more take more addresses than there are registers

std::int64_t up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

// Rows of a task, in whole groups, which waste nothing.
std::int64_t rows_of_task(std::optional<std::int64_t> rows, std::int64_t most, std::int64_t group) {
  most = std::max(most / group, std::int64_t{1}) * group;
  if (!rows || *rows < 1) return most;
  if (*rows <= group * 2) return *rows;
  const std::int64_t blocks = (*rows + most - 1) / most;
  return up((*rows + blocks - 1) / blocks, group);
}

// Rows that registers have in all tasks.
std::int64_t computed_rows(std::int64_t rows, std::int64_t most, std::int64_t group) {
  const std::int64_t task = rows_of_task(rows, most, group);
  const std::int64_t groups = (task + group - 1) / group;
  const std::int64_t each = std::max((task + groups - 1) / groups, std::int64_t{1});
  return rows / task * groups * each + up(rows % task, each);
}

class GemmMaker {
 public:
  GemmMaker(ScheduledProgram& scheduled, const abi::Target& device, bool training, bool all)
      : scheduled_(scheduled),
        device_(device),
        training_(training),
        all_(all),
        by_boxes_(device.products.terms > 0),
        context_(*scheduled.program.context) {}

  void run() {
    for (std::size_t s = 0; s < scheduled_.steps.size(); ++s) {
      const auto* matmul = std::get_if<MatmulStep>(&scheduled_.steps[s].action);
      if (matmul == nullptr || !(by_boxes_ ? can_copy(*matmul) : can_write(*matmul))) continue;
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

  [[nodiscard]] bool can_write(const MatmulStep& m) const {
    const abi::DType dtype = buffer(m.a.buffer).dtype, result = buffer(m.c.buffer).dtype;
    if (dtype != buffer(m.b.buffer).dtype || (all_ && dtype != abi::DType::f32)) return false;
    if (result != dtype && result != abi::DType::f32) return false;
    if (dtype != abi::DType::f32 && !(dtype == abi::DType::bf16 && has_pairs(m.a))) return false;
    for (const Expr size : m.b.sizes) {
      if ((!all_ && !size.is_constant()) || size.is_constant(0)) return false;
    }
    const auto columns = m.b.sizes.back().constant(), terms = m.a.sizes.back().constant();
    if (!all_ && (columns < kLeastColumns || terms < kLeastTerms)) return false;
    return !buffer(m.c.buffer).writes_into && m.a.sizes.size() == m.c.sizes.size() &&
           m.b.sizes.size() == m.c.sizes.size();
  }

  // Whether the processor multiplies pairs of bf16, and the terms of each row of `a` are some.
  [[nodiscard]] bool has_pairs(const View& a) const {
    if (device_.matrix_unit != abi::MatrixUnit::avx512_bf16 &&
        device_.matrix_unit != abi::MatrixUnit::amx) {
      return false;
    }
    const std::size_t rank = a.sizes.size();
    if (!sym::divides(2, a.sizes[rank - 1]) || !a.strides[rank - 1].is_constant(1)) return false;
    for (std::size_t d = 0; d + 1 < rank; ++d) {
      if (!a.sizes[d].is_constant(1) && !sym::divides(2, a.strides[d])) return false;
    }
    return sym::divides(2, a.offset);
  }
  // The same in pairs.
  static View pairs_of(View a) {
    const std::size_t rank = a.sizes.size();
    a.offset = sym::floordiv(a.offset, 2);
    a.sizes[rank - 1] = sym::floordiv(a.sizes[rank - 1], 2);
    for (std::size_t d = 0; d + 1 < rank; ++d) a.strides[d] = sym::floordiv(a.strides[d], 2);
    return a;
  }

  // The block of registers that computes the fewest sums; what they cost for each that is needed.
  double choose_panel(GemmKernel& g) const {
    constexpr std::int64_t kUnknown = std::int64_t{1} << 16;
    const auto likely = [&](Expr size) {
      return std::max<std::int64_t>(sym::hint(size).value_or(kUnknown), 1);
    };
    const std::int64_t rows = likely(g.rows), columns = likely(g.columns);
    const std::int64_t lanes = device_.vector_bytes / 4;
    double least = 0;
    for (const Block& block : kBlocks) {
      const std::int64_t group = std::min(device_.loops.gemm_sums / block.vectors, kMostRows);
      // A panel's row and two splats have registers of their own.
      if (block.vectors * (group + 1) + 2 > device_.vector_registers) continue;
      const std::int64_t panel = block.vectors * lanes;
      const double cost = block.cost *
                          static_cast<double>(computed_rows(rows, device_.loops.gemm_rows, group)) *
                          static_cast<double>(up(columns, panel));
      if (g.panel != 0 && cost >= least) continue;
      g.panel = panel;
      g.group = group;
      least = cost;
    }
    return least / (static_cast<double>(rows) * static_cast<double>(columns));
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
  // Of the panels of b.
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

  void write(std::size_t s, const MatmulStep& m) {
    const std::size_t rank = m.c.sizes.size();
    GemmKernel g;
    g.pairs = !by_boxes_ && buffer(m.a.buffer).dtype == abi::DType::bf16;
    const View a = g.pairs ? pairs_of(m.a) : m.a;
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
    const double computed = by_boxes_ ? 1 : choose_panel(g);
    Expr batches = g.batch;
    if (by_boxes_) {
      take_boxes(g, m);
    } else {
      batches = take_panels(g, m);
    }
    KernelStep step;
    step.buffers = {m.a.buffer, by_boxes_
                                    ? m.b.buffer
                                    : static_cast<BufferId>(scheduled_.program.buffers.size())};
    step.kernel.params = {param(m.a.buffer, ParamRole::in),
                          by_boxes_ ? param(m.b.buffer, ParamRole::in) : packed_param(m.b.buffer)};
    if (!write_epilogue(m, g, step)) return;
    choose(step.schedule, g);
    step.kernel.sources = scheduled_.steps[s].sources;
    step.kernel.body = std::move(g);
    const auto next = reader(s, m);
    const bool joined = next && join(*next, m, step);
    // The result is written and read by nobody, or is written alone.
    const double moves = joined ? next->is_only ? 1 : 0.5 : 0;
    if (!is_chosen(m, computed, moves)) return;
    if (!by_boxes_) add_pack(s, m.b, batches, step);
    collect_sizes(step.kernel, context_);
    Step& made = scheduled_.steps[joined ? next->step : s];
    if (joined) {
      Step& first = scheduled_.steps[s];
      made.label = first.label + "+" + made.label;
      add_missing(step.kernel.sources, made.sources);
      made.flops = first.flops;
      gone_.insert(s);
    }
    made.sources = step.kernel.sources;
    made.action = std::move(step);
  }

  void choose(Schedule& schedule, const GemmKernel& g) const {
    if (by_boxes_) {
      schedule.products = choose_products(g, device_);
      schedule.blocks = BlockSchedule{.threads = 128 + schedule.products->rows * 2};
      return;
    }
    schedule.lanes = device_.vector_bytes / 4;
    schedule.row_block = rows_of_task(g.rows.constant(), device_.loops.gemm_rows, g.group);
    schedule.column_block = up(device_.loops.gemm_columns, g.panel);
  }

  // The right operand as it lies.
  void take_boxes(GemmKernel& g, const MatmulStep& m) const {
    g.b = offset_in(m.b, g.variables[0], g.variables[3], g.variables[2]);
    const ProductSchedule tiles = choose_products(g, device_);
    g.boxes = {*boxes_of(m.a, false, abi::DType::bf16, tiles),
               *boxes_of(m.b, true, abi::DType::bf16, tiles)};
  }

  // In panels, which another step makes, for so many batches.
  Expr take_panels(GemmKernel& g, const MatmulStep& m) const {
    const auto& v = g.variables;
    const std::size_t rank = m.c.sizes.size();
    // One matrix for all batches is packed once.
    bool is_shared = true;
    for (std::size_t d = 0; d + 2 < rank; ++d) {
      is_shared = is_shared && (m.b.strides[d].is_constant(0) || m.b.sizes[d].is_constant(1));
    }
    const Expr batches = is_shared ? context_.constant(1) : g.batch;
    const Expr padded = sym::ceildiv(g.columns, g.panel) * g.panel;
    g.b = v[2] * g.terms;
    if (!is_shared) g.b = g.b + v[0] * padded * g.terms;
    return batches;
  }

  // What is expected of both: sums that are computed, needed or not, against those of the library,
  // which has fewer to compute but another kernel behind it. Panels of what is no parameter, and of
  // parameters that change, are packed in every call.
  [[nodiscard]] bool is_chosen(const MatmulStep& m, double computed, double moves) const {
    if (all_ || device_.libraries.gemm.source == abi::GemmSource::templates) return true;
    if (training_ || !m.b_is_weight) return false;
    constexpr double kMargin = 1.02;
    const abi::LoopRules& rules = device_.loops;
    const auto rows = sym::hint(m.c.sizes[m.c.sizes.size() - 2]);
    const bool few = rows && *rows <= rules.gemm_few_rows;
    double library = 1 + (few ? rules.gemm_few_rows_gain : 0);
    // Of bf16 multiplying takes half the time, and so does moving the result.
    library += moves * rules.gemm_joined_terms / static_cast<double>(*m.a.sizes.back().constant());
    return computed * kMargin < library;
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
  void add_pack(std::size_t s, const View& b, Expr batches, const KernelStep& product) {
    const auto& g = std::get<GemmKernel>(product.kernel.body);
    const abi::DType dtype = buffer(b.buffer).dtype;
    std::vector<Expr> sizes = {batches, sym::ceildiv(g.columns, g.panel), g.terms,
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
    const Expr term = g.pairs ? v[2] * 2 + v[4] : v[2];
    const std::vector<Expr> from = {offset_in(b, v[0], term, column)};
    if (sym::divides(g.panel, g.columns)) {
      body.yield(body.load(0, dtype, from));
    } else {
      const Val exists = body.less(body.index(column), body.index(g.columns));
      body.yield(body.load_if(exists, body.constant(dtype, 0.0), 0, dtype, from));
    }
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

  [[nodiscard]] bool is_seen_outside(BufferId b) const {
    const loop::Program& program = scheduled_.program;
    if (buffer(b).role != loop::BufferRole::temporary) return true;
    const auto& outputs = program.outputs;
    return std::any_of(outputs.begin(), outputs.end(), [&](const loop::ProgramOutput& o) {
      return o.kind == loop::ProgramOutput::Kind::buffer && o.buffer == b;
    });
  }

  static bool contains(const std::vector<BufferId>& list, BufferId b) {
    return std::find(list.begin(), list.end(), b) != list.end();
  }

  // The first step that reads the product, if what the product reads is still there by then.
  struct Reader {
    std::size_t step = 0;
    bool is_only = false;  // nobody else needs the product
  };
  [[nodiscard]] std::optional<Reader> reader(std::size_t s, const MatmulStep& m) const {
    std::optional<std::size_t> found;
    bool is_only = !is_seen_outside(m.c.buffer);
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
        if (b == m.a.buffer || b == m.c.buffer || buffer(b).writes_into) return std::nullopt;
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
  std::map<std::size_t, Step> packs_;
  std::set<std::size_t> gone_;
};

}  // namespace

void write_gemms(ScheduledProgram& scheduled, const abi::Target& device, bool training, bool all) {
  GemmMaker(scheduled, device, training, all).run();
}

}  // namespace inkle::schedule
