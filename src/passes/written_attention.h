// Matches decomposed attention (SDPA) in a joint graph, with its gradient.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace inkle::passes::written_attention {

using graph::ValueId;

// A mask of scores; none: neither is set.
struct Mask {
  ValueId added;
  ValueId flags;
  bool keeps = true;  // what a flag that is true means
  double hidden = -std::numeric_limits<double>::infinity();
};

struct Dropout {
  ValueId seed;
  graph::Expr number;
  double p = 0;
};

enum class Part : std::uint8_t { out, dq, dq_transposed, dk, dk_transposed, dv, dv_transposed };

struct Use {
  std::size_t node = 0;
  std::size_t operand = 0;
  bool transposed = false;
};

// A matrix, or a stack of them, behind views that change neither of its last two dimensions but
// may exchange them.
struct Matrix {
  ValueId root;
  bool transposed = false;
  friend bool operator==(const Matrix& a, const Matrix& b) {
    return a.root.index == b.root.index && a.transposed == b.transposed;
  }
  [[nodiscard]] Matrix other_way() const { return {root, !transposed}; }
};

struct Found {
  ValueId q, kt, v, grad;  // operands of the products
  graph::Sizes scores;     // batch, head, row, column
  abi::Device device;      // of all tensors
  graph::Expr features, values;
  double scale = 1;
  bool safe = false;
  Mask mask;
  std::optional<Dropout> dropout;
  std::vector<abi::DType> dtypes;                   // that scores, weights and gradients go through
  std::vector<Use> uses;                            // of the weights
  std::vector<std::pair<std::size_t, Part>> parts;  // by node
  std::size_t first_late = 0;                       // of the backward's products
  // Query, key, value and gradient where they are (batch, head, row, feature), or with the last two
  // exchanged; the operands themselves where they never are.
  Matrix query, key, values_of_keys, gradient;
  // In the new graph.
  std::vector<ValueId> forward, backward;
};

// All in a joint graph whose tensors lie on a device of this kind, in the order of their gradients
// of softmax. Not where other nodes read the weights or their gradients.
[[nodiscard]] std::vector<Found> find(const graph::Graph& graph, abi::DeviceKind kind);

}  // namespace inkle::passes::written_attention
