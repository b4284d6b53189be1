// Why packages are refused, as codes: each where it belongs, and before anything is executable.
#include "package/reason.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "package/built.h"
#include "package/executable_memory.h"
#include "package/target.h"

namespace inkle::package {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const Built& built() {
  static const Built made = build();
  return made;
}

struct Refusal {
  std::optional<Reason> reason;
  std::string text;
};

// Of a call that throws one; nothing may become executable before.
template <class Call>
Refusal refusal_of(Call&& call) {
  (void)built();  // is compiled and loaded before
  const int before = times_made_executable();
  const std::size_t mapped = executable_mappings();
  Refusal refusal;
  try {
    call();
  } catch (const BadPackage& error) {
    refusal = {error.reason(), error.what()};
  } catch (const UnfitPackage& error) {
    refusal = {error.reason(), error.what()};
  }
  EXPECT_EQ(times_made_executable(), before) << refusal.text;
  EXPECT_EQ(executable_mappings(), mapped) << refusal.text;
  return refusal;
}

Refusal run_refusal(std::vector<std::byte> bytes, std::string_view architecture = {}) {
  return refusal_of([&] {
    (void)Package::from_bytes("f", std::move(bytes), Package::Use::run, {}, architecture);
  });
}

Refusal check_refusal(std::vector<std::byte> bytes) {
  return refusal_of(
      [&] { (void)Package::from_bytes("f", std::move(bytes), Package::Use::read)->check_all(); });
}

template <class T>
std::vector<std::byte> with(std::size_t at, T value) {
  std::vector<std::byte> bytes = built().bytes;
  std::memcpy(bytes.data() + at, &value, sizeof value);
  make_hashes_right(bytes);
  return bytes;
}

// A module that nobody looks into.
std::vector<std::byte> for_a_gpu(const std::string& target) {
  abi::Code code;
  code.images = {{target, std::make_shared<const std::vector<std::byte>>(100, std::byte{7})}};
  PackageInput input;
  input.targets.push_back(
      {nullptr,
       {std::make_shared<const abi::Plan>(), std::make_shared<const abi::Code>(code)},
       target});
  return bytes_of(input);
}

std::vector<std::string> documented() {
  std::ifstream file(std::string(INKLE_SOURCE) + "/docs/package.md");
  std::vector<std::string> codes;
  bool is_inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| code | the file is refused ")) {
      is_inside = true;
    } else if (is_inside && line.starts_with("| `")) {
      codes.push_back(line.substr(3, line.find('`', 3) - 3));
    } else if (is_inside && !line.starts_with("|---")) {
      break;
    }
  }
  return codes;
}

TEST(Reasons, AreThoseOfTheDocs) {
  const auto names = reason_names();
  EXPECT_EQ(documented(), std::vector<std::string>(names.begin(), names.end()));
  EXPECT_EQ(std::set<std::string_view>(names.begin(), names.end()).size(), names.size());
  EXPECT_EQ(name_of(Reason::unreadable), "unreadable");
  EXPECT_EQ(name_of(Reason::not_signed), "not_signed");
  EXPECT_EQ(name_of(Reason::bad_plan), "bad_plan");
  EXPECT_EQ(name_of(Reason::cpu_features_missing), "cpu_features_missing");
  EXPECT_EQ(name_of(Reason::cannot_map), "cannot_map");
}

// That what follows can fail: running a package makes its code executable.
TEST(Reasons, RunningMakesCodeExecutable) {
  const std::vector<std::byte> bytes = built().bytes;
  const int before = times_made_executable();
  const std::size_t mapped = executable_mappings();
  const auto package = Package::from_bytes("f", bytes);
  EXPECT_EQ(times_made_executable(), before + 1);
  EXPECT_EQ(executable_mappings(), mapped + 1);
}

