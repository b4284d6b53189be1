#include "driver/doctor.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "base/threads.h"
#include "cache/store.h"
#include "codegen/cuda/compiler.h"
#include "driver/build_identity.h"
#include "driver/target.h"
#include "image/processor.h"
#include "runtime/cpu/onednn_library.h"
#include "runtime/cuda/cublaslt_api.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/cudnn_api.h"
#include "runtime/cuda/driver_api.h"

namespace inkle::driver {
namespace {

using Level = Finding::Level;
namespace fs = std::filesystem;

constexpr double kMiB = 1 << 20;

class Examination {
 public:
  std::vector<Finding> run() {
    found("build", build_identity().empty() ? "linked without an identity: nothing is cached"
                                            : build_identity().substr(0, 16));
    examine_processor();
    examine_onednn();
    examine_threads();
    examine_gpus();
    examine_cache();
    return std::move(findings_);
  }

 private:
  void found(std::string topic, std::string what) {
    findings_.push_back({.topic = std::move(topic), .what = std::move(what)});
  }
  void objection(Level level, std::string topic, std::string what, std::string remedy) {
    findings_.push_back({level, std::move(topic), std::move(what), std::move(remedy)});
  }
  // Of a library that only a GPU needs.
  void missing(Level level, std::string topic, const std::string& why, std::string remedy) {
    if (gpus_ == 0) {
      found(std::move(topic), "none, and none is needed without a GPU");
    } else {
      objection(level, std::move(topic), why, std::move(remedy));
    }
  }

  void examine_processor();
  void examine_onednn();
  void examine_threads();
  void examine_gpus();
  void examine_gpu_libraries();
  void examine_nccl();
  void examine_cache();
  void examine_remote(const cache::Store& store);

  std::vector<Finding> findings_;
  int gpus_ = 0;
};

void Examination::examine_processor() {
  try {
    const image::InstructionSet* const set = image::instruction_set_here();
    if (set == nullptr) {
      objection(Level::error, "processor", "it has no AVX2, or INKLE_ISA leaves nothing of it",
                "use a processor with AVX2 (x86-64-v3)");
      return;
    }
    const abi::DeviceDescription device = make_cpu_target()->device();
    found("processor", fmt::format("{}, {}, {} threads", device.name, set->name, num_threads()));
  } catch (const std::exception& error) {
    objection(Level::error, "processor", error.what(),
              "unset INKLE_ISA, or give it avx2 or avx512");
  }
}

void Examination::examine_onednn() {
  try {
    found("oneDNN", runtime::cpu::onednn_version());
  } catch (const std::exception& error) {
    objection(Level::error, "oneDNN", error.what(), std::string(runtime::cpu::kOnednnRemedy));
  }
}

// Files of this process whose name has this in it.
std::set<std::string> mapped_files(const std::string& part) {
  std::set<std::string> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t path = line.find('/');
    if (path == std::string::npos) continue;
    if (line.find(part, line.rfind('/')) != std::string::npos) files.insert(line.substr(path));
  }
  return files;
}

void Examination::examine_threads() {
  const std::set<std::string> pools = mapped_files("libgomp");
  if (pools.size() > 1) {
    objection(Level::warning, "threads",
              fmt::format("{} copies of libgomp: {}", pools.size(), fmt::join(pools, ", ")),
              "have one loaded first for all: LD_PRELOAD=" + *pools.begin());
  } else {
    found("threads",
          pools.empty() ? "no libgomp: threads of the standard library" : *pools.begin());
  }
}

void Examination::examine_gpus() {
  std::string why_not;
  gpus_ = runtime::cuda::device_count(why_not);
  if (gpus_ == 0) {
    const bool has_card = fs::exists("/dev/nvidia0");
    if (has_card) {
      objection(Level::warning, "GPU", "there is one that cannot be used: " + why_not,
                "install NVIDIA's driver (nvidia-smi must run), or look at CUDA_VISIBLE_DEVICES");
    } else {
      found("GPU", "none is used: " + why_not);
    }
  }
  if (const auto* const driver = runtime::cuda::driver::find(why_not)) {
    int version = 0;
    driver->driver_version(&version);
    found("CUDA driver", fmt::format("for CUDA {}.{}", version / 1000, version % 1000 / 10));
  } else {
    missing(Level::error, "CUDA driver", why_not, "install NVIDIA's driver");
  }
  for (int gpu = 0; gpu < gpus_; ++gpu) {
    const std::string topic = fmt::format("GPU {}", gpu);
    try {
      const abi::DeviceDescription device = runtime::cuda::open_device(gpu)->description();
      found(topic, fmt::format("{} ({})", device.name, device.architecture));
    } catch (const std::exception& error) {
      objection(Level::error, topic, error.what(), "hide it from Inkle with CUDA_VISIBLE_DEVICES");
    }
  }
  examine_gpu_libraries();
  examine_nccl();
}

void Examination::examine_gpu_libraries() {
  std::string why_not;
  if (const auto path = codegen::cuda::find_nvrtc(why_not)) {
    found("NVRTC", *path);
  } else {
    missing(Level::error, "NVRTC", why_not, "pip install nvidia-cuda-nvrtc, or the CUDA toolkit");
  }
  if (runtime::cuda::cublaslt::find(why_not) != nullptr) {
    found("cuBLASLt", fmt::format("{}", fmt::join(mapped_files("libcublasLt"), ", ")));
  } else {
    missing(Level::error, "cuBLASLt", why_not, "pip install nvidia-cublas, or the CUDA toolkit");
  }
  if (const auto* const cudnn = runtime::cuda::cudnn::find(why_not)) {
    const std::size_t version = cudnn->version();
    found("cuDNN", fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100));
  } else {
    missing(
        Level::warning, "cuDNN", why_not,
        "pip install nvidia-cudnn; without it convolutions are torch's, and the command has none");
  }
}

