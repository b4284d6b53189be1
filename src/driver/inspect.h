// One self-contained HTML page about a compiled program: what it cost, what was fused into what,
// every kernel with its code, where its memory lies, how near each step comes to the machine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "abi/code.h"
#include "abi/plan.h"
#include "abi/tensor_view.h"
#include "driver/machine_limits.h"
#include "driver/pipeline.h"

namespace inkle::driver {

// What a page is made of. Only `plan` is needed; the page says of the rest what is missing.
struct Inspection {
  std::string title;   // the model, e.g. its file
  std::string device;  // processor
  std::shared_ptr<const abi::Plan> plan;
  std::shared_ptr<const abi::Code> code;                   // or none
  Report report;                                           // steps as many as the plan's, or none
  std::vector<std::pair<std::string, std::string>> texts;  // stage and its text, in order
  std::vector<std::string> fusion;                         // lines of the log's channel `fusion`
  std::vector<std::int64_t> slots;                         // values of the plan's slots, or none

  // Of a call; empty or 0 where the program was not run, and why.
  std::vector<double> step_microseconds;  // by step, the least of the runs
  double call_microseconds = 0;           // the least, without the clock between steps
  int runs = 0;
  std::string not_run;
  std::vector<std::string> implementations;  // of library calls, by step
  std::int64_t scratch_bytes = 0;
  std::int64_t packed_weight_bytes = 0;
  std::optional<MachineLimits> limits;
};

// A page of UTF-8 text that refers to nothing outside of itself; all texts are escaped. The same
// inspection gives the same bytes.
[[nodiscard]] std::string inspect_page(const Inspection& inspection);

// The plan's slots for integer arguments and tensors of these shapes (data is not read). UserError
// as from a call.
[[nodiscard]] std::vector<std::int64_t> slots_of(const abi::Plan& plan,
                                                 std::span<const abi::TensorView> tensors,
                                                 std::span<const std::int64_t> integers);

}  // namespace inkle::driver
