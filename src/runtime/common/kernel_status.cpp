#include "runtime/common/kernel_status.h"

#include <fmt/format.h>

#include "runtime/common/errors.h"

namespace inkle::runtime::common {

void throw_status(abi::KernelStatus status, const abi::Plan& plan, const abi::PlanStep& step) {
  const std::string& where = abi::place_of_failure(plan, step);
  switch (status) {
    case abi::KernelStatus::index_out_of_range:
      throw OutOfRange(fmt::format("index out of range in {}", where));
    case abi::KernelStatus::division_by_zero:
      user_error("integer division by zero in {}", where);
    case abi::KernelStatus::ok:
      break;
  }
  throw InternalError(
      fmt::format("kernel status {} in {}", static_cast<std::int64_t>(status), where));
}

}  // namespace inkle::runtime::common
