#include "frontend/pt2/expression.h"

#include <charconv>
#include <string>
#include <vector>

#include "base/error.h"

namespace inkle::frontend::pt2 {
namespace {

using sym::Expr;

constexpr int kDepthLimit = 64;
constexpr std::size_t kLengthLimit = 1 << 14;
constexpr std::int64_t kPowerLimit = 16;

class Parser {
 public:
  Parser(std::string_view text, sym::Context& context,
         const std::function<Expr(std::string_view)>& symbol)
      : text_(text), context_(context), symbol_(symbol) {}

  Expr run() {
    if (text_.size() > kLengthLimit) fail("too long");
    const Expr e = sum();
    if (peek() != '\0') fail("unexpected text at the end");
    return e;
  }

 private:
  Expr sum() {
    Deeper deeper(*this);
    Expr total = product();
    while (true) {
      if (accept("+")) {
        total = total + product();
      } else if (accept("-")) {
        total = total - product();
      } else {
        return total;
      }
    }
  }

  Expr product() {
    Expr total = unary();
    while (true) {
      if (accept("//")) {
        total = sym::floordiv(total, unary());
      } else if (peek() == '*' && !accept_only("**")) {
        accept("*");
        total = total * unary();
      } else if (accept("%")) {
        total = sym::mod(total, unary());
      } else {
        return total;
      }
    }
  }

  Expr unary() {
    Deeper deeper(*this);
    if (accept("-")) return -unary();
    const Expr base = atom();
    if (!accept("**")) return base;
    return power(base, unary());
  }

  Expr atom() {
    if (accept("(")) {
      const Expr e = sum();
      expect(")");
      return e;
    }
    if (peek() >= '0' && peek() <= '9') return context_.constant(number());
    const std::string_view name = word();
    if (!accept("(")) return symbol_(name);
    if (name == "Symbol") return quoted_symbol();
    if (name == "Integer") {
      const bool negative = accept("-");
      const std::int64_t value = number();
      expect(")");
      return context_.constant(negative ? -value : value);
    }
    std::vector<Expr> args;
    while (!accept(")")) {
      if (!args.empty()) expect(",");
      if (args.size() > 256) fail("a function of too many arguments");
      args.push_back(sum());
    }
    return call(name, args);
  }

  // The rest of Symbol('s0', positive=True, integer=True).
  Expr quoted_symbol() {
    if (!accept("'")) fail("a symbol's name is expected");
    const std::size_t end = text_.find('\'', at_);
    if (end == text_.npos) fail("a name without end");
    const std::string_view name = text_.substr(at_, end - at_);
    at_ = end + 1;
    while (accept(",")) {
      (void)word();
      expect("=");
      (void)word();
    }
    expect(")");
    return symbol_(name);
  }

  Expr call(std::string_view name, const std::vector<Expr>& args) {
    const auto fold = [&](auto&& f) {
      if (args.empty()) fail("a function without arguments");
      Expr total = args[0];
      for (std::size_t i = 1; i < args.size(); ++i) total = f(total, args[i]);
      return total;
    };
    if (name == "Add") return fold([](Expr a, Expr b) { return a + b; });
    if (name == "Mul") return fold([](Expr a, Expr b) { return a * b; });
    if (name == "Max") return fold([](Expr a, Expr b) { return sym::max(a, b); });
    if (name == "Min") return fold([](Expr a, Expr b) { return sym::min(a, b); });
    const std::size_t wanted = name == "ModularIndexing" ? 3 : 2;
    if (args.size() == wanted) {
      if (name == "FloorDiv" || name == "CleanDiv" || name == "IntTrueDiv") {
        return sym::floordiv(args[0], args[1]);
      }
      if (name == "Mod" || name == "PythonMod") return sym::mod(args[0], args[1]);
      if (name == "CeilDiv") return sym::ceildiv(args[0], args[1]);
      if (name == "ModularIndexing") return sym::mod(sym::floordiv(args[0], args[1]), args[2]);
      if (name == "Pow" || name == "PowByNatural") return power(args[0], args[1]);
    }
    unsupported("the size function {} of {} arguments", name, args.size());
  }

  Expr power(Expr base, Expr exponent) {
    const std::optional<std::int64_t> n = exponent.constant();
    if (!n || *n < 0 || *n > kPowerLimit) unsupported("a size to a power that is no small number");
    Expr total = context_.constant(1);
    for (std::int64_t i = 0; i < *n; ++i) total = total * base;
    return total;
  }

  struct Deeper {
    explicit Deeper(Parser& p) : parser(p) {
      if (++parser.depth_ > kDepthLimit) parser.fail("nested too deep");
    }
    ~Deeper() { --parser.depth_; }
    Parser& parser;
  };

  [[nodiscard]] char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  [[nodiscard]] bool accept_only(std::string_view token) {
    return text_.substr(at_, token.size()) == token;
  }
  bool accept(std::string_view token) {
    (void)peek();
    if (!accept_only(token)) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail(fmt::format("\"{}\" is expected", token));
  }
  std::int64_t number() {
    (void)peek();
    std::int64_t value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("an integer is expected");
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }
  std::string_view word() {
    (void)peek();
    const std::size_t begin = at_;
    const auto is_word = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    if (begin == at_) fail("a name is expected");
    return text_.substr(begin, at_ - begin);
  }
  [[noreturn]] void fail(std::string_view reason) const {
    user_error("the size expression \"{}\", at character {}: {}", text_.substr(0, 80), at_, reason);
  }

  std::string_view text_;
  sym::Context& context_;
  const std::function<Expr(std::string_view)>& symbol_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Expr parse_expression(std::string_view text, sym::Context& context,
                      const std::function<Expr(std::string_view)>& symbol) {
  return Parser(text, context, symbol).run();
}

}  // namespace inkle::frontend::pt2
