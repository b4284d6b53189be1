// Mutations of the hand-written kernels: what verifier and interpreter notice. The kernels are the
// cases of tests/kernel/interpret/*.test and tests/kernel/hard/*.test that have no findings.
#include "kernel/mutate.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "base/error.h"
#include "kernel/interpret_inputs.h"
#include "kernel/parse.h"
#include "kernel/verify.h"
#include "loop/scalar.h"

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

// Sizes at which a kernel has work for every part of it: all stages of a ring, ragged and whole
// tiles, several blocks. Others run with choose_sizes.
struct Sizes {
  std::string_view kernel;
  std::vector<std::vector<std::string>> sizes;
  std::uint64_t inputs = 1;  // seeds of arguments
};
constexpr std::uint64_t kSeedsOfMaxima = 2;
const std::vector<Sizes>& sizes_of_kernels() {
  static const std::vector<Sizes> kSizes = {
      {"attention", {{"h=2", "l=33", "n=65"}, {"h=1", "l=32", "n=64"}}},
      {"attention_gradient", {{"h=2", "n=65"}, {"h=1", "n=64"}}},
      {"gemm_wgmma", {{"m=130", "n=128", "k=448"}}},
      {"column_sums", {{"m=300"}}},
      {"column_sums_fences", {{"m=300"}}},
      {"running_sums", {{"n=2500"}, {"n=2048"}}},
      {"block_scan_lowered", {{"n=300"}, {"n=256"}}},
      {"index_add", {{"m=6", "n=70"}, {"m=4", "n=64"}}},
      {"column_products", {{"m=66"}, {"m=93"}, {"m=32"}}},
      {"softmax_rows", {{"n=3"}}},
      {"softmax_rows_lowered", {{"n=3"}}, kSeedsOfMaxima},
      {"adamw", {{"n=1100"}, {"n=1024"}}},
      {"transpose_padded", {{"m=33", "n=66"}, {"m=32", "n=32"}}},
      {"transpose_swizzled", {{"m=64", "n=32"}}},
      {"layer_norm_cluster", {{"n=2"}}},
      {"layer_norm_cluster_lowered", {{"n=2"}}},
  };
  return kSizes;
}

// One element in each 8192 of the arguments is so far above the others that its exponential has no
// end in f32 where a maximum does not know of it. It belongs to the last lane of a last warp.
void add_peaks(const Kernel& kernel, Inputs& inputs) {
  constexpr std::int64_t kApart = 8192, kFirst = 6137;
  for (Instance& instance : inputs.instances) {
    for (MemoryId m = 0; m < kernel.parameter_count; ++m) {
      const Memory& memory = kernel.memories[m];
      const std::span<std::byte> data = instance.arguments[m].data;
      if (memory.role != Role::in || !abi::is_float(memory.dtype)) continue;
      const std::size_t size = abi::size_of(memory.dtype);
      for (std::size_t e = kFirst; e < data.size() / size; e += kApart) {
        loop::write_element(memory.dtype, data.data() + e * size,
                            loop::make_scalar(memory.dtype, 120.0));
      }
    }
  }
}

Sizes sizes_for(const Kernel& kernel) {
  for (const Sizes& sizes : sizes_of_kernels()) {
    if (sizes.kernel == kernel.name) return sizes;
  }
  return {kernel.name, {{}}};
}

// Kernels whose grid does not depend on a size, with fewer blocks.
std::string with_few_blocks(std::string text) {
  if (text.find("@softmax_rows") == std::string::npos) return text;
  for (std::size_t at = text.find("132"); at != std::string::npos; at = text.find("132", at)) {
    text.replace(at, 3, "2");
  }
  return text;
}

// Mutations that change nothing that any run can show: so many of a kind in a kernel, at operations
// of this memory if there is one, with the proof. More of them count as survivors.
struct Harmless {
  std::string_view kernel;
  MutationKind kind;
  Op op;
  std::string_view memory;
  int count;
  std::string_view why;
};
constexpr std::string_view kSameZero =
    "every thread then stores the same 0 by a strong store, which one of them had to";
constexpr std::string_view kReset =
    "the last block's reset is ordered after all that others did there and read by nobody";
