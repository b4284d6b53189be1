// What the prepare steps of a plan have made, by set of weights: instances of a module share one
// plan. prepared_plan.h says which steps, from which weights, and where in one block of memory.
// Both runtimes keep it here, for as long as the weights are the same.
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

#include "runtime/common/weight_identity.h"

namespace inkle::runtime::common {

// The results of a group's steps for one set of weights, in one block of memory.
class PreparedSet {
 public:
  PreparedSet(std::span<const WeightIdentity> weights, std::shared_ptr<std::byte> memory,
              std::int64_t generation)
      : stamps_(weights.begin(), weights.end()),
        memory_(std::move(memory)),
        generation_(generation) {}

  // The weights at the same places, whatever is in them.
  [[nodiscard]] bool is_of(std::span<const WeightIdentity> weights) const;
  // Holds what was made of these weights as they are now.
  [[nodiscard]] bool is_current(std::span<const WeightIdentity> weights) const {
    return is_made_ && !is_outdated_ && are_current(stamps_, weights);
  }
  [[nodiscard]] std::byte* data() const { return memory_.get(); }
  // Unequal for any two sets of one group: the version of what lies in the block.
  [[nodiscard]] std::int64_t generation() const { return generation_; }

 private:
  friend class PreparedSets;

  std::vector<WeightStamp> stamps_;
  std::shared_ptr<std::byte> memory_;
  std::int64_t generation_;
  bool is_made_ = false;      // the steps have run for it
  bool is_outdated_ = false;  // since then a weight has changed unseen by the stamps
};

// How many sets are kept, and how many bytes of them all.
struct PreparedLimits {
  std::size_t sets = 0;
  std::int64_t bytes = 0;
};

// Thread-safe. There are two ways to use one:
//  - get(), where results are made at once: another block is made for weights that have changed.
//    Beyond the limits the least recently asked for goes, but one is always kept.
//  - place(), then note(), where work is queued and captured calls read a block where it is: what
//    is out of date is made anew in place. No set goes; beyond the limits there is none.
class PreparedSets {
 public:
  // A block of so many bytes, freed by its deleter; null where there is no memory.
  using Allocate = std::function<std::shared_ptr<std::byte>(std::int64_t bytes)>;

  PreparedSets(std::int64_t set_bytes, PreparedLimits limits, Allocate allocate)
      : set_bytes_(set_bytes), limits_(limits), allocate_(std::move(allocate)) {}

  // The set of these weights as they are now. If there is none, `fill` makes it in memory that it
  // is given; what it throws is thrown here, and nothing is kept. Second result: whether it did.
  // Whoever holds the pointer keeps the set alive.
  std::pair<std::shared_ptr<const PreparedSet>, bool> get(
      std::span<const WeightIdentity> weights,
      const std::function<void(const PreparedSet& set)>& fill);
  // Is the set kept, and not replaced or dropped?
  [[nodiscard]] bool contains(const PreparedSet& set) const;

  struct Place {
    std::byte* memory = nullptr;
    bool is_current = false;
    bool is_stale = false;  // results of earlier weights, which calls under way may be reading
  };
  // Where results for these weights are, or are to be made; nothing where no more are kept, or, if
  // none `may_be_made`, where they are not current.
  [[nodiscard]] Place place(std::span<const WeightIdentity> weights, bool may_be_made);
  // The steps have run for these weights, at their place.
  void note(std::span<const WeightIdentity> weights);
  // All sets are to be made anew.
  void outdate();
  // There is a place for these weights, and what it has is not current.
  [[nodiscard]] bool is_outdated(std::span<const WeightIdentity> weights) const;

  [[nodiscard]] std::int64_t bytes() const;

 private:
  using Entries = std::list<std::shared_ptr<PreparedSet>>;

  [[nodiscard]] Entries::const_iterator find(std::span<const WeightIdentity> weights) const;
  [[nodiscard]] bool has_room() const;
  [[nodiscard]] std::shared_ptr<PreparedSet> make(std::span<const WeightIdentity> weights);

  mutable std::mutex mutex_;
  std::int64_t set_bytes_;
  PreparedLimits limits_;
  Allocate allocate_;
  std::int64_t next_generation_ = 1;
  Entries entries_;  // most recent first
};

}  // namespace inkle::runtime::common
