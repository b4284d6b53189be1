// The stages of a joint forward-backward graph: its passes and its partition.
#include <utility>

#include "driver/pipeline.h"
#include "driver/stage_options.h"
#include "driver/stage_runner.h"
#include "graph/text.h"
#include "passes/pipeline.h"

namespace inkle::driver {

partition::TrainingGraphs Compiler::partition(graph::Graph joint, const partition::Joint& info,
                                              partition::Weigh weigh, const CompileOptions& options,
                                              std::vector<StageTime>& times) const {
  Report report;
  StageRunner stages(options, report);
  stages.dump("joint", [&] { return graph::to_string(joint); });
  const graph::Graph rewritten = stages.run("passes", [&] {
    passes::PassContext context{options.passes};
    // Recomputing scores takes longer than saving weights: a step of a BERT with decomposed
    // attention 132 ms instead of 130 (8x128) and 154 instead of 149 (2x512), a third less saved.
    if (weigh == partition::Weigh::bytes) context.options.forward_outputs = info.forward_outputs;
    PassLimit limit(options.pass_limit);
    return passes::run_passes(std::move(joint), passes::joint_pipeline(), context,
                              graph_pass_options(options, limit));
  });
  partition::TrainingGraphs graphs = stages.run("partition", [&] {
    const abi::DeviceDescription& device = target_->device();
    const partition::Machine machine{.bytes_per_second = device.bytes_per_second,
                                     .operations_per_second = device.flops_f32 / 2,
                                     .clears_memory = device.kind == abi::DeviceKind::cpu};
    // A CPU's caches hold what neighbouring kernels read; there the min-cut is what was measured.
    const bool by_kernels = weigh == partition::Weigh::time && device.kind == abi::DeviceKind::cuda;
    return partition::partition(rewritten, info, machine,
                                by_kernels ? partition::Weigh::kernels : weigh);
  });
  times.insert(times.end(), report.stages.begin(), report.stages.end());
  return graphs;
}

}  // namespace inkle::driver
