// The remote cache against servers that are right, slow, broken and hostile: what it gives is what
// was put with our secret, or nothing; what is wrong is said once and costs a bounded time.
#include "cache/remote.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "cache/store.h"
#include "package/mac.h"

namespace inkle::cache {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Words = std::vector<std::string>;

std::string bulk(const std::string& text) {
  return fmt::format("${}\r\n{}\r\n", text.size(), text);
}

// Answers each command with what `answer` makes of it, one after the other. An empty answer closes
// the connection, "..." is never followed by anything, "~" by a byte now and then, "." closes it
// behind the answer.
class Server {
 public:
  using Answer = std::function<std::string(const Words&)>;
  explicit Server(Answer answer)
      : answer_(std::move(answer)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ::ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    for (const int connection : connections_) ::shutdown(connection, SHUT_RDWR);
    for (std::thread& thread : threads_) thread.join();
    for (const int connection : connections_) ::close(connection);
    ::close(listener_);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] int connections() const { return accepted_; }
  [[nodiscard]] int commands() const { return commands_; }

 private:
  void serve() {
    while (true) {
      const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      ++accepted_;
      connections_.push_back(connection);
      threads_.emplace_back([this, connection] {
        while (answer_one(connection)) {
        }
        ::shutdown(connection, SHUT_RDWR);
      });
    }
  }
  bool answer_one(int connection) {
    const auto words = read_command(connection);
    if (words.empty()) return false;
    std::string answer;
    {
      const std::lock_guard lock(mutex_);
      ++commands_;
      answer = answer_(words);
    }
    const bool is_silent = answer.ends_with("..."), is_last = answer.ends_with(".");
    const bool is_slow = answer.ends_with("~");
    answer.resize(answer.size() - (is_silent ? 3 : is_last || is_slow ? 1 : 0));
    for (std::size_t at = 0; at < answer.size();) {
      const ssize_t done = ::send(connection, answer.data() + at, answer.size() - at, MSG_NOSIGNAL);
      if (done <= 0) return false;
      at += static_cast<std::size_t>(done);
    }
    char byte = 0;
    while (is_slow && ::send(connection, "x", 1, MSG_NOSIGNAL) == 1) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    if (is_silent) return ::recv(connection, &byte, 1, 0) > 0;
    return !answer.empty() && !is_last && !is_slow;
  }
  static std::string read_line(int connection) {
    std::string line;
    char c = 0;
    while (!line.ends_with("\r\n") && ::recv(connection, &c, 1, 0) == 1) line += c;
    return line.size() < 2 ? "" : line.substr(1, line.size() - 3);
  }
  static Words read_command(int connection) {
    const std::string count = read_line(connection);
    Words words(count.empty() ? 0 : std::stoul(count));
    for (std::string& word : words) {
      word.resize(std::stoul("0" + read_line(connection)) + 2);
      if (::recv(connection, word.data(), word.size(), MSG_WAITALL) <= 0) return {};
      word.resize(word.size() - 2);
    }
    return words;
  }

  Answer answer_;
  int listener_;
  std::uint16_t port_ = 0;
  std::atomic<int> accepted_ = 0, commands_ = 0;
  std::mutex mutex_;
  std::vector<int> connections_;      // of thread_, until it ends
  std::vector<std::thread> threads_;  // likewise
  std::thread thread_;
};

// As Redis does.
class Honest {
 public:
  std::string operator()(const Words& words) {
    if (words[0] == "GET") {
      const auto found = values.find(words[1]);
      return found == values.end() ? "$-1\r\n" : bulk(found->second);
    }
    if (words[0] == "DBSIZE") return fmt::format(":{}\r\n", values.size());
    if (words[0] == "SET") values[words[1]] = words[2], expiry = words[3] + " " + words[4];
    if (words[0] == "AUTH") password = words.back();
    if (words[0] == "SELECT") database = words[1];
    return "+OK\r\n";
  }
  std::map<std::string, std::string> values;
  std::string expiry, password, database;
};

class RemoteTest : public testing::Test {
 protected:
  RemoteTest() {
    set_log_sink([this](std::string_view line) { lines_.emplace_back(line); });
    reset_warnings();
  }
  ~RemoteTest() override {
    set_log_sink({});
    fs::remove_all(root_);
  }
  static RemoteOptions options(std::uint16_t port, const std::string& secret = "0123456789abcdef") {
    RemoteOptions made;
    made.address = {"127.0.0.1", port, "", "", 0};
    made.key = key_of_secret(secret);
    made.timeout = milliseconds(5000);  // a test machine may be busy
    return made;
  }
  // A machine: a folder of its own.
  std::shared_ptr<Store> open(const std::string& machine, const RemoteOptions& remote) {
    fs::create_directories(root_);
    return Store::open(root_ / machine, kDefaultLimit, std::make_shared<Remote>(remote));
  }
  // A store of this server gives nothing, keeps what is put, says one line, and that soon.
  void expect_harmless(Server::Answer answer, const std::string& said,
                       milliseconds most = milliseconds(1500)) {
    lines_.clear();
    reset_warnings();
    fs::remove_all(root_);
    const Server server(std::move(answer));
    const auto start = steady_clock::now();
    RemoteOptions remote = options(server.port());
    remote.timeout = milliseconds(200);
    const auto store = open("a", remote);
    for (const Key& key : keys_) {
      EXPECT_EQ(store->find(key), std::nullopt) << said;
      store->put(key, content_);
    }
    for (const Key& key : keys_) EXPECT_EQ(store->find(key), content_) << said;
    EXPECT_LT(steady_clock::now() - start, most) << said;
    ASSERT_THAT(lines_, ElementsAre(HasSubstr(said)));
    EXPECT_THAT(lines_[0], HasSubstr(fmt::format("redis://127.0.0.1:{}/0", server.port())));
  }

