// Machine code: an object file to the linker, and an image with its layout to the loader. Nothing
// is run.
#include <cstring>

#include "fuzz.h"
#include "image/image.h"

namespace {

using namespace inkle;

// A layout of the first bytes: sizes of code and of each part, entries, and imports by number.
void load(std::span<const std::byte> bytes) {
  if (bytes.size() < 32) return;
  std::uint64_t numbers[4];
  std::memcpy(numbers, bytes.data(), sizeof numbers);
  constexpr const char* kImports[] = {"sinf", "cos", "no_such_function", ""};
  image::Layout layout{.code_bytes = numbers[0], .imports = {}, .entries = {numbers[1]}};
  for (std::uint64_t i = 0; i < numbers[2] % 8; ++i) {
    layout.imports.emplace_back(kImports[(numbers[3] >> (2 * i)) % 4]);
  }
  std::vector<std::byte> code(bytes.begin() + 32, bytes.end());
  code.resize((code.size() + image::kPageBytes - 1) / image::kPageBytes * image::kPageBytes);
  fuzz::accept_refusal([&] { (void)image::load(code, layout); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = fuzz::bytes_of(data, size);
  fuzz::accept_refusal([&] {
    const image::Image linked = image::link({&bytes, 1});
    (void)image::load(linked.bytes, linked.layout);  // what is linked can be loaded
  });
  load(bytes);
  return 0;
}
