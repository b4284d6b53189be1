// Which processors machine code runs on: the instruction sets that packages are made for, and the
// features of this processor, as CPUID tells them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace inkle::image {

// Bits of one register of one CPUID leaf that must be set.
struct CpuidBits {
  std::uint32_t leaf = 0;
  std::uint32_t subleaf = 0;
  std::uint32_t register_number = 0;  // eax, ebx, ecx, edx
  std::uint32_t bits = 0;
  friend bool operator==(const CpuidBits&, const CpuidBits&) = default;
};

// An instruction set of the x86-64 psABI's levels, or the last of them with tiles (AMX) of bf16.
struct InstructionSet {
  std::string_view name;  // "x86-64-v3", as LLVM names it; "x86-64-v4+amx"
  std::int32_t vector_bytes = 0;
  std::int32_t level = 0;  // the psABI's; 5 with tiles
};

// From the least to the greatest.
[[nodiscard]] std::span<const InstructionSet> instruction_sets();
// Null for an unknown name.
[[nodiscard]] const InstructionSet* instruction_set_named(std::string_view name);
// The greatest that this processor has and vectors_allowed() lets it use; null if there is none.
[[nodiscard]] const InstructionSet* instruction_set_here();

// Bytes of the widest vectors that INKLE_ISA allows: 32 (avx2), 64 (avx512, without tiles), or 0
// where it is not set. UserError for another value.
[[nodiscard]] std::int32_t vectors_allowed();
// Whether the processor multiplies tiles of bf16 and this process may: the operating system is
// asked once.
[[nodiscard]] bool has_tiles();

// What an instruction set needs, sorted by leaf, subleaf and register.
[[nodiscard]] std::vector<CpuidBits> required_bits(const InstructionSet& set);
// "+avx,+avx2,...", sorted, as LLVM names the features.
[[nodiscard]] std::string feature_text(const InstructionSet& set);

// Names of the required features, in the bits' order.
[[nodiscard]] std::vector<std::string> feature_names(std::span<const CpuidBits> required);

// Names of the required features that this processor, or its operating system, lacks, or that
// vectors_allowed() rules out; empty: none.
// Bits that have no name here are told by their numbers, in either list.
[[nodiscard]] std::vector<std::string> missing_features(std::span<const CpuidBits> required);

// "x86-64-v3 with avx, avx2, ...": the greatest instruction set here, and all features that have a
// name and are not missing.
[[nodiscard]] std::string processor_text();

}  // namespace inkle::image
