// What the cache knows of its entries: sizes, order of use, and the fields of each key. A database
// of SQLite with a write-ahead log, which several processes share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace inkle::cache {

// Tables of another layout are in a file with another number, so that versions of Inkle that share
// a folder leave each other's alone. Each knows the entries that it has used or verified.
inline constexpr const char* kIndexName = "index-3.db";

// What an entry depends on, the more general first: ("processor", "znver4,+avx512f"). The last
// field says what the entry is of.
using Key = std::vector<std::pair<std::string, std::string>>;

struct Row {
  std::string name;
  std::uint64_t bytes = 0;
  Key key;
};

struct Miss {
  Key key;
  std::string name;  // of the kernel or graph; may be empty
};

// Nothing here throws: a database that cannot be used (a read-only folder, a full disk) is said
// once on the channel `cache`, and knows nothing. Thread-safe.
class Index {
 public:
  explicit Index(const std::filesystem::path& file);
  ~Index();
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  // What was found or made since, in that order, and keys that were not there; all at once, since
  // each change would wait for the others.
  void update(const std::vector<Row>& used, const std::vector<Miss>& missed);
  void remove(const std::vector<std::string>& names);
  void clear();

  [[nodiscard]] std::uint64_t bytes() const;
  // Without their keys, the least recently used first.
  [[nodiscard]] std::vector<Row> rows() const;
  // The latest misses, the latest first, each with the entry of the same thing that is most like it
  // (empty if there is none), as fields.
  [[nodiscard]] std::vector<std::pair<Miss, Key>> misses() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One line a field, "name=value", line ends of values escaped; and back.
[[nodiscard]] std::string text_of(const Key& key);
[[nodiscard]] Key key_of(const std::string& text);

}  // namespace inkle::cache
