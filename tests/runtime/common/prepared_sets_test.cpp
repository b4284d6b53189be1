// Results of prepare steps by set of weights: which are kept, where they lie, when they are out of
// date. Both runtimes have them here.
#include "runtime/common/prepared_sets.h"

#include <gtest/gtest.h>

#include <array>
#include <stdexcept>

#include "runtime/common/prepared_plan.h"

namespace inkle::runtime::common {
namespace {

constexpr std::int64_t kSetBytes = 100;

// Blocks that are out.
class Memory {
 public:
  PreparedSets::Allocate allocate() {
    return [this](std::int64_t bytes) -> std::shared_ptr<std::byte> {
      EXPECT_EQ(bytes, kSetBytes);
      if (is_full) return nullptr;
      ++out;
      return {new std::byte[static_cast<std::size_t>(bytes)], [this](const std::byte* block) {
                --out;
                delete[] block;
              }};
    };
  }

  int out = 0;
  bool is_full = false;
};

// Weights of a host that counts writes, and cannot look at them.
struct Weights {
  std::array<std::byte, 256> memory{};
  std::array<WeightIdentity, 2> identities = {WeightIdentity{memory.data(), 128, 0, false},
                                              WeightIdentity{memory.data() + 128, 128, 0, false}};
};

class PreparedSetsTest : public ::testing::Test {
 protected:
  // Whether the steps ran.
  bool get(PreparedSets& sets, const Weights& w) {
    return sets.get(w.identities, [](const PreparedSet&) {}).second;
  }
  bool place_and_note(PreparedSets& sets, const Weights& w) {
    const PreparedSets::Place place = sets.place(w.identities, true);
    if (place.memory == nullptr || place.is_current) return false;
    sets.note(w.identities);
    return true;
  }

