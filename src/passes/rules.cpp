#include "passes/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "base/error.h"
#include "graph/arguments.h"
#include "passes/effects.h"
#include "passes/pattern.h"

namespace inkle::passes {

using graph::Argument;
using graph::Expr;
using graph::Graph;
using graph::has;
using graph::Node;
using graph::None;
using graph::Rewriter;
using graph::Trait;
using graph::Type;
using graph::ValueId;

// --- Match --------------------------------------------------------------------------------------

const Argument* Match::find(std::string_view name) const {
  for (const auto& [bound, argument] : bound_) {
    if (bound == name) return &argument;
  }
  return nullptr;
}

ValueId Match::value(std::string_view name) const {
  const Argument* argument = find(name);
  const auto* v = argument == nullptr ? nullptr : std::get_if<ValueId>(argument);
  INKLE_CHECK(v != nullptr, "a rule's condition asks for tensor {}", name);
  return *v;
}

bool Match::is_tensor(std::string_view name) const {
  const Argument* argument = find(name);
  return argument != nullptr && std::holds_alternative<ValueId>(*argument);
}

bool Match::is_literal(std::string_view name) const {
  const ValueId v = value(name);
  return std::ranges::any_of(graph_.constants, [&](const auto& c) { return c.first == v; });
}

const Type& Match::type(std::string_view name) const { return graph_.type(value(name)); }

std::optional<double> Match::number(std::string_view name) const {
  const Argument* a = find(name);
  if (a == nullptr) return std::nullopt;
  if (const auto* d = std::get_if<double>(a)) return *d;
  if (const auto* b = std::get_if<bool>(a)) return *b ? 1 : 0;
  if (const auto* e = std::get_if<Expr>(a)) {
    if (const auto c = e->constant()) return static_cast<double>(*c);
  }
  return std::nullopt;
}

void Match::bind(std::string_view name, Argument argument) {
  for (auto& [bound, old] : bound_) {
    if (bound == name) {
      old = std::move(argument);
      return;
    }
  }
  bound_.emplace_back(name, std::move(argument));
}

// --- Matching -----------------------------------------------------------------------------------

class Matcher {
 public:
  Matcher(const Graph& graph, const RuleSet& rules, const std::vector<std::int32_t>& producer,
          Match& match)
      : graph_(graph), rules_(rules), producer_(producer), match_(match) {}

  bool matches(const Pattern& pattern, const Argument& argument) {
    using Kind = Pattern::Kind;
    switch (pattern.kind) {
      case Kind::anything:
        return true;
      case Kind::variable:
        return variable(pattern, argument);
      case Kind::op: {
        const auto* v = std::get_if<ValueId>(&argument);
        return v != nullptr && !v->is_none() && producer_[v->index] >= 0 &&
               node(pattern, producer_[v->index], *v);
      }
      case Kind::alternatives:
        return std::ranges::any_of(pattern.parts,
                                   [&](const Pattern& p) { return attempt(p, argument); });
      case Kind::reference:
        return matches(*rules_.definitions_.at(pattern.name), argument);
      case Kind::list:
        return list(pattern, argument);
      case Kind::number:
        return number(pattern, argument);
      case Kind::boolean: {
        const auto* b = std::get_if<bool>(&argument);
        return b != nullptr && *b == pattern.boolean;
      }
      case Kind::none:
        return std::holds_alternative<None>(argument);
      case Kind::string: {
        const auto* s = std::get_if<std::string>(&argument);
        return s != nullptr && *s == pattern.name;
      }
    }
    return false;
  }

 private:
  bool attempt(const Pattern& pattern, const Argument& argument) {
    const std::size_t bound = match_.bound_.size();
    const std::size_t nodes = match_.nodes_.size();
    if (matches(pattern, argument)) return true;
    match_.bound_.resize(bound);
    match_.nodes_.resize(nodes);
    return false;
  }

  static bool is_number(const Argument& argument) {
    if (const auto* e = std::get_if<Expr>(&argument)) return e->is_constant();
    return std::holds_alternative<double>(argument) || std::holds_alternative<bool>(argument);
  }

  bool variable(const Pattern& pattern, const Argument& argument) {
    if (pattern.only_numbers && !is_number(argument)) return false;
    const Argument* old = match_.find(pattern.name);
    if (old != nullptr) return *old == argument;
    match_.bound_.emplace_back(pattern.name, argument);
    return pattern.parts.empty() || matches(pattern.parts.front(), argument);
  }

