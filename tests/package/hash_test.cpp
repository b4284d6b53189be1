// Hashes of chunks: in lanes as one by one, and the tree of two levels over them.
#include "package/hash.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <vector>

#include "package/chunk_hashes.h"

namespace inkle::package {
namespace {

std::vector<std::byte> random_bytes(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

TEST(Hash, LeavesDifferFromTheirList) {
  const std::vector<std::byte> chunk(kChunkBytes, std::byte{1});
  std::vector<std::byte> two = chunk;
  two.insert(two.end(), chunk.begin(), chunk.end());
  two.push_back(std::byte{2});
  const std::vector<Hash> leaves = leaves_of(two);
  ASSERT_EQ(leaves.size(), 3U);
  EXPECT_EQ(leaves[0], leaves[1]);
  EXPECT_EQ(leaves[0], hash_of_chunk(chunk));
  EXPECT_NE(hash_of_leaves(leaves), hash_of_chunk(std::as_bytes(std::span(leaves))));
  EXPECT_EQ(hash_of_section(two), hash_of_leaves(leaves));
}

TEST(Hash, LanesAreAsOneByOne) {
  for (const std::size_t bytes : {128UL, 256UL, 1152UL, 65536UL}) {
    for (const std::size_t count : {0UL, 1UL, 3UL, 4UL, 5UL, 8UL, 13UL, 16UL, 23UL}) {
      // Chunks at odd places.
      const std::vector<std::byte> data =
          random_bytes(count * (bytes + 1) + 1, static_cast<std::uint32_t>(bytes + count));
      std::vector<const std::byte*> chunks;
      std::vector<Hash> want;
      for (std::size_t i = 0; i < count; ++i) {
        chunks.push_back(data.data() + 1 + i * (bytes + 1));
        want.push_back(hash_of_chunk({chunks.back(), bytes}));
      }
      for (const std::size_t lanes : {1UL, 4UL, 8UL}) {
        std::vector<Hash> found(count);
        hash_chunks_with(lanes, chunks, bytes, found);
        EXPECT_EQ(found, want) << lanes << " lanes, " << count << " chunks of " << bytes;
      }
    }
  }
}

TEST(Hash, LeavesOfSomeChunks) {
  const std::vector<std::byte> data = random_bytes(11 * kChunkBytes + 77, 1);
  const std::vector<Hash> all = leaves_of(data);
  ASSERT_EQ(all.size(), 12U);
  const std::vector<std::uint64_t> numbers = {3, 11, 0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 3};
  const std::vector<Hash> some = leaves_of(data, numbers);
  ASSERT_EQ(some.size(), numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(some[i], all[numbers[i]]) << i;
  const auto chunk = std::span(data).subspan(11 * kChunkBytes);
  EXPECT_EQ(all[11], hash_of_chunk(chunk));
}

}  // namespace
}  // namespace inkle::package
