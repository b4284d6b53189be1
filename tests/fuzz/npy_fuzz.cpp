// .npy files: an array that comes out can be read to its last element.
#include "frontend/pt2/npy.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace inkle;
  fuzz::accept_refusal([&] {
    const auto file = frontend::pt2::MappedFile::from_bytes("fuzz", fuzz::bytes_of(data, size));
    (void)frontend::pt2::rearranged(frontend::pt2::read_npy(file).view());
  });
  return 0;
}
