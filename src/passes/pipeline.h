// The table of passes, the order in which the compiler runs them, and the runner: dump, time,
// verify, skip, stop after n.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/pass_limit.h"
#include "passes/pass.h"

namespace inkle::passes {

struct Pass {
  std::string_view name;
  PassFunction function = nullptr;
  std::string_view doc;
  bool required = false;  // later stages count on it: PassLimit does not see it
};

// Every pass, by name.
[[nodiscard]] std::span<const Pass> all_passes();
// nullptr if there is none.
[[nodiscard]] const Pass* find_pass(std::string_view name);
// What the compiler runs, in order; a pass may stand there more than once.
[[nodiscard]] std::span<const std::string_view> standard_pipeline();

// The passes of a joint forward-backward graph before it is partitioned; the forward and backward
// graphs then get the standard pipeline.
[[nodiscard]] std::span<const std::string_view> joint_pipeline();

struct PassTiming {
  std::string_view name;
  double seconds = 0;
  std::size_t nodes_before = 0, nodes_after = 0;
  bool changed = false;
};

struct RunOptions {
  std::vector<std::string> skip;             // names of passes that are not run
  std::size_t stop_after = ~std::size_t{0};  // number of runs, for bisection
  PassLimit* limit = nullptr;                // admits passes that are not required; null: all
  std::string miscompile;                    // for tests: turn_add_around() after this pass
  bool verify = true;                        // after each change, and before the first
  // Called after each run, also of one that changed nothing; `run` counts from 1.
  std::function<void(std::size_t run, const Pass&, const graph::Graph&)> dump;
  std::vector<PassTiming>* timings = nullptr;
};

// Runs one pass, number `run` of a pipeline. Errors get a note naming the pass; a graph that no
// longer verifies, or whose outputs share memory otherwise than before, is an InternalError.
[[nodiscard]] graph::Graph run_pass(graph::Graph graph, const Pass& pass, PassContext& context,
                                    const RunOptions& options = {}, std::size_t run = 1);

// For tests of what finds wrong code: the first addition becomes a subtraction. Nothing without
// one.
[[nodiscard]] std::optional<graph::Graph> turn_add_around(const graph::Graph& graph);

// Runs passes by name in the order given; an unknown name is a UserError.
[[nodiscard]] graph::Graph run_passes(graph::Graph graph, std::span<const std::string_view> names,
                                      PassContext& context, const RunOptions& options = {});

}  // namespace inkle::passes
