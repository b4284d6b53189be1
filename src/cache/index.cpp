#include "cache/index.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/log.h"
#include "cache/owner.h"

namespace inkle::cache {
namespace {

// For another process that writes, closes the database or makes it.
constexpr std::chrono::milliseconds kWait{500}, kPause{5};
constexpr int kMostMisses = 64;

// The sizes of all entries are added up as entries come, change and go: a sum over the table would
// take the longer the more there are.
constexpr const char* kTables =
    "CREATE TABLE IF NOT EXISTS entries(name TEXT PRIMARY KEY, bytes INTEGER, used INTEGER, "
    "key TEXT) WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS entries_used ON entries(used);"
    "CREATE TABLE IF NOT EXISTS total(one INTEGER PRIMARY KEY CHECK(one = 1), bytes INTEGER);"
    "CREATE TRIGGER IF NOT EXISTS entered AFTER INSERT ON entries BEGIN "
    "INSERT INTO total VALUES(1, new.bytes) "
    "ON CONFLICT(one) DO UPDATE SET bytes = bytes + excluded.bytes; END;"
    "CREATE TRIGGER IF NOT EXISTS changed AFTER UPDATE OF bytes ON entries BEGIN "
    "UPDATE total SET bytes = bytes - old.bytes + new.bytes; END;"
    "CREATE TRIGGER IF NOT EXISTS dropped AFTER DELETE ON entries BEGIN "
    "UPDATE total SET bytes = bytes - old.bytes; END;"
    "CREATE TABLE IF NOT EXISTS misses(number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, "
    "name TEXT);";
// Numbers of use, not times: a clock may be set back.
constexpr const char* kNextUse = "(SELECT coalesce(max(used), 0) + 1 FROM entries)";

class Statement {
 public:
  Statement(sqlite3* database, const std::string& text) {
    if (database != nullptr) {
      sqlite3_prepare_v2(database, text.c_str(), static_cast<int>(text.size()), &statement_,
                         nullptr);
    }
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(int at, const std::string& text) {
    sqlite3_bind_text(statement_, at, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
    return *this;
  }
  Statement& bind(int at, std::uint64_t number) {
    sqlite3_bind_int64(statement_, at, static_cast<sqlite3_int64>(number));
    return *this;
  }
  // Whether there is a row.
  bool step() { return statement_ != nullptr && sqlite3_step(statement_) == SQLITE_ROW; }
  // Whether all went well.
  bool run() { return statement_ != nullptr && sqlite3_step(statement_) == SQLITE_DONE; }
  void reset() { sqlite3_reset(statement_); }
  [[nodiscard]] std::string text(int column) {
    const auto* const data = sqlite3_column_text(statement_, column);
    const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_, column));
    return data == nullptr ? std::string() : std::string(reinterpret_cast<const char*>(data), size);
  }
  [[nodiscard]] std::uint64_t number(int column) {
    return static_cast<std::uint64_t>(sqlite3_column_int64(statement_, column));
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
};

std::size_t likeness(const Key& a, const Key& b) {
  std::size_t same = 0;
  for (const auto& field : a) same += std::count(b.begin(), b.end(), field) > 0 ? 1 : 0;
  return same;
}

// Of the database and what SQLite keeps beside it; empty if all that is there is ours alone.
std::string objection_to_index(const std::filesystem::path& file) {
  for (const char* const suffix : {"", "-wal", "-shm", "-journal"}) {
    const std::string path = file.string() + suffix;
    struct stat facts {};
    if (::lstat(path.c_str(), &facts) != 0) continue;
    if (const std::string objection = objection_to(facts, false); !objection.empty()) {
      return path + " " + objection;
    }
  }
  return {};
}

}  // namespace

struct Index::Impl {
  mutable std::mutex mutex;
  sqlite3* database = nullptr;

