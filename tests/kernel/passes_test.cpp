// Every kernel pass can be made to fail, and to leave a kernel that the verifier refuses; the
// kernel is dumped around each.
#include "kernel/passes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "kernel/parse.h"

namespace inkle::kernel {
namespace {

constexpr std::string_view kCpuKernel = R"(
kernel @row(in x: f32[64], out y: f32[64]) task i in 64 {
  %0 = load x[i]
  store y[i] = %0
}
)";
constexpr std::string_view kGpuKernel = R"(
kernel @row(in x: f32[32], out y: f32[32]) thread t in 32 {
  %0 = load x[t]
  %1 = reduce over t of (%0) merge (%a: f32, %b: f32) { yield add(%a, %b) }
  store y[t] = %1
}
)";

// The message of the error that the passes end with; empty: there is none.
std::string error_of(std::string_view text, std::span<const KernelPass> passes,
                     const PassOptions& options) {
  ParsedKernel parsed = parse_kernel(text, "test");
  try {
    run_passes(parsed.kernel, *parsed.context, passes, options);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

void every_pass_fails(std::string_view text, std::span<const KernelPass> passes) {
  EXPECT_EQ(error_of(text, passes, {}), "");
  for (const KernelPass& pass : passes) {
    const std::string thrown = error_of(text, passes, {.fault = {std::string(pass.name), false}});
    EXPECT_THAT(thrown, testing::HasSubstr("made to fail by option fail_stage"));
    EXPECT_THAT(thrown, testing::HasSubstr(fmt::format("in kernel pass {}", pass.name)));
    const std::string wrong = error_of(text, passes, {.fault = {std::string(pass.name), true}});
    EXPECT_THAT(wrong, testing::MatchesRegex(fmt::format(
                           "after {}: kernel @row, operation [0-9]+ .*: value [0-9]+ is used where "
                           "it is not defined.*",
                           pass.name)));
  }
}

TEST(KernelPasses, FailOnACpu) { every_pass_fails(kCpuKernel, cpu_passes()); }

TEST(KernelPasses, FailOnAGpu) { every_pass_fails(kGpuKernel, gpu_passes()); }

TEST(KernelPasses, TheKernelIsDumpedBeforeTheFirstAndAfterEach) {
  ParsedKernel parsed = parse_kernel(kCpuKernel, "test");
  const std::string before = to_string(parsed.kernel);
  std::vector<std::string> names;
  std::vector<std::string> texts;
  PassOptions options;
  options.dump = [&](std::string_view pass, const Kernel& kernel) {
    names.emplace_back(pass);
    texts.push_back(to_string(kernel));
  };
  run_passes(parsed.kernel, *parsed.context, cpu_passes(), options);
  std::vector<std::string> expected = {"expand"};
  for (const KernelPass& pass : cpu_passes()) expected.emplace_back(pass.name);
  EXPECT_EQ(names, expected);
  EXPECT_EQ(texts.front(), before);
  EXPECT_EQ(texts.back(), to_string(parsed.kernel));
}

TEST(KernelPasses, AnUnknownNameIsRefused) {
  ParsedKernel parsed = parse_kernel(kCpuKernel, "test");
  EXPECT_THROW(
      run_passes(parsed.kernel, *parsed.context, cpu_passes(), {.fault = {"numerics", false}}),
      UserError);
}

}  // namespace
}  // namespace inkle::kernel
