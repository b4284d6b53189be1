// min and max: flat, sorted lists without operands that can be shown never to be the extreme.
#include <algorithm>

#include "sym/expr.h"
#include "sym/node.h"

namespace inkle::sym {
namespace {

void append_operands(Kind kind, const Node* e, Factors& out) {
  if (e->kind != kind) {
    out.push_back(Expr(e));
    return;
  }
  for (const Expr operand : e->all()) out.push_back(operand);
}

// Of min, b is never needed beside a if a <= b.
bool makes_needless(Context::Impl& impl, Kind kind, const Node* a, const Node* b) {
  return kind == Kind::min ? impl.at_most(a, b) : impl.at_most(b, a);
}

}  // namespace

const Node* Context::Impl::extreme(Kind kind, const Node* a, const Node* b) {
  if (a == b) return a;
  if (a->is_constant() && b->is_constant()) {
    return (a->value < b->value) == (kind == Kind::min) ? a : b;
  }
  if (a->id > b->id) std::swap(a, b);
  const Op op = kind == Kind::min ? Op::min : Op::max;
  if (const Node* known = find_memo(op, a, b)) return known;
  Factors operands;
  append_operands(kind, a, operands);
  append_operands(kind, b, operands);
  std::sort(operands.begin(), operands.end(),
            [](Expr x, Expr y) { return compare_atoms(x.node(), y.node()) < 0; });
  for (std::size_t i = 0; i < operands.size(); ++i) {
    for (std::size_t k = operands.size(); k-- > i + 1;) {
      if (makes_needless(*this, kind, operands[i].node(), operands[k].node()))
        operands.erase(operands.begin() + k);
    }
    for (std::size_t k = i + 1; k < operands.size(); ++k) {
      if (!makes_needless(*this, kind, operands[k].node(), operands[i].node())) continue;
      operands.erase(operands.begin() + i--);
      break;
    }
  }
  const Node* result =
      operands.size() == 1 ? operands[0].node() : intern(kind, {operands.begin(), operands.size()});
  keep_memo(op, a, b, result);
  return result;
}

}  // namespace inkle::sym
