// Errors of the f32 functions in units in the last place (ULP), against the bounds that the table
// of docs/codegen_cpu.md states. By default a dense sample of the bit patterns; INKLE_LONG_TESTS=n
// takes every n-th; 1 takes all, and finds bounds that are larger than they need to be, too.
#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "codegen/cpu/kernel_fixture.h"
#include "loop/scalar.h"

namespace inkle::codegen::cpu {
namespace {

constexpr std::int64_t kBatch = 1 << 16;

abi::KernelFunction compile_function(CpuCompiler& compiler, Opcode op, bool binary,
                                     std::shared_ptr<void>& code, int lanes = 0) {
  KernelBuilder b;
  const auto x = b.param(DType::f32);
  const auto y = b.param(DType::f32);
  const auto out = b.param(DType::f32, schedule::ParamRole::out);
  b.pointwise(
      {b.constant(kBatch)},
      [&](BodyBuilder& body, const std::vector<Expr>& j) {
        const Val a = body.load(x, DType::f32, {j[0]});
        body.yield(binary ? body.binary(op, a, body.load(y, DType::f32, {j[0]}))
                          : body.unary(op, a));
      },
      [&](const std::vector<Expr>& j) {
        return std::vector<schedule::StageStore>{{out, j[0]}};
      });
  b.finish();
  if (lanes == 0) lanes = compiler.device().vector_bytes / 4;
  const CompileUnit unit{&b.kernel, inner_lanes(lanes)};
  auto compiled = compiler.compile({&unit, 1});
  code = compiled[0].code;
  return compiled[0].function;
}

// Distance of `got` from the true value in units of the last place of an f32 near it.
double ulp_error(float got, long double expected) {
  const auto rounded = static_cast<float>(expected);
  if (std::isnan(expected)) return std::isnan(got) ? 0 : 1e9;
  if (std::isinf(rounded) || std::isinf(got)) {
    if (got == rounded) return 0;
    // Rounding at the edge of the range.
    const long double edge = std::numeric_limits<float>::max();
    return std::abs(std::isinf(got) ? std::copysign(edge, got) - rounded
                                    : std::copysign(edge, rounded) - got) == 0
               ? 1
               : 1e9;
  }
  if (expected == 0) return got == 0 && std::signbit(got) == std::signbit(rounded) ? 0 : 1e9;
  int exponent = 0;
  std::frexp(expected, &exponent);
  const long double unit = std::ldexp(1.0L, std::max(exponent - 24, -149));
  return static_cast<double>(std::abs(static_cast<long double>(got) - expected) / unit);
}

// The C library's function of T.
template <class T>
T reference(Opcode op, T x, T y) {
  switch (op) {
    case Opcode::sqrt:
      return std::sqrt(x);
    case Opcode::rsqrt:
      return 1 / std::sqrt(x);
    case Opcode::exp:
      return std::exp(x);
    case Opcode::exp2:
      return std::exp2(x);
    case Opcode::expm1:
      return std::expm1(x);
    case Opcode::log:
      return std::log(x);
    case Opcode::log2:
      return std::log2(x);
    case Opcode::log10:
      return std::log10(x);
    case Opcode::log1p:
      return std::log1p(x);
    case Opcode::sin:
      return std::sin(x);
    case Opcode::cos:
      return std::cos(x);
    case Opcode::tan:
      return std::tan(x);
    case Opcode::asin:
      return std::asin(x);
    case Opcode::acos:
      return std::acos(x);
    case Opcode::atan:
      return std::atan(x);
    case Opcode::sinh:
      return std::sinh(x);
    case Opcode::cosh:
      return std::cosh(x);
    case Opcode::tanh:
      return std::tanh(x);
    case Opcode::asinh:
      return std::asinh(x);
    case Opcode::acosh:
      return std::acosh(x);
    case Opcode::atanh:
      return std::atanh(x);
    case Opcode::erf:
      return std::erf(x);
    case Opcode::erfc:
      return std::erfc(x);
    case Opcode::pow:
      return std::pow(x, y);
    case Opcode::atan2:
      return std::atan2(x, y);
    case Opcode::hypot:
      return std::hypot(x, y);
    default:
      break;
  }
  const loop::Scalar operand{.real = static_cast<double>(x)};
  return static_cast<T>(loop::evaluate(op, DType::f64, {&operand, 1}).real);
}

// Of all bit patterns every so-many-th; 0 by default.
std::uint64_t long_stride() {
  const char* text = std::getenv("INKLE_LONG_TESTS");
  return text == nullptr ? 0 : std::max(1ULL, std::strtoull(text, nullptr, 10));
}
bool is_long() { return long_stride() != 0; }

struct Worst {
  double error = 0;
  float x = 0;
  float y = 0;
  float got = 0;
};

// Where a result is certainly no worse than `most`, by an f64 reference within 2^-28 ULP.
bool is_within(double most, float got, double expected) {
  if (std::isnan(expected)) return std::isnan(got);
  if (expected == 0) return got == 0 && std::signbit(got) == std::signbit(expected);
  if (std::abs(expected) >= 0x1p128) return got == static_cast<float>(expected);
  constexpr double kSlack = 0x1p-20;
  // An ulp is 2^-23 of the power of two below.
  constexpr std::uint64_t kExponent = 0x7ff0000000000000;
  const double power = std::bit_cast<double>(std::bit_cast<std::uint64_t>(expected) & kExponent);
  const double unit = std::max(power, 0x1p-126) * 0x1p-23;
  return std::abs(static_cast<double>(got) - expected) <= (most - kSlack) * unit;
}

void note(Worst& worst, Opcode op, float x, float y, float got, double expected) {
  if (is_within(worst.error, got, expected)) return;
  const double error = ulp_error(got, reference<long double>(op, x, y));
  if (error > worst.error) worst = {error, x, y, got};
}

struct Compiled {
  CpuCompiler* compiler;
  int lanes;  // 0: a whole vector
  std::shared_ptr<void> code;
  abi::KernelFunction function;
};
// For each width of vectors, and as code of scalars.
std::vector<Compiled> compile_all(Opcode op, bool binary) {
  std::vector<Compiled> result;
  for (CpuCompiler* compiler : compilers()) {
    for (const int lanes : {0, 1}) {
      Compiled& c = result.emplace_back(Compiled{.compiler = compiler, .lanes = lanes});
      c.function = compile_function(*compiler, op, binary, c.code, lanes);
    }
  }
  return result;
}
void call(const Compiled& c, std::vector<float>& x, std::vector<float>& y,
          std::vector<float>& out) {
  void* buffers[] = {x.data(), y.data(), out.data()};
  alignas(64) std::byte scratch[64] = {};
  c.function(buffers, nullptr, scratch, 0, 1);
}

// The table `| \`function\` | bound |` of the documentation.
std::map<std::string, double> stated_bounds() {
  std::ifstream file(std::string(INKLE_SOURCE) + "/docs/codegen_cpu.md");
  std::map<std::string, double> bounds;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string bar, name, middle;
    double bound = 0;
    if (!(words >> bar >> name >> middle >> bound) || bar != "|" || middle != "|") continue;
    if (name.size() > 2 && name.front() == '`') bounds[name.substr(1, name.size() - 2)] = bound;
  }
  return bounds;
}

void expect_bound(Opcode op, const Compiled& c, const Worst& worst) {
  const std::string name(loop::name_of(op));
  if (std::getenv("INKLE_TEST_VERBOSE") != nullptr) {
    fmt::print("{} byte vectors, {} lanes, {:8} {:.4f} ULP at {:a}, {:a}\n",
               c.compiler->device().vector_bytes, c.lanes, name, worst.error, worst.x, worst.y);
  }
  const auto bounds = stated_bounds();
  ASSERT_TRUE(bounds.contains(name)) << "docs/codegen_cpu.md states no bound of " << name;
  EXPECT_LE(worst.error, bounds.at(name))
      << name << "(" << worst.x << ", " << worst.y << ") = " << worst.got;
}

std::string name_of_case(const testing::TestParamInfo<Opcode>& info) {
  return std::string(loop::name_of(info.param));
}

// Notes the errors at every `stride`-th of the bit patterns from `first` to `last`.
void sweep(Opcode op, const std::vector<Compiled>& all, std::vector<Worst>& worst,
           std::uint32_t first, std::uint32_t last, std::uint64_t stride) {
  std::vector<float> x(kBatch), out(kBatch);
  std::vector<double> expected(kBatch);
  for (std::uint64_t pattern = first; pattern <= last;) {
    for (std::size_t i = 0; i < x.size(); ++i, pattern += stride) {
      const std::uint64_t within = std::min<std::uint64_t>(pattern, last);
      x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(within));
      expected[i] = reference<double>(op, x[i], 0);
    }
    for (std::size_t c = 0; c < all.size(); ++c) {
      call(all[c], x, x, out);
      for (std::size_t i = 0; i < x.size(); ++i) {
        note(worst[c], op, x[i], 0, out[i], expected[i]);
      }
    }
  }
}