  bool node(const Pattern& pattern, std::int32_t index, ValueId value) {
    const Node& n = graph_.nodes[static_cast<std::size_t>(index)];
    if (std::ranges::find(pattern.ops, n.op) == pattern.ops.end()) return false;
    if (n.results.front() != value || n.args.size() < pattern.parts.size()) return false;
    match_.nodes_.push_back(index);
    if (!pattern.rest && !defaults(n, pattern.parts.size())) return false;
    const std::size_t bound = match_.bound_.size();
    const std::size_t nodes = match_.nodes_.size();
    if (arguments(pattern, n, false)) return true;
    if (!has(n.op->traits, Trait::commutative) || pattern.parts.size() < 2) return false;
    match_.bound_.resize(bound);
    match_.nodes_.resize(nodes);
    return arguments(pattern, n, true);
  }

  bool defaults(const Node& n, std::size_t from) const {
    const graph::Schema& schema = graph_.table().schema(*n.op);
    for (std::size_t i = from; i < n.args.size(); ++i) {
      if (i >= schema.params.size() || !schema.params[i].has_default) return false;
      if (n.args[i] != graph::default_argument(schema.params[i], graph_.context())) return false;
    }
    return true;
  }

  bool arguments(const Pattern& pattern, const Node& n, bool swapped) {
    for (std::size_t i = 0; i < pattern.parts.size(); ++i) {
      const std::size_t from = swapped && i < 2 ? 1 - i : i;
      if (!matches(pattern.parts[i], n.args[from])) return false;
    }
    return true;
  }

  bool list(const Pattern& pattern, const Argument& argument) {
    const auto each = [&](const auto& items) {
      if (items.size() != pattern.parts.size()) return false;
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (!matches(pattern.parts[i], Argument(items[i]))) return false;
      }
      return true;
    };
    if (const auto* l = std::get_if<std::vector<Expr>>(&argument)) return each(*l);
    if (const auto* l = std::get_if<std::vector<ValueId>>(&argument)) return each(*l);
    return false;
  }

  // 0 is not -0.0.
  static bool number(const Pattern& pattern, const Argument& argument) {
    if (const auto* d = std::get_if<double>(&argument)) {
      return std::bit_cast<std::uint64_t>(*d) == std::bit_cast<std::uint64_t>(pattern.number);
    }
    const auto* e = std::get_if<Expr>(&argument);
    const auto c = e == nullptr ? std::nullopt : e->constant();
    const bool minus_zero = pattern.number == 0 && std::signbit(pattern.number);
    return c && static_cast<double>(*c) == pattern.number && !minus_zero;
  }

  const Graph& graph_;
  const RuleSet& rules_;
  const std::vector<std::int32_t>& producer_;
  Match& match_;
};

// --- Rules --------------------------------------------------------------------------------------

namespace {

void collect_roots(const Pattern& pattern,
                   const std::map<std::string_view, std::unique_ptr<Pattern>>& definitions,
                   std::set<std::string_view>& names) {
  if (pattern.kind == Pattern::Kind::reference) {
    const auto found = definitions.find(pattern.name);
    INKLE_CHECK(found != definitions.end(), "no pattern is named {}", pattern.name);
    return collect_roots(*found->second, definitions, names);
  }
  for (const graph::OpDef* op : pattern.ops) names.insert(op->name);
  if (pattern.kind != Pattern::Kind::alternatives) return;
  for (const Pattern& part : pattern.parts) collect_roots(part, definitions, names);
}

}  // namespace

RuleSet::RuleSet(std::span<const Rule> rules, std::span<const Definition> definitions,
                 const graph::OpTable& table) {
  for (const Definition& d : definitions) {
    definitions_[d.name] = std::make_unique<Pattern>(parse_pattern(d.pattern, table, unknown_));
  }
  for (const Rule& rule : rules) {
    Compiled compiled{.rule = &rule};
    compiled.match = std::make_unique<Pattern>(parse_pattern(rule.match, table, unknown_));
    compiled.give = std::make_unique<Pattern>(parse_pattern(rule.give, table, unknown_));
    std::set<std::string_view> roots;
    collect_roots(*compiled.match, definitions_, roots);
    for (const std::string_view root : roots) by_root_[root].push_back(rules_.size());
    rules_.push_back(std::move(compiled));
  }
}

RuleSet::~RuleSet() = default;

