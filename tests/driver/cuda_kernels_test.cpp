// Every sample of every row of the op table as kernels for GPUs that need not be there: all of them
// are written, and NVRTC compiles them for each architecture.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "abi/targets.h"
#include "base/error.h"
#include "codegen/cuda/compiler.h"
#include "driver/differential.h"
#include "driver/machine_code.h"
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
using nlohmann::json;
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
  options.target = abi::gpu_target_of(device);
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

Corpus corpus_of(const CudaCompiler& compiler, bool all_dtypes,
                 std::initializer_list<ShapeClass> classes) {
  Corpus corpus;
  for (const graph::OpDef* row : ops::op_table().all()) {
    if (row->samples == nullptr || (row->lower == nullptr && row->decompose == nullptr)) continue;
    for (const graph::Sample& sample : row->samples()) {
      for (const abi::DType dtype : sample.dtypes) {
        const bool first = dtype == sample.dtypes.front();
        if (!first && !all_dtypes) continue;
        for (const ShapeClass shapes : classes) {
          if (shapes != ShapeClass::fixed && (sample.fixed_only || !first)) continue;
          try {
            add_sample(corpus, compiler, *row, sample, dtype, shapes);
          } catch (const Unsupported& e) {
            corpus.declined.try_emplace(std::string(row->name), e.what());
          } catch (const UserError&) {
            // An op that has no result for sizes of 0 or 1.
            if (shapes == ShapeClass::fixed || shapes == ShapeClass::symbolic) throw;
          }
        }
      }
    }
  }
  return corpus;
}

// Loops of a known count that NVVM may leave in the middle of the copies of their bodies: of a
// count that the copies do not divide, or an odd one where it chooses how many there are.
std::vector<std::string> loops_left_within_copies(const std::string& text) {
  static const std::regex loop(
      R"((#pragma unroll(?: (\d+))?\n\s*)?for \((?:int|i64) (\w+) = (-?\d+); \3 < (-?\d+); (?:\+\+\3|\3 \+= (\d+))\))");
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), loop), end; at != end; ++at) {
    const std::smatch& match = *at;
    const auto number = [&](std::size_t group, long absent) {
      return match[group].matched ? std::stol(match[group]) : absent;
    };
    const long step = number(6, 1);
    const long count = (number(5, 0) - number(4, 0) + step - 1) / step;
    const bool is_copied_whole = match[1].matched && (!match[2].matched || number(2, 0) >= count);
    const long copies = number(2, 2);
    if (count > 1 && !is_copied_whole && count % copies != 0) found.push_back(match.str());
  }
  return found;
}

void compile_all(const std::string& architecture, bool all_dtypes,
                 std::initializer_list<ShapeClass> classes = {ShapeClass::fixed,
                                                              ShapeClass::symbolic}) {
  const CudaCompiler compiler(abi::typical_device(architecture));
  const Corpus corpus = corpus_of(compiler, all_dtypes, classes);
  for (const auto& [row, why] : corpus.declined) ADD_FAILURE() << row << ": " << why;
  EXPECT_GT(corpus.units.size(), 200U);
  for (const auto& [text, unit] : corpus.units) {
    EXPECT_THAT(loops_left_within_copies(text), testing::IsEmpty()) << text;
  }
  std::string why_not;
  if (!codegen::cuda::find_nvrtc(why_not)) GTEST_SKIP() << "no NVRTC: " << why_not;
  std::vector<CompileUnit> units;
  for (const auto& [text, unit] : corpus.units) units.push_back(unit);
  const codegen::cuda::Compiled compiled = compiler.compile(units);
  EXPECT_EQ(compiled.kernels.size(), units.size());
  for (const abi::DeviceImage& image : compiled.images) {
    EXPECT_FALSE(image.data->empty());
    if (architecture != "sm_90a") continue;
    EXPECT_THAT(kernels_ahead_of_wait(*image.data), testing::IsEmpty());
  }
  fmt::print("{}: {} kernels, text {:.2f} s, NVRTC {:.2f} s\n", architecture, units.size(),
             compiled.emit_seconds, compiled.compile_seconds);
}

