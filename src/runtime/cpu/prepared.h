// What the prepare steps of a plan have made (common/prepared_plan.h says which steps, from which
// weights), kept from call to call for as long as the weights are the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "runtime/cpu/memory_pool.h"
#include "runtime/cpu/weight_cache.h"
#include "runtime/cpu/weight_identity.h"

namespace inkle::runtime::cpu {

// The results of a group's steps for one set of weights, in one block of memory.
class PreparedSet {
 public:
  // `packed`, which outlives this object, forgets copies of what lies in the block when it goes.
  PreparedSet(std::span<const WeightIdentity> weights, std::int64_t bytes, std::int64_t generation,
              WeightCache& packed);
  ~PreparedSet();
  PreparedSet(const PreparedSet&) = delete;
  PreparedSet& operator=(const PreparedSet&) = delete;

  [[nodiscard]] bool is_of(std::span<const WeightIdentity> weights) const;
  [[nodiscard]] bool is_current(std::span<const WeightIdentity> weights) const {
    return are_current(stamps_, weights);
  }
  [[nodiscard]] std::byte* data() const { return memory_.data(); }
  [[nodiscard]] std::int64_t bytes() const { return memory_.bytes(); }
  // Unequal for any two sets of one group: the version of what lies in the block.
  [[nodiscard]] std::int64_t generation() const { return generation_; }

 private:
  std::vector<WeightStamp> stamps_;
  std::int64_t generation_;
  WeightCache& packed_;
  Block memory_;
};

// Several sets, as instances of a module share one plan. Thread-safe; the least recently asked for
// goes first when there are too many or `limit_bytes` is passed, but one is always kept. Whoever
// holds a pointer keeps its set alive.
class PreparedSets {
 public:
  // More instances than a model has of one module; a search through all takes well below 1 us.
  static constexpr std::size_t kMostSets = 128;

  PreparedSets(std::int64_t set_bytes, std::int64_t limit_bytes, WeightCache& packed)
      : set_bytes_(set_bytes), limit_bytes_(limit_bytes), packed_(&packed) {}

  // The set of these weights as they are now. If there is none, `fill` makes it in memory that it
  // is given; what it throws is thrown here, and nothing is kept. Second result: whether it did.
  std::pair<std::shared_ptr<const PreparedSet>, bool> get(
      std::span<const WeightIdentity> weights,
      const std::function<void(const PreparedSet& set)>& fill);
  [[nodiscard]] bool contains(const PreparedSet& set) const;
  [[nodiscard]] std::int64_t bytes() const;

 private:
  mutable std::mutex mutex_;
  std::int64_t set_bytes_;
  std::int64_t limit_bytes_;
  WeightCache* packed_;
  std::int64_t next_generation_ = 1;
  std::list<std::shared_ptr<const PreparedSet>> entries_;  // most recent first
};

}  // namespace inkle::runtime::cpu
