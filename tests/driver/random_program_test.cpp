// Random programs through every stage against the interpreter. The fast suite runs 300 of them;
// INKLE_FUZZ_COUNT and INKLE_FUZZ_SEED ask for others. A failure prints a reduced program;
// INKLE_FUZZ_TRACE prints every program before it runs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/error.h"
#include "driver/differential.h"
#include "driver/kernels_on_host.h"
#include "driver/random_program.h"
#include "graph/text.h"
#include "ops/table.h"

namespace inkle::driver {
namespace {

using nlohmann::json;
using ops::RefTensor;

// What one rounding, and some arithmetic inside an op, may do.
double relative(abi::DType dtype) {
  switch (dtype) {
    case abi::DType::f64:
      return 1e-13;
    case abi::DType::bf16:
      return 0x1p-7;
    case abi::DType::f16:
      return 0x1p-10;
    default:
      return 2e-6;
  }
}

// Noise runs that tell how far rounding moves results, and how much further than the widest of them
// a right result may lie: than those of its own element, or than most elements of its tensor.
constexpr std::uint32_t kNoiseRuns = 6;
constexpr double kBeyondNoise = 16;
constexpr double kBeyondTypical = 64;

// How many elements were compared, and how many of them to a thousandth of their tensor's scale or
// better: what is not hides faults.
struct Sharpness {
  std::size_t compared = 0, sharp = 0;
};

double scale_of(const RefTensor& want) {
  double scale = 0;
  for (std::size_t p = 0; p < want.count(); ++p) {
    if (std::isfinite(want.real(p))) scale = std::max(scale, std::abs(want.real(p)));
  }
  return scale;
}

double largest(abi::DType dtype) {
  switch (dtype) {
    case abi::DType::f16:
      return 65504;
    case abi::DType::bf16:
    case abi::DType::f32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

// How far a right result may lie from each element; infinity where the noise makes or takes an
// infinity.
std::vector<double> allowances(const RefTensor& want, const std::vector<const RefTensor*>& noisy) {
  const double scale = scale_of(want);
  std::vector<double> moves(want.count(), 0);
  for (const RefTensor* n : noisy) {
    for (std::size_t p = 0; p < want.count(); ++p) {
      const double move = std::abs(n->real(p) - want.real(p));
      if (std::isfinite(move)) moves[p] = std::max(moves[p], move);
    }
  }
  // Three of four elements move no further: few runs of noise may miss an element.
  std::vector<double> sorted = moves;
  const auto typical = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() * 3 / 4);
  if (!sorted.empty()) std::ranges::nth_element(sorted, typical);
  std::vector<double> allowed(want.count());
  for (std::size_t p = 0; p < want.count(); ++p) {
    const double a = want.real(p);
    const double floor =
        want.is_real() ? relative(want.dtype) * (std::abs(a) + 0.5 * std::max(scale, 0.5)) : 0;
    allowed[p] = floor + std::max(kBeyondNoise * moves[p], kBeyondTypical * *typical);
    for (const RefTensor* n : noisy) {
      if (std::isfinite(n->real(p)) != std::isfinite(a)) allowed[p] = HUGE_VAL;
    }
  }
  return allowed;
}

std::string difference(const RefTensor& want, const RefTensor& got,
                       const std::vector<const RefTensor*>& noisy, Sharpness* sharpness) {
  if (want.dtype != got.dtype || want.sizes != got.sizes) return "another type";
  const double scale = scale_of(want);
  const std::vector<double> all = allowances(want, noisy);
  for (std::size_t p = 0; p < want.count(); ++p) {
    const double a = want.real(p), b = got.real(p), allowed = all[p];
    if (a == b || (std::isnan(a) && std::isnan(b)) || allowed == HUGE_VAL) continue;
    // An infinity lies as far as the largest number.
    const double finite = std::isinf(b) ? std::copysign(largest(want.dtype), b) : b;
    if (!(std::abs(a - finite) <= allowed)) {
      return fmt::format("element {}: {} is {}, {} allowed", p, a, b, allowed);
    }
    if (sharpness == nullptr || !want.is_real()) continue;
    ++sharpness->compared;
    sharpness->sharp += allowed <= 1e-3 * std::max(scale, 1e-3) ? 1 : 0;
  }
  return "";
}

// Results, then inputs after the call, as the interpreter has them, and under noise.
struct Wanted {
  std::vector<RefTensor> values;
  std::vector<std::vector<RefTensor>> noisy;

  std::vector<const RefTensor*> moved(std::size_t number) const {
    std::vector<const RefTensor*> moved;
    for (const auto& n : noisy) moved.push_back(&n[number]);
    return moved;
  }
};

// Nothing where the noise moves an index out of range.
std::optional<Wanted> interpret(const Program& program) {
  Wanted wanted;
  try {
    wanted.values = evaluate(program);
    for (std::uint32_t n = 1; n <= kNoiseRuns; ++n) wanted.noisy.push_back(evaluate(program, n));
  } catch (const Error&) {
    return std::nullopt;
  }
  return wanted;
}

// What is wrong with a call's results, "" if nothing.
std::string failure(const Wanted& wanted, CallResult call, Sharpness* sharpness) {
  std::vector<RefTensor> got;
  for (auto& output : call.outputs) got.push_back(std::move(*output.tensor));
  for (RefTensor& input : call.inputs) got.push_back(std::move(input));
  const std::vector<RefTensor>& want = wanted.values;
  if (got.size() != want.size()) return "another number of results";
  for (std::size_t i = 0; i < want.size(); ++i) {
    const std::string text = difference(want[i], got[i], wanted.moved(i), sharpness);
    if (!text.empty()) return fmt::format("result {}: {}", i, text);
  }
  return "";
}

// The values of integer inputs, in order.
std::vector<std::int64_t> integers_of(const Program& program) {
  std::vector<std::int64_t> integers;
  for (const auto& input : program.graph.inputs) {
    for (const auto& [symbol, value] : program.symbols) {
      if (symbol == input.symbol) integers.push_back(value);
    }
  }
  return integers;
}

// How many programs were declined; how many were called with other integers, and how many of those
// had a guard against it.
struct Counts {
  std::uint32_t declined = 0, called_again = 0, guarded = 0;
};

// Whether a call is declined with such an error, as ints near the ends of 64 bits make one of its
// values larger.
bool leaves_64_bits(const UserError& e, std::string_view error, const Program& program) {
  constexpr std::int64_t kNear = std::int64_t{1} << 48;
  const auto is_near = [](std::int64_t n) { return n > kNear || n < -kNear; };
  const std::vector<std::int64_t> integers = integers_of(program);
  return std::string_view(e.what()).find(error) != std::string_view::npos &&
         std::ranges::any_of(integers, is_near);
}

// What is wrong with the compiled program, "" if nothing; what the compiler declines is right.
std::string failure(const Program& program, Counts* counts = nullptr,
                    Sharpness* sharpness = nullptr) {
  const std::optional<Wanted> wanted = interpret(program);
  if (!wanted) return "";
  const std::optional<Program> other = at_later_values(program);
  const std::optional<Wanted> wanted_later = other ? interpret(*other) : std::nullopt;
  RunResult run;
  try {
    run =
        compile_and_run(program.graph, program.inputs, integers_of(program), {}, shared_compiler(),
                        wanted_later ? integers_of(*other) : std::vector<std::int64_t>{});
  } catch (const Unsupported&) {
    if (counts != nullptr) ++counts->declined;
    return "";
  } catch (const UserError& e) {
    if (!leaves_64_bits(e, "too large for 64 bits", program)) return e.what();
    if (counts != nullptr) ++counts->declined;
    return "";
  } catch (const Error& e) {
    return e.what();
  }
  if (counts != nullptr && wanted_later) ++(run.later ? counts->called_again : counts->guarded);
  std::string text = failure(*wanted, run, sharpness);
  if (text.empty() && run.later) {
    text = failure(*wanted_later, *std::move(run.later), sharpness);
    for (const auto& [symbol, value] : program.later) {
      if (!text.empty()) text += fmt::format(", {} = {}", sym::to_string(symbol), value);
    }
  }
  return text;
}

std::uint32_t from_environment(const char* name, std::uint32_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

TEST(RandomPrograms, RunAsTheInterpreterSays) {
  const std::uint32_t first = from_environment("INKLE_FUZZ_SEED", 0);
  const std::uint32_t count = from_environment("INKLE_FUZZ_COUNT", 300);
  const bool is_traced = std::getenv("INKLE_FUZZ_TRACE") != nullptr;
  Counts counts;
  Sharpness sharpness;
  for (std::uint32_t seed = first; seed < first + count; ++seed) {
    std::optional<Program> grown;
    try {
      grown = random_program(seed);
    } catch (const InternalError& e) {
      ADD_FAILURE() << "seed " << seed << ": " << e.what();
      continue;
    } catch (const Unsupported&) {
      ++counts.declined;  // as_strided of what turned out to have gaps
      continue;
    }
    const Program& program = *grown;
    if (is_traced) fmt::print(stderr, "{}\n", graph::to_string(program.graph));
    const std::string wrong = failure(program, &counts, &sharpness);
    if (wrong.empty()) continue;
    if (is_traced) fmt::print(stderr, "seed {}: {}\n", seed, wrong);
    const Program small = reduce(program, [](const Program& p) { return !failure(p).empty(); });
    ADD_FAILURE() << "seed " << seed << ": " << wrong << "\nreduced: " << failure(small) << "\n"
                  << graph::to_string(small.graph);
  }
  RecordProperty("declined", static_cast<int>(counts.declined));
  fmt::print(
      "{} programs declined; {} called with other integers, {} guarded; "
      "{} of {} floats that differ at all were compared to 1e-3 of scale\n",
      counts.declined, counts.called_again, counts.guarded, sharpness.sharp, sharpness.compared);
  EXPECT_LE(counts.declined, count / 4) << "too many programs are declined to test much";
}

// What is wrong with the program's kernels for a GPU, "" if nothing, or if a step is no kernel; in
// a call with `values`.
std::string failure_on_gpu(const Program& program, const Program& values, std::size_t* kernels,
                           Sharpness* sharpness) {
  const std::optional<Wanted> wanted = interpret(values);
  if (!wanted) return "";
  try {
    HostedCall call = run_on_host(program.graph, values.inputs, values.symbols);
    if (kernels != nullptr) *kernels += call.kernels;
    return failure(*wanted, std::move(call), sharpness);
  } catch (const Unsupported&) {
    return "";
  } catch (const UserError& e) {
    return leaves_64_bits(e, "overflow in", values) ? "" : e.what();
  } catch (const Error& e) {
    return e.what();
  }
}

std::string failure_on_gpu(const Program& program, std::size_t* kernels = nullptr,
                           Sharpness* sharpness = nullptr) {
  std::string text = failure_on_gpu(program, program, kernels, sharpness);
  const std::optional<Program> later = at_later_values(program);
  if (text.empty() && later) text = failure_on_gpu(program, *later, kernels, sharpness);
  return text;
}

TEST(RandomPrograms, KernelsOfAGpuRunAsTheInterpreterSays) {
  const std::uint32_t first = from_environment("INKLE_FUZZ_SEED", 0);
  const std::uint32_t count = from_environment("INKLE_FUZZ_COUNT", 100);
  std::size_t kernels = 0, programs = 0;
  Sharpness sharpness;
  for (std::uint32_t seed = first; seed < first + count; ++seed) {
    std::optional<Program> program;
    try {
      program = random_program(seed);
    } catch (const Unsupported&) {
      continue;  // as_strided of what turned out to have gaps
    }
    const std::size_t before = kernels;
    const std::string wrong = failure_on_gpu(*program, &kernels, &sharpness);
    programs += kernels == before ? 0 : 1;
    if (wrong.empty()) continue;
    const Program small =
        reduce(*program, [](const Program& p) { return !failure_on_gpu(p).empty(); });
    ADD_FAILURE() << "seed " << seed << ": " << wrong << "\nreduced: " << failure_on_gpu(small)
                  << "\n"
                  << graph::to_string(small.graph);
  }
  fmt::print(
      "{} of {} programs, {} kernels; {} of {} floats that differ at all were compared to 1e-3 of "
      "scale\n",
      programs, count, kernels, sharpness.sharp, sharpness.compared);
  EXPECT_GE(programs, count / 3) << "too few programs are of kernels alone";
}

// The programs with inputs, symbols and what the interpreter says of them, for bench/programs.py,
// which runs them in PyTorch's eager mode.
class Recorder {
 public:
  explicit Recorder(const std::filesystem::path& folder)
      : data_(folder / "data.bin", std::ios::binary), index_(folder / "programs.json") {}

  void add(std::uint32_t seed, const Program& program) {
    const std::optional<Wanted> wanted = interpret(program);
    if (!wanted) return;
    json one = {{"seed", seed}, {"text", graph::to_string(program.graph)}};
    for (const RefTensor& input : program.inputs) one["inputs"].push_back(place(input));
    for (const auto& [symbol, value] : program.symbols) {
      one["symbols"][sym::to_string(symbol)] = value;
    }
    for (std::size_t i = 0; i < wanted->values.size(); ++i) {
      json result = place(wanted->values[i]);
      const std::vector<double> allowed = allowances(wanted->values[i], wanted->moved(i));
      result["allowed"] = write(std::as_bytes(std::span(allowed)));
      one["results"].push_back(std::move(result));
    }
    programs_.push_back(std::move(one));
  }

  void finish() { index_ << programs_.dump() << std::endl; }

 private:
  std::size_t write(std::span<const std::byte> bytes) {
    const std::size_t at = size_;
    data_.write(reinterpret_cast<const char*>(bytes.data()),
                static_cast<std::streamsize>(bytes.size()));
    size_ += bytes.size();
    return at;
  }

  json place(const RefTensor& tensor) {
    return {{"dtype", abi::name_of(tensor.dtype)},
            {"sizes", tensor.sizes},
            {"at", write(ops::to_bytes(tensor))}};
  }

  std::ofstream data_;
  std::ofstream index_;
  std::size_t size_ = 0;
  json programs_ = json::array();
};

// Of a graph without arguments there is no view of one to return. Which seeds have none depends on
// the op table; of those of one node it is more than one in two hundred.
TEST(RandomPrograms, MayHaveNoArguments) {
  const auto has_none = [](std::uint32_t seed) {
    try {
      return random_program(seed, {.nodes = 1}).graph.inputs.empty();
    } catch (const Unsupported&) {
      return false;  // as_strided of what turned out to have gaps
    }
  };
  int found = 0;
  for (std::uint32_t seed = 0; seed < 2000; ++seed) found += has_none(seed) ? 1 : 0;
  EXPECT_GT(found, 10);
}

// An effect goes though its result is returned: its operand is, then.
TEST(RandomPrograms, ReductionLeavesEffectsOut) {
  Program program{graph::parse(R"(graph @kept(%x: f32[3], %y: f32[3]) -> f32[3], f32[3] {
  %0: f32[3] = relu(%y)
  %1: f32[3] = copy_(%x, %0)
  %2: f32[3] = relu(%1)
  return %1 in %x, %2
}
)",
                               "kept.ir", ops::op_table()),
                  {RefTensor(abi::DType::f32, {3}), RefTensor(abi::DType::f32, {3})},
                  {}};
  ASSERT_EQ(evaluate(program).size(), 4u);
  const Program small = reduce(std::move(program), [](const Program& p) {
    (void)evaluate(p);
    return true;
  });
  EXPECT_TRUE(small.graph.nodes.size() <= 1) << graph::to_string(small.graph);
  EXPECT_EQ(small.graph.outputs.size(), 1u);
}

TEST(RandomPrograms, Record) {
  const char* folder = std::getenv("INKLE_RECORD_DIR");
  if (folder == nullptr) GTEST_SKIP() << "INKLE_RECORD_DIR names no folder to record in";
  const std::uint32_t first = from_environment("INKLE_FUZZ_SEED", 0);
  const std::uint32_t count = from_environment("INKLE_FUZZ_COUNT", 300);
  Recorder recorder(folder);
  for (std::uint32_t seed = first; seed < first + count; ++seed) {
    try {
      recorder.add(seed, random_program(seed));
    } catch (const Unsupported&) {
      // as_strided of what turned out to have gaps
    }
  }
  recorder.finish();
}

}  // namespace
}  // namespace inkle::driver