  const fs::path root_ =
      fs::temp_directory_path() / fmt::format("inkle_remote_test_{}", ::getpid());
  const std::vector<Key> keys_{{{"kernel", "a"}}, {{"kernel", "b"}}, {{"kernel", "c"}}};
  const std::vector<std::byte> content_ = std::vector<std::byte>(3000, std::byte{7});
  std::vector<std::string> lines_;
};

// By another implementation: hashlib.blake2b of Python.
TEST(RemoteSeal, IsKeyedBlake2b) {
  const std::string key = "name=value\n", content = "content";
  const auto mac =
      package::mac_of(package::mac_key_of("correct horse battery"),
                      {std::as_bytes(std::span(key)), std::as_bytes(std::span(content))});
  std::string digits;
  for (const std::byte b : mac) digits += fmt::format("{:02x}", static_cast<unsigned>(b));
  EXPECT_EQ(digits, "30069081e179526c5c8dfb0ebe76c3cfbbb5f507245a634a1bae7202b5c1ddb8");
}

TEST(RemoteSeal, OpensWithTheSameSecretAndKeyAlone) {
  const auto secret = key_of_secret("0123456789abcdef");
  const std::vector<std::byte> file(100, std::byte{3});
  const auto sealed = seal(secret, "key", file);
  EXPECT_EQ(unseal(secret, "key", sealed), file);
  EXPECT_EQ(unseal(secret, "", seal(secret, "", {})), std::vector<std::byte>());
  EXPECT_EQ(unseal(key_of_secret("0123456789abcdeF"), "key", sealed), std::nullopt);
  EXPECT_EQ(unseal(secret, "kez", sealed), std::nullopt);
  for (std::size_t bit = 0; bit < sealed.size() * 8; ++bit) {
    auto bad = sealed;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_EQ(unseal(secret, "key", bad), std::nullopt) << bit;
  }
  for (std::size_t size = 0; size < sealed.size(); ++size) {
    ASSERT_EQ(unseal(secret, "key", std::span(sealed).first(size)), std::nullopt) << size;
  }
  auto longer = sealed;
  longer.emplace_back();
  EXPECT_EQ(unseal(secret, "key", longer), std::nullopt);
  // A byte of the key is none of the file.
  const std::vector<std::byte> y{std::byte{'y'}};
  const auto moved = seal(secret, "x", y);
  auto other = seal(secret, "xy", {});
  other.push_back(std::byte{'y'});
  EXPECT_EQ(unseal(secret, "x", moved), y);
  EXPECT_EQ(unseal(secret, "x", other), std::nullopt);
}

TEST_F(RemoteTest, AnotherMachineTakesWhatWasPut) {
  Honest honest;
  const Server server(std::ref(honest));
  RemoteOptions remote = options(server.port());
  remote.address.password = "hunter2";
  remote.address.database = 5;
  EXPECT_EQ(open("a", remote)->find(keys_[0]), std::nullopt);
  open("a", remote)->put(keys_[0], content_);
  EXPECT_EQ(honest.values.size(), 1U);
  EXPECT_EQ(honest.expiry, "EX 2592000");
  EXPECT_EQ(honest.password, "hunter2");
  EXPECT_EQ(honest.database, "5");
  EXPECT_EQ(open("b", remote)->find(keys_[0]), content_);
  EXPECT_EQ(open("b", remote)->find(keys_[1]), std::nullopt);
  const int commands = server.commands();
  EXPECT_EQ(open("b", remote)->find(keys_[0]), content_);  // from its own folder now
  EXPECT_EQ(server.commands(), commands);
  EXPECT_EQ(open("b", remote)->verify().right, 1U);
  EXPECT_EQ(
      open("b", remote)->remote_state(),
      fmt::format("redis://127.0.0.1:{}/5: reachable, 1 keys in its database", server.port()));
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(RemoteTest, WhatIsNotSignedIsRefusedAndReplaced) {
  Honest honest;
  const Server server(std::ref(honest));
  open("a", options(server.port()))->put(keys_[0], content_);
  open("a", options(server.port()))->put(keys_[1], std::vector<std::byte>(10));
  auto& first = honest.values.begin()->second;
  auto& second = std::next(honest.values.begin())->second;
  const std::string good_first = first, good_second = second;
  int machine = 0;
  const auto expect_refused = [&](const std::string& what) {
    lines_.clear();
    reset_warnings();
    const auto store = open(fmt::format("machine{}", ++machine), options(server.port()));
    EXPECT_EQ(store->find(keys_[0]), std::nullopt) << what;
    EXPECT_EQ(store->find(keys_[1]), std::nullopt) << what;
    EXPECT_THAT(lines_, ElementsAre(HasSubstr("is refused"))) << what;
    EXPECT_EQ(store->stats().entries, 0U);
  };
  std::swap(first, second);
  expect_refused("entries of other keys");
  first = second = "";
  expect_refused("empty");
  first = second = std::string(100, 'x');
  expect_refused("other bytes");
  first = good_first.substr(0, good_first.size() - 1);
  second = good_second.substr(0, 40);
  expect_refused("truncated");
  first = good_first + "x";
  second = good_second;
  second[second.size() / 2] ^= 1;
  expect_refused("changed");
  first = good_first.substr(32);
  second = good_second.substr(32);
  expect_refused("without signature");
  // Signed with our secret, but no file of an entry.
  for (const Key& key : {keys_[0], keys_[1]}) {
    const auto made = seal(options(0).key, text_of(key), std::vector<std::byte>(50));
    auto& value = honest.values.at("inkle:entry:" + digest_of(text_of(key)));
    value.assign(reinterpret_cast<const char*>(made.data()), made.size());
  }
  expect_refused("no entry");
  // Signed with our secret under this key, but an entry of another one.
  const std::string name = "inkle:entry:" + digest_of(text_of(keys_[0]));
  const std::string& whole = honest.values.begin()->first == name ? good_second : good_first;
  const auto made = seal(options(0).key, text_of(keys_[0]),
                         std::as_bytes(std::span(whole)).subspan(sizeof(package::Hash)));
  honest.values.at(name).assign(reinterpret_cast<const char*>(made.data()), made.size());
  expect_refused("a misplaced entry");
  // Another secret.
  first = good_first;
  second = good_second;
  lines_.clear();
  reset_warnings();
  const auto other = open("other", options(server.port(), "another secret of 25 byte"));
  EXPECT_EQ(other->find(keys_[0]), std::nullopt);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("signed with another secret")));
  other->put(keys_[0], content_);
  EXPECT_EQ(open("other2", options(server.port(), "another secret of 25 byte"))->find(keys_[0]),
            content_);
}

