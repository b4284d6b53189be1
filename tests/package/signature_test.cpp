// Signatures of packages: whose are accepted, and what is said of the others.
#include "package/signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "base/error_of.h"
#include "package/built.h"

namespace inkle::package {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

const Built& built() {
  static const Built made = build();
  return made;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

class SignatureTest : public testing::Test {
 protected:
  SignatureTest() {
    ::unsetenv("INKLE_PACKAGE_KEY");
    std::filesystem::create_directories(folder_);
    header_ = write_package(path_, built().input);
    write_signature(path_, sign(header_, key_));
  }
  ~SignatureTest() override {
    ::unsetenv("INKLE_PACKAGE_KEY");
    std::filesystem::remove_all(folder_);
  }
  [[nodiscard]] std::string refusal_of(const SecretKey& key) const {
    const Trust trust = Trust::of_key(to_string(key.public_key()));
    return error_of([&] { (void)Package::open(path_, Package::Use::run, {}, trust); });
  }
  [[nodiscard]] std::filesystem::path signature() const { return signature_path(path_); }

  const std::filesystem::path folder_ = std::filesystem::temp_directory_path() /
                                        ("inkle_signature_test_" + std::to_string(::getpid()));
  const std::filesystem::path path_ = folder_ / "m.inkle";
  const SecretKey key_ = SecretKey::generate(), other_ = SecretKey::generate();
  HeaderBytes header_{};
};

TEST_F(SignatureTest, TheKeyThatSignedIsAccepted) {
  EXPECT_EQ(refusal_of(key_), "no error");
  EXPECT_EQ(signature().filename(), "m.inkle.sig");
  EXPECT_EQ(error_of([&] { (void)Package::open(path_); }), "no error");
  const auto package = Package::open(path_, Package::Use::run, {}, Trust::anyone());
  EXPECT_EQ(header_of(package->file().data), header_);
}

TEST_F(SignatureTest, SigningTwiceGivesTheSameBytes) {
  const std::string first = text_of(signature());
  EXPECT_EQ(header_, write_package(path_, built().input));
  write_signature(path_, sign(header_, key_));
  EXPECT_EQ(text_of(signature()), first);
  EXPECT_EQ(first.size(), 17U + 1 + 16 + 1 + 88 + 1);
}

TEST_F(SignatureTest, AnotherKeyIsRefused) {
  EXPECT_THAT(refusal_of(other_),
              AllOf(StartsWith(path_.string() + ": other_key: is signed by key "),
                    HasSubstr(to_string(key_.public_key().id())),
                    HasSubstr(to_string(other_.public_key().id()))));
  // A signature that claims the other key's id.
  Signature forged = sign(header_, key_);
  forged.key = other_.public_key().id();
  write_signature(path_, forged);
  EXPECT_THAT(refusal_of(other_), HasSubstr("bad_signature: its signature"));
  EXPECT_THAT(refusal_of(other_), HasSubstr("does not match"));
}

TEST_F(SignatureTest, AnUnsignedPackageIsRefused) {
  std::filesystem::remove(signature());
  EXPECT_THAT(refusal_of(key_), AllOf(HasSubstr("not_signed: is not signed"),
                                      HasSubstr("m.inkle.sig"), HasSubstr("inkle sign")));
  write(signature(), "");
  EXPECT_THAT(refusal_of(key_), AllOf(HasSubstr("bad_signature: "), HasSubstr("is damaged")));
  std::filesystem::remove(signature());
  std::filesystem::create_directory(signature());
  EXPECT_THAT(refusal_of(key_), AllOf(HasSubstr("bad_signature: "), HasSubstr("is not a file")));
}

TEST_F(SignatureTest, EveryFlippedBitOfTheSignatureIsRefused) {
  const std::string good = text_of(signature());
  for (std::size_t at = 0; at + 1 < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      write(signature(), bad);
      ASSERT_THAT(refusal_of(key_), StartsWith(path_.string() + ": ")) << at << ", bit " << bit;
    }
  }
  for (std::size_t size = 0; size + 1 < good.size(); ++size) {
    write(signature(), good.substr(0, size));
    ASSERT_THAT(refusal_of(key_), StartsWith(path_.string() + ": ")) << size;
  }
  for (const char* more : {"x", "\n", " ", "\nx", "="}) {
    write(signature(), good + more);
    EXPECT_NE(refusal_of(key_), "no error");
  }
  write(signature(), good.substr(0, good.size() - 1));  // no line end
  EXPECT_EQ(refusal_of(key_), "no error");
}

TEST_F(SignatureTest, EveryFlippedBitOfTheHeaderIsRefused) {
  const std::string good = text_of(path_);
  for (std::size_t at = 0; at < sizeof(FileHeader); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      write(path_, bad);
      ASSERT_THAT(refusal_of(key_), HasSubstr("does not match")) << at << ", bit " << bit;
    }
  }
  write(path_, good.substr(0, 95));
  EXPECT_THAT(refusal_of(key_), HasSubstr("truncated: 95 bytes are too few"));
}

