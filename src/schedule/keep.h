// Which values of a row stay in registers from one pass over it to a later one, so that memory is
// read, and functions are computed, once.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/prepare.h"

namespace inkle::schedule {

// One loop over the row: a stage, or a part of one (moments take two loops).
struct RowPass {
  std::size_t stage = 0;
  int part = 0;
};

struct KeptValue {
  abi::DType dtype = abi::DType::f32;
  std::size_t first_pass = 0;  // where it is computed
  loop::Val value = 0;         // there
};

struct KeepPlan {
  struct Use {
    loop::Val value = 0;
    std::size_t kept = 0;  // index into `kept`
  };
  std::vector<KeptValue> kept;
  std::vector<std::vector<Use>> known;  // by pass: values that an earlier pass has kept
};

// `loads_only`: only loaded values are kept, no computed ones.
[[nodiscard]] KeepPlan plan_kept(const std::vector<PreparedStage>& stages,
                                 const std::vector<RowPass>& passes, bool loads_only);

}  // namespace inkle::schedule
