// Packed copies of weights, the derived data of a plan. Keyed by the identity of the weights, so
// that several modules may share one plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/cpu/common.h"
#include "runtime/cpu/memory_pool.h"
#include "runtime/cpu/onednn_primitive.h"

namespace inkle::runtime::cpu {

class PackedWeights {
 public:
  PackedWeights(const Primitive& primitive, const WeightIdentity& weights);

  // Made from these weights as they are now.
  [[nodiscard]] bool is_current(const WeightIdentity& weights) const {
    return stamp_.is_current(weights);
  }
  [[nodiscard]] bool is_of(const WeightIdentity& weights, const std::string& layout) const {
    return stamp_.is_of(weights) && layout == layout_;
  }
  // Their first byte lies in [begin, end).
  [[nodiscard]] bool is_within(const std::byte* begin, const std::byte* end) const {
    return begin <= source_ && source_ < end;
  }
  [[nodiscard]] void* data() const { return memory_.data(); }
  [[nodiscard]] std::int64_t bytes() const { return memory_.bytes(); }
  // Of weights of f32; infinity if any is NaN.
  [[nodiscard]] float magnitude() const { return magnitude_; }

 private:
  const std::byte* source_;
  WeightStamp stamp_;
  std::string layout_;
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
  // Drops copies of weights that lie in [begin, end), memory that is about to be freed.
  void forget(const std::byte* begin, const std::byte* end);
  [[nodiscard]] std::int64_t bytes() const;

 private:
  mutable std::mutex mutex_;
  std::int64_t limit_bytes_;
  std::int64_t bytes_ = 0;
  std::list<std::shared_ptr<const PackedWeights>> entries_;  // most recent first
};

}  // namespace inkle::runtime::cpu
