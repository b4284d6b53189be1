// What a choice of blocks asks about a loop kernel: how its loops read memory, and what they have
// in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "abi/target.h"
#include "schedule/density.h"
#include "schedule/kernel.h"

namespace inkle::schedule {

// Bytes of one memory access of a thread.
inline constexpr std::int64_t kAccess = 16;
// More lanes than this make bodies long and save nothing: bytes then share an access of 8.
inline constexpr std::int32_t kMostLanes = 8;

// Of the kernel as it is at each call; all outlive this.
class LoopFacts {
 public:
  LoopFacts(const Kernel& kernel, const abi::Target& device, sym::Context& context);

  // Of all reads and stores of parameters.
  [[nodiscard]] std::vector<WeightedOffset> offsets() const;
  // The outer loop along which accesses are denser than along the inner loops, if there is one.
  [[nodiscard]] std::optional<std::size_t> column_loop() const;
  // Lanes along `variable`: as many neighbours as the narrowest dense access has in 16 bytes, if
  // all groups of them are whole, or if there is but one ragged group (`may_end_ragged`).
  [[nodiscard]] std::int32_t lanes_along(Expr variable, Expr extent, bool may_end_ragged) const;
  // Whether the loops are many long rows that are no whole number of accesses. A block then goes
  // along a row, which finds whole accesses in it and computes once what a row has in common: the
  // gradient of cross entropy over 8192 rows of 50257, 0.62 ms of traffic, took 1.95 ms element by
  // element.
  [[nodiscard]] bool has_odd_rows() const;
  // Iterations of the inner loops of the stage that has most of them, at the hints of sizes.
  [[nodiscard]] Expr longest() const;
  // Lanes that fit the inner loops of all stages.
  [[nodiscard]] std::int32_t row_lanes() const;
  // Bytes of a row's values that its threads exchange through shared memory: those that are read
  // at other indices than they are computed at, and so not recomputed.
  [[nodiscard]] std::int64_t handed_over() const;
  // Whether every stage's loop along the row has a length that is known and not 0: what is kept of
  // a row is declared by its length.
  [[nodiscard]] bool inner_is_constant() const;
  // Finds where in a row its largest or least value is.
  [[nodiscard]] static bool has_position(const Stage& stage);
  // Whether several stages read the same memory, or need what another has computed.
  [[nodiscard]] bool reads_again() const;
  // Loads along a row, of that row alone, of the stage that has most of them.
  [[nodiscard]] std::int64_t row_loads() const;
  // The last stage stores whole rows.
  [[nodiscard]] bool stores_rows() const;
  // One element a row, as of the parts of a reduction (reductions.cpp).
  [[nodiscard]] bool is_part() const;
  // Loads along the columns, in one pass or several.
  [[nodiscard]] std::int64_t streams() const;

 private:
  [[nodiscard]] bool is_read_in_place(const loop::Instruction& load, const Stage& reader) const;
  // Whether an argmin or argmax searches its position among kept values: of rows that a block keeps
  // whole.
  [[nodiscard]] bool searches(const Stage& stage) const;
  [[nodiscard]] bool is_of_row(const loop::Instruction& load) const;

  const Kernel& kernel_;
  const LoopKernel& loops_;
  const abi::Target& device_;
  sym::Context& context_;
};

}  // namespace inkle::schedule
