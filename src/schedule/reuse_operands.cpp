#include "schedule/reuse_operands.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "schedule/library.h"
#include "schedule/linear.h"
#include "schedule/stages.h"

namespace inkle::schedule {
namespace {

using loop::Buffer;
using loop::BufferId;
using loop::Opcode;

// --- Offsets -------------------------------------------------------------------------------------

struct Loop {
  Expr extent, stride;
};

// The number of elements that the loops access if the access is dense and one to one: the strides
// are 1 and the products of the extents below, in some order.
std::optional<Expr> elements_of(std::vector<Loop> loops, sym::Context& context) {
  std::erase_if(loops, [](const Loop& l) { return l.extent.is_constant(1); });
  Expr reached = context.constant(1);
  while (!loops.empty()) {
    const auto next = std::ranges::find(loops, reached, &Loop::stride);
    if (next == loops.end()) return std::nullopt;
    reached = reached * next->extent;
    loops.erase(next);
  }
  return reached;
}

std::optional<Expr> elements_of(const Buffer& buffer, sym::Context& context) {
  if (!buffer.strides || !(buffer.offset.is_null() || buffer.offset.is_constant(0))) {
    return std::nullopt;
  }
  std::vector<Loop> loops;
  for (std::size_t d = 0; d < buffer.sizes.size(); ++d) {
    loops.push_back({buffer.sizes[d], (*buffer.strides)[d]});
  }
  return elements_of(std::move(loops), context);
}

// The number of elements that an offset accesses in the loops of a stage, each at one point.
std::optional<Expr> elements_of(Expr offset, const LoopKernel& kernel, const Stage& stage,
                                sym::Context& context) {
  std::vector<Loop> loops;
  for (const std::vector<Dim>* dims : {&kernel.outer, &stage.inner}) {
    for (const Dim& dim : *dims) {
      const auto stride = sym::stride(offset, dim.variable);
      if (!stride) return std::nullopt;
      loops.push_back({dim.extent, *stride});
    }
  }
  return elements_of(std::move(loops), context);
}

// --- Kernels -------------------------------------------------------------------------------------

bool touches(const LoopKernel& loops, std::size_t param) {
  return std::ranges::any_of(loops.stages, [&](const Stage& stage) {
    return std::ranges::any_of(stage.body.instructions,
                               [&](const loop::Instruction& i) {
                                 return i.opcode == Opcode::load && i.buffer == param;
                               }) ||
           std::ranges::any_of(stage.stores,
                               [&](const StageStore& s) { return s.target == param; });
  });
}

struct StoreOf {
  const Stage* stage = nullptr;
  const StageStore* store = nullptr;
};

// The one store of a result, if it is the only one and a pointwise stage's.
std::optional<StoreOf> only_store(const LoopKernel& loops, std::size_t param) {
  std::optional<StoreOf> found;
  for (const Stage& stage : loops.stages) {
    for (const StageStore& store : stage.stores) {
      if (store.target != param) continue;
      const bool is_plain = stage.kind == StageKind::pointwise && stage.phase == Phase::each &&
                            store.mode == loop::StoreMode::overwrite;
      if (found || !is_plain) return std::nullopt;
      found = {&stage, &store};
    }
  }
  return found;
}

// Whether `operand` is loaded in that stage alone, and only where the result is stored.
bool is_loaded_there(const LoopKernel& loops, std::size_t operand, const StoreOf& result) {
  return std::ranges::all_of(loops.stages, [&](const Stage& stage) {
    return std::ranges::all_of(stage.body.instructions, [&](const loop::Instruction& i) {
      if (i.opcode != Opcode::load || i.buffer != operand) return true;
      return &stage == result.stage && i.indices.front() == result.store->offset;
    });
  });
}

// On a GPU, whether the kernel needs the operand unchanged: for loads in flight across iterations
// of a column's loop, the prefetch of sequential rows, or values that later stages recompute
// rather than read from scratch.
bool needs_old_operand(const Schedule& schedule, const Kernel& kernel, const Stage& stage) {
  if (!schedule.blocks) return false;
  if (std::get<LoopKernel>(kernel.body).sequential != 0) return true;
  if (schedule.blocks->is<BlockSchedule::Columns>() && !stage.inner.empty()) return true;
  return std::ranges::any_of(stage.stores,
                             [&](const StageStore& s) { return s.target >= kernel.params.size(); });
}

// The elements of a result that may take the memory of an operand; nullopt: it may not.
std::optional<Expr> elements_in_place(const KernelStep& step, std::size_t operand,
                                      std::size_t result, sym::Context& context) {
  const Kernel& kernel = step.kernel;
  const Param& from = kernel.params[operand];
  const Param& to = kernel.params[result];
  const auto* loops = std::get_if<LoopKernel>(&kernel.body);
  if (loops == nullptr || from.role != ParamRole::in || to.role != ParamRole::out ||
      from.dtype != to.dtype || from.alignment != to.alignment || from.may_alias || to.may_alias) {
    return std::nullopt;
  }
  const auto in_last_block = [&](const LastBlock::Part& part) {
    return touches(part.loops, operand) || touches(part.loops, result);
  };
  if (kernel.last_block && std::ranges::any_of(kernel.last_block->parts, in_last_block))
    return std::nullopt;
  const auto store = only_store(*loops, result);
  if (!store || needs_old_operand(step.schedule, kernel, *store->stage) ||
      !is_loaded_there(*loops, operand, *store)) {
    return std::nullopt;
  }
  return elements_of(store->store->offset, *loops, *store->stage, context);
}

// One parameter for both: that of the operand.
void merge_parameters(KernelStep& step, std::uint32_t operand, std::uint32_t result) {
  Kernel& kernel = step.kernel;
  const auto renumber = [&](std::uint32_t& b) {
    if (b == result) b = operand;
    if (b > result) --b;
  };
  for_each_loops(kernel, [&](LoopKernel& loops) { for_each_memory(loops, renumber); });
  if (kernel.last_block) {
    for (std::uint32_t& cell : kernel.last_block->cells) renumber(cell);
  }
  std::vector<BufferId> buffers;
  for (std::size_t p = 0; p < step.buffers.size(); ++p) {
    if (p % kernel.params.size() != result) buffers.push_back(step.buffers[p]);
  }
  step.buffers = std::move(buffers);
  kernel.params[operand].role = ParamRole::inout;
  kernel.params.erase(kernel.params.begin() + static_cast<std::ptrdiff_t>(result));
}

// --- Steps ---------------------------------------------------------------------------------------

class Reuser {
 public:
  Reuser(ScheduledProgram& scheduled, const abi::Target& target)
      : program_(scheduled.program),
        steps_(scheduled.steps),
        context_(*scheduled.program.context),
        target_(target) {}

