// What the compiler does not support is named by nodes, all at once, from whatever stage.
#include <gtest/gtest.h>

#include "base/unsupported.h"
#include "driver/differential.h"
#include "graph/text.h"
#include "ops/table.h"

namespace inkle::driver {
namespace {

// Attention of f64 has no kernel (codegen), one without features no nest (lower).
constexpr const char* kText = R"(
graph @f(%q: f64[1,2,4,8], %z: f32[1,2,4,0], %x: f32[64]) -> f64[1,2,4,8], f32[1,2,4,0], f64[1,2,4,8], f32[64] {
  %0: f64[1,2,4,8] = sdpa(%q, %q, %q, none, 0.0, false, 0.5, false, false)  # m.py:1 (first)
  %1: f32[1,2,4,0] = sdpa(%z, %z, %z, none, 0.0, false, 1.0, false, false)  # m.py:2 (empty)
  %2: f64[1,2,4,8] = exp(%0)  # m.py:3 (exp)
  %3: f64[1,2,4,8] = sdpa(%2, %2, %2, none, 0.0, true, 0.5, false, false)  # m.py:4 (second)
  %4: f32[64] = tanh(%x)  # m.py:5 (tanh)
  return %3, %1, %2, %4
}
)";

TEST(UnsupportedNodes, AreNamedAllAtOnce) {
  const graph::Graph graph = graph::parse(kText, "test", ops::op_table());
  try {
    (void)shared_compiler().compile(graph, {});
    FAIL() << "compiled";
  } catch (const UnsupportedAt& error) {
    std::vector<std::string> nodes;
    for (const NodeFault& fault : error.nodes()) {
      nodes.push_back(fault.node);
      EXPECT_FALSE(fault.why.empty());
    }
    const std::vector<std::string> wanted = {"m.py:2 (empty)", "m.py:1 (first)", "m.py:4 (second)"};
    EXPECT_EQ(nodes, wanted);
    EXPECT_NE(std::string(error.what()).find("in stage lower"), std::string::npos) << error.what();
  }
}

TEST(UnsupportedNodes, OneWithoutANodeIsToldAlone) {
  UnsupportedNodes found;
  UnsupportedAt named(Unsupported("a"));
  named.add("n");
  found.run([&] { throw named; });
  found.run([] { throw Unsupported("b"); });
  found.run([&] { throw named; });
  try {
    found.check();
    FAIL();
  } catch (const UnsupportedAt& error) {
    EXPECT_EQ(error.message(), "b");
    EXPECT_TRUE(error.nodes().empty());
  }
}

}  // namespace
}  // namespace inkle::driver
