// Packed copies of weights, the derived data of a plan. Keyed by the identity of the weights, so
// that several modules may share one plan.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/cpu/memory_pool.h"
#include "runtime/cpu/onednn_primitive.h"

namespace inkle::runtime::cpu {

// Which weights, and what was in them: a few sampled cache lines show a change in place that the
// version does not (writes through `.data`), and other weights at a reused address.
struct WeightIdentity {
  const std::byte* data = nullptr;
  std::int64_t bytes = 0;    // span in memory
  std::int64_t version = 0;  // the host's counter of writes, 0 if it has none
};

class PackedWeights {
 public:
  PackedWeights(const Primitive& primitive, const WeightIdentity& weights);

  // Made from these weights as they are now.
  [[nodiscard]] bool is_current(const WeightIdentity& weights) const;
  [[nodiscard]] bool is_of(const WeightIdentity& weights, const std::string& layout) const;
  [[nodiscard]] void* data() const { return memory_.data(); }
  [[nodiscard]] std::int64_t bytes() const { return memory_.bytes(); }
  // Of weights of f32; infinity if any is NaN.
  [[nodiscard]] float magnitude() const { return magnitude_; }

 private:
  static constexpr std::size_t kLines = 4;
  using Sample = std::array<std::uint64_t, kLines * 8>;
  static Sample sample(const WeightIdentity& weights);

  WeightIdentity weights_;
  std::string layout_;
  Sample sample_{};
  Block memory_;
  float magnitude_ = 0;
};

// Thread-safe; the least recently asked for goes first when `limit_bytes` is passed. Whoever holds
// a pointer keeps its copy alive.
class WeightCache {
 public:
  explicit WeightCache(std::int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // The packed copy for `primitive`, which packs weights. Throws UserError if memory runs out.
  [[nodiscard]] std::shared_ptr<const PackedWeights> get(const Primitive& primitive,
                                                         const WeightIdentity& weights);
  [[nodiscard]] std::int64_t bytes() const;

 private:
  mutable std::mutex mutex_;
  std::int64_t limit_bytes_;
  std::int64_t bytes_ = 0;
  std::list<std::shared_ptr<const PackedWeights>> entries_;  // most recent first
};

}  // namespace inkle::runtime::cpu
