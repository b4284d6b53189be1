#include "cache/remote.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "cache/socket.h"
#include "package/mac.h"

namespace inkle::cache {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kPrefix = "inkle:entry:";
constexpr std::size_t kMostReply = kMostRemoteBytes + 4096;  // with MAC and protocol
// What a command may take on any network; what is beyond it is patience, which ends.
constexpr milliseconds kUnnoticed{20};
constexpr int kPatience = 4;  // timeouts

}  // namespace

std::vector<std::byte> seal(const package::Hash& secret, std::string_view key,
                            std::span<const std::byte> file) {
  const package::Hash mac = package::mac_of(secret, {std::as_bytes(std::span(key)), file});
  std::vector<std::byte> sealed(mac.begin(), mac.end());
  sealed.insert(sealed.end(), file.begin(), file.end());
  return sealed;
}

std::optional<std::vector<std::byte>> unseal(const package::Hash& secret, std::string_view key,
                                             std::span<const std::byte> sealed) {
  package::Hash mac;
  if (sealed.size() < mac.size()) return {};
  std::copy_n(sealed.begin(), mac.size(), mac.begin());
  const auto file = sealed.subspan(mac.size());
  const package::Hash right = package::mac_of(secret, {std::as_bytes(std::span(key)), file});
  if (!package::is_same_mac(mac, right)) return {};
  return std::vector<std::byte>(file.begin(), file.end());
}

Remote::Remote(RemoteOptions options)
    : options_(std::move(options)), patience_(options_.timeout * kPatience) {}

Remote::~Remote() = default;

std::shared_ptr<Remote> Remote::of_environment() {
  try {
    auto options = remote_options();
    return options ? std::make_shared<Remote>(std::move(*options)) : nullptr;
  } catch (const UserError& error) {
    warn("cache.remote", "the remote cache is not used: {}", error.what());
    return nullptr;
  }
}

std::optional<std::vector<std::byte>> Remote::find(const std::string& name, std::string_view key) {
  const Deadline time(options_.timeout);
  const std::lock_guard lock(mutex_);
  const auto reply = call({"GET", fmt::format("{}{}", kPrefix, name)}, 0);
  if (!reply || reply->kind == Reply::Kind::nothing) return {};
  if (reply->kind != Reply::Kind::text) {
    give_up(reply->kind == Reply::Kind::refusal ? reply->text : "it answers with a number");
    return {};
  }
  auto file = unseal(options_.key, key, std::as_bytes(std::span(reply->text)));
  if (!file) {
    refuse(name, "it was changed, or signed with another secret");
    spend(time.used());
  }
  return file;
}

void Remote::put(const std::string& name, std::string_view key, std::span<const std::byte> file) {
  if (file.size() > kMostRemoteBytes) {
    log(LogChannel::cache, "an entry of {} bytes is too large for the remote cache", file.size());
    return;
  }
  const std::lock_guard lock(mutex_);
  if (is_left_alone_ || !takes_entries_) return;
  const auto sealed = seal(options_.key, key, file);
  const auto reply = call({"SET",
                           fmt::format("{}{}", kPrefix, name),
                           {reinterpret_cast<const char*>(sealed.data()), sealed.size()},
                           "EX",
                           std::to_string(options_.expiry.count())},
                          sealed.size());
  if (!reply || reply->kind == Reply::Kind::text) return;
  takes_entries_ = false;  // those that are there may be read all the same
  warn("cache.remote.write", "the remote cache {} takes no entries: {}", text_of(options_.address),
       reply->text);
}

void Remote::refuse(const std::string& name, std::string_view why) const {
  warn("cache.remote.entry", "an entry of the remote cache {} is refused: {}: {}",
       text_of(options_.address), name, why);
}

std::string Remote::state() {
  const std::lock_guard lock(mutex_);
  const std::string address = text_of(options_.address);
  try {
    const Reply reply = connection().call({"DBSIZE"});
    if (reply.kind == Reply::Kind::number) {
      return fmt::format("{}: reachable, {} keys in its database", address, reply.number);
    }
    return fmt::format("{}: {}", address, reply.text);
  } catch (const std::exception& error) {
    return fmt::format("{}: {}", address, error.what());
  }
}

std::optional<Reply> Remote::call(std::initializer_list<std::string_view> words,
                                  std::size_t bytes) {
  if (is_left_alone_) return {};
  try {
    Deadline time(options_.timeout);
    Reply reply = connection().call(words);
    time.moved(bytes + reply.text.size());
    spend(std::max(time.used() - kUnnoticed, milliseconds(0)));
    return reply;
  } catch (const std::exception& error) {  // no thread, no memory: no reason to stop either
    give_up(error.what());
    return {};
  }
}

Redis& Remote::connection() {
  if (connection_ == nullptr || !connection_->is_usable()) {
    connection_.reset();
    connection_ = std::make_unique<Redis>(options_.address, options_.timeout, kMostReply);
  }
  return *connection_;
}

void Remote::spend(milliseconds time) {
  patience_ -= time;
  if (patience_ < milliseconds(0)) give_up("it is slow");
}

void Remote::give_up(std::string_view why) {
  if (is_left_alone_) return;
  is_left_alone_ = true;
  connection_.reset();
  warn("cache.remote", "the remote cache {} is left alone by this process: {}",
       text_of(options_.address), why);
}

}  // namespace inkle::cache