void Examination::examine_nccl() {
  void* const library = ::dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
  using Version = int (*)(int*);
  const auto version =
      library == nullptr ? nullptr : reinterpret_cast<Version>(::dlsym(library, "ncclGetVersion"));
  int number = 0;
  if (version != nullptr && version(&number) == 0) {
    found("NCCL", fmt::format("{}.{}.{}, which torch's collectives use", number / 10000,
                              number % 10000 / 100, number % 100));
  } else {
    found("NCCL", "none; only torch's collectives between GPUs need it");
  }
}

// Why nothing can be written there; empty if it can.
std::string try_to_write(const fs::path& folder) {
  const fs::path file = folder / fmt::format("doctor-{}.tmp", ::getpid());
  std::ofstream out(file);
  out << std::string(4096, 'x');
  out.close();
  const bool is_written = out.good();
  std::error_code ignored;
  fs::remove(file, ignored);
  return is_written ? "" : fmt::format("{} takes no files", folder.string());
}

void Examination::examine_cache() {
  const fs::path folder = cache::user_folder();
  if (folder.empty()) {
    objection(Level::warning, "cache", "there is none: each process compiles anew",
              "set INKLE_CACHE_DIR to a folder of yours, or HOME");
    return;
  }
  try {
    const auto store = cache::user_store();
    const std::string why_not = store == nullptr ? fmt::format("{} cannot be used", folder.string())
                                                 : try_to_write(store->folder());
    if (!why_not.empty()) {
      objection(
          Level::warning, "cache", why_not + ": each process compiles anew",
          "make it a folder of yours that nobody else may write to, with space on its disk, or "
          "set INKLE_CACHE_DIR to one");
      return;
    }
    const cache::Store::Stats stats = store->stats();
    found("cache", fmt::format("{}: {} entries, {:.1f} of {:.1f} MiB", store->folder().string(),
                               stats.entries, static_cast<double>(stats.bytes) / kMiB,
                               static_cast<double>(stats.limit) / kMiB));
    examine_remote(*store);
  } catch (const std::exception& error) {
    objection(Level::error, "cache", error.what(), "docs/cache.md lists the variables and values");
  }
}

void Examination::examine_remote(const cache::Store& store) {
  const std::string state = store.remote_state();
  if (!state.empty()) found("remote cache", state);
}

}  // namespace

std::string_view name_of(Finding::Level level) {
  constexpr std::array<std::string_view, 3> kLevels = {"ok", "warning", "error"};
  return kLevels[static_cast<std::size_t>(level)];
}

std::string to_string(const Finding& finding) {
  return fmt::format("{:<8} {}: {}{}{}", name_of(finding.level), finding.topic, finding.what,
                     finding.remedy.empty() ? "" : "; ", finding.remedy);
}

std::vector<Finding> examine() { return Examination().run(); }

}  // namespace inkle::driver
