#include "base/hash.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <string>

namespace inkle {
namespace {

TEST(Hash, IsTheSameInEveryProcess) {
  // Values of today: a change makes every stored cache entry unreachable, so it must be wanted.
  EXPECT_EQ(to_hex(hash128("")), "16ade24b8a46bd54baf7aede6f9b631a");
  EXPECT_EQ(to_hex(hash128("kernel @k0(%x: f32[s0,64])")), "bfa93e11001dbb7b8a8ba8dd9303a135");
}

TEST(Hash, NoCollisionsAmongShortStrings) {
  std::set<std::uint64_t> seen;
  std::string text;
  for (int length = 0; length < 40; ++length) {
    for (int value = 0; value < 256; ++value) {
      text.assign(static_cast<std::size_t>(length), 'a');
      for (int at = 0; at < length; at += 7) {
        text[static_cast<std::size_t>(at)] = static_cast<char>(value);
        seen.insert(hash_bytes(text));
      }
    }
  }
  std::set<std::string> texts;
  for (int length = 0; length < 40; ++length) {
    for (int value = 0; value < 256; ++value) {
      text.assign(static_cast<std::size_t>(length), 'a');
      for (int at = 0; at < length; at += 7) {
        text[static_cast<std::size_t>(at)] = static_cast<char>(value);
        texts.insert(text);
      }
    }
  }
  EXPECT_EQ(seen.size(), texts.size());
}

TEST(Hash, TrailingZeroBytesCount) {
  EXPECT_NE(hash_bytes(std::string_view("a\0", 2)), hash_bytes("a"));
  EXPECT_NE(hash_bytes(std::string_view("\0\0", 2)), hash_bytes(std::string_view("\0", 1)));
}

TEST(Hash, OneBitChangesAboutHalfOfTheResult) {
  int flipped = 0;
  std::string text = "for m in s0*s1 { row t0[768] }";
  const std::uint64_t before = hash_bytes(text);
  const int bits = static_cast<int>(text.size()) * 8;
  for (int i = 0; i < bits; ++i) {
    char& byte = text[static_cast<std::size_t>(i / 8)];
    byte = static_cast<char>(byte ^ (1 << (i % 8)));
    const int changed = std::popcount(before ^ hash_bytes(text));
    EXPECT_GT(changed, 8);
    flipped += changed;
    byte = static_cast<char>(byte ^ (1 << (i % 8)));
  }
  EXPECT_NEAR(static_cast<double>(flipped) / bits, 32.0, 2.0);
}

TEST(Hash, CombineDependsOnOrder) {
  EXPECT_NE(hash_combine(hash_combine(0, 1), 2), hash_combine(hash_combine(0, 2), 1));
  std::set<std::uint64_t> seen;
  for (std::uint64_t a = 0; a < 300; ++a) {
    for (std::uint64_t b = 0; b < 300; ++b) seen.insert(hash_combine(a, b));
  }
  EXPECT_EQ(seen.size(), 300U * 300U);
}

}  // namespace
}  // namespace inkle
