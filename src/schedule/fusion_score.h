// Whether a nest may join a group, and what that is worth: the one place that decides what fuses.
// In which order pairs are looked at is fuse.cpp's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "abi/target.h"
#include "loop/program.h"
#include "schedule/group.h"

namespace inkle::schedule {

// Some nests and the buffers that they read and write; all sorted.
struct Touched {
  std::vector<std::size_t> nests;
  std::vector<loop::BufferId> reads, writes;

  void add(const Touched& other);
};

// What one kernel for two groups is worth, in the order in which scores are compared.
struct FusionScore {
  std::int64_t saved = 0;    // bytes that a call moves less
  bool feeds = false;        // producer and consumer; else both read the same inputs
  std::size_t distance = 0;  // nests between the two
  std::int64_t held = 0;     // bytes of results that live longer

  [[nodiscard]] bool is_better_than(const FusionScore& other) const;
  friend bool operator==(const FusionScore&, const FusionScore&) = default;
};

[[nodiscard]] std::string to_string(const FusionScore& score);

// The rules of fusion for one program on one target.
class FusionRulebook {
 public:
  // All outlive this.
  FusionRulebook(const loop::Program& program, const abi::Target& target,
                 const FuseOptions& options);

  // The group with the nest, or nothing; `why` says how or why not. Does not check dependencies
  // through other groups.
  [[nodiscard]] std::optional<Group> can_fuse(const Group& group, const loop::Nest& nest,
                                              std::string& why) const;
  // Of two sets of nests, the first of which has the earlier one.
  [[nodiscard]] FusionScore score_fusion(const Touched& first, const Touched& second) const;
  [[nodiscard]] const Touched& touched(std::size_t nest) const { return touched_[nest]; }

  // The nest accumulates across its group's sequential rows (schedule/sequential_rows.h).
  [[nodiscard]] bool is_column_part(const loop::Nest& nest) const;
  // Threads of a block share a row, and its memory.
  [[nodiscard]] bool shares_rows() const { return rules_.row_threads > 0; }
  // Of a buffer: its bytes, the nests that read it, and whether it is no temporary of the program.
  [[nodiscard]] std::int64_t bytes(loop::BufferId b) const { return bytes_[b]; }
  [[nodiscard]] std::span<const std::size_t> readers(loop::BufferId b) const { return readers_[b]; }
  [[nodiscard]] bool escapes(loop::BufferId b) const { return escapes_[b]; }

 private:
  [[nodiscard]] bool accumulates_columns(const Group& group) const;
  [[nodiscard]] bool starves(const Group& before, const Group& joined) const;
  [[nodiscard]] bool needs_other_places(const Group& joined) const;
  [[nodiscard]] bool is_same_place(const loop::Instruction& load, const Member& reader,
                                   const loop::Store& store, const Member& maker) const;

  const loop::Program& program_;
  const abi::Target& target_;
  const abi::FusionRules& rules_;
  const FuseOptions& options_;
  std::vector<std::int64_t> bytes_;                // of each buffer
  std::vector<std::vector<std::size_t>> readers_;  // nests, of each buffer
  std::vector<bool> escapes_;     // the buffer is no temporary of the program alone
  std::vector<Touched> touched_;  // by each nest
};

}  // namespace inkle::schedule
