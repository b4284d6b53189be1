#include "image/processor.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <tuple>

#include "base/error.h"

namespace inkle::image {
namespace {

// Extended state that the operating system must save, as bits of XCR0.
constexpr std::uint64_t kAvxState = 0x6;
constexpr std::uint64_t kAvx512State = 0xe6;
constexpr std::uint64_t kTileState = 0x600e6;
constexpr std::uint64_t kTileData = 0x40000;  // that a process asks for

struct Feature {
  std::string_view name;  // as LLVM has it
  std::uint32_t leaf;
  std::uint32_t register_number;
  std::uint32_t bit;
  int level;  // of the least instruction set that has it
  std::uint64_t state = 0;
  std::uint32_t subleaf = 0;
};

constexpr std::uint32_t kEax = 0;
constexpr std::uint32_t kEbx = 1;
constexpr std::uint32_t kEcx = 2;
constexpr std::uint32_t kEdx = 3;
constexpr std::uint32_t kExtended = 0x80000001;

// Sorted by name.
constexpr std::array kFeatures = {
    Feature{"amx-bf16", 7, kEdx, 22, 5, kTileState},
    Feature{"amx-tile", 7, kEdx, 24, 5, kTileState},
    Feature{"avx", 1, kEcx, 28, 3, kAvxState},
    Feature{"avx2", 7, kEbx, 5, 3, kAvxState},
    Feature{"avx512bf16", 7, kEax, 5, 5, kAvx512State, 1},
    Feature{"avx512bw", 7, kEbx, 30, 4, kAvx512State},
    Feature{"avx512cd", 7, kEbx, 28, 4, kAvx512State},
    Feature{"avx512dq", 7, kEbx, 17, 4, kAvx512State},
    Feature{"avx512f", 7, kEbx, 16, 4, kAvx512State},
    Feature{"avx512vl", 7, kEbx, 31, 4, kAvx512State},
    Feature{"bmi", 7, kEbx, 3, 3},
    Feature{"bmi2", 7, kEbx, 8, 3},
    Feature{"cx16", 1, kEcx, 13, 3},
    Feature{"f16c", 1, kEcx, 29, 3, kAvxState},
    Feature{"fma", 1, kEcx, 12, 3, kAvxState},
    Feature{"lzcnt", kExtended, kEcx, 5, 3},
    Feature{"movbe", 1, kEcx, 22, 3},
    Feature{"popcnt", 1, kEcx, 23, 3},
    Feature{"sahf", kExtended, kEcx, 0, 3},
    Feature{"sse3", 1, kEcx, 0, 3},
    Feature{"sse4.1", 1, kEcx, 19, 3},
    Feature{"sse4.2", 1, kEcx, 20, 3},
    Feature{"ssse3", 1, kEcx, 9, 3},
    Feature{"xsave", 1, kEcx, 27, 3},  // as the operating system has enabled it
};

constexpr std::array kSets = {InstructionSet{"x86-64-v3", 32, 3},
                              InstructionSet{"x86-64-v4", 64, 4},
                              InstructionSet{"x86-64-v4+amx", 64, 5}};

std::uint32_t register_here(const CpuidBits& wanted) {
  std::array<std::uint32_t, 4> registers{};
  // A leaf beyond the last reads as the last one; its bits mean something else.
  const std::uint32_t last = __get_cpuid_max(wanted.leaf & 0x80000000, nullptr);
  if (last < wanted.leaf || wanted.register_number >= registers.size()) return 0;
  __cpuid_count(wanted.leaf, wanted.subleaf, registers[0], registers[1], registers[2],
                registers[3]);
  return registers[wanted.register_number];
}

// What the operating system saves of a thread's registers; none without XGETBV.
std::uint64_t enabled_state() {
  constexpr std::uint32_t kOsXsave = 1U << 27;
  if ((register_here({1, 0, kEcx, 0}) & kOsXsave) == 0) return 0;
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

// Linux saves tiles of processes that have asked for it; once for all threads.
bool may_use_tiles() {
  constexpr long kAskForState = 0x1023, kTileDataNumber = 18;
  static const bool granted = ::syscall(SYS_arch_prctl, kAskForState, kTileDataNumber) == 0;
  return granted;
}

const Feature* feature_of(const CpuidBits& place, std::uint32_t bit) {
  const auto found = std::find_if(kFeatures.begin(), kFeatures.end(), [&](const Feature& f) {
    return f.leaf == place.leaf && f.subleaf == place.subleaf &&
           f.register_number == place.register_number && f.bit == bit;
  });
  return found == kFeatures.end() ? nullptr : &*found;
}

std::string name_of(const CpuidBits& place, std::uint32_t bit) {
  if (const Feature* const feature = feature_of(place, bit)) return std::string(feature->name);
  return fmt::format("bit {} of register {} of CPUID leaf {:#x}.{}", bit, place.register_number,
                     place.leaf, place.subleaf);
}

}  // namespace

std::span<const InstructionSet> instruction_sets() { return kSets; }

const InstructionSet* instruction_set_named(std::string_view name) {
  for (const InstructionSet& set : kSets) {
    if (set.name == name) return &set;
  }
  return nullptr;
}

const InstructionSet* instruction_set_here() {
  const InstructionSet* greatest = nullptr;
  for (const InstructionSet& set : kSets) {
    if (missing_features(required_bits(set)).empty()) greatest = &set;
  }
  return greatest;
}

std::int32_t vectors_allowed() {
  const char* const given = std::getenv("INKLE_ISA");
  if (given == nullptr || *given == '\0') return 0;
  const std::string_view name = given;
  if (name == "avx2") return 32;
  if (name == "avx512") return 64;
  user_error("INKLE_ISA is '{}', expected avx2 or avx512", name);
}

bool has_tiles() {
  return missing_features(required_bits(*instruction_set_named("x86-64-v4+amx"))).empty();
}

std::vector<CpuidBits> required_bits(const InstructionSet& set) {
  std::vector<CpuidBits> required;
  for (const Feature& f : kFeatures) {
    if (f.level > set.level) continue;
    const auto same = std::find_if(required.begin(), required.end(), [&](const CpuidBits& b) {
      return b.leaf == f.leaf && b.subleaf == f.subleaf && b.register_number == f.register_number;
    });
    if (same != required.end()) {
      same->bits |= 1U << f.bit;
    } else {
      required.push_back({f.leaf, f.subleaf, f.register_number, 1U << f.bit});
    }
  }
  std::sort(required.begin(), required.end(), [](const CpuidBits& a, const CpuidBits& b) {
    return std::tie(a.leaf, a.subleaf, a.register_number) <
           std::tie(b.leaf, b.subleaf, b.register_number);
  });
  return required;
}

std::string feature_text(const InstructionSet& set) {
  std::string text;
  for (const Feature& f : kFeatures) {
    if (f.level <= set.level) text += fmt::format("{}+{}", text.empty() ? "" : ",", f.name);
  }
  return text;
}

std::vector<std::string> feature_names(std::span<const CpuidBits> required) {
  std::vector<std::string> names;
  for (const CpuidBits& wanted : required) {
    for (std::uint32_t bit = 0; bit < 32; ++bit) {
      if ((wanted.bits >> bit & 1) != 0) names.push_back(name_of(wanted, bit));
    }
  }
  return names;
}

std::vector<std::string> missing_features(std::span<const CpuidBits> required) {
  const std::int32_t allowed = vectors_allowed();
  const std::uint64_t usable = allowed == 0    ? ~std::uint64_t{0}
                               : allowed == 32 ? kAvxState
                                               : kAvx512State;
  const std::uint64_t enabled = enabled_state();
  std::vector<std::string> missing;
  for (const CpuidBits& wanted : required) {
    const std::uint32_t here = register_here(wanted);
    for (std::uint32_t bit = 0; bit < 32; ++bit) {
      if ((wanted.bits >> bit & 1) == 0) continue;
      const Feature* const feature = feature_of(wanted, bit);
      const bool has_bit = (here >> bit & 1) != 0;
      const std::uint64_t state = feature == nullptr ? 0 : feature->state;
      const bool is_ruled_out = has_bit && (state & ~usable) != 0;
      const bool is_saved = (enabled & state) == state &&
                            ((state & kTileData) == 0 || is_ruled_out || may_use_tiles());
      if (has_bit && !is_ruled_out && is_saved) continue;
      missing.push_back(name_of(wanted, bit) + (is_ruled_out ? ", which INKLE_ISA rules out" : ""));
    }
  }
  return missing;
}

std::string processor_text() {
  std::vector<std::string_view> features;
  for (const Feature& f : kFeatures) {
    const CpuidBits bits{f.leaf, f.subleaf, f.register_number, 1U << f.bit};
    if (missing_features({&bits, 1}).empty()) features.push_back(f.name);
  }
  const InstructionSet* const set = instruction_set_here();
  return fmt::format("{} with {}", set == nullptr ? "less than x86-64-v3" : set->name,
                     fmt::join(features, ", "));
}

}  // namespace inkle::image
