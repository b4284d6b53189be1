// Packages that are damaged by accident or on purpose. By accident: refused with a reason, or the
// results are what they were. On purpose, with hashes that are right again: refused, or accepted
// without harm to who reads them; these are never run, as hashes are no signature.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <span>
#include <string>

#include "base/error.h"
#include "codegen/cuda/compiler.h"
#include "package/built.h"
#include "package/package.h"
#include "runtime/common/plan_bounds.h"
#include "runtime/common/plan_check.h"
#include "runtime/common/plan_of_file.h"
#include "runtime/common/prepared_plan.h"
#include "runtime/common/size_program.h"
#include "runtime/cuda/executable.h"
#include "runtime/cuda/named_device.h"

namespace inkle::package {
namespace {

// 300 files of each kind of harm; INKLE_LONG_TESTS=1 takes 10,000.
int case_count() { return std::getenv("INKLE_LONG_TESTS") != nullptr ? 10'000 : 300; }

constexpr std::int64_t kRows = 9;

class Corrupter {
 public:
  Corrupter(std::vector<std::byte> good, std::uint64_t seed)
      : good_(std::move(good)), random_(seed) {}

  // A damaged file; `name` says how.
  std::vector<std::byte> next(std::string& name) {
    bytes_ = good_;
    constexpr std::array kKinds = {
        &Corrupter::flip,       &Corrupter::flip_header, &Corrupter::overwrite,
        &Corrupter::cut,        &Corrupter::extend,      &Corrupter::swap_entries,
        &Corrupter::overlap,    &Corrupter::huge_size,   &Corrupter::huge_place,
        &Corrupter::swap_bytes, &Corrupter::clear,       &Corrupter::many};
    constexpr std::array kNames = {
        "flip",       "flip of the header", "overwrite", "cut",
        "extend",     "swapped entries",    "overlap",   "huge size",
        "huge place", "swapped sections",   "clear",     "many sections"};
    const std::size_t kind = draw(kKinds.size());
    (this->*kKinds[kind])();
    name = kNames[kind];
    return bytes_;
  }

 private:
  std::size_t draw(std::size_t limit) { return static_cast<std::size_t>(random_() % limit); }
  [[nodiscard]] std::size_t count() const {
    FileHeader header;
    std::memcpy(&header, good_.data(), sizeof header);
    return header.section_count;
  }
  SectionEntry entry(std::size_t i) const {
    SectionEntry e;
    std::memcpy(&e, bytes_.data() + sizeof(FileHeader) + i * sizeof e, sizeof e);
    return e;
  }
  void put(std::size_t i, const SectionEntry& e) {
    std::memcpy(bytes_.data() + sizeof(FileHeader) + i * sizeof e, &e, sizeof e);
  }
  std::uint64_t near_the_end() {
    constexpr std::array kNumbers = {std::uint64_t{1} << 63, ~std::uint64_t{0},
                                     std::uint64_t{1} << 32, std::uint64_t{1} << 47};
    return kNumbers[draw(kNumbers.size())] - draw(3) * kSectionAlignment + draw(2);
  }

  void flip() { bytes_[draw(bytes_.size())] ^= std::byte{1} << draw(8); }
  void flip_header() {
    bytes_[draw(sizeof(FileHeader) + count() * sizeof(SectionEntry))] ^= std::byte{1} << draw(8);
  }
  void overwrite() {
    const std::size_t at = draw(bytes_.size());
    for (std::size_t j = at; j < std::min(bytes_.size(), at + 64); ++j) {
      bytes_[j] = static_cast<std::byte>(random_());
    }
  }
  void cut() { bytes_.resize(draw(bytes_.size())); }
  void extend() {
    bytes_.resize(bytes_.size() + 1 + draw(5000), static_cast<std::byte>(random_()));
  }
  void swap_entries() {
    const std::size_t a = draw(count()), b = draw(count());
    const SectionEntry first = entry(a), second = entry(b);
    put(a, second);
    put(b, first);
  }
  void overlap() {
    const std::size_t a = draw(count());
    SectionEntry e = entry(a);
    e.offset = entry(draw(count())).offset + draw(2) * kSectionAlignment;
    put(a, e);
  }
  void huge_size() {
    const std::size_t a = draw(count());
    SectionEntry e = entry(a);
    e.bytes = near_the_end();
    put(a, e);
  }
  void huge_place() {
    const std::size_t a = draw(count());
    SectionEntry e = entry(a);
    e.offset = near_the_end();
    put(a, e);
  }
  void swap_bytes() {
    const SectionEntry a = entry(draw(count())), b = entry(draw(count()));
    const std::size_t size = std::min(a.bytes, b.bytes);
    std::swap_ranges(bytes_.begin() + static_cast<std::ptrdiff_t>(a.offset),
                     bytes_.begin() + static_cast<std::ptrdiff_t>(a.offset + size),
                     bytes_.begin() + static_cast<std::ptrdiff_t>(b.offset));
  }
  void clear() {
    const std::size_t at = draw(bytes_.size());
    std::fill(bytes_.begin() + static_cast<std::ptrdiff_t>(at),
              bytes_.begin() + static_cast<std::ptrdiff_t>(std::min(bytes_.size(), at + 4096)),
              std::byte{0});
  }
  void many() {
    const std::uint32_t claimed = static_cast<std::uint32_t>(draw(2) == 0 ? 1024 : random_());
    std::memcpy(bytes_.data() + offsetof(FileHeader, section_count), &claimed, sizeof claimed);
  }

  std::vector<std::byte> good_, bytes_;
  std::mt19937_64 random_;
};

// All that is asked of a plan before anything of it runs.
void check(const abi::Plan& plan) {
  namespace common = runtime::common;
  common::check_references(plan);
  const common::SizeProgram sizes(plan);
  const common::PlanFacts facts(plan);
  (void)common::plan_prepared(plan, facts, sizes, 64);
  common::check_bounds(plan, facts, sizes.constant_slots());
}

TEST(Hostile, AccidentsAreRefusedOrHarmless) {
  const Built built = build();
  const std::vector<std::uint32_t> right = run(*Package::from_bytes("f", built.bytes), kRows);
  Corrupter corrupter(built.bytes, 1);
  std::map<std::string, int> refused;
  int accepted = 0;
  for (int i = 0; i < case_count(); ++i) {
    std::string name;
    std::vector<std::byte> bytes = corrupter.next(name);
    try {
      const auto package = Package::from_bytes("f", std::move(bytes));
      ASSERT_EQ(run(*package, kRows), right) << i << ", " << name;
      ++accepted;
    } catch (const UserError& error) {
      ++refused[name];
      ASSERT_EQ(std::string(error.what()).substr(0, 3), "f: ") << error.what();
      ASSERT_GT(std::strlen(error.what()), 15U);
    }
  }
  EXPECT_GT(accepted, 0);  // zeros between sections, entries swapped with themselves
  for (const char* name :
       {"flip", "flip of the header", "overwrite", "cut", "extend", "swapped entries", "overlap",
        "huge size", "huge place", "swapped sections", "clear", "many sections"}) {
    EXPECT_GT(refused[name], 0) << name;
  }
}

TEST(Hostile, ForgedFilesDoNoHarmToTheReader) {
  const Built built = build();
  Corrupter corrupter(built.bytes, 2);
  int refused = 0;
  for (int i = 0; i < case_count(); ++i) {
    std::string name;
    std::vector<std::byte> bytes = corrupter.next(name);
    make_hashes_right(bytes);
    try {
      (void)Package::from_bytes("f", bytes)->weights();
      for (const Contents& c : Package::from_bytes("f", bytes, Package::Use::read)->check_all()) {
        check(c.plan);
      }
    } catch (const UserError&) {
      ++refused;
    } catch (const Unsupported&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, case_count() / 4);
}

class HostileOnGpus : public testing::Test {
 protected:
  void SetUp() override {
    std::string why_not;
    if (!codegen::cuda::find_nvrtc(why_not)) GTEST_SKIP() << why_not;
  }
  static std::shared_ptr<const Package> open(std::vector<std::byte> bytes) {
    return Package::from_bytes("f", std::move(bytes), Package::Use::run, {}, kArchitecture);
  }
  // All of a package that reaches a GPU, as text and bytes.
  static std::string what_runs(const Package& package) {
    std::string all = package.target() + abi::to_string(*package.made().plan);
    const auto add = [&](std::span<const std::byte> bytes) {
      all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    for (const abi::DeviceImage& image : package.made().code->images) add(*image.data);
    for (const abi::SharedBytes& constant : package.made().code->constants) add(constant.data);
    for (const PackageWeight& weight : package.weights()) add(weight.data);
    return all;
  }

  static constexpr const char* kArchitecture = "sm_90a";
};

TEST_F(HostileOnGpus, AccidentsAreRefusedOrHarmless) {
  const std::vector<std::byte> good = build_for_gpus();
  const std::string right = what_runs(*open(good));
  Corrupter corrupter(good, 4);
  int refused = 0, accepted = 0;
  for (int i = 0; i < case_count(); ++i) {
    std::string name;
    std::vector<std::byte> bytes = corrupter.next(name);
    try {
      ASSERT_TRUE(what_runs(*open(std::move(bytes))) == right) << i << ", " << name;
      ++accepted;
    } catch (const UserError& error) {
      ++refused;
      ASSERT_EQ(std::string(error.what()).substr(0, 3), "f: ") << error.what();
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, case_count() / 4);
}

// Loaded on a GPU that runs nothing: what the runtime itself does with plan, code and constants.
TEST_F(HostileOnGpus, ForgedFilesDoNoHarmToTheReader) {
  Corrupter corrupter(build_for_gpus(), 5);
  int refused = 0;
  for (int i = 0; i < case_count(); ++i) {
    std::string name;
    std::vector<std::byte> bytes = corrupter.next(name);
    make_hashes_right(bytes);
    try {
      const auto package = open(std::move(bytes));
      (void)package->weights();
      runtime::common::check_plan_of_file(*package->made().plan);
      const runtime::cuda::Executable executable(
          package->made(), runtime::cuda::open_named("null:sm_90a"), {.check_bounds = true});
    } catch (const UserError&) {
      ++refused;
    } catch (const Unsupported&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, case_count() / 8);
}

// The verifiers alone: FlatBuffers', unpack() and those of plans.
TEST(Hostile, DamagedPlansDoNotCrashTheVerifiers) {
  const std::vector<std::byte> plan =
      pack(Package::from_bytes("f", build().bytes, Package::Use::read)->check_all().at(0));
  std::mt19937_64 random(3);
  int accepted = 0;
  for (int i = 0; i < 10 * case_count(); ++i) {
    std::vector<std::byte> bytes = plan;
    for (std::uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    try {
      check(unpack(bytes).plan);
      ++accepted;
    } catch (const UserError&) {
    } catch (const Unsupported&) {
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 10 * case_count());
}

// FlatBuffers' verifier does not look at where the elements of a vector lie; the fuzzer found this.
TEST(Hostile, PlacesThatAreNotAlignedAreRefused) {
  std::ifstream file(INKLE_SOURCE "/tests/fuzz/corpus/package_plan_fuzz/misaligned_places",
                     std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  ASSERT_FALSE(text.empty());
  try {
    (void)unpack(std::as_bytes(std::span(text)));
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("aligned to 8 bytes"), std::string::npos)
        << error.what();
  }
}

// Lengths and offsets that claim much: a small file asks for little memory, whatever it says.
TEST(Hostile, ClaimsOfSizeAskForLittleMemory) {
  const std::vector<std::byte> plan =
      pack(Package::from_bytes("f", build().bytes, Package::Use::read)->check_all().at(0));
  const auto most_memory = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;  // KiB
  };
  constexpr std::array<std::uint32_t, 6> kClaims = {0x7fffffff, 0xffffffff, 0x10000000,
                                                    1 << 20,    1 << 16,    4096};
  std::mt19937_64 random(4);
  const auto before = most_memory();
  int refused = 0;
  for (int i = 0; i < 10 * case_count(); ++i) {
    std::vector<std::byte> bytes = plan;
    for (std::uint64_t words = 1 + random() % 8; words > 0; --words) {
      // A claim, or what stands elsewhere: several vectors become one and the same.
      std::uint32_t word = kClaims[random() % kClaims.size()];
      if (random() % 2 == 0) std::memcpy(&word, &bytes[random() % (bytes.size() / 4) * 4], 4);
      std::memcpy(&bytes[random() % (bytes.size() / 4) * 4], &word, 4);
    }
    try {
      check(unpack(bytes).plan);
    } catch (const UserError&) {
      ++refused;
    } catch (const Unsupported&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, case_count());
  EXPECT_LT(most_memory() - before, 64 << 10);
}

}  // namespace
}  // namespace inkle::package
