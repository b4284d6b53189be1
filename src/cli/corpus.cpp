// `inkle corpus`: what the compiler makes of recorded graphs, for a comparison with what another
// build makes of them (docs/corpus.md). Texts, code and results lie in files that are named by
// their contents' hash; cases.jsonl has a line for each case.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "abi/arena.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/threads.h"
#include "cli/cases.h"
#include "cli/commands.h"
#include "cli/corpus.h"
#include "cli/session.h"
#include "codegen/cuda/compiler.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/prelude.h"
#include "graph/text.h"
#include "ops/table.h"
#include "runtime/common/size_program.h"
#include "runtime/cpu/executor.h"

namespace inkle::cli {
namespace {

using nlohmann::json;
using std::filesystem::path;
using Clock = std::chrono::steady_clock;

// Outputs up to so many bytes are kept beside their hash.
constexpr std::size_t kKeptBytes = std::size_t{64} << 10;
// What working memory and outputs hold before a call: results that depend on it show.
constexpr int kPoison = 0xA5;

struct CorpusArguments {
  CompileArguments compile;  // its file: the cases
  std::string output;
  std::string architecture = "sm_90a";
  std::size_t skip = 0;
  bool no_run = false;
  double seconds = 0.1;
};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Files that are named by what is in them.
class Store {
 public:
  explicit Store(path folder) : folder_(std::move(folder)) {
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (error) user_error("{}: {}", folder_.string(), error.message());
  }

  // The hash, 32 hexadecimal digits.
  std::string put(std::string_view contents, std::string_view extension) const {
    std::string hash = to_hex(hash128(contents));
    const path at = folder_ / (hash + std::string(extension));
    if (!std::filesystem::exists(at)) write(at, contents);
    return hash;
  }

  static void write(const path& at, std::string_view contents) {
    std::ofstream file(at, std::ios::binary);
    file.write(contents.data(), static_cast<std::streamsize>(contents.size()));
    file.flush();
    if (!file) user_error("{}: cannot be written", at.string());
  }

 private:
  path folder_;
};

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// A kernel's text with another name for its function, which counts the kernels of a program.
std::string renamed(const std::string& text, const std::string& from, std::string_view to) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t found = std::min(text.find(from, at), text.size());
    result.append(text, at, found - at);
    if (found == text.size()) break;
    const std::size_t end = found + from.size();
    const bool is_whole = (found == 0 || !is_letter(text[found - 1])) &&
                          (end == text.size() || !is_letter(text[end]));
    result += is_whole ? to : std::string_view(from);
    at = end;
  }
  return result;
}

// What the arguments of a case are, and one call with them.
class CaseRun {
 public:
  CaseRun(const Case& c, const graph::Graph& graph, const driver::Compiled& compiled)
      : plan_(compiled.plan),
        executable_(abi::PlanAndCode{compiled.plan, compiled.code}, {.poison = kPoison}) {
    Model model{graph, {}, {}};
    model.weights.resize(graph.inputs.size());
    ArgumentOptions options;
    options.ranges = c.inputs;
    arguments_ = make_arguments(model, options);
    views_ = arguments_.views();
  }

  std::vector<PlainHost::Result> call(bool keep) {
    PlainHost host(keep);
    executable_.run({.tensors = views_, .integers = arguments_.integers, .host = &host});
    return host.take_results();
  }

  // Arguments that the program writes to, as they are now.
  [[nodiscard]] std::vector<TensorData> written() const {
    std::vector<TensorData> result;
    std::size_t next = 0;
    for (const abi::PlanArgument& argument : plan_->arguments) {
      if (argument.is_integer) continue;
      if (argument.is_written) result.push_back(frontend::pt2::rearranged(views_[next]));
      ++next;
    }
    return result;
  }

 private:
  std::shared_ptr<const abi::Plan> plan_;
  runtime::cpu::Executable executable_;
  Arguments arguments_;
  std::vector<abi::TensorView> views_;
};

class Maker {
 public:
  explicit Maker(const CorpusArguments& a)
      : runs_(!a.no_run),
        on_(a.compile),
        text_(path(a.output) / "text"),
        code_(path(a.output) / "code"),
        values_(path(a.output) / "values") {
    on_.options.keep_objects = on_.gpu == nullptr;
    on_.options.only_text = on_.gpu != nullptr;
    on_.options.keep_code = on_.gpu != nullptr;
    on_.options.dump = [this](std::string_view stage, const std::string& text) {
      if (stage == "passes" || stage == "loops") stages_[stage] = to_hex(hash128(text));
    };
  }

  // Never throws what a case does: its line says it.
  json make(const Case& c) {
    json line = {{"case", c.name}};
    try {
      line["status"] = "ok";
      make(c, line);
    } catch (const Unsupported& error) {
      line["status"] = fmt::format("not supported: {}", error.what());
    } catch (const std::exception& error) {
      line["status"] = fmt::format("error: {}", error.what());
    }
    return line;
  }