TEST_F(SignatureTest, AnotherProgramUnderAnOldSignatureIsRefused) {
  std::vector<float> weights = built().weights;
  weights[0] += 1;
  PackageInput input = built().input;
  input.weights[0].tensor.data = weights.data();
  write_package(path_, input);
  EXPECT_THAT(refusal_of(key_), HasSubstr("does not match"));
  // Behind the right header, a section that was changed.
  write_package(path_, built().input);
  std::string bytes = text_of(path_);
  bytes[kSectionAlignment] = static_cast<char>(bytes[kSectionAlignment] ^ 1);
  write(path_, bytes);
  EXPECT_THAT(refusal_of(key_), HasSubstr("hash_mismatch: section plan is damaged"));
}

TEST_F(SignatureTest, AFileOfWeightsIsCovered) {
  PackageInput input = built().input;
  input.separate_weights = true;
  write_signature(path_, sign(write_package(path_, input), key_));
  EXPECT_EQ(refusal_of(key_), "no error");
  std::vector<float> weights = built().weights;
  weights[0] += 1;
  input.weights[0].tensor.data = weights.data();
  write_package(folder_ / "other.inkle", input);
  std::filesystem::rename(folder_ / "other.weights", folder_ / "m.weights");
  EXPECT_THAT(refusal_of(key_), HasSubstr("holds other weights"));
}

TEST_F(SignatureTest, TheEnvironmentNamesAKey) {
  const auto refusal = [&] { return error_of([&] { (void)Package::open(path_); }); };
  key_.write(folder_ / "key");
  other_.write(folder_ / "other");
  ::setenv("INKLE_PACKAGE_KEY", (folder_ / "key.pub").c_str(), 1);
  EXPECT_EQ(refusal(), "no error");
  ::setenv("INKLE_PACKAGE_KEY", (folder_ / "other.pub").c_str(), 1);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("is signed by key"), HasSubstr("INKLE_PACKAGE_KEY=")));
  ::setenv("INKLE_PACKAGE_KEY", to_string(key_.public_key()).c_str(), 1);
  EXPECT_EQ(refusal(), "no error");
  ::setenv("INKLE_PACKAGE_KEY", (folder_ / "none.pub").c_str(), 1);
  EXPECT_THAT(refusal(), AllOf(StartsWith("INKLE_PACKAGE_KEY: "), HasSubstr("cannot be read")));
  ::setenv("INKLE_PACKAGE_KEY", "", 1);
  EXPECT_THAT(refusal(), HasSubstr("INKLE_PACKAGE_KEY: the key is empty"));
  ::setenv("INKLE_PACKAGE_KEY", (folder_ / "key").c_str(), 1);
  EXPECT_THAT(refusal(), HasSubstr("it starts with inkle-secret-key-1, inkle-public-key-1 is"));
}

TEST_F(SignatureTest, SecretKeysAreOfOneUser) {
  const auto file = folder_ / "key";
  key_.write(file);
  struct stat facts {};
  ASSERT_EQ(::stat(file.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600U);
  EXPECT_EQ(SecretKey::read(file).public_key(), key_.public_key());
  EXPECT_EQ(parse_public_key(text_of(folder_ / "key.pub")), key_.public_key());
  for (const mode_t mode : {0640, 0604, 0620, 0644}) {
    ::chmod(file.c_str(), mode);
    EXPECT_THAT(error_of([&] { (void)SecretKey::read(file); }),
                AllOf(StartsWith(file.string() + ": other users may"), HasSubstr("chmod 600")));
  }
  EXPECT_THAT(error_of([&] { key_.write(file); }), HasSubstr("exists already"));
  std::filesystem::remove(file);
  EXPECT_THAT(error_of([&] { key_.write(file); }), HasSubstr("key.pub: exists already"));
  EXPECT_FALSE(std::filesystem::exists(file));
}

// The first vector of RFC 8032, 7.1.
TEST(Keys, Ed25519IsThatOfTheStandard) {
  const SecretKey key =
      SecretKey::parse("inkle-secret-key-1 nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=\n");
  EXPECT_EQ(to_string(key.public_key()),
            "inkle-public-key-1 11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n");
  EXPECT_THAT(to_string(key.sign({})), HasSubstr("5VZDAMNgrHKQhuLMgG6CioSHfx645dl02HPgZSJJAVVfuIIVk"
                                                 "KM7rMYeOXAc+bRr0lv18FlbviRlUUFDjnoQCw==\n"));
}

}  // namespace
}  // namespace inkle::package
