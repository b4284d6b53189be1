#include "codegen/cuda/nvrtc.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "codegen/cuda/compiler.h"

namespace inkle::codegen::cuda {
namespace {

// What is used of nvrtc.h.
struct Program;
struct Nvrtc {
  using Result = int;
  void* library = nullptr;
  std::string path;
  Result (*create)(Program**, const char*, const char*, int, const char* const*,
                   const char* const*) = nullptr;
  Result (*destroy)(Program**) = nullptr;
  Result (*compile)(Program*, int, const char* const*) = nullptr;
  Result (*log_size)(Program*, std::size_t*) = nullptr;
  Result (*log)(Program*, char*) = nullptr;
  Result (*cubin_size)(Program*, std::size_t*) = nullptr;
  Result (*cubin)(Program*, char*) = nullptr;
  Result (*ptx_size)(Program*, std::size_t*) = nullptr;
  Result (*ptx)(Program*, char*) = nullptr;
  const char* (*error)(Result) = nullptr;
  Result (*version)(int*, int*) = nullptr;
};

constexpr Nvrtc::Result kInvalidOption = 5;
constexpr std::array kNames = {"libnvrtc.so.13", "libnvrtc.so.12"};

// The site-packages folder of the torch in this process, if there is one.
std::optional<std::string> torch_packages() {
  std::optional<std::string> found;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        const std::string name = info->dlpi_name == nullptr ? "" : info->dlpi_name;
        const std::size_t at = name.find("/torch/lib/");
        if (at == std::string::npos) return 0;
        *static_cast<std::optional<std::string>*>(data) = name.substr(0, at);
        return 1;
      },
      &found);
  return found;
}

// The packages of the virtual environment that the shell is in.
std::vector<std::string> environment_packages() {
  std::vector<std::string> found;
  const char* environment = std::getenv("VIRTUAL_ENV");
  if (environment == nullptr) return found;
  std::error_code error;  // what cannot be read has no packages
  const std::filesystem::path folder = std::filesystem::path(environment) / "lib";
  std::filesystem::directory_iterator at(folder, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    found.push_back((at->path() / "site-packages").string());
  }
  return found;
}

std::vector<std::string> candidates() {
  std::vector<std::string> paths;
  if (const char* given = std::getenv("INKLE_NVRTC"); given != nullptr && *given != '\0') {
    return {given};
  }
  std::vector<std::string> installed = environment_packages();
  if (const auto packages = torch_packages()) installed.insert(installed.begin(), *packages);
  for (const std::string& packages : installed) {
    paths.push_back(packages + "/nvidia/cu13/lib/libnvrtc.so.13");
    paths.push_back(packages + "/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  }
  for (const char* name : kNames) paths.emplace_back(name);
  std::vector<std::string> folders;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* home = std::getenv(variable)) folders.emplace_back(home);
  }
  folders.emplace_back("/usr/local/cuda");
  for (const std::string& folder : folders) {
    for (const char* name : kNames) {
      paths.push_back(folder + "/lib64/" + name);
      paths.push_back(folder + "/lib/" + name);
    }
  }
  return paths;
}

template <class F>
bool resolve(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(library, name));
  return function != nullptr;
}

std::optional<Nvrtc> open_nvrtc(std::string& why_not) {
  for (const std::string& path : candidates()) {
    Nvrtc n;
    n.library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (n.library == nullptr) {
      if (why_not.empty()) why_not = ::dlerror();
      continue;
    }
    const bool complete = resolve(n.library, "nvrtcCreateProgram", n.create) &&
                          resolve(n.library, "nvrtcDestroyProgram", n.destroy) &&
                          resolve(n.library, "nvrtcCompileProgram", n.compile) &&
                          resolve(n.library, "nvrtcGetProgramLogSize", n.log_size) &&
                          resolve(n.library, "nvrtcGetProgramLog", n.log) &&
                          resolve(n.library, "nvrtcGetCUBINSize", n.cubin_size) &&
                          resolve(n.library, "nvrtcGetCUBIN", n.cubin) &&
                          resolve(n.library, "nvrtcGetPTXSize", n.ptx_size) &&
                          resolve(n.library, "nvrtcGetPTX", n.ptx) &&
                          resolve(n.library, "nvrtcGetErrorString", n.error) &&
                          resolve(n.library, "nvrtcVersion", n.version);
    if (!complete) {
      why_not = path + " lacks functions";
      continue;
    }
    n.path = path;
    log(LogChannel::codegen, "NVRTC: {}", path);
    return n;
  }
  return std::nullopt;
}

