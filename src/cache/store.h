// What compilations leave for later processes: entries by key in a folder of the user's. The folder
// may be deleted at any time, and shared by any number of processes.
//
//   kernels/4f/4f0c...e1.entry    one entry: a file as packages are, named by the hash of its key
//   kernels/4f/.lock-4f0c...e1     the lock of its maker (claim.h)
//   kernels/index-3.db            sizes, order of use, fields of keys (index.h)
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/claim.h"
#include "cache/index.h"

namespace inkle::cache {

class Remote;

inline constexpr std::uint64_t kDefaultLimit = std::uint64_t{2} << 30;  // bytes of entries

// Never fails after it is open: what cannot be read is not there, what cannot be written is not
// kept, either is said once. Thread-safe.
class Store {
 public:
  // Null, with one line of log, if the folder cannot be had, is a link, belongs to another user or
  // may be written by others.
  [[nodiscard]] static std::shared_ptr<Store> open(const std::filesystem::path& folder,
                                                   std::uint64_t limit = kDefaultLimit,
                                                   std::shared_ptr<Remote> remote = nullptr);

  // An entry whose hash is not right is deleted, said once, and not there. One of another version
  // of the format is not there either, and stays until it is replaced. What is not in the folder is
  // asked of the remote cache, and comes into the folder. `made_of`: the name of the kernel or
  // graph, for explain().
  [[nodiscard]] std::optional<std::vector<std::byte>> find(const Key& key,
                                                           std::string_view made_of = {});
  // Replaces what was there; the file is whole or not there. The remote cache gets it too.
  void put(const Key& key, std::span<const std::byte> content);
  // Before an entry that was not found is made. After waiting for another process, look again.
  [[nodiscard]] Claim claim(const Key& key, const WaitWith& wait_with) const;
  // Tells the index what was found, made and missed since, and deletes what is beyond the limit,
  // the least recently used first. After a number of the above.
  void settle();

  struct Stats {
    std::uint64_t entries = 0, bytes = 0, limit = 0;
  };
  [[nodiscard]] Stats stats() const;
  // The remote cache's address and whether it answers; empty if there is none.
  [[nodiscard]] std::string remote_state() const;
  struct Verified {
    std::uint64_t right = 0, deleted = 0, of_other_versions = 0;
  };
  // Reads every entry, deletes what is damaged and what killed processes have left, and makes the
  // index that of the files. Entries of other versions of the format stay.
  Verified verify();
  // How many entries there were.
  std::uint64_t clear();
  // For each of the latest keys that were not there: what it is of, and what it has otherwise than
  // the entry that is most like it.
  [[nodiscard]] std::vector<std::string> explain() const;
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  Store(std::filesystem::path folder, std::uint64_t limit, std::shared_ptr<Remote> remote);
  // From the remote cache.
  [[nodiscard]] std::optional<std::vector<std::byte>> fetch(const std::string& name,
                                                            const Key& key);
  void write(const std::string& name, const Key& key, std::span<const std::byte> file);
  [[nodiscard]] std::filesystem::path path_of(const std::string& name) const;
  // By name; also those that are being written.
  [[nodiscard]] std::vector<std::filesystem::path> files() const;

  std::filesystem::path folder_;
  std::uint64_t limit_;
  std::shared_ptr<Remote> remote_;  // null: none
  Index index_;
  std::mutex mutex_;
  std::vector<Row> used_;  // not yet told to the index
  std::vector<Miss> missed_;
};

// In hexadecimal: for fields of keys that are long.
[[nodiscard]] std::string digest_of(std::string_view text);

// `kernels` in INKLE_CACHE_DIR (empty: none), else in `inkle` of XDG_CACHE_HOME or of ~/.cache; an
// empty path if none of these is set.
[[nodiscard]] std::filesystem::path user_folder();
// The store there, one a process; null if there is none, with one line of log unless
// INKLE_CACHE_DIR is empty. INKLE_CACHE_LIMIT: bytes of its entries;
// INKLE_REMOTE_CACHE: remote_options.h.
[[nodiscard]] std::shared_ptr<Store> user_store();

}  // namespace inkle::cache
