// The interpreter: runs a kernel on the host with every block and thread of its launch and reports
// what is wrong with it: accesses outside, races, divergent barriers, hangs. Results are the
// reference of printers: scalars are evaluated by loop/scalar.h. What is modelled and what is not
// stands in docs/kernel.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/kernel.h"

namespace inkle::kernel {

// How often a run must write each element of a parameter.
enum class Writes : std::uint8_t {
  by_role,  // in: never; out: at least once; inout: any number of times
  any,
  at_most_once,
  exactly_once,
};

// A parameter of one instance. `data` holds as many elements as the parameter has and stays the
// caller's; of a tensor map it is empty.
struct Argument {
  std::span<std::byte> data;
  Writes writes = Writes::by_role;
  // An earlier launch may still access it: no access comes before dependency_wait, where the kernel
  // has one.
  bool is_of_earlier_launch = true;
};

struct Instance {
  std::vector<Argument> arguments;  // one for each parameter
  std::vector<std::int64_t> sizes;  // values of Kernel::sizes
};

enum class ReportKind : std::uint8_t {
  outside,            // an index beyond its dimension
  misaligned,         // an access or an argument, against what its memory states
  uninitialised,      // a read of what was never written
  read_only,          // a write to an `in` parameter
  constant_written,   // a read by the read-only path of memory that the launch writes
  not_written,        // an element of an `out` parameter
  written_again,      // an element whose contract says once
  workspace_left,     // workspace that is not 0 after the launch
  race,               // two accesses that nothing orders
  proxy,              // two accesses ordered but for a proxy fence
  divergence,         // a barrier or collective that not all of its scope reach
  hang,               // a deadlock, or a livelock: no thread makes progress
  phase,              // a wait for a phase that is over and followed by a complete one
  arrivals,           // more arrivals at an mbarrier than its phase has, or a bad count
  unfinished,         // a bulk copy without a wait before its block ends
  early_use,          // of the result of asynchronous work before it was waited for
  mma_fence,          // registers given to wgmma without mma_fence after they were written
  before_dependency,  // an access before dependency_wait
  promise,            // a bound that the kernel states and does not keep
  form,               // lanes whose indices are not those of the access's form
  layout,             // both sides of a copy swizzle differently
  differs,            // a result that depends on the schedule
};
[[nodiscard]] std::string_view name_of(ReportKind kind);

enum class AgentKind : std::uint8_t { thread, copy_async, bulk, tma, mma };
struct Agent {
  AgentKind kind = AgentKind::thread;
  std::int32_t instance = 0;
  std::int64_t block = 0;
  std::int64_t thread = 0;  // of tma: the mbarrier that it completes on
  friend bool operator==(const Agent&, const Agent&) = default;
};

struct Finding {
  ReportKind kind = ReportKind::outside;
  OperationId operation = kNone;
  OperationId other = kNone;  // of the other agent of a race
  MemoryId memory = kNone;
  std::int64_t begin = 0, end = 0;  // bytes of the memory
  std::vector<Agent> agents;
  std::string message;
};
[[nodiscard]] std::string to_string(const Agent& agent);
// One line; the operations by their text.
[[nodiscard]] std::string to_string(const Kernel& kernel, const Finding& finding);

// Which thread runs next. Threads are preempted anywhere but in `in_order` and `reverse`, where one
// runs until it waits.
enum class Interleaving : std::uint8_t { in_order, reverse, random };

struct InterpretOptions {
  Interleaving interleaving = Interleaving::in_order;
  std::uint64_t seed = 0;
  // Blocks (tasks) that run at a time; those that have not started wait until one is done. 0: all.
  // Kernels whose blocks are resident together are run with all.
  std::int64_t resident = 0;
  std::int64_t max_steps = 200'000'000;  // operations of single threads; beyond: `hang`
  std::size_t max_findings = 16;         // then the run stops
};

struct RunResult {
  std::vector<Finding> findings;
  std::int32_t status = 0;  // abi::KernelStatus of a failure that the kernel has reported
  std::int64_t steps = 0;
  bool is_complete = true;  // false: stopped after so many findings or steps
};

// Runs the kernel once. Throws UserError where arguments or sizes do not fit its parameters.
[[nodiscard]] RunResult interpret(const Kernel& kernel, std::span<const Instance> instances,
                                  const InterpretOptions& options = {});

struct CheckOptions {
  int seeds = 20;
  bool limit_residency = true;  // also with one and with two resident blocks
  // Explores all orders of accesses by which threads synchronise, at most so many. 0: none.
  std::int64_t max_orders = 0;
  bool compare_results = true;  // between the schedules, bit for bit
  std::int64_t max_steps = 200'000'000;
};

struct CheckResult {
  std::vector<Finding> findings;  // of the first schedule that has any
  std::string schedule;           // its name: "in order", "seed 3, 2 resident"
  std::int32_t status = 0;
  std::int64_t runs = 0;
  std::int64_t steps = 0;
  std::int64_t orders = 0;                      // explored
  bool all_orders = false;                      // there are no others
  std::vector<std::vector<std::byte>> results;  // parameters of all instances after the first run
};

// Runs the kernel under many schedules, each from the same arguments, which stay as they are.
[[nodiscard]] CheckResult check(const Kernel& kernel, std::span<const Instance> instances,
                                const CheckOptions& options = {});

}  // namespace inkle::kernel
