#include "schedule/scalars.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/log.h"
#include "loop/builder.h"
#include "schedule/stages.h"

namespace inkle::schedule {
namespace {

using loop::BodyBuilder;
using loop::BufferId;
using loop::Instruction;
using loop::Opcode;
using loop::Program;
using loop::Val;

// Instructions that each thread may repeat.
constexpr std::size_t kMostInstructions = 40;

bool is_plain(const Stage& stage) {
  return stage.kind == StageKind::pointwise && stage.inner.empty() &&
         std::all_of(stage.stores.begin(), stage.stores.end(),
                     [](const StageStore& s) { return s.mode == loop::StoreMode::overwrite; });
}

// Drops yields that nothing stores and instructions that no yield needs.
void trim(Stage& stage) {
  const loop::Body& from = stage.body;
  std::map<std::uint32_t, std::uint32_t> number;
  loop::Body body;
  for (StageStore& store : stage.stores) {
    const auto [at, is_new] =
        number.try_emplace(store.yield, static_cast<std::uint32_t>(number.size()));
    if (is_new) body.yields.push_back(from.yields[store.yield]);
    store.yield = at->second;
  }
  std::vector<bool> live(from.instructions.size(), false);
  for (const Val y : body.yields) live[y] = true;
  for (auto v = static_cast<Val>(live.size()); v-- > 0;) {
    if (from[v].opcode == Opcode::indirect) live[v] = true;
    if (!live[v]) continue;
    for (const Val operand : from[v].used()) live[operand] = true;
  }
  std::vector<Val> map(live.size(), 0);
  for (Val v = 0; v < live.size(); ++v) {
    if (!live[v]) continue;
    Instruction i = from[v];
    for (std::size_t o = 0; o < i.operand_count; ++o) i.operands[o] = map[i.operands[o]];
    map[v] = static_cast<Val>(body.instructions.size());
    body.instructions.push_back(std::move(i));
  }
  for (Val& y : body.yields) y = map[y];
  stage.body = std::move(body);
}

class Mover {
 public:
  Mover(std::vector<Step>& steps, const Program& program)
      : steps_(steps), program_(program), readers_(program.buffers.size()) {
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      for (const BufferId b : reads(steps_[s])) readers_[b].push_back(s);
    }
    for (const auto& output : program_.outputs) {
      if (output.kind == loop::ProgramOutput::Kind::buffer) kept_.insert(output.buffer);
    }
  }

