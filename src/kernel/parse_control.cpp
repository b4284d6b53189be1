#include "kernel/parse_control.h"

#include <fmt/format.h>

#include "kernel/derive.h"

namespace inkle::kernel {

Values ControlParser::operation(Op op) {
  switch (op) {
    case Op::loop:
      return loop_operation();
    case Op::repeat:
      return repeat();
    case Op::branch:
      return branch();
    case Op::vector:
      return vector();
    case Op::fold:
      return fold();
    default:
      return roles();
  }
}

Loop ControlParser::loop() {
  Loop local;
  const std::string name(s_.identifier());
  s_.expect("in");
  local.begin = symbols_.names().constant(0);
  local.end = symbols_.local_expression();
  if (s_.accept("..")) local.begin = std::exchange(local.end, symbols_.local_expression());
  local.step = symbols_.names().constant(1);
  if (s_.accept("by")) local.step = symbols_.local_expression();
  if (local.step.constant() && *local.step.constant() < 1) s_.fail("a step below 1");
  local.at_least_once = s_.accept("runs");
  if (s_.accept("rolled")) {
    local.kind = LoopKind::rolled;
  } else if (s_.accept("unroll")) {
    if (s_.next_is_number()) {
      local.unroll = text_.count("unrolling");
      if (local.unroll < 1) s_.fail("unrolling by less than 1");
    } else {
      local.kind = LoopKind::unroll;
    }
  }
  Loop out = local;
  for (Expr* e : {&out.begin, &out.end, &out.step}) *e = symbols_.translated(*e);
  out.variable = symbols_.declare(name, facts_of(local));
  return out;
}

Values ControlParser::loop_operation() {
  Loop info = loop();
  Values operands;
  if (s_.accept("over")) {
    info.is_lowered = true;
    s_.expect("(");
    operands.push_back(regions_.index_value());
    s_.expect(",");
    operands.push_back(regions_.index_value());
    s_.expect(")");
  }
  Values initial;
  RegionParser::Arguments carried;
  if (s_.accept("carry")) carried = regions_.arguments(&initial);
  const TypeList types = regions_.types_of(initial);
  const auto [id, yields] = regions_.region(carried);
  regions_.expect_types(yields, types, "the loop yields values");
  operands.insert(operands.end(), initial.begin(), initial.end());
  return regions_.append(Op::loop, std::move(operands), types, std::move(info), {id});
}

Values ControlParser::repeat() {
  Values initial;
  RegionParser::Arguments carried;
  if (s_.accept("carry")) carried = regions_.arguments(&initial);
  const TypeList types = regions_.types_of(initial);
  TypeList wanted = types;
  wanted.insert(wanted.begin(), scalar_type(DType::boolean));
  const auto [id, yields] = regions_.region(carried);
  regions_.expect_types(yields, wanted, "repeat yields values");
  return regions_.append(Op::repeat, std::move(initial), types, {}, {id});
}

Values ControlParser::branch() {
  const ValueId condition = regions_.value();
  if (regions_.type_of(condition) != scalar_type(DType::boolean))
    text_.refuse("a condition that is no bool");
  Branch info;
  if (s_.accept("limit")) info.limit = text_.count("limit");
  info.some_lane = s_.accept("some");
  if (s_.accept("unlikely")) info.is_likely = false;
  const auto [then, types] = regions_.region({});
  RegionId otherwise = kNone;
  if (s_.accept("else")) {
    const auto [id, yields] = regions_.region({});
    regions_.expect_types(yields, types, "the second region yields values");
    otherwise = id;
  } else {
    if (!types.empty()) s_.fail("expected 'else'");
    otherwise = regions_.open_region();
  }
  return regions_.append(Op::branch, {condition}, types, info, {then, otherwise});
}

Values ControlParser::vector() {
  Vector info;
  const std::string name(s_.identifier());
  s_.expect("in");
  info.width = text_.count("width");
  if (info.width < 1) text_.refuse("a width below 1");
  if (s_.accept("native")) info.native = text_.count("width");
  info.lane = symbols_.declare_index(name, symbols_.names().constant(info.width));
  const auto [id, types] = regions_.region({});
  return regions_.append(Op::vector, {}, types, std::move(info), {id});
}

Values ControlParser::fold() {
  Fold info;
  std::vector<std::string> variables;
  do {
    const Scanner::Mark start = s_.mark();
    variables.emplace_back(s_.identifier());
    s_.reset(start);
    info.loops.push_back(loop());
  } while (s_.accept(","));
  if (s_.accept("chunk")) {
    const std::string_view name = s_.identifier();
    for (std::size_t i = 0; i < variables.size(); ++i) {
      if (variables[i] == name) info.chunked_loop = static_cast<std::int32_t>(i);
    }
    if (info.chunked_loop < 0) s_.fail("no loop of the fold");
    s_.expect("by");
    info.chunk = text_.count("chunk");
    if (info.chunk < 1) text_.refuse("a chunk below 1");
  }
  s_.expect("from");
  s_.expect("(");
  Values initial = regions_.values(")");
  const TypeList totals = regions_.types_of(initial);
  const auto part = [&](std::string_view name, const TypeList& wanted) {
    s_.expect(name);
    const auto list = regions_.arguments(nullptr);
    TypeList types;
    for (const auto& [unused, type] : list) types.push_back(type);
    regions_.expect_types(types, wanted, fmt::format("{} takes values", name));
    return regions_.region(list);
  };
  if (info.chunked_loop < 0) {
    const auto [step, yields] = part("step", totals);
    regions_.expect_types(yields, totals, "step yields values");
    return regions_.append(Op::fold, std::move(initial), totals, std::move(info), {step});
  }
  // The states' types are known from what `step` takes.
  s_.expect("step");
  const auto list = regions_.arguments(nullptr);
  TypeList states;
  for (const auto& [unused, type] : list) states.push_back(type);
  const auto [step, stepped] = regions_.region(list);
  regions_.expect_types(stepped, states, "step yields values");
  const auto [begin, begun] = part("begin", totals);
  regions_.expect_types(begun, states, "begin yields values");
  TypeList both = totals;
  both.insert(both.end(), states.begin(), states.end());
  const auto [merge, merged] = part("merge", both);
  regions_.expect_types(merged, totals, "merge yields values");
  return regions_.append(Op::fold, std::move(initial), totals, std::move(info),
                         {step, begin, merge});
}

Values ControlParser::roles() {
  Roles info;
  Regions regions;
  s_.expect("{");
  while (!s_.accept("}")) {
    Roles::Role role;
    role.name = text_.name();
    s_.expect("warps");
    role.first_warp = text_.count("warp");
    s_.expect("..");
    role.warps = text_.count("warp") - role.first_warp;
    if (role.warps < 1) text_.refuse("a role without warps");
    if (s_.accept("registers")) role.registers = text_.count("number of registers");
    info.roles.push_back(std::move(role));
    const auto [id, types] = regions_.region({});
    if (!types.empty()) text_.refuse("a role yields nothing");
    regions.push_back(id);
  }
  return regions_.append(Op::roles, {}, {}, std::move(info), std::move(regions));
}

}  // namespace inkle::kernel