  Memory memory_;  // outlives the sets
  std::array<Weights, 3> weights_;
};

TEST_F(PreparedSetsTest, SetsAreMadeOnceForTheSameWeights) {
  PreparedSets sets(kSetBytes, {10, 1000}, memory_.allocate());
  for (const Weights& w : weights_) EXPECT_TRUE(get(sets, w));
  for (const Weights& w : weights_) EXPECT_FALSE(get(sets, w));
  EXPECT_EQ(sets.bytes(), 3 * kSetBytes);
  ++weights_[1].identities[1].version;
  EXPECT_FALSE(get(sets, weights_[0]));
  EXPECT_TRUE(get(sets, weights_[1]));
  EXPECT_EQ(memory_.out, 3);
}

TEST_F(PreparedSetsTest, WhoHoldsASetThatIsReplacedKeepsItsMemory) {
  PreparedSets sets(kSetBytes, {10, 1000}, memory_.allocate());
  const auto old = sets.get(weights_[0].identities, [](const PreparedSet&) {}).first;
  ++weights_[0].identities[0].version;
  const auto made = sets.get(weights_[0].identities, [](const PreparedSet&) {}).first;
  EXPECT_NE(old->data(), made->data());
  EXPECT_NE(old->generation(), made->generation());
  EXPECT_FALSE(sets.contains(*old));
  EXPECT_TRUE(sets.contains(*made));
  EXPECT_EQ(memory_.out, 2);
}

TEST_F(PreparedSetsTest, TheLeastRecentlyAskedForGoesButOneStays) {
  for (const PreparedLimits limits : {PreparedLimits{2, 1000}, {10, 2 * kSetBytes}}) {
    PreparedSets sets(kSetBytes, limits, memory_.allocate());
    EXPECT_TRUE(get(sets, weights_[0]));
    EXPECT_TRUE(get(sets, weights_[1]));
    EXPECT_FALSE(get(sets, weights_[0]));
    EXPECT_TRUE(get(sets, weights_[2]));
    EXPECT_FALSE(get(sets, weights_[0]));
    EXPECT_TRUE(get(sets, weights_[1]));
    EXPECT_EQ(memory_.out, 2);
  }
  PreparedSets sets(kSetBytes, {10, 0}, memory_.allocate());
  EXPECT_TRUE(get(sets, weights_[0]));
  EXPECT_FALSE(get(sets, weights_[0]));
  EXPECT_TRUE(get(sets, weights_[1]));
  EXPECT_EQ(memory_.out, 1);
}

TEST_F(PreparedSetsTest, NothingIsKeptOfStepsThatThrow) {
  PreparedSets sets(kSetBytes, {10, 1000}, memory_.allocate());
  EXPECT_THROW((void)sets.get(weights_[0].identities,
                              [](const PreparedSet&) { throw std::runtime_error("a step"); }),
               std::runtime_error);
  EXPECT_EQ(memory_.out, 0);
  EXPECT_TRUE(get(sets, weights_[0]));
}

TEST_F(PreparedSetsTest, PlacesStayAndAreMadeAnewInPlace) {
  PreparedSets sets(kSetBytes, {10, 1000}, memory_.allocate());
  const auto& w = weights_[0].identities;
  const PreparedSets::Place first = sets.place(w, true);
  ASSERT_NE(first.memory, nullptr);
  EXPECT_FALSE(first.is_current || first.is_stale);
  // Work that is queued and not noted yet: to be made, and nothing reads it.
  EXPECT_TRUE(sets.is_outdated(w));
  EXPECT_EQ(sets.place(w, false).memory, nullptr);
  sets.note(w);
  EXPECT_FALSE(sets.is_outdated(w));
  EXPECT_TRUE(sets.place(w, false).is_current);
  ++weights_[0].identities[1].version;
  EXPECT_TRUE(sets.is_outdated(w));
  EXPECT_EQ(sets.place(w, false).memory, nullptr);
  const PreparedSets::Place second = sets.place(w, true);
  EXPECT_EQ(second.memory, first.memory);
  EXPECT_TRUE(second.is_stale);
  sets.note(w);
  EXPECT_TRUE(sets.place(w, true).is_current);
  EXPECT_EQ(memory_.out, 1);
}

TEST_F(PreparedSetsTest, WhatChangedUnseenIsMadeAnew) {
  PreparedSets sets(kSetBytes, {10, 1000}, memory_.allocate());
  EXPECT_TRUE(place_and_note(sets, weights_[0]));
  EXPECT_TRUE(place_and_note(sets, weights_[1]));
  EXPECT_FALSE(place_and_note(sets, weights_[0]));
  sets.outdate();
  EXPECT_TRUE(sets.place(weights_[0].identities, true).is_stale);
  EXPECT_TRUE(place_and_note(sets, weights_[0]));
  EXPECT_TRUE(place_and_note(sets, weights_[1]));
  EXPECT_FALSE(place_and_note(sets, weights_[1]));
}

// Without versions a change would not be seen.
TEST_F(PreparedSetsTest, WithoutVersionsOrALookNothingIsCurrent) {
  PreparedSets sets(kSetBytes, {10, 1000}, memory_.allocate());
  for (WeightIdentity& w : weights_[0].identities) w.is_versioned = false;
  EXPECT_TRUE(place_and_note(sets, weights_[0]));
  EXPECT_TRUE(place_and_note(sets, weights_[0]));
  for (WeightIdentity& w : weights_[0].identities) w.is_sampled = true;
  EXPECT_TRUE(place_and_note(sets, weights_[0]));
  EXPECT_FALSE(place_and_note(sets, weights_[0]));
  weights_[0].memory[130] = std::byte{1};
  EXPECT_TRUE(place_and_note(sets, weights_[0]));
}

TEST_F(PreparedSetsTest, BeyondTheLimitsAndWithoutMemoryThereIsNoPlace) {
  for (const PreparedLimits limits : {PreparedLimits{2, 1000}, {10, 2 * kSetBytes}}) {
    PreparedSets sets(kSetBytes, limits, memory_.allocate());
    EXPECT_TRUE(place_and_note(sets, weights_[0]));
    EXPECT_TRUE(place_and_note(sets, weights_[1]));
    EXPECT_EQ(sets.place(weights_[2].identities, true).memory, nullptr);
    EXPECT_FALSE(sets.is_outdated(weights_[2].identities));
    EXPECT_TRUE(sets.place(weights_[0].identities, true).is_current);
  }
  PreparedSets none(kSetBytes, {10, kSetBytes - 1}, memory_.allocate());
  EXPECT_EQ(none.place(weights_[0].identities, true).memory, nullptr);
  memory_.is_full = true;
  PreparedSets full(kSetBytes, {10, 1000}, memory_.allocate());
  EXPECT_EQ(full.place(weights_[0].identities, true).memory, nullptr);
  EXPECT_EQ(full.bytes(), 0);
}

// Every byte of a small weight counts, also of one shorter than a word.
TEST(WeightStamp, SmallWeightsAreComparedWhole) {
  for (const std::int64_t bytes : {1, 3, 64, 100, 127}) {
    std::vector<std::byte> memory(static_cast<std::size_t>(bytes));
    const WeightIdentity weight{memory.data(), bytes, 0};
    const WeightStamp stamp(weight);
    for (std::byte& b : memory) {
      EXPECT_TRUE(stamp.is_current(weight));
      b = std::byte{1};
      EXPECT_FALSE(stamp.is_current(weight));
      b = std::byte{0};
    }
  }
}

TEST(PreparedGroup, GroupsAreOneBlockWhenMerged) {
  const PreparedGroup literals{
      .weights = {}, .steps = {0}, .made = {4}, .offsets = {0}, .bytes = 64};
  const PreparedGroup others{
      .weights = {{1, 8}}, .steps = {2, 3}, .made = {6, 5}, .offsets = {0, 128}, .bytes = 192};
  const PreparedGroup all = merged({literals, others});
  EXPECT_EQ(all.steps, (std::vector<std::uint32_t>{0, 2, 3}));
  EXPECT_EQ(all.bytes, 256);
  std::array<std::byte, 256> block{};
  std::array<void*, 7> buffers{};
  all.bind(block.data(), buffers);
  EXPECT_EQ(buffers[4], block.data());
  EXPECT_EQ(buffers[6], block.data() + 64);
  EXPECT_EQ(buffers[5], block.data() + 192);
  std::array<abi::TensorView, 2> tensors{};
  tensors[1].data = block.data();
  const std::array<std::int64_t, 2> versions{3, 7};
  std::vector<WeightIdentity> weights;
  all.identify({.tensors = tensors, .versions = versions}, false, weights);
  ASSERT_EQ(weights.size(), 1U);
  EXPECT_EQ(weights[0].data, block.data());
  EXPECT_EQ(weights[0].bytes, 8);
  EXPECT_EQ(weights[0].version, 7);
  EXPECT_FALSE(weights[0].is_sampled);
}

}  // namespace
}  // namespace inkle::runtime::common
