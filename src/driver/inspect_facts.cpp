#include "driver/inspect_facts.h"

#include <algorithm>

#include "abi/arena.h"
#include "base/error.h"
#include "runtime/common/size_program.h"

namespace inkle::driver {
namespace {

using abi::PlanBuffer;
using Kind = abi::BufferDecl::Kind;

void add_operands(const std::vector<abi::PostOp>& post_ops, std::vector<PlanBuffer>& to) {
  for (const abi::PostOp& p : post_ops) {
    const bool has_operand = p.kind == abi::PostOpKind::add || p.kind == abi::PostOpKind::mul;
    if (has_operand) to.push_back(p.operand.buffer);
  }
}

void add_operands(const abi::LibraryCall& call, std::vector<PlanBuffer>& to) {
  if (const auto* m = std::get_if<abi::MatmulCall>(&call)) {
    to.insert(to.end(), {m->a.buffer, m->b.buffer, m->c.buffer});
    if (m->has_bias) to.push_back(m->bias.buffer);
    add_operands(m->post_ops, to);
  } else if (const auto* a = std::get_if<abi::AttentionCall>(&call)) {
    to.insert(to.end(), {a->q.buffer, a->k.buffer, a->v.buffer, a->out.buffer});
    if (a->has_mask) to.push_back(a->mask.buffer);
  } else {
    const auto& c = std::get<abi::ConvolutionCall>(call);
    to.insert(to.end(), {c.x.buffer, c.w.buffer, c.y.buffer});
    if (c.has_bias) to.push_back(c.bias.buffer);
    add_operands(c.post_ops, to);
  }
}

class FactsMaker {
 public:
  explicit FactsMaker(const Inspection& inspection)
      : inspection_(inspection), plan_(*inspection.plan) {
    facts_.has_sizes = inspection.slots.size() == plan_.slot_count && plan_.slot_count > 0;
  }

  InspectFacts run() {
    facts_.kernels.resize(plan_.kernels.size());
    for (std::size_t s = 0; s < plan_.steps.size(); ++s) add_step(s);
    for (const KernelFacts& k : facts_.kernels) facts_.launched += k.calls > 0 ? 1 : 0;
    if (facts_.has_sizes) {
      add_arena();
      add_bytes();
    }
    return std::move(facts_);
  }

 private:
  std::int64_t value(abi::Slot slot) const { return inspection_.slots[slot]; }
  std::int64_t bytes(PlanBuffer b) const { return value(plan_.buffers[b].bytes); }

  void count(const abi::PlanStep& step) {
    if (step.prepare) {
      ++facts_.prepared;
    } else if (std::holds_alternative<abi::Launch>(step.action)) {
      ++facts_.launches;
    } else if (std::holds_alternative<abi::LibraryCall>(step.action)) {
      ++facts_.library_calls;
    } else if (std::holds_alternative<abi::EagerCall>(step.action)) {
      ++facts_.eager_calls;
    }
  }

  void add_step(std::size_t s) {
    const abi::PlanStep& step = plan_.steps[s];
    count(step);
    StepFacts f;
    f.prepare = step.prepare;
    if (facts_.has_sizes && step.bytes) f.bytes = value(*step.bytes);
    if (facts_.has_sizes && step.flops) f.flops = value(*step.flops);
    if (s < inspection_.step_microseconds.size() && !step.prepare) {
      f.microseconds = inspection_.step_microseconds[s];
      facts_.microseconds += *f.microseconds;
    }
    if (inspection_.limits && f.bytes) bound(f, multiplies_narrow(step));
    if (const auto* launch = std::get_if<abi::Launch>(&step.action)) {
      KernelFacts& kernel = facts_.kernels[launch->kernel];
      kernel.steps.push_back(s);
      kernel.calls += step.prepare ? 0 : 1;
      kernel.microseconds += f.microseconds.value_or(0);
    }
    facts_.steps.push_back(std::move(f));
  }

  // A GEMM or convolution of f16 or bf16.
  static bool multiplies_narrow(const abi::PlanStep& step) {
    const auto* call = std::get_if<abi::LibraryCall>(&step.action);
    if (call == nullptr) return false;
    if (const auto* m = std::get_if<abi::MatmulCall>(call)) return is_reduced_float(m->a.dtype);
    if (const auto* a = std::get_if<abi::AttentionCall>(call)) return is_reduced_float(a->q.dtype);
    return is_reduced_float(std::get<abi::ConvolutionCall>(*call).x.dtype);
  }