constexpr std::string_view kSameCounts =
    "one count instead of another, and all threads, and all warps, have counted as many elements";
constexpr std::string_view kOtherOrder =
    "warps' partials change places: another order of eight terms, which is a last digit of f32, "
    "and "
    "results are of bf16";
constexpr std::string_view kSameMaximum =
    "warps' maxima change places, and the maximum of them is exactly the same in any order";
constexpr Harmless kHarmless[] = {
    {"bulk", MutationKind::widen_bound, Op::loop, "", 1,
     "one more bulk store, of a box that is outside of the array as a whole: nothing is stored"},
    {"attention", MutationKind::widen_bound, Op::loop, "", 1,
     "one more block of columns, all beyond the last: scores -inf, weights 0, a scale of 1"},
    {"attention_gradient", MutationKind::widen_bound, Op::loop, "", 1,
     "one more block of columns, all beyond the last: weights 0, no column is written"},
    {"block_scan_lowered", MutationKind::widen_bound, Op::loop, "", 1,
     "a shuffle up by 32 lanes gives the own value, and no lane is so high as to take it"},
    {"layer_norm_cluster_lowered", MutationKind::widen_bound, Op::loop, "", 3,
     "a shuffle by 0 lanes merges a state with itself: count and squares double, exactly, and the "
     "variance is their quotient"},
    {"layer_norm_cluster_lowered", MutationKind::change_layout, Op::store, "parts", 1, kSameCounts},
    {"layer_norm_cluster_lowered", MutationKind::change_layout, Op::load, "parts", 1, kSameCounts},
    {"layer_norm_cluster_lowered", MutationKind::change_layout, Op::store, "parts", 2, kOtherOrder},
    {"layer_norm_cluster_lowered", MutationKind::change_layout, Op::load, "parts", 2, kOtherOrder},
    {"softmax_rows_lowered", MutationKind::change_layout, Op::store, "sums", 1, kOtherOrder},
    {"softmax_rows_lowered", MutationKind::change_layout, Op::load, "sums", 1, kOtherOrder},
    {"layer_norm_cluster_lowered", MutationKind::remove_shuffle, Op::shuffle, "", 4, kSameCounts},
    {"softmax_rows_lowered", MutationKind::change_layout, Op::store, "tops", 1, kSameMaximum},
    {"softmax_rows_lowered", MutationKind::change_layout, Op::load, "tops", 1, kSameMaximum},
    {"column_sums", MutationKind::drop_mask, Op::branch, "", 1, kSameZero},
    {"column_sums_fences", MutationKind::drop_mask, Op::branch, "", 1, kSameZero},
    {"running_sums", MutationKind::drop_mask, Op::branch, "", 1, kSameZero},
    {"column_sums", MutationKind::narrow_scope, Op::store, "counters", 1, kReset},
    {"running_sums", MutationKind::narrow_scope, Op::store, "flags", 1, kReset},
    {"running_sums", MutationKind::narrow_scope, Op::store, "tickets", 2, kReset},
    {"column_sums_fences", MutationKind::weaken_order, Op::fence, "", 2,
     "of the fence before the ticket only the release is needed, of that after it the acquire"},
    {"message", MutationKind::narrow_scope, Op::store, "v", 1,
     "the flag orders it before the read: it could be weak"},
    {"message", MutationKind::narrow_scope, Op::load, "v", 1,
     "the flag orders it after the write: it could be weak"},
};

// Entries are used up, so that one more survivor is one.
class Proofs {
 public:
  Proofs() {
    for (const Harmless& h : kHarmless) left_.push_back(h.count);
  }
  const Harmless* take(const Kernel& kernel, const Mutation& mutation) {
    if (mutation.operation == kNone) return nullptr;
    const Operation& operation = kernel[mutation.operation];
    const Access* access = access_of(operation);
    const std::string_view memory =
        access == nullptr ? "" : std::string_view(kernel.memories[access->memory].name);
    for (std::size_t n = 0; n < left_.size(); ++n) {
      const Harmless& h = kHarmless[n];
      if (h.kernel != kernel.name || h.kind != mutation.kind || h.op != operation.op) continue;
      if (h.memory != memory || left_[n] == 0) continue;
      --left_[n];
      return &h;
    }
    return nullptr;
  }

