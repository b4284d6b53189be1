#include "driver/tune_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "codegen/cuda/prelude.h"
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

// What there is to choose from, the model's choice first, and all that the choice depends on.
struct Choices {
  std::vector<schedule::Schedule> schedules;
  std::string key;
};

Choices choices_of(const TuneCase& c, const codegen::cuda::CudaCompiler& generator) {
  const TargetUnit& unit = c.unit;
  const abi::DeviceDescription& device = generator.device();
  Choices result;
  result.key = fmt::format("{}, {}, driver {}, helpers {}, bytes {}, sizes {}\n", device.name,
                           device.architecture, device.driver_version,
                           to_hex(hash128(codegen::cuda::prelude())), fmt::join(c.bytes, " "),
                           fmt::join(c.sizes, " "));
  result.key += generator.source({unit.kernel, unit.schedule, "k"});
  result.schedules.push_back(unit.schedule);
  for (const schedule::BlockSchedule& blocks :
       candidate_blocks(*unit.kernel, *unit.schedule.blocks, device)) {
    schedule::Schedule other = unit.schedule;
    other.blocks = blocks;
    try {
      (void)generator.source({unit.kernel, other, "k"});
    } catch (const Unsupported&) {
      continue;
    }
    result.key += to_string(other) + "\n";
    result.schedules.push_back(other);
  }
  return result;
}

struct Found {
  schedule::Schedule schedule;
  double microseconds = 0;
  double models = 0;  // of the model's choice; 0: not measured
};

// Of each case that there are candidates for, its own first.
std::map<std::size_t, Found> measure(std::span<const TuneCase> cases,
                                     const std::vector<Candidate>& all,
                                     const codegen::cuda::CudaCompiler& generator, Device& device) {
  std::vector<CompileUnit> units;
  for (const Candidate& c : all) {
    units.push_back({cases[c.number].unit.kernel, c.schedule, fmt::format("k{}", units.size())});
  }
  const codegen::cuda::Compiled compiled = generator.compile(units);
  const runtime::cuda::Scope scope(device);
  std::vector<std::unique_ptr<Module>> modules;
  for (const abi::DeviceImage& image : compiled.images) modules.push_back(device.load(image));
  std::map<std::size_t, Found> found;
  Measuring measuring(device);
  bool has_memory = false;
  for (std::size_t u = 0; u < all.size(); ++u) {
    const std::size_t n = all[u].number;
    const bool is_first = !found.contains(n);
    Found& best = found[n];
    if (is_first) {
      best.schedule = all[u].schedule;
      has_memory = measuring.take(cases[n]);
    }
    if (!has_memory) continue;
    const CompiledKernel& kernel = compiled.kernels[u];
    double time = 0;
    try {
      time = measuring.microseconds(cases[n], kernel, *modules[kernel.kernel.image]);
    } catch (const Unsupported&) {
      continue;  // asks for more registers or shared memory than there are
    }
    if (is_first) best.models = best.microseconds = time;
    const bool is_other = best.microseconds < best.models;
    const double bar = is_other ? best.microseconds : best.models * (1 - kLeastGain);
    if (is_first || time <= 0 || time >= bar) continue;
    best.schedule = all[u].schedule;
    best.microseconds = time;
  }
  device.synchronize_all();
  measuring.release();
  return found;
}

}  // namespace

std::vector<schedule::Schedule> tune_blocks(std::span<const TuneCase> cases,
                                            const codegen::cuda::CudaCompiler& generator,
                                            Device& device, const MeasuredSchedules& known) {
  std::vector<schedule::Schedule> best;
  std::vector<std::string> keys;
  std::vector<Candidate> all;
  for (std::size_t n = 0; n < cases.size(); ++n) {
    Choices choices = choices_of(cases[n], generator);
    const auto kept = known.find(choices.key);
    const auto same = [&](const schedule::Schedule& s) { return kept && s.blocks == *kept; };
    const auto at = std::find_if(choices.schedules.begin(), choices.schedules.end(), same);
    keys.push_back(std::move(choices.key));
    if (at != choices.schedules.end()) {
      log(LogChannel::cache, "{}: {}, measured before", cases[n].unit.name, to_string(*at));
      best.push_back(*at);
      continue;
    }
    best.push_back(cases[n].unit.schedule);
    for (schedule::Schedule& s : choices.schedules) all.push_back({n, std::move(s)});
  }
  if (all.empty()) return best;
  for (auto& [n, found] : measure(cases, all, generator, device)) {
    log(LogChannel::codegen, "tuned {}: {} in {:.1f} us, the model's {} in {:.1f} us",
        cases[n].unit.name, to_string(found.schedule), found.microseconds,
        to_string(cases[n].unit.schedule), found.models);
    if (found.models <= 0) continue;
    known.keep(keys[n], *found.schedule.blocks);
    best[n] = std::move(found.schedule);
  }
  known.trim();
  return best;
}

}  // namespace inkle::driver
