#include "runtime/common/plan_of_file.h"

#include "runtime/common/plan_bounds.h"
#include "runtime/common/plan_check.h"
#include "runtime/common/prepared_plan.h"
#include "runtime/common/size_program.h"

namespace inkle::runtime::common {

void check_plan_of_file(const abi::Plan& plan) {
  check_references(plan);
  const SizeProgram sizes(plan);
  const PlanFacts facts(plan);
  (void)plan_prepared(plan, facts, sizes, 1);
  if (sizes.is_constant()) check_bounds(plan, facts, sizes.constant_slots());
}

}  // namespace inkle::runtime::common
