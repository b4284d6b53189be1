// The file of an entry: as packages are (docs/package.md), with one section of key and content.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace inkle::cache {

struct Entry {
  std::string key;
  std::vector<std::byte> content;
};

[[nodiscard]] std::vector<std::byte> pack(const std::string& key,
                                          std::span<const std::byte> content);
// Throws UserError for what pack() has not made.
[[nodiscard]] Entry unpack(std::span<const std::byte> file);

}  // namespace inkle::cache
