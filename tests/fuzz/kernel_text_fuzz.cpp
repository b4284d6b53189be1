// The reader of kernels survives any text, and what it accepts prints to text that it reads back to
// the same text.
#include <cstdint>
#include <cstdlib>

#include "fuzz.h"
#include "kernel/parse.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace inkle;
  fuzz::accept_refusal([&] {
    const auto parsed = kernel::parse_kernel(fuzz::text_of(data, size), "fuzz");
    const std::string printed = kernel::to_string(parsed.kernel);
    if (kernel::to_string(kernel::parse_kernel(printed, "printed").kernel) != printed) {
      std::abort();
    }
  });
  return 0;
}
