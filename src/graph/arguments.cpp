#include "graph/arguments.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"

namespace inkle::graph {
namespace {

// What a kind holds beneath "optional".
enum class Base : std::uint8_t {
  operand,
  tensor,
  tensors,
  integer,
  integers,
  scalar,
  real,
  reals,
  boolean,
  booleans,
  string,
  dtype,
  device
};

struct KindFacts {
  Base base;
  bool optional;
  std::string_view wanted;
};

KindFacts facts(ParamKind kind) {
  switch (kind) {
    case ParamKind::operand:
      return {Base::operand, false, "a tensor or a number"};
    case ParamKind::optional_operand:
      return {Base::operand, true, "a tensor, a number or none"};
    case ParamKind::tensor:
      return {Base::tensor, false, "a tensor"};
    case ParamKind::optional_tensor:
      return {Base::tensor, true, "a tensor or none"};
    case ParamKind::tensor_list:
      return {Base::tensors, false, "a list of tensors"};
    case ParamKind::optional_tensor_list:
      return {Base::tensors, false, "a list of tensors"};
    case ParamKind::integer:
      return {Base::integer, false, "an integer"};
    case ParamKind::optional_integer:
      return {Base::integer, true, "an integer or none"};
    case ParamKind::integer_list:
      return {Base::integers, false, "a list of integers"};
    case ParamKind::optional_integer_list:
      return {Base::integers, true, "a list of integers or none"};
    case ParamKind::scalar:
      return {Base::scalar, false, "a number"};
    case ParamKind::optional_scalar:
      return {Base::scalar, true, "a number or none"};
    case ParamKind::real:
      return {Base::real, false, "a real number"};
    case ParamKind::optional_real:
      return {Base::real, true, "a real number or none"};
    case ParamKind::real_list:
      return {Base::reals, false, "a list of real numbers"};
    case ParamKind::optional_real_list:
      return {Base::reals, true, "a list of real numbers or none"};
    case ParamKind::boolean:
      return {Base::boolean, false, "true or false"};
    case ParamKind::optional_boolean:
      return {Base::boolean, true, "true, false or none"};
    case ParamKind::boolean_list:
      return {Base::booleans, false, "a list of true and false"};
    case ParamKind::string:
      return {Base::string, false, "a string"};
    case ParamKind::optional_string:
      return {Base::string, true, "a string or none"};
    case ParamKind::dtype:
      return {Base::dtype, false, "a dtype"};
    case ParamKind::optional_dtype:
      return {Base::dtype, true, "a dtype or none"};
    case ParamKind::device:
      return {Base::device, false, "a device"};
    case ParamKind::optional_device:
      return {Base::device, true, "a device or none"};
  }
  return {Base::tensor, false, ""};
}

bool is_empty_list(const Argument& argument) {
  return std::visit(
      [](const auto& a) {
        if constexpr (requires {
                        a.push_back({});
                        a.empty();
                      }) {
          return !std::is_same_v<std::decay_t<decltype(a)>, std::string> && a.empty();
        } else {
          return false;
        }
      },
      argument);
}

template <class T>
bool is(const Argument& argument) {
  return std::holds_alternative<T>(argument);
}

bool constant_to_real(Argument& argument) {
  const Expr* e = std::get_if<Expr>(&argument);
  if (e == nullptr) return false;
  if (const auto value = e->constant()) argument = static_cast<double>(*value);
  return true;
}

bool integers_to_reals(Argument& argument) {
  const auto* list = std::get_if<std::vector<Expr>>(&argument);
  if (list == nullptr) return false;
  std::vector<double> reals;
  for (const Expr e : *list) {
    const auto value = e.constant();
    if (!value) return false;
    reals.push_back(static_cast<double>(*value));
  }
  argument = std::move(reals);
  return true;
}

bool has_missing(const Argument& argument) {
  for (const ValueId v : std::get<std::vector<ValueId>>(argument)) {
    if (v.is_none()) return true;
  }
  return false;
}

bool fits(Argument& argument, ParamKind kind, Base base) {
  switch (base) {
    case Base::operand:
      return fits(argument, kind, is<ValueId>(argument) ? Base::tensor : Base::scalar);
    case Base::tensor:
      return is<ValueId>(argument) && !std::get<ValueId>(argument).is_none();
    case Base::tensors:
      return is<std::vector<ValueId>>(argument) &&
             (kind == ParamKind::optional_tensor_list || !has_missing(argument));
    case Base::integer:
      return is<Expr>(argument);
    case Base::integers:
      return is<std::vector<Expr>>(argument);
    case Base::scalar:
      return is<Expr>(argument) || is<double>(argument) || is<bool>(argument);
    case Base::real:
      return is<double>(argument) || constant_to_real(argument);
    case Base::reals:
      return is<std::vector<double>>(argument) || integers_to_reals(argument);
    case Base::boolean:
      return is<bool>(argument);
    case Base::booleans:
      return is<std::vector<bool>>(argument);
    case Base::string:
      return is<std::string>(argument);
    case Base::dtype:
      return is<DType>(argument);
    case Base::device:
      return is<Device>(argument);
  }
  return false;
}

void retype_empty_list(Argument& argument, Base base) {
  if (base == Base::tensors) argument = std::vector<ValueId>{};
  if (base == Base::integers) argument = std::vector<Expr>{};
  if (base == Base::reals) argument = std::vector<double>{};
  if (base == Base::booleans) argument = std::vector<bool>{};
}

}  // namespace

std::string normalise(Argument& argument, ParamKind kind, sym::Context& context) {
  const KindFacts wanted = facts(kind);
  if (is_empty_list(argument)) retype_empty_list(argument, wanted.base);
  if (wanted.optional && is<ValueId>(argument) && std::get<ValueId>(argument).is_none()) {
    argument = None{};
  }
  if (wanted.optional && is<None>(argument)) return {};
  // A lone integer stands for a list of one, as in torch's "int[1]".
  if (wanted.base == Base::integers && is<Expr>(argument)) {
    argument = std::vector<Expr>{std::get<Expr>(argument)};
  }
  (void)context;
  if (fits(argument, kind, wanted.base)) return {};
  return fmt::format("must be {}", wanted.wanted);
}

Argument default_argument(const Param& param, sym::Context& context) {
  Scanner scanner(param.default_text, param.name);
  return read_argument(scanner, param.kind, context, nullptr);
}

void complete_arguments(std::vector<Argument>& args, const OpDef& op, const Schema& schema,
                        sym::Context& context) {
  if (args.size() > schema.params.size() && !schema.any_params) {
    user_error("{}: {} arguments given, {} expected", op.name, args.size(), schema.params.size());
  }
  for (std::size_t i = args.size(); i < schema.params.size(); ++i) {
    const Param& param = schema.params[i];
    if (!param.has_default) user_error("{}: argument '{}' is missing", op.name, param.name);
    args.push_back(default_argument(param, context));
  }
  for (std::size_t i = 0; i < schema.params.size(); ++i) {
    const std::string wrong = normalise(args[i], schema.params[i].kind, context);
    if (!wrong.empty()) {
      user_error("{}: argument '{}' {}", op.name, schema.params[i].name, wrong);
    }
  }
}

// --- Text -------------------------------------------------------------------------------------

namespace {

struct Printer {
  const ValueName& name;