class UnaryBound : public testing::TestWithParam<Opcode> {};

TEST_P(UnaryBound, HoldsForAllNumbers) {
  const Opcode op = GetParam();
  const bool slow = op >= Opcode::erfinv && op <= Opcode::digamma;
  const std::vector<Compiled> all = compile_all(op, false);
  std::vector<Worst> worst(all.size());
  sweep(op, all, worst, 0, 0xffffffffU, is_long() ? long_stride() : slow ? 400009 : 4001);
  if (!is_long() && !slow) {
    // Where most functions are hardest: 1/64 to 32 of either sign.
    for (const std::uint32_t sign : {0U, 0x80000000U}) {
      sweep(op, all, worst, 0x3c800000U | sign, 0x42000000U | sign, 101);
    }
  }
  double found = 0;
  for (std::size_t c = 0; c < all.size(); ++c) {
    expect_bound(op, all[c], worst[c]);
    found = std::max(found, worst[c].error);
  }
  if (long_stride() == 1 && !HasFailure()) {
    EXPECT_GE(found, stated_bounds().at(std::string(loop::name_of(op))) - 0.011) << "can be less";
  }
}

INSTANTIATE_TEST_SUITE_P(Math, UnaryBound,
                         testing::Values(Opcode::sqrt, Opcode::rsqrt, Opcode::exp, Opcode::exp2,
                                         Opcode::expm1, Opcode::log, Opcode::log2, Opcode::log10,
                                         Opcode::log1p, Opcode::sin, Opcode::cos, Opcode::tan,
                                         Opcode::asin, Opcode::acos, Opcode::atan, Opcode::sinh,
                                         Opcode::cosh, Opcode::tanh, Opcode::asinh, Opcode::acosh,
                                         Opcode::atanh, Opcode::erf, Opcode::erfc, Opcode::erfinv,
                                         Opcode::lgamma, Opcode::digamma),
                         name_of_case);

