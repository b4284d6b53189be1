// Kernels to text, texts to programs of several kernels, programs to machine code on threads.
#include "codegen/cuda/compiler.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "abi/targets.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/threads.h"
#include "base/unsupported.h"
#include "codegen/cuda/kernel.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/prelude.h"

namespace inkle::codegen::cuda {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Kernels of a program: with more, the last program is waited for alone; with fewer, reading the
// helpers is a larger part.
constexpr std::size_t kMostKernels = 16;

sym::Context& context_of(const schedule::Kernel& kernel) {
  if (const auto* loops = std::get_if<schedule::LoopKernel>(&kernel.body)) {
    INKLE_CHECK(!loops->outer.empty(), "kernel {} has no outer loop", kernel.name);
    return loops->outer.front().extent.context();
  }
  if (const auto* gemm = std::get_if<schedule::GemmKernel>(&kernel.body)) {
    return gemm->rows.context();
  }
  return std::get<schedule::AttentionKernel>(kernel.body).batch.context();
}

std::filesystem::path folder_for_texts() {
  const char* given = std::getenv("INKLE_DUMP_DIR");
  return given == nullptr || *given == '\0' ? std::filesystem::path() : given;
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  std::ofstream(path) << text;
}

struct Batch {
  std::string text;
  std::vector<std::string> helpers;
  std::filesystem::path path;  // where the text is, or would be on an error
  std::vector<std::byte> code;
};

void compile_batch(Batch& batch, const std::string& architecture) {
  try {
    batch.code = compile_program(batch.text, batch.path.string(), architecture);
  } catch (const InternalError&) {
    write_file(batch.path, batch.text);
    throw;
  }
}

// The cost of compiling a kernel, in characters: bodies are repeated for each lane and each
// unrolled iteration (resnet50's: 60 ms for pointwise kernels, 130 to 260 for moments).
double work_of(const std::string& text, const schedule::BlockSchedule& blocks) {
  constexpr double kHeader = 50000;
  return kHeader + static_cast<double>(text.size()) * blocks.lanes * blocks.unroll();
}

// How many programs to make of kernels. NVRTC reads programs one after the other, whatever the
// threads, 11 to 17 ms each for the helpers; what follows, for these kernels together `work`, runs
// side by side. So n programs take n * kProgram + work / n, the least for n = sqrt(work /
// kProgram).
std::size_t programs_for(const std::vector<double>& work) {
  constexpr double kProgram = 22000;  // as work_of counts
  const double all = std::accumulate(work.begin(), work.end(), 0.0);
  const auto best = static_cast<std::size_t>(std::lround(std::sqrt(all / kProgram)));
  const auto threads = static_cast<std::size_t>(std::max(1, num_threads()));
  const std::size_t least = (work.size() + kMostKernels - 1) / kMostKernels;
  return std::max(least, std::min({best, work.size(), threads}));
}

// The programs that kernels go to: the longest first, each to the program with the least work.
std::vector<std::size_t> distribute(const std::vector<double>& work, std::size_t programs) {
  std::vector<std::size_t> order(work.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return work[a] > work[b]; });
  std::vector<double> load(programs, 0);
  std::vector<std::size_t> result(work.size());
  for (const std::size_t k : order) {
    const auto least = std::ranges::min_element(load);
    *least += work[k];
    result[k] = static_cast<std::size_t>(least - load.begin());
  }
  return result;
}

// Unsupported errors carry the kernel's nodes.
KernelSource written(const CompileUnit& unit, const abi::Target& target,
                     const kernel::PassOptions& passes, bool keeps_text) {
  try {
    return write_kernel(*unit.kernel, unit.schedule, unit.name, context_of(*unit.kernel), target,
                        passes, keeps_text);
  } catch (const Unsupported& error) {
    UnsupportedAt at(error);
    for (const std::string& node : unit.kernel->sources) at.add(node);
    throw at;
  }
}

}  // namespace

CudaCompiler::CudaCompiler(abi::DeviceDescription device)
    : device_(std::move(device)), target_(abi::gpu_target_of(device_)) {
  INKLE_CHECK(!device_.architecture.empty(), "a device without an architecture");
}

