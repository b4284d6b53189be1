#include "runtime/cuda/driver_api.h"

#include "base/error.h"
#include "runtime/cuda/shared_library.h"

namespace inkle::runtime::cuda::driver {
namespace {

std::string look_up_all(void* library, Api& api) {
  Functions functions(library);
  functions.get("cuInit", api.init)
      .get("cuGetErrorString", api.error_string)
      .get("cuDriverGetVersion", api.driver_version)
      .get("cuDeviceGetCount", api.device_count)
      .get("cuDeviceGet", api.device_get)
      .get("cuDeviceGetName", api.device_name)
      .get("cuDeviceGetAttribute", api.device_attribute)
      .get("cuDevicePrimaryCtxRetain", api.primary_retain)
      .get("cuCtxPushCurrent_v2", api.context_push)
      .get("cuCtxPopCurrent_v2", api.context_pop)
      .get("cuCtxSynchronize", api.context_synchronize)
      .get("cuModuleLoadData", api.module_load)
      .get("cuModuleUnload", api.module_unload)
      .get("cuModuleGetFunction", api.module_function)
      .get("cuFuncSetAttribute", api.function_set)
      .get("cuLaunchKernel", api.launch)
      .get("cuLaunchKernelEx", api.launch_with)
      .get("cuMemAlloc_v2", api.allocate)
      .get("cuMemFree_v2", api.free)
      .get("cuMemHostAlloc", api.host_allocate)
      .get("cuMemFreeHost", api.host_free)
      .get("cuMemcpyAsync", api.copy)
      .get("cuMemsetD8Async", api.fill)
      .get("cuStreamSynchronize", api.stream_synchronize)
      .get("cuStreamIsCapturing", api.stream_is_capturing)
      .get("cuThreadExchangeStreamCaptureMode", api.exchange_capture_mode)
      .get("cuEventCreate", api.event_create)
      .get("cuEventDestroy_v2", api.event_destroy)
      .get("cuEventRecord", api.event_record)
      .get("cuEventSynchronize", api.event_synchronize)
      .get("cuEventElapsedTime", api.event_elapsed)
      .get("cuOccupancyMaxActiveBlocksPerMultiprocessor", api.most_blocks)
      .get_if("cuTensorMapEncodeTiled", api.encode_tiled);
  return functions.missing();
}

Opened<Api> open() {
  Opened<Api> opened;
  void* library = open_first({"libcuda.so.1"});
  if (library == nullptr) {
    opened.why_not = "no NVIDIA driver on this machine (libcuda.so.1)";
    return opened;
  }
  auto api = std::make_unique<Api>();
  if (const std::string missing = look_up_all(library, *api); !missing.empty()) {
    opened.why_not = fmt::format("the NVIDIA driver is too old: it has no {}", missing);
    return opened;
  }
  if (const Result result = api->init(0); result != kSuccess) {
    const char* text = nullptr;
    api->error_string(result, &text);
    opened.why_not =
        fmt::format("the NVIDIA driver does not start: {}", text == nullptr ? "?" : text);
    return opened;
  }
  opened.api = std::move(api);
  return opened;
}

}  // namespace

const Api* find(std::string& why_not) {
  static const Opened<Api> opened = open();
  why_not = opened.why_not;
  return opened.api.get();
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
