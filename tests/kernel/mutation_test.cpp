// Mutations of the hand-written kernels: what verifier and interpreter notice. The kernels are the
// cases of tests/kernel/interpret/*.test and tests/kernel/hard/*.test that have no findings.
#include "kernel/mutate.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "base/error.h"
#include "kernel/interpret_inputs.h"
#include "kernel/parse.h"
#include "kernel/verify.h"

namespace inkle::kernel {
namespace {

// "// --- in" sections of a golden file.
std::vector<std::string> kernels_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> texts;
  bool is_inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("//")) is_inside = false;
    if (line.starts_with("// --- in")) {
      is_inside = true;
      texts.emplace_back();
    } else if (is_inside) {
      texts.back() += line + "\n";
    }
  }
  return texts;
}

std::vector<std::string> all_kernels() {
  std::set<std::filesystem::path> files;
  for (const char* folder : {"interpret", "hard"}) {
    const std::filesystem::path path = std::filesystem::path(INKLE_TEST_DATA) / folder;
    if (!std::filesystem::exists(path)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.path().extension() == ".test") files.insert(entry.path());
    }
  }
  std::vector<std::string> texts;
  for (const auto& file : files) {
    for (std::string& text : kernels_of(file)) texts.push_back(std::move(text));
  }
  return texts;
}

struct Tally {
  std::int64_t tried = 0, caught = 0;
};

TEST(Mutations, AreNoticed) {
  const bool is_long = std::getenv("INKLE_LONG_TESTS") != nullptr;
  std::array<std::array<std::int64_t, 4>, kMutationKinds> counts{};
  std::int64_t kernels = 0;
  for (const std::string& text : all_kernels()) {
    std::optional<ParsedKernel> parsed;
    Inputs inputs;
    MutationOptions options;
    options.every = is_long ? 1 : 3;
    options.check.seeds = 4;
    options.check.max_steps = 20'000'000;
    try {
      parsed = parse_kernel(text, "kernel");
      verify(parsed->kernel);
      inputs = make_inputs(parsed->kernel, choose_sizes(parsed->kernel));
      if (!check(parsed->kernel, inputs.instances, options.check).findings.empty()) continue;
    } catch (const Error&) {
      continue;  // a text that is wrong in another way
    }
    ++kernels;
    for (const MutationOutcome& outcome :
         try_mutations(parsed->kernel, inputs.instances, options)) {
      ++counts.at(static_cast<std::size_t>(outcome.mutation.kind))
            .at(static_cast<std::size_t>(outcome.verdict));
      if (outcome.verdict == Verdict::survived) {
        std::printf("survived: @%s %s\n", parsed->kernel.name.c_str(),
                    to_string(parsed->kernel, outcome.mutation).c_str());
      }
    }
  }
  std::printf("%lld kernels\n%-20s %9s %11s %7s %8s\n", static_cast<long long>(kernels), "",
              "verifier", "interpreter", "result", "survived");
  std::int64_t all = 0, survived = 0;
  for (std::size_t k = 0; k < kMutationKinds; ++k) {
    const auto& c = counts[k];
    std::printf("%-20s %9lld %11lld %7lld %8lld\n",
                std::string(name_of(static_cast<MutationKind>(k))).c_str(),
                static_cast<long long>(c[0]), static_cast<long long>(c[1]),
                static_cast<long long>(c[2]), static_cast<long long>(c[3]));
    const std::int64_t tried = c[0] + c[1] + c[2] + c[3];
    all += tried;
    survived += c[3];
    EXPECT_LE(c[3] * 20, tried) << name_of(static_cast<MutationKind>(k));
  }
  EXPECT_GT(all, 0);
  EXPECT_LE(survived * 50, all);
}

}  // namespace
}  // namespace inkle::kernel