CudaCompiler::~CudaCompiler() = default;

void CudaCompiler::warm_up() const noexcept {
  try {
    (void)compile_program(prelude() + "extern \"C\" __global__ void nothing() {}\n", "nothing.cu",
                          device_.architecture);
  } catch (const std::exception& error) {
    log(LogChannel::codegen, "warming up: {}", error.what());
  }
}

std::string CudaCompiler::source(const CompileUnit& unit) const {
  return write_kernel(*unit.kernel, unit.schedule, unit.name, context_of(*unit.kernel), target_, {},
                      false)
      .text;
}

Compiled CudaCompiler::compile(std::span<const CompileUnit> units, bool only_text,
                               const kernel::PassOptions& passes) const {
  Compiled compiled;
  const auto start = Clock::now();
  const std::size_t count = units.size();
  std::vector<KernelSource> sources;
  std::vector<double> work;
  UnsupportedNodes found;
  for (const CompileUnit& unit : units)
    found.run([&] {
      sources.push_back(written(unit, target_, passes, !only_text));
      work.push_back(work_of(sources.back().text, *unit.schedule.blocks));
    });
  found.check();
  const std::size_t programs = programs_for(work);
  const std::vector<std::size_t> program_of = distribute(work, programs);
  std::vector<Batch> batches(programs);
  for (std::size_t u = 0; u < count; ++u) {
    const CompileUnit& unit = units[u];
    sym::Context& context = context_of(*unit.kernel);
    KernelSource& source = sources[u];
    CompiledKernel made;
    made.kernel.image = static_cast<std::uint32_t>(program_of[u]);
    made.kernel.entry = unit.name;
    made.kernel.block_threads = unit.schedule.blocks->threads;
    made.kernel.cluster_blocks = unit.schedule.blocks->cluster();
    made.kernel.can_fail = source.can_fail;
    made.kernel.shared_bytes = source.shared_bytes;
    made.kernel.waits = target_.can_wait;
    made.source = std::make_shared<const std::string>(source.text);
    made.text = std::move(source.kernel);
    made.blocks = schedule::parallel_extent(*unit.kernel, unit.schedule, context);
    made.workspace_bytes = source.workspace_bytes;
    made.kernel.has_workspace = !source.workspace_bytes.is_constant(0);
    Batch& batch = batches[program_of[u]];
    batch.text += "\n" + source.text;
    for (const std::string& helper : source.helpers) {
      if (std::ranges::find(batch.helpers, helper) == batch.helpers.end()) {
        batch.helpers.push_back(helper);
      }
    }
    compiled.kernels.push_back(std::move(made));
  }
  const std::filesystem::path folder = folder_for_texts();
  for (Batch& batch : batches) {
    std::string helpers = prelude();
    for (const std::string& helper : batch.helpers) helpers += helper;
    batch.text = helpers + batch.text;
    const std::string name = fmt::format("inkle_{:016x}.cu", hash_bytes(batch.text));
    batch.path = (folder.empty() ? std::filesystem::temp_directory_path() : folder) / name;
    if (!folder.empty()) write_file(batch.path, batch.text);
  }
  compiled.emit_seconds = seconds_since(start);
  const auto begin = Clock::now();
  parallel_for(0, only_text ? 0 : static_cast<std::int64_t>(programs), 1,
               [&](std::int64_t first, std::int64_t last) {
                 for (auto b = static_cast<std::size_t>(first); b < static_cast<std::size_t>(last);
                      ++b) {
                   compile_batch(batches[b], device_.architecture);
                 }
               });
  for (Batch& batch : batches) {
    compiled.images.push_back({device_.architecture, std::make_shared<const std::vector<std::byte>>(
                                                         std::move(batch.code))});
  }
  compiled.compile_seconds = seconds_since(begin);
  log(LogChannel::codegen, "{} kernels in {} programs: text {:.1f} ms, NVRTC {:.0f} ms", count,
      programs, compiled.emit_seconds * 1e3, compiled.compile_seconds * 1e3);
  return compiled;
}

}  // namespace inkle::codegen::cuda