  bool run(const char* text) {
    return database != nullptr &&
           sqlite3_exec(database, text, nullptr, nullptr, nullptr) == SQLITE_OK;
  }
  // Without a log, one process at a time may change to it, and SQLite does not wait for that one:
  // each of two could hold what the other needs.
  bool keep_log() {
    const auto end = std::chrono::steady_clock::now() + kWait;
    while (!run("PRAGMA journal_mode=WAL")) {
      if (sqlite3_errcode(database) != SQLITE_BUSY || std::chrono::steady_clock::now() > end) {
        return false;
      }
      std::this_thread::sleep_for(kPause);
    }
    return true;
  }
  // No later call waits for it again.
  void give_up(std::string why = {}) {
    if (why.empty()) why = database == nullptr ? "no memory" : sqlite3_errmsg(database);
    warn("cache.write", "the index of the cache cannot be used: {}", why);
    sqlite3_close_v2(database);
    database = nullptr;
  }
  template <class Changes>
  void together(Changes&& changes) {
    const std::lock_guard lock(mutex);
    if (database == nullptr) return;
    if (!run("BEGIN IMMEDIATE") || !changes() || !run("COMMIT")) {
      give_up();
    }
  }
};

Index::Index(const std::filesystem::path& file) : impl_(std::make_unique<Impl>()) {
  if (std::string objection = objection_to_index(file); !objection.empty()) {
    impl_->give_up(std::move(objection));
    return;
  }
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW;
  const bool is_open = sqlite3_open_v2(file.c_str(), &impl_->database, flags, nullptr) == SQLITE_OK;
  if (is_open) sqlite3_busy_timeout(impl_->database, static_cast<int>(kWait.count()));
  if (is_open && impl_->keep_log() && impl_->run("PRAGMA synchronous=NORMAL") &&
      impl_->run(kTables)) {
    return;
  }
  impl_->give_up();
}

Index::~Index() { sqlite3_close_v2(impl_->database); }

void Index::update(const std::vector<Row>& used, const std::vector<Miss>& missed) {
  if (used.empty() && missed.empty()) return;
  impl_->together([&] {
    Statement put(impl_->database,
                  std::string("INSERT INTO entries VALUES(?1, ?2, ") + kNextUse +
                      ", ?3) ON CONFLICT(name) DO UPDATE SET bytes = excluded.bytes, "
                      "used = excluded.used, key = excluded.key");
    Statement miss(impl_->database, "INSERT INTO misses(key, name) VALUES(?1, ?2)");
    Statement trim(impl_->database,
                   "DELETE FROM misses WHERE number <= (SELECT max(number) FROM misses) - ?1");
    bool is_right = true;
    for (const Row& row : used) {
      put.reset();
      is_right &= put.bind(1, row.name).bind(2, row.bytes).bind(3, text_of(row.key)).run();
    }
    for (const Miss& m : missed) {
      miss.reset();
      is_right &= miss.bind(1, text_of(m.key)).bind(2, m.name).run();
    }
    return trim.bind(1, std::uint64_t{kMostMisses}).run() && is_right;
  });
}

void Index::remove(const std::vector<std::string>& names) {
  if (names.empty()) return;
  impl_->together([&] {
    Statement drop(impl_->database, "DELETE FROM entries WHERE name = ?1");
    return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      drop.reset();
      return drop.bind(1, name).run();
    });
  });
}

void Index::clear() {
  impl_->together([&] { return impl_->run("DELETE FROM entries; DELETE FROM misses"); });
}

std::uint64_t Index::bytes() const {
  const std::lock_guard lock(impl_->mutex);
  Statement sum(impl_->database, "SELECT bytes FROM total");
  return sum.step() ? sum.number(0) : 0;
}

std::vector<Row> Index::rows() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<Row> rows;
  Statement all(impl_->database, "SELECT name, bytes FROM entries ORDER BY used, name");
  while (all.step()) rows.push_back({all.text(0), all.number(1), {}});
  return rows;
}

std::vector<std::pair<Miss, Key>> Index::misses() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<Key> known;
  Statement entries(impl_->database, "SELECT key FROM entries ORDER BY used DESC");
  while (entries.step()) known.push_back(key_of(entries.text(0)));
  std::vector<std::pair<Miss, Key>> result;
  Statement misses(impl_->database, "SELECT key, name FROM misses ORDER BY number DESC");
  while (misses.step()) {
    Key key = key_of(misses.text(0));
    Key nearest;
    for (const Key& k : known) {
      // Of the same thing; an entry of the key itself was made since.
      const bool is_same = !k.empty() && !key.empty() && k.back() == key.back();
      if (is_same && k != key && likeness(k, key) > likeness(nearest, key)) nearest = k;
    }
    result.emplace_back(Miss{std::move(key), misses.text(1)}, std::move(nearest));
  }
  return result;
}

std::string text_of(const Key& key) {
  std::string text;
  for (const auto& [name, value] : key) {
    text += name + "=";
    for (const char c : value) text += c == '\n' ? "\\n" : c == '\\' ? "\\\\" : std::string(1, c);
    text += "\n";
  }
  return text;
}

Key key_of(const std::string& text) {
  Key key;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line(text.data() + at, end - at);
    const std::size_t equals = std::min(line.find('='), line.size());
    std::string value;
    for (std::size_t i = std::min(equals + 1, line.size()); i < line.size(); ++i) {
      const bool is_escaped = line[i] == '\\' && i + 1 < line.size();
      if (is_escaped) ++i;
      value += is_escaped && line[i] == 'n' ? '\n' : line[i];
    }
    key.emplace_back(line.substr(0, equals), std::move(value));
    at = end + 1;
  }
  return key;
}

}  // namespace inkle::cache
