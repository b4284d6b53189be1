// Where the remote cache is and with which secret: what the environment may say, and what is wrong.
#include "cache/remote_options.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/error_of.h"

namespace inkle::cache {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

TEST(RemoteAddress, IsReadFromUrls) {
  const std::vector<std::pair<std::string, Address>> cases{
      {"redis://cache", {"cache", 6379, "", "", 0}},
      {"redis://cache/", {"cache", 6379, "", "", 0}},
      {"redis://10.0.0.1:7000/3", {"10.0.0.1", 7000, "", "", 3}},
      {"redis://[::1]", {"::1", 6379, "", "", 0}},
      {"redis://[fe80::1]:1/2", {"fe80::1", 1, "", "", 2}},
      {"redis://:secret@cache", {"cache", 6379, "", "secret", 0}},
      {"redis://me:secret@cache:1", {"cache", 1, "me", "secret", 0}},
      {"redis://m%3Ae:a%40b%2f%25@cache", {"cache", 6379, "m:e", "a@b/%", 0}},
      {"redis://me:a/b@c:d@cache/1", {"cache", 6379, "me", "a/b@c:d", 1}},
  };
  for (const auto& [url, address] : cases) EXPECT_EQ(parse_address(url), address) << url;
  EXPECT_EQ(text_of(parse_address("redis://me:secret@cache/4")), "redis://cache:6379/4");
  EXPECT_EQ(text_of(parse_address("redis://[::1]:5")), "redis://[::1]:5/0");
  const Address encrypted = parse_address("rediss://me:secret@cache/4");
  EXPECT_EQ(encrypted, (Address{"cache", 6379, "me", "secret", 4, TlsOptions{}}));
  EXPECT_EQ(text_of(encrypted), "rediss://cache:6379/4");
}

TEST(RemoteAddress, ErrorsSayWhatIsWrongAndNoPassword) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "does not start with redis://"},
      {"http://cache", "does not start with redis://"},
      {"redis:/cache", "does not start with redis://"},
      {"redisss://me:hunter2@cache", "does not start with redis:// or rediss://"},
      {"rediss://me:hunter2@", "there is no host"},
      {"redis://", "there is no host"},
      {"redis://:6379", "there is no host"},
      {"redis://[]:1", "there is no host"},
      {"redis://[::1", "there is no ]"},
      {"redis://[::1]x", "no port"},
      {"redis://me:hunter2@cache:", "no port"},
      {"redis://me:hunter2@cache:0", "no port"},
      {"redis://cache:65536", "no port"},
      {"redis://cache:-1", "no port"},
      {"redis://me:hunter2@cache:1x", "no port"},
      {"redis://cache/x", "no number of a database"},
      {"redis://cache/1/2", "no number of a database"},
      {"redis://cache/-1", "no number of a database"},
      {"redis://hunter2@cache", "no user:password"},
      {"redis://me:@cache", "the password is empty"},
      {"redis://me:hunter2%4@cache", "two hexadecimal digits"},
      {"redis://me:hunter2%@cache", "two hexadecimal digits"},
      {"redis://me:hunter2%-1@cache", "two hexadecimal digits"},
  };
  for (const auto& [url, message] : cases) {
    const std::string error = error_of([&, &u = url] { (void)parse_address(u); });
    EXPECT_THAT(error, HasSubstr(message)) << url;
    EXPECT_THAT(error, Not(HasSubstr("hunter2"))) << url;
  }
}

class RemoteOptionsTest : public testing::Test {
 protected:
  RemoteOptionsTest() {
    fs::create_directories(root_);
    for (const char* suffix :
         {"", "_KEY", "_KEY_FILE", "_TIMEOUT", "_EXPIRY", "_CA", "_CERTIFICATE"}) {
      set(suffix, "");
    }
  }
  ~RemoteOptionsTest() override {
    for (const std::string& name : set_) ::unsetenv(name.c_str());
    fs::remove_all(root_);
  }
  void set(const std::string& suffix, const std::string& value) {
    set_.push_back("INKLE_REMOTE_CACHE" + suffix);
    ::setenv(set_.back().c_str(), value.c_str(), 1);
  }
  fs::path write(const std::string& content, mode_t mode) {
    const fs::path path = root_ / "secret";
    std::ofstream(path, std::ios::binary) << content;
    ::chmod(path.c_str(), mode);
    return path;
  }

