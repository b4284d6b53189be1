#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "driver/target.h"
#include "image/code_names.h"
#include "image/processor.h"

namespace inkle::driver {

abi::GemmSource gemm_source_from_environment() {
  const char* value = std::getenv("INKLE_GEMM");
  if (value == nullptr || *value == '\0') return abi::GemmSource::library;
  const std::string_view by = value;
  if (by == "library") return abi::GemmSource::library;
  if (by == "template") return abi::GemmSource::templates;
  if (by == "auto") return abi::GemmSource::least;
  user_error("INKLE_GEMM is '{}', expected library, template or auto", by);
}

void check_settings() {
  (void)gemm_source_from_environment();
  (void)image::vectors_allowed();
  (void)image::perf_output();
}

}  // namespace inkle::driver
