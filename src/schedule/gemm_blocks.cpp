#include "schedule/gemm_blocks.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "schedule/buffers.h"
#include "schedule/gemm_boxes.h"
#include "schedule/gemm_operand.h"
#include "schedule/gemm_steps.h"

namespace inkle::schedule {
namespace {

using loop::BufferId;

class BlockGemms : GemmSteps {
 public:
  BlockGemms(ScheduledProgram& scheduled, const abi::Target& device, bool all)
      : GemmSteps(scheduled, device), all_(all) {}

  void run() {
    for_each_product([&](std::size_t s, const MatmulStep& m) {
      if (can_copy(m)) write(s, m);
    });
    finish();
  }

 private:
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

  // Of operands that are copied unpacked.
  void write(std::size_t s, const MatmulStep& m) {
    GemmKernel g = problem_of(m, false);
    View a = m.a;
    const GemmTraits traits = {!boxes_of(m.b, true, abi::DType::bf16, {})->terms_last, !all_};
    const auto maker = maker_of_left(s, m);
    const auto left = maker ? take_left(*maker, m, traits, g) : std::nullopt;
    KernelStep step;
    step.kernel.sources = scheduled_.steps[s].sources;
    if (left) {
      a = left->copied;
      add_missing(step.kernel.sources, scheduled_.steps[*maker].sources);
    }
    g.b = offset_in(m.b, g.variables[0], g.variables[3], g.variables[2]);
    step.buffers = {a.buffer, m.b.buffer};
    step.kernel.params = {param(a.buffer, ParamRole::in), param(m.b.buffer, ParamRole::in)};
    if (left) {
      const ComputedLeft& from = left->computed;
      step.buffers.insert(step.buffers.end(), from.buffers.begin(), from.buffers.end());
      step.kernel.params.insert(step.kernel.params.end(), from.params.begin(), from.params.end());
    }
    const std::vector<BufferId> read = step.buffers;
    if (!write_epilogue(m, g, step)) return;
    step.kernel.body = std::move(g);
    const auto next = reader(s, m, read);
    const bool joined = next && join(*next, m, step);
    if (!choose_tile(a, m.b, traits, step)) return;
    const std::size_t at = place(s, std::move(step), joined ? &*next : nullptr);
    if (left) absorb(*maker, at);
  }

  // The tile that suits the epilogue, and the boxes of it; false: there is none.
  bool choose_tile(const View& a, const View& b, const GemmTraits& traits, KernelStep& step) {
    auto& g = std::get<GemmKernel>(step.kernel.body);
    const GemmSchedule tiles = choose_gemm_schedule(g, traits, device_);
    if (tiles.rows == 0) return false;
    g.boxes = {*boxes_of(a, false, abi::DType::bf16, tiles),
               *boxes_of(b, true, abi::DType::bf16, tiles)};
    step.schedule.gemm = tiles;
    step.schedule.blocks = BlockSchedule{.threads = 384};
    if (tiles.parts > 1) add_partials(step, tiles);
    return true;
  }

  // Memory for sums of parts of the terms, the last parameter.
  void add_partials(KernelStep& step, const GemmSchedule& tiles) {
    auto& g = std::get<GemmKernel>(step.kernel.body);
    const std::vector<Expr> sizes = {elements_of_parts(g, tiles)};
    loop::Buffer made = temporary(scheduled_.program, step.buffers[1], abi::DType::f32, sizes);
    made.strides = dense_strides(context_, sizes, row_major(1));
    g.partials = static_cast<std::uint32_t>(step.buffers.size());
    const auto at = static_cast<BufferId>(scheduled_.program.buffers.size());
    scheduled_.program.buffers.push_back(std::move(made));
    step.buffers.push_back(at);
    step.kernel.params.push_back(param(at, ParamRole::out));
  }

  // The step before that makes the left operand, for this product alone, of what is still there.
  [[nodiscard]] std::optional<std::size_t> maker_of_left(std::size_t s, const MatmulStep& m) const {
    if (device_.gemm.computed_again == 0 || m.a.buffer == m.b.buffer) return std::nullopt;
    const auto found = only_maker(scheduled_, m.a.buffer, s);
    if (!found || gone_.contains(*found)) return std::nullopt;
    const Step& maker = scheduled_.steps[*found];
    if (maker.prepare || changes(reads(maker), *found + 1, s)) return std::nullopt;
    return found;
  }

  // Changes the product, where few enough blocks of columns compute what the maker does.
  std::optional<CopiedLeft> take_left(std::size_t maker, const MatmulStep& m,
                                      const GemmTraits& traits, GemmKernel& g) const {
    const auto* made = std::get_if<KernelStep>(&scheduled_.steps[maker].action);
    if (made == nullptr) return std::nullopt;
    auto left = copied_left(*made, m.a.buffer, g, context_);
    if (!left || !boxes_of(left->copied, false, abi::DType::bf16, {})) return std::nullopt;
    GemmKernel computing = g;
    computing.a = left->offset;
    computing.left = left->computed.body;
    for (loop::Instruction& i : computing.left.instructions) {
      if (i.opcode == loop::Opcode::load) i.buffer += 2;  // behind a and b
    }
    const GemmSchedule tiles = choose_gemm_schedule(computing, traits, device_);
    const auto columns = g.columns.constant();
    const std::int64_t most = std::int64_t{device_.gemm.computed_again} * tiles.columns;
    if (tiles.rows == 0 || !columns || *columns > most) return std::nullopt;
    g = std::move(computing);
    return left;
  }

  bool all_;
};

}  // namespace

void write_block_gemms(ScheduledProgram& scheduled, const abi::Target& device, bool all) {
  BlockGemms(scheduled, device, all).run();
}

}  // namespace inkle::schedule