  const fs::path root_ =
      fs::temp_directory_path() / fmt::format("inkle_remote_options_test_{}", ::getpid());
  const std::string secret_ = "0123456789abcdef";
  std::vector<std::string> set_;
};

TEST_F(RemoteOptionsTest, OfTheEnvironment) {
  EXPECT_EQ(remote_options(), std::nullopt);
  set("", "redis://cache/2");
  EXPECT_THAT(error_of([] { (void)remote_options(); }),
              HasSubstr("set INKLE_REMOTE_CACHE_KEY to a secret of at least 16 bytes"));
  set("_KEY", secret_.substr(1));
  EXPECT_THAT(error_of([] { (void)remote_options(); }),
              HasSubstr("INKLE_REMOTE_CACHE_KEY: the secret has 15 bytes, at least 16"));
  set("_KEY", secret_);
  auto options = remote_options();
  ASSERT_TRUE(options);
  EXPECT_EQ(options->address, (Address{"cache", 6379, "", "", 2}));
  EXPECT_EQ(options->key, key_of_secret(secret_));
  EXPECT_EQ(options->timeout, std::chrono::milliseconds(500));
  EXPECT_EQ(options->expiry, std::chrono::hours(30 * 24));
  set("_TIMEOUT", "70");
  set("_EXPIRY", "60");
  options = remote_options();
  EXPECT_EQ(options->timeout, std::chrono::milliseconds(70));
  EXPECT_EQ(options->expiry, std::chrono::seconds(60));
  for (const char* wrong : {"0", "-1", "1.5", "x", "60001", "99999999999999999999", "5 "}) {
    set("_TIMEOUT", wrong);
    EXPECT_THAT(error_of([] { (void)remote_options(); }),
                HasSubstr(fmt::format("INKLE_REMOTE_CACHE_TIMEOUT: {} is no number", wrong)));
  }
  set("_TIMEOUT", "");
  set("_CA", "/authorities.pem");
  EXPECT_THAT(
      error_of([] { (void)remote_options(); }),
      HasSubstr("INKLE_REMOTE_CACHE_CA is set, but INKLE_REMOTE_CACHE does not start with"));
  set("_CERTIFICATE", "/me.pem");
  set("", "rediss://cache");
  EXPECT_EQ(remote_options()->address.tls, (TlsOptions{"/authorities.pem", "/me.pem"}));
  set("_CA", "");
  set("_CERTIFICATE", "");
  EXPECT_EQ(remote_options()->address.tls, TlsOptions{});
}

TEST_F(RemoteOptionsTest, SecretsInFiles) {
  EXPECT_EQ(read_secret(write(secret_ + "\r\n", 0600)), secret_);
  EXPECT_EQ(read_secret(write("a\nb", 0400)), "a\nb");
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0777}) {
    EXPECT_THAT(error_of([&] { (void)read_secret(write(secret_, mode)); }), HasSubstr("chmod 600"))
        << mode;
  }
  EXPECT_THAT(error_of([&] { (void)read_secret(write(std::string(5000, 'x'), 0600)); }),
              HasSubstr("too large"));
  EXPECT_THAT(error_of([&] { (void)read_secret(root_); }), HasSubstr("no file"));
  EXPECT_THAT(error_of([&] { (void)read_secret(root_ / "none"); }), HasSubstr("No such file"));
  set("", "redis://cache");
  set("_KEY_FILE", write(secret_ + "\n", 0600).string());
  EXPECT_EQ(remote_options()->key, key_of_secret(secret_));
  set("_KEY", secret_);
  EXPECT_THAT(error_of([] { (void)remote_options(); }), HasSubstr("both"));
}

}  // namespace
}  // namespace inkle::cache
