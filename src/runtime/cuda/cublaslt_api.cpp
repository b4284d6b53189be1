#include "runtime/cuda/cublaslt_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>

namespace inkle::runtime::cuda::cublaslt {
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

Found open() {
  Found found;
  void* library = nullptr;
  for (const char* name :
       {"libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so"}) {
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr) {
    found.why_not = "no cuBLASLt is found (libcublasLt.so.13)";
    return found;
  }
  auto api = std::make_unique<Api>();
  std::string missing;
  const auto get = [&](const char* name, auto& f) { return look_up(library, name, f, missing); };
  if (get("cublasLtCreate", api->create) &&
      get("cublasLtMatrixLayoutInit_internal", api->layout_init) &&
      get("cublasLtMatrixLayoutSetAttribute", api->layout_set) &&
      get("cublasLtMatmulDescInit_internal", api->description_init) &&
      get("cublasLtMatmulDescSetAttribute", api->description_set) &&
      get("cublasLtMatmulPreferenceInit_internal", api->preference_init) &&
      get("cublasLtMatmulPreferenceSetAttribute", api->preference_set) &&
      get("cublasLtMatmulAlgoGetHeuristic", api->heuristic) &&
      get("cublasLtMatmulAlgoConfigGetAttribute", api->algorithm_get) &&
      get("cublasLtMatmul", api->matmul)) {
    found.api = std::move(api);
  } else {
    found.why_not = fmt::format("this cuBLASLt has no {}", missing);
  }
  return found;
}

}  // namespace

const Api* find(std::string& why_not) {
  static const Found found = open();
  why_not = found.why_not;
  return found.api.get();
}

}  // namespace inkle::runtime::cuda::cublaslt
