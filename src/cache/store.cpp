#include "cache/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/log.h"
#include "cache/entry.h"
#include "cache/owner.h"
#include "cache/remote.h"
#include "package/format.h"
#include "package/hash.h"

namespace inkle::cache {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".entry";
constexpr std::string_view kPart = ".part-";
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;  // of an entry

std::string name_of(const Key& key) { return digest_of(text_of(key)); }

std::string make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return std::strerror(errno);
  struct stat facts {};
  if (::lstat(folder.c_str(), &facts) != 0) return std::strerror(errno);
  return objection_to(facts, true);
}

// Whether the folder that an entry lies in is a folder of ours. Where it is a link, what lies
// behind it is not ours to read or delete.
bool is_reachable(const fs::path& entry) {
  struct stat facts {};
  const fs::path folder = entry.parent_path();
  if (::lstat(folder.c_str(), &facts) != 0) return errno == ENOENT;
  const std::string objection = objection_to(facts, true);
  if (objection.empty()) return true;
  warn("cache.write", "a folder of the cache is not used: {}: {}", folder.string(), objection);
  return false;
}

// Nothing if there is no such file; throws UserError for one that is not to be trusted.
std::optional<std::vector<std::byte>> read_file(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file.number() < 0 && errno == ENOENT) return {};
  struct stat facts {};
  if (file.number() < 0 || ::fstat(file.number(), &facts) != 0) {
    user_error("{}", std::strerror(errno));
  }
  if (const std::string objection = objection_to(facts, false); !objection.empty()) {
    user_error("it {}", objection);
  }
  if (static_cast<std::uint64_t>(facts.st_size) > kMostBytes) user_error("it is too large");
  std::vector<std::byte> bytes(static_cast<std::size_t>(facts.st_size));
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t done = ::read(file.number(), bytes.data() + at, bytes.size() - at);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) user_error("it is shorter than it was");
    at += static_cast<std::size_t>(done);
  }
  return bytes;
}

// Written beside under a name of this process and renamed.
bool write_file(const fs::path& path, std::span<const std::byte> bytes) {
  static std::atomic<std::uint64_t> count = 0;
  const fs::path part =
      path.parent_path() / fmt::format("{}{}-{}", kPart, ::getpid(), count.fetch_add(1));
  bool is_whole = false;
  {
    const Descriptor file(
        ::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file.number() < 0) return false;
    std::size_t at = 0;
    while (at < bytes.size()) {
      const ssize_t done = ::write(file.number(), bytes.data() + at, bytes.size() - at);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) break;
      at += static_cast<std::size_t>(done);
    }
    is_whole = at == bytes.size();
  }
  if (is_whole && ::rename(part.c_str(), path.c_str()) == 0) return true;
  const int error = errno;
  ::unlink(part.c_str());
  errno = error;
  return false;
}

// Whether no process holds this lock.
bool is_unlocked(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return file.number() >= 0 && ::flock(file.number(), LOCK_EX | LOCK_NB) == 0;
}

// Of a file that a process is writing; whether that process is gone.
bool is_abandoned(const std::string& name) {
  int process = 0;
  const char* const first = name.data() + kPart.size();
  const auto [end, error] = std::from_chars(first, name.data() + name.size(), process);
  return error != std::errc() || (::kill(process, 0) != 0 && errno == ESRCH);
}

// "kernel softmax_0 4f0c12ab34cd": what, its name and its digest; other values whole.
std::string what_missed(const Miss& miss) {
  constexpr std::size_t kDigits = 12, kLeastDigest = 32, kMostText = 80;
  const auto& [what, value] = miss.key.back();
  const bool is_digest = value.size() >= kLeastDigest &&
                         value.find_first_not_of("0123456789abcdef") == std::string::npos;
  return fmt::format("{}{}{} {}", what, miss.name.empty() ? "" : " ", miss.name,
                     value.substr(0, is_digest ? kDigits : kMostText));
}

// "machine: 3 threads, not 1 threads".
std::string why_missed(const Miss& miss, const Key& nearest) {
  if (nearest.empty()) return fmt::format("no other entry is of this {}", miss.key.back().first);
  constexpr std::string_view kNothing = "nothing";
  const auto value_of = [&](const Key& key, const std::string& name) {
    const auto at = std::find_if(key.begin(), key.end(),
                                 [&](const auto& field) { return field.first == name; });
    return at == key.end() ? kNothing : std::string_view(at->second);
  };
  std::string line;
  const auto add = [&](const std::string& name) {
    const std::string_view wanted = value_of(miss.key, name), found = value_of(nearest, name);
    if (wanted == found) return;
    line += fmt::format("{}{}: {}, not {}", line.empty() ? "" : "; ", name, wanted, found);
  };
  for (const auto& [name, value] : miss.key) add(name);
  for (const auto& [name, value] : nearest) {
    if (value_of(miss.key, name) == kNothing) add(name);
  }
  return line;
}

}  // namespace

