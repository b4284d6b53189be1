// Every sample of every row of the op table as kernels for GPUs that need not be there: all of them
// are written, and NVRTC compiles them for each architecture.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "codegen/cuda/compiler.h"
#include "graph/builder.h"
#include "lower/lower.h"
#include "ops/samples.h"
#include "ops/table.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace inkle::driver {
namespace {

using codegen::cuda::CompileUnit;
using codegen::cuda::CudaCompiler;
using ops::ShapeClass;

// Kernels of many programs, each text once.
struct Corpus {
  std::vector<schedule::ScheduledProgram> programs;  // own the kernels' expressions
  std::map<std::string, CompileUnit> units;          // by text
  std::map<std::string, std::string> declined;       // by row: why
};

schedule::ScheduledProgram scheduled(graph::Graph graph, const abi::DeviceDescription& device) {
  passes::PassContext context;
  schedule::Options options;
  options.device = device;
  options.can_matmul = [](abi::DType a, abi::DType, abi::DType) { return abi::is_float(a); };
  options.can_convolve = [](abi::DType) { return true; };
  options.can_post_op = [](abi::PostOpKind) { return false; };
  return schedule::schedule(
      lower::lower(passes::run_passes(std::move(graph), passes::standard_pipeline(), context)),
      options);
}

void add_sample(Corpus& corpus, const CudaCompiler& compiler, const graph::OpDef& row,
                const graph::Sample& sample, abi::DType dtype, ShapeClass shapes) {
  const auto context = std::make_shared<sym::Context>();
  graph::Graph graph(context, ops::op_table());
  ops::SampleBuilder samples(graph, dtype, shapes);
  std::vector<graph::Argument> arguments = sample.arguments(samples);
  graph::Builder builder(graph);
  for (const graph::ValueId v : builder.nodes(row.name, std::move(arguments))) {
    graph.outputs.push_back({v});
  }
  corpus.programs.push_back(scheduled(std::move(graph), compiler.device()));
  for (const schedule::Step& step : corpus.programs.back().steps) {
    const auto* kernel = std::get_if<schedule::KernelStep>(&step.action);
    if (kernel == nullptr || !std::holds_alternative<schedule::LoopKernel>(kernel->kernel.body)) {
      continue;
    }
    CompileUnit unit{&kernel->kernel, kernel->schedule, "k"};
    try {
      const std::string text = compiler.source(unit);
      unit.name = fmt::format("k{}", corpus.units.size());
      corpus.units.try_emplace(text, std::move(unit));
    } catch (const Unsupported& e) {
      corpus.declined.try_emplace(std::string(row.name), e.what());
    }
  }
}

Corpus corpus_of(const CudaCompiler& compiler, bool all_dtypes) {
  Corpus corpus;
  for (const graph::OpDef* row : ops::op_table().all()) {
    if (row->samples == nullptr || (row->lower == nullptr && row->decompose == nullptr)) continue;
    for (const graph::Sample& sample : row->samples()) {
      for (const abi::DType dtype : sample.dtypes) {
        const bool first = dtype == sample.dtypes.front();
        if (!first && !all_dtypes) continue;
        for (const ShapeClass shapes : {ShapeClass::fixed, ShapeClass::symbolic}) {
          if (shapes == ShapeClass::symbolic && (sample.fixed_only || !first)) continue;
          try {
            add_sample(corpus, compiler, *row, sample, dtype, shapes);
          } catch (const Unsupported& e) {
            corpus.declined.try_emplace(std::string(row->name), e.what());
          }
        }
      }
    }
  }
  return corpus;
}

void compile_all(const std::string& architecture, bool all_dtypes) {
  const CudaCompiler compiler(codegen::cuda::typical_device(architecture));
  const Corpus corpus = corpus_of(compiler, all_dtypes);
  for (const auto& [row, why] : corpus.declined) ADD_FAILURE() << row << ": " << why;
  EXPECT_GT(corpus.units.size(), 200U);
  std::string why_not;
  if (!codegen::cuda::find_nvrtc(why_not)) GTEST_SKIP() << "no NVRTC: " << why_not;
  std::vector<CompileUnit> units;
  for (const auto& [text, unit] : corpus.units) units.push_back(unit);
  const codegen::cuda::Compiled compiled = compiler.compile(units);
  EXPECT_EQ(compiled.kernels.size(), units.size());
  for (const abi::DeviceImage& image : compiled.images) EXPECT_FALSE(image.data->empty());
  fmt::print("{}: {} kernels, text {:.2f} s, NVRTC {:.2f} s\n", architecture, units.size(),
             compiled.emit_seconds, compiled.compile_seconds);
}

TEST(CudaKernels, AllDtypesCompileForHopper) { compile_all("sm_90a", true); }
TEST(CudaKernels, CompileForAmpere) { compile_all("sm_80", false); }
TEST(CudaKernels, CompileForBlackwell) { compile_all("sm_100", false); }

}  // namespace
}  // namespace inkle::driver
