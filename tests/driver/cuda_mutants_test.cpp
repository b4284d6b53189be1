// Kernels of tests/kernel, right and made wrong in one place (kernel/mutate.h), as machine code for
// a GPU with what the interpreter says of each: bench/mutants.py runs them under compute-sanitizer
// and compares the verdicts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/prelude.h"
#include "codegen/cuda/print_kernel.h"
#include "kernel/interpret_inputs.h"
#include "kernel/mutate.h"
#include "kernel/parse.h"
#include "kernel/verify.h"

namespace inkle::driver {
namespace {

using nlohmann::json;

// Kernels of which the printer has everything, with sizes that give every part of them work.
struct Candidate {
  const char* file;
  const char* kernel;
  std::vector<std::string> sizes;
};
const std::vector<Candidate>& candidates() {
  static const std::vector<Candidate> all = {
      {"hard/softmax_rows.test", "softmax_rows_lowered", {"n=3"}},
      {"hard/welford_cluster.test", "layer_norm_cluster_lowered", {"n=2"}},
      {"hard/sequential_rows.test", "column_products", {"m=66"}},
      {"hard/tile.test", "transpose_padded", {"m=33", "n=66"}},
      {"hard/tile.test", "transpose_swizzled", {"m=64", "n=32"}},
      {"hard/scan_look_back.test", "block_scan_lowered", {"n=300"}},
      {"hard/scatter.test", "index_add", {"m=6", "n=70"}},
  };
  return all;
}

// The "// --- in" section of a golden file that holds the kernel.
std::string text_of(const Candidate& candidate) {
  const std::filesystem::path path =
      std::filesystem::path(INKLE_TEST_DATA) / ".." / "kernel" / candidate.file;
  std::ifstream file(path);
  std::string text;
  bool is_inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("//")) is_inside = false;
    if (line.starts_with("// --- in")) {
      if (text.find(fmt::format("@{}(", candidate.kernel)) != std::string::npos) return text;
      is_inside = true;
      text.clear();
    } else if (is_inside) {
      text += line + "\n";
    }
  }
  return text.find(fmt::format("@{}(", candidate.kernel)) == std::string::npos ? "" : text;
}

class Recorder {
 public:
  Recorder(std::filesystem::path folder, std::string architecture)
      : folder_(std::move(folder)), architecture_(std::move(architecture)) {
    std::filesystem::create_directories(folder_);
    data_.open(folder_ / "data.bin", std::ios::binary);
  }

  void add(const Candidate& candidate) {
    std::string text = text_of(candidate);
    ASSERT_FALSE(text.empty()) << candidate.kernel;
    for (std::size_t at = 0; (at = text.find("132", at)) != std::string::npos;) {
      text.replace(at, 3, "2");  // blocks of a grid that no size gives
    }
    parsed_ = kernel::parse_kernel(text, candidate.file);
    const kernel::Kernel& right = parsed_.kernel;
    inputs_ = kernel::make_inputs(right, kernel::choose_sizes(right, candidate.sizes), 0,
                                  kernel::Digits::many);
    parameters_ = json::array();
    for (kernel::MemoryId m = 0; m < right.parameter_count; ++m) {
      const auto bytes = inputs_.instances[0].arguments[m].data;
      parameters_.push_back({{"place", {at_, bytes.size()}},
                             {"written", right.memories[m].role != kernel::Role::in}});
      data_.write(reinterpret_cast<const char*>(bytes.data()),
                  static_cast<std::streamsize>(bytes.size()));
      at_ += bytes.size();
    }
    code_ = codegen::cuda::prelude();
    const std::size_t first = cases_.size();
    record(right, "none");
    for (const kernel::Mutation& mutation : kernel::mutations(right)) {
      record(kernel::mutate(right, mutation), kernel::to_string(right, mutation));
    }
    const auto image = codegen::cuda::compile_program(code_, fmt::format("{}.cu", candidate.kernel),
                                                      architecture_);
    std::ofstream(folder_ / fmt::format("image{}.cubin", images_), std::ios::binary)
        .write(reinterpret_cast<const char*>(image.data()),
               static_cast<std::streamsize>(image.size()));
    for (std::size_t c = first; c < cases_.size(); ++c) cases_[c]["image"] = images_;
    ++images_;
  }

