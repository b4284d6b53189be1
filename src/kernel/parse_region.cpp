#include "kernel/parse_region.h"

#include <fmt/format.h>

#include <limits>

#include "kernel/derive.h"

namespace inkle::kernel {
namespace {

bool fits(DType dtype, std::int64_t value) {
  const std::int64_t bits = 8 * abi::size_of(dtype);
  if (dtype == DType::boolean) return value == 0 || value == 1;
  if (dtype == DType::u8) return value >= 0 && value <= 255;
  const std::int64_t high =
      bits >= 64 ? std::numeric_limits<std::int64_t>::max() : (std::int64_t{1} << (bits - 1)) - 1;
  return value <= high && value >= -high - 1;
}

}  // namespace

void RegionParser::body() {
  k_.body = open_region();
  region_ = k_.body;
  statements();
  s_.expect("}");
}

Values RegionParser::append(Op op, Values operands, const TypeList& results, Detail detail,
                            Regions regions) {
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

RegionId RegionParser::open_region() {
  k_.regions.emplace_back();
  return static_cast<RegionId>(k_.regions.size() - 1);
}

// --- Names and types
// -------------------------------------------------------------------------------

void RegionParser::define(const std::string& name, ValueId value) {
  if (!values_.emplace(name, value).second) text_.refuse(fmt::format("%{} is defined twice", name));
  scope_.push_back(name);
}

Type RegionParser::type() {
  const std::string_view word = s_.identifier();
  if (word == "token") return {TypeKind::token, DType::f32, 0};
  if (word != "frag") {
    const DType scalar = text_.dtype(word);
    if (!abi::is_computable(scalar)) text_.refuse("a value of a type without arithmetic");
    return scalar_type(scalar);
  }
  FragmentType f;
  s_.expect("<");
  f.dtype = text_.dtype(s_.identifier());
  s_.expect("[");
  f.rows = text_.count("rows");
  s_.expect(",");
  f.columns = text_.count("columns");
  s_.expect("]");
  f.holder = text_.named(kHolders, "holder");
  f.layout = text_.named(kFragmentLayouts, "layout");
  s_.expect(">");
  return k_.fragment_type(f);
}

TypeList RegionParser::types_of(const Values& values) const {
  TypeList types;
  for (const ValueId v : values) types.push_back(type_of(v));
  return types;
}

void RegionParser::expect_types(const TypeList& got, const TypeList& wanted,
                                std::string_view what) {
  if (got == wanted) return;
  const auto list = [&](const TypeList& types) {
    std::string out;
    for (const Type& t : types) out += (out.empty() ? "" : ", ") + to_string(k_, t);
    return "(" + out + ")";
  };
  text_.refuse(fmt::format("{} of {}, not {}", what, list(got), list(wanted)));
}

// --- Values
// ----------------------------------------------------------------------------------------

ValueId RegionParser::value() {
  text_.enter("values");
  const Scanner::Mark start = text_.start();
  const ValueId v = nested_value();
  text_.begin(start);
  text_.leave();
  return v;
}

ValueId RegionParser::nested_value() {
  if (s_.next_is("%")) {
    const Scanner::Mark start = s_.mark();
    const std::string name = text_.value_name();
    const auto found = values_.find(name);
    if (found != values_.end()) return found->second;
    s_.reset(start);
    s_.fail(fmt::format("no value %{} here", name));
  }
  if (s_.next_is_number() || s_.next_is("true") || s_.next_is("false")) return number();
  text_.begin();
  const std::string word(s_.identifier());
  const Values results = operation_(word, {.is_value = true});
  if (results.size() == 1) return results[0];
  text_.refuse(fmt::format("{} gives {} values, not one", word, results.size()));
}

ValueId RegionParser::number() {
  const Scanner::Mark begin = s_.mark();
  Immediate immediate;
  DType dtype = DType::boolean;
  if (s_.accept("true")) {
    immediate.integer = 1;
  } else if (!s_.accept("false")) {
    bool is_integer = false;
    immediate.real = s_.number(is_integer, immediate.integer);
    dtype = is_integer ? DType::i64 : DType::f32;
    if (s_.accept(":")) dtype = text_.dtype(s_.identifier());
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

Values RegionParser::values(std::string_view end) {
  Values list;
  while (!s_.accept(end)) {
    if (!list.empty()) s_.expect(",");
    list.push_back(value());
  }
  return list;
}

ValueId RegionParser::index_value() {
  const ValueId v = value();
  const Type type = type_of(v);
  if (type != scalar_type(DType::i64) && type != scalar_type(DType::i32)) {
    text_.refuse(fmt::format("an index of {}", to_string(k_, type)));
  }
  return v;
}

// --- Regions
// ---------------------------------------------------------------------------------------

void RegionParser::statements() {
  while (!s_.next_is("}") && !s_.next_is("yield")) {
    if (s_.at_end()) s_.fail("expected '}'");
    statement();
  }
}

void RegionParser::statement() {
  Wanted wanted;
  text_.begin();
  while (s_.next_is("%")) {
    wanted.names.push_back(text_.value_name());
    if (!s_.accept(",")) break;
    if (!s_.next_is("%")) return symbolic(wanted.names, std::string(s_.identifier()));
  }
  Values results;
  if (wanted.names.empty()) {
    const std::string word(s_.identifier());
    if (s_.next_is("in") && !kOps.find(word)) return symbolic({}, word);
    results = operation_(word, wanted);
  } else {
    s_.expect("=");
    if (s_.next_is("%")) s_.fail("a value is named once");
    if (s_.next_is_number() || s_.next_is("true") || s_.next_is("false")) {
      results = {number()};
    } else {
      results = operation_(std::string(s_.identifier()), wanted);
    }
    if (results.size() != wanted.names.size()) {
      text_.refuse(fmt::format("{} names for {} results", wanted.names.size(), results.size()));
    }
  }
  for (std::size_t i = 0; i < wanted.names.size(); ++i) define(wanted.names[i], results[i]);
}

// "%0, j0 in n = indirect(v)" from "in" on.
void RegionParser::symbolic(const std::vector<std::string>& results, const std::string& name) {
  if (results.size() > 1) text_.refuse("an index is one value");
  s_.expect("in");
  // A range begins with a number or dots and has dots; else it is an extent.
  const Scanner::Mark start = s_.mark();
  if (s_.next_is_number()) static_cast<void>(s_.integer());
  const bool is_range = s_.next_is("..");
  s_.reset(start);
  const sym::SymbolInfo info = is_range ? symbols_.range() : sym::SymbolInfo();
  const Expr extent = is_range ? Expr() : symbols_.local_expression();
  s_.expect("=");
  s_.expect(is_range ? "bind" : "indirect");
  s_.expect("(");
  const ValueId operand = value();
  if (type_of(operand) != scalar_type(DType::i64)) text_.refuse("an index that is no i64");
  Values operands{operand};
  if (!is_range && s_.accept(",")) operands.push_back(value());
  s_.expect(")");
  Symbolic detail;
  if (is_range) {
    detail.symbol = symbols_.declare(name, info);
  } else {
    detail.symbol = symbols_.declare_index(name, extent);
    detail.extent = symbols_.translated(extent);
  }
  const Values values =
      append(is_range ? Op::bind : Op::indirect, operands, {scalar_type(DType::i64)}, detail);
  if (!results.empty()) define(results[0], values[0]);
}

RegionParser::Arguments RegionParser::arguments(Values* initial) {
  Arguments list;
  s_.expect("(");
  while (!s_.accept(")")) {
    if (!list.empty()) s_.expect(",");
    std::string name = text_.value_name();
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

std::pair<RegionId, TypeList> RegionParser::region(const Arguments& arguments) {
  text_.enter("regions");
  s_.expect("{");
  const RegionId id = open_region();
  const RegionId outside = std::exchange(region_, id);
  const std::size_t names = scope_.size();
  const Scanner::Mark start = text_.start();
  for (const auto& [name, type] : arguments) {
    const auto value = static_cast<ValueId>(k_.values.size());
    k_.values.push_back({type, kNone, id});
    k_.regions[id].arguments.push_back(value);
    define(name, value);
  }
  statements();
  text_.begin();
  Values yields;
  if (s_.accept("yield")) {
    do {
      yields.push_back(value());
    } while (s_.accept(","));
  }
  TypeList types = types_of(yields);
  k_.regions[id].yields = std::move(yields);
  s_.expect("}");
  for (; scope_.size() > names; scope_.pop_back()) values_.erase(scope_.back());
  region_ = outside;
  text_.begin(start);
  text_.leave();
  return {id, std::move(types)};
}

}  // namespace inkle::kernel
