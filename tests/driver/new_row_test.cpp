// A device that the table does not have: a processor with vectors of 128 bits, without fused
// multiply-adds and without any library, is one row, and compiles and runs the eight models in
// their small variants.
#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <sstream>
#include <string>
#include <vector>

#include "abi/targets.h"
#include "driver/differential.h"
#include "graph/text.h"
#include "ops/table.h"

namespace inkle::driver {
namespace {

// x86-64 with SSE4.2.
constexpr abi::Target kRow = {.row = "x86-64-v2",
                              .kind = abi::DeviceKind::cpu,
                              .processor = "x86-64-v2",
                              .has_fma = false,
                              .vector_bytes = 16,
                              .vector_registers = 16,
                              .loops = {.thread_nanoseconds = 5000,
                                        .elementwise = 1024,
                                        .long_reduction = 1 << 16,
                                        .part_rows = 64,
                                        .part_sums = 4096,
                                        .attention_rows = 64,
                                        .gradient_rows = 64,
                                        .gradient_columns = 64,
                                        .whole_columns = 256},
                              .split = {.least_rows = 16}};

std::string unpacked(const std::string& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) throw std::runtime_error("cannot read " + path);
  std::string text;
  std::array<char, 1 << 16> part{};
  for (int n = 0; (n = gzread(file, part.data(), part.size())) > 0;) text.append(part.data(), n);
  gzclose(file);
  return text;
}

// A recorded graph (src/cli/cases.h): "case NAME", a range for each tensor, the graph.
struct Recorded {
  std::string name;
  std::vector<std::pair<double, double>> ranges;
  std::string graph;
};

std::vector<Recorded> recorded() {
  std::vector<Recorded> all;
  std::istringstream lines(unpacked(INKLE_SOURCE "/tests/corpus/small.cases.gz"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first == "case") {
      words >> all.emplace_back().name;
    } else if (first == "input") {
      double low = 0, high = 0;
      words >> low >> high;
      all.back().ranges.emplace_back(low, high);
    } else {
      all.back().graph += line + "\n";
    }
  }
  return all;
}

class NewRow : public testing::TestWithParam<std::size_t> {};

TEST_P(NewRow, RunsTheModels) {
  const Recorded model = recorded().at(GetParam());
  SCOPED_TRACE(model.name);
  Compiler compiler(make_cpu_target(kRow));
  EXPECT_EQ(compiler.device().vector_bytes, 16);
  graph::Graph graph = graph::parse(model.graph, model.name, ops::op_table());
  const ops::SymbolValues symbols = bind_symbols(graph);
  std::vector<ops::RefTensor> inputs;
  for (const graph::Input& input : graph.inputs) {
    if (input.value.is_none()) continue;
    const auto [low, high] = model.ranges.at(inputs.size());
    inputs.push_back(random_tensor(graph.type(input.value), low, high,
                                   static_cast<std::uint32_t>(inputs.size() + 1)));
  }
  const RunResult run = expect_as_interpreted(graph, std::move(inputs), symbols, compiler);
  EXPECT_EQ(run.report.library_calls, 0U);
}

std::vector<std::size_t> numbers() {
  // In f32 all, in bf16 one with attention and one with convolutions.
  std::vector<std::size_t> chosen;
  const std::vector<Recorded> all = recorded();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string& name = all[i].name;
    const bool is_f32 = name.ends_with("f32");
    if (is_f32 || name == "small/gpt2/bf16" || name == "small/convnext_tiny/bf16") {
      chosen.push_back(i);
    }
  }
  return chosen;
}

std::string name_of(const testing::TestParamInfo<std::size_t>& info) {
  std::string name = recorded().at(info.param).name;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Small, NewRow, testing::ValuesIn(numbers()), name_of);

}  // namespace
}  // namespace inkle::driver
