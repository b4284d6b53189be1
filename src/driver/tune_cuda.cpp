#include "driver/tune_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "schedule/blocks.h"

namespace inkle::driver {
namespace {

using codegen::cuda::CompiledKernel;
using codegen::cuda::CompileUnit;
using runtime::cuda::Device;
using runtime::cuda::Event;
using runtime::cuda::Module;

constexpr int kRuns = 10;
// A candidate must be faster than the model's choice by so much: repeated measurements differ by a
// hundredth or two.
constexpr double kLeastGain = 0.03;

struct Candidate {
  std::size_t number = 0;  // of the case
  schedule::Schedule schedule;
};

// Memory of the device that is given back.
class Memory {
 public:
  Memory(Device& device, std::int64_t bytes) : device_(device), at_(device.try_allocate(bytes)) {
    if (at_ != nullptr) device_.zero(at_, bytes, nullptr);
  }
  ~Memory() { device_.free(at_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] void* get() const { return at_; }

 private:
  Device& device_;
  void* at_;
};

class Measuring {
 public:
  explicit Measuring(Device& device)
      : device_(device), start_(device.make_event()), end_(device.make_event()) {}
  ~Measuring() {
    device_.free_event(start_);
    device_.free_event(end_);
  }
  Measuring(const Measuring&) = delete;
  Measuring& operator=(const Measuring&) = delete;

  // Memory for the parameters; false if there is not enough.
  bool take(const TuneCase& c) {
    memory_.clear();
    for (const std::int64_t bytes : c.bytes) {
      memory_.push_back(std::make_unique<Memory>(device_, std::max<std::int64_t>(bytes, 256)));
      if (memory_.back()->get() == nullptr) return false;
    }
    memory_.push_back(std::make_unique<Memory>(device_, Device::kZeroBytes));  // the workspace
    if (memory_.back()->get() == nullptr) return false;
    memory_.push_back(std::make_unique<Memory>(device_, 256));  // the status word
    return memory_.back()->get() != nullptr;
  }

  double microseconds(const TuneCase& c, const CompiledKernel& kernel, Module& module) {
    const auto blocks = sym::hint(kernel.blocks);
    const auto workspace = sym::hint(kernel.workspace_bytes);
    if (!blocks || *blocks < 1 || !workspace || *workspace > Device::kZeroBytes) return 0;
    std::vector<void*> pointers;
    for (const auto& m : memory_) pointers.push_back(m->get());
    std::vector<std::int64_t> sizes = c.sizes;
    std::vector<void*> parameters;
    for (std::size_t p = 0; p + 2 < pointers.size(); ++p) parameters.push_back(&pointers[p]);
    for (std::int64_t& size : sizes) parameters.push_back(&size);
    if (kernel.kernel.has_workspace) parameters.push_back(&pointers[pointers.size() - 2]);
    parameters.push_back(&pointers.back());
    const runtime::cuda::Function function = module.function(kernel.kernel);
    const runtime::cuda::LaunchShape shape{static_cast<std::uint32_t>(*blocks),
                                           static_cast<std::uint32_t>(kernel.kernel.block_threads),
                                           static_cast<std::uint32_t>(kernel.kernel.shared_bytes)};
    device_.launch(function, shape, nullptr, parameters.data());
    device_.record(start_, nullptr);
    for (int r = 0; r < kRuns; ++r) device_.launch(function, shape, nullptr, parameters.data());
    device_.record(end_, nullptr);
    return device_.microseconds(start_, end_) / kRuns;
  }

  void release() { memory_.clear(); }

 private:
  Device& device_;
  Event start_, end_;
  std::vector<std::unique_ptr<Memory>> memory_;
};

// The model's choice of each case first, then others that can be written at all.
std::vector<Candidate> candidates_of(std::span<const TuneCase> cases,
                                     const codegen::cuda::CudaCompiler& generator) {
  std::vector<Candidate> all;
  for (std::size_t n = 0; n < cases.size(); ++n) {
    const TargetUnit& unit = cases[n].unit;
    all.push_back({n, unit.schedule});
    for (const schedule::BlockSchedule& blocks :
         candidate_blocks(*unit.kernel, *unit.schedule.blocks, generator.device())) {
      schedule::Schedule other = unit.schedule;
      other.blocks = blocks;
      try {
        (void)generator.source({unit.kernel, other, "k"});
      } catch (const Unsupported&) {
        continue;
      }
      all.push_back({n, other});
    }
  }
  return all;
}

}  // namespace

std::vector<schedule::Schedule> tune_blocks(std::span<const TuneCase> cases,
                                            const codegen::cuda::CudaCompiler& generator,
                                            Device& device) {
  const std::vector<Candidate> all = candidates_of(cases, generator);
  std::vector<CompileUnit> units;
  for (const Candidate& c : all) {
    units.push_back({cases[c.number].unit.kernel, c.schedule, fmt::format("k{}", units.size())});
  }
  const codegen::cuda::Compiled compiled = generator.compile(units);
  const runtime::cuda::Scope scope(device);
  std::vector<std::unique_ptr<Module>> modules;
  for (const abi::DeviceImage& image : compiled.images) modules.push_back(device.load(image));
  std::vector<schedule::Schedule> best;
  std::vector<double> least(cases.size(), 0), first(cases.size(), 0);
  for (const TuneCase& c : cases) best.push_back(c.unit.schedule);
  Measuring measuring(device);
  bool has_memory = false;
  for (std::size_t u = 0; u < all.size(); ++u) {
    const std::size_t n = all[u].number;
    const bool is_first = u == 0 || all[u - 1].number != n;
    if (is_first) has_memory = measuring.take(cases[n]);
    if (!has_memory) continue;
    const CompiledKernel& kernel = compiled.kernels[u];
    double time = 0;
    try {
      time = measuring.microseconds(cases[n], kernel, *modules[kernel.kernel.image]);
    } catch (const Unsupported&) {
      continue;  // asks for more registers or shared memory than there are
    }
    if (is_first) first[n] = time;
    const double bar = least[n] == 0 ? first[n] * (1 - kLeastGain) : least[n];
    if (is_first || time <= 0 || time >= bar) continue;
    best[n] = all[u].schedule;
    least[n] = time;
  }
  device.synchronize_all();
  measuring.release();
  for (std::size_t n = 0; n < cases.size(); ++n) {
    log(LogChannel::codegen, "tuned {}: {} in {:.1f} us, the model's {} in {:.1f} us",
        cases[n].unit.name, to_string(best[n]), least[n] == 0 ? first[n] : least[n],
        to_string(cases[n].unit.schedule), first[n]);
  }
  return best;
}

}  // namespace inkle::driver
