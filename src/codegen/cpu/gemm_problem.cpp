#include "codegen/cpu/gemm_problem.h"

#include <algorithm>

#include "base/error.h"

namespace inkle::codegen::cpu {

using templates::GemmProblem;

GemmProblem gemm_problem(const schedule::Kernel& kernel, const schedule::GemmKernel& gemm) {
  GemmProblem problem;
  INKLE_CHECK(gemm.variables.size() == problem.variables.size(),
              "kernel {}: matrix products with {} variables", kernel.name, gemm.variables.size());
  problem.name = kernel.name;
  problem.sizes = kernel.sizes;
  problem.sources = kernel.sources;
  for (const schedule::Param& p : kernel.params) {
    const kernel::Role role = p.role == schedule::ParamRole::in    ? kernel::Role::in
                              : p.role == schedule::ParamRole::out ? kernel::Role::out
                                                                   : kernel::Role::inout;
    problem.parameters.push_back({p.dtype, role, p.alignment, p.may_alias});
  }
  if (gemm.pairs) {
    problem.parameters[1].dtype = abi::DType::i32;
    if (gemm.left.instructions.empty()) problem.parameters[0].dtype = abi::DType::i32;
  }
  std::ranges::copy(gemm.variables, problem.variables.begin());
  problem.batch = gemm.batch;
  problem.rows = gemm.rows;
  problem.columns = gemm.columns;
  problem.terms = gemm.terms;
  problem.a = gemm.a;
  problem.b = gemm.b;
  problem.panel = gemm.panel;
  problem.group = gemm.group;
  problem.tiles = gemm.tiles;
  problem.left = gemm.left;
  problem.left_terms = gemm.left_terms;
  problem.right = gemm.right;
  problem.epilogue = gemm.epilogue;
  for (const schedule::StageStore& s : gemm.stores) {
    problem.stores.push_back({s.target, s.offset, s.yield});
  }
  return problem;
}

templates::GemmConfig gemm_config(const templates::GemmTemplate& row, const GemmProblem& problem,
                                  const schedule::Schedule& schedule, const abi::Target& target) {
  templates::GemmConfig config = row.configs(problem, target).front();
  config.row_block = schedule.row_block;
  config.column_block = schedule.column_block;
  return config;
}

}  // namespace inkle::codegen::cpu