TEST(Reasons, CheckingMakesNothingExecutable) {
  Built fat = build("x86-64-v4+amx");
  for (const char* const set : {"x86-64-v4", "x86-64-v3"}) {
    fat.input.targets.push_back(build(set).input.targets[0]);
  }
  const auto bytes = bytes_of(fat.input);
  const int before = times_made_executable();
  const std::size_t mapped = executable_mappings();
  const auto package = Package::from_bytes("f", bytes, Package::Use::read);
  const std::vector<Contents> all = package->check_all();
  ASSERT_EQ(all.size(), 3U);
  for (const Contents& contents : all) EXPECT_FALSE(contents.layout.entries.empty());
  EXPECT_EQ(times_made_executable(), before);
  EXPECT_EQ(executable_mappings(), mapped);
}

// A name of the same length that is on no list, and code that is not in whole pages.
TEST(Reasons, CodeIsCheckedWithoutBeingMapped) {
  const auto package = Package::from_bytes("f", built().bytes, Package::Use::read);
  const Contents contents = package->check_all().at(0);
  ASSERT_FALSE(contents.layout.imports.empty());
  const std::string& name = contents.layout.imports[0];
  std::string packed(4, '\0');
  packed[0] = static_cast<char>(name.size());
  packed += name + '\0';
  std::string text(reinterpret_cast<const char*>(built().bytes.data()), built().bytes.size());
  const std::size_t at = text.find(packed);
  ASSERT_NE(at, std::string::npos);
  const auto forged = with(at + 4, '!');
  for (const Refusal& refusal : {check_refusal(forged), run_refusal(forged)}) {
    EXPECT_EQ(refusal.reason, Reason::bad_code);
    EXPECT_THAT(refusal.text, AllOf(StartsWith("f: bad_code: machine code calls the unknown "),
                                    HasSubstr("'!" + name.substr(1) + "'")));
  }
}

TEST(Reasons, AnotherVersionOfTheFormat) {
  const auto bytes = with(offsetof(FileHeader, format_version), kFormatVersion + 1);
  for (const Refusal& refusal : {check_refusal(bytes), run_refusal(bytes)}) {
    EXPECT_EQ(refusal.reason, Reason::other_format);
    EXPECT_THAT(refusal.text,
                StartsWith("f: other_format: the file's format is version 2, this runtime reads "
                           "version 1: "));
  }
}

TEST(Reasons, AnotherAbi) {
  const auto bytes = with(offsetof(FileHeader, abi_version), kAbiVersion + 1);
  for (const Refusal& refusal : {check_refusal(bytes), run_refusal(bytes)}) {
    EXPECT_EQ(refusal.reason, Reason::other_abi);
    EXPECT_EQ(refusal.text,
              "f: other_abi: the file was built for ABI 2, this runtime has ABI 1: build it again");
  }
}

TEST(Reasons, ForAnotherGpuOrForNone) {
  const auto bytes = for_a_gpu("sm_80");
  const Refusal other = run_refusal(bytes, "sm_90a");
  EXPECT_EQ(other.reason, Reason::other_gpu);
  EXPECT_EQ(other.text,
            "f: other_gpu: a GPU of sm_90a runs none of its targets: sm_80 needs a GPU of sm_80 or "
            "a later one of its major number");
  const Refusal processor = run_refusal(bytes);
  EXPECT_EQ(processor.reason, Reason::only_for_gpus);
  EXPECT_THAT(processor.text, StartsWith("f: only_for_gpus: this processor runs none of its "));
  const Refusal gpu = run_refusal(built().bytes, "sm_90a");
  EXPECT_EQ(gpu.reason, Reason::only_for_processors);
  EXPECT_THAT(gpu.text, EndsWith("x86-64-v3 needs to be run by the processor"));
  EXPECT_EQ(check_refusal(bytes).reason, std::nullopt);
}