std::string digest_of(std::string_view text) {
  const package::Hash hash = package::hash_of_section(std::as_bytes(std::span(text)));
  std::string digits;
  for (const std::byte b : hash) digits += fmt::format("{:02x}", static_cast<unsigned>(b));
  return digits;
}

Store::Store(fs::path folder, std::uint64_t limit, std::shared_ptr<Remote> remote)
    : folder_(std::move(folder)),
      limit_(limit),
      remote_(std::move(remote)),
      index_(folder_ / kIndexName) {}

std::shared_ptr<Store> Store::open(const fs::path& folder, std::uint64_t limit,
                                   std::shared_ptr<Remote> remote) {
  if (const std::string objection = make_folder(folder); !objection.empty()) {
    warn("cache.folder", "nothing is cached: {}: {}", folder.string(), objection);
    return nullptr;
  }
  return std::shared_ptr<Store>(new Store(folder, limit, std::move(remote)));
}

fs::path Store::path_of(const std::string& name) const {
  return folder_ / name.substr(0, 2) / (name + std::string(kSuffix));
}

std::optional<std::vector<std::byte>> Store::find(const Key& key, std::string_view made_of) {
  const std::string name = name_of(key);
  if (!is_reachable(path_of(name))) {
    const std::lock_guard lock(mutex_);
    missed_.push_back({key, std::string(made_of)});
    return {};
  }
  try {
    const auto file = read_file(path_of(name));
    if (file && !package::is_of_other_version(*file)) {
      Entry entry = unpack(*file);
      if (entry.key != text_of(key)) user_error("it is of another key");
      const std::lock_guard lock(mutex_);
      used_.push_back({name, file->size(), key});
      return std::move(entry.content);
    }
  } catch (const UserError& error) {
    warn("cache.damaged", "an entry of the cache is deleted and made anew: {}: {}",
         path_of(name).string(), error.what());
    ::unlink(path_of(name).c_str());
  }
  if (auto content = fetch(name, key)) return content;
  const std::lock_guard lock(mutex_);
  missed_.push_back({key, std::string(made_of)});
  return {};
}

std::optional<std::vector<std::byte>> Store::fetch(const std::string& name, const Key& key) {
  if (remote_ == nullptr) return {};
  const std::string text = text_of(key);
  const auto file = remote_->find(name, text);
  if (!file) return {};
  try {
    Entry entry = unpack(*file);
    if (entry.key != text) user_error("it is of another key");
    write(name, key, *file);
    log(LogChannel::cache, "{} is taken from the remote cache", key.back().first);
    return std::move(entry.content);
  } catch (const UserError& error) {
    remote_->refuse(name, error.what());
    return {};
  }
}

void Store::put(const Key& key, std::span<const std::byte> content) {
  const std::string name = name_of(key), text = text_of(key);
  const std::vector<std::byte> file = pack(text, content);
  write(name, key, file);
  if (remote_ != nullptr) remote_->put(name, text, file);
}

void Store::write(const std::string& name, const Key& key, std::span<const std::byte> file) {
  const fs::path path = path_of(name);
  const std::string objection = make_folder(path.parent_path());
  if (!objection.empty() || file.size() > kMostBytes || !write_file(path, file)) {
    warn("cache.write", "an entry of the cache cannot be written: {}: {}", path.string(),
         objection.empty() ? std::strerror(errno) : objection);
    return;
  }
  const std::lock_guard lock(mutex_);
  used_.push_back({name, file.size(), key});
}

Claim Store::claim(const Key& key, const WaitWith& wait_with) const {
  const auto patience = user_patience();
  const std::string name = name_of(key);
  const fs::path entry = path_of(name);
  if (patience.count() == 0 || !make_folder(entry.parent_path()).empty()) return {};
  return {entry.parent_path() / (kLock + name), patience, wait_with};
}

void Store::settle() {
  std::vector<Row> used;
  std::vector<Miss> missed;
  {
    const std::lock_guard lock(mutex_);
    used.swap(used_);
    missed.swap(missed_);
  }
  index_.update(used, missed);
  std::uint64_t bytes = index_.bytes();
  if (bytes <= limit_) return;
  std::vector<std::string> dropped;
  for (const Row& row : index_.rows()) {
    if (bytes <= limit_ / 10 * 9) break;
    ::unlink(path_of(row.name).c_str());
    dropped.push_back(row.name);
    bytes -= std::min(bytes, row.bytes);
  }
  index_.remove(dropped);
}

