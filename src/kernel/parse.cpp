// The head of a kernel from text: parameters, launch, memories.
#include "kernel/parse.h"

#include <fmt/format.h>

#include <limits>

#include "base/error.h"
#include "kernel/parser.h"
#include "sym/symbols.h"

namespace inkle::kernel {

Kernel Parser::run() {
  s_.expect("kernel");
  s_.expect("@");
  k_.name = name_or_quoted();
  head();
  launch();
  s_.expect("{");
  declarations();
  k_.body = open_region();
  region_ = k_.body;
  statements();
  s_.expect("}");
  if (!s_.at_end()) s_.fail("text after the kernel");
  return std::move(k_);
}

std::string Parser::name_or_quoted() {
  return s_.peek() == '"' ? s_.quoted() : std::string(s_.identifier());
}

std::int32_t Parser::count(std::string_view what) {
  const Scanner::Mark start = s_.mark();
  const std::int64_t value = s_.integer();
  if (value < 0 || value > std::numeric_limits<std::int32_t>::max()) {
    s_.reset(start);
    s_.fail(fmt::format("{} out of range", what));
  }
  return static_cast<std::int32_t>(value);
}

// --- Symbols
// ---------------------------------------------------------------------------------------

Expr Parser::expression() { return global_(local_expression()); }

Expr Parser::local_expression() { return sym::parse(s_, names_); }

std::vector<Expr> Parser::expressions(std::string_view end) {
  std::vector<Expr> list;
  while (!s_.accept(end)) {
    if (!list.empty()) s_.expect(",");
    list.push_back(expression());
  }
  return list;
}

Expr Parser::declare(const std::string& name, const sym::SymbolInfo& facts) {
  if (names_.find_symbol(name)) s_.fail(fmt::format("'{}' is declared twice", name));
  sym::SymbolInfo own = facts;
  if (!facts.extent.is_null()) own.extent = global_(facts.extent);
  const Expr symbol = sym::fresh(context_, own);
  global_.map(names_.symbol(name, facts), symbol);
  return symbol;
}

Expr Parser::declare_index(const std::string& name, Expr extent) {
  return declare(name, {.range = {.low = 0}, .extent = extent});
}

sym::SymbolInfo Parser::range() {
  sym::SymbolInfo info;
  if (s_.next_is_number()) info.range.low = s_.integer();
  s_.expect("..");
  if (s_.next_is_number()) info.range.high = s_.integer();
  if (info.range.high < info.range.low) s_.fail("an empty range");
  if (s_.accept("divisor")) info.divisor = s_.integer();
  if (info.divisor < 1) s_.fail("a divisor below 1");
  return info;
}

void Parser::size(const std::string& name) {
  if (names_.find_symbol(name)) s_.fail(fmt::format("'{}' is declared twice", name));
  s_.expect("in");
  sym::SymbolInfo info = range();
  if (s_.accept("hint")) info.hint = s_.integer();
  const std::optional<Expr> known = context_.find_symbol(name);
  const Expr symbol = known ? *known : context_.symbol(name, info);
  global_.map(names_.symbol(name, info), symbol);
  k_.sizes.push_back(symbol);
}

// --- Head
// ------------------------------------------------------------------------------------------

void Parser::head() {
  // Shapes may name sizes that are declared behind them, so sizes are read first.
  s_.expect("(");
  const Scanner::Mark start = s_.mark();
  for (const bool sizes : {true, false}) {
    s_.reset(start);
    bool first = true;
    while (!s_.accept(")")) {
      if (!first) s_.expect(",");
      first = false;
      parameter(sizes);
    }
  }
  k_.parameter_count = static_cast<std::uint32_t>(k_.memories.size());
  resolve_maps();
}

void Parser::parameter(bool sizes) {
  const std::string word(s_.identifier());
  const auto role = kRoles.find(word);
  const auto space = kSpaces.find(word);
  if (s_.next_is("in") && !(role && is_declaration())) {
    if (sizes) return size(word);
    static_cast<void>(s_.accept("in"));
    static_cast<void>(range());
    if (s_.accept("hint")) static_cast<void>(s_.integer());
    return;
  }
  if (sizes) return skip_parameter();
  if (!role && !space) s_.fail(fmt::format("'{}' is no role of a parameter", word));
  memory(space.value_or(Space::global), role.value_or(Role::in));
}

// Whether "name:" comes next.
bool Parser::is_declaration() {
  const Scanner::Mark start = s_.mark();
  const bool found = s_.accept_identifier() && s_.next_is(":");
  s_.reset(start);
  return found;
}

// To the comma or parenthesis behind a parameter.
void Parser::skip_parameter() {
  int open = 0;
  while (open > 0 || !(s_.next_is(",") || s_.next_is(")"))) {
    if (s_.at_end()) s_.fail("expected ')'");
    if (s_.accept_identifier()) continue;
    if (s_.accept("[") || s_.accept("(")) {
      ++open;
    } else if (s_.accept("]") || s_.accept(")")) {
      --open;
    } else if (!(s_.accept(",") || s_.accept(":") || s_.accept("+") || s_.accept("*") ||
                 s_.accept("-") || s_.accept("?"))) {
      static_cast<void>(s_.integer());
    }
  }
}

void Parser::resolve_maps() {
  for (const auto& [map, name] : maps_) {
    const auto found = memories_.find(name);
    if (found == memories_.end()) s_.fail(fmt::format("no memory '{}'", name));
    k_.memories[map].of = found->second;
  }
  maps_.clear();
}

void Parser::launch() {
  bool first = true;
  while (!s_.next_is("{")) {
    const Scanner::Mark start = s_.mark();
    if (!first && s_.accept(",")) {
      axis(named(kAxisKinds, "kind of axis"));
    } else if (s_.accept("instances")) {
      k_.launch.instances = count("number of instances");
    } else if (s_.accept("resident")) {
      k_.launch.resident_blocks = count("number of blocks");
    } else if (s_.accept("co_resident")) {
      k_.launch.co_resident = true;
    } else if (s_.accept("registers")) {
      k_.launch.registers = count("number of registers");
    } else {
      s_.reset(start);
      if (!first) s_.fail("expected '{'");
      axis(named(kAxisKinds, "kind of axis"));
    }
    first = false;
  }
}

void Parser::axis(AxisKind kind) {
  if (!k_.launch.axes.empty() && k_.launch.axes.back().kind > kind) {
    s_.fail("axes are task, grid, cluster and thread in this order");
  }
  const std::string name(s_.identifier());
  s_.expect("in");
  const Expr extent = local_expression();
  const bool fixed = kind == AxisKind::cluster || kind == AxisKind::thread;
  if (fixed && (!extent.constant() || *extent.constant() < 1)) {
    s_.fail("the extent of a cluster or thread axis is a positive constant");
  }
  axes_[name] = static_cast<AxisId>(k_.launch.axes.size());
  k_.launch.axes.push_back({kind, declare_index(name, extent), global_(extent)});
}

// --- Memories
// --------------------------------------------------------------------------------------

void Parser::declarations() {
  for (;;) {
    const Scanner::Mark start = s_.mark();
    const auto word = s_.accept_identifier();
    if (word == "source" && s_.peek() == '"') {
      k_.sources.push_back(s_.quoted());
      continue;
    }
    const auto space = word ? kSpaces.find(*word) : std::nullopt;
    if (!space || !is_declaration()) {
      s_.reset(start);
      break;
    }
    memory(*space, Role::in);
  }
  resolve_maps();
}

void Parser::memory(Space space, Role role) {
  Memory m;
  m.name = s_.identifier();
  m.space = space;
  m.role = role;
  s_.expect(":");
  m.dtype = dtype(s_.identifier());
  s_.expect("[");
  if (m.space == Space::global && s_.accept("?")) {
    s_.expect("]");
  } else {
    m.shape = expressions("]");
    if (m.shape.empty()) s_.fail("a memory without dimensions");
  }
  const auto id = static_cast<MemoryId>(k_.memories.size());
  if (space == Space::map) {
    s_.expect("of");
    maps_.emplace_back(id, s_.identifier());
  } else if (space == Space::shared && s_.accept("of")) {
    m.of = memory_id();
    if (s_.accept("offset")) m.offset = count("offset");
  }
  if (s_.accept("box")) {
    s_.expect("[");
    while (!s_.accept("]")) {
      if (!m.box.empty()) s_.expect(",");
      m.box.push_back(count("extent"));
    }
    if (m.box.empty()) s_.fail("a box without dimensions");
  }
  if (s_.accept("align")) m.alignment = count("alignment");
  m.may_alias = s_.accept("may_alias");
  if (s_.accept("padding")) m.padding = count("padding");
  if (s_.accept("swizzle")) m.swizzle = count("swizzle");
  if (!memories_.emplace(m.name, id).second) {
    s_.fail(fmt::format("two memories '{}'", m.name));
  }
  k_.memories.push_back(std::move(m));
}

MemoryId Parser::memory_id() {
  const Scanner::Mark start = s_.mark();
  const std::string_view name = s_.identifier();
  const auto found = memories_.find(name);
  if (found != memories_.end()) return found->second;
  s_.reset(start);
  s_.fail("no such memory");
}

// --- Entry points
// ----------------------------------------------------------------------------------

Kernel parse_kernel(std::string_view text, std::string_view file, sym::Context& context) {
  return Parser(text, file, context).run();
}

ParsedKernel parse_kernel(std::string_view text, std::string_view file) {
  ParsedKernel parsed{std::make_unique<sym::Context>(), {}};
  parsed.kernel = parse_kernel(text, file, *parsed.context);
  return parsed;
}

}  // namespace inkle::kernel