// --- Cases for a machine with a GPU --------------------------------------------------------------

// More than the kernels of any sample need.
constexpr std::int64_t kWorkspaceBytes = 1 << 20;
constexpr std::string_view kShapeNames[] = {"fixed", "symbolic", "ones", "empty"};

// Writes what bench/replay.py runs on a GPU: machine code, launches, inputs and what the
// interpreter says of them.
class Recorder {
 public:
  Recorder(const CudaCompiler& compiler, std::filesystem::path folder)
      : compiler_(compiler), folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
    data_.open(folder_ / "data.bin", std::ios::binary);
  }

  void add(const graph::OpDef& row, const graph::Sample& sample, abi::DType dtype,
           ShapeClass shapes) {
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
    std::vector<ops::RefTensor> after = inputs;
    const auto expected = ops::interpret(graph, after, symbols);
    programs_.push_back(
        std::make_unique<schedule::ScheduledProgram>(scheduled(graph, compiler_.device())));
    const std::string name = fmt::format("{} {} {} {}", row.name, sample.label, abi::name_of(dtype),
                                         kShapeNames[static_cast<std::size_t>(shapes)]);
    describe(name, *programs_.back(), inputs, expected, symbols);
  }

  void finish() {
    const codegen::cuda::Compiled compiled = compiler_.compile(units_);
    for (json& c : cases_) {
      for (json& launch : c["launches"]) {
        const abi::DeviceKernel& kernel =
            compiled.kernels[launch["unit"].get<std::size_t>()].kernel;
        launch["entry"] = kernel.entry;
        launch["image"] = kernel.image;
        launch["threads"] = kernel.block_threads;
        launch["workspace"] = kernel.has_workspace ? kWorkspaceBytes : 0;
      }
    }
    for (std::size_t i = 0; i < compiled.images.size(); ++i) {
      const auto& code = *compiled.images[i].data;
      std::ofstream(folder_ / fmt::format("image{}.cubin", i), std::ios::binary)
          .write(reinterpret_cast<const char*>(code.data()),
                 static_cast<std::streamsize>(code.size()));
    }
    std::ofstream(folder_ / "cases.json") << json(cases_).dump() << "\n";
    fmt::print("{} cases, {} kernels\n", cases_.size(), units_.size());
  }

 private:
  json put(std::span<const std::byte> bytes) {
    const json place = {at_, bytes.size()};
    data_.write(reinterpret_cast<const char*>(bytes.data()),
                static_cast<std::streamsize>(bytes.size()));
    at_ += bytes.size();
    return place;
  }

  void describe(const std::string& name, const schedule::ScheduledProgram& program,
                const std::vector<ops::RefTensor>& inputs,
                const std::vector<ops::InterpretedOutput>& expected,
                const ops::SymbolValues& symbols) {
    const auto value = [&](sym::Expr e) {
      return e.is_null() ? std::int64_t{0} : sym::evaluate(e, [&](sym::Expr s) {
        for (const auto& [symbol, number] : symbols) {
          if (symbol == s) return number;
        }
        user_error("no value of {}", s.name());
      });
    };
    const auto values = [&](const std::vector<sym::Expr>& list) {
      std::vector<std::int64_t> result;
      for (const sym::Expr e : list) result.push_back(value(e));
      return result;
    };
    json c = {{"name", name}, {"launches", json::array()}, {"outputs", json::array()}};
    std::size_t next_input = 0;
    for (const loop::Buffer& buffer : program.program.buffers) {
      json b = {{"dtype", abi::name_of(buffer.dtype)},
                {"sizes", values(buffer.sizes)},
                {"strides", values(*buffer.strides)}};
      if (buffer.role == loop::BufferRole::input) {
        b["data"] = put(ops::to_bytes(inputs.at(next_input++)));
      } else if (buffer.role == loop::BufferRole::constant) {
        b["data"] = put(*program.program.constants[buffer.index].bytes);
      }
      if (buffer.writes_into) b["alias"] = *buffer.writes_into;
      c["buffers"].push_back(std::move(b));
    }
    for (const schedule::Step& step : program.steps) {
      const auto* kernel = std::get_if<schedule::KernelStep>(&step.action);
      if (kernel == nullptr || !std::holds_alternative<schedule::LoopKernel>(kernel->kernel.body)) {
        return;  // a library's part
      }
      CompileUnit unit{&kernel->kernel, kernel->schedule, "k"};
      const auto [at, is_new] = known_.try_emplace(compiler_.source(unit), units_.size());
      if (is_new) {
        unit.name = fmt::format("k{}", units_.size());
        units_.push_back(std::move(unit));
      }
      json launch = {{"unit", at->second},
                     {"buffers", kernel->buffers},
                     {"sizes", json::array()},
                     {"blocks", json::array()}};  // of each instance
      for (std::uint32_t i = 0; i < kernel->kernel.instances; ++i) {
        launch["blocks"].push_back(
            value(schedule::instance_extent(*kernel, i, *program.program.context)));
        for (const std::int64_t size :
             values(kernel->table.empty() ? kernel->kernel.sizes : kernel->table[i])) {
          launch["sizes"].push_back(size);
        }
      }
      c["launches"].push_back(std::move(launch));
    }
    for (std::size_t o = 0; o < expected.size(); ++o) {
      const loop::ProgramOutput& output = program.program.outputs[o];
      using Kind = loop::ProgramOutput::Kind;
      if (!expected[o].tensor || output.kind == Kind::integer || output.kind == Kind::none) {
        continue;
      }
      c["outputs"].push_back({{"buffer", output.buffer},
                              {"sizes", values(output.sizes)},
                              {"strides", values(output.strides)},
                              {"offset", value(output.offset)},
                              {"data", put(ops::to_bytes(*expected[o].tensor))}});
    }
    cases_.push_back(std::move(c));
  }

  const CudaCompiler& compiler_;
  std::filesystem::path folder_;
  std::ofstream data_;
  std::size_t at_ = 0;
  std::vector<std::unique_ptr<schedule::ScheduledProgram>> programs_;
  std::map<std::string, std::size_t> known_;
  std::vector<CompileUnit> units_;
  std::vector<json> cases_;
};

