// What a row's `lower` function sees: one node of a graph and the loop program being recorded.
// Views compose index maps and record nothing; pointwise and reductions record one nest each.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/inference.h"
#include "loop/builder.h"
#include "loop/program.h"

namespace inkle::ops {

using abi::DType;
using graph::Sizes;
using loop::Body;
using loop::BodyBuilder;
using loop::Opcode;
using loop::Val;
using sym::Expr;

using Indices = std::span<const Expr>;

// A tensor value while lowering: a buffer seen through an index map.
struct Tensor {
  DType dtype = DType::f32;
  abi::Device device;
  Sizes sizes;
  loop::BufferId buffer = 0;
  // Logical indices of this tensor -> logical indices of the buffer; null is the identity.
  std::function<std::vector<Expr>(Indices)> map;

  [[nodiscard]] std::size_t rank() const { return sizes.size(); }
  [[nodiscard]] std::vector<Expr> buffer_indices(Indices i) const {
    return map ? map(i) : std::vector<Expr>(i.begin(), i.end());
  }
};

using ElementFunction = std::function<Val(BodyBuilder&, Indices)>;

// True if the tensor is all of its buffer, in order.
[[nodiscard]] bool is_whole(const Tensor& t, const loop::Program& program);

// The whole lowering of one graph: owned by lower/, shared by all nodes.
struct LoweringState {
  const graph::Graph* graph = nullptr;
  loop::Program* program = nullptr;
  std::vector<std::optional<Tensor>> values;  // by ValueId
  // By ValueId: uses by the current and later nodes, and by outputs. Empty: unknown, so everything
  // counts as used.
  std::vector<std::uint32_t> remaining;
};

// Whether a size is 1, also by a guard only: such a dimension is read at 0, whatever it is
// broadcast to.
[[nodiscard]] bool is_one(Expr size);

class Lowering {
 public:
  Lowering(LoweringState& state, const graph::Node& node);

  // --- The node -----------------------------------------------------------------------------
  [[nodiscard]] const graph::Node& node() const { return node_; }
  [[nodiscard]] sym::Context& context() const;
  [[nodiscard]] const graph::Inference& args() const { return args_; }
  [[nodiscard]] const Tensor& tensor(std::size_t arg) const;
  [[nodiscard]] const Tensor* optional_tensor(std::size_t arg) const;
  [[nodiscard]] std::vector<const Tensor*> tensors(std::size_t arg) const;
  [[nodiscard]] const graph::Type& result_type(std::size_t i = 0) const;
  // Unused results need not be recorded.
  [[nodiscard]] bool is_used(std::size_t result) const;

  // --- Inside a body ------------------------------------------------------------------------
  // The element of argument `arg` at result indices, broadcast from the right, in its own dtype.
  // A scalar argument gives a constant of dtype `scalar_as`, an integer symbol an index value cast
  // to it.
  Val element(BodyBuilder& b, std::size_t arg, Indices i, DType scalar_as) const;
  Val element(BodyBuilder& b, const Tensor& t, Indices i) const;  // exact rank
  Val broadcast_element(BodyBuilder& b, const Tensor& t, Indices i) const;

