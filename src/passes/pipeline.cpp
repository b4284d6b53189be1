#include "passes/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "passes/attention.h"
#include "passes/canonicalise.h"
#include "passes/cse.h"
#include "passes/dce.h"
#include "passes/decompose.h"
#include "passes/fold_batch_norm.h"
#include "passes/fold_constants.h"
#include "passes/fold_masks.h"
#include "passes/fully_masked_rows.h"
#include "passes/fuse_gemms.h"
#include "passes/library_attention.h"
#include "passes/read_written.h"
#include "passes/reinplace.h"
#include "passes/split_attention.h"
#include "passes/training_attention.h"

namespace inkle::passes {
namespace {

constexpr bool kRequired = true;

constexpr Pass kPasses[] = {
    {"attention", attention, "decomposed attention becomes one op"},
    {"canonicalise", canonicalise, "removes no-ops and simplifies nodes"},
    {"cse", cse, "merges nodes that compute the same"},
    {"dce", dce, "removes unused nodes and literals"},
    {"decompose", decompose, "rewrites composite ops by simpler ones", kRequired},
    {"fold_batch_norm", fold_batch_norm, "with freeze: batch norm into convolution weights"},
    {"fold_constants", fold_constants, "computes what depends on literals only"},
    {"fold_masks", fold_masks,
     "attention masks that are neutral vanish, causal ones become a flag"},
    {"fully_masked_rows", fully_masked_rows,
     "where a library attends: rows that see nothing become NaN", kRequired},
    {"fuse_gemms", fuse_gemms,
     "horizontal fusion: GEMMs of one matrix by several weights become one"},
    {"joint_attention", joint_attention,
     "of a joint graph: the same where the gradient reads the weights"},
    {"library_attention", library_attention,
     "of a joint graph: decomposed attention, and its gradient, become two calls"},
    {"read_written", read_written,
     "ops in eager read an argument that their operand is written to"},
    {"reinplace", reinplace, "scatters write into their base where it dies"},
    {"split_attention", split_attention, "if asked for: attention as products and a softmax",
     kRequired},
    {"training_attention", training_attention,
     "of a joint graph: decomposed attention, and its gradient, become two ops"},
};
static_assert(std::ranges::is_sorted(kPasses, {}, &Pass::name));

// Patterns see composite ops, so decompose comes late. Masks are looked at before constants are
// folded, while a causal one is still a comparison of two ranges, and after, as folding shows more
// attention; constants are folded again after decompositions, which make more.
constexpr std::string_view kStandard[] = {
    "canonicalise",    "cse",
    "attention",       "fold_masks",
    "fold_constants",  "fold_batch_norm",
    "attention",       "fold_masks",
    "split_attention", "fully_masked_rows",
    "decompose",       "canonicalise",
    "fold_constants",  "cse",
    "fuse_gemms",      "dce",
    "read_written",    "reinplace",
};

// Composites are expanded, so that the cut may pass through them; memory is not reused before.
constexpr std::string_view kJoint[] = {
    "canonicalise", "cse",          "training_attention", "library_attention",
    "attention",    "fold_masks",   "joint_attention",    "fold_constants",
    "decompose",    "canonicalise", "fold_constants",     "cse",
    "dce",
};

// The result of a pass must verify, and its outputs alias as before: callers rely on it.
void check(const graph::Graph& before, const graph::Graph& graph, std::string_view pass) {
  try {
    graph::verify(graph);
    const std::string wrong = graph::sharing_difference(before, graph);
    if (!wrong.empty()) user_error("{}", wrong);
  } catch (const UserError& error) {
    InternalError wrong(error.what());
    wrong.add_note(fmt::format("after pass {}", pass));
    throw wrong;
  }
}

}  // namespace

std::span<const Pass> all_passes() { return kPasses; }

const Pass* find_pass(std::string_view name) {
  const auto* at = std::ranges::lower_bound(kPasses, name, {}, &Pass::name);
  return at != std::end(kPasses) && at->name == name ? at : nullptr;
}

std::span<const std::string_view> standard_pipeline() { return kStandard; }
std::span<const std::string_view> joint_pipeline() { return kJoint; }

graph::Graph run_pass(graph::Graph graph, const Pass& pass, PassContext& context,
                      const RunOptions& options, std::size_t run) {
  const auto start = std::chrono::steady_clock::now();
  PassTiming timing{.name = pass.name, .nodes_before = graph.nodes.size()};
  std::optional<graph::Graph> changed;
  try {
    changed = pass.function(graph, context);
  } catch (Error& error) {
    error.add_note(fmt::format("in pass {}", pass.name));
    throw;
  }
  timing.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.miscompile == pass.name) {
    if (auto wrong = turn_add_around(changed ? *changed : graph)) changed = std::move(wrong);
  }
  if (changed) {
    if (options.verify) check(graph, *changed, pass.name);
    graph = std::move(*changed);
  }
  timing.changed = changed.has_value();
  timing.nodes_after = graph.nodes.size();
  log(LogChannel::passes, "{} {}: {:.3f} ms, {} -> {} nodes", run, pass.name, timing.seconds * 1e3,
      timing.nodes_before, timing.nodes_after);
  if (options.timings != nullptr) options.timings->push_back(timing);
  if (options.dump) options.dump(run, pass, graph);
  return graph;
}

std::optional<graph::Graph> turn_add_around(const graph::Graph& graph) {
  const graph::OpDef* sub = graph.table().find("sub");
  const auto is_add = [](const graph::Node& node) { return node.op->name == "add"; };
  const auto at = std::ranges::find_if(graph.nodes, is_add);
  if (at == graph.nodes.end() || sub == nullptr) return std::nullopt;
  graph::Graph wrong = graph;
  wrong.nodes[static_cast<std::size_t>(at - graph.nodes.begin())].op = sub;
  return wrong;
}

graph::Graph run_passes(graph::Graph graph, std::span<const std::string_view> names,
                        PassContext& context, const RunOptions& options) {
  if (options.verify) graph::verify(graph);
  std::size_t run = 0;
  for (const std::string_view name : names) {
    const Pass* pass = find_pass(name);
    if (pass == nullptr) user_error("there is no pass '{}': inkle opt --list names them", name);
    if (std::ranges::find(options.skip, name) != options.skip.end()) continue;
    const bool may_go = options.limit != nullptr && !pass->required;
    if (may_go && !options.limit->admits("passes", name)) continue;
    if (run >= options.stop_after) break;
    graph = run_pass(std::move(graph), *pass, context, options, ++run);
  }
  return graph;
}

}  // namespace inkle::passes
