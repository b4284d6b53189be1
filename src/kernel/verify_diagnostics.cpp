#include "kernel/verify_diagnostics.h"

#include "base/error.h"
#include "kernel/names.h"

namespace inkle::kernel {

void Diagnostics::fail(const std::string& reason) const {
  std::string where;
  if (at_ != kNone) {
    const Operation& o = kernel_.operations[at_];
    where = fmt::format(", operation {} ({}", at_, name_of(o.op));
    if (o.op == Op::compute && std::holds_alternative<Compute>(o.detail)) {
      where += fmt::format(" {}", loop::name_of(std::get<Compute>(o.detail).opcode));
    }
    where += ")";
  }
  const std::string pass = pass_.empty() ? "" : fmt::format("after {}: ", pass_);
  throw InternalError(fmt::format("{}kernel @{}{}: {}", pass, kernel_.name, where, reason));
}

const Memory& Diagnostics::memory(MemoryId id) const {
  require(id < kernel_.memories.size(), "a memory that does not exist");
  return kernel_.memories[id];
}

}  // namespace inkle::kernel