// What is measured is held to the table; these of the table may not grow.
TEST(Math, BoundsOfTheTableAreTight) {
  const auto bounds = stated_bounds();
  for (const Opcode op :
       {Opcode::exp, Opcode::expm1, Opcode::log1p, Opcode::sin, Opcode::cos, Opcode::tanh}) {
    const std::string name(loop::name_of(op));
    ASSERT_TRUE(bounds.contains(name)) << "docs/codegen_cpu.md states no bound of " << name;
    EXPECT_LE(bounds.at(name), 0.75) << name;
  }
}

TEST(Math, SpecialValues) {
  const float specials[] = {0.0F,
                            -0.0F,
                            1,
                            -1,
                            0.5F,
                            -0.5F,
                            2,
                            -2,
                            3,
                            -3,
                            1e-45F,
                            -1e-45F,
                            1e-39F,
                            3.4e38F,
                            -3.4e38F,
                            1e10F,
                            -1e10F,
                            88.72284F,
                            88.7229F,
                            -103.97F,
                            -87.4F,
                            1.5F,
                            -1.5F,
                            1e30F,
                            16777216,
                            8388609,
                            -16777215,
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()};
  for (CpuCompiler* compiler : compilers()) {
    for (const Opcode op :
         {Opcode::exp,   Opcode::exp2,   Opcode::expm1, Opcode::log,   Opcode::log2,
          Opcode::log10, Opcode::log1p,  Opcode::sin,   Opcode::cos,   Opcode::tan,
          Opcode::asin,  Opcode::acos,   Opcode::atan,  Opcode::sinh,  Opcode::cosh,
          Opcode::tanh,  Opcode::asinh,  Opcode::acosh, Opcode::atanh, Opcode::erf,
          Opcode::erfc,  Opcode::erfinv, Opcode::pow,   Opcode::atan2, Opcode::hypot}) {
      const bool binary = op >= Opcode::pow;
      std::shared_ptr<void> code;
      const auto function = compile_function(*compiler, op, binary, code);
      std::vector<float> x(kBatch);
      std::vector<float> y(kBatch);
      std::vector<float> out(kBatch);
      const std::size_t n = std::size(specials);
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = specials[i % n];
        y[i] = specials[i / n % n];
      }
      void* buffers[] = {x.data(), y.data(), out.data()};
      alignas(64) std::byte scratch[64] = {};
      function(buffers, nullptr, scratch, 0, 1);
      for (std::size_t i = 0; i < n * n; ++i) {
        EXPECT_LE(ulp_error(out[i], reference<long double>(op, x[i], y[i])), 1.5)
            << loop::name_of(op) << "(" << x[i] << ", " << y[i] << ") = " << out[i];
      }
    }
  }
}

class BinaryBound : public testing::TestWithParam<Opcode> {};

TEST_P(BinaryBound, HoldsForRandomNumbers) {
  const Opcode op = GetParam();
  std::vector<float> x(kBatch), y(kBatch), out(kBatch);
  std::uint64_t state = 1;
  const auto next = [&] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::uint32_t>(state >> 32);
  };
  const std::vector<Compiled> all = compile_all(op, true);
  std::vector<Worst> worst(all.size());
  for (int round = 0; round < (is_long() ? 3000 : 16); ++round) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = std::bit_cast<float>(next());
      y[i] = std::bit_cast<float>(next());
      if (op == Opcode::pow && i % 2 == 0) {  // where results are finite
        x[i] = std::exp2(static_cast<float>(next()) * 0x1p-27F - 16);
        y[i] = static_cast<float>(next()) * 0x1p-28F - 8;
      }
    }
    for (std::size_t c = 0; c < all.size(); ++c) {
      call(all[c], x, y, out);
      for (std::size_t i = 0; i < x.size(); ++i) {
        note(worst[c], op, x[i], y[i], out[i], reference<double>(op, x[i], y[i]));
      }
    }
  }
  for (std::size_t c = 0; c < all.size(); ++c) expect_bound(op, all[c], worst[c]);
}

INSTANTIATE_TEST_SUITE_P(Math, BinaryBound,
                         testing::Values(Opcode::pow, Opcode::atan2, Opcode::hypot), name_of_case);

}  // namespace
}  // namespace inkle::codegen::cpu
