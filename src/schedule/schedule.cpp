#include "schedule/schedule.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "loop/builder.h"
#include "schedule/blocks.h"
#include "schedule/bytes.h"
#include "schedule/cache_hints.h"
#include "schedule/combine.h"
#include "schedule/endings.h"
#include "schedule/epilogue.h"
#include "schedule/gemm.h"
#include "schedule/group.h"
#include "schedule/inline.h"
#include "schedule/integers.h"
#include "schedule/layout.h"
#include "schedule/linear.h"
#include "schedule/loops.h"
#include "schedule/numbers.h"
#include "schedule/rewrite.h"
#include "schedule/scalars.h"
#include "schedule/stages.h"
#include "schedule/verify.h"
#include "schedule/walk.h"

namespace inkle::schedule {
namespace {

using loop::BufferId;
using loop::Nest;
using loop::NestKind;
using loop::Program;

KernelStep attention_kernel(const Nest& nest, const Program& program) {
  const auto& a = std::get<loop::Attention>(nest.detail);
  sym::Context& context = *program.context;
  AttentionKernel kernel;
  KernelStep step;
  const auto operand = [&](const loop::Access& access, ParamRole role) {
    const loop::Buffer& buffer = program.buffers[access.buffer];
    Param param;
    param.role = role;
    param.dtype = buffer.dtype;
    param.alignment = static_cast<std::int32_t>(abi::size_of(buffer.dtype));
    step.kernel.params.push_back(param);
    step.buffers.push_back(access.buffer);
    kernel.offsets.push_back(linear_offset(buffer, access.indices, context));
  };
  operand(a.q, ParamRole::in);
  operand(a.k, ParamRole::in);
  operand(a.v, ParamRole::in);
  kernel.variables.assign(a.variables.begin(), a.variables.end());
  const std::vector<Expr>& v = kernel.variables;
  if (a.gradient) {
    operand(a.gradient->out, ParamRole::in);
    operand(a.gradient->grad, ParamRole::in);
    operand({a.gradient->statistics, {v[0], v[1], v[2], v[3]}}, ParamRole::in);
    for (const loop::Store& s : nest.stores)
      operand({s.buffer, {v[0], v[1], v[2], v[3]}}, ParamRole::out);
    kernel.is_gradient = true;
  } else {
    operand({nest.stores.front().buffer, {v[0], v[1], v[2], v[3]}}, ParamRole::out);
  }
  if (a.mask) {
    operand(*a.mask, ParamRole::in);
    kernel.has_mask = true;
    kernel.mask_dtype = program.buffers[a.mask->buffer].dtype;
  }
  if (a.lse) {
    operand({*a.lse, {v[0], v[1], v[2]}}, ParamRole::out);
    kernel.has_lse = true;
  }
  if (a.statistics) {
    operand({*a.statistics, {v[0], v[1], v[2], v[3]}}, ParamRole::out);
    kernel.has_statistics = true;
  }
  if (a.dropout) {
    operand({a.dropout->seed, {}}, ParamRole::in);
    kernel.dropout = {a.dropout->number, a.dropout->p};
  }
  kernel.dtype = program.buffers[a.q.buffer].dtype;
  kernel.batch = a.batch;
  kernel.heads = a.heads;
  kernel.kv_heads = a.kv_heads;
  kernel.q_length = a.q_length;
  kernel.kv_length = a.kv_length;
  kernel.head_dim = a.head_dim;
  kernel.value_dim = a.value_dim;
  kernel.scale = a.scale;
  kernel.is_causal = a.is_causal;
  kernel.safe = a.safe;
  kernel.hidden = a.hidden;
  step.kernel.body = std::move(kernel);
  if (!nest.source.empty()) step.kernel.sources.push_back(nest.source);
  collect_sizes(step.kernel, context);
  return step;
}

// Two blocks of weights are live; rows of up to 512 columns in one (256 KB of a second cache),
// whose gradients are then as exact as those of a softmax.
void set_gradient_blocks(Schedule& schedule, const loop::Attention& attention) {
  constexpr std::int64_t kRows = 64, kColumns = 128, kMostInOne = 512;
  const auto columns = attention.kv_length.constant();
  schedule.q_block = kRows;
  schedule.kv_block = columns && *columns <= kMostInOne ? *columns : kColumns;
}

// Attention as a call of the library.
std::optional<AttentionStep> attention_call(const Nest& nest, const Program& program) {
  const auto& a = std::get<loop::Attention>(nest.detail);
  if (a.lse || a.statistics || a.dropout || a.gradient || a.hidden != loop::kHides) {
    return std::nullopt;
  }
  const auto& v = a.variables;
  const auto dims = [&](Expr heads, Expr rows, Expr columns) {
    return std::vector<loop::Dim>{{v[0], a.batch}, {v[1], heads}, {v[2], rows}, {v[3], columns}};
  };
  const auto q = strided_view(program, a.q, dims(a.heads, a.q_length, a.head_dim));
  const auto k = strided_view(program, a.k, dims(a.kv_heads, a.kv_length, a.head_dim));
  const auto value = strided_view(program, a.v, dims(a.kv_heads, a.kv_length, a.value_dim));
  const auto out = strided_view(program, {nest.stores.front().buffer, {v[0], v[1], v[2], v[3]}},
                                dims(a.heads, a.q_length, a.value_dim));
  if (!q || !k || !value || !out) return std::nullopt;
  AttentionStep step{.q = *q, .k = *k, .v = *value, .out = *out};
  step.scale = a.scale;
  step.is_causal = a.is_causal;
  if (a.mask) {
    step.mask = strided_view(program, *a.mask, dims(a.heads, a.q_length, a.kv_length));
    if (!step.mask) return std::nullopt;
  }
  return step;
}

class StepBuilder {
 public:
  StepBuilder(const Program& program, const Options& options, ContractionSteps contractions)
      : program_(program), options_(options), contractions_(std::move(contractions)) {}

