// Numbers of a page, computed from the inspection; no text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "driver/inspect.h"

namespace inkle::driver {

// One step against the machine. Unknown numbers are empty.
struct StepFacts {
  std::optional<double> microseconds;
  std::optional<std::int64_t> bytes;  // read and written, each element once
  std::optional<std::int64_t> flops;
  // The time that the machine's limits allow, and which of them binds ("memory", "L2", "compute").
  std::optional<double> limit_microseconds;
  std::string limit;
  bool prepare = false;
};

struct ArenaBuffer {
  abi::PlanBuffer buffer = 0;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

struct KernelFacts {
  std::vector<std::size_t> steps;  // that launch it
  std::uint32_t calls = 0;         // of those, in every call
  double microseconds = 0;
};

struct InspectFacts {
  std::vector<StepFacts> steps;
  std::vector<KernelFacts> kernels;
  double microseconds = 0;  // of all steps of a call, without those that are prepared
  std::vector<ArenaBuffer> arena;
  std::int64_t arena_bytes = 0;
  std::int64_t peak_bytes = 0;  // most bytes of the arena's buffers alive at once
  std::int64_t parameter_bytes = 0;
  std::int64_t constant_bytes = 0;
  std::int64_t output_bytes = 0;
  std::int64_t prepared_bytes = 0;
  std::optional<std::int64_t> moved_bytes;  // sum of the steps' bytes
  std::uint32_t launches = 0;
  std::uint32_t launched = 0;  // distinct kernels among those
  std::uint32_t library_calls = 0;
  std::uint32_t eager_calls = 0;
  std::uint32_t prepared = 0;
  bool has_sizes = false;
};

[[nodiscard]] InspectFacts inspect_facts(const Inspection& inspection);

// Buffers that a step names, each once, in order; aliases stay what they are.
[[nodiscard]] std::vector<abi::PlanBuffer> buffers_of(const abi::PlanStep& step);

}  // namespace inkle::driver
