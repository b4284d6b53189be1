// Safetensors files: every tensor that comes out can be read to its last element.
#include "frontend/pt2/safetensors.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace inkle;
  fuzz::accept_refusal([&] {
    const auto file = frontend::pt2::MappedFile::from_bytes("fuzz", fuzz::bytes_of(data, size));
    for (const auto& [name, tensor] : frontend::pt2::read_safetensors(file).tensors) {
      (void)frontend::pt2::rearranged(tensor.view());
    }
  });
  return 0;
}
