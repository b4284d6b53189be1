#include "cache/redis.h"

#include <hiredis/hiredis.h>
#include <unistd.h>

#include <array>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "cache/socket.h"
#include "cache/tls.h"

namespace inkle::cache {
namespace {

using std::chrono::steady_clock;

// A connection that lay idle for longer may be cut off without a word.
constexpr std::chrono::seconds kMostIdle{30};
constexpr std::size_t kMostRefusal = 200;  // characters of it that are told

// hiredis makes replies through these; what no command of ours is answered with is refused, so that
// a server cannot make it allocate.
void* made(Reply::Kind kind, const char* data, std::size_t size, long long number) {
  try {
    return new Reply{kind, std::string(data, size), number};
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

redisReplyObjectFunctions reply_functions() {
  redisReplyObjectFunctions functions{};
  functions.createString = [](const redisReadTask* task, char* data, std::size_t size) {
    const bool is_refusal = task->type == REDIS_REPLY_ERROR;
    return made(is_refusal ? Reply::Kind::refusal : Reply::Kind::text, data, size, 0);
  };
  // The type of the number of elements is another in each version.
  functions.createArray = [](const redisReadTask*, auto) -> void* { return nullptr; };
  functions.createInteger = [](const redisReadTask*, long long number) {
    return made(Reply::Kind::number, "", 0, number);
  };
  functions.createNil = [](const redisReadTask*) { return made(Reply::Kind::nothing, "", 0, 0); };
  functions.freeObject = [](void* reply) { delete static_cast<Reply*>(reply); };
  return functions;
}

// Of what a server says: for one line of log.
std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, kMostRefusal)) result += c < ' ' || c > '~' ? '?' : c;
  return result;
}

}  // namespace

struct Redis::Impl {
  Impl(const Address& address, std::chrono::milliseconds timeout_, std::size_t most_)
      : timeout(timeout_),
        most(most_),
        tls(address.tls ? std::make_unique<Tls>(*address.tls) : nullptr),
        connecting(timeout_ * 2 / 5),
        socket(address.host, address.port, connecting),
        reader(redisReaderCreateWithFunctions(&functions), redisReaderFree) {
    INKLE_CHECK(reader != nullptr, "hiredis has no memory for a reader");
    if (tls) tls->connect(socket, address.host, connecting);
  }

  void send(std::initializer_list<std::string_view> words, Deadline& deadline) {
    std::vector<const char*> starts;
    std::vector<std::size_t> sizes;
    for (const std::string_view word : words) {
      starts.push_back(word.data());
      sizes.push_back(word.size());
    }
    char* text = nullptr;
    const auto size =
        redisFormatCommandArgv(&text, static_cast<int>(words.size()), starts.data(), sizes.data());
    if (size < 0) user_error("no memory for a command");
    const std::unique_ptr<char, decltype(&redisFreeCommand)> owner(text, redisFreeCommand);
    const std::span<const char> bytes(text, static_cast<std::size_t>(size));
    if (tls) {
      tls->send(socket, bytes, deadline);
    } else {
      socket.send(bytes, deadline);
    }
  }

  Reply receive(Deadline& deadline) {
    std::array<char, 64 << 10> buffer;
    for (std::size_t received = 0;;) {
      if (received > most) user_error("it answers with more than {} bytes", most);
      void* reply = nullptr;
      if (redisReaderGetReply(reader.get(), &reply) != REDIS_OK) {
        user_error("it does not answer as Redis does");
      }
      if (reply != nullptr) {
        const std::unique_ptr<Reply> owner(static_cast<Reply*>(reply));
        return std::move(*owner);
      }
      const std::size_t size =
          tls ? tls->receive(socket, buffer, deadline) : socket.receive(buffer, deadline);
      received += size;
      if (redisReaderFeed(reader.get(), buffer.data(), size) != REDIS_OK) {
        user_error("no memory for its answer");
      }
    }
  }

  std::chrono::milliseconds timeout;
  std::size_t most;
  redisReplyObjectFunctions functions = reply_functions();
  std::unique_ptr<Tls> tls;  // null: none
  Deadline connecting;
  Socket socket;
  std::unique_ptr<redisReader, decltype(&redisReaderFree)> reader;
  pid_t process = ::getpid();
  steady_clock::time_point used = steady_clock::now();
};

Redis::Redis(const Address& address, std::chrono::milliseconds timeout, std::size_t most)
    : impl_(std::make_unique<Impl>(address, timeout, most)) {
  std::optional<Reply> reply;
  if (!address.user.empty()) {
    reply = call({"AUTH", address.user, address.password});
  } else if (!address.password.empty()) {
    reply = call({"AUTH", address.password});
  }
  if (reply && reply->kind != Reply::Kind::text) user_error("password: {}", reply->text);
  if (address.database == 0) return;
  reply = call({"SELECT", std::to_string(address.database)});
  if (reply->kind != Reply::Kind::text) {
    user_error("database {}: {}", address.database, reply->text);
  }
}

Redis::~Redis() = default;

Reply Redis::call(std::initializer_list<std::string_view> words) {
  Deadline deadline(impl_->timeout);
  impl_->send(words, deadline);
  Reply reply = impl_->receive(deadline);
  impl_->used = steady_clock::now();
  if (reply.kind == Reply::Kind::refusal) reply.text = printable(reply.text);
  return reply;
}

bool Redis::is_usable() const {
  return impl_->process == ::getpid() && steady_clock::now() - impl_->used < kMostIdle &&
         impl_->socket.is_quiet() && (!impl_->tls || impl_->tls->is_quiet());
}

}  // namespace inkle::cache
