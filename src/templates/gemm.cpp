// The table of templates of matrix products: what they need and cost.
#include "templates/gemm.h"

#include <algorithm>

#include "base/error.h"
#include "templates/gemm_kernel.h"
#include "templates/gemm_tiles.h"

namespace inkle::templates {

namespace {

constexpr std::int32_t kPairLanes = 16;  // of dot_bf16 on a processor

// GEMMs of up to kStreamedRows rows are bound by memory bandwidth, and prefetching slows them
// (8x5632x2048: 0.91); up to kAwaitedRows are bound by latency (20x2600x650 gains 1.15), larger
// ones are not (Zen 4 with AVX-512).
constexpr std::int64_t kStreamedRows = 8, kAwaitedRows = 64;

bool always(const GemmProblem&) { return true; }
bool is_in_tiles(const GemmProblem& problem) { return problem.tiles; }

std::vector<GemmConfig> cpu_configs(const GemmProblem& problem, const abi::Target& target) {
  GemmConfig config;
  config.lanes = target.vector_bytes / 4;
  config.rows = static_cast<std::int32_t>(problem.group);
  config.vectors = static_cast<std::int32_t>(problem.panel / config.lanes);
  const std::int64_t rows = problem.rows.constant().value_or(0);
  if (rows > kStreamedRows && rows <= kAwaitedRows) config.terms_ahead = 16;
  return {config};
}

std::string operands_need(const GemmProblem& problem, const GemmConfig& config) {
  const bool has_left = !problem.left.instructions.empty();
  const DType dtype = problem.parameters[has_left ? 1 : 0].dtype;
  if (has_left && dtype == DType::i32 && !sym::divides(config.lanes, problem.terms)) {
    return "computed rows not divisible by the vector width";
  }
  if (!problem.right.instructions.empty()) {
    if (!sym::divides(problem.panel, problem.columns)) return "computed operands in partial panels";
    return dtype == DType::f32 ? "" : "GEMMs with a computed operand that is not f32";
  }
  if (dtype != problem.parameters[1].dtype) return "matrix products of two dtypes";
  if (dtype != DType::f32 && dtype != DType::i32) {
    return "matrix products: needs f32 or pairs of bf16";
  }
  if (dtype == DType::i32 && config.lanes != kPairLanes) {
    return fmt::format("pairs of bf16 in {} lanes", config.lanes);
  }
  return {};
}

// What each CPU template needs.
std::string cpu_needs(const GemmProblem& problem, const GemmConfig& config) {
  if (problem.panel != std::int64_t{config.lanes} * config.vectors) {
    return fmt::format("panels of {} columns", problem.panel);
  }
  if (problem.group < 1) return "groups without rows";
  if (config.column_block % problem.panel != 0) return "blocks of partial panels";
  if (problem.parameters.size() < 3) return "matrix products without a result";
  for (const loop::Body* body : {&problem.left, &problem.right, &problem.epilogue}) {
    for (const loop::Instruction& i : body->instructions) {
      if (i.opcode == loop::Opcode::indirect) return "an operand or epilogue with indirect indices";
      if (i.opcode == loop::Opcode::row && i.integer != 0) return "an epilogue of other GEMMs";
    }
  }
  return {};
}

std::string register_needs(const GemmProblem& problem, const GemmConfig& config) {
  const std::string lacks = cpu_needs(problem, config);
  return lacks.empty() ? operands_need(problem, config) : lacks;
}

std::string tiles_need(const GemmProblem& problem, const GemmConfig& config) {
  const std::string lacks = cpu_needs(problem, config);
  return lacks.empty() ? tile_needs(problem, config) : lacks;
}

Estimate cpu_estimate(const GemmProblem& problem, const GemmConfig& config) {
  constexpr std::int64_t kBytes = 4;
  sym::Context& context = problem.rows.context();
  const std::int64_t rows = gemm_rows(problem, config).padded;
  const bool has_left = !problem.left.instructions.empty();
  const std::int64_t each = config.column_block + (has_left ? left_depth(problem, config) : 0);
  return {context.constant(rows * each * kBytes),
          problem.batch * problem.rows * problem.columns * problem.terms *
              (problem.parameters[1].dtype == DType::i32 ? 4 : 2)};
}

constexpr GemmTemplate kTemplates[] = {
    {.name = "gemm_tiles",
     .doc = "Matrix products of bf16 in tile registers (AMX), columns in panels, any epilogue.",
     .matches = is_in_tiles,
     .configs = tile_configs,
     .needs = tiles_need,
     .estimate = tile_estimate,
     .emit = emit_tile_gemm},
    {.name = "gemm_cpu",
     .doc = "Matrix products in registers, columns in panels, any pointwise epilogue.",
     .matches = always,
     .configs = cpu_configs,
     .needs = register_needs,
     .estimate = cpu_estimate,
     .emit = emit_gemm},
};

}  // namespace

std::string to_string(const GemmConfig& config) {
  return fmt::format(
      "lanes {} rows {} vectors {} row_block {} column_block {} term_block {} terms_ahead {}",
      config.lanes, config.rows, config.vectors, config.row_block, config.column_block,
      config.term_block, config.terms_ahead);
}

std::span<const GemmTemplate> gemm_templates() { return kTemplates; }

const GemmTemplate& gemm_template_of(const GemmProblem& problem) {
  return first_match(gemm_templates(), problem);
}

}  // namespace inkle::templates
