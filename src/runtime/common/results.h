// The end of a call: passes the plan's results to the host.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "abi/plan.h"
#include "base/function_ref.h"
#include "runtime/common/executable.h"
#include "runtime/common/plan_facts.h"

namespace inkle::runtime::common {

// Sizes and strides of a call's views: numbers that stay where they are until the next call.
class ViewNumbers {
 public:
  void clear() { used_ = 0; }
  // The values of these slots.
  [[nodiscard]] const std::int64_t* of(const std::vector<abi::Slot>& dims,
                                       std::span<const std::int64_t> slots) {
    if (used_ == kept_.size()) kept_.emplace_back();
    std::vector<std::int64_t>& kept = kept_[used_++];
    kept.resize(dims.size());
    for (std::size_t d = 0; d < dims.size(); ++d) kept[d] = slots[dims[d]];
    return kept.data();
  }

 private:
  std::vector<std::vector<std::int64_t>> kept_;
  std::size_t used_ = 0;
};

// The state of the frame that results are made of.
struct ResultSource {
  const abi::Plan& plan;
  const PlanFacts& facts;
  const Call& call;
  std::span<const std::int64_t> slots;
  std::span<const Handle> handles;  // by buffer; of outputs and externals
  ViewNumbers& numbers;
  // The tensor of a root buffer, where it is.
  function_ref<abi::TensorView(abi::PlanBuffer root)> view_of;
  // Puts `bytes` of a constant into a tensor that the host has made.
  function_ref<void(abi::PlanBuffer root, const abi::TensorView& to, std::int64_t bytes)>
      copy_constant;
};

// Gives the host every result, in order.
void give_results(const ResultSource& source);

}  // namespace inkle::runtime::common
