#include "driver/tune_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "abi/targets.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "codegen/cuda/prelude.h"
#include "driver/kernel_names.h"
#include "schedule/blocks.h"

namespace inkle::driver {
namespace {

using codegen::cuda::CompiledKernel;
using codegen::cuda::CompileUnit;
using runtime::cuda::Device;
using runtime::cuda::Module;
using runtime::cuda::OwnedEvent;

constexpr std::size_t kRuns = 11;
// A candidate must be faster than the model's choice by so much, when first measured and when both
// run again in turns: repeated measurements differ by a hundredth or two.
constexpr double kLeastGain = 0.03;
constexpr int kTurns = 3;

struct Candidate {
  std::size_t number = 0;  // of the case
  schedule::Schedule schedule;
};

// Memory of the device that is given back.
class Memory {
 public:
  Memory(Device& device, std::int64_t bytes) : device_(device), at_(device.try_allocate(bytes)) {
    try {
      if (at_ != nullptr) device_.zero(at_, bytes, nullptr);
    } catch (...) {
      device_.free(at_);
      throw;
    }
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
  Measuring(Device& device, std::int64_t cache_bytes)
      : device_(device), cache_bytes_(cache_bytes), overwritten_(device, 2 * cache_bytes) {
    for (std::size_t r = 0; r < kRuns; ++r) {
      starts_.emplace_back(device);
      ends_.emplace_back(device);
    }
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

  // The median of kRuns runs; 0 if the kernel cannot run on these sizes. What the L2 does
  // not hold is found there by no kernel of a model either: then it is overwritten before each run.
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
    const auto bytes = std::accumulate(c.bytes.begin(), c.bytes.end(), std::int64_t{0});
    const bool is_cold = bytes > cache_bytes_ && overwritten_.get() != nullptr;
    device_.launch(function, shape, nullptr, parameters.data());
    for (std::size_t r = 0; r < kRuns; ++r) {
      if (is_cold) device_.zero(overwritten_.get(), 2 * cache_bytes_, nullptr);
      device_.record(starts_[r].get(), nullptr);
      device_.launch(function, shape, nullptr, parameters.data());
      device_.record(ends_[r].get(), nullptr);
    }
    std::array<double, kRuns> times{};
    for (std::size_t r = kRuns; r-- > 0;) {  // the last first: one wait
      times[r] = device_.microseconds(starts_[r].get(), ends_[r].get());
    }
    std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
    return times[kRuns / 2];
  }

 private:
  Device& device_;
  std::int64_t cache_bytes_;
  Memory overwritten_;
  std::deque<OwnedEvent> starts_, ends_;  // kRuns of each
  std::vector<std::unique_ptr<Memory>> memory_;
};

// What there is to choose from, the model's choice first, and all that the choice depends on.
struct Choices {
  std::vector<schedule::Schedule> schedules;
  MeasuredKey key;
};

Choices choices_of(const TuneCase& c, const codegen::cuda::CudaCompiler& generator) {
  const TargetUnit& unit = c.unit;
  const abi::DeviceDescription& device = generator.device();
  Choices result;
  result.key = {
      .machine =
          fmt::format("{}, {}, driver {}", device.name, device.architecture, device.driver_version),
      .helpers = to_hex(hash128(codegen::cuda::prelude())),
      .sizes = fmt::format("bytes {}, sizes {}", fmt::join(c.bytes, " "), fmt::join(c.sizes, " ")),
      .candidates = {},
      .kernel = generator.source({unit.kernel, unit.schedule, "k"}),
      .name = unit.name};
  result.schedules.push_back(unit.schedule);
  for (const schedule::BlockSchedule& blocks :
       candidate_blocks(*unit.kernel, *unit.schedule.blocks, abi::gpu_target_of(device))) {
    schedule::Schedule other = unit.schedule;
    other.blocks = blocks;
    try {
      (void)generator.source({unit.kernel, other, "k"});
    } catch (const Unsupported&) {
      continue;
    }
    result.key.candidates += to_string(other) + "\n";
    result.schedules.push_back(other);
  }
  return result;
}

struct Found {
  std::size_t models = 0, best = 0;  // candidates: the model's choice and the fastest
  double models_microseconds = 0;    // 0: not measured
  double microseconds = 0;
};

// The candidates of all cases, compiled and loaded.
class Field {
 public:
  Field(std::span<const TuneCase> cases, const std::vector<Candidate>& all,
        const codegen::cuda::CudaCompiler& generator, Device& device)
      : cases_(cases), all_(all), measuring_(device, generator.device().l2_bytes) {
    KernelNames names;
    std::vector<CompileUnit> units;
    for (const Candidate& c : all) {
      const TuneCase& one = cases[c.number];
      const schedule::Kernel& kernel = *one.unit.kernel;
      units.push_back(
          {&kernel, c.schedule, names.name(kernel, one.label, text_of(kernel, c.schedule))});
    }
    compiled_ = generator.compile(units);
    for (const abi::DeviceImage& image : compiled_.images) modules_.push_back(device.load(image));
  }

