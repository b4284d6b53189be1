#include "cli/plan_check.h"

#include "runtime/common/plan_bounds.h"
#include "runtime/common/plan_check.h"
#include "runtime/common/prepared_plan.h"
#include "runtime/common/size_program.h"

namespace inkle::cli {

void check_plan(const abi::Plan& plan) {
  namespace common = runtime::common;
  common::check_references(plan);
  const common::SizeProgram sizes(plan);
  const common::PlanFacts facts(plan);
  (void)common::plan_prepared(plan, facts, sizes, 1);
  if (sizes.is_constant()) common::check_bounds(plan, facts, sizes.constant_slots());
}

}  // namespace inkle::cli
