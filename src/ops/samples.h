// Sample calls of a row, from which the differential tests are generated: each is run for several
// dtypes and shape classes through the interpreter and every code generator.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/builder.h"
#include "graph/graph.h"

namespace inkle::ops {

enum class ShapeClass : std::uint8_t {
  fixed,     // constant sizes
  symbolic,  // sizes are symbols with these hints
  ones,      // every free size is 1
  empty,     // the first free size is 0
};

// What a sample writes its arguments with: makes the graph inputs.
class SampleBuilder {
 public:
  SampleBuilder(graph::Graph& graph, abi::DType dtype, ShapeClass shapes)
      : graph_(graph), dtype_(dtype), shapes_(shapes) {}

  [[nodiscard]] abi::DType dtype() const { return dtype_; }
  // Of the samples written from now on.
  void set_dtype(abi::DType dtype) { dtype_ = dtype; }
  [[nodiscard]] sym::Context& context() { return graph_.context(); }
  // A free size: `value` in the fixed class; equal values are one symbol in the symbolic class.
  graph::Expr size(std::int64_t value);
  graph::Expr constant(std::int64_t value) { return context().constant(value); }
  // New tensor inputs: of the class's dtype (or this one), values uniform in [low, high].
  graph::Argument tensor(std::vector<graph::Expr> sizes, double low = -2, double high = 2);
  graph::Argument tensor(abi::DType dtype, std::vector<graph::Expr> sizes, double low = -2,
                         double high = 2);
  // The shorthand for free sizes.
  graph::Argument free_tensor(std::vector<std::int64_t> sizes, double low = -2, double high = 2);

  struct Range {
    double low, high;
  };
  [[nodiscard]] const std::vector<Range>& ranges() const { return ranges_; }  // by input

 private:
  graph::Graph& graph_;
  abi::DType dtype_;
  ShapeClass shapes_;
  std::vector<Range> ranges_;
  std::vector<std::pair<std::int64_t, graph::Expr>> symbols_;
  bool emptied_ = false;
  std::int64_t emptied_value_ = 0;
};

}  // namespace inkle::ops

namespace inkle::graph {

struct Sample {
  std::string_view label;
  // All arguments of the row's schema (trailing defaults may be left out).
  std::vector<Argument> (*arguments)(ops::SampleBuilder&) = nullptr;
  // The dtypes it is meant for.
  std::vector<abi::DType> dtypes = {abi::DType::f32};
  // False where an op is not defined on symbolic, one or empty sizes.
  bool fixed_only = false;
};

}  // namespace inkle::graph
