// Every sample of every row of the op table, in all of its dtypes, and in all shape classes: the
// graph interpreter's result against that of the compiled plan.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "driver/differential.h"
#include "driver/kernels_on_host.h"
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

// A graph of one op.
struct Case {
  graph::Graph graph;
  ops::SymbolValues symbols;
  std::vector<ops::RefTensor> inputs;
};

Case make(const OpDef& row, const Sample& sample, abi::DType dtype, ShapeClass shapes) {
  Case made{graph::Graph(std::make_shared<sym::Context>(), ops::op_table()), {}, {}};
  graph::Graph& graph = made.graph;
  ops::SampleBuilder samples(graph, dtype, shapes);
  std::vector<graph::Argument> arguments = sample.arguments(samples);
  graph::Builder builder(graph);
  for (const graph::ValueId v : builder.nodes(row.name, std::move(arguments))) {
    graph.outputs.push_back({v});
  }
  made.symbols = bind_symbols(graph);
  for (std::size_t i = 0; i < samples.ranges().size(); ++i) {
    made.inputs.push_back(random_tensor(graph.type(graph.inputs[i].value), samples.ranges()[i].low,
                                        samples.ranges()[i].high,
                                        static_cast<std::uint32_t>(i + 1)));
  }
  return made;
}

void check(const Case& c) { (void)expect_as_interpreted(c.graph, c.inputs, c.symbols); }

void check_on_gpu(const Case& c) {
  std::vector<ops::RefTensor> after = c.inputs;
  const auto want = ops::interpret(c.graph, after, c.symbols);
  expect_results(want, after, run_on_host(c.graph, c.inputs, c.symbols));
}

// What the compiler declines, so that its caller runs the op in eager.
bool is_left_to_eager(const std::string& why) {
  if (why.starts_with("attention of f64")) return true;
  // oneDNN has these for processors with AVX-512 alone.
  return __builtin_cpu_supports("avx512bw") == 0 &&
         why.find("a transposed convolution or a weight gradient of bf16") != std::string::npos;
}

class Rows : public testing::TestWithParam<const OpDef*> {
 protected:
  struct Counts {
    int run = 0, declined = 0;
  };
  static Counts counts;
  static void TearDownTestSuite() {
    fmt::print("{} cases, {} more were declined\n", counts.run, counts.declined);
  }

  // `declines` tells what may be left to eager, or to a library.
  static void check_all(void (*check)(const Case&), bool (*declines)(const std::string& why)) {
    const OpDef& row = *GetParam();
    for (const Sample& sample : row.samples()) {
      for (const abi::DType dtype : sample.dtypes) {
        for (const ShapeClass shapes : kShapes) {
          // Shape classes and dtypes meet in pairs only where one of the two is the first.
          const bool first_dtype = dtype == sample.dtypes.front();
          if (shapes != ShapeClass::fixed && (sample.fixed_only || !first_dtype)) continue;
          SCOPED_TRACE(fmt::format("{} {} {}", sample.label, abi::name_of(dtype), name_of(shapes)));
          try {
            check(make(row, sample, dtype, shapes));
            ++counts.run;
          } catch (const Unsupported& e) {
            ++counts.declined;
            EXPECT_TRUE(declines(e.what())) << e.what();
          } catch (const Error& e) {
            ADD_FAILURE() << e.what();
          }
        }
      }
    }
  }
};

Rows::Counts Rows::counts;

TEST_P(Rows, RunAsTheInterpreterSays) { check_all(check, is_left_to_eager); }

// Of pools and pads in three dimensions the largest samples have too many elements.
bool is_large(const std::string& why) {
  return why.find("3d") != std::string::npos && why.find("takes too long") != std::string::npos;
}

TEST_P(Rows, KernelsOfAGpuRunAsTheInterpreterSays) {
  check_all(check_on_gpu, [](const std::string& why) {
    return why.find("is no kernel of loops") != std::string::npos || is_large(why);
  });
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
