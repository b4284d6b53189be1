// The scanner survives any bytes: every way of reading either advances or fails with a UserError.
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace {

// Reads one token in the way that `choice` picks.
void read_one(inkle::Scanner& scanner, unsigned choice) {
  bool integral = false;
  std::int64_t value = 0;
  switch (choice % 5) {
    case 0:
      (void)scanner.identifier();
      break;
    case 1:
      (void)scanner.integer();
      break;
    case 2:
      (void)scanner.number(integral, value);
      break;
    case 3:
      (void)scanner.quoted();
      break;
    case 4:
      (void)scanner.take_comment();
      scanner.expect("%");
      break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  inkle::Scanner scanner(text, "fuzz");
  while (!scanner.at_end()) {
    const std::size_t before = scanner.mark().position;
    for (unsigned choice = 0; choice < 5; ++choice) {
      const inkle::Scanner::Mark mark = scanner.mark();
      try {
        read_one(scanner, choice);
        break;
      } catch (const inkle::UserError&) {
        scanner.reset(mark);
      }
    }
    if (scanner.mark().position == before) {
      const char next[] = {scanner.peek(), '\0'};
      if (next[0] == '\0' || !scanner.accept(next)) break;
    }
  }
  return 0;
}
