// The reader of loop programs survives any text, and what it accepts prints to text that it reads
// back to the same text.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "loop/program.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const std::string printed = inkle::loop::to_string(inkle::loop::parse_program(text, "fuzz"));
    if (inkle::loop::to_string(inkle::loop::parse_program(printed, "printed")) != printed) {
      std::abort();
    }
  } catch (const inkle::UserError&) {
  } catch (const inkle::Unsupported&) {
  }
  return 0;
}
