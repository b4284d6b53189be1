#include "codegen/cpu/attention_problem.h"

#include <algorithm>

#include "base/error.h"

namespace inkle::codegen::cpu {

using templates::AttentionOperand;
using templates::AttentionProblem;

AttentionProblem attention_problem(const schedule::Kernel& kernel,
                                   const schedule::AttentionKernel& a) {
  INKLE_CHECK(kernel.params.size() == a.offsets.size() && a.variables.size() == 4,
              "kernel {}: attention with {} offsets and {} parameters", kernel.name,
              a.offsets.size(), kernel.params.size());
  const auto operand = [&](std::size_t p) {
    const schedule::Param& param = kernel.params.at(p);
    return AttentionOperand{param.dtype, a.offsets[p], param.alignment, param.may_alias};
  };
  AttentionProblem problem;
  problem.name = kernel.name;
  problem.sizes = kernel.sizes;
  problem.sources = kernel.sources;
  problem.dtype = a.dtype;
  std::ranges::copy(a.variables, problem.variables.begin());
  problem.batch = a.batch;
  problem.heads = a.heads;
  problem.kv_heads = a.kv_heads;
  problem.q_length = a.q_length;
  problem.kv_length = a.kv_length;
  problem.head_dim = a.head_dim;
  problem.value_dim = a.value_dim;
  problem.q = operand(0);
  problem.k = operand(1);
  problem.v = operand(2);
  problem.out = operand(3);
  if (a.has_mask) problem.mask = operand(a.mask_at());
  if (a.has_lse) problem.lse = operand(a.lse_at());
  if (a.is_gradient || a.has_statistics) problem.statistics = operand(a.statistics_at());
  if (a.is_gradient) problem.gradient = {operand(4), operand(6), operand(7), operand(8)};
  if (a.dropout) problem.dropout = {operand(a.seed_at()), a.dropout->number, a.dropout->p};
  problem.scale = a.scale;
  problem.is_causal = a.is_causal;
  problem.safe = a.safe;
  problem.hidden = a.hidden;
  return problem;
}

templates::AttentionConfig attention_config(const templates::AttentionTemplate& row,
                                            const AttentionProblem& problem,
                                            const schedule::Schedule& schedule,
                                            const abi::Target& target) {
  templates::AttentionConfig config = row.configs(problem, target).front();
  config.q_block = schedule.row_block;
  config.kv_block = schedule.column_block;
  return config;
}

}  // namespace inkle::codegen::cpu