  void run() {
    std::vector<std::vector<Step>> after(steps_.size());
    std::vector<bool> gone(steps_.size(), false);
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      const auto user = user_of(s);
      if (!user) continue;
      log(LogChannel::fusion, "scalars of {} move into {}", steps_[s].label, steps_[*user].label);
      give(steps_[s], steps_[*user]);
      gone[s] = true;
      const auto& kernel = std::get<KernelStep>(steps_[s].action).kernel;
      if (std::get<LoopKernel>(kernel.body).stages.front().stores.empty()) continue;
      after[*user].push_back(std::move(steps_[s]));
    }
    std::vector<Step> ordered;
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      if (!gone[s]) ordered.push_back(std::move(steps_[s]));
      for (Step& step : after[s]) ordered.push_back(std::move(step));
    }
    steps_ = std::move(ordered);
  }

 private:
  static const KernelStep* kernel_of(const Step& step) {
    const auto* kernel = std::get_if<KernelStep>(&step.action);
    const bool fits = kernel != nullptr && !step.prepare && kernel->kernel.instances == 1 &&
                      kernel->schedule.blocks &&
                      std::holds_alternative<LoopKernel>(kernel->kernel.body);
    if (!fits) return nullptr;
    const auto& loops = std::get<LoopKernel>(kernel->kernel.body);
    const bool plain = std::all_of(loops.stages.begin(), loops.stages.end(), is_plain);
    return plain && loops.scratch.empty() ? kernel : nullptr;
  }

  BufferId storage(BufferId b) const { return program_.buffers[b].writes_into.value_or(b); }

  bool meet(const std::vector<BufferId>& a, const std::vector<BufferId>& b) const {
    return std::any_of(a.begin(), a.end(), [&](BufferId x) {
      return std::any_of(b.begin(), b.end(), [&](BufferId y) { return storage(x) == storage(y); });
    });
  }

  bool is_private(BufferId b) const {
    const loop::Buffer& buffer = program_.buffers[b];
    return buffer.role == loop::BufferRole::temporary && !buffer.writes_into && !kept_.contains(b);
  }

  // A kernel of one iteration that each thread of another kernel may repeat: it cannot fail.
  static bool makes_scalars(const KernelStep& kernel) {
    const auto& loops = std::get<LoopKernel>(kernel.kernel.body);
    const bool once = std::all_of(loops.outer.begin(), loops.outer.end(),
                                  [](const Dim& dim) { return dim.extent.is_constant(1); });
    if (!once || loops.stages.size() != 1) return false;
    const Stage& stage = loops.stages.front();
    const auto repeats = [](const Instruction& i) {
      const bool fails =
          i.opcode == Opcode::indirect || (i.opcode == Opcode::div && !abi::is_float(i.dtype));
      return !fails && (i.opcode != Opcode::load || i.indices.front().is_constant());
    };
    const auto& all = stage.body.instructions;
    return all.size() <= kMostInstructions && std::all_of(all.begin(), all.end(), repeats) &&
           std::all_of(stage.stores.begin(), stage.stores.end(), [&](const StageStore& s) {
             return s.offset.is_constant() && stage.body[stage.body.yields[s.yield]].dtype ==
                                                  kernel.kernel.params[s.target].dtype;
           });
  }

  // The only step that reads what step `s` makes for others, if `s` can run after it as well.
  std::optional<std::size_t> user_of(std::size_t s) const {
    const KernelStep* kernel = kernel_of(steps_[s]);
    if (kernel == nullptr || !makes_scalars(*kernel)) return std::nullopt;
    std::set<std::size_t> users;
    std::vector<BufferId> others;  // results that must be stored
    for (const BufferId b : writes(steps_[s])) {
      if (!is_private(b)) {
        others.push_back(b);
        continue;
      }
      users.insert(readers_[b].begin(), readers_[b].end());
    }
    if (users.size() != 1 || *users.begin() <= s) return std::nullopt;
    const std::size_t user = *users.begin();
    const KernelStep* target = kernel_of(steps_[user]);
    if (target == nullptr || !target->schedule.blocks->is<BlockSchedule::Columns>()) {
      return std::nullopt;
    }
    const auto& loops = std::get<LoopKernel>(target->kernel.body);
    if (loops.stages.size() != 1 ||
        !std::all_of(loops.outer.begin(), loops.outer.end(),
                     [](const Dim& dim) { return sym::bounds(dim.extent).low >= 1; })) {
      return std::nullopt;
    }
    const std::vector<BufferId> used = reads(steps_[s]);
    for (std::size_t q = s + 1; q <= user; ++q) {
      if (std::holds_alternative<EagerStep>(steps_[q].action)) return std::nullopt;
      const std::vector<BufferId> written = writes(steps_[q]);
      if (meet(written, used) || meet(written, others)) return std::nullopt;
      if (meet(reads(steps_[q]), others)) return std::nullopt;
    }
    return user;
  }

  // Parameter of the user's kernel for a buffer.
  static std::uint32_t parameter(KernelStep& user, BufferId buffer, const Param& like) {
    const auto known = std::find(user.buffers.begin(), user.buffers.end(), buffer);
    const auto number = static_cast<std::uint32_t>(known - user.buffers.begin());
    if (known == user.buffers.end()) {
      user.buffers.push_back(buffer);
      user.kernel.params.push_back(like);
      user.kernel.params.back().role = ParamRole::in;
    }
    return number;
  }

  void give(Step& step, Step& to) {
    sym::Context& context = *program_.context;
    auto& maker = std::get<KernelStep>(step.action);
    auto& user = std::get<KernelStep>(to.action);
    Stage& made = std::get<LoopKernel>(maker.kernel.body).stages.front();
    Stage& stage = std::get<LoopKernel>(user.kernel.body).stages.front();
    loop::Body numbers = made.body;
    for (Instruction& i : numbers.instructions) {
      if (i.opcode != Opcode::load) continue;
      i.buffer = parameter(user, maker.buffers[i.buffer], maker.kernel.params[i.buffer]);
    }
    std::map<std::uint32_t, std::uint32_t> yield_of;  // of the user's parameters that are removed
    for (const StageStore& store : made.stores) {
      const BufferId b = maker.buffers[store.target];
      const auto at = std::find(user.buffers.begin(), user.buffers.end(), b);
      if (!is_private(b) || at == user.buffers.end()) continue;
      yield_of[static_cast<std::uint32_t>(at - user.buffers.begin())] = store.yield;
    }
    loop::Body body;
    {
      BodyBuilder builder(body, context);
      std::vector<Val> values;
      const auto on_load = [&](BodyBuilder& b, Instruction load) {
        const auto at = yield_of.find(load.buffer);
        if (at == yield_of.end()) return b.append(std::move(load));
        if (values.empty()) values = loop::inline_body(numbers, {}, b, nullptr);
        const Val value = values[at->second];
        // Of a masked load: its condition, and what holds elsewhere.
        return load.operand_count == 0 ? value
                                       : b.select(load.operands[0], value, load.operands[1]);
      };
      std::vector<std::pair<Expr, Expr>> renamed;
      body.yields = loop::inline_body(stage.body, {}, builder, on_load, &renamed);
      for (StageStore& store : stage.stores) store.offset = sym::substitute(store.offset, renamed);
    }
    stage.body = std::move(body);
    drop_unread(user);
    std::erase_if(made.stores,
                  [&](const StageStore& store) { return is_private(maker.buffers[store.target]); });
    drop_unread(maker);
    collect_sizes(user.kernel, context);
    if (!to.flops.is_null() && !step.flops.is_null()) to.flops = to.flops + step.flops;
  }

  // Removes parameters that are no longer loaded or stored.
  static void drop_unread(KernelStep& step) {
    auto& loops = std::get<LoopKernel>(step.kernel.body);
    std::vector<bool> used(step.buffers.size(), false);
    for (Stage& stage : loops.stages) {
      trim(stage);
      for (const Instruction& i : stage.body.instructions) {
        if (i.opcode == Opcode::load) used[i.buffer] = true;
      }
      for (const StageStore& store : stage.stores) used[store.target] = true;
    }
    std::vector<std::uint32_t> number(used.size(), 0);
    std::size_t next = 0;
    for (std::size_t p = 0; p < used.size(); ++p) {
      if (!used[p]) continue;
      number[p] = static_cast<std::uint32_t>(next);
      step.buffers[next] = step.buffers[p];
      step.kernel.params[next++] = step.kernel.params[p];
    }
    step.buffers.resize(next);
    step.kernel.params.resize(next);
    for (Stage& stage : loops.stages) {
      for (Instruction& i : stage.body.instructions) {
        if (i.opcode == Opcode::load) i.buffer = number[i.buffer];
      }
      for (StageStore& store : stage.stores) store.target = number[store.target];
    }
  }

  std::vector<Step>& steps_;
  const Program& program_;
  std::vector<std::vector<std::size_t>> readers_;  // steps, by buffer
  std::set<BufferId> kept_;                        // results of the program
};

}  // namespace

void move_scalars(std::vector<Step>& steps, const Program& program) { Mover(steps, program).run(); }

}  // namespace inkle::schedule