std::vector<fs::path> Store::files() const {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& folder : fs::directory_iterator(folder_, error)) {
    if (!folder.is_directory(error) || folder.is_symlink(error)) continue;
    for (const auto& file : fs::directory_iterator(folder.path(), error)) {
      found.push_back(file.path());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

Store::Stats Store::stats() const {
  Stats stats{.limit = limit_};
  for (const fs::path& path : files()) {
    if (path.extension() != kSuffix) continue;
    std::error_code error;
    const auto bytes = fs::file_size(path, error);
    if (error) continue;
    ++stats.entries;
    stats.bytes += bytes;
  }
  return stats;
}

std::string Store::remote_state() const { return remote_ == nullptr ? "" : remote_->state(); }

Store::Verified Store::verify() {
  settle();
  Verified result;
  std::vector<Row> gone = index_.rows(), found;
  for (const fs::path& path : files()) {
    const std::string file_name = path.filename().string();
    if (file_name.starts_with(kPart)) {
      if (is_abandoned(file_name) && ::unlink(path.c_str()) == 0) ++result.deleted;
      continue;
    }
    if (file_name.starts_with(kLock)) {
      if (is_unlocked(path) && ::unlink(path.c_str()) == 0) ++result.deleted;
      continue;
    }
    const std::string name = path.stem().string();
    try {
      const auto file = read_file(path);
      if (!file) continue;  // another process has deleted it
      if (package::is_of_other_version(*file)) {
        ++result.of_other_versions;
        continue;
      }
      const Key key = key_of(unpack(*file).key);
      if (path != path_of(name) || name_of(key) != name) user_error("its name is another's");
      ++result.right;
      const auto known =
          std::find_if(gone.begin(), gone.end(), [&](const Row& row) { return row.name == name; });
      if (known == gone.end()) {
        found.push_back({name, file->size(), key});
      } else {
        gone.erase(known);
      }
    } catch (const UserError& error) {
      log(LogChannel::cache, "{} is deleted: {}", path.string(), error.what());
      ::unlink(path.c_str());
      ++result.deleted;
    }
  }
  std::vector<std::string> names;
  for (const Row& row : gone) names.push_back(row.name);
  index_.update(found, {});
  index_.remove(names);
  return result;
}

std::uint64_t Store::clear() {
  settle();
  std::uint64_t entries = 0;
  for (const fs::path& path : files()) {
    if (::unlink(path.c_str()) == 0 && path.extension() == kSuffix) ++entries;
  }
  index_.clear();
  return entries;
}

std::vector<std::string> Store::explain() const {
  std::vector<std::string> lines;
  for (const auto& [miss, nearest] : index_.misses()) {
    if (!miss.key.empty()) lines.push_back(what_missed(miss) + ": " + why_missed(miss, nearest));
  }
  return lines;
}

fs::path user_folder() {
  if (const char* given = std::getenv("INKLE_CACHE_DIR"); given != nullptr) {
    return *given == '\0' ? fs::path() : fs::path(given) / "kernels";
  }
  if (const char* given = std::getenv("XDG_CACHE_HOME"); given != nullptr && *given != '\0') {
    return fs::path(given) / "inkle" / "kernels";
  }
  const char* const home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return fs::path(home) / ".cache" / "inkle" / "kernels";
}

std::shared_ptr<Store> user_store() {
  static const std::shared_ptr<Store> store = []() -> std::shared_ptr<Store> {
    const fs::path folder = user_folder();
    if (folder.empty()) {
      if (std::getenv("INKLE_CACHE_DIR") == nullptr) {
        warn("cache.folder",
             "nothing is cached: there is no home folder; set HOME, or INKLE_CACHE_DIR to a folder "
             "of yours (or to nothing, to do without)");
      }
      return nullptr;
    }
    std::uint64_t limit = kDefaultLimit;
    if (const char* text = std::getenv("INKLE_CACHE_LIMIT"); text != nullptr) {
      const auto [end, error] = std::from_chars(text, text + std::strlen(text), limit);
      if (error != std::errc() || *end != '\0') {
        limit = kDefaultLimit;
        warn("cache.limit", "INKLE_CACHE_LIMIT: {} is no number of bytes", text);
      }
    }
    return Store::open(folder, limit, Remote::of_environment());
  }();
  return store;
}

}  // namespace inkle::cache