struct Opened {
  std::optional<Nvrtc> nvrtc;
  std::string why_not;
};

const Opened& opened() {
  static const Opened result = [] {
    Opened o;
    o.nvrtc = open_nvrtc(o.why_not);
    return o;
  }();
  return result;
}

const Nvrtc& nvrtc() {
  const Opened& o = opened();
  if (!o.nvrtc) unsupported("no NVRTC to compile kernels with: {}", o.why_not);
  return *o.nvrtc;
}

}  // namespace

std::optional<std::string> find_nvrtc(std::string& why_not) {
  const Opened& o = opened();
  if (o.nvrtc) return o.nvrtc->path;
  why_not = o.why_not;
  return std::nullopt;
}

std::string nvrtc_version() {
  const Opened& o = opened();
  int major = 0, minor = 0;
  if (!o.nvrtc || o.nvrtc->version(&major, &minor) != 0) return {};
  return fmt::format("{}.{}", major, minor);
}

namespace {

// One program of NVRTC's, gone with this object.
class Compilation {
 public:
  Compilation(const Nvrtc& n, const std::string& text, const std::string& path)
      : n_(n), path_(path) {
    check(n.create(&program_, text.c_str(), path.c_str(), 0, nullptr, nullptr), "take");
  }
  ~Compilation() { n_.destroy(&program_); }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;

  [[nodiscard]] Nvrtc::Result run(std::span<const char* const> options) {
    return n_.compile(program_, static_cast<int>(options.size()), options.data());
  }
  [[nodiscard]] std::string messages() const {
    std::size_t size = 0;
    if (n_.log_size(program_, &size) != 0 || size <= 1) return "";
    std::string text(size, '\0');
    (void)n_.log(program_, text.data());
    text.resize(size - 1);
    return text;
  }
  // Machine code, or PTX with the zero behind it.
  [[nodiscard]] std::vector<std::byte> code(bool is_ptx) const {
    std::size_t size = 0;
    check((is_ptx ? n_.ptx_size : n_.cubin_size)(program_, &size), "make code of");
    std::vector<std::byte> code(size);
    check((is_ptx ? n_.ptx : n_.cubin)(program_, reinterpret_cast<char*>(code.data())),
          "make code of");
    return code;
  }

 private:
  void check(Nvrtc::Result result, const char* what) const {
    if (result == 0) return;
    throw InternalError(fmt::format("NVRTC failed to {} {}: {}", what, path_, n_.error(result)));
  }

  const Nvrtc& n_;
  const std::string& path_;
  Program* program_ = nullptr;
};

}  // namespace

std::vector<std::byte> compile_program(const std::string& text, const std::string& path,
                                       const std::string& architecture, std::string* notes) {
  const Nvrtc& n = nvrtc();
  Compilation compilation(n, text, path);
  const std::string target = "--gpu-architecture=" + architecture;
  std::vector<const char*> options = {target.c_str(), "--fmad=false", "--std=c++17", "-lineinfo",
                                      "--disable-warnings"};
  if (notes != nullptr) options.push_back("--ptxas-options=-warn-spills");
  // This leaves out declarations of textures and the like, a sixth of the time to read the helpers;
  // old versions do not know it.
  options.push_back("--minimal");
  const std::span<const char* const> all(options);
  Nvrtc::Result result = compilation.run(all);
  if (result == kInvalidOption) result = compilation.run(all.first(all.size() - 1));
  const std::string messages = compilation.messages();
  if (result == kInvalidOption) {
    unsupported("{} does not support the architecture {}: {}", n.path, architecture, messages);
  }
  if (result != 0) {
    throw InternalError(
        fmt::format("NVRTC does not compile {} ({}):\n{}", path, n.error(result), messages));
  }
  if (messages.find("wgmma.mma_async instructions are serialized") != std::string::npos) {
    throw InternalError(fmt::format("{}: {}", path, messages));
  }
  if (notes != nullptr) *notes = messages;
  return compilation.code(architecture.starts_with("compute_"));
}

}  // namespace inkle::codegen::cuda
