// Errors of the f32 functions in units in the last place, against long double. By default a strided
// sweep over the bit patterns; INKLE_LONG_TESTS=1 takes them all.
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "codegen/cpu/kernel_fixture.h"
#include "loop/scalar.h"

namespace inkle::codegen::cpu {
namespace {

constexpr std::int64_t kBatch = 1 << 16;

abi::KernelFunction compile_function(CpuCompiler& compiler, Opcode op, bool binary,
                                     std::shared_ptr<void>& code) {
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
  const CompileUnit unit{&b.kernel, inner_lanes(compiler.device().vector_bytes / 4)};
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

long double reference(Opcode op, long double x, long double y) {
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
  return loop::evaluate(op, DType::f64, {&operand, 1}).real;
}

bool is_long() { return std::getenv("INKLE_LONG_TESTS") != nullptr; }

struct Worst {
  double error = 0;
  float x = 0;
  float y = 0;
  float got = 0;
};

Worst sweep_unary(CpuCompiler& compiler, Opcode op, std::uint32_t stride) {
  std::shared_ptr<void> code;
  const auto function = compile_function(compiler, op, false, code);
  std::vector<float> x(kBatch);
  std::vector<float> y(kBatch);
  alignas(64) std::byte scratch[64] = {};
  Worst worst;
  std::uint64_t pattern = 0;
  while (pattern <= 0xffffffffU) {
    for (float& v : x) {
      v = std::bit_cast<float>(
          static_cast<std::uint32_t>(std::min<std::uint64_t>(pattern, 0xffffffffU)));
      pattern += stride;
    }
    void* buffers[] = {x.data(), x.data(), y.data()};
    function(buffers, nullptr, scratch, 0, 1);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = ulp_error(y[i], reference(op, x[i], 0));
      if (error > worst.error) worst = {error, x[i], 0, y[i]};
    }
  }
  return worst;
}

TEST(Math, UnaryWithinTwoUlp) {
  const Opcode all[] = {
      Opcode::sqrt,   Opcode::rsqrt,  Opcode::exp,   Opcode::exp2, Opcode::expm1, Opcode::log,
      Opcode::log2,   Opcode::log10,  Opcode::log1p, Opcode::sin,  Opcode::cos,   Opcode::tan,
      Opcode::asin,   Opcode::acos,   Opcode::atan,  Opcode::sinh, Opcode::cosh,  Opcode::tanh,
      Opcode::asinh,  Opcode::acosh,  Opcode::atanh, Opcode::erf,  Opcode::erfc,  Opcode::erfinv,
      Opcode::lgamma, Opcode::digamma};
  for (CpuCompiler* compiler : compilers()) {
    for (const Opcode op : all) {
      const bool slow = op >= Opcode::erfinv && op <= Opcode::digamma;
      const std::uint32_t stride = is_long() ? 1 : slow ? 400009 : 20011;
      const Worst worst = sweep_unary(*compiler, op, stride);
      if (std::getenv("INKLE_TEST_VERBOSE") != nullptr) {
        fmt::print("{} byte vectors {:8} {:.3f} ULP at {:a}\n", compiler->device().vector_bytes,
                   loop::name_of(op), worst.error, worst.x);
      }
      EXPECT_LE(worst.error, 2) << loop::name_of(op) << "(" << worst.x << ") = " << worst.got;
      if (compiler != compilers().front()) continue;
    }
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
        EXPECT_LE(ulp_error(out[i], reference(op, x[i], y[i])), 2)
            << loop::name_of(op) << "(" << x[i] << ", " << y[i] << ") = " << out[i];
      }
    }
  }
}

TEST(Math, BinaryWithinTwoUlp) {
  for (CpuCompiler* compiler : compilers()) {
    for (const Opcode op : {Opcode::pow, Opcode::atan2, Opcode::hypot}) {
      std::shared_ptr<void> code;
      const auto function = compile_function(*compiler, op, true, code);
      std::vector<float> x(kBatch);
      std::vector<float> y(kBatch);
      std::vector<float> out(kBatch);
      Worst worst;
      std::uint64_t state = 1;
      const auto next = [&] {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        return static_cast<std::uint32_t>(state >> 32);
      };
      for (int round = 0; round < (is_long() ? 300 : 4); ++round) {
        for (std::size_t i = 0; i < x.size(); ++i) {
          x[i] = std::bit_cast<float>(next());
          y[i] = std::bit_cast<float>(next());
          if (op == Opcode::pow && i % 2 == 0) {  // where results are finite
            x[i] = std::exp2(static_cast<float>(next()) * 0x1p-27F - 16);
            y[i] = static_cast<float>(next()) * 0x1p-28F - 8;
          }
        }
        void* buffers[] = {x.data(), y.data(), out.data()};
        alignas(64) std::byte scratch[64] = {};
        function(buffers, nullptr, scratch, 0, 1);
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double error = ulp_error(out[i], reference(op, x[i], y[i]));
          if (error > worst.error) worst = {error, x[i], y[i], out[i]};
        }
      }
      EXPECT_LE(worst.error, 2) << loop::name_of(op) << "(" << worst.x << ", " << worst.y
                                << ") = " << worst.got;
    }
  }
}

}  // namespace
}  // namespace inkle::codegen::cpu
