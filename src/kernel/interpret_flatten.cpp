// Structured kernel -> linear program. Control becomes jumps and masks; every value gets its slots.
#include "kernel/interpret_flatten.h"

namespace inkle::kernel {

Program Flattener::run() {
  const auto define = [&](Expr symbol) {
    const Ref ref = out_.slot(1, false);
    indices_.define(symbol, ref);
    return ref;
  };
  for (const Expr size : kernel_.sizes) out_.program().sizes.push_back(define(size));
  for (const Axis& axis : kernel_.launch.axes) {
    out_.program().axes.push_back(define(axis.variable));
  }
  region(kernel_.body);
  out_.emit(Code::finish, kNone);
  return std::move(out_.program());
}

void Flattener::region(RegionId id) {
  for (const OperationId operation : kernel_.regions[id].operations) {
    if (operation != kNone) this->operation(operation);
  }
}

Program flatten(const Kernel& kernel) { return Flattener(kernel).run(); }

}  // namespace inkle::kernel
