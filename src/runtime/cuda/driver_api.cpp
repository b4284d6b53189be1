#include "runtime/cuda/driver_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>

#include "base/error.h"

namespace inkle::runtime::cuda::driver {
namespace {

struct Found {
  std::unique_ptr<Api> api;
  std::string why_not;
};

template <class F>
bool look_up(void* library, const char* name, F& function, std::string& missing) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (function == nullptr) missing = name;
  return function != nullptr;
}

bool look_up_all(void* library, Api& api, std::string& missing) {
  const auto all = [&](auto... pairs) { return (pairs() && ...); };
  const auto one = [&](const char* name, auto& function) {
    return [&, name] { return look_up(library, name, function, missing); };
  };
  return all(
      one("cuInit", api.init), one("cuGetErrorString", api.error_string),
      one("cuDriverGetVersion", api.driver_version), one("cuDeviceGetCount", api.device_count),
      one("cuDeviceGet", api.device_get), one("cuDeviceGetName", api.device_name),
      one("cuDeviceGetAttribute", api.device_attribute),
      one("cuDevicePrimaryCtxRetain", api.primary_retain),
      one("cuCtxPushCurrent_v2", api.context_push), one("cuCtxPopCurrent_v2", api.context_pop),
      one("cuModuleLoadData", api.module_load), one("cuModuleUnload", api.module_unload),
      one("cuModuleGetFunction", api.module_function), one("cuFuncSetAttribute", api.function_set),
      one("cuLaunchKernel", api.launch), one("cuMemAlloc_v2", api.allocate),
      one("cuMemFree_v2", api.free), one("cuMemHostAlloc", api.host_allocate),
      one("cuMemFreeHost", api.host_free), one("cuMemcpyAsync", api.copy),
      one("cuMemsetD8Async", api.fill), one("cuStreamSynchronize", api.stream_synchronize),
      one("cuStreamIsCapturing", api.stream_is_capturing), one("cuEventCreate", api.event_create),
      one("cuEventDestroy_v2", api.event_destroy), one("cuEventRecord", api.event_record),
      one("cuEventSynchronize", api.event_synchronize),
      one("cuEventElapsedTime", api.event_elapsed));
}

Found open() {
  Found found;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    found.why_not = "no NVIDIA driver on this machine (libcuda.so.1)";
    return found;
  }
  auto api = std::make_unique<Api>();
  std::string missing;
  if (!look_up_all(library, *api, missing)) {
    found.why_not = fmt::format("the NVIDIA driver is too old: it has no {}", missing);
    return found;
  }
  if (const Result result = api->init(0); result != kSuccess) {
    const char* text = nullptr;
    api->error_string(result, &text);
    found.why_not =
        fmt::format("the NVIDIA driver does not start: {}", text == nullptr ? "?" : text);
    return found;
  }
  found.api = std::move(api);
  return found;
}

}  // namespace

const Api* find(std::string& why_not) {
  static const Found found = open();
  why_not = found.why_not;
  return found.api.get();
}

void check(const Api& api, Result result, const char* doing) {
  if (result == kSuccess) [[likely]]
    return;
  const char* text = nullptr;
  api.error_string(result, &text);
  const std::string message =
      fmt::format("{}: {} (CUDA error {})", doing, text == nullptr ? "unknown" : text, result);
  if (result == kOutOfMemory) throw UserError(message);
  throw InternalError(message);
}

}  // namespace inkle::runtime::cuda::driver
