// Is a weight still the tensor that something was derived from? Asked of every weight in every
// call, so it costs about as much as touching two cache lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace inkle::runtime::common {

struct WeightIdentity {
  const std::byte* data = nullptr;
  std::int64_t bytes = 0;    // span in memory
  std::int64_t version = 0;  // the host's counter of writes, 0 if it has none
  // Looked at as well: others may write it unseen by the version, e.g. through `.data`. Only where
  // the host can read it.
  bool is_sampled = true;
  bool is_versioned = true;  // the version tells something
};

// Which weight, and what was in it: besides place and version a hash of two of its cache lines.
// That shows a change in place that the version does not, and another weight at a reused address,
// if it touches one of those lines; a whole rewrite does.
class WeightStamp {
 public:
  explicit WeightStamp(const WeightIdentity& weight);

  // The same place, whatever is in it.
  [[nodiscard]] bool is_of(const WeightIdentity& weight) const {
    return weight.data == data_ && weight.bytes == bytes_;
  }
  // The same place, unchanged as far as can be seen; false where nothing can be seen.
  [[nodiscard]] bool is_current(const WeightIdentity& weight) const;

 private:
  const std::byte* data_;
  std::int64_t bytes_;
  std::int64_t version_;
  std::uint64_t sample_;
};

// stamps[i] is current for weights[i], for all i, as many of one as of the other. Faster than one
// after another: reads of memory overlap.
[[nodiscard]] bool are_current(std::span<const WeightStamp> stamps,
                               std::span<const WeightIdentity> weights);

}  // namespace inkle::runtime::common