 private:
  std::vector<int> left_;
};

// Of one run. Larger kernels run in the long mode alone, under fewer schedules: a wrong one is
// mostly found by the first.
constexpr std::int64_t kManySteps = 100'000;

struct Candidate {
  ParsedKernel parsed;
  std::vector<Inputs> inputs;
  std::vector<std::vector<Instance>> arguments;
  MutationOptions options;
};

// nullopt for cases that show what is wrong.
std::optional<Candidate> candidate(const std::string& text, bool is_long) {
  Candidate made;
  made.options.every = is_long ? 1 : 7;
  made.options.check.seeds = 2;
  made.options.check.max_steps = 50'000'000;
  try {
    made.parsed = parse_kernel(with_few_blocks(text), "kernel");
    const Kernel& kernel = made.parsed.kernel;
    verify(kernel);
    const Sizes sizes = sizes_for(kernel);
    for (std::size_t n = 0; n < sizes.sizes.size() * sizes.inputs; ++n) {
      const auto chosen = choose_sizes(kernel, sizes.sizes[n % sizes.sizes.size()]);
      made.inputs.push_back(make_inputs(kernel, chosen, n / sizes.sizes.size(), Digits::many));
      const bool is_last = n + 1 == sizes.sizes.size() * sizes.inputs;
      if (is_last && sizes.inputs > 1) add_peaks(kernel, made.inputs.back());
      made.arguments.push_back(made.inputs.back().instances);
      InterpretOptions once;
      once.max_steps = is_long ? made.options.check.max_steps : kManySteps;
      const RunResult run = interpret(kernel, made.arguments.back(), once);
      if (!run.findings.empty()) return std::nullopt;
      if (run.steps > kManySteps) made.options.check.seeds = 0;
    }
    for (const auto& arguments : made.arguments) {
      if (!check(kernel, arguments, made.options.check).findings.empty()) return std::nullopt;
    }
  } catch (const Error&) {
    return std::nullopt;
  }
  return made;
}

TEST(Mutations, AreNoticed) {
  const bool is_long = std::getenv("INKLE_LONG_TESTS") != nullptr;
  std::array<std::array<std::int64_t, 4>, kMutationKinds> counts{};
  std::set<std::string> names;
  Proofs proofs;
  for (const std::string& text : all_kernels()) {
    const std::optional<Candidate> c = candidate(text, is_long);
    if (!c) continue;
    names.insert(c->parsed.kernel.name);
    const auto start = std::chrono::steady_clock::now();
    for (const MutationOutcome& outcome :
         try_mutations(c->parsed.kernel, c->arguments, c->options)) {
      if (outcome.verdict == Verdict::survived) {
        const Harmless* harmless = proofs.take(c->parsed.kernel, outcome.mutation);
        std::printf("%s: @%s %s%s%s\n", harmless != nullptr ? "harmless" : "survived",
                    c->parsed.kernel.name.c_str(),
                    to_string(c->parsed.kernel, outcome.mutation).c_str(),
                    harmless != nullptr ? ": " : "",
                    harmless != nullptr ? std::string(harmless->why).c_str() : "");
        if (harmless != nullptr) continue;
      }
      ++counts.at(static_cast<std::size_t>(outcome.mutation.kind))
            .at(static_cast<std::size_t>(outcome.verdict));
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (is_long) std::printf("%s: %.1f s\n", c->parsed.kernel.name.c_str(), seconds.count());
  }
  std::printf("%zu kernels\n%-20s %9s %11s %7s %8s\n", names.size(), "", "verifier", "interpreter",
              "result", "survived");
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
    // At least 98 % of all, 95 % of each where there are enough to say so.
    if (tried >= 20) {
      EXPECT_LE(c[3] * 20, tried) << name_of(static_cast<MutationKind>(k));
    }
  }
  EXPECT_GT(names.size(), 40U);
  EXPECT_LE(survived * 50, all);
}

}  // namespace
}  // namespace inkle::kernel
