// Archives of torch.export: the zip layer, its JSON and the graph in it.
#include "frontend/pt2/importer.h"
#include "fuzz.h"
#include "graph/text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace inkle;
  fuzz::accept_refusal([&] {
    const auto file = frontend::pt2::MappedFile::from_bytes("fuzz", fuzz::bytes_of(data, size));
    (void)graph::to_string(frontend::pt2::import_pt2(file).graph);
  });
  return 0;
}