  void finish() {
    std::ofstream(folder_ / "cases.json") << json(cases_).dump(1) << "\n";
    fmt::print("{} kernels and mutants\n", cases_.size());
  }

 private:
  // Lanes of a warp at one operation.
  static bool is_at_once(const kernel::Finding& finding) {
    constexpr std::int64_t kWarp = 32;
    if (finding.operation != finding.other || finding.agents.size() != 2) return false;
    const kernel::Agent &a = finding.agents[0], &b = finding.agents[1];
    return a.kind == b.kind && a.block == b.block && a.thread / kWarp == b.thread / kWarp;
  }

  // A mutant that is refused, or that does not end, is not for a GPU.
  void record(const kernel::Kernel& kernel, const std::string& mutation) {
    kernel::CheckOptions options;
    options.seeds = 2;
    options.max_steps = 5'000'000;
    kernel::CheckResult result;
    try {
      kernel::verify(kernel);
      result = kernel::check(kernel, inputs_.instances, options);
    } catch (const Error&) {
      return;
    }
    json found = json::array();
    for (const kernel::Finding& finding : result.findings) {
      if (finding.kind == kernel::ReportKind::hang) return;
      const bool has_memory = finding.memory != kernel::kNone;
      found.push_back({{"kind", kernel::name_of(finding.kind)},
                       {"at_once", is_at_once(finding)},
                       {"space", has_memory ? kernel::name_of(kernel.memories[finding.memory].space)
                                            : std::string_view()},
                       {"text", kernel::to_string(kernel, finding)}});
    }
    const std::string entry = fmt::format("m{}", cases_.size());
    code_ += "\n" + codegen::cuda::print_kernel(kernel, entry, mutation, *parsed_.context).text;
    json c = {{"kernel", kernel.name},
              {"mutation", mutation},
              {"entry", entry},
              {"threads", kernel.threads()},
              {"findings", found}};
    std::int64_t blocks = kernel.cluster();
    for (const kernel::Axis& axis : kernel.launch.axes) {
      if (axis.kind == kernel::AxisKind::grid) blocks *= value(kernel, axis.extent);
    }
    c["blocks"] = blocks;
    c["sizes"] = inputs_.instances[0].sizes;
    c["parameters"] = parameters_;
    cases_.push_back(std::move(c));
  }

  [[nodiscard]] std::int64_t value(const kernel::Kernel& kernel, sym::Expr e) const {
    return sym::evaluate(e, [&](sym::Expr symbol) {
      for (std::size_t s = 0; s < kernel.sizes.size(); ++s) {
        if (kernel.sizes[s] == symbol) return inputs_.instances[0].sizes[s];
      }
      user_error("{} is no size", symbol.name());
    });
  }

  std::filesystem::path folder_;
  std::string architecture_;
  std::ofstream data_;
  std::size_t at_ = 0;
  kernel::ParsedKernel parsed_;
  kernel::Inputs inputs_;
  json parameters_;  // of the kernel and all its mutants
  std::string code_;
  std::size_t images_ = 0;
  std::vector<json> cases_;
};

TEST(CudaMutants, Record) {
  const char* folder = std::getenv("INKLE_RECORD_DIR");
  if (folder == nullptr) GTEST_SKIP() << "INKLE_RECORD_DIR names no folder to record in";
  const char* architecture = std::getenv("INKLE_RECORD_ARCHITECTURE");
  Recorder recorder(folder, architecture == nullptr ? "sm_90a" : architecture);
  for (const Candidate& candidate : candidates()) {
    try {
      recorder.add(candidate);
    } catch (const std::exception& error) {
      ADD_FAILURE() << candidate.kernel << ": " << error.what();
    }
  }
  recorder.finish();
}

}  // namespace
}  // namespace inkle::driver