  void run() {
    find_uses();
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      for_each_buffer(steps_[s], [&](BufferId& b) { b = uses_[b].memory; });
      if (auto* step = std::get_if<KernelStep>(&steps_[s].action); step && !steps_[s].prepare) {
        reuse_in(*step, s);
      }
    }
  }

 private:
  struct Uses {
    BufferId memory = 0;  // the buffer whose memory it has
    std::size_t first = ~std::size_t{0}, last = 0;
    bool is_free = false;   // the memory is the plan's own, and no other value is known to be in it
    bool is_whole = false;  // the host sees its sizes and strides
    std::optional<Expr> elements;
  };

  void find_uses() {
    uses_.resize(program_.buffers.size());
    for (BufferId b = 0; b < uses_.size(); ++b) {
      const Buffer& buffer = program_.buffers[b];
      uses_[b].memory = b;
      uses_[b].is_free = buffer.role == loop::BufferRole::temporary && !buffer.writes_into;
      if (uses_[b].is_free) uses_[b].elements = elements_of(buffer, context_);
    }
    for (const Buffer& buffer : program_.buffers) {
      if (buffer.writes_into) uses_[*buffer.writes_into].is_free = false;
    }
    for (const loop::ProgramOutput& output : program_.outputs) {
      using Kind = loop::ProgramOutput::Kind;
      const bool is_tensor = output.kind == Kind::buffer || output.kind == Kind::input;
      if (is_tensor) uses_[output.buffer].is_free = false;
    }
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      Step& step = steps_[s];
      const bool is_eager = std::holds_alternative<EagerStep>(step.action);
      for_each_buffer(step, [&](BufferId b) {
        uses_[b].first = std::min(uses_[b].first, s);
        uses_[b].last = s;
        uses_[b].is_whole = uses_[b].is_whole || is_eager;
      });
      if (!step.prepare && !may_be_hosts(step)) continue;
      for (const BufferId b : writes(step)) uses_[b].is_free = false;
    }
  }

