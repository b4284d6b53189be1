#include "schedule/gemm.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "schedule/gemm_blocks.h"
#include "schedule/gemm_operand.h"
#include "schedule/gemm_pack.h"
#include "schedule/gemm_panels.h"
#include "schedule/gemm_steps.h"

namespace inkle::schedule {
namespace {

using loop::BufferId;

// Of a CPU: the right operand is packed in panels.
class PanelGemms : GemmSteps {
 public:
  PanelGemms(ScheduledProgram& scheduled, const abi::Target& device, bool training, bool all)
      : GemmSteps(scheduled, device),
        training_(training),
        all_(all),
        panels_(scheduled.program, device, training, all) {}

  void run() {
    for_each_product([&](std::size_t s, const MatmulStep& m) {
      if (panels_.fits(m)) write(s, m);
    });
    finish();
  }

 private:
  void write(std::size_t s, const MatmulStep& m) {
    GemmKernel g = problem_of(m, false);
    RightOperand right = right_of(m, g);
    double computed = 1;
    const auto maker = maker_of(s, m);
    const bool computes = maker && take_operand(*maker, m, g, right);
    std::optional<Left> left;
    if (!computes) {
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
    const Expr batches = take_panels(g, right, context_);
    KernelStep step = step_of(m, right, left ? &left->operand : nullptr);
    if (!write_epilogue(m, g, step)) return;
    panels_.tile(g, step.schedule);
    step.kernel.sources = scheduled_.steps[s].sources;
    if (computes) add_missing(step.kernel.sources, scheduled_.steps[*maker].sources);
    if (left) add_missing(step.kernel.sources, scheduled_.steps[left->step].sources);
    step.kernel.body = std::move(g);
    const auto next =
        reader(s, m, left ? left->operand.buffers : std::vector<BufferId>{m.a.buffer});
    const bool joined = next && join(*next, m, step);
    // The result is written and read by nobody, or is written alone.
    const double moves = joined ? next->is_only ? 1 : 0.5 : 0;
    const double saved = left ? left->saved : 0;
    if (!computes && !panels_.is_chosen(m, computed, moves, saved)) return;
    before_.emplace(s, pack_step(right, param(right.buffer, ParamRole::in), batches, step,
                                 scheduled_.program, device_));
    if (computes) gone_.insert(*maker);
    const std::size_t at = place(s, std::move(step), joined ? &*next : nullptr);
    if (left) absorb(left->step, at);
  }

  // With what is read: a or the first operand of it, panels, others.
  [[nodiscard]] KernelStep step_of(const MatmulStep& m, const RightOperand& right,
                                   const ComputedLeft* left) const {
    KernelStep step;
    const auto add = [&](BufferId b, Param param) {
      step.buffers.push_back(b);
      step.kernel.params.push_back(param);
    };
    if (left != nullptr) {
      add(left->buffers[0], left->params[0]);
    } else {
      add(m.a.buffer, param(m.a.buffer, ParamRole::in));
    }
    add(static_cast<BufferId>(scheduled_.program.buffers.size()),
        panel_param(buffer(right.buffer).dtype, ParamRole::in));
    for (std::size_t i = 0; i < right.others.size(); ++i) add(right.others[i], right.params[i]);
    for (std::size_t i = 1; left != nullptr && i < left->buffers.size(); ++i) {
      add(left->buffers[i], left->params[i]);
    }
    return step;
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
    if (all_ || training_) return std::nullopt;
    if (buffer(m.a.buffer).dtype != abi::DType::f32 || !panels_.may_compute(m)) return std::nullopt;
    const auto found = only_maker(scheduled_, m.b.buffer, s);
    if (!found || gone_.contains(*found)) return std::nullopt;
    const std::vector<BufferId> read = reads(scheduled_.steps[*found]);
    const bool all_stay =
        std::all_of(read.begin(), read.end(), [&](BufferId b) { return stays(b); });
    return all_stay ? found : std::nullopt;
  }

  bool take_operand(std::size_t maker, const MatmulStep& m, GemmKernel& g,
                    RightOperand& right) const {
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
    auto operand = computed_left(*made, m.a.buffer, g, context_);
    if (!operand || changes(operand->buffers, *maker + 1, s)) return std::nullopt;
    const auto saved = panels_.saved_by_left(g, operand->body);
    if (!saved) return std::nullopt;
    return Left{*maker, std::move(*operand), *saved};
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

  bool training_;
  bool all_;
  PanelChoice panels_;
};

}  // namespace

void write_gemms(ScheduledProgram& scheduled, const abi::Target& device, bool training, bool all) {
  if (device.gemm.terms > 0) {
    write_block_gemms(scheduled, device, all);
  } else {
    PanelGemms(scheduled, device, training, all).run();
  }
}

}  // namespace inkle::schedule
