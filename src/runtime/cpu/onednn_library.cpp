// The functions that oneDNN's C++ header calls, defined here as jumps to those of the library,
// whose addresses are filled in when it is opened. A function that the header calls and that is not
// in this list is an error of the linker.
#include "runtime/cpu/onednn_library.h"

#include <dlfcn.h>

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl_types.h>
#include <oneapi/dnnl/dnnl_version.h>

#include "base/error.h"

#define INKLE_ONEDNN_FUNCTIONS(X)                        \
  X(dnnl_dilated_convolution_backward_weights_desc_init) \
  X(dnnl_dilated_convolution_forward_desc_init)          \
  X(dnnl_dilated_deconvolution_forward_desc_init)        \
  X(dnnl_engine_create)                                  \
  X(dnnl_engine_destroy)                                 \
  X(dnnl_get_effective_cpu_isa)                          \
  X(dnnl_inner_product_forward_desc_init)                \
  X(dnnl_matmul_desc_init)                               \
  X(dnnl_memory_create)                                  \
  X(dnnl_memory_desc_equal)                              \
  X(dnnl_memory_desc_get_size)                           \
  X(dnnl_memory_desc_init_by_strides)                    \
  X(dnnl_memory_desc_init_by_tag)                        \
  X(dnnl_memory_destroy)                                 \
  X(dnnl_memory_get_engine)                              \
  X(dnnl_memory_get_memory_desc)                         \
  X(dnnl_memory_set_data_handle)                         \
  X(dnnl_post_ops_append_binary)                         \
  X(dnnl_post_ops_append_eltwise)                        \
  X(dnnl_post_ops_create)                                \
  X(dnnl_post_ops_destroy)                               \
  X(dnnl_primitive_attr_create)                          \
  X(dnnl_primitive_attr_destroy)                         \
  X(dnnl_primitive_attr_set_post_ops)                    \
  X(dnnl_primitive_attr_set_scratchpad_mode)             \
  X(dnnl_primitive_create)                               \
  X(dnnl_primitive_desc_destroy)                         \
  X(dnnl_primitive_desc_iterator_create)                 \
  X(dnnl_primitive_desc_iterator_destroy)                \
  X(dnnl_primitive_desc_iterator_fetch)                  \
  X(dnnl_primitive_desc_query)                           \
  X(dnnl_primitive_desc_query_md)                        \
  X(dnnl_primitive_destroy)                              \
  X(dnnl_primitive_execute)                              \
  X(dnnl_reorder_primitive_desc_create)                  \
  X(dnnl_stream_create)                                  \
  X(dnnl_stream_destroy)

// An address a function, and the jump through it. Neither is seen outside of what this is linked
// into: a process may hold another oneDNN.
#define INKLE_ONEDNN_JUMP(name)                                                        \
  extern "C" {                                                                         \
  __attribute__((visibility("hidden"), used)) void* inkle_address_of_##name = nullptr; \
  }                                                                                    \
  asm(".pushsection .text\n"                                                           \
      ".globl " #name "\n.hidden " #name "\n.type " #name ", @function\n" #name        \
      ":\n  endbr64\n  jmp *inkle_address_of_" #name                                   \
      "(%rip)\n"                                                                       \
      ".size " #name ", .-" #name "\n.popsection\n");

INKLE_ONEDNN_FUNCTIONS(INKLE_ONEDNN_JUMP)

#define INKLE_TEXT(number) #number
#define INKLE_TEXT_OF(number) INKLE_TEXT(number)

namespace inkle::runtime::cpu {
namespace {

constexpr const char* kName = "libdnnl.so." INKLE_TEXT_OF(DNNL_VERSION_MAJOR);

void* address_in(void* library, const char* name) {
  if (void* const address = ::dlsym(library, name)) return address;
  unsupported("{} has no function {}", kName, name);
}

// The library stays open: its threads may outlive all that uses it.
bool open() {
  void* const library = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = ::dlerror();
    unsupported("matrix products and convolutions are oneDNN's, which cannot be opened: {}",
                reason == nullptr ? kName : reason);
  }
#define INKLE_ONEDNN_FILL(name) inkle_address_of_##name = address_in(library, #name);
  INKLE_ONEDNN_FUNCTIONS(INKLE_ONEDNN_FILL)
#undef INKLE_ONEDNN_FILL
  return true;
}

void open_once() {
  static const bool is_open = open();
  static_cast<void>(is_open);
}

}  // namespace

void open_onednn() {
  try {
    open_once();
  } catch (const Unsupported& error) {
    unsupported("{}; {}", error.message(), kOnednnRemedy);
  }
}

std::string onednn_version() {
  open_once();
  void* const library = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);  // which is open
  const auto version =
      reinterpret_cast<const dnnl_version_t* (*)()>(address_in(library, "dnnl_version"))();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace inkle::runtime::cpu
