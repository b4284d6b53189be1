// Objects as bytes: linked and loaded again, and damaged ones.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "base/error.h"
#include "codegen/cpu/kernel_fixture.h"
#include "image/image.h"

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

image::LoadedImage load_object(image::Object object) {
  const image::Image linked = image::link({&object, 1});
  return image::load(linked.bytes, linked.layout);
}

TEST(ObjectCode, RunsWithoutTheCompiler) {
  const image::LoadedImage loaded = load_object(sine_object());
  double x[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  double y[8] = {};
  void* buffers[] = {x, y};
  alignas(64) std::int64_t scratch[8] = {};
  loaded.functions[0](buffers, nullptr, scratch, 0, 1);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(y[i], std::sin(x[i]) + 0.5);
}

// Imports are shared, and each kernel keeps its own constants.
TEST(ObjectCode, SeveralKernelsAreOneImage) {
  const std::vector<std::byte> object = sine_object();
  const image::Object both[] = {object, object};
  const image::Image linked = image::link(both);
  EXPECT_EQ(linked.layout.imports, std::vector<std::string>{"sin"});
  ASSERT_EQ(linked.layout.entries.size(), 2U);
  EXPECT_NE(linked.layout.entries[0], linked.layout.entries[1]);
  EXPECT_EQ(linked.layout.code_bytes % image::kPageBytes, 0U);
  EXPECT_EQ(linked.bytes.size() % image::kPageBytes, 0U);
  EXPECT_EQ(image::link(both).bytes, linked.bytes);
  const image::LoadedImage loaded = image::load(linked.bytes, linked.layout);
  for (const abi::KernelFunction function : loaded.functions) {
    double x[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    double y[8] = {};
    void* buffers[] = {x, y};
    alignas(64) std::int64_t scratch[8] = {};
    function(buffers, nullptr, scratch, 0, 1);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(y[i], std::sin(x[i]) + 0.5);
  }
}

// Of the process's mappings, as the kernel tells them.
TEST(ObjectCode, NothingIsWritableAndExecutable) {
  const image::LoadedImage loaded = load_object(sine_object());
  const auto code = reinterpret_cast<std::uintptr_t>(loaded.functions[0]);
  std::ifstream maps("/proc/self/maps");
  std::string line;
  bool found = false;
  while (std::getline(maps, line)) {
    const std::string permissions = line.substr(line.find(' ') + 1, 4);
    EXPECT_FALSE(permissions[1] == 'w' && permissions[2] == 'x') << line;
    const auto first = std::stoull(line, nullptr, 16);
    const auto last = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    if (code < first || code >= last) continue;
    EXPECT_EQ(permissions, "r-xp");
    found = true;
  }
  EXPECT_TRUE(found);
}

TEST(ObjectCode, LayoutsThatMakeNoSenseAreRefused) {
  const std::vector<std::byte> object = sine_object();
  const image::Object one[] = {object};
  const image::Image linked = image::link(one);
  const auto refused = [&](auto change) {
    image::Image damaged = linked;
    change(damaged);
    EXPECT_THROW((void)image::load(damaged.bytes, damaged.layout), UserError);
  };
  refused([](image::Image& i) { i.layout.entries[0] = i.layout.code_bytes; });
  refused([](image::Image& i) { i.layout.code_bytes += image::kPageBytes * 100; });
  refused([](image::Image& i) { i.layout.code_bytes -= 1; });
  refused([](image::Image& i) { i.bytes.pop_back(); });
  refused([](image::Image& i) { i.layout.imports[0] = "system"; });
}

TEST(ObjectCode, TheSameKernelGivesTheSameBytes) { EXPECT_EQ(sine_object(), sine_object()); }

TEST(ObjectCode, TruncatedBytesAreRefused) {
  const std::vector<std::byte> object = sine_object();
  for (std::size_t n = 0; n + 1 < object.size(); n += 7) {
    EXPECT_THROW((void)load_object(image::Object(object.data(), n)), UserError) << n;
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
