#include "runtime/cuda/cublaslt_api.h"

#include "runtime/cuda/shared_library.h"

namespace inkle::runtime::cuda::cublaslt {
namespace {

Opened<Api> open() {
  Opened<Api> opened;
  void* library = open_first(
      {"libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so"});
  if (library == nullptr) {
    opened.why_not = "no cuBLASLt is found (libcublasLt.so.13)";
    return opened;
  }
  auto api = std::make_unique<Api>();
  Functions functions(library);
  functions.get("cublasLtGetVersion", api->version)
      .get("cublasLtCreate", api->create)
      .get("cublasLtMatrixLayoutInit_internal", api->layout_init)
      .get("cublasLtMatrixLayoutSetAttribute", api->layout_set)
      .get("cublasLtMatmulDescInit_internal", api->description_init)
      .get("cublasLtMatmulDescSetAttribute", api->description_set)
      .get("cublasLtMatmulPreferenceInit_internal", api->preference_init)
      .get("cublasLtMatmulPreferenceSetAttribute", api->preference_set)
      .get("cublasLtMatmulAlgoGetHeuristic", api->heuristic)
      .get("cublasLtMatmulAlgoConfigGetAttribute", api->algorithm_get)
      .get("cublasLtMatmul", api->matmul);
  if (functions.missing().empty()) {
    opened.api = std::move(api);
  } else {
    opened.why_not = fmt::format("this cuBLASLt has no {}", functions.missing());
  }
  return opened;
}

}  // namespace

const Api* find(std::string& why_not) {
  static const Opened<Api> opened = open();
  why_not = opened.why_not;
  return opened.api.get();
}

}  // namespace inkle::runtime::cuda::cublaslt
