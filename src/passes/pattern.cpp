#include "passes/pattern.h"

#include "base/error.h"
#include "base/text.h"

namespace inkle::passes {
namespace {

class PatternParser {
 public:
  PatternParser(std::string_view text, const graph::OpTable& table,
                std::vector<std::string>& unknown)
      : scanner_(text, "rule"), table_(table), unknown_(unknown) {}

  Pattern run() {
    Pattern pattern = alternatives();
    if (!scanner_.at_end()) scanner_.fail("expected the end of the pattern");
    return pattern;
  }

 private:
  Pattern alternatives() {
    Pattern first = single();
    if (scanner_.peek() != '|') return first;
    Pattern all{.kind = Pattern::Kind::alternatives};
    all.parts.push_back(std::move(first));
    while (scanner_.accept("|")) all.parts.push_back(single());
    return all;
  }

  Pattern single() {
    using Kind = Pattern::Kind;
    if (scanner_.accept("$")) return {.kind = Kind::reference, .name = name()};
    if (scanner_.accept("%")) return {.kind = Kind::variable, .name = name(), .only_numbers = true};
    if (scanner_.peek() == '"') return {.kind = Kind::string, .name = scanner_.quoted()};
    if (scanner_.peek() == '[') return list();
    if (scanner_.next_is_number()) {
      Pattern p{.kind = Kind::number};
      std::int64_t integer = 0;
      p.number = scanner_.number(p.is_integer, integer);
      return p;
    }
    if (scanner_.accept("none")) return {.kind = Kind::none};
    if (scanner_.accept("true")) return {.kind = Kind::boolean, .boolean = true};
    if (scanner_.accept("false")) return {.kind = Kind::boolean};
    if (scanner_.accept("_")) return {.kind = Kind::anything};
    const std::string word = name();
    if (scanner_.accept(":")) {
      Pattern bound{.kind = Kind::variable, .name = word};
      bound.parts.push_back(single());
      return bound;
    }
    if (scanner_.peek() != '(' && scanner_.peek() != '/') {
      return {.kind = Kind::variable, .name = word};
    }
    return call(word);
  }

  std::string name() { return std::string(scanner_.identifier()); }

  Pattern list() {
    Pattern p{.kind = Pattern::Kind::list};
    scanner_.expect("[");
    while (!scanner_.accept("]")) {
      if (!p.parts.empty()) scanner_.expect(",");
      p.parts.push_back(single());
    }
    return p;
  }

  Pattern call(std::string op) {
    Pattern p{.kind = Pattern::Kind::op};
    while (true) {
      if (const auto* row = table_.find(op)) {
        p.ops.push_back(row);
      } else {
        unknown_.push_back(op);
      }
      if (!scanner_.accept("/")) break;
      op = name();
    }
    scanner_.expect("(");
    while (!scanner_.accept(")")) {
      if (!p.parts.empty()) scanner_.expect(",");
      if (scanner_.accept("...")) {
        p.rest = true;
        scanner_.expect(")");
        break;
      }
      p.parts.push_back(alternatives());
    }
    return p;
  }

  Scanner scanner_;
  const graph::OpTable& table_;
  std::vector<std::string>& unknown_;
};

}  // namespace

Pattern parse_pattern(std::string_view text, const graph::OpTable& table,
                      std::vector<std::string>& unknown) {
  try {
    return PatternParser(text, table, unknown).run();
  } catch (const UserError& error) {
    throw InternalError(error.what());
  }
}

}  // namespace inkle::passes
