// The row of the table for products by wgmma; the header has the picture, gemm_wgmma_writer.h what
// writes a kernel.
#include "templates/gemm_wgmma.h"

#include <fmt/format.h>

#include "templates/gemm_wgmma_block.h"
#include "templates/gemm_wgmma_writer.h"

namespace inkle::templates {

using loop::Opcode;

namespace {

std::int64_t shared_bytes(const WgmmaConfig& config) {
  const std::int64_t stage = (config.rows + config.columns) * config.terms * wgmma::kElement;
  const std::int64_t sums = wgmma::kConsumers * wgmma::kRows * (config.slice + wgmma::kPadding) * 4;
  return config.stages * (stage + 16) + wgmma::kConsumers * 8 + sums;
}

bool copies_boxes(const GemmProblem& problem) { return problem.boxes.size() == 2; }

std::vector<WgmmaConfig> wgmma_configs(const GemmProblem&, const abi::Target& target) {
  std::vector<WgmmaConfig> configs;
  for (const abi::GemmTile& tile : target.gemm.tiles) {
    if (tile.rows == 0) continue;
    WgmmaConfig config;
    config.rows = tile.rows;
    config.columns = tile.columns;
    config.stages = tile.stages;
    config.ping_pong = tile.ping_pong;
    config.terms = target.gemm.terms;
    config.group = target.gemm.group;
    config.blocks = target.parallelism;
    config.shared_bytes = target.l1_bytes;
    configs.push_back(config);
  }
  return configs;
}

// What is missing of an operand to be copied in the boxes of a configuration.
std::string operand_needs(const GemmProblem& problem, const WgmmaConfig& config, std::size_t o) {
  if (problem.parameters[o].dtype != DType::bf16) return "matrix products: needs bf16";
  const GemmBoxes& boxes = problem.boxes[o];
  const std::int64_t extent = o == 0 ? config.rows : config.columns;
  const std::size_t rank = boxes.sizes.size();
  if (rank != boxes.box.size() || rank < 2 || rank > 3) return "boxes that are no tiles";
  const std::int64_t outer = boxes.box[rank - 2], inner = boxes.box[rank - 1];
  const bool fits = boxes.terms_last ? outer == extent && inner == config.terms
                                     : outer == config.terms && inner == wgmma::kPanel;
  if (!fits || boxes.swizzle != 128) return "boxes that are no tiles";
  if (!boxes.terms_last && extent % wgmma::kPanel != 0) {
    return fmt::format("tiles of {} x {} of an operand in panels", config.rows, config.columns);
  }
  return {};
}

std::string wgmma_needs(const GemmProblem& problem, const WgmmaConfig& config) {
  const std::int32_t least = wgmma::kRows * (config.ping_pong ? 1 : wgmma::kConsumers);
  const bool is_tile = config.rows % least == 0 && config.rows > 0 && config.columns <= 256 &&
                       config.columns % config.slice == 0;
  // Of 232 registers.
  constexpr std::int32_t kMostSums = 192;
  if (!is_tile || wgmma::fragments_of(config) * config.columns / 2 > kMostSums) {
    return fmt::format("tiles of {} x {}", config.rows, config.columns);
  }
  if (shared_bytes(config) > config.shared_bytes) {
    return fmt::format("{} bytes of shared memory", shared_bytes(config));
  }
  if (config.parts > 1 && !problem.partials) return "split-K without partial sums";
  for (std::size_t o = 0; o < 2; ++o) {
    if (std::string lacks = operand_needs(problem, config, o); !lacks.empty()) return lacks;
  }
  for (const loop::Body* body : {&problem.left, &problem.epilogue}) {
    for (const loop::Instruction& i : body->instructions) {
      if (i.opcode == Opcode::indirect) return "work with indirect indices";
      if (i.opcode == Opcode::row && i.integer != 0) return "an epilogue of other GEMMs";
    }
  }
  return {};
}

Estimate wgmma_estimate(const GemmProblem& problem, const WgmmaConfig& config) {
  return {problem.rows.context().constant(shared_bytes(config)),
          problem.batch * problem.rows * problem.columns * problem.terms * 2};
}

constexpr WgmmaTemplate kTemplates[] = {
    {.name = "gemm_wgmma",
     .doc = "Matrix products of bf16 by wgmma, copied in boxes, any pointwise epilogue.",
     .matches = copies_boxes,
     .configs = wgmma_configs,
     .needs = wgmma_needs,
     .estimate = wgmma_estimate,
     .emit = wgmma::write_kernel},
};

}  // namespace

std::string to_string(const WgmmaConfig& config) {
  return fmt::format("rows {} columns {} terms {} stages {} group {} blocks {} slice {}{} parts {}",
                     config.rows, config.columns, config.terms, config.stages, config.group,
                     config.blocks, config.slice, config.ping_pong ? " ping_pong" : "",
                     config.parts);
}

std::span<const WgmmaTemplate> wgmma_templates() { return kTemplates; }

}  // namespace inkle::templates
