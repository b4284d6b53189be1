#include "runtime/common/weight_identity.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace inkle::runtime::common {
namespace {

constexpr std::int64_t kLineBytes = 64;

// The first line and the middle one. Each takes 7 ns to hash, and where the weight is in no cache a
// miss of 70 to 100 ns, overlap included (runtime_benchmark, `prepared`, on a busy machine).
constexpr std::int64_t kLines = 2;

// Weights whose lines are asked of memory ahead of the one that is looked at: enough for the ten or
// so reads that a core keeps in flight.
constexpr std::size_t kAhead = 8;

// Start of sampled line number `line`: whole cache lines where the weight has as many.
std::int64_t line_start(const WeightIdentity& weight, std::int64_t line) {
  return weight.bytes / kLines * line / kLineBytes * kLineBytes;
}

std::uint64_t hash_sample(const WeightIdentity& weight) {
  constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15ULL;
  if (!weight.is_sampled) return 0;
  std::array<std::uint64_t, 4> lanes{1, 2, 3, 4};
  const auto mix = [&](const std::byte* line) {
    std::array<std::uint64_t, 8> words;
    std::memcpy(words.data(), line, kLineBytes);
    for (std::size_t i = 0; i < words.size(); ++i) {
      std::uint64_t& lane = lanes[i % lanes.size()];
      lane = (lane ^ words[i]) * kFactor;
      lane ^= lane >> 29;
    }
  };
  if (weight.bytes >= kLines * kLineBytes) {
    for (std::int64_t line = 0; line < kLines; ++line) mix(weight.data + line_start(weight, line));
  } else {
    for (std::int64_t at = 0; at < weight.bytes; at += kLineBytes) {
      std::array<std::byte, kLineBytes> padded{};
      std::memcpy(padded.data(), weight.data + at,
                  static_cast<std::size_t>(std::min(kLineBytes, weight.bytes - at)));
      mix(padded.data());
    }
  }
  return lanes[0] ^ lanes[1] * 3 ^ lanes[2] * 5 ^ lanes[3] * 7;
}

void prefetch(const WeightIdentity& weight) {
  if (!weight.is_sampled) return;
  for (std::int64_t line = 0; line < kLines; ++line) {
    __builtin_prefetch(weight.data + line_start(weight, line));
  }
}

}  // namespace

WeightStamp::WeightStamp(const WeightIdentity& weight)
    : data_(weight.data),
      bytes_(weight.bytes),
      version_(weight.version),
      sample_(hash_sample(weight)) {}

bool WeightStamp::is_current(const WeightIdentity& weight) const {
  const bool can_be_seen = weight.is_sampled || weight.is_versioned;
  return can_be_seen && is_of(weight) && weight.version == version_ &&
         hash_sample(weight) == sample_;
}

bool are_current(std::span<const WeightStamp> stamps, std::span<const WeightIdentity> weights) {
  // Another set of weights shows at once, without a look at memory.
  for (std::size_t i = 0; i < stamps.size(); ++i) {
    if (!stamps[i].is_of(weights[i])) return false;
  }
  for (std::size_t i = 0; i < std::min(kAhead, weights.size()); ++i) prefetch(weights[i]);
  for (std::size_t i = 0; i < stamps.size(); ++i) {
    if (i + kAhead < weights.size()) prefetch(weights[i + kAhead]);
    if (!stamps[i].is_current(weights[i])) return false;
  }
  return true;
}

}  // namespace inkle::runtime::common
