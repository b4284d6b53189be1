#include "codegen/cuda/value_text.h"

#include <numeric>

#include "base/error.h"

namespace inkle::codegen::cuda {

using kernel::Op;
using kernel::OperationId;
using kernel::ValueId;
using sym::Expr;

ValueText::ValueText(const kernel::Kernel& kernel, const LanePlan& plan)
    : k_(kernel),
      plan_(plan),
      alias_(kernel.values.size()),
      has_widened_(kernel.values.size(), false),
      is_narrow_(kernel.values.size(), false) {
  std::iota(alias_.begin(), alias_.end(), ValueId{0});
}

void ValueText::enter_vector(Expr lane, int lanes) {
  lane_ = lane;
  lanes_ = lanes;
  define(lane, {"l"}, false);
}

void ValueText::leave_vector() {
  lane_ = {};
  lanes_ = 1;
}

bool ValueText::is_array(ValueId v) const {
  if (!plan_.varies(v)) return false;
  return !(in_lanes_ && plan_.is_lane_of(v, segment_)) && plan_.is_array(v);
}

ShortText ValueText::variable(ValueId v) const { return numbered('v', alias_[v]); }
ShortText ValueText::pack(ValueId v) const { return numbered('w', alias_[v]); }

ShortText ValueText::of(ValueId v) const {
  const OperationId made = k_.values[v].definition;
  if (made != kernel::kNone && k_.operations[made].op == Op::constant) {
    const auto& value = std::get<kernel::Immediate>(k_.operations[made].detail);
    return literal(dtype(v), value.real, value.integer);
  }
  if (is_array(v)) return {pack(v), ".at[l]"};
  if (is_narrow(v)) return {"(i64)", variable(v)};
  return variable(v);
}

ShortText ValueText::widened(ValueId v) const {
  if (is_array(v)) return {"to_f32(", pack(v), ", l)"};
  if (has_widened_[v]) return numbered('x', v);
  return {"to_f32(", of(v), ")"};
}

ShortText ValueText::define_widened(ValueId v) {
  has_widened_[v] = true;
  return numbered('x', v);
}

ShortText ValueText::declaration(ValueId v) const {
  if (!is_array(v)) return {type(v), " ", variable(v), ";"};
  return {"Pack<", type(v), ", ", digits(lanes_), "> ", pack(v), ";"};
}

// --- Symbols ---------------------------------------------------------------------------------

void ValueText::define(Expr symbol, const ShortText& text, bool wide) {
  symbols_[symbol.node()] = {text, wide, kernel::kNone};
}

void ValueText::define(Expr symbol, ValueId v) {
  symbols_[symbol.node()] = {{}, !fits32(symbol), v};
}

void ValueText::symbol(Writer& to, Expr s, bool wide) const {
  const auto found = symbols_.find(s.node());
  INKLE_CHECK(found != symbols_.end(), "kernel {}: '{}' has no value here", k_.name, s.name());
  const Symbol& known = found->second;
  if (wide && !known.wide) to.add("(i64)");
  to.add(known.value == kernel::kNone ? known.text : of(known.value));
}

void ValueText::join(Expr outer, Expr inner, std::int64_t extent, Expr joint) {
  joints_.push_back({outer, inner, extent, joint - outer * extent - inner});
}

Expr ValueText::joined(Expr e) const {
  for (const Joint& joint : joints_) {
    if (!sym::contains(e, joint.outer) || !sym::contains(e, joint.inner)) continue;
    const auto outer = sym::stride(e, joint.outer);
    const auto inner = sym::stride(e, joint.inner);
    if (!outer || !inner || !(*outer == *inner * joint.extent)) continue;
    e = e + joint.change * *inner;
  }
  return e;
}

void ValueText::index(Writer& to, Expr e, bool wide) {
  if (!joints_.empty()) e = joined_.of(e, [this](Expr one) { return joined(one); });
  if (!in_lanes_ && !lane_.is_null() && sym::contains(e, lane_)) {
    const std::pair<Expr, Expr> map[] = {{lane_, lane_.context().constant(0)}};
    e = sym::substitute(e, map);
  }
  const auto print_symbol = [&](Expr s) { symbol(to, s, wide); };
  print_index(to, e, print_symbol, wide);
}

std::string ValueText::index(Expr e, bool wide) {
  Writer text;
  index(text, e, wide);
  return text.take();
}

}  // namespace inkle::codegen::cuda
