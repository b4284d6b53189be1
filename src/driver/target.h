// A device as the driver sees it: what schedules may know of it (its row, abi/target.h), kernels to
// its code, plans to what runs there. One implementation for each folder of codegen/ and runtime/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/code.h"
#include "abi/device.h"
#include "abi/plan.h"
#include "abi/target.h"
#include "kernel/passes.h"
#include "passes/pass.h"
#include "runtime/common/executable.h"
#include "schedule/schedule.h"

namespace inkle::cache {
class Store;
}
namespace inkle::runtime::cuda {
class Device;
}

namespace inkle::driver {

struct TargetUnit {
  const schedule::Kernel* kernel = nullptr;
  schedule::Schedule schedule;
  std::string name;
};

// A kernel whose schedule may be measured, and what it works on: bytes of each parameter, values of
// its sizes.
struct TuneCase {
  TargetUnit unit;
  std::vector<std::int64_t> bytes;
  std::vector<std::int64_t> sizes;
  std::string label = {};  // of the step
};

// What is kept of the code that is made.
struct CodeOptions {
  bool text = false;    // fill TargetKernel::ir and assembly
  bool object = false;  // fill TargetKernel::object
  // Kernels are written and never compiled: there is no code of theirs.
  bool only_text = false;
  kernel::PassOptions passes = {};  // of the kernel IR
  bool cache =
      true;  // take what earlier processes have made, and leave what is made for later ones
};

struct TargetKernel {
  abi::KernelFunction function = nullptr;
  std::optional<abi::DeviceKernel> device;
  std::shared_ptr<const abi::DeviceImage> image;  // that `device` is in
  sym::Expr scratch_bytes;                        // of a launch, in terms of the kernel's sizes
  std::shared_ptr<void> code;                     // keeps `function` valid
  std::shared_ptr<const std::vector<std::byte>> object;  // of the CPU: what `function` is of
  std::shared_ptr<const std::string> source;             // text of `device`'s function
  std::string text;  // of the kernel IR that the code was printed from
  std::string ir;    // LLVM IR or CUDA C++, what the machine code was made of
  std::string assembly;
  double seconds = 0;  // to emit and compile it
};

// Fields of a key: names and values, the more general first.
using Identity = std::vector<std::pair<std::string, std::string>>;

class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual const abi::DeviceDescription& device() const = 0;
  // Every property of the machine that code and plans depend on.
  [[nodiscard]] virtual Identity identity() const = 0;
  // Where its tensors live.
  [[nodiscard]] virtual abi::Device location() const { return {}; }
  // The device as the program's schedules see it: with what its libraries have at hand, of which
  // only those are opened that the program asks for.
  [[nodiscard]] virtual abi::Target describe(const loop::Program& program) const = 0;
  // Opens what a first compilation waits for.
  virtual void warm_up() noexcept {}
  // Opens libraries that a first call waits for; `convolutions`: it has such.
  virtual void warm_up_libraries(bool /*convolutions*/) noexcept {}
  // Gets the plan's library calls before its kernels are compiled, so that it can search the
  // libraries' algorithms meanwhile.
  virtual void foresee(const abi::Plan& /*plan*/) {}
  // Waits for work on background threads.
  virtual void settle() noexcept {}
  // Costs of GEMMs, if horizontally fusing those that share an operand is worth it there.
  [[nodiscard]] virtual std::optional<passes::GemmCosts> gemm_costs() const { return {}; }
  // The step is run by the host, which allocates its result (a convolution or attention).
  [[nodiscard]] virtual bool host_makes_result(const schedule::Step& /*step*/,
                                               const loop::Program& /*program*/) const {
    return false;
  }
  // In the order of the units. A kernel's schedule may be another than its unit's, which has no
  // code. Throws as code generators do.
  [[nodiscard]] virtual std::vector<TargetKernel> compile(std::span<const TargetUnit> units,
                                                          const CodeOptions& options) = 0;
  // The fastest schedule of each case, measured on the device. A case keeps its own schedule if
  // there is no memory to measure it, or nothing is measured.
  [[nodiscard]] virtual std::vector<schedule::Schedule> tune(std::span<const TuneCase> cases) {
    std::vector<schedule::Schedule> same;
    for (const TuneCase& c : cases) same.push_back(c.unit.schedule);
    return same;
  }
  [[nodiscard]] virtual std::unique_ptr<runtime::common::Executable> load(
      abi::PlanAndCode made) const = 0;
};

// INKLE_GEMM: library, template or auto, or what the target's row says; of a GPU also
// `template:128x192p/2+left`: one tile of its template, by ping-pong, with the terms in two parts
// and with computed left operands. Throws UserError for another value.
[[nodiscard]] std::optional<abi::GemmSource> gemm_source_from_environment();
// The one tile that the setting names, if any, becomes the only one of the target.
void take_tile(abi::Target& target, std::string_view setting);
// That of INKLE_GEMM.
void take_tile_from_environment(abi::Target& target);

// Throws UserError if INKLE_GEMM, INKLE_ISA or INKLE_PERF has a value that is unknown, whatever the
// device.
void check_settings();

// The machine that this process runs on. Code is for an instruction set of image/processor.h if one
// is named, else for this very processor. Throws Unsupported if Inkle was built without LLVM,
// UserError for an instruction set that is unknown, or not this machine's.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_target(std::string_view instruction_set = {});

// Code as this row says, to run here.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_target(const abi::Target& row);

// GPU number `index`; measured schedules and choices of libraries are kept in the user's cache.
// Throws Unsupported if there is none, or its driver is missing.
[[nodiscard]] std::unique_ptr<Backend> make_cuda_target(std::int32_t index);

// Schedules that are measured there are kept in the store that is given, and found by later
// processes (measured.h).
[[nodiscard]] std::unique_ptr<Backend> make_target(
    std::shared_ptr<runtime::cuda::Device> device,
    std::function<std::shared_ptr<cache::Store>()> schedules = {});
// A GPU of an architecture ("sm_90a") that runs nothing: all of a call but the launches.
[[nodiscard]] std::unique_ptr<Backend> make_null_target(std::string_view architecture);

}  // namespace inkle::driver
