// What follows from a plan alone, by number: what both runtimes ask of it in every call.
#pragma once

#include <cstdint>
#include <vector>

#include "abi/plan.h"
#include "runtime/common/executable.h"

namespace inkle::runtime::common {

struct PlanFacts {
  // The plan's references have been checked. Throws UserError for aliases in a circle, and for an
  // output in memory that the next call uses again.
  explicit PlanFacts(const abi::Plan& plan);

  // As many tensors and integers as the plan takes. Throws UserError.
  void check_counts(const abi::Plan& plan, const Call& call) const;

  std::vector<abi::PlanBuffer> roots;       // by buffer: itself, or what it is an alias of
  std::vector<bool> has_alias;              // by buffer: another one lies in it
  std::vector<std::int32_t> tensor_number;  // by plan argument; -1 for integers
  std::vector<std::vector<abi::PlanBuffer>> argument_buffers;  // by plan argument
  std::vector<abi::PlanBuffer> output_buffers;
  std::uint32_t tensor_count = 0;
  std::uint32_t integer_count = 0;
};

}  // namespace inkle::runtime::common