  // Of the candidates from `first` to `last`, all of one case, the model's choice first.
  Found best(std::size_t first, std::size_t last) {
    Found found{first, first, 0, 0};
    if (!measuring_.take(cases_[all_[first].number])) return found;
    found.models_microseconds = found.microseconds = microseconds(first);
    for (std::size_t u = first + 1; u < last; ++u) {
      const double time = microseconds(u);
      if (time <= 0 || time >= found.microseconds) continue;
      found.best = u;
      found.microseconds = time;
    }
    if (found.best == first) return found;
    bool is_faster = is_gain(found);
    for (int turn = 0; is_faster && turn < kTurns; ++turn) {
      found.models_microseconds = microseconds(first);
      found.microseconds = microseconds(found.best);
      is_faster = is_gain(found);
    }
    if (!is_faster) found = {first, first, found.models_microseconds, found.models_microseconds};
    return found;
  }

 private:
  static bool is_gain(const Found& f) {
    return f.microseconds < f.models_microseconds * (1 - kLeastGain);
  }

  double microseconds(std::size_t u) {
    const CompiledKernel& kernel = compiled_.kernels[u];
    try {
      return measuring_.microseconds(cases_[all_[u].number], kernel,
                                     *modules_[kernel.kernel.image]);
    } catch (const Unsupported&) {
      return 0;  // asks for more registers or shared memory than there are
    }
  }

  std::span<const TuneCase> cases_;
  const std::vector<Candidate>& all_;
  codegen::cuda::Compiled compiled_;
  std::vector<std::unique_ptr<Module>> modules_;
  Measuring measuring_;
};

}  // namespace

std::vector<schedule::Schedule> tune_blocks(std::span<const TuneCase> cases,
                                            const codegen::cuda::CudaCompiler& generator,
                                            Device& device, const MeasuredSchedules& known) {
  std::vector<schedule::Schedule> best;
  std::vector<MeasuredKey> keys;
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
  const runtime::cuda::Scope scope(device);
  Field field(cases, all, generator, device);
  for (std::size_t first = 0, last = 0; first < all.size(); first = last) {
    const std::size_t n = all[first].number;
    while (last < all.size() && all[last].number == n) ++last;
    const Found found = field.best(first, last);
    const schedule::Schedule& fastest = all[found.best].schedule;
    log(LogChannel::codegen, "tuned {}: {} in {:.1f} us, the model's {} in {:.1f} us",
        cases[n].unit.name, to_string(fastest), found.microseconds,
        to_string(cases[n].unit.schedule), found.models_microseconds);
    if (found.models_microseconds <= 0) continue;
    known.keep(keys[n], *fastest.blocks);
    best[n] = fastest;
  }
  device.synchronize_all();
  known.settle();
  return best;
}

}  // namespace inkle::driver
