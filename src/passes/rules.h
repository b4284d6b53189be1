// Rewrite rules as text: a pattern over the graph above one value, what to put in its place, and a
// condition that text cannot say.
//
//   {.name = "double negation", .match = "neg(neg(x))", .give = "x"}
//
// A pattern is
//   op(a, b, ...)    that op; arguments left out must have their default, "..." lets them be
//   op1/op2(a)       one of several ops; with the commutative trait the first two may be swapped
//   x                anything, the same wherever the name stands again
//   x: p             what p matches, named x
//   %c               a constant number, named c
//   _                anything
//   1, 1.5, -inf, true, none, [0, 1], "floor"   that argument; a number also as the other kind
//   $name            a pattern defined by name
//   p | q            the first that matches
// A replacement is an op on replacements, a name that the match (or its condition) has bound,
// $name, or a literal; at the top also a list, one item for each result, `none` where a result must
// be unused. An op that the table lacks never matches. Inside a pattern an op's first result is
// meant.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/builder.h"
#include "graph/graph.h"
#include "passes/pass.h"

namespace inkle::passes {

// What the names of a pattern stand for, in the graph that is matched.
class Match {
 public:
  Match(const graph::Graph& graph, graph::ValueId root) : graph_(graph), root_(root) {}

  [[nodiscard]] const graph::Graph& graph() const { return graph_; }
  [[nodiscard]] graph::ValueId root() const { return root_; }
  [[nodiscard]] bool is_tensor(std::string_view name) const;
  // Whether the value is a literal.
  [[nodiscard]] bool is_literal(std::string_view name) const;
  [[nodiscard]] const graph::Type& root_type() const { return graph_.type(root_); }
  // nullptr if the name is not bound (an alternative without it matched).
  [[nodiscard]] const graph::Argument* find(std::string_view name) const;
  // The name must be bound, to a tensor.
  [[nodiscard]] graph::ValueId value(std::string_view name) const;
  [[nodiscard]] const graph::Type& type(std::string_view name) const;
  // Constant numbers of any kind; nullopt for symbols and everything else.
  [[nodiscard]] std::optional<double> number(std::string_view name) const;
  void bind(std::string_view name, graph::Argument argument);

 private:
  friend class Matcher;
  friend class Applier;
  const graph::Graph& graph_;
  graph::ValueId root_;
  std::vector<std::pair<std::string, graph::Argument>> bound_;
  std::vector<std::int32_t> nodes_;  // matched, the root's among them
};

struct Rule {
  std::string_view name;
  std::string_view match;
  std::string_view give;
  // May bind names for `give`; false: the rule does not apply.
  bool (*condition)(Match&) = nullptr;
  // Whether nodes inside the match may have no other user (views may): then the rewrite would add
  // work instead of replacing it.
  bool consumes = false;
};

struct Definition {
  std::string_view name;
  std::string_view pattern;
};

struct Pattern;

// Rules read once for a table; malformed ones throw InternalError. Immutable.
class RuleSet {
 public:
  RuleSet(std::span<const Rule> rules, std::span<const Definition> definitions,
          const graph::OpTable& table);
  ~RuleSet();
  RuleSet(const RuleSet&) = delete;
  RuleSet& operator=(const RuleSet&) = delete;

  // Names of ops in rules that the table lacks.
  [[nodiscard]] const std::vector<std::string>& unknown_ops() const { return unknown_; }

 private:
  friend std::optional<graph::Graph> apply_rules(const graph::Graph&, const RuleSet&);
  friend class Matcher;
  friend class Applier;
  struct Compiled {
    const Rule* rule = nullptr;
    std::unique_ptr<Pattern> match;
    std::unique_ptr<Pattern> give;
  };
  std::vector<Compiled> rules_;
  std::map<std::string_view, std::unique_ptr<Pattern>> definitions_;
  std::map<std::string_view, std::vector<std::size_t>> by_root_;  // rules by the root's op
  std::vector<std::string> unknown_;
};

// All places where the pattern matches, in the order of nodes.
[[nodiscard]] std::vector<Match> find_all(const graph::Graph& graph, std::string_view pattern);

// Applies the first rule that matches at each node, from the inputs on, again until none matches.
// Nothing is rewritten behind a node with effect, nor is a copy of what such a node changes taken
// for the original. A replacement of another dtype, other sizes or device does not count as one.
[[nodiscard]] std::optional<graph::Graph> apply_rules(const graph::Graph& graph,
                                                      const RuleSet& rules);

}  // namespace inkle::passes
