// Copying a body into another one.
#include "base/error.h"
#include "loop/builder.h"
#include "loop/scalar.h"

namespace inkle::loop {
namespace {

class Inliner {
 public:
  Inliner(const Body& from, sym::Substitution indices, BodyBuilder& to, const LoadRewrite& on_load)
      : from_(from), map_(indices.begin(), indices.end()), to_(to), on_load_(on_load) {}

  std::vector<Val> run() {
    values_.reserve(from_.instructions.size());
    for (const Instruction& i : from_.instructions) values_.push_back(copy(i));
    std::vector<Val> yields;
    yields.reserve(from_.yields.size());
    for (const Val v : from_.yields) yields.push_back(values_[v]);
    return yields;
  }

  [[nodiscard]] const std::vector<std::pair<Expr, Expr>>& map() const { return map_; }

 private:
  [[nodiscard]] Expr mapped(Expr e) const { return sym::substitute(e, map_); }
  [[nodiscard]] Val operand(const Instruction& i, std::size_t n) const {
    return values_[i.operands[n]];
  }

  Val copy_load(const Instruction& i) {
    Instruction load = i;
    for (std::size_t n = 0; n < i.operand_count; ++n) load.operands[n] = operand(i, n);
    for (Expr& e : load.indices) e = mapped(e);
    if (i.operand_count == 2) {
      const Instruction& predicate = to_.body()[load.operands[0]];
      if (predicate.opcode == Opcode::constant) {
        if (predicate.integer == 0) return load.operands[1];
        load.operand_count = 0;
        load.operands = {};
      }
    }
    return on_load_ ? on_load_(to_, std::move(load)) : to_.append(std::move(load));
  }

  Val copy(const Instruction& i) {
    switch (kind_of(i.opcode)) {
      case OpcodeKind::unary:
      case OpcodeKind::test:
        return to_.unary(i.opcode, operand(i, 0));
      case OpcodeKind::binary:
      case OpcodeKind::comparison:
        return to_.binary(i.opcode, operand(i, 0), operand(i, 1));
      case OpcodeKind::ternary:
        return to_.fma(operand(i, 0), operand(i, 1), operand(i, 2));
      case OpcodeKind::leaf:
      case OpcodeKind::structure:
        break;
    }
    switch (i.opcode) {
      case Opcode::load:
        return copy_load(i);
      case Opcode::index:
        return to_.index(mapped(i.indices[0]));
      case Opcode::random:
        return to_.random(operand(i, 0), operand(i, 1));
      case Opcode::cast:
        return to_.cast(operand(i, 0), i.dtype);
      case Opcode::bitcast:
        return to_.bitcast(operand(i, 0), i.dtype);
      case Opcode::select:
        return to_.select(operand(i, 0), operand(i, 1), operand(i, 2));
      case Opcode::indirect: {
        const Expr extent = mapped(to_.context().info(i.indices[0]).extent);
        map_.emplace_back(i.indices[0], to_.indirect(operand(i, 0), extent));
        return operand(i, 0);  // an indirect is not used by its value
      }
      default:
        return to_.append(i);  // constant, row
    }
  }

  const Body& from_;
  std::vector<std::pair<Expr, Expr>> map_;
  BodyBuilder& to_;
  const LoadRewrite& on_load_;
  std::vector<Val> values_;
};

}  // namespace

std::vector<Val> inline_body(const Body& from, sym::Substitution indices, BodyBuilder& to,
                             const LoadRewrite& on_load,
                             std::vector<std::pair<Expr, Expr>>* indirect) {
  Inliner inliner(from, indices, to, on_load);
  std::vector<Val> yields = inliner.run();
  if (indirect != nullptr) {
    const auto added = inliner.map().begin() + static_cast<std::ptrdiff_t>(indices.size());
    indirect->insert(indirect->end(), added, inliner.map().end());
  }
  return yields;
}

}  // namespace inkle::loop
