#include "codegen/cuda/gemm.h"

#include <algorithm>

#include "base/error.h"

namespace inkle::codegen::cuda {

templates::GemmProblem wgmma_problem(const schedule::Kernel& kernel,
                                     const schedule::GemmKernel& gemm) {
  templates::GemmProblem problem;
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
  std::ranges::copy(gemm.variables, problem.variables.begin());
  problem.batch = gemm.batch;
  problem.rows = gemm.rows;
  problem.columns = gemm.columns;
  problem.terms = gemm.terms;
  problem.a = gemm.a;
  problem.b = gemm.b;
  for (const schedule::GemmKernel::Boxes& boxes : gemm.boxes) {
    problem.boxes.push_back({boxes.sizes, boxes.box, boxes.swizzle, boxes.terms_last});
  }
  problem.left = gemm.left;
  problem.partials = gemm.partials;
  problem.epilogue = gemm.epilogue;
  for (const schedule::StageStore& s : gemm.stores) {
    problem.stores.push_back({s.target, s.offset, s.yield});
  }
  return problem;
}

templates::WgmmaConfig wgmma_config(const schedule::GemmSchedule& schedule) {
  templates::WgmmaConfig config;
  config.rows = schedule.rows;
  config.columns = schedule.columns;
  config.terms = schedule.terms;
  config.stages = schedule.stages;
  config.ping_pong = schedule.ping_pong;
  config.parts = schedule.parts;
  config.group = schedule.group;
  config.blocks = schedule.blocks;
  return config;
}

kernel::Kernel write_gemm(const schedule::Kernel& kernel, const schedule::GemmKernel& gemm,
                          const schedule::Schedule& schedule, sym::Context& context) {
  INKLE_CHECK(schedule.gemm.has_value(), "kernel {} has no tiles", kernel.name);
  const templates::GemmProblem problem = wgmma_problem(kernel, gemm);
  const templates::WgmmaConfig config = wgmma_config(*schedule.gemm);
  const templates::WgmmaTemplate& row =
      templates::first_match(templates::wgmma_templates(), problem);
  if (const std::string lacks = row.needs(problem, config); !lacks.empty()) {
    unsupported("{}", lacks);
  }
  return row.emit(problem, config, context);
}

}  // namespace inkle::codegen::cuda