  void bound(StepFacts& f, bool narrow) const {
    const MachineLimits& limits = *inspection_.limits;
    const MachineLimits::Level& level = limits.level(*f.bytes);
    const double memory = static_cast<double>(*f.bytes) / level.bytes_per_second * 1e6;
    const double rate = narrow && limits.flops_matrix > 0 ? limits.flops_matrix : limits.flops_f32;
    const double compute = static_cast<double>(f.flops.value_or(0)) / rate * 1e6;
    f.limit_microseconds = std::max(memory, compute);
    f.limit = compute > memory ? "compute" : level.name;
  }

  void add_arena() {
    std::vector<abi::Lifetime> lifetimes;
    for (PlanBuffer b = 0; b < plan_.buffers.size(); ++b) {
      const abi::BufferDecl& decl = plan_.buffers[b];
      if (decl.kind != Kind::arena) continue;
      facts_.arena.push_back({b, 0, bytes(b), decl.first_use, decl.last_use});
      lifetimes.push_back({bytes(b), decl.first_use, decl.last_use});
    }
    const abi::ArenaLayout layout = abi::assign_offsets(lifetimes);
    for (std::size_t i = 0; i < facts_.arena.size(); ++i) {
      facts_.arena[i].offset = layout.offsets[i];
    }
    facts_.arena_bytes = layout.bytes;
    facts_.peak_bytes = abi::peak_bytes(lifetimes);
  }

  void add_bytes() {
    std::int64_t moved = 0;
    bool is_known = true;
    for (const StepFacts& f : facts_.steps) {
      if (f.prepare) continue;
      is_known = is_known && f.bytes;
      moved += f.bytes.value_or(0);
    }
    if (is_known) facts_.moved_bytes = moved;
    for (PlanBuffer b = 0; b < plan_.buffers.size(); ++b) {
      const abi::BufferDecl& decl = plan_.buffers[b];
      if (decl.kind == Kind::output) facts_.output_bytes += bytes(b);
      if (decl.kind == Kind::constant) facts_.constant_bytes += bytes(b);
      if (decl.kind == Kind::prepared) facts_.prepared_bytes += bytes(b);
      const bool is_weight =
          decl.kind == Kind::argument && plan_.arguments[decl.index].is_parameter;
      if (is_weight) facts_.parameter_bytes += bytes(b);
    }
  }

  const Inspection& inspection_;
  const abi::Plan& plan_;
  InspectFacts facts_;
};

}  // namespace

std::vector<PlanBuffer> buffers_of(const abi::PlanStep& step) {
  std::vector<PlanBuffer> all;
  if (const auto* launch = std::get_if<abi::Launch>(&step.action)) {
    all = launch->buffers;
  } else if (const auto* call = std::get_if<abi::LibraryCall>(&step.action)) {
    add_operands(*call, all);
  } else if (const auto* eager = std::get_if<abi::EagerCall>(&step.action)) {
    for (const abi::EagerArgument& a : eager->arguments) {
      if (a.kind == abi::EagerArgument::Kind::buffer) all.push_back(a.index);
    }
    all.insert(all.end(), eager->results.begin(), eager->results.end());
  } else if (const auto* copy = std::get_if<abi::CopyStep>(&step.action)) {
    all = {copy->from, copy->to};
  } else if (const auto* region = std::get_if<abi::RegionCall>(&step.action)) {
    all = region->actuals;
  }
  std::vector<PlanBuffer> once;
  for (const PlanBuffer b : all) {
    if (std::find(once.begin(), once.end(), b) == once.end()) once.push_back(b);
  }
  return once;
}

InspectFacts inspect_facts(const Inspection& inspection) {
  INKLE_CHECK(inspection.plan != nullptr, "an inspection without a plan");
  return FactsMaker(inspection).run();
}

std::vector<std::int64_t> slots_of(const abi::Plan& plan, std::span<const abi::TensorView> tensors,
                                   std::span<const std::int64_t> integers) {
  const runtime::common::SizeProgram program(plan);
  std::vector<std::int64_t> slots = program.constant_slots();
  program.evaluate(tensors, integers, slots, true);
  return slots;
}

}  // namespace inkle::driver