  std::string operator()(None) const { return "none"; }
  std::string operator()(ValueId v) const { return v.is_none() ? "none" : name(v); }
  std::string operator()(Expr e) const { return sym::to_string(e); }
  std::string operator()(double d) const { return print_double(d); }
  std::string operator()(bool b) const { return b ? "true" : "false"; }
  std::string operator()(const std::string& s) const { return quote(s); }
  std::string operator()(DType d) const { return std::string(abi::name_of(d)); }
  std::string operator()(const Device& d) const { return to_string(d); }
  template <class T>
  std::string operator()(const std::vector<T>& list) const {
    std::string out = "[";
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i > 0) out += ", ";
      out += (*this)(static_cast<T>(list[i]));
    }
    return out + "]";
  }
};

template <class T, class Read>
std::vector<T> read_list(Scanner& scanner, const Read& read) {
  std::vector<T> list;
  scanner.expect("[");
  while (!scanner.accept("]")) {
    if (!list.empty()) scanner.expect(",");
    list.push_back(read());
  }
  return list;
}

bool read_boolean(Scanner& scanner) {
  if (scanner.accept("true")) return true;
  scanner.expect("false");
  return false;
}

// An integer expression, or a literal that is not an integer.
Argument read_number(Scanner& scanner, sym::Context& context) {
  if (scanner.next_is_number()) {
    const Scanner::Mark start = scanner.mark();
    bool is_integer = false;
    std::int64_t integer = 0;
    const double real = scanner.number(is_integer, integer);
    if (!is_integer) return real;
    scanner.reset(start);
  }
  return sym::parse(scanner, context);
}

double read_real(Scanner& scanner) {
  bool is_integer = false;
  std::int64_t integer = 0;
  if (!scanner.next_is_number()) scanner.fail("expected a number");
  return scanner.number(is_integer, integer);
}

ValueId read_value(Scanner& scanner, const ValueReader& value) {
  if (!value) scanner.fail("no tensor can stand here");
  return value(scanner);
}

