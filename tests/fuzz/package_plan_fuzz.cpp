// Plan sections: what is accepted by the verifiers is the same when it is packed and read again.
#include <cstdlib>

#include "fuzz.h"
#include "package/contents.h"
#include "runtime/common/plan_bounds.h"
#include "runtime/common/plan_check.h"
#include "runtime/common/prepared_plan.h"
#include "runtime/common/size_program.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace inkle;
  fuzz::accept_refusal([&] {
    const package::Contents contents = package::unpack(fuzz::bytes_of(data, size));
    const auto packed = package::pack(contents);
    if (package::pack(package::unpack(packed)) != packed) std::abort();
    const abi::Plan& plan = contents.plan;
    runtime::common::check_references(plan);
    const runtime::common::SizeProgram sizes(plan);
    const runtime::common::PlanFacts facts(plan);
    (void)runtime::common::plan_prepared(plan, facts, sizes, 64);
    runtime::common::check_bounds(plan, facts, sizes.constant_slots());
  });
  return 0;
}
