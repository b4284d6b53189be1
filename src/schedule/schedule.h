// Loop nests -> fused kernels, library calls and their order. Pure data in, pure data out.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "abi/numerics.h"
#include "abi/target.h"
#include "base/pass_limit.h"
#include "base/unsupported.h"
#include "loop/program.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

struct Options {
  abi::Target target;  // all that differs between devices
  abi::Numerics numerics = abi::Numerics::eager;
  bool training = false;  // no derived copies of parameters
  // Results are the same in each run: what is written at indices is written in order, where a
  // device would else write in parallel (torch.use_deterministic_algorithms).
  bool deterministic = false;
};

struct NestPassTiming {
  std::string_view name;
  double seconds = 0;
};

// How the table of nest_passes.h is run.
struct NestPassOptions {
  std::vector<std::string> skip;             // names of passes that are not run
  std::size_t stop_after = ~std::size_t{0};  // number of passes that may be left out, for bisection
  bool verify_each = false;                  // after each; after the last always
  PassLimit* limit = nullptr;                // admits passes that are not required; null: all
  std::string fail;  // for tests: the pass of this name throws InternalError
  // Collects the nodes that no kernel and no call supports; they get no steps, so the result only
  // shows what else is unsupported. Null: they are thrown as one Unsupported.
  UnsupportedNodes* found = nullptr;
  // For tests: after the pass of this name the first float constant of a nest is negated. UserError
  // for passes behind build_steps.
  std::string miscompile;
  // After each: nests, from build_steps on steps.
  std::function<void(std::string_view pass, const std::string& text)> dump;
  std::vector<NestPassTiming>* timings = nullptr;
};

[[nodiscard]] ScheduledProgram schedule(loop::Program program, const Options& options,
                                        const NestPassOptions& run = {});

}  // namespace inkle::schedule
