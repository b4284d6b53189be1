// Objects as bytes: loading again, and damaged ones.
#include "codegen/cpu/object_code.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "codegen/cpu/kernel_fixture.h"

namespace inkle::codegen::cpu {
namespace {

std::vector<std::byte> sine_object() {
  KernelBuilder b;
  const auto x = b.param(DType::f64);
  const auto out = b.param(DType::f64, schedule::ParamRole::out);
  b.pointwise(
      {b.constant(8)},
      [&](BodyBuilder& body, const std::vector<Expr>& j) {
        const Val a = body.load(x, DType::f64, {j[0]});
        body.yield(body.add(body.unary(Opcode::sin, a), body.constant(DType::f64, 0.5)));
      },
      [&](const std::vector<Expr>& j) {
        return std::vector<schedule::StageStore>{{out, j[0]}};
      });
  b.finish();
  b.kernel.name = "sin";  // also the name of a function it calls
  const CompileUnit unit{&b.kernel, inner_lanes(4)};
  return *compilers()[0]->compile({&unit, 1})[0].object;
}

TEST(ObjectCode, RunsWithoutTheCompiler) {
  const LoadedObject loaded = load_object(sine_object());
  double x[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  double y[8] = {};
  void* buffers[] = {x, y};
  alignas(64) std::int64_t scratch[8] = {};
  reinterpret_cast<abi::KernelFunction>(loaded.entry)(buffers, nullptr, scratch, 0, 1);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(y[i], std::sin(x[i]) + 0.5);
}

TEST(ObjectCode, TheSameKernelGivesTheSameBytes) { EXPECT_EQ(sine_object(), sine_object()); }

TEST(ObjectCode, TruncatedBytesAreRefused) {
  const std::vector<std::byte> object = sine_object();
  for (std::size_t n = 0; n + 1 < object.size(); n += 7) {
    EXPECT_THROW((void)load_object({object.data(), n}), UserError) << n;
  }
}

TEST(TargetOptions, UnknownWidthsAreRefused) {
  EXPECT_THROW(CpuCompiler(TargetOptions{.vector_bytes = 16}), UserError);
  EXPECT_THROW(CpuCompiler(TargetOptions{.optimization = 9}), UserError);
}

TEST(TargetOptions, EnvironmentNarrows) {
  const char* before = std::getenv("INKLE_ISA");
  const std::string saved = before == nullptr ? "" : before;
  ::setenv("INKLE_ISA", "avx2", 1);
  EXPECT_EQ(TargetOptions::from_environment().vector_bytes, 32);
  ::setenv("INKLE_ISA", "mmx", 1);
  EXPECT_THROW((void)TargetOptions::from_environment(), UserError);
  ::setenv("INKLE_ISA", saved.c_str(), 1);
}

// Types without code are refused, not miscompiled.
TEST(Compiler, UnsupportedTypes) {
  KernelBuilder b;
  const auto x = b.param(DType::c64);
  const auto out = b.param(DType::c64, schedule::ParamRole::out);
  b.pointwise(
      {b.constant(8)},
      [&](BodyBuilder& body, const std::vector<Expr>& j) {
        body.yield(body.load(x, DType::c64, {j[0]}));
      },
      [&](const std::vector<Expr>& j) {
        return std::vector<schedule::StageStore>{{out, j[0]}};
      });
  b.finish();
  const CompileUnit unit{&b.kernel, inner_lanes(4)};
  EXPECT_THROW((void)compilers()[0]->compile({&unit, 1}), Unsupported);
}

// Any outcome but a crash of the loader.
TEST(ObjectCode, FlippedBitsDoNotCrashTheLoader) {
  const std::vector<std::byte> object = sine_object();
  for (std::size_t bit = 0; bit < object.size() * 8; bit += 3) {
    std::vector<std::byte> damaged = object;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    try {
      (void)load_object(damaged);
    } catch (const UserError&) {
    }
  }
}

}  // namespace
}  // namespace inkle::codegen::cpu