TEST(Reasons, AProcessorWithoutAFeatureIsToldWhatThereIs) {
  const Built wide = build("x86-64-v4");
  const Narrowed narrowed("avx2");
  const Refusal refusal = run_refusal(wide.bytes);
  EXPECT_EQ(refusal.reason, Reason::cpu_features_missing);
  EXPECT_THAT(refusal.text,
              AllOf(StartsWith("f: cpu_features_missing: this processor runs none of its targets: "
                               "x86-64-v4 needs avx512f"),
                    HasSubstr("; the processor here is x86-64-v3 with avx, avx2, bmi, ")));
  const std::string here = refusal.text.substr(refusal.text.find("is x86-64-v3 with"));
  EXPECT_THAT(here, AllOf(HasSubstr("fma"), Not(HasSubstr("avx512"))));
  EXPECT_EQ(check_refusal(wide.bytes).reason, std::nullopt) << "a right file";
}

TEST(Reasons, FitsTellNeedsAndWhatThereIs) {
  const auto v4 = image::required_bits(*image::instruction_set_named("x86-64-v4"));
  const auto v3 = image::required_bits(*image::instruction_set_named("x86-64-v3"));
  const Narrowed narrowed("avx2");
  const Fit runs = fit_on_processor(v3);
  EXPECT_FALSE(runs.reason);
  EXPECT_THAT(runs.needs, AllOf(HasSubstr("avx2"), HasSubstr("fma"), HasSubstr("lzcnt")));
  const Fit lacks = fit_on_processor(v4);
  EXPECT_EQ(lacks.reason, Reason::cpu_features_missing);
  EXPECT_THAT(lacks.needs, AllOf(HasSubstr("avx2"), HasSubstr("avx512vl")));
  EXPECT_THAT(lacks.lacks, AllOf(HasSubstr("avx512vl"), Not(HasSubstr("avx2"))));

  const std::vector<std::string> gpus = {"sm_80", "sm_86"};
  EXPECT_FALSE(fit_on_gpus("compute_80", gpus).reason);
  EXPECT_FALSE(fit_on_gpus("sm_86", gpus).reason);
  const Fit other = fit_on_gpus("sm_90a", gpus);
  EXPECT_EQ(other.reason, Reason::other_gpu);
  EXPECT_EQ(other.needs, "a GPU of sm_90a");
  EXPECT_EQ(other.here, "the GPU here is sm_80 and sm_86");
  const Fit none = fit_on_gpus("compute_80", {}, "there is no driver");
  EXPECT_EQ(none.reason, Reason::no_gpu);
  EXPECT_EQ(none.needs, "a GPU of sm_80 or later");
  EXPECT_EQ(none.here, "no GPU is here: there is no driver");
}

TEST(Reasons, OfDamagedFiles) {
  const std::vector<std::byte>& good = built().bytes;
  const auto flipped = [&](std::size_t at) {
    std::vector<std::byte> bytes = good;
    bytes[at] ^= std::byte{1};
    return bytes;
  };
  std::vector<std::byte> cut = good, longer = good;
  cut.pop_back();
  longer.push_back(std::byte{0});
  EXPECT_EQ(check_refusal({}).reason, Reason::truncated);
  EXPECT_EQ(check_refusal(cut).reason, Reason::truncated);
  EXPECT_EQ(check_refusal(longer).reason, Reason::stray_bytes);
  EXPECT_EQ(check_refusal(flipped(kSectionAlignment - 1)).reason, Reason::stray_bytes);
  EXPECT_EQ(check_refusal(flipped(0)).reason, Reason::wrong_magic);
  EXPECT_EQ(check_refusal(flipped(70)).reason, Reason::hash_mismatch);
  EXPECT_EQ(check_refusal(flipped(kSectionAlignment)).reason, Reason::hash_mismatch);
  EXPECT_EQ(check_refusal(with(sizeof(FileHeader), std::uint32_t{99})).reason, Reason::bad_table);
  EXPECT_EQ(check_refusal(with(kSectionAlignment, std::uint32_t{0x7fffffff})).reason,
            Reason::bad_plan);
  EXPECT_EQ(refusal_of([] { (void)Package::open("no/such/file"); }).reason, Reason::unreadable);
}

}  // namespace
}  // namespace inkle::package
