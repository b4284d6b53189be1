// Text of expressions, out and in.
#include "base/text.h"

#include <fmt/format.h>

#include "base/error.h"
#include "sym/expr.h"
#include "sym/node.h"

namespace inkle::sym {
namespace {

const char* function_name(Kind kind) {
  switch (kind) {
    case Kind::floordiv:
      return "floordiv";
    case Kind::mod:
      return "mod";
    case Kind::min:
      return "min";
    case Kind::max:
      return "max";
    case Kind::constant:
    case Kind::symbol:
    case Kind::add:
    case Kind::mul:
      break;
  }
  return "";
}

void print(Expr e, std::string& out);

void print_factors(const Node* monomial, std::string& out) {
  bool first = true;
  for (const Expr factor : factors_of(monomial)) {
    if (!first) out += '*';
    first = false;
    const bool nested = factor.kind() == Kind::add;
    if (nested) out += '(';
    print(factor, out);
    if (nested) out += ')';
  }
}

// With a sign in front unless it is the first and positive.
void print_term(const Term& term, bool first, std::string& out) {
  const bool least = term.coefficient == Range::kMin;  // has no positive counterpart
  const bool negative = term.coefficient < 0 && !least;
  if (negative) {
    out += '-';
  } else if (!first) {
    out += '+';
  }
  const std::int64_t size = negative ? -term.coefficient : term.coefficient;
  if (term.monomial == nullptr) {
    out += fmt::format("{}", size);
    return;
  }
  print_factors(term.monomial, out);
  if (size != 1) out += fmt::format("*{}", size);
}

void print(Expr e, std::string& out) {
  switch (e.kind()) {
    case Kind::symbol:
      out += e.name();
      return;
    case Kind::constant:
      out += fmt::format("{}", e.node()->value);
      return;
    case Kind::add:
    case Kind::mul: {
      Terms terms;
      append_terms(e.node(), terms);
      for (std::size_t i = 0; i < terms.size(); ++i) print_term(terms[i], i == 0, out);
      return;
    }
    case Kind::floordiv:
    case Kind::mod:
    case Kind::min:
    case Kind::max:
      break;
  }
  out += function_name(e.kind());
  char separator = '(';
  for (const Expr operand : e.operands()) {
    out += separator;
    print(operand, out);
    separator = ',';
  }
  out += ')';
}

constexpr int kDeepestText = 200;

class Parser {
 public:
  Parser(Scanner& scanner, Context& context) : scanner_(scanner), context_(context) {}

  Expr sum() {
    Nesting nesting(*this);
    Expr out = product();
    for (;;) {
      if (scanner_.next_is("->")) return out;  // an arrow of the text around
      if (scanner_.accept("+")) {
        out = out + product();
      } else if (scanner_.accept("-")) {
        out = out - product();
      } else {
        return out;
      }
    }
  }

 private:
  struct Nesting {
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kDeepestText) parser_.scanner_.fail("expression nested too deeply");
    }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    ~Nesting() { --parser_.depth_; }
    Parser& parser_;
  };

  Expr product() {
    Expr out = factor();
    while (scanner_.accept("*")) out = out * factor();
    return out;
  }

  Expr factor() {
    if (scanner_.next_is_number()) {
      if (scanner_.next_is("-inf") || scanner_.next_is("inf") || scanner_.next_is("nan")) {
        scanner_.fail("expected an integer expression");
      }
      return context_.constant(scanner_.integer());
    }
    Nesting nesting(*this);
    if (scanner_.accept("-")) return -factor();
    if (scanner_.accept("(")) {
      const Expr out = sum();
      scanner_.expect(")");
      return out;
    }
    const Scanner::Mark start = scanner_.mark();
    const std::string_view name = scanner_.identifier();
    if (scanner_.peek() == '(') {
      for (const Kind kind : {Kind::floordiv, Kind::mod, Kind::min, Kind::max}) {
        if (name == function_name(kind)) return call(kind, start);
      }
    }
    if (const std::optional<Expr> symbol = context_.find_symbol(name)) return *symbol;
    scanner_.reset(start);
    scanner_.fail(
        fmt::format("size '{0}' is not declared; a graph declares it before its body, as in "
                    "'where {0} in 1..', a kernel among its arguments",
                    name));
  }

  Expr call(Kind kind, Scanner::Mark start) {
    scanner_.expect("(");
    Expr out = sum();
    int count = 1;
    while (scanner_.accept(",")) {
      const Expr next = sum();
      ++count;
      if (kind == Kind::min) out = min(out, next);
      if (kind == Kind::max) out = max(out, next);
      if (kind == Kind::mod || kind == Kind::floordiv) {
        const bool bad = count > 2 || next.is_constant(0);
        if (bad) scanner_.reset(start);
        if (count > 2) scanner_.fail("floordiv and mod take two operands");
        if (bad) scanner_.fail("division by the constant 0");
        out = kind == Kind::mod ? mod(out, next) : floordiv(out, next);
      }
    }
    if (count < 2) scanner_.fail("expected ','");
    scanner_.expect(")");
    return out;
  }

  Scanner& scanner_;
  Context& context_;
  int depth_ = 0;
};

}  // namespace

std::string to_string(Expr e) {
  if (e.is_null()) return "null";
  std::string out;
  print(e, out);
  return out;
}

Expr parse(Scanner& scanner, Context& context) { return Parser(scanner, context).sum(); }

}  // namespace inkle::sym