  // Whether the host may allocate what the step writes.
  bool may_be_hosts(const Step& step) const {
    if (const auto* convolution = std::get_if<ConvolutionStep>(&step.action)) {
      return target_.has_blocks && !is_own(target_.libraries.convolution, *convolution, program_);
    }
    return std::holds_alternative<AttentionStep>(step.action) ||
           std::holds_alternative<EagerStep>(step.action);
  }

  void reuse_in(KernelStep& step, std::size_t s) {
    for (std::uint32_t result = 0; result < step.kernel.params.size();) {
      const auto operand = operand_for(step, s, result);
      if (operand) {
        take_over(step, *operand, result);  // the next result has its index now
      } else {
        ++result;
      }
    }
  }

  std::optional<std::uint32_t> operand_for(const KernelStep& step, std::size_t s,
                                           std::uint32_t result) const {
    if (step.kernel.params[result].role != ParamRole::out) return std::nullopt;
    for (std::uint32_t operand = 0; operand < step.kernel.params.size(); ++operand) {
      if (can_reuse(step, s, operand, result)) return operand;
    }
    return std::nullopt;
  }

  // In every instance of the kernel.
  bool can_reuse(const KernelStep& step, std::size_t s, std::uint32_t operand,
                 std::uint32_t result) const {
    if (step.kernel.params[operand].role != ParamRole::in) return false;
    const std::size_t params = step.kernel.params.size();
    const std::size_t instances = step.buffers.size() / params;
    for (std::size_t i = 0; i < instances; ++i) {
      if (!fits(step, s, step.buffers[i * params + operand], step.buffers[i * params + result])) {
        return false;
      }
    }
    const auto elements = elements_in_place(step, operand, result, context_);
    if (!elements) return false;
    for (std::size_t i = 0; i < instances; ++i) {
      Expr actual = *elements;
      if (!step.table.empty()) {
        std::vector<std::pair<Expr, Expr>> map;
        for (std::size_t n = 0; n < step.kernel.sizes.size(); ++n) {
          map.emplace_back(step.kernel.sizes[n], step.table[i][n]);
        }
        actual = sym::substitute(actual, map);
      }
      if (actual != uses_[step.buffers[i * params + result]].elements) return false;
    }
    return true;
  }

  bool fits(const KernelStep& step, std::size_t s, BufferId operand, BufferId result) const {
    const Uses& from = uses_[operand];
    const Uses& to = uses_[result];
    const Buffer& a = program_.buffers[operand];
    const Buffer& b = program_.buffers[result];
    const bool is_same_shape = a.sizes == b.sizes && a.strides == b.strides;
    return from.is_free && to.is_free && from.first < s && from.last == s && to.first == s &&
           from.elements && to.elements && *from.elements == *to.elements && a.dtype == b.dtype &&
           a.device == b.device && (is_same_shape || !to.is_whole) &&
           std::ranges::count(step.buffers, operand) == 1 &&
           std::ranges::count(step.buffers, result) == 1;
  }

  void take_over(KernelStep& step, std::uint32_t operand, std::uint32_t result) {
    const std::size_t params = step.kernel.params.size();
    for (std::size_t i = 0; i < step.buffers.size(); i += params) {
      const BufferId from = step.buffers[i + operand];
      Uses& to = uses_[step.buffers[i + result]];
      to.memory = from;
      uses_[from].last = to.last;
      uses_[from].is_whole = uses_[from].is_whole || to.is_whole;
      log(LogChannel::fusion, "{} takes the memory of {}",
          program_.buffers[step.buffers[i + result]].name, program_.buffers[from].name);
    }
    merge_parameters(step, operand, result);
  }

  loop::Program& program_;
  std::vector<Step>& steps_;
  sym::Context& context_;
  const abi::Target& target_;
  std::vector<Uses> uses_;
};

}  // namespace

void reuse_operands(ScheduledProgram& scheduled, const abi::Target& target) {
  Reuser(scheduled, target).run();
}

}  // namespace inkle::schedule
