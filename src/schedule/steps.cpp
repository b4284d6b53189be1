#include "schedule/steps.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/unsupported.h"
#include "loop/builder.h"
#include "schedule/blocks.h"
#include "schedule/linear.h"
#include "schedule/loops.h"
#include "schedule/stages.h"

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

void set_gradient_blocks(Schedule& schedule, const loop::Attention& attention,
                         const abi::LoopRules& rules) {
  const auto columns = attention.kv_length.constant();
  schedule.row_block = rules.gradient_rows;
  schedule.column_block =
      columns && *columns <= rules.whole_columns ? *columns : rules.gradient_columns;
}

// Attention as a library call.
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
  StepBuilder(const Program& program, const Options& options, ContractionSteps contractions,
              const Associations& associations)
      : program_(program),
        options_(options),
        contractions_(std::move(contractions)),
        associations_(associations) {}

  std::vector<Step> run(std::span<const Group> groups, UnsupportedNodes& found) {
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
    for (std::size_t g = 0; g < groups.size(); ++g) {
      found.run([&] { steps.push_back(build(groups[g], g)); });
    }
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
        if (options_.target.libraries.attention.types.has(program_.buffers[a.q.buffer].dtype)) {
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
        kernel.schedule.lanes = options_.target.vector_bytes / 4;
        kernel.schedule.row_block = options_.target.loops.attention_rows;
        if (a.gradient) set_gradient_blocks(kernel.schedule, a, options_.target.loops);
        step.label = "attention";
        step.sources = kernel.kernel.sources;
        step.action = std::move(kernel);
        return step;
      }
      case NestKind::matmul:
      case NestKind::convolution: {
        const auto at = contractions_.find(first.stores.front().buffer);
        if (at == contractions_.end()) {
          unsupported_at({&first.source, 1}, "{} at {}: the library does not support its operands",
                         first.label, first.source);
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
        unsupported_at({&first.source, 1}, "{} at {} is not supported: it has no kernel",
                       first.label, first.source);
    }
    INKLE_CHECK(false, "unknown nest kind");
  }

  Step loop_step(const Group& group, std::size_t number) {
    KernelStep kernel = build_kernel(
        group, program_, [&](BufferId b) { return is_external(b, number); },
        options_.target.input_alignment, associations_);
    sym::Context& context = *program_.context;
    order_and_merge_loops(std::get<LoopKernel>(kernel.kernel.body), context);
    kernel.schedule = choose_schedule(kernel.kernel, options_.target, context);
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
  const Associations& associations_;
  std::vector<std::set<std::size_t>> readers_;  // groups that read each buffer
};

}  // namespace

std::vector<Step> build_steps(const Program& program, const Options& options,
                              ContractionSteps contractions, std::span<const Group> groups,
                              const Associations& associations, UnsupportedNodes& found) {
  return StepBuilder(program, options, std::move(contractions), associations).run(groups, found);
}

}  // namespace inkle::schedule
