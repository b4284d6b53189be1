#include "kernel/text_alone.h"

namespace inkle::kernel {

std::string text_alone(Kernel&& kernel, std::string_view name) {
  kernel.name = name;
  kernel.sources.clear();
  return to_string(kernel);
}

}  // namespace inkle::kernel
