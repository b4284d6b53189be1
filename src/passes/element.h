// What one element of a value is, as a function of its indices: the nodes above it are lowered to
// loop nests and those inlined into one body. Knows no op by name; facts about indices fold what
// they decide.
#pragma once

#include <optional>

#include "graph/graph.h"
#include "loop/body.h"
#include "ops/lowering.h"

namespace inkle::passes {

class Elements {
 public:
  // Lowers `value` and what it depends on: to loops over elements, and running sums, only.
  // nullopt where something else comes up, or more than a few dozen nodes.
  static std::optional<Elements> of(const graph::Graph& graph, graph::ValueId value);

  // The element at these indices, if it is the same number whatever the inputs and the values of
  // the symbols in the indices are: bool as 0 and 1.
  [[nodiscard]] std::optional<double> constant_at(const std::vector<graph::Expr>& indices) const;

 private:
  Elements() = default;

  std::shared_ptr<sym::Context> context_;
  std::shared_ptr<loop::Program> program_;
  std::optional<ops::Tensor> tensor_;
  std::vector<std::int32_t> writer_;  // the nest that fills a buffer; -1: none
};

}  // namespace inkle::passes
