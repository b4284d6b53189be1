// The op table as a whole: it builds, its rows are complete, and its page lists them.
#include "ops/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "ops/samples.h"

namespace inkle::ops {
namespace {

using graph::OpDef;
using graph::Trait;

TEST(Table, EveryRowIsComplete) {
  for (const OpDef* op : op_table().all()) {
    EXPECT_FALSE(op->doc.empty()) << op->name;
    if (op->name == "eager") continue;
    EXPECT_NE(op->infer, nullptr) << op->name;
    EXPECT_FALSE(op->aten.empty() && op->name.find("::") != std::string_view::npos) << op->name;
    const bool runs = op->lower != nullptr || op->decompose != nullptr;
    EXPECT_NE(runs, graph::has(op->traits, Trait::eager_only)) << op->name;
    EXPECT_FALSE(op->lower != nullptr && op->decompose != nullptr) << op->name;
  }
}

TEST(Table, EveryRowThatRunsHasAnOracle) {
  for (const OpDef* op : op_table().all()) {
    if (graph::has(op->traits, Trait::eager_only)) continue;
    // Its own decomposition would be wrong in the same way. Those are of another row, which has
    // one, after sizes and scales.
    const bool is_size_alone = op->name.starts_with("upsample_") && op->name.ends_with("_vec");
    EXPECT_TRUE(op->reference != nullptr || is_size_alone) << op->name;
  }
}

// A label is text for as long as the program runs, and one sample's of a row.
TEST(Table, SamplesAreNamed) {
  for (const OpDef* op : op_table().all()) {
    if (op->samples == nullptr) continue;
    std::vector<std::string_view> labels;
    for (const graph::Sample& sample : op->samples()) labels.push_back(sample.label);
    const std::vector<graph::Sample> again = op->samples();
    ASSERT_EQ(labels.size(), again.size()) << op->name;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      EXPECT_EQ(labels[i], again[i].label) << op->name;
      EXPECT_EQ(std::ranges::count(labels, labels[i]), 1) << op->name << ": " << labels[i];
      EXPECT_TRUE(std::ranges::all_of(labels[i], [](unsigned char c) { return std::isprint(c); }))
          << op->name;
    }
  }
}

TEST(Table, AtenOverloadsFindTheirRow) {
  const auto row = [](std::string_view overload) {
    const OpDef* op = op_table().find_aten(overload);
    return op == nullptr ? std::string_view("none") : op->name;
  };
  EXPECT_EQ(row("aten::add.Tensor"), "add");
  EXPECT_EQ(row("aten::add.Scalar"), "add");
  EXPECT_EQ(row("aten::div.Tensor_mode"), "div_mode");
  EXPECT_EQ(row("aten::squeeze.dim"), "squeeze_dims");
  EXPECT_EQ(row("aten::no_such_op"), "none");
}

TEST(Table, PageHasALineForEveryRow) {
  const std::string page = ops_markdown();
  for (const OpDef* op : op_table().all()) {
    if (op->name == "eager") continue;
    EXPECT_NE(page.find("| `" + std::string(op->name) + "` |"), std::string::npos) << op->name;
  }
}

TEST(Table, DocsPageIsCurrent) {
  const std::string path = std::string(INKLE_SOURCE) + "/docs/ops.md";
  if (std::getenv("INKLE_UPDATE") != nullptr) std::ofstream(path) << ops_markdown();
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_TRUE(text.str() == ops_markdown())
      << "docs/ops.md is generated; run this test with INKLE_UPDATE=1 to write it again";
}

}  // namespace
}  // namespace inkle::ops
