// Kernels from text, as to_string writes them. The grammar stands in docs/kernel.md.
#pragma once

#include <memory>
#include <string_view>

#include "kernel/kernel.h"
#include "sym/expr.h"

namespace inkle::kernel {

// The kernel's symbols are new ones of `context`; size symbols of the text's names are used where
// the context has them. `file` is for messages. Types, names, arities and nesting are checked here,
// what verify() checks is not. Throws UserError with file, line, column and reason.
[[nodiscard]] Kernel parse_kernel(std::string_view text, std::string_view file,
                                  sym::Context& context);

struct ParsedKernel {
  std::unique_ptr<sym::Context> context;  // owns the kernel's symbols
  Kernel kernel;
};
[[nodiscard]] ParsedKernel parse_kernel(std::string_view text, std::string_view file);

}  // namespace inkle::kernel