TEST_F(RemoteTest, WrongServersCostLittleAndAreSaidOnce) {
  expect_harmless([](const Words&) { return "..."; }, "no answer within 200 ms");
  expect_harmless([](const Words&) { return "$100\r\nabc..."; }, "no answer within 200 ms");
  expect_harmless([](const Words&) { return "$1000\r\n~"; }, "no answer within 200 ms");
  expect_harmless([](const Words&) { return ""; }, "it closed the connection");
  expect_harmless([](const Words&) { return "HTTP/1.1 400 Bad Request\r\n\r\n"; },
                  "it does not answer as Redis does");
  expect_harmless([](const Words&) { return "*2147483647\r\n..."; }, "left alone");
  expect_harmless([](const Words&) { return "*2\r\n$1\r\na\r\n$1\r\nb\r\n"; }, "left alone");
  expect_harmless([](const Words&) { return "$99999999999999999999\r\n..."; }, "left alone");
  expect_harmless([](const Words&) { return "$9223372036854775807\r\n..."; }, "left alone");
  expect_harmless([](const Words&) { return "$-5\r\n..."; }, "left alone");
  expect_harmless([](const Words&) { return ":7\r\n"; }, "it answers with a number");
  expect_harmless([](const Words&) { return "-NOAUTH Authentication \x1b[31mrequired\r\n"; },
                  "NOAUTH Authentication ?[31mrequired");
  expect_harmless(
      [](const Words& words) { return words[0] == "GET" ? "$-1\r\n" : "-READONLY\r\n"; },
      "takes no entries: READONLY");
}

