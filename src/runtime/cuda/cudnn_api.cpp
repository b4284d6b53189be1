#include "runtime/cuda/cudnn_api.h"

#include "runtime/cuda/shared_library.h"

namespace inkle::runtime::cuda::cudnn {
namespace {

Opened<Api> open() {
  Opened<Api> opened;
  void* library = open_first({"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9"});
  if (library == nullptr) {
    opened.why_not = "no cuDNN is found (libcudnn.so.9)";
    return opened;
  }
  auto api = std::make_unique<Api>();
  Functions functions(library);
  functions.get("cudnnGetVersion", api->version)
      .get("cudnnCreate", api->create)
      .get("cudnnSetStream", api->set_stream)
      .get("cudnnBackendCreateDescriptor", api->make)
      .get("cudnnBackendDestroyDescriptor", api->destroy)
      .get("cudnnBackendSetAttribute", api->set)
      .get("cudnnBackendGetAttribute", api->get)
      .get("cudnnBackendFinalize", api->finalize)
      .get("cudnnBackendExecute", api->execute)
      .get("cudnnGetErrorString", api->error);
  if (!functions.missing().empty()) {
    opened.why_not = fmt::format("this cuDNN has no {}", functions.missing());
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

}  // namespace inkle::runtime::cuda::cudnn
