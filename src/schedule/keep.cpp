#include "schedule/keep.h"

#include <bit>
#include <map>
#include <string>

#include <fmt/format.h>

namespace inkle::schedule {

using loop::Instruction;
using loop::Opcode;
using loop::Val;
using sym::Expr;

namespace {

// Whether the operation takes many instructions, as math functions and divisions do.
bool is_expensive(const Instruction& instruction) {
  switch (instruction.opcode) {
    case Opcode::div:
    case Opcode::floordiv:
    case Opcode::remainder:
    case Opcode::fmod:
    case Opcode::random:
      return true;
    default:
      return instruction.opcode >= Opcode::sqrt && instruction.opcode <= Opcode::hypot;
  }
}

class Keeper {
 public:
  Keeper(const std::vector<PreparedStage>& stages, const std::vector<RowPass>& passes,
         bool loads_only)
      : stages_(stages), passes_(passes), loads_only_(loads_only) {}

  KeepPlan run() {
    plan_.known.resize(passes_.size());
    for (pass_ = 0; pass_ < passes_.size(); ++pass_) {
      const Stage& stage = stages_[passes_[pass_].stage].stage;
      if (stage.inner.empty()) continue;
      analyse(stage);
      visited_.assign(stage.body.instructions.size(), false);
      for (const Val v : stage.body.yields) visit(stage.body, v);
      for (const auto& [key, v] : fresh_) first_.try_emplace(key, Definition{pass_, v});
      fresh_.clear();
    }
    return std::move(plan_);
  }

 private:
  struct Definition {
    std::size_t pass;
    Val value;
  };

  int number(const std::string& key) {
    return numbers_.try_emplace(key, static_cast<int>(numbers_.size())).first->second;
  }

  // Equal for equal expressions of equal loaded (indirect) indices.
  std::string index_key(Expr e) {
    std::vector<std::pair<Expr, Expr>> map;
    for (const Expr s : sym::symbols(e)) {
      const auto at = indirect_.find(s.node());
      if (at != indirect_.end())
        map.emplace_back(s, same_.try_emplace(at->second, s).first->second);
    }
    if (!map.empty()) e = sym::substitute(e, map);
    return fmt::format("{}", fmt::ptr(e.node()));
  }

  void analyse(const Stage& stage) {
    const loop::Body& body = stage.body;
    const Expr inner = stage.inner.front().variable;
    keys_.assign(body.instructions.size(), 0);
    varying_.assign(body.instructions.size(), false);
    expensive_.assign(body.instructions.size(), false);
    indirect_.clear();
    for (Val v = 0; v < body.instructions.size(); ++v) {
      const Instruction& i = body[v];
      std::string key =
          fmt::format("{} {} {} {} {:x}", static_cast<int>(i.opcode), static_cast<int>(i.dtype),
                      i.buffer, i.integer, std::bit_cast<std::uint64_t>(i.real));
      for (const Val operand : i.used()) {
        key += fmt::format(" {}", keys_[operand]);
        varying_[v] = varying_[v] || varying_[operand];
        expensive_[v] = expensive_[v] || expensive_[operand];
      }
      expensive_[v] = expensive_[v] || is_expensive(i);
      if (i.opcode == Opcode::indirect) {
        indirect_[i.indices[0].node()] = number(key);
        indirect_varying_[i.indices[0].node()] = varying_[v];
      } else {
        for (const Expr e : i.indices) {
          key += " " + index_key(e);
          for (const Expr s : sym::symbols(e)) {
            const auto at = indirect_varying_.find(s.node());
            if (s == inner || (at != indirect_varying_.end() && at->second)) varying_[v] = true;
          }
        }
      }
      // The loop is part of what a value is.
      if (varying_[v]) key += fmt::format(" in {}", inner.id());
      keys_[v] = number(key);
    }
  }

  void visit(const loop::Body& body, Val v) {
    if (visited_[v]) return;
    visited_[v] = true;
    const Instruction& i = body[v];
    const auto earlier = first_.find(keys_[v]);
    const bool worth = varying_[v] && (i.opcode == Opcode::load || (expensive_[v] && !loads_only_));
    if (earlier != first_.end() && worth) {
      const auto [at, is_new] = storage_.try_emplace(keys_[v], plan_.kept.size());
      if (is_new) plan_.kept.push_back({i.dtype, earlier->second.pass, earlier->second.value});
      plan_.known[pass_].push_back({v, at->second});
      return;
    }
    fresh_.emplace_back(keys_[v], v);
    for (const Val operand : i.used()) visit(body, operand);
    if (i.opcode != Opcode::load && i.opcode != Opcode::index) return;
    for (const Expr s : sym::symbols(i.indices[0])) {
      if (!indirect_.contains(s.node())) continue;
      for (Val source = 0; source < v; ++source) {
        const Instruction& from = body[source];
        if (from.opcode == Opcode::indirect && from.indices[0] == s) visit(body, source);
      }
    }
  }

  const std::vector<PreparedStage>& stages_;
  const std::vector<RowPass>& passes_;
  bool loads_only_;
  KeepPlan plan_;
  std::size_t pass_ = 0;
  std::map<std::string, int> numbers_;
  std::map<int, Definition> first_;     // by key: where it was computed first
  std::map<int, std::size_t> storage_;  // by key
  std::vector<std::pair<int, Val>> fresh_;
  std::vector<int> keys_;
  std::vector<bool> varying_, expensive_, visited_;
  std::map<const sym::Node*, int> indirect_;
  std::map<int, Expr> same_;  // by the key of a loaded index: its indirect symbol
  std::map<const sym::Node*, bool> indirect_varying_;
};

}  // namespace

KeepPlan plan_kept(const std::vector<PreparedStage>& stages, const std::vector<RowPass>& passes,
                   bool loads_only) {
  return Keeper(stages, passes, loads_only).run();
}

}  // namespace inkle::schedule
