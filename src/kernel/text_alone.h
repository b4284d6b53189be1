// The text of a kernel as plans keep it: the same whatever program the kernel is in.
#pragma once

#include <string>
#include <string_view>

#include "kernel/kernel.h"

namespace inkle::kernel {

// As to_string() prints it, under this name and without the user's lines.
[[nodiscard]] std::string text_alone(Kernel&& kernel, std::string_view name);

}  // namespace inkle::kernel
