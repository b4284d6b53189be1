// The bytes of a .inkle file: header, table of sections, sections. docs/package.md has them one by
// one. All numbers are little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "package/hash.h"

namespace inkle::package {

static_assert(std::endian::native == std::endian::little, "files hold numbers as memory does");

// As PNG's: not text, damaged by whatever changes line ends or strips a bit.
inline constexpr char kMagic[8] = {'\x89', 'I', 'N', 'K', '\r', '\n', '\x1a', '\n'};
inline constexpr std::uint32_t kFormatVersion = 1;
// Of what machine code and plan rely on in the runtime: arguments of kernels, status, imports.
inline constexpr std::uint32_t kAbiVersion = 1;
inline constexpr std::uint64_t kSectionAlignment = 4096;
inline constexpr std::uint32_t kMostSections = 1024;

enum class SectionKind : std::uint32_t {
  plan = 1,       // package/plan.fbs, of one target
  code = 2,       // machine code of that target
  constants = 3,  // elements of the plans' constants
  weights = 4,    // elements of the arguments that come with the program
  leaves = 5,     // leaf hashes of the weights
  graph = 6,      // text of the graph
  images = 7,     // machine code of a GPU, one module after the other
  facts = 8,      // what the compiler told of that target's program, as JSON
};
[[nodiscard]] std::string_view name_of(SectionKind kind);

struct FileHeader {
  char magic[8];
  std::uint32_t format_version;
  std::uint32_t abi_version;
  std::uint32_t section_count;
  std::uint32_t reserved;  // 0
  std::uint64_t file_bytes;
  char build[32];  // version of Inkle, for messages; zeros behind it
  Hash hash;       // of header, with zeros here, and table
};
static_assert(sizeof(FileHeader) == 96);

// The table follows the header, sorted by offset; what lies between sections is zeros.
struct SectionEntry {
  std::uint32_t kind;
  std::uint32_t reserved;  // 0
  char target[24];         // "x86-64-v4", "sm_90a" or nothing; zeros behind it
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t alignment;  // of the offset; a power of two
  Hash hash;                // hash_of_section()
};
static_assert(sizeof(SectionEntry) == 88);

struct Section {
  SectionKind kind = SectionKind::plan;
  std::string target;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  Hash hash{};
};

// Sections laid out one after the other, with their hashes: the parts of a file that come before
// its first section's bytes. Offsets and hashes are filled in.
[[nodiscard]] std::vector<std::byte> write_header(std::vector<Section>& sections,
                                                  std::span<const Hash> hashes);

// Checks all that can be checked without the sections' bytes. `file` is the whole file. Throws
// UserError that says what is wrong.
[[nodiscard]] std::vector<Section> read_header(std::span<const std::byte> file);

// Whether an Inkle with another version of the format or the ABI has written the file. The hash
// tells it from a file of this version in which only these numbers are damaged.
[[nodiscard]] bool is_of_other_version(std::span<const std::byte> file);

}  // namespace inkle::package