TEST_F(RemoteTest, HugeAndSlowAnswersEnd) {
  const std::string huge = bulk(std::string(kMostRemoteBytes + 8192, 'x'));
  expect_harmless([&](const Words&) { return huge; }, "left alone", milliseconds(8000));
  // Each answer in time, all of them not.
  int commands = 0;
  const Server slow([&](const Words& words) {
    std::this_thread::sleep_for(milliseconds(120));
    ++commands;
    return words[0] == "GET" ? "$-1\r\n" : "+OK\r\n";
  });
  lines_.clear();
  reset_warnings();
  RemoteOptions remote = options(slow.port());
  remote.timeout = milliseconds(200);
  const auto store = open("slow", remote);
  for (int i = 0; i < 20; ++i) store->put({{"kernel", std::to_string(i)}}, content_);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("left alone by this process")));
  EXPECT_LE(commands, 9);  // four timeouts, 100 ms beyond what is for nothing each
}

TEST_F(RemoteTest, NobodyThere) {
  std::uint16_t port = 0;
  {
    const Server gone([](const Words&) { return ""; });
    port = gone.port();
  }
  const auto store = open("a", options(port));
  EXPECT_EQ(store->find(keys_[0]), std::nullopt);
  store->put(keys_[0], content_);
  EXPECT_EQ(store->find(keys_[0]), content_);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("left alone by this process: Connection refused")));
  EXPECT_THAT(store->remote_state(), HasSubstr("Connection refused"));
  reset_warnings();
  RemoteOptions named = options(port);
  named.timeout = milliseconds(200);
  named.address.host = "no-such-host.invalid";
  const auto start = steady_clock::now();
  EXPECT_EQ(open("b", named)->find(keys_[1]), std::nullopt);
  EXPECT_LT(steady_clock::now() - start, milliseconds(1000));
  EXPECT_EQ(lines_.size(), 2U);
}

TEST_F(RemoteTest, AConnectionThatWasClosedIsOpenedAgain) {
  Honest honest;
  const Server server([&](const Words& words) { return honest(words) + "."; });
  const auto a = open("a", options(server.port())), b = open("b", options(server.port()));
  for (const Key& key : keys_) {
    a->put(key, content_);
    std::this_thread::sleep_for(milliseconds(20));  // as long as it takes to hear of it
    EXPECT_EQ(b->find(key), content_);
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(server.connections(), 6);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(RemoteTest, AForkedProcessHasAConnectionOfItsOwn) {
  Honest honest;
  const Server server(std::ref(honest));
  const auto a = open("a", options(server.port())), b = open("b", options(server.port()));
  for (const Key& key : keys_) a->put(key, content_);
  EXPECT_EQ(b->find(keys_[0]), content_);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(b->find(keys_[1]) == content_ && b->find(keys_[2]) == content_ ? 0 : 1);
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(server.connections(), 3);
  a->put({{"kernel", "d"}}, content_);
  EXPECT_EQ(b->find({{"kernel", "d"}}), content_);
  EXPECT_EQ(server.connections(), 3);
}

TEST_F(RemoteTest, ThreadsShareOneConnection) {
  Honest honest;
  const Server server(std::ref(honest));
  const auto a = open("a", options(server.port())), b = open("b", options(server.port()));
  const auto numbered = [](int i) { return Key{{"kernel", std::to_string(i)}}; };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < 80; i += 4) {
        a->put(numbered(i), content_);
        EXPECT_EQ(b->find(numbered(i)), content_);
        EXPECT_EQ(b->find({{"kernel", "none"}}), std::nullopt);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(server.connections(), 2);
  EXPECT_THAT(lines_, IsEmpty());
}

}  // namespace
}  // namespace inkle::cache
