// Random programs through every stage against the interpreter. The fast suite runs 300 of them;
// INKLE_FUZZ_COUNT and INKLE_FUZZ_SEED ask for others. A failure prints a reduced program;
// INKLE_FUZZ_TRACE prints every program before it runs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "driver/differential.h"
#include "driver/random_program.h"
#include "graph/text.h"

namespace inkle::driver {
namespace {

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

std::string difference(const RefTensor& want, const RefTensor& got,
                       const std::vector<const RefTensor*>& noisy, Sharpness* sharpness) {
  if (want.dtype != got.dtype || want.sizes != got.sizes) return "another type";
  double scale = 0;
  for (std::size_t p = 0; p < want.count(); ++p) {
    if (std::isfinite(want.real(p))) scale = std::max(scale, std::abs(want.real(p)));
  }
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
  for (std::size_t p = 0; p < want.count(); ++p) {
    const double a = want.real(p), b = got.real(p);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    bool fickle = false;
    for (const RefTensor* n : noisy)
      fickle = fickle || std::isfinite(n->real(p)) != std::isfinite(a);
    if (fickle) continue;
    const double floor =
        want.is_real() ? relative(want.dtype) * (std::abs(a) + 0.5 * std::max(scale, 0.5)) : 0;
    const double allowed = floor + std::max(kBeyondNoise * moves[p], kBeyondTypical * *typical);
    if (!(std::abs(a - b) <= allowed)) {
      return fmt::format("element {}: {} is {}, {} allowed", p, a, b, allowed);
    }
    if (sharpness == nullptr || !want.is_real()) continue;
    ++sharpness->compared;
    sharpness->sharp += allowed <= 1e-3 * std::max(scale, 1e-3) ? 1 : 0;
  }
  return "";
}

// What is wrong with the compiled program, "" if nothing; what the compiler declines is right.
std::string failure(const Program& program, bool* declined = nullptr,
                    Sharpness* sharpness = nullptr) {
  std::vector<RefTensor> want;
  std::vector<std::vector<RefTensor>> noisy;
  try {
    want = evaluate(program);
    for (std::uint32_t n = 1; n <= kNoiseRuns; ++n) noisy.push_back(evaluate(program, n));
  } catch (const Error&) {
    return "";  // the noise has moved an index out of range
  }
  std::vector<std::int64_t> integers;
  for (const auto& input : program.graph.inputs) {
    for (const auto& [symbol, value] : program.symbols) {
      if (symbol == input.symbol) integers.push_back(value);
    }
  }
  std::vector<RefTensor> got;
  try {
    RunResult run = compile_and_run(program.graph, program.inputs, integers);
    for (auto& output : run.outputs) got.push_back(std::move(*output.tensor));
    for (RefTensor& input : run.inputs) got.push_back(std::move(input));
  } catch (const Unsupported&) {
    if (declined != nullptr) *declined = true;
    return "";
  } catch (const Error& e) {
    return e.what();
  }
  if (got.size() != want.size()) return "another number of results";
  for (std::size_t i = 0; i < want.size(); ++i) {
    std::vector<const RefTensor*> moved;
    for (const auto& n : noisy) moved.push_back(&n[i]);
    const std::string text = difference(want[i], got[i], moved, sharpness);
    if (!text.empty()) return fmt::format("result {}: {}", i, text);
  }
  return "";
}

std::uint32_t from_environment(const char* name, std::uint32_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

TEST(RandomPrograms, RunAsTheInterpreterSays) {
  const std::uint32_t first = from_environment("INKLE_FUZZ_SEED", 0);
  const std::uint32_t count = from_environment("INKLE_FUZZ_COUNT", 300);
  const bool is_traced = std::getenv("INKLE_FUZZ_TRACE") != nullptr;
  std::uint32_t declined = 0;
  Sharpness sharpness;
  for (std::uint32_t seed = first; seed < first + count; ++seed) {
    bool is_declined = false;
    std::optional<Program> grown;
    try {
      grown = random_program(seed);
    } catch (const Unsupported&) {
      ++declined;  // as_strided of what turned out to have gaps
      continue;
    }
    const Program& program = *grown;
    if (is_traced) fmt::print(stderr, "{}\n", graph::to_string(program.graph));
    const std::string wrong = failure(program, &is_declined, &sharpness);
    declined += is_declined ? 1 : 0;
    if (wrong.empty()) continue;
    const Program small = reduce(program, [](const Program& p) { return !failure(p).empty(); });
    ADD_FAILURE() << "seed " << seed << ": " << wrong << "\nreduced: " << failure(small) << "\n"
                  << graph::to_string(small.graph);
  }
  RecordProperty("declined", static_cast<int>(declined));
  fmt::print(
      "{} programs declined; {} of {} floats that differ at all were compared to 1e-3 of scale\n",
      declined, sharpness.sharp, sharpness.compared);
  EXPECT_LE(declined, count / 4) << "too many programs are declined to test much";
}

}  // namespace
}  // namespace inkle::driver
