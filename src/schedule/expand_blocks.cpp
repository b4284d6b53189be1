#include "schedule/expand_blocks.h"

#include <algorithm>

#include "base/error.h"

namespace inkle::schedule::expansion {

using loop::Instruction;
using loop::Opcode;

Expr BlockExpansion::iterations(std::size_t count) const {
  Expr product = context().constant(1);
  for (std::size_t d = 0; d < count; ++d) product = product * loops().outer[d].extent;
  return product;
}

void bind(BlockExpansion& x, Expr symbol, Expr value) {
  kernel::Builder& b = x.e.b;
  b.operation(kernel::Op::bind, {b.index(value)}, {kernel::scalar_type(DType::i64)},
              kernel::Symbolic{symbol, {}});
}

Expr bind_new(BlockExpansion& x, Expr value, Expr extent, std::int64_t divisor) {
  const Expr symbol = x.context().index(extent);
  if (divisor != 1) {
    sym::SymbolInfo info = x.context().info(symbol);
    info.divisor = divisor;
    x.context().set_info(symbol, std::move(info));
  }
  bind(x, symbol, value);
  return symbol;
}

void bind_outer(BlockExpansion& x, Expr number, std::size_t first, std::size_t end) {
  const auto& outer = x.loops().outer;
  Expr rest = number;
  for (std::size_t d = end; d-- > first;) {
    if (d == first) {
      bind(x, outer[d].variable, rest);
      return;
    }
    Expr above = x.context().constant(1);
    for (std::size_t a = first; a < d; ++a) above = above * outer[a].extent;
    bind(x, outer[d].variable, sym::mod(rest, outer[d].extent));
    rest = bind_new(x, sym::floordiv(rest, outer[d].extent), above);
  }
}

ValueId less(BlockExpansion& x, Expr a, Expr b) {
  kernel::Builder& builder = x.e.b;
  return builder.compute(Opcode::less, DType::boolean, {builder.index(a), builder.index(b)});
}

void if_less(BlockExpansion& x, Expr a, Expr b, const std::function<void()>& body) {
  if (sym::less(a, b) == true) return body();
  x.e.b.branch(less(x, a, b), [&] {
    body();
    return Values();
  });
}

bool is_read_again(const BlockExpansion& x, const Stage& stage) {
  const auto reads = [](const Stage& other, std::uint32_t buffer) {
    return !other.inner.empty() &&
           std::any_of(other.body.instructions.begin(), other.body.instructions.end(),
                       [&](const Instruction& i) {
                         return i.opcode == Opcode::load && i.buffer == buffer;
                       });
  };
  bool is_later = false;
  for (const PreparedStage& other : x.prepared.stages) {
    if (is_later && std::any_of(stage.body.instructions.begin(), stage.body.instructions.end(),
                                [&](const Instruction& i) {
                                  return i.opcode == Opcode::load && reads(other.stage, i.buffer);
                                })) {
      return true;
    }
    is_later = is_later || &other.stage == &stage;
  }
  return false;
}

bool knows(const Kernel& scheduled) {
  return std::holds_alternative<LoopKernel>(scheduled.body) && !scheduled.ending;
}

}  // namespace inkle::schedule::expansion
