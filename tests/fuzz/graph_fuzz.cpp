// Graph text: what is parsed prints to text that parses to the same text, and verifies.
#include <string>

#include "fuzz.h"
#include "graph/text.h"
#include "ops/table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace inkle;
  fuzz::accept_refusal([&] {
    const graph::Graph graph = graph::parse(fuzz::text_of(data, size), "fuzz", ops::op_table());
    const std::string text = graph::to_string(graph);
    const std::string again = graph::to_string(graph::parse(text, "again", ops::op_table()));
    INKLE_CHECK(text == again, "text changes:\n{}\n{}", text, again);
  });
  return 0;
}
