// Random kernels under all schedules: no findings, one result; and what the interpreter says of
// them when a barrier is missing.
#include "kernel/random_kernel.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "kernel/interpret_inputs.h"
#include "kernel/mutate.h"
#include "kernel/parse.h"
#include "kernel/passes.h"
#include "kernel/place_barriers.h"
#include "kernel/verify.h"

namespace inkle::kernel {
namespace {

// 300 kernels; INKLE_LONG_TESTS=1 takes 10,000.
std::uint64_t kernel_count() { return std::getenv("INKLE_LONG_TESTS") != nullptr ? 10'000 : 300; }

TEST(RandomKernels, HaveOneResultUnderAllSchedules) {
  for (std::uint64_t seed = 0; seed < kernel_count(); ++seed) {
    const RandomKernel random = random_kernel(seed);
    verify(random.kernel, "random_kernel");
    const Inputs inputs = make_inputs(random.kernel, {}, seed);
    CheckOptions options;
    options.seeds = 4;
    const CheckResult result = check(random.kernel, inputs.instances, options);
    ASSERT_TRUE(result.findings.empty()) << "seed " << seed << ", " << result.schedule << ": "
                                         << to_string(random.kernel, result.findings[0]) << "\n"
                                         << to_string(random.kernel);
  }
}

// What is printed and parsed runs alike.
TEST(RandomKernels, RunAlikeFromTheirText) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const RandomKernel random = random_kernel(seed);
    const ParsedKernel parsed = parse_kernel(to_string(random.kernel), "random");
    Inputs first = make_inputs(random.kernel, {}, seed);
    Inputs second = make_inputs(parsed.kernel, {}, seed);
    static_cast<void>(interpret(random.kernel, first.instances));
    static_cast<void>(interpret(parsed.kernel, second.instances));
    for (std::size_t a = 0; a < first.instances[0].arguments.size(); ++a) {
      const auto x = first.instances[0].arguments[a].data;
      const auto y = second.instances[0].arguments[a].data;
      EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << "seed " << seed;
    }
  }
}

// Collectives as shuffles, shared memory and barriers: no findings, the same results.
TEST(RandomKernels, GiveTheSameOnceCollectivesAreLowered) {
  for (std::uint64_t seed = 0; seed < kernel_count() / 3; ++seed) {
    const RandomKernel random = random_kernel(seed);
    ParsedKernel lowered = parse_kernel(to_string(random.kernel), "random");
    run_passes(lowered.kernel, *lowered.context, gpu_passes(), {.verify_each = true});
    const Inputs inputs = make_inputs(random.kernel, {}, seed);
    CheckOptions options;
    options.seeds = 2;
    const CheckResult wanted = check(random.kernel, inputs.instances, options);
    const CheckResult got = check(lowered.kernel, inputs.instances, options);
    ASSERT_TRUE(got.findings.empty()) << "seed " << seed << ", " << got.schedule << ": "
                                      << to_string(lowered.kernel, got.findings[0]) << "\n"
                                      << to_string(random.kernel) << to_string(lowered.kernel);
    ASSERT_EQ(got.results, wanted.results) << "seed " << seed << "\n"
                                           << to_string(random.kernel) << to_string(lowered.kernel);
  }
}

std::int64_t count_barriers(const Kernel& kernel, RegionId region) {
  std::int64_t count = 0;
  for (const OperationId id : kernel.regions[region].operations) {
    count += kernel[id].op == Op::barrier ? 1 : 0;
    for (const RegionId inside : kernel[id].regions) count += count_barriers(kernel, inside);
  }
  return count;
}

void remove_barriers(Kernel& kernel, RegionId region) {
  std::erase_if(kernel.regions[region].operations,
                [&](OperationId id) { return kernel[id].op == Op::barrier; });
  for (const OperationId id : kernel.regions[region].operations) {
    for (const RegionId inside : kernel[id].regions) remove_barriers(kernel, inside);
  }
}

// All barriers are taken away and placed again: no findings, the same results, and no more of them.
TEST(RandomKernels, GetTheirBarriersBack) {
  for (std::uint64_t seed = 0; seed < kernel_count() / 3; ++seed) {
    const RandomKernel random = random_kernel(seed);
    ParsedKernel placed = parse_kernel(to_string(random.kernel), "random");
    remove_barriers(placed.kernel, placed.kernel.body);
    place_barriers(placed.kernel, *placed.context);
    verify(placed.kernel, "place_barriers");
    const Inputs inputs = make_inputs(random.kernel, {}, seed);
    CheckOptions options;
    options.seeds = 2;
    const CheckResult wanted = check(random.kernel, inputs.instances, options);
    const CheckResult got = check(placed.kernel, inputs.instances, options);
    ASSERT_TRUE(got.findings.empty()) << "seed " << seed << ", " << got.schedule << ": "
                                      << to_string(placed.kernel, got.findings[0]) << "\n"
                                      << to_string(placed.kernel);
    ASSERT_EQ(got.results, wanted.results) << "seed " << seed << "\n" << to_string(placed.kernel);
    EXPECT_LE(count_barriers(placed.kernel, placed.kernel.body),
              count_barriers(random.kernel, random.kernel.body))
        << "seed " << seed << "\n"
        << to_string(placed.kernel);
  }
}

TEST(RandomKernels, WithoutABarrierRace) {
  std::int64_t tried = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const RandomKernel random = random_kernel(seed);
    const Inputs inputs = make_inputs(random.kernel, {}, seed);
    for (const Mutation& mutation : mutations(random.kernel)) {
      if (mutation.kind != MutationKind::remove_barrier) continue;
      const CheckResult result = check(mutate(random.kernel, mutation), inputs.instances);
      // A last barrier orders nothing; neither does one after which a thread reads its own value.
      tried += result.findings.empty() ? 0 : 1;
      for (const Finding& finding : result.findings) {
        EXPECT_TRUE(finding.kind == ReportKind::race || finding.kind == ReportKind::uninitialised)
            << to_string(random.kernel, finding);
      }
    }
  }
  EXPECT_GT(tried, 20);
}

}  // namespace
}  // namespace inkle::kernel
