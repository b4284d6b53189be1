// The reader of kernels survives any text, and what it accepts prints to text that it reads back to
// the same text. The verifier survives what is accepted.
#include <cstdint>
#include <cstdlib>

#include "fuzz.h"
#include "kernel/parse.h"
#include "kernel/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace inkle;
  fuzz::accept_refusal([&] {
    const auto parsed = kernel::parse_kernel(fuzz::text_of(data, size), "fuzz");
    const std::string printed = kernel::to_string(parsed.kernel);
    if (kernel::to_string(kernel::parse_kernel(printed, "printed").kernel) != printed) {
      std::abort();
    }
    try {
      kernel::verify(parsed.kernel);
    } catch (const InternalError&) {
      // A text may say what no kernel may.
    }
  });
  return 0;
}
