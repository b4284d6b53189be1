#include "package/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "package/reason.h"

namespace inkle::package {
namespace {

constexpr std::string_view kBuild = "inkle 0.1.0";

std::uint64_t round_up(std::uint64_t value) {
  return (value + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
}

// Text in a field that zeros fill up; nothing if another byte follows a zero.
std::string text_of(std::span<const char> field, std::string_view what) {
  const auto end = std::find(field.begin(), field.end(), '\0');
  const bool is_clean =
      std::all_of(end, field.end(), [](char c) { return c == '\0'; }) &&
      std::all_of(field.begin(), end, [](char c) { return c > 0x20 && c < 0x7f; });
  if (!is_clean) bad_package(Reason::bad_table, "{} is no name", what);
  return {field.begin(), end};
}

Hash hash_of(FileHeader header, std::span<const std::byte> table) {
  header.hash = {};
  std::vector<std::byte> bytes(sizeof header + table.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  std::copy(table.begin(), table.end(), bytes.begin() + sizeof header);
  return hash_of_header(bytes);
}

FileHeader read_start(std::span<const std::byte> file) {
  FileHeader header;
  if (file.size() < sizeof header) {
    bad_package(Reason::truncated, "{} bytes are too few for a header", file.size());
  }
  std::memcpy(&header, file.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    bad_package(Reason::wrong_magic, "this is no .inkle file: it starts with other bytes");
  }
  if (header.format_version != kFormatVersion) {
    bad_package(
        Reason::other_format,
        "the file's format is version {}, this runtime reads version {}: build it again, or "
        "take the runtime that it was built with",
        header.format_version, kFormatVersion);
  }
  if (header.abi_version != kAbiVersion) {
    bad_package(Reason::other_abi,
                "the file was built for ABI {}, this runtime has ABI {}: build it again",
                header.abi_version, kAbiVersion);
  }
  if (header.file_bytes != file.size()) {
    bad_package(file.size() < header.file_bytes ? Reason::truncated : Reason::stray_bytes,
                "the file has {} bytes, its header says {}", file.size(), header.file_bytes);
  }
  if (header.section_count > kMostSections ||
      (file.size() - sizeof header) / sizeof(SectionEntry) < header.section_count) {
    bad_package(Reason::bad_table, "a table of {} sections does not fit the file",
                header.section_count);
  }
  return header;
}

Section read_entry(const SectionEntry& entry, std::size_t number, std::uint64_t end,
                   std::uint64_t file_bytes) {
  const auto kind = static_cast<SectionKind>(entry.kind);
  if (kind < SectionKind::plan || kind > SectionKind::facts) {
    bad_package(Reason::bad_table, "section {} is of unknown kind {}", number, entry.kind);
  }
  if (entry.reserved != 0 || entry.alignment != kSectionAlignment ||
      entry.offset % kSectionAlignment != 0 || entry.offset < end || entry.offset > file_bytes ||
      file_bytes - entry.offset < entry.bytes) {
    bad_package(Reason::bad_table, "section {} lies outside of the file, or on another", number);
  }
  return {kind, text_of(entry.target, fmt::format("the target of section {}", number)),
          entry.offset, entry.bytes, entry.hash};
}

}  // namespace

std::string_view name_of(SectionKind kind) {
  switch (kind) {
    case SectionKind::plan:
      return "plan";
    case SectionKind::code:
      return "code";
    case SectionKind::constants:
      return "constants";
    case SectionKind::weights:
      return "weights";
    case SectionKind::leaves:
      return "leaves";
    case SectionKind::graph:
      return "graph";
    case SectionKind::images:
      return "images";
    case SectionKind::facts:
      return "facts";
  }
  return "?";
}

std::vector<std::byte> write_header(std::vector<Section>& sections, std::span<const Hash> hashes) {
  INKLE_CHECK(sections.size() == hashes.size() && sections.size() <= kMostSections,
              "{} sections with {} hashes", sections.size(), hashes.size());
  FileHeader header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.format_version = kFormatVersion;
  header.abi_version = kAbiVersion;
  header.section_count = static_cast<std::uint32_t>(sections.size());
  std::copy(kBuild.begin(), kBuild.end(), header.build);
  std::vector<SectionEntry> table(sections.size());
  std::uint64_t end = sizeof header + table.size() * sizeof(SectionEntry);
  for (std::size_t i = 0; i < sections.size(); ++i) {
    Section& section = sections[i];
    section.offset = round_up(end);
    section.hash = hashes[i];
    end = section.offset + section.bytes;
    INKLE_CHECK(section.target.size() <= sizeof table[i].target, "target {}", section.target);
    table[i].kind = static_cast<std::uint32_t>(section.kind);
    std::copy(section.target.begin(), section.target.end(), table[i].target);
    table[i].offset = section.offset;
    table[i].bytes = section.bytes;
    table[i].alignment = kSectionAlignment;
    table[i].hash = section.hash;
  }
  header.file_bytes = end;
  const auto table_bytes = std::as_bytes(std::span(table));
  header.hash = hash_of(header, table_bytes);
  std::vector<std::byte> bytes(sizeof header + table_bytes.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  std::copy(table_bytes.begin(), table_bytes.end(), bytes.begin() + sizeof header);
  return bytes;
}

std::vector<Section> read_header(std::span<const std::byte> file) {
  const FileHeader header = read_start(file);
  const auto table = file.subspan(sizeof header, header.section_count * sizeof(SectionEntry));
  if (hash_of(header, table) != header.hash) {
    bad_package(Reason::hash_mismatch,
                "the header or the table of sections is damaged: its hash is another");
  }
  std::vector<Section> sections;
  std::uint64_t end = sizeof header + table.size();
  for (std::size_t i = 0; i < header.section_count; ++i) {
    SectionEntry entry;
    std::memcpy(&entry, table.data() + i * sizeof entry, sizeof entry);
    sections.push_back(read_entry(entry, i, end, file.size()));
    end = entry.offset + entry.bytes;
  }
  if (end != file.size()) {
    bad_package(Reason::stray_bytes, "{} bytes follow the last section", file.size() - end);
  }
  return sections;
}

bool is_of_other_version(std::span<const std::byte> file) {
  FileHeader header;
  if (file.size() < sizeof header) return false;
  std::memcpy(&header, file.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return false;
  if (header.format_version == kFormatVersion && header.abi_version == kAbiVersion) return false;
  // Were it of this version but for the damage, the hash would be that of the repaired header.
  header.format_version = kFormatVersion;
  header.abi_version = kAbiVersion;
  const auto rest = file.subspan(sizeof header);
  if (header.section_count > rest.size() / sizeof(SectionEntry)) return true;
  return hash_of(header, rest.first(header.section_count * sizeof(SectionEntry))) != header.hash;
}

}  // namespace inkle::package
