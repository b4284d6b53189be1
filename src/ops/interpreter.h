// The oracle: runs a graph slowly and obviously on small tensors, with double precision inside and
// rounding to the result's dtype at the end of each op. Needs no torch and no generated code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace inkle::ops {

using abi::DType;

// The nearest value of `dtype`: floats round to even, integers wrap, bool is != 0.
[[nodiscard]] double round_to(DType dtype, double value);
[[nodiscard]] std::int64_t wrap_to(DType dtype, std::int64_t value);

// A dense row-major tensor. Floats live in `reals`, integers and bool in `integers`.
struct RefTensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> sizes;
  std::vector<double> reals;
  std::vector<std::int64_t> integers;

  RefTensor() = default;
  // Zeros.
  RefTensor(DType dtype, std::vector<std::int64_t> sizes);

  [[nodiscard]] std::size_t rank() const { return sizes.size(); }
  [[nodiscard]] std::size_t count() const;
  [[nodiscard]] bool is_real() const { return abi::is_float(dtype); }
  // Element by row-major position, converted.
  [[nodiscard]] double real(std::size_t position) const;
  [[nodiscard]] std::int64_t integer(std::size_t position) const;
  // Stores without rounding; the interpreter rounds results at the end of each op.
  void set(std::size_t position, double value);
  void set(std::size_t position, std::int64_t value);
  void copy_element(std::size_t position, const RefTensor& from, std::size_t from_position);
  // Position of indices.
  [[nodiscard]] std::size_t at(std::span<const std::int64_t> indices) const;
  // Rounds (wraps) all elements to the dtype.
  void round();
};

// As Opcode::cast: floats to integers truncate.
[[nodiscard]] RefTensor cast(const RefTensor& tensor, DType dtype);
// To and from row-major memory of the dtype.
[[nodiscard]] RefTensor from_bytes(DType dtype, std::vector<std::int64_t> sizes,
                                   std::span<const std::byte> bytes);
[[nodiscard]] std::vector<std::byte> to_bytes(const RefTensor& tensor);

// Calls f(indices, position) for every element of the sizes, in row-major order.
template <class F>
void for_each_index(std::span<const std::int64_t> sizes, F&& f) {
  for (std::int64_t size : sizes) {
    if (size == 0) return;
  }
  std::vector<std::int64_t> indices(sizes.size(), 0);
  for (std::size_t position = 0;; ++position) {
    f(std::span<const std::int64_t>(indices), position);
    std::size_t d = sizes.size();
    while (d > 0 && ++indices[d - 1] == sizes[d - 1]) indices[--d] = 0;
    if (d == 0) return;
  }
}

// Position in `tensor` of the element that broadcasts to `indices` (right-aligned).
[[nodiscard]] std::size_t broadcast_position(const RefTensor& tensor,
                                             std::span<const std::int64_t> indices);

using SymbolValues = std::vector<std::pair<sym::Expr, std::int64_t>>;

// What a row's `reference` function sees: the values of one node's arguments, and its results,
// already made (zeros of the inferred type).
class Evaluation {
 public:
  Evaluation(const graph::Graph& graph, const graph::Node& node,
             const std::vector<std::optional<RefTensor>>& values, const SymbolValues& symbols);

  [[nodiscard]] const graph::Node& node() const { return node_; }
  [[nodiscard]] const graph::Graph& graph() const { return graph_; }
  [[nodiscard]] std::size_t size() const { return node_.args.size(); }
  [[nodiscard]] bool is_none(std::size_t arg) const;
  [[nodiscard]] bool is_tensor(std::size_t arg) const;
  [[nodiscard]] const RefTensor& tensor(std::size_t arg) const;
  [[nodiscard]] const RefTensor* optional_tensor(std::size_t arg) const;
  [[nodiscard]] std::vector<const RefTensor*> tensors(std::size_t arg) const;  // none: nullptr
  // A tensor or a number; a number is a rank-0 tensor of bool, i64 or f64.
  [[nodiscard]] RefTensor operand(std::size_t arg) const;
  [[nodiscard]] std::int64_t integer(std::size_t arg) const;
  [[nodiscard]] std::vector<std::int64_t> integers(std::size_t arg) const;  // none: empty
  [[nodiscard]] double real(std::size_t arg) const;                         // of any number
  [[nodiscard]] std::int64_t whole(std::size_t arg) const;  // likewise: an integer keeps its bits
  [[nodiscard]] bool boolean(std::size_t arg) const;
  [[nodiscard]] std::string_view string(std::size_t arg) const;
  [[nodiscard]] std::size_t dim(std::int64_t d, std::size_t rank) const;
  [[nodiscard]] std::int64_t evaluate(sym::Expr e) const;
  // The graph type of a tensor argument.
  [[nodiscard]] const graph::Type& type(std::size_t arg) const;

  [[nodiscard]] std::size_t result_count() const { return results_.size(); }
  [[nodiscard]] RefTensor& result(std::size_t i = 0) { return results_[i]; }
  [[nodiscard]] std::vector<RefTensor> take_results() { return std::move(results_); }

 private:
  const graph::Graph& graph_;
  const graph::Node& node_;
  const std::vector<std::optional<RefTensor>>& values_;
  const SymbolValues& symbols_;
  std::vector<RefTensor> results_;
};

struct InterpretedOutput {
  std::optional<RefTensor> tensor;
  std::optional<std::int64_t> integer;
};

// Runs the graph. `inputs` are the tensor inputs in order; symbols come from `symbols` (integer
// inputs and size symbols alike). A node whose row has neither reference nor decomposition throws
// Unsupported; wrong inputs throw UserError.
// Mutated inputs (copy_) are updated in place in `inputs`.
[[nodiscard]] std::vector<InterpretedOutput> interpret(const graph::Graph& graph,
                                                       std::vector<RefTensor>& inputs,
                                                       const SymbolValues& symbols);
// What an output that is a view returns, of the contents of what it views. Unsupported where it
// shows memory of an argument that no element of the argument lies in.
[[nodiscard]] RefTensor viewed(const graph::Graph& graph, const graph::Output& output,
                               const RefTensor& whole, const SymbolValues& symbols);
// One node on given values, by reference function or by decomposition.
[[nodiscard]] std::vector<RefTensor> interpret_node(
    const graph::Graph& graph, const graph::Node& node,
    const std::vector<std::optional<RefTensor>>& values, const SymbolValues& symbols);

}  // namespace inkle::ops
