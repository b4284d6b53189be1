// Which matrix products the CPU template takes, and its register blocks and task tiles.
#pragma once

#include <optional>

#include "abi/target.h"
#include "schedule/kernel.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

class PanelChoice {
 public:
  // `training`: weights change. `all`: products of any size and of f32 are the template's.
  PanelChoice(const loop::Program& program, const abi::Target& device, bool training, bool all)
      : program_(program), device_(device), training_(training), all_(all) {}

  // Whether the sizes are the template's.
  [[nodiscard]] bool fits(const MatmulStep& m) const;
  // Whether the types are, where the right operand is read as stored, and the left one is, or is
  // computed.
  [[nodiscard]] bool multiplies(const MatmulStep& m, bool computes_left) const;
  // What is saved where each task computes its rows of the left operand, by this body, in parts of
  // the sums: another kernel's writing and reading them. Nothing where that takes longer, unless
  // all is the template's.
  [[nodiscard]] std::optional<double> saved_by_left(const GemmKernel& g,
                                                    const loop::Body& body) const;
  // Whether the right operand may be computed as it is read: products of few rows; unless all is
  // the template's, where the wide matrix would not stay in the cache.
  [[nodiscard]] bool may_compute(const MatmulStep& m) const;
  // Sets panel and group to the register block that computes the fewest sums; what they cost
  // for each that is needed. With `whole` one whose panels are all full; 0 where there is none.
  double choose(GemmKernel& g, bool whole) const;
  // Sets rows and columns of a task, and its lanes.
  void tile(const GemmKernel& g, Schedule& schedule) const;
  // What is expected of both: sums that are computed, needed or not, against those of the library,
  // which has fewer to compute but another kernel, or post-ops, behind it, or before it. Panels of
  // what is no parameter, and of parameters that change, are packed in every call.
  [[nodiscard]] bool is_chosen(const MatmulStep& m, double computed, double moves,
                               double saved_before) const;

 private:
  [[nodiscard]] const loop::Buffer& buffer(loop::BufferId b) const { return program_.buffers[b]; }
  [[nodiscard]] bool has_pairs(const View& a) const;
  [[nodiscard]] std::int64_t most_rows(const GemmKernel& g) const;

  const loop::Program& program_;
  const abi::Target& device_;
  bool training_;
  bool all_;
};

}  // namespace inkle::schedule