  // --- Recording ----------------------------------------------------------------------------
  // Records a pointwise nest over `sizes`; the value is cast to `dtype` at the end.
  Tensor pointwise(const Sizes& sizes, DType dtype, const ElementFunction& f);
  // Reduces over `reduced` extents: f gets result indices followed by reduced indices. The yield is
  // cast to `accumulator`, results to `dtypes`.
  using ReduceFunction = std::function<Val(BodyBuilder&, Indices outer, Indices reduced)>;
  std::vector<Tensor> reduce(loop::ReduceOp op, const Sizes& sizes, const Sizes& reduced,
                             DType accumulator, std::vector<DType> dtypes, const ReduceFunction& f);
  // Running reduction (sum, prod, min, max) along `dim`.
  Tensor scan(loop::ReduceOp op, const Sizes& sizes, std::size_t dim, DType accumulator,
              DType dtype, const ElementFunction& f);
  // Writes f(i) to base at index_of(i); the result is a new value equal to base elsewhere. Where
  // can_update(base) it is written in place, so the caller must not read it again.
  using ScatterIndex = std::function<std::vector<Expr>(BodyBuilder&, Indices)>;
  Tensor scatter(const Tensor& base, const Sizes& update_sizes, loop::StoreMode mode,
                 const ScatterIndex& index_of, const ElementFunction& f);
  // True if base has no other use: a temporary at its last use, or, where the node is marked
  // `in_place`, an input that is overwritten as a whole later and not read in between.
  [[nodiscard]] bool can_update(const Tensor& base) const;
  // can_update, and worth a nest of its own: the result of a pointwise nest is better updated by a
  // select in that nest, unless that was an update too (else a chain of n would select n times).
  [[nodiscard]] bool should_update(const Tensor& base) const;
  // Mutation: f(i) becomes the contents of `destination`, an input or a view of one, at i. Other
  // values that read the same memory and are still needed are copied first: a value stays what it
  // was when it was defined. Returns `destination`, now the new value; a second mutation names that
  // one. Nothing is recorded where the memory holds that value already. Unsupported if it is no
  // input.
  Tensor store_into(const Tensor& destination, const ElementFunction& f);
  // A view: `map` takes indices of the result to indices of `of`.
  Tensor view(const Tensor& of, Sizes sizes, std::function<std::vector<Expr>(Indices)> map) const;
  // a over (batch..., m, k), b over (batch..., k, n), batches equal (or 1, broadcast).
  Tensor matmul(const Tensor& a, const Tensor& b, DType dtype);
  Tensor convolution(const Tensor& x, const Tensor& w, const Tensor* bias,
                     loop::Convolution parameters, const Sizes& sizes, DType dtype);
  // Operands of rank 4.
  struct AttentionArguments {
    const Tensor *q, *k, *v, *mask = nullptr;
    double scale = 1;
    bool is_causal = false, safe = true, want_lse = false;
    double hidden = -std::numeric_limits<double>::infinity();
    const Tensor* seed = nullptr;  // of dropout
    std::int64_t number = 0;
    double p = 0;
    bool want_statistics = false;
  };
  // The result, then the log-sum-exp or the statistics if they are wanted.
  std::vector<Tensor> attention(const AttentionArguments& arguments, DType dtype);
  // Gradients of q, k and v, from that of the result, the result and its statistics.
  std::vector<Tensor> attention_gradient(const AttentionArguments& arguments, const Tensor& grad,
                                         const Tensor& out, const Tensor& statistics);
  // The tensor as a buffer of its own with row-major (or these) strides: copies unless it is one.
  Tensor materialise(const Tensor& t, std::optional<Sizes> strides = std::nullopt);
  // The tensor as a whole buffer in any layout: copies unless it is one.
  Tensor whole(const Tensor& t);
  // A call of the host's implementation of this node, with all results. Its arguments are every
  // tensor and every integer among the node's arguments, in order, lists flattened, missing
  // tensors left out; operands have the strides of their graph types (else row-major), results too.
  std::vector<Tensor> eager();

  // --- Results ------------------------------------------------------------------------------
  void result(std::size_t i, Tensor t);
  void result(Tensor t) { result(0, std::move(t)); }

 private:
  [[nodiscard]] loop::Program& program() const { return *state_.program; }
  [[nodiscard]] loop::Nest new_nest(loop::NestKind kind) const;
  Tensor new_tensor(Sizes sizes, DType dtype);
  loop::Attention attention_detail(const AttentionArguments& arguments);
  loop::Access attention_access(const loop::Attention& detail, const Tensor& t,
                                const Sizes& extents);
  [[nodiscard]] bool is_needed_later(graph::ValueId value) const;
  [[nodiscard]] bool is_last_use(loop::BufferId buffer) const;
  [[nodiscard]] bool is_overwritten_next(loop::BufferId input) const;
  void keep_old_values(loop::BufferId buffer);
  std::vector<Tensor> reduce_nothing(loop::ReduceOp op, const Sizes& sizes, const Sizes& reduced,
                                     DType accumulator, DType dtype, const ReduceFunction& f);

  LoweringState& state_;
  const graph::Node& node_;
  graph::Inference args_;
};

}  // namespace inkle::ops