 private:
  void make(const Case& c, json& line) {
    graph::Graph graph = graph::parse(c.text, c.name, ops::op_table());
    stages_ = json::object();
    c.apply(on_.options);
    const driver::Compiled compiled = on_.compile(graph);
    line.update(stages_);
    line["plan"] = text_.put(abi::to_string(*compiled.plan), ".txt");
    line["steps"] = steps(compiled);
    line["moves"] = moves(compiled);
    if (!runs_ || on_.gpu != nullptr || c.has("no-run")) return;
    try {
      line["outputs"] = outputs(c, graph, compiled);
    } catch (const std::exception& error) {
      line["outputs"] = fmt::format("error: {}", error.what());
    }
  }

  // What fusion is judged by: launches and library calls, bytes that a call moves and the least
  // that it could, the most bytes of working memory at once (where sizes are known).
  static json moves(const driver::Compiled& compiled) {
    const driver::Report& report = compiled.report;
    json result = {{"launches", report.launches},
                   {"calls", report.library_calls},
                   {"bytes", report.bytes_moved},
                   {"least", report.bytes_lower_bound}};
    const runtime::common::SizeProgram sizes(*compiled.plan);
    if (!sizes.is_constant()) return result;
    std::vector<abi::Lifetime> lifetimes;
    for (const abi::BufferDecl& b : compiled.plan->buffers) {
      if (b.kind != abi::BufferDecl::Kind::arena) continue;
      lifetimes.push_back({sizes.constant_slots()[b.bytes], b.first_use, b.last_use});
    }
    result["peak"] = abi::peak_bytes(lifetimes);
    return result;
  }

  json steps(const driver::Compiled& compiled) {
    const abi::Plan& plan = *compiled.plan;
    std::map<std::string, std::size_t> number;  // of the plan's kernels, by name
    for (std::size_t k = 0; k < plan.kernels.size(); ++k) number[plan.kernels[k].name] = k;
    json result = json::array();
    for (const driver::StepReport& step : compiled.report.steps) {
      json one = {{"kind", step.kind}, {"label", step.label}};
      if (!step.kernel.empty()) {
        const std::size_t k = number.at(step.kernel);
        one["kernel"] = text_.put(compiled.report.schedules.at(k), ".txt");
        one["code"] = code(compiled.report.code[k], plan.kernels[k]);
        if (const auto& device = plan.kernels[k].device) {
          one["threads"] = device->block_threads;
          one["shared"] = device->shared_bytes;
        }
      }
      result.push_back(std::move(one));
    }
    return result;
  }

  std::string code(const driver::KernelCodeText& made, const abi::KernelDecl& kernel) const {
    if (kernel.device) return code_.put(renamed(made.ir, kernel.device->entry, "kernel"), ".cu");
    return code_.put(text_of(*made.object), ".o");
  }

  json outputs(const Case& c, const graph::Graph& graph, const driver::Compiled& compiled) {
    CaseRun run(c, graph, compiled);
    json result = json::array();
    for (const PlainHost::Result& output : run.call(true)) {
      if (const auto* tensor = std::get_if<TensorData>(&output)) {
        result.push_back(describe(*tensor));
      } else if (const auto* integer = std::get_if<std::int64_t>(&output)) {
        result.push_back({{"integer", *integer}});
      } else {
        result.push_back(nullptr);
      }
    }
    for (const TensorData& tensor : run.written()) {
      result.push_back(describe(tensor));
      result.back()["is_argument"] = true;
    }
    return result;
  }

  json describe(const TensorData& tensor) const {
    const auto bytes =
        static_cast<std::size_t>(tensor.element_count() * abi::size_of(tensor.dtype));
    const std::string_view contents(reinterpret_cast<const char*>(tensor.data), bytes);
    json result = {{"dtype", abi::name_of(tensor.dtype)}, {"sizes", tensor.sizes}};
    result["hash"] =
        bytes <= kKeptBytes ? values_.put(contents, ".bin") : to_hex(hash128(contents));
    return result;
  }

  bool runs_;
  DeviceCompiler on_;
  Store text_, code_, values_;
  json stages_;
};

// What machine-dependent parts depend on.
json describe(const abi::DeviceDescription& d) {
  return {{"name", d.name},           {"architecture", d.architecture},
          {"threads", d.parallelism}, {"vector_bytes", d.vector_bytes},
          {"l1_bytes", d.l1_bytes},   {"l2_bytes", d.l2_bytes},
          {"l3_bytes", d.l3_bytes}};
}

void make(const CorpusArguments& a) {
  const std::vector<Case> cases = read_cases(a.compile.file);
  Maker maker(a);
  const path folder = a.output;
  const bool is_cuda = a.compile.device != "cpu";
  const DeviceCompiler on(a.compile);
  Store::write(folder / "target.json", describe(on.compiler->device()).dump(1) + "\n");
  if (is_cuda) Store::write(folder / "prelude.cu", codegen::cuda::prelude());
  std::ofstream lines(folder / "cases.jsonl",
                      a.skip == 0 ? std::ios::binary : std::ios::binary | std::ios::app);
  for (std::size_t i = a.skip; i < cases.size(); ++i) {
    lines << maker.make(cases[i]).dump() << "\n" << std::flush;
    if (!lines) user_error("{}: cannot be written", (folder / "cases.jsonl").string());
  }
}