ValueId read_optional_value(Scanner& scanner, const ValueReader& value) {
  return scanner.accept("none") ? ValueId{} : read_value(scanner, value);
}

}  // namespace

std::string print_argument(const Argument& argument, const ValueName& name) {
  return std::visit(Printer{name}, argument);
}

DType read_dtype(Scanner& scanner) {
  const Scanner::Mark start = scanner.mark();
  const auto word = scanner.accept_identifier();
  const auto dtype = word ? abi::dtype_from_name(*word) : std::nullopt;
  if (dtype) return *dtype;
  scanner.reset(start);
  scanner.fail("expected a dtype");
}

Device read_device(Scanner& scanner) {
  Device device;
  if (scanner.accept("cuda")) {
    device.kind = abi::DeviceKind::cuda;
  } else {
    scanner.expect("cpu");
  }
  if (!scanner.accept(":")) return device;
  const std::int64_t index = scanner.integer();
  if (index < 0 || index > 255) scanner.fail("a device number is from 0 to 255");
  device.index = static_cast<std::int32_t>(index);
  return device;
}

Argument read_argument(Scanner& scanner, ParamKind kind, sym::Context& context,
                       const ValueReader& value) {
  const KindFacts wanted = facts(kind);
  if (wanted.optional && scanner.accept("none")) return None{};
  switch (wanted.base) {
    case Base::operand:
      if (scanner.peek() == '%') return read_value(scanner, value);
      return read_argument(scanner, ParamKind::scalar, context, value);
    case Base::tensor:
      return read_value(scanner, value);
    case Base::tensors:
      return read_list<ValueId>(scanner, [&] { return read_optional_value(scanner, value); });
    case Base::integer:
      return sym::parse(scanner, context);
    case Base::integers:
      return read_list<Expr>(scanner, [&] { return sym::parse(scanner, context); });
    case Base::scalar:
      if (scanner.next_is("true") || scanner.next_is("false")) return read_boolean(scanner);
      return read_number(scanner, context);
    case Base::real: {
      Argument number = read_number(scanner, context);
      constant_to_real(number);
      return number;
    }
    case Base::reals:
      return read_list<double>(scanner, [&] { return read_real(scanner); });
    case Base::boolean:
      return read_boolean(scanner);
    case Base::booleans:
      return read_list<bool>(scanner, [&] { return read_boolean(scanner); });
    case Base::string:
      return scanner.quoted();
    case Base::dtype:
      return read_dtype(scanner);
    case Base::device:
      return read_device(scanner);
  }
  return None{};
}

namespace {

// Lists of integers and reals mix to a list of reals.
Argument read_any_list(Scanner& scanner, sym::Context& context, const ValueReader& value) {
  const Scanner::Mark start = scanner.mark();
  scanner.expect("[");
  if (scanner.accept("]")) return std::vector<Expr>{};
  const bool tensors = scanner.next_is("none") || scanner.peek() == '%';
  const bool booleans = scanner.next_is("true") || scanner.next_is("false");
  scanner.reset(start);
  if (tensors) return read_argument(scanner, ParamKind::optional_tensor_list, context, value);
  if (booleans) return read_argument(scanner, ParamKind::boolean_list, context, value);
  bool all_integers = true;
  const auto numbers = read_list<Argument>(scanner, [&] {
    Argument number = read_number(scanner, context);
    all_integers = all_integers && is<Expr>(number);
    return number;
  });
  std::vector<Expr> integers;
  std::vector<double> reals;
  for (Argument number : numbers) {
    if (all_integers) {
      integers.push_back(std::get<Expr>(number));
      continue;
    }
    constant_to_real(number);
    if (!is<double>(number)) scanner.fail("a list of reals holds no symbol");
    reals.push_back(std::get<double>(number));
  }
  if (all_integers) return integers;
  return reals;
}

}  // namespace

Argument read_any_argument(Scanner& scanner, sym::Context& context, const ValueReader& value) {
  if (scanner.accept("none")) return None{};
  if (scanner.peek() == '%') return read_value(scanner, value);
  if (scanner.peek() == '[') return read_any_list(scanner, context, value);
  if (scanner.peek() == '"') return scanner.quoted();
  if (scanner.next_is("true") || scanner.next_is("false")) return read_boolean(scanner);
  if (scanner.next_is("cpu") || scanner.next_is("cuda")) return read_device(scanner);
  const Scanner::Mark start = scanner.mark();
  if (const auto word = scanner.accept_identifier()) {
    if (const auto dtype = abi::dtype_from_name(*word)) return *dtype;
    scanner.reset(start);
  }
  return read_number(scanner, context);
}

}  // namespace inkle::graph
