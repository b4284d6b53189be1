// Regions, values and control from text.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "kernel/derive.h"
#include "kernel/parser.h"

namespace inkle::kernel {
namespace {

constexpr int kDeepest = 200;  // nesting of values and regions

bool fits(DType dtype, std::int64_t value) {
  const std::int64_t bits = 8 * abi::size_of(dtype);
  if (dtype == DType::boolean) return value == 0 || value == 1;
  if (dtype == DType::u8) return value >= 0 && value <= 255;
  const std::int64_t high =
      bits >= 64 ? std::numeric_limits<std::int64_t>::max() : (std::int64_t{1} << (bits - 1)) - 1;
  return value <= high && value >= -high - 1;
}

}  // namespace

Parser::Values Parser::append(Op op, Values operands, const std::vector<Type>& results,
                              Detail detail, std::vector<RegionId> regions) {
  const auto id = static_cast<OperationId>(k_.operations.size());
  Operation made{op, std::move(operands), {}, std::move(regions), std::move(detail)};
  for (const Type& type : results) {
    made.results.push_back(static_cast<ValueId>(k_.values.size()));
    k_.values.push_back({type, id, kNone});
  }
  Values out = made.results;
  k_.operations.push_back(std::move(made));
  k_.regions[region_].operations.push_back(id);
  return out;
}

RegionId Parser::open_region() {
  k_.regions.emplace_back();
  return static_cast<RegionId>(k_.regions.size() - 1);
}

void Parser::refuse(std::string_view message) {
  s_.reset(start_);
  s_.fail(message);
}

// --- Names and types
// -------------------------------------------------------------------------------

std::string Parser::value_name() {
  s_.expect("%");
  if (const auto word = s_.accept_identifier()) return std::string(*word);
  return fmt::format("{}", count("number of a value"));
}

void Parser::define(const std::string& name, ValueId value) {
  if (!values_.emplace(name, value).second) refuse(fmt::format("%{} is defined twice", name));
  scope_.push_back(name);
}

DType Parser::dtype(std::string_view name) const {
  const auto found = abi::dtype_from_name(name);
  if (!found) s_.fail(fmt::format("'{}' is no dtype", name));
  return *found;
}

Type Parser::type() {
  const std::string_view word = s_.identifier();
  if (word == "token") return {TypeKind::token, DType::f32, 0};
  if (word != "frag") {
    const DType scalar = dtype(word);
    if (!abi::is_computable(scalar)) refuse("a value of a type without arithmetic");
    return scalar_type(scalar);
  }
  FragmentType f;
  s_.expect("<");
  f.dtype = dtype(s_.identifier());
  s_.expect("[");
  f.rows = count("rows");
  s_.expect(",");
  f.columns = count("columns");
  s_.expect("]");
  f.holder = named(kHolders, "holder");
  f.layout = named(kFragmentLayouts, "layout");
  s_.expect(">");
  return k_.fragment_type(f);
}

std::vector<Type> Parser::types_of(const Values& values) const {
  std::vector<Type> types;
  for (const ValueId v : values) types.push_back(type_of(v));
  return types;
}

void Parser::expect_types(const std::vector<Type>& got, const std::vector<Type>& wanted,
                          std::string_view what) {
  if (got == wanted) return;
  const auto list = [&](const std::vector<Type>& types) {
    std::string out;
    for (const Type& t : types) out += (out.empty() ? "" : ", ") + to_string(k_, t);
    return "(" + out + ")";
  };
  refuse(fmt::format("{} of {}, not {}", what, list(got), list(wanted)));
}

// --- Values
// ----------------------------------------------------------------------------------------

ValueId Parser::value() {
  if (++depth_ > kDeepest) s_.fail("values nested too deeply");
  const Scanner::Mark start = start_;
  const ValueId v = nested_value();
  start_ = start;
  --depth_;
  return v;
}

ValueId Parser::nested_value() {
  if (s_.next_is("%")) {
    const Scanner::Mark start = s_.mark();
    const std::string name = value_name();
    const auto found = values_.find(name);
    if (found != values_.end()) return found->second;
    s_.reset(start);
    s_.fail(fmt::format("no value %{} here", name));
  }
  if (s_.next_is_number() || s_.next_is("true") || s_.next_is("false")) return number();
  start_ = s_.mark();
  const std::string word(s_.identifier());
  const Values results = operation(word, {.is_value = true});
  if (results.size() == 1) return results[0];
  refuse(fmt::format("{} gives {} values, not one", word, results.size()));
}

ValueId Parser::number() {
  const Scanner::Mark begin = s_.mark();
  Immediate immediate;
  DType dtype = DType::boolean;
  if (s_.accept("true")) {
    immediate.integer = 1;
  } else if (!s_.accept("false")) {
    bool is_integer = false;
    immediate.real = s_.number(is_integer, immediate.integer);
    dtype = is_integer ? DType::i64 : DType::f32;
    if (s_.accept(":")) dtype = this->dtype(s_.identifier());
    if (!abi::is_computable(dtype)) s_.fail("a constant of a type without arithmetic");
    if (abi::is_float(dtype)) {
      immediate.integer = 0;
    } else if (!is_integer || !fits(dtype, immediate.integer)) {
      s_.reset(begin);
      s_.fail(fmt::format("the constant is no {}", abi::name_of(dtype)));
    } else {
      immediate.real = 0;
    }
  }
  return append(Op::constant, {}, {scalar_type(dtype)}, immediate)[0];
}

Parser::Values Parser::values(std::string_view end) {
  Values list;
  while (!s_.accept(end)) {
    if (!list.empty()) s_.expect(",");
    list.push_back(value());
  }
  return list;
}

ValueId Parser::index_value() {
  const ValueId v = value();
  const Type type = type_of(v);
  if (type != scalar_type(DType::i64) && type != scalar_type(DType::i32)) {
    refuse(fmt::format("an index of {}", to_string(k_, type)));
  }
  return v;
}

// --- Regions
// ---------------------------------------------------------------------------------------

void Parser::statements() {
  while (!s_.next_is("}") && !s_.next_is("yield")) {
    if (s_.at_end()) s_.fail("expected '}'");
    statement();
  }
}

void Parser::statement() {
  Wanted wanted;
  start_ = s_.mark();
  while (s_.next_is("%")) {
    wanted.names.push_back(value_name());
    if (!s_.accept(",")) break;
    if (!s_.next_is("%")) return symbolic(wanted.names, std::string(s_.identifier()));
  }
  Values results;
  if (wanted.names.empty()) {
    const std::string word(s_.identifier());
    if (s_.next_is("in") && !kOps.find(word)) return symbolic({}, word);
    results = operation(word, wanted);
  } else {
    s_.expect("=");
    if (s_.next_is("%")) s_.fail("a value is named once");
    if (s_.next_is_number() || s_.next_is("true") || s_.next_is("false")) {
      results = {number()};
    } else {
      results = operation(std::string(s_.identifier()), wanted);
    }
    if (results.size() != wanted.names.size()) {
      refuse(fmt::format("{} names for {} results", wanted.names.size(), results.size()));
    }
  }
  for (std::size_t i = 0; i < wanted.names.size(); ++i) define(wanted.names[i], results[i]);
}

// "%0, j0 in n = indirect(v)" from "in" on.
void Parser::symbolic(const std::vector<std::string>& results, const std::string& name) {
  if (results.size() > 1) refuse("an index is one value");
  s_.expect("in");
  // A range begins with a number or dots and has dots; else it is an extent.
  const Scanner::Mark start = s_.mark();
  if (s_.next_is_number()) static_cast<void>(s_.integer());
  const bool is_range = s_.next_is("..");
  s_.reset(start);
  const sym::SymbolInfo info = is_range ? range() : sym::SymbolInfo();
  const Expr extent = is_range ? Expr() : local_expression();
  s_.expect("=");
  s_.expect(is_range ? "bind" : "indirect");
  s_.expect("(");
  const ValueId operand = value();
  if (type_of(operand) != scalar_type(DType::i64)) refuse("an index that is no i64");
  Values operands{operand};
  if (!is_range && s_.accept(",")) operands.push_back(value());
  s_.expect(")");
  Symbolic detail;
  if (is_range) {
    detail.symbol = declare(name, info);
  } else {
    detail.symbol = declare_index(name, extent);
    detail.extent = global_(extent);
  }
  const Values values =
      append(is_range ? Op::bind : Op::indirect, operands, {scalar_type(DType::i64)}, detail);
  if (!results.empty()) define(results[0], values[0]);
}

std::vector<std::pair<std::string, Type>> Parser::arguments(Values* initial) {
  std::vector<std::pair<std::string, Type>> list;
  s_.expect("(");
  while (!s_.accept(")")) {
    if (!list.empty()) s_.expect(",");
    std::string name = value_name();
    s_.expect(":");
    const Type type = this->type();
    if (initial != nullptr) {
      s_.expect("=");
      initial->push_back(value());
      expect_types({type_of(initial->back())}, {type}, "an initial value");
    }
    list.emplace_back(std::move(name), type);
  }
  return list;
}

std::pair<RegionId, std::vector<Type>> Parser::region(
    const std::vector<std::pair<std::string, Type>>& arguments) {
  if (++depth_ > kDeepest) s_.fail("regions nested too deeply");
  s_.expect("{");
  const RegionId id = open_region();
  const RegionId outside = std::exchange(region_, id);
  const std::size_t names = scope_.size();
  const Scanner::Mark start = start_;
  for (const auto& [name, type] : arguments) {
    const auto value = static_cast<ValueId>(k_.values.size());
    k_.values.push_back({type, kNone, id});
    k_.regions[id].arguments.push_back(value);
    define(name, value);
  }
  statements();
  start_ = s_.mark();
  Values yields;
  if (s_.accept("yield")) {
    do {
      yields.push_back(value());
    } while (s_.accept(","));
  }
  std::vector<Type> types = types_of(yields);
  k_.regions[id].yields = std::move(yields);
  s_.expect("}");
  for (; scope_.size() > names; scope_.pop_back()) values_.erase(scope_.back());
  region_ = outside;
  start_ = start;
  --depth_;
  return {id, std::move(types)};
}

// --- Control
// ---------------------------------------------------------------------------------------

Loop Parser::loop() {
  Loop local;
  const std::string name(s_.identifier());
  s_.expect("in");
  local.begin = names_.constant(0);
  local.end = local_expression();
  if (s_.accept("..")) local.begin = std::exchange(local.end, local_expression());
  local.step = names_.constant(1);
  if (s_.accept("by")) local.step = local_expression();
  if (local.step.constant() && *local.step.constant() < 1) s_.fail("a step below 1");
  local.at_least_once = s_.accept("runs");
  if (s_.accept("rolled")) {
    local.kind = LoopKind::rolled;
  } else if (s_.accept("unroll")) {
    if (s_.next_is_number()) {
      local.unroll = count("unrolling");
      if (local.unroll < 1) s_.fail("unrolling by less than 1");
    } else {
      local.kind = LoopKind::unroll;
    }
  }
  Loop out = local;
  for (Expr* e : {&out.begin, &out.end, &out.step}) *e = global_(*e);
  out.variable = declare(name, facts_of(local));
  return out;
}

Parser::Values Parser::loop_operation() {
  Loop info = loop();
  Values operands;
  if (s_.accept("over")) {
    info.is_lowered = true;
    s_.expect("(");
    operands.push_back(index_value());
    s_.expect(",");
    operands.push_back(index_value());
    s_.expect(")");
  }
  Values initial;
  std::vector<std::pair<std::string, Type>> carried;
  if (s_.accept("carry")) carried = arguments(&initial);
  const std::vector<Type> types = types_of(initial);
  const auto [id, yields] = region(carried);
  expect_types(yields, types, "the loop yields values");
  operands.insert(operands.end(), initial.begin(), initial.end());
  return append(Op::loop, std::move(operands), types, std::move(info), {id});
}

Parser::Values Parser::repeat() {
  Values initial;
  std::vector<std::pair<std::string, Type>> carried;
  if (s_.accept("carry")) carried = arguments(&initial);
  const std::vector<Type> types = types_of(initial);
  std::vector<Type> wanted = types;
  wanted.insert(wanted.begin(), scalar_type(DType::boolean));
  const auto [id, yields] = region(carried);
  expect_types(yields, wanted, "repeat yields values");
  return append(Op::repeat, std::move(initial), types, {}, {id});
}

Parser::Values Parser::branch() {
  const ValueId condition = value();
  if (type_of(condition) != scalar_type(DType::boolean)) refuse("a condition that is no bool");
  Branch info;
  if (s_.accept("limit")) info.limit = count("limit");
  info.some_lane = s_.accept("some");
  if (s_.accept("unlikely")) info.is_likely = false;
  const auto [then, types] = region({});
  RegionId otherwise = kNone;
  if (s_.accept("else")) {
    const auto [id, yields] = region({});
    expect_types(yields, types, "the second region yields values");
    otherwise = id;
  } else {
    if (!types.empty()) s_.fail("expected 'else'");
    otherwise = open_region();
  }
  return append(Op::branch, {condition}, types, info, {then, otherwise});
}

Parser::Values Parser::vector() {
  Vector info;
  const std::string name(s_.identifier());
  s_.expect("in");
  info.width = count("width");
  if (info.width < 1) refuse("a width below 1");
  if (s_.accept("native")) info.native = count("width");
  info.lane = declare_index(name, names_.constant(info.width));
  const auto [id, types] = region({});
  return append(Op::vector, {}, types, std::move(info), {id});
}

Parser::Values Parser::fold() {
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
    info.chunk = count("chunk");
    if (info.chunk < 1) refuse("a chunk below 1");
  }
  s_.expect("from");
  s_.expect("(");
  Values initial = values(")");
  const std::vector<Type> totals = types_of(initial);
  const auto part = [&](std::string_view name, const std::vector<Type>& wanted) {
    s_.expect(name);
    const auto list = arguments(nullptr);
    std::vector<Type> types;
    for (const auto& [unused, type] : list) types.push_back(type);
    expect_types(types, wanted, fmt::format("{} takes values", name));
    return region(list);
  };
  if (info.chunked_loop < 0) {
    const auto [step, yields] = part("step", totals);
    expect_types(yields, totals, "step yields values");
    return append(Op::fold, std::move(initial), totals, std::move(info), {step});
  }
  // The states' types are known from what `step` takes.
  s_.expect("step");
  const auto list = arguments(nullptr);
  std::vector<Type> states;
  for (const auto& [unused, type] : list) states.push_back(type);
  const auto [step, stepped] = region(list);
  expect_types(stepped, states, "step yields values");
  const auto [begin, begun] = part("begin", totals);
  expect_types(begun, states, "begin yields values");
  std::vector<Type> both = totals;
  both.insert(both.end(), states.begin(), states.end());
  const auto [merge, merged] = part("merge", both);
  expect_types(merged, totals, "merge yields values");
  return append(Op::fold, std::move(initial), totals, std::move(info), {step, begin, merge});
}

Parser::Values Parser::roles() {
  Roles info;
  std::vector<RegionId> regions;
  s_.expect("{");
  while (!s_.accept("}")) {
    Roles::Role role;
    role.name = s_.peek() == '"' ? s_.quoted() : std::string(s_.identifier());
    s_.expect("warps");
    role.first_warp = count("warp");
    s_.expect("..");
    role.warps = count("warp") - role.first_warp;
    if (role.warps < 1) refuse("a role without warps");
    if (s_.accept("registers")) role.registers = count("number of registers");
    info.roles.push_back(std::move(role));
    const auto [id, types] = region({});
    if (!types.empty()) refuse("a role yields nothing");
    regions.push_back(id);
  }
  return append(Op::roles, {}, {}, std::move(info), std::move(regions));
}

}  // namespace inkle::kernel
