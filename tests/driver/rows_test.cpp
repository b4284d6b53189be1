// Every sample of every row of the op table, in all of its dtypes, and in all shape classes: the
// graph interpreter's result against that of the compiled plan.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "driver/differential.h"
#include "graph/builder.h"
#include "ops/samples.h"
#include "ops/table.h"

namespace inkle::driver {
namespace {

using graph::OpDef;
using graph::Sample;
using ops::ShapeClass;

constexpr ShapeClass kShapes[] = {ShapeClass::fixed, ShapeClass::symbolic, ShapeClass::ones,
                                  ShapeClass::empty};
constexpr std::string_view name_of(ShapeClass shapes) {
  constexpr std::string_view kNames[] = {"fixed", "symbolic", "ones", "empty"};
  return kNames[static_cast<std::size_t>(shapes)];
}

void check(const OpDef& row, const Sample& sample, abi::DType dtype, ShapeClass shapes) {
  const auto context = std::make_shared<sym::Context>();
  graph::Graph graph(context, ops::op_table());
  ops::SampleBuilder samples(graph, dtype, shapes);
  std::vector<graph::Argument> arguments = sample.arguments(samples);
  graph::Builder builder(graph);
  for (const graph::ValueId v : builder.nodes(row.name, std::move(arguments))) {
    graph.outputs.push_back({v});
  }
  const ops::SymbolValues symbols = bind_symbols(graph);
  std::vector<ops::RefTensor> inputs;
  for (std::size_t i = 0; i < samples.ranges().size(); ++i) {
    inputs.push_back(random_tensor(graph.type(graph.inputs[i].value), samples.ranges()[i].low,
                                   samples.ranges()[i].high, static_cast<std::uint32_t>(i + 1)));
  }
  (void)expect_as_interpreted(graph, std::move(inputs), symbols);
}

// What the compiler declines, so that its caller runs the op in eager.
bool is_left_to_eager(const std::string& why) {
  if (why.starts_with("attention of f64")) return true;
  // oneDNN has these for processors with AVX-512 alone.
  return __builtin_cpu_supports("avx512bw") == 0 &&
         why.find("a transposed convolution or a weight gradient of bf16") != std::string::npos;
}

class Rows : public testing::TestWithParam<const OpDef*> {};

TEST_P(Rows, RunAsTheInterpreterSays) {
  const OpDef& row = *GetParam();
  for (const Sample& sample : row.samples()) {
    for (const abi::DType dtype : sample.dtypes) {
      for (const ShapeClass shapes : kShapes) {
        // Shape classes and dtypes meet in pairs only where one of the two is the first.
        const bool first_dtype = dtype == sample.dtypes.front();
        if (shapes != ShapeClass::fixed && (sample.fixed_only || !first_dtype)) continue;
        SCOPED_TRACE(fmt::format("{} {} {}", sample.label, abi::name_of(dtype), name_of(shapes)));
        try {
          check(row, sample, dtype, shapes);
        } catch (const Unsupported& e) {
          EXPECT_TRUE(is_left_to_eager(e.what())) << e.what();
        } catch (const Error& e) {
          ADD_FAILURE() << e.what();
        }
      }
    }
  }
}

std::vector<const OpDef*> sampled_rows() {
  std::vector<const OpDef*> rows;
  for (const OpDef* row : ops::op_table().all()) {
    if (row->samples != nullptr && (row->lower != nullptr || row->decompose != nullptr)) {
      rows.push_back(row);
    }
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Table, Rows, testing::ValuesIn(sampled_rows()),
                         [](const auto& row) { return std::string(row.param->name); });

}  // namespace
}  // namespace inkle::driver
