// Checks that a kernel is well formed: what holds for every run of it. What depends on the run
// (races, most bounds, missing barriers) the interpreter finds.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernel/kernel.h"

namespace inkle::kernel {

// Of a machine; 0: any number.
struct Limits {
  std::int64_t shared_bytes = 0;  // of a block
  std::int64_t threads = 0;       // of a block
  std::int64_t cluster = 0;       // blocks
  std::int64_t registers = 0;     // of a thread
};

// Throws InternalError naming the pass, the kernel and the operation where a rule of docs/kernel.md
// does not hold.
void verify(const Kernel& kernel, std::string_view after_pass = "", const Limits& limits = {});

}  // namespace inkle::kernel
