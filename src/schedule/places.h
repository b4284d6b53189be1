// Memory of a kernel's values: accesses to buffers at logical indices become offsets into
// parameters and scratch arrays.
#pragma once

#include <functional>
#include <vector>

#include "loop/program.h"
#include "schedule/group.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// A store while stages are built: still a buffer and logical indices.
struct Pending {
  loop::BufferId buffer;
  std::vector<Expr> indices;
  loop::StoreMode mode;
  std::uint32_t yield;
  bool keeps_rest = false;  // elements that are not stored keep what an earlier kernel wrote
};

// A stage whose loads, too, still name buffers and logical indices.
struct Draft {
  Stage stage;
  std::vector<Pending> stores;
};

struct Placing {
  const Group& group;
  const loop::Program& program;
  // Whether a buffer is written in the kernel and only read there.
  const std::function<bool(loop::BufferId)>& is_internal;
  std::int32_t input_alignment = 1;  // bytes
};

// Makes all accesses of `drafts` linear. Adds scratch arrays to `kernel`, first those of
// `carried`, whose buffers are numbered after the program's, and sets the parameters of `step` and
// their buffers: what is loaded, in order, then what is stored.
void place_accesses(std::vector<Draft>& drafts, const std::vector<Scratch>& carried,
                    const Placing& placing, LoopKernel& kernel, KernelStep& step);

}  // namespace inkle::schedule