  std::vector<Step> run(const std::vector<Group>& groups) {
    readers_.resize(program_.buffers.size());
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (const Member& member : groups[g].members) {
        for (const BufferId b : loop::reads(member.nest)) readers_[b].insert(g);
      }
    }
    for (const auto& output : program_.outputs) {
      if (output.kind == loop::ProgramOutput::Kind::buffer)
        readers_[output.buffer].insert(kOutside);
    }
    std::vector<Step> steps;
    for (std::size_t g = 0; g < groups.size(); ++g) steps.push_back(build(groups[g], g));
    return steps;
  }

 private:
  static constexpr std::size_t kOutside = ~std::size_t{0};

  bool is_external(BufferId b, std::size_t group) const {
    const loop::Buffer& buffer = program_.buffers[b];
    if (buffer.role != loop::BufferRole::temporary || buffer.writes_into) return true;
    return std::any_of(readers_[b].begin(), readers_[b].end(),
                       [&](std::size_t g) { return g != group; });
  }

  Step build(const Group& group, std::size_t number) {
    const Nest& first = group.members.front().nest;
    switch (first.kind) {
      case NestKind::pointwise:
      case NestKind::reduction:
      case NestKind::scan:
      case NestKind::scatter:
        return loop_step(group, number);
      case NestKind::attention: {
        Step step;
        const auto& a = std::get<loop::Attention>(first.detail);
        if (options_.can_attend && options_.can_attend(program_.buffers[a.q.buffer].dtype)) {
          if (auto call = attention_call(first, program_)) {
            step.label = "attention";
            if (!first.source.empty()) step.sources.push_back(first.source);
            step.flops =
                a.batch * a.heads * a.q_length * a.kv_length * (a.head_dim + a.value_dim) * 2;
            step.action = std::move(*call);
            return step;
          }
        }
        KernelStep kernel = attention_kernel(first, program_);
        kernel.schedule.lanes = options_.device.vector_bytes / 4;
        // Packing the keys costs a tenth to a fifth of a block of 32 rows; from 128 on, little.
        kernel.schedule.q_block = 128;
        if (a.gradient) set_gradient_blocks(kernel.schedule, a);
        step.label = "attention";
        step.sources = kernel.kernel.sources;
        step.action = std::move(kernel);
        return step;
      }
      case NestKind::matmul:
      case NestKind::convolution: {
        const auto at = contractions_.find(first.stores.front().buffer);
        if (at == contractions_.end()) {
          unsupported("{} at {} has operands that the library cannot run", first.label,
                      first.source);
        }
        return at->second;
      }
      case NestKind::eager: {
        Step step;
        const auto& call = std::get<loop::EagerCall>(first.detail);
        step.label = call.name;
        if (!first.source.empty()) step.sources.push_back(first.source);
        step.action = EagerStep{call};
        return step;
      }
      case NestKind::sort:
        unsupported("{} at {} has no kernel yet", first.label, first.source);
    }
    INKLE_CHECK(false, "unknown nest kind");
  }

  Step loop_step(const Group& group, std::size_t number) {
    KernelStep kernel = build_kernel(
        group, program_, [&](BufferId b) { return is_external(b, number); },
        options_.device.input_alignment);
    sym::Context& context = *program_.context;
    order_and_merge_loops(std::get<LoopKernel>(kernel.kernel.body), context);
    const bool blocks = options_.device.kind != abi::DeviceKind::cpu;
    kernel.schedule = blocks ? choose_blocks(kernel.kernel, options_.device, context)
                             : choose_schedule(kernel.kernel, options_.device, context);
    collect_sizes(kernel.kernel, context);
    Step step;
    for (const Member& member : group.members) {
      add_missing(step.checked, member.nest.checked);
      if (member.nest.label.empty()) continue;
      if (!step.label.empty()) step.label += "+";
      step.label += member.nest.label;
    }
    step.sources = kernel.kernel.sources;
    step.action = std::move(kernel);
    return step;
  }

