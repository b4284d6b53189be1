// The view of one node that a row's `infer` function gets: typed access to its arguments.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace inkle::graph {

class Inference {
 public:
  Inference(const Graph& graph, const OpDef& op, std::span<const Argument> args)
      : graph_(graph), op_(op), args_(args) {}

  [[nodiscard]] sym::Context& context() const { return graph_.context(); }
  [[nodiscard]] const OpDef& op() const { return op_; }
  [[nodiscard]] std::size_t size() const { return args_.size(); }
  [[nodiscard]] const Argument& arg(std::size_t i) const { return args_[i]; }
  [[nodiscard]] bool is_none(std::size_t i) const;
  [[nodiscard]] bool is_tensor(std::size_t i) const;

  [[nodiscard]] const Type& tensor(std::size_t i) const;
  [[nodiscard]] const Type* optional_tensor(std::size_t i) const;
  // Types of a tensor list; a missing entry gives nullptr.
  [[nodiscard]] std::vector<const Type*> tensors(std::size_t i) const;
  [[nodiscard]] Expr integer(std::size_t i) const;
  [[nodiscard]] std::int64_t constant_integer(std::size_t i) const;  // UserError if symbolic
  [[nodiscard]] std::vector<Expr> integers(std::size_t i) const;     // None: empty
  [[nodiscard]] std::vector<std::int64_t> constant_integers(std::size_t i) const;
  [[nodiscard]] double real(std::size_t i) const;         // of any number
  [[nodiscard]] std::int64_t whole(std::size_t i) const;  // likewise: an integer keeps its bits
  [[nodiscard]] bool boolean(std::size_t i) const;
  [[nodiscard]] std::optional<DType> dtype(std::size_t i) const;
  [[nodiscard]] std::string_view string(std::size_t i) const;

  // A dimension number of a tensor of `rank`, negative ones counted from the end; UserError if out
  // of range. Rank 0 accepts 0 and -1.
  [[nodiscard]] std::size_t dim(std::int64_t d, std::size_t rank) const;
  // UserError "op: message".
  [[noreturn]] void fail(std::string_view message) const;

 private:
  const Graph& graph_;
  const OpDef& op_;
  std::span<const Argument> args_;
};

}  // namespace inkle::graph
