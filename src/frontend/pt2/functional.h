// Takes mutation out of a program: every name is a view of a storage; an in-place op computes a new
// value and puts it into the storage through the inverses of the views, and other names of the
// storage are read again through their views.
//
//   b = a.view(-1)                            %0 = view(%a)
//   c = b[1:3]; c.add_(1)        becomes      %1 = slice(%0), %2 = add(%1, 1)
//   use(a)                                    %3 = slice_scatter(%0, %2), %4 = view(%3); use(%4)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/builder.h"

namespace inkle::frontend::pt2 {

using graph::Argument;
using graph::Builder;
using graph::ValueId;
using sym::Expr;

// A name's tensor; an index into Storages.
struct TensorId {
  std::uint32_t index = 0;
};

// What a view does, by the way back through it.
enum class ViewKind : std::uint8_t {
  none,       // not a view
  same,       // alias, detach
  reshape,    // view, squeeze, unsqueeze, flatten: the same elements in order
  transpose,  // its own inverse: t, transpose
  permute,
  slice,  // slice, narrow
  select,
  pieces,  // split, split_with_sizes, chunk: several slices along a dimension
  unbind,
  expand,  // can be read, not written through
};
// By the overload's name without namespace and variant ("slice" of aten::slice.Tensor); `none` for
// those that make new memory.
[[nodiscard]] ViewKind view_kind(std::string_view base);

class Storages {
 public:
  explicit Storages(Builder& builder) : builder_(builder) {}

  // A tensor of its own memory.
  TensorId make(ValueId value);
  // An input (or literal, which cannot be written), to be told apart when all is done.
  TensorId make_input(ValueId value, std::uint32_t number);
  // Results of view `base` of tensor `of`, made by row `row` with these complete arguments
  // (argument 0 is the viewed tensor). Unsupported for views of views without end.
  std::vector<TensorId> view(TensorId of, std::string_view base, const graph::OpDef& row,
                             std::vector<Argument> args, const std::vector<ValueId>& results);

  [[nodiscard]] ValueId read(TensorId tensor);
  // The value has the tensor's sizes and dtype. Unsupported through views that have no inverse.
  void write(TensorId tensor, ValueId value);

  struct Mutation {
    std::uint32_t input = 0;
    ValueId before, after;
  };
  // Inputs whose storage was written, in order.
  [[nodiscard]] std::vector<Mutation> mutations() const;
  // From now on input `number` is `value`, which has been written to it.
  void written(std::uint32_t number, ValueId value);
  // What is returned of an input's storage, or several times of one, is read as views of it from
  // now on, so that the graph shows which outputs share memory.
  void settle(const std::vector<TensorId>& returned);

 private:
  struct Storage {
    ValueId original, value;
    std::uint32_t version = 0;
    std::optional<std::uint32_t> input;
  };
  struct Tensor {
    std::uint32_t storage = 0;
    std::optional<std::uint32_t> parent;  // none: the whole storage
    std::uint32_t depth = 0;              // views down from the storage
    std::string base;
    const graph::OpDef* row = nullptr;
    std::vector<Argument> args;
    std::uint32_t result = 0;
    ValueId value;  // as of `version`
    std::uint32_t version = 0;
  };

  [[nodiscard]] ValueId put_back(const Tensor& view, ValueId parent, ValueId value);
  [[nodiscard]] ValueId put_piece(const Tensor& view, ValueId parent, ValueId value);

  Builder& builder_;
  std::vector<Storage> storages_;
  std::vector<Tensor> tensors_;
};

}  // namespace inkle::frontend::pt2