  const Program& program_;
  const Options& options_;
  ContractionSteps contractions_;
  std::vector<std::set<std::size_t>> readers_;  // groups that read each buffer
};

// Larger results of steps that read nothing are made in every call: writing them costs little more
// than reading them, keeping them costs memory.
constexpr std::int64_t kMostConstantBytes = std::int64_t{16} << 20;

bool is_constant(const std::vector<Expr>& list) {
  return std::all_of(list.begin(), list.end(), [](Expr e) { return e.is_constant(); });
}

bool has_constant_sizes(const Step& step, const Program& program) {
  const auto* kernel = std::get_if<KernelStep>(&step.action);
  if (kernel != nullptr && !is_constant(kernel->kernel.sizes)) return false;
  std::vector<BufferId> touched = reads(step);
  for (const BufferId b : writes(step)) touched.push_back(b);
  return std::all_of(touched.begin(), touched.end(), [&](BufferId b) {
    const loop::Buffer& buffer = program.buffers[b];
    return is_constant(buffer.sizes) && is_constant(*buffer.strides) &&
           (buffer.offset.is_null() || buffer.offset.is_constant());
  });
}

// Buffers that nobody outside of the steps sees, and that one step writes.
std::vector<bool> private_results(const ScheduledProgram& scheduled) {
  const Program& program = scheduled.program;
  std::vector<int> writers(program.buffers.size(), 0);
  for (const Step& step : scheduled.steps) {
    for (const BufferId b : writes(step)) ++writers[b];
  }
  std::vector<bool> result(program.buffers.size());
  for (BufferId b = 0; b < result.size(); ++b) {
    const loop::Buffer& buffer = program.buffers[b];
    result[b] =
        buffer.role == loop::BufferRole::temporary && !buffer.writes_into && writers[b] == 1;
  }
  for (const loop::Buffer& buffer : program.buffers) {
    if (buffer.writes_into) result[*buffer.writes_into] = false;
  }
  for (const auto& output : program.outputs) {
    if (output.kind == loop::ProgramOutput::Kind::buffer) result[output.buffer] = false;
  }
  return result;
}

// Inputs that stay what they are from call to call, and literals.
std::vector<bool> stable_inputs(const ScheduledProgram& scheduled, bool training) {
  const Program& program = scheduled.program;
  std::vector<bool> result(program.buffers.size());
  for (BufferId b = 0; b < result.size(); ++b) {
    const loop::Buffer& buffer = program.buffers[b];
    result[b] = buffer.role == loop::BufferRole::constant || (buffer.is_parameter && !training);
  }
  for (const Step& step : scheduled.steps) {
    for (const BufferId b : writes(step)) result[b] = false;
  }
  for (const loop::Buffer& buffer : program.buffers) {
    if (buffer.writes_into) result[*buffer.writes_into] = false;
  }
  return result;
}

// A step is prepared once when all it reads are parameters, literals or results of such steps, and
// its results are private and of constant size.
void mark_prepared(ScheduledProgram& scheduled, const Options& options) {
  const Program& program = scheduled.program;
  std::vector<bool> stable = stable_inputs(scheduled, options.training);
  const std::vector<bool> is_private = private_results(scheduled);
  for (Step& step : scheduled.steps) {
    if (std::holds_alternative<EagerStep>(step.action) ||
        std::holds_alternative<AttentionStep>(step.action)) {
      continue;
    }
    const auto r = reads(step);
    const auto w = writes(step);
    const auto is_stable = [&](BufferId b) { return stable[b]; };
    if (!std::all_of(r.begin(), r.end(), is_stable) || !has_constant_sizes(step, program) ||
        !std::all_of(w.begin(), w.end(), [&](BufferId b) { return is_private[b]; })) {
      continue;
    }
    const auto bytes = step.bytes.constant();  // all that is touched, so: all that is written
    if (r.empty() && (!bytes || *bytes > kMostConstantBytes)) continue;
    step.prepare = true;
    for (const BufferId b : w) stable[b] = true;
  }
}

// Buffers of parameters with such roles, each once, in order.
template <class F>
std::vector<BufferId> distinct_buffers(const KernelStep& step, const F& has_role) {
  std::vector<BufferId> result;
  std::set<BufferId> seen;
  for (std::size_t p = 0; p < step.buffers.size(); ++p) {
    if (has_role(step.param(p).role) && seen.insert(step.buffers[p]).second) {
      result.push_back(step.buffers[p]);
    }
  }
  return result;
}

// Epilogues are for the templates, not for the library.
Options without_post_ops(Options options) {
  options.can_run_matmul = [can_run = std::move(options.can_run_matmul)](const MatmulStep& step,
                                                                         const Program& program) {
    const bool is_f32 = program.buffers[step.c.buffer].dtype == abi::DType::f32;
    if (is_f32 && (step.bias || !step.epilogue.empty())) return false;
    return !can_run || can_run(step, program);
  };
  return options;
}

}  // namespace

