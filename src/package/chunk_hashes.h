// BLAKE2b-256 of several chunks at once, each in a lane of a vector: two to three times the rate of
// one after another, which counts where a file's weights are checked before the first call.
#pragma once

#include <cstddef>
#include <span>

#include "package/hash.h"

namespace inkle::package {

// hashes[i] is hash_of_chunk of the `bytes` at chunks[i]. `bytes` is a multiple of 128, not 0.
void hash_chunks(std::span<const std::byte* const> chunks, std::size_t bytes,
                 std::span<Hash> hashes);

// The same with at most this many lanes (1, 4, 8), for tests; what the processor lacks is not used.
void hash_chunks_with(std::size_t lanes, std::span<const std::byte* const> chunks,
                      std::size_t bytes, std::span<Hash> hashes);

}  // namespace inkle::package
