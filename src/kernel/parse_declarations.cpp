#include "kernel/parse_declarations.h"

#include <fmt/format.h>

namespace inkle::kernel {

void DeclarationParser::head() {
  // Shapes may name sizes that are declared behind them, so sizes are read
  // first.
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

void DeclarationParser::parameter(bool sizes) {
  const std::string word(s_.identifier());
  const auto role = kRoles.find(word);
  const auto space = kSpaces.find(word);
  if (s_.next_is("in") && !(role && is_declaration())) {
    if (sizes) {
      k_.sizes.push_back(symbols_.declare_size(word));
      return;
    }
    static_cast<void>(s_.accept("in"));
    static_cast<void>(symbols_.range());
    if (s_.accept("hint")) static_cast<void>(s_.integer());
    return;
  }
  if (sizes) return skip_parameter();
  if (!role && !space) s_.fail(fmt::format("'{}' is no role of a parameter", word));
  memory(space.value_or(Space::global), role.value_or(Role::in));
}

// Whether "name:" comes next.
bool DeclarationParser::is_declaration() {
  const Scanner::Mark start = s_.mark();
  const bool found = s_.accept_identifier() && s_.next_is(":");
  s_.reset(start);
  return found;
}

// To the comma or parenthesis behind a parameter.
void DeclarationParser::skip_parameter() {
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

void DeclarationParser::resolve_maps() {
  for (const auto& [map, name] : maps_) {
    const auto found = memories_.find(name);
    if (found == memories_.end()) s_.fail(fmt::format("no memory '{}'", name));
    k_.memories[map].of = found->second;
  }
  maps_.clear();
}

void DeclarationParser::launch() {
  bool first = true;
  while (!s_.next_is("{")) {
    const Scanner::Mark start = s_.mark();
    if (!first && s_.accept(",")) {
      axis(text_.named(kAxisKinds, "kind of axis"));
    } else if (s_.accept("instances")) {
      k_.launch.instances = text_.count("number of instances");
    } else if (s_.accept("resident")) {
      k_.launch.resident_blocks = text_.count("number of blocks");
    } else if (s_.accept("co_resident")) {
      k_.launch.co_resident = true;
    } else if (s_.accept("registers")) {
      k_.launch.registers = text_.count("number of registers");
    } else {
      s_.reset(start);
      if (!first) s_.fail("expected '{'");
      axis(text_.named(kAxisKinds, "kind of axis"));
    }
    first = false;
  }
}

void DeclarationParser::axis(AxisKind kind) {
  if (!k_.launch.axes.empty() && k_.launch.axes.back().kind > kind) {
    s_.fail("axes are task, grid, cluster and thread in this order");
  }
  const std::string name(s_.identifier());
  s_.expect("in");
  const Expr extent = symbols_.local_expression();
  const bool fixed = kind == AxisKind::cluster || kind == AxisKind::thread;
  if (fixed && (!extent.constant() || *extent.constant() < 1)) {
    s_.fail("the extent of a cluster or thread axis is a positive constant");
  }
  axes_[name] = static_cast<AxisId>(k_.launch.axes.size());
  k_.launch.axes.push_back(
      {kind, symbols_.declare_index(name, extent), symbols_.translated(extent)});
}

// --- Memories
// --------------------------------------------------------------------------------------

void DeclarationParser::declarations() {
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

void DeclarationParser::memory(Space space, Role role) {
  Memory m;
  m.name = s_.identifier();
  m.space = space;
  m.role = role;
  s_.expect(":");
  m.dtype = text_.dtype(s_.identifier());
  s_.expect("[");
  if (m.space == Space::global && s_.accept("?")) {
    s_.expect("]");
  } else {
    m.shape = symbols_.expressions("]");
    if (m.shape.empty()) s_.fail("a memory without dimensions");
  }
  const auto id = static_cast<MemoryId>(k_.memories.size());
  if (space == Space::map) {
    s_.expect("of");
    maps_.emplace_back(id, s_.identifier());
  } else if (space == Space::shared && s_.accept("of")) {
    m.of = memory_id();
    if (s_.accept("offset")) m.offset = text_.count("offset");
  }
  if (s_.accept("box")) {
    s_.expect("[");
    while (!s_.accept("]")) {
      if (!m.box.empty()) s_.expect(",");
      m.box.push_back(text_.count("extent"));
    }
    if (m.box.empty()) s_.fail("a box without dimensions");
  }
  if (s_.accept("align")) m.alignment = text_.count("alignment");
  m.may_alias = s_.accept("may_alias");
  if (s_.accept("padding")) m.padding = text_.count("padding");
  if (s_.accept("swizzle")) m.swizzle = text_.count("swizzle");
  if (!memories_.emplace(m.name, id).second) {
    s_.fail(fmt::format("two memories '{}'", m.name));
  }
  k_.memories.push_back(std::move(m));
}

MemoryId DeclarationParser::memory_id() {
  const Scanner::Mark start = s_.mark();
  const std::string_view name = s_.identifier();
  const auto found = memories_.find(name);
  if (found != memories_.end()) return found->second;
  s_.reset(start);
  s_.fail("no such memory");
}

AxisId DeclarationParser::axis_id() {
  const Scanner::Mark start = s_.mark();
  const auto found = axes_.find(s_.identifier());
  if (found != axes_.end()) return found->second;
  s_.reset(start);
  s_.fail("no axis of the launch");
}

}  // namespace inkle::kernel
