#include "cache/entry.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "package/format.h"
#include "package/hash.h"

namespace inkle::cache {
namespace {

constexpr const char* kTarget = "entry";  // of its one section, so that it is no package's

}  // namespace

// Key and content of an entry: sizes of the first, then both.
std::vector<std::byte> pack(const std::string& key, std::span<const std::byte> content) {
  const std::uint64_t size = key.size();
  std::vector<std::byte> data(sizeof size + key.size() + content.size());
  std::memcpy(data.data(), &size, sizeof size);
  std::memcpy(data.data() + sizeof size, key.data(), key.size());
  std::copy(content.begin(), content.end(),
            data.begin() + static_cast<std::ptrdiff_t>(sizeof size + key.size()));
  std::vector<package::Section> sections{
      {.kind = package::SectionKind::code, .target = kTarget, .bytes = data.size()}};
  const std::vector<package::Hash> hashes{package::hash_of_section(data)};
  std::vector<std::byte> file = package::write_header(sections, hashes);
  file.resize(sections[0].offset);
  file.insert(file.end(), data.begin(), data.end());
  return file;
}

Entry unpack(std::span<const std::byte> file) {
  const auto sections = package::read_header(file);
  if (sections.size() != 1 || sections[0].kind != package::SectionKind::code ||
      sections[0].target != kTarget) {
    user_error("it is no entry");
  }
  const auto data = file.subspan(sections[0].offset, sections[0].bytes);
  if (package::hash_of_section(data) != sections[0].hash) user_error("its hash is another");
  std::uint64_t size = 0;
  if (data.size() < sizeof size) user_error("it has no key");
  std::memcpy(&size, data.data(), sizeof size);
  if (size > data.size() - sizeof size) user_error("its key is too long");
  const auto* const text = reinterpret_cast<const char*>(data.data()) + sizeof size;
  const auto content = data.subspan(sizeof size + size);
  return {std::string(text, size), {content.begin(), content.end()}};
}

}  // namespace inkle::cache