TEST(CudaKernels, Record) {
  const char* folder = std::getenv("INKLE_RECORD_DIR");
  if (folder == nullptr) GTEST_SKIP() << "INKLE_RECORD_DIR names no folder to record in";
  const char* architecture = std::getenv("INKLE_RECORD_ARCHITECTURE");
  const CudaCompiler compiler(
      abi::typical_device(architecture == nullptr ? "sm_90a" : architecture));
  Recorder recorder(compiler, folder);
  for (const graph::OpDef* row : ops::op_table().all()) {
    if (row->samples == nullptr || (row->lower == nullptr && row->decompose == nullptr)) continue;
    for (const graph::Sample& sample : row->samples()) {
      for (const abi::DType dtype : sample.dtypes) {
        for (const ShapeClass shapes :
             {ShapeClass::fixed, ShapeClass::symbolic, ShapeClass::ones, ShapeClass::empty}) {
          const bool first = dtype == sample.dtypes.front();
          if (shapes != ShapeClass::fixed && (sample.fixed_only || !first)) continue;
          try {
            recorder.add(*row, sample, dtype, shapes);
          } catch (const Unsupported&) {
            // Declined: AllDtypesCompileForHopper says so.
          } catch (const UserError&) {
            // An op that has no result for sizes of 0 or 1.
          }
        }
      }
    }
  }
  recorder.finish();
}

TEST(CudaKernels, AllDtypesCompileForHopper) { compile_all("sm_90a", true); }
TEST(CudaKernels, SizesOfZeroAndOneCompile) {
  compile_all("sm_90a", false, {ShapeClass::empty, ShapeClass::ones});
}
TEST(CudaKernels, CompileForAmpere) { compile_all("sm_80", false); }
TEST(CudaKernels, CompileForBlackwell) { compile_all("sm_100", false); }

}  // namespace
}  // namespace inkle::driver