namespace {

// Uses by outputs and by nodes that are not dead code, which earlier rewrites leave behind.
std::vector<std::uint32_t> live_use_counts(const Graph& graph) {
  std::vector<std::uint32_t> counts(graph.value_count(), 0);
  for (const graph::Output& output : graph.outputs) {
    if (const auto* v = std::get_if<ValueId>(&output.value)) ++counts[v->index];
  }
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    const bool live =
        has(node.op->traits, Trait::effect | Trait::eager_only) ||
        std::ranges::any_of(node.results, [&](ValueId v) { return counts[v.index] > 0; });
    if (live) graph::for_each_operand(node, [&](ValueId v) { ++counts[v.index]; });
  }
  return counts;
}

}  // namespace

// One sweep over a graph.
class Applier {
 public:
  Applier(const Graph& graph, const RuleSet& rules)
      : graph_(graph),
        rules_(rules),
        producer_(graph::producers(graph)),
        uses_(live_use_counts(graph)),
        is_output_(graph::output_values(graph)),
        mutated_(mutated_values(graph)),
        fixed_from_(first_effect(graph)) {}

  std::optional<Graph> run() {
    // Most graphs match no rule: those are not rebuilt.
    const std::size_t end = std::min(graph_.nodes.size(), fixed_from_);
    std::size_t first = 0;
    const auto keep = [](const RuleSet::Compiled&, const Match&) { return true; };
    while (first < end && !each_match(graph_.nodes[first], keep)) ++first;
    if (first == end) return std::nullopt;
    Rewriter rewriter(graph_, graph_.name);
    std::size_t position = 0;
    bool changed = false;
    Graph out = std::move(rewriter).run(
        [&](Rewriter& r, const Node&, const Node& original) -> std::optional<std::vector<ValueId>> {
          const std::size_t at = position++;
          if (at < first || at >= end) return std::nullopt;
          auto values = rewrite(r, original);
          changed = changed || values;
          return values;
        });
    if (!changed) return std::nullopt;
    return out;
  }

 private:
  // Calls `take` with the rules that match the node and their matches, until one is taken.
  template <class Take>
  bool each_match(const Node& node, const Take& take) {
    const auto found = rules_.by_root_.find(node.op->name);
    if (found == rules_.by_root_.end() || node.results.empty()) return false;
    for (const std::size_t i : found->second) {
      const RuleSet::Compiled& rule = rules_.rules_[i];
      Match match(graph_, node.results.front());
      Matcher matcher(graph_, rules_, producer_, match);
      if (!matcher.matches(*rule.match, node.results.front())) continue;
      if (rule.rule->consumes && !only_used_inside(match)) continue;
      if (rule.rule->condition != nullptr && !rule.rule->condition(match)) continue;
      if (take(rule, match)) return true;
    }
    return false;
  }

  std::optional<std::vector<ValueId>> rewrite(Rewriter& r, const Node& node) {
    std::optional<std::vector<ValueId>> values;
    each_match(node, [&](const RuleSet::Compiled& rule, const Match& match) {
      values = build(r, rule, match, node);
      return values.has_value();
    });
    return values;
  }

  bool only_used_inside(const Match& match) const {
    for (const std::int32_t index : match.nodes_) {
      const Node& node = graph_.nodes[static_cast<std::size_t>(index)];
      if (node.results.front() == match.root() || has(node.op->traits, Trait::view)) continue;
      std::uint32_t inside = 0;
      for (const std::int32_t user : match.nodes_) {
        graph::for_each_operand(graph_.nodes[static_cast<std::size_t>(user)],
                                [&](ValueId v) { inside += v == node.results.front() ? 1U : 0U; });
      }
      if (inside != uses_[node.results.front().index]) return false;
    }
    return true;
  }