std::vector<BufferId> reads(const Step& step) {
  std::vector<BufferId> result;
  const auto add = [&](BufferId b) {
    if (std::find(result.begin(), result.end(), b) == result.end()) result.push_back(b);
  };
  const auto add_epilogue = [&](const std::vector<Epilogue>& epilogue) {
    for (const Epilogue& e : epilogue) {
      if (e.operand) add(e.operand->buffer);
    }
  };
  if (const auto* k = std::get_if<KernelStep>(&step.action)) {
    return distinct_buffers(*k, [](ParamRole role) { return role != ParamRole::out; });
  } else if (const auto* m = std::get_if<MatmulStep>(&step.action)) {
    add(m->a.buffer);
    add(m->b.buffer);
    if (m->bias) add(m->bias->buffer);
    add_epilogue(m->epilogue);
  } else if (const auto* c = std::get_if<ConvolutionStep>(&step.action)) {
    add(c->x.buffer);
    add(c->w.buffer);
    if (c->bias) add(c->bias->buffer);
    add_epilogue(c->epilogue);
  } else if (const auto* a = std::get_if<AttentionStep>(&step.action)) {
    add(a->q.buffer);
    add(a->k.buffer);
    add(a->v.buffer);
    if (a->mask) add(a->mask->buffer);
  } else {
    for (const auto& argument : std::get<EagerStep>(step.action).call.arguments) {
      if (const auto* b = std::get_if<BufferId>(&argument)) add(*b);
    }
  }
  return result;
}

std::vector<BufferId> writes(const Step& step) {
  std::vector<BufferId> result;
  if (const auto* k = std::get_if<KernelStep>(&step.action)) {
    result = distinct_buffers(*k, [](ParamRole role) { return role != ParamRole::in; });
  } else if (const auto* m = std::get_if<MatmulStep>(&step.action)) {
    result.push_back(m->c.buffer);
  } else if (const auto* c = std::get_if<ConvolutionStep>(&step.action)) {
    result.push_back(c->y.buffer);
  } else if (const auto* a = std::get_if<AttentionStep>(&step.action)) {
    result.push_back(a->out.buffer);
  } else {
    result = std::get<EagerStep>(step.action).call.results;
  }
  return result;
}

ScheduledProgram schedule(Program program, const Options& options) {
  drop_dead_values(program);
  remove_dead_nests(program);
  convolutions_of_patches(program, options.least_channels);
  if (!options.training) split_channels(program, options.longest_sum);
  drop_unit_variables(program);
  share_reductions(program);
  if (options.pads_rows) pad_products(program);
  inline_pointwise(program, options.keep_roundings);
  choose_layouts(program, options.weights_channels_last);
  pad_channels(program, options.least_channels);
  settle_operands(program, options.needs_matrices);
  contractions_to_loops(program, options);
  if (!options.training) fold_channel_factors(program);
  ContractionSteps contractions =
      build_contractions(program, options.gemm_template ? without_post_ops(options) : options);
  remove_dead_nests(program);
  std::vector<BufferId> gathered;
  if (options.training) gathered = cut_columns(program, options.device);
  split_long_reductions(program, options.device, gathered);
  const std::vector<Group> groups = fuse(program, options.device, gathered, options.deterministic);
  ScheduledProgram scheduled;
  scheduled.steps = StepBuilder(program, options, std::move(contractions)).run(groups);
  scheduled.program = std::move(program);
  scheduled.program.nests.clear();
  if (options.device.kind != abi::DeviceKind::cpu) {
    move_scalars(scheduled.steps, scheduled.program);
    join_endings(scheduled.steps, scheduled.program);
  }
  if (options.gemm_template) write_gemms(scheduled, options.device);
  for (Step& step : scheduled.steps) count_step_bytes(step, scheduled.program);
  mark_prepared(scheduled, options);
  combine(scheduled.steps, scheduled.program, options.device);
  pass_numbers(scheduled.steps, *scheduled.program.context);
  pass_integers(scheduled.steps, *scheduled.program.context);
  if (options.device.kind != abi::DeviceKind::cpu) {
    set_cache_hints(scheduled.steps, scheduled.program, options.device);
  }
  count_bytes(scheduled);
  verify(scheduled);
  return scheduled;
}

}  // namespace inkle::schedule
