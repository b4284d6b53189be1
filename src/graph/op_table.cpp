#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "graph/op_def.h"

namespace inkle::graph {

const OpDef kEagerOp{
    .name = "eager",
    .schema = "(name: string, ...) -> tensor...",
    .doc =
        "A call to the host framework, by its name there and its number in the host's table of "
        "callables.",
    .traits = Trait::eager_only,
};

namespace {

struct KindName {
  std::string_view name;
  ParamKind kind;
};

// Signs and the names of the enumeration are the same.
constexpr KindName kKinds[] = {
    {"operand", ParamKind::operand},
    {"operand?", ParamKind::optional_operand},
    {"optional_operand", ParamKind::optional_operand},
    {"tensor", ParamKind::tensor},
    {"tensor?", ParamKind::optional_tensor},
    {"optional_tensor", ParamKind::optional_tensor},
    {"tensor[]", ParamKind::tensor_list},
    {"tensor_list", ParamKind::tensor_list},
    {"tensor?[]", ParamKind::optional_tensor_list},
    {"optional_tensor_list", ParamKind::optional_tensor_list},
    {"integer", ParamKind::integer},
    {"integer?", ParamKind::optional_integer},
    {"optional_integer", ParamKind::optional_integer},
    {"integer[]", ParamKind::integer_list},
    {"integer_list", ParamKind::integer_list},
    {"integer[]?", ParamKind::optional_integer_list},
    {"integer?[]", ParamKind::optional_integer_list},
    {"optional_integer_list", ParamKind::optional_integer_list},
    {"scalar", ParamKind::scalar},
    {"scalar?", ParamKind::optional_scalar},
    {"optional_scalar", ParamKind::optional_scalar},
    {"real", ParamKind::real},
    {"real?", ParamKind::optional_real},
    {"optional_real", ParamKind::optional_real},
    {"real[]", ParamKind::real_list},
    {"real_list", ParamKind::real_list},
    {"real[]?", ParamKind::optional_real_list},
    {"optional_real_list", ParamKind::optional_real_list},
    {"boolean", ParamKind::boolean},
    {"boolean?", ParamKind::optional_boolean},
    {"optional_boolean", ParamKind::optional_boolean},
    {"boolean[]", ParamKind::boolean_list},
    {"boolean_list", ParamKind::boolean_list},
    {"string", ParamKind::string},
    {"string?", ParamKind::optional_string},
    {"optional_string", ParamKind::optional_string},
    {"dtype", ParamKind::dtype},
    {"dtype?", ParamKind::optional_dtype},
    {"optional_dtype", ParamKind::optional_dtype},
    {"device", ParamKind::device},
    {"device?", ParamKind::optional_device},
    {"optional_device", ParamKind::optional_device},
};

ParamKind parse_kind(Scanner& scanner) {
  std::string name(scanner.identifier());
  while (true) {
    if (scanner.accept("?")) {
      name += '?';
    } else if (scanner.accept("[")) {
      scanner.expect("]");
      name += "[]";
    } else {
      break;
    }
  }
  for (const KindName& row : kKinds) {
    if (row.name == name) return row.kind;
  }
  scanner.fail("unknown kind of parameter '" + name + "'");
}

// One literal, as it would be printed: a word, number or string, or a list of those.
std::string parse_default(Scanner& scanner) {
  const auto atom = [&]() -> std::string {
    if (scanner.peek() == '"') return quote(scanner.quoted());
    if (scanner.next_is_number()) {
      bool is_integer = false;
      std::int64_t value = 0;
      const double real = scanner.number(is_integer, value);
      return is_integer ? std::to_string(value) : print_double(real);
    }
    return std::string(scanner.identifier());
  };
  if (!scanner.accept("[")) return atom();
  std::string out = "[";
  while (!scanner.accept("]")) {
    if (out.size() > 1) {
      scanner.expect(",");
      out += ", ";
    }
    out += atom();
  }
  return out + "]";
}

void parse_params(Scanner& scanner, Schema& schema) {
  scanner.expect("(");
  while (!scanner.accept(")")) {
    if (!schema.params.empty()) scanner.expect(",");
    if (scanner.accept("...")) {
      schema.any_params = true;
      scanner.expect(")");
      return;
    }
    Param param;
    param.name = scanner.identifier();
    scanner.expect(":");
    param.kind = parse_kind(scanner);
    if (scanner.accept("=")) {
      param.has_default = true;
      param.default_text = parse_default(scanner);
    }
    schema.params.push_back(std::move(param));
  }
}

void parse_results(Scanner& scanner, Schema& schema) {
  scanner.expect("->");
  schema.result_count = 0;
  if (scanner.accept("(")) {
    scanner.expect(")");
    return;
  }
  do {
    // The scanner's names may hold dots, so that "tensor..." is one name.
    const std::string_view name = scanner.identifier();
    if (name == "tensor..." || (name == "tensor" && scanner.accept("["))) {
      if (name == "tensor") scanner.expect("]");
      if (schema.result_count != 0) scanner.fail("'tensor...' stands alone");
      schema.result_count = Schema::kVariadic;
      return;
    }
    if (name != "tensor") scanner.fail("expected 'tensor'");
    ++schema.result_count;
  } while (scanner.accept(","));
}

}  // namespace

Schema parse_schema(std::string_view op, std::string_view text) {
  Scanner scanner(text, op);
  Schema schema;
  parse_params(scanner, schema);
  parse_results(scanner, schema);
  if (!scanner.at_end()) scanner.fail("expected the end of the schema");
  return schema;
}

OpTable::OpTable(std::span<const std::span<const OpDef>> families) {
  rows_.push_back(&kEagerOp);
  for (const auto& family : families) {
    for (const OpDef& row : family) rows_.push_back(&row);
  }
  std::ranges::sort(rows_, {}, &OpDef::name);
  const auto twice = std::ranges::adjacent_find(rows_, {}, &OpDef::name);
  INKLE_CHECK(twice == rows_.end(), "op {} has two rows", (*twice)->name);
  schemas_.reserve(rows_.size());
  for (const OpDef* row : rows_) {
    schemas_.push_back(parse_schema(row->name, row->schema));
    std::string_view rest = row->aten;
    while (!rest.empty()) {
      const std::string_view word = rest.substr(0, rest.find(' '));
      if (!word.empty() && row->is_imported) aten_.emplace_back(word, row);
      rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    }
  }
  std::ranges::sort(aten_, {}, &std::pair<std::string_view, const OpDef*>::first);
  const auto same =
      std::ranges::adjacent_find(aten_, {}, &std::pair<std::string_view, const OpDef*>::first);
  INKLE_CHECK(same == aten_.end(), "{} belongs to two rows", same->first);
}

const OpDef* OpTable::find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(rows_, name, {}, &OpDef::name);
  return at != rows_.end() && (*at)->name == name ? *at : nullptr;
}

const OpDef* OpTable::find_aten(std::string_view overload) const {
  const auto at = std::ranges::lower_bound(aten_, overload, {},
                                           &std::pair<std::string_view, const OpDef*>::first);
  return at != aten_.end() && at->first == overload ? at->second : nullptr;
}

const Schema& OpTable::schema(const OpDef& op) const {
  const auto at = std::ranges::lower_bound(rows_, op.name, {}, &OpDef::name);
  INKLE_CHECK(at != rows_.end() && (*at)->name == op.name, "op {} is not in this table", op.name);
  return schemas_[static_cast<std::size_t>(at - rows_.begin())];
}

}  // namespace inkle::graph