  std::optional<std::vector<ValueId>> build(Rewriter& r, const RuleSet::Compiled& rule,
                                            const Match& match, const Node& node) {
    const Pattern& give = *rule.give;
    std::vector<ValueId> values;
    if (give.kind == Pattern::Kind::list) {
      for (std::size_t i = 0; i < give.parts.size(); ++i) {
        const bool unused = give.parts[i].kind == Pattern::Kind::none;
        if (unused && (i >= node.results.size() || uses_[node.results[i].index] != 0)) {
          return std::nullopt;
        }
      }
      for (const Pattern& part : give.parts) {
        values.push_back(part.kind == Pattern::Kind::none
                             ? ValueId{}
                             : std::get<ValueId>(argument(r, part, match, rule.rule->name)));
      }
    } else if (give.kind == Pattern::Kind::op) {
      values = call(r, give, match, rule.rule->name);
    } else {
      if (!may_stand_for(match.value(give.name), node)) return std::nullopt;
      values.push_back(std::get<ValueId>(argument(r, give, match, rule.rule->name)));
    }
    if (values.size() != node.results.size()) return std::nullopt;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i].is_none()) continue;
      Type got = r.builder().type(values[i]);
      got.strides.reset();
      if (!graph::type_difference(got, graph_.type(node.results[i])).empty()) return std::nullopt;
    }
    return values;
  }

  std::vector<ValueId> call(Rewriter& r, const Pattern& give, const Match& match,
                            std::string_view rule) {
    INKLE_CHECK(!give.ops.empty(), "rule {}: the table lacks an op of the replacement", rule);
    std::vector<Argument> args;
    for (const Pattern& part : give.parts) args.push_back(argument(r, part, match, rule));
    return r.builder().nodes(give.ops.front()->name, std::move(args));
  }

  // Whether value x itself may be used instead of the node's result: a copy of what is changed
  // later is not the original, and an output is a tensor of its own with the strides it must have.
  bool may_stand_for(ValueId x, const Node& node) const {
    const ValueId root = node.results.front();
    if (mutated_[x.index] && !has(node.op->traits, Trait::view)) return false;
    if (is_output_[root.index] && (producer_[x.index] < 0 || is_output_[x.index])) return false;
    // Inputs, literals and outputs do not take the wanted strides: the rewriter would copy them in
    // every sweep.
    const bool wishes = graph_.type(root).strides && !graph_.type(x).strides;
    if (wishes && (producer_[x.index] < 0 || is_output_[x.index])) return false;
    return graph::type_difference(graph_.type(x), graph_.type(root)).empty();
  }

  Argument argument(Rewriter& r, const Pattern& give, const Match& match, std::string_view rule) {
    using Kind = Pattern::Kind;
    switch (give.kind) {
      case Kind::variable: {
        const Argument* bound = match.find(give.name);
        INKLE_CHECK(bound != nullptr, "rule {}: {} is not bound", rule, give.name);
        Node holder{.args = {*bound}};
        graph::replace_operands(holder, [&](ValueId v) { return r.mapped(v); });
        return holder.args.front();
      }
      case Kind::op:
        return call(r, give, match, rule).front();
      case Kind::list: {
        std::vector<Expr> items;
        for (const Pattern& part : give.parts) {
          items.push_back(std::get<Expr>(argument(r, part, match, rule)));
        }
        return items;
      }
      case Kind::number:
        if (!give.is_integer) return give.number;
        return graph_.context().constant(static_cast<std::int64_t>(give.number));
      case Kind::boolean:
        return give.boolean;
      case Kind::none:
        return None{};
      case Kind::string:
        return give.name;
      case Kind::reference:
        return argument(r, *rules_.definitions_.at(give.name), match, rule);
      case Kind::anything:
      case Kind::alternatives:
        break;
    }
    INKLE_CHECK(false, "rule {}: this cannot stand in a replacement", rule);
    return None{};
  }

  const Graph& graph_;
  const RuleSet& rules_;
  std::vector<std::int32_t> producer_;
  std::vector<std::uint32_t> uses_;
  std::vector<bool> is_output_;
  std::vector<bool> mutated_;
  std::size_t fixed_from_;
};

std::vector<Match> find_all(const Graph& graph, std::string_view pattern) {
  std::vector<std::string> unknown;
  const Pattern parsed = parse_pattern(pattern, graph.table(), unknown);
  const RuleSet none({}, {}, graph.table());
  const std::vector<std::int32_t> producer = graph::producers(graph);
  std::vector<Match> found;
  for (const Node& node : graph.nodes) {
    if (node.results.empty()) continue;
    Match match(graph, node.results.front());
    Matcher matcher(graph, none, producer, match);
    if (matcher.matches(parsed, node.results.front())) found.push_back(std::move(match));
  }
  return found;
}

std::optional<Graph> apply_rules(const Graph& graph, const RuleSet& rules) {
  // Every rule shortens or moves towards the inputs, so sweeps end; more than this is a bug.
  constexpr int kMaxSweeps = 64;
  std::optional<Graph> out;
  for (int sweep = 0;; ++sweep) {
    auto next = Applier(out ? *out : graph, rules).run();
    if (!next) return out;
    INKLE_CHECK(sweep < kMaxSweeps, "rewrite rules do not come to an end");
    out = std::move(next);
  }
}

}  // namespace inkle::passes
