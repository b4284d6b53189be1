// Text of plans: what is accepted prints to text that gives the same plan.
#include "abi/plan_text.h"
#include "fuzz.h"
#include "runtime/common/plan_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace inkle;
  fuzz::accept_refusal([&] {
    const abi::Plan plan = abi::parse_plan(fuzz::text_of(data, size), "fuzz");
    const std::string text = abi::print_plan(plan);
    INKLE_CHECK(abi::print_plan(abi::parse_plan(text, "printed")) == text, "another plan: {}",
                text);
    runtime::common::check_references(plan);
  });
  return 0;
}