void print_samples() {
  for (const Case& c : sample_cases()) {
    const std::string text = to_string(c);
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
}

// NAME.cu of the folder to NAME.cubin; NAME.error says why there is none.
void assemble(const CorpusArguments& a) {
  std::vector<path> files;
  for (const auto& entry : std::filesystem::directory_iterator(a.output)) {
    if (entry.path().extension() == ".cu") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  parallel_for(0, static_cast<std::int64_t>(files.size()), 1, [&](auto first, auto last) {
    for (std::int64_t f = first; f < last; ++f) {
      path file = files[static_cast<std::size_t>(f)];
      std::ifstream stream(file, std::ios::binary);
      const std::string text((std::istreambuf_iterator<char>(stream)), {});
      try {
        const auto code = codegen::cuda::compile_program(codegen::cuda::prelude() + text,
                                                         file.filename().string(), a.architecture);
        Store::write(file.replace_extension(".cubin"), text_of(code));
      } catch (const Error& error) {
        Store::write(file.replace_extension(".error"), error.what());
      }
    }
  });
}

// Microseconds that the process has computed, with all of its threads.
double processor_time() {
  std::timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// How often a case is called between two readings of the clocks: so often that neither the
// microsecond that they take counts, nor the steps of the processor's clock, of eight microseconds
// on some virtual machines.
int calls_a_reading(CaseRun& run) {
  constexpr double kLeast = 1000;  // microseconds
  (void)run.call(false);
  int calls = 1;
  while (calls < 1 << 16) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) (void)run.call(false);
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    if (took.count() >= kLeast) break;
    calls *= 2;
  }
  return calls;
}

// The median time of a call, and the least processor time of one, microseconds.
json time_case(const DeviceCompiler& on, const Case& c, double seconds) {
  const graph::Graph graph = graph::parse(c.text, c.name, ops::op_table());
  driver::CompileOptions options = on.options;
  c.apply(options);
  CaseRun run(c, graph, on.compiler->compile(graph, options));
  const int calls = calls_a_reading(run);
  std::vector<double> times;
  double least = std::numeric_limits<double>::infinity();
  const auto begin = Clock::now();
  const std::chrono::duration<double> limit(seconds);
  while (times.size() < 3 || Clock::now() - begin < limit) {
    const auto start = Clock::now();
    const double computed = processor_time();
    for (int i = 0; i < calls; ++i) (void)run.call(false);
    least = std::min(least, (processor_time() - computed) / calls);
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    times.push_back(took.count() / calls);
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return {{"case", c.name}, {"microseconds", *middle}, {"least", least}};
}

// A line for each case: its times, or why it has none.
void time_cases(const CorpusArguments& a) {
  const DeviceCompiler on(a.compile);
  for (const Case& c : read_cases(a.compile.file)) {
    json line;
    try {
      line = time_case(on, c, a.seconds);
    } catch (const std::exception& error) {
      line = {{"case", c.name}, {"error", error.what()}};
    }
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }
}

CLI::App* add_action(CLI::App& corpus, const char* name, const char* doc,
                     const std::shared_ptr<CorpusArguments>& a,
                     void (*action)(const CorpusArguments&)) {
  CLI::App* command = corpus.add_subcommand(name, doc);
  command->callback([a, action] { action(*a); });
  return command;
}

void add_cases_options(CLI::App& command, CompileArguments& a) {
  command.add_option("cases", a.file, "file of recorded graphs")->required();
  command.add_option("--threads", a.threads, "number of threads")->check(at_least(1));
  add_device_option(command, a);
}

}  // namespace

void add_corpus(CLI::App& app) {
  auto a = std::make_shared<CorpusArguments>();
  CLI::App* corpus =
      app.add_subcommand("corpus", "Compile and run recorded graphs (used by scripts/corpus).");
  corpus->require_subcommand(1);
  CLI::App* made =
      add_action(*corpus, "make", "Write texts, code and results of all cases.", a, make);
  add_cases_options(*made, a->compile);
  made->add_option("-o,--output", a->output, "folder to write to")->required();
  made->add_option("--skip", a->skip, "skip the first N cases and append to the output");
  made->add_flag("--no-run", a->no_run, "no results");
  CLI::App* timed = add_action(*corpus, "time", "Time calls of all cases.", a, time_cases);
  add_cases_options(*timed, a->compile);
  timed->add_option("--seconds", a->seconds, "for each case")->check(at_least(0));
  CLI::App* interpreted = corpus->add_subcommand(
      "interpret", "Run all kernels, with fewer blocks, under the interpreter of the kernel IR.");
  interpreted->callback([a] { interpret_kernels(a->compile); });
  add_cases_options(*interpreted, a->compile);
  corpus->add_subcommand("samples", "Print the samples of the op table as cases.")
      ->callback(print_samples);
  CLI::App* cubin = add_action(*corpus, "assemble", "Compile each .cu of a folder.", a, assemble);
  cubin->add_option("folder", a->output)->required();
  cubin->add_option("--arch", a->architecture, "sm_80, sm_90a or sm_100")->capture_default_str();
}

}  // namespace inkle::cli
