// What library calls should give: plain loops in double precision over strided tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/cpu/plan_builder.h"
#include "runtime/cpu/post_ops.h"

namespace inkle::runtime::cpu {

struct Tensor {
  const float* data;
  Shape sizes, strides;
  [[nodiscard]] std::int64_t offset(const Shape& index) const {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < index.size(); ++d) {
      if (sizes[d] != 1) offset += index[d] * strides[d];
    }
    return offset;
  }
  [[nodiscard]] double at(const Shape& index) const { return data[offset(index)]; }
};

// Sum of products along one dimension of each.
inline double dot(const Tensor& a, const Shape& a_index, std::size_t a_dim, const Tensor& b,
                  const Shape& b_index, std::size_t b_dim, std::int64_t count) {
  const float* pa = a.data + a.offset(a_index);
  const float* pb = b.data + b.offset(b_index);
  double sum = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    sum += static_cast<double>(pa[k * a.strides[a_dim]]) * pb[k * b.strides[b_dim]];
  }
  return sum;
}

inline bool advance(Shape& index, const Shape& sizes) {
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (++index[d] < sizes[d]) return true;
    index[d] = 0;
  }
  return false;
}

// Strides of sizes with the dimensions in `order`, slowest first.
inline Shape ordered(const Shape& sizes, const std::vector<std::size_t>& order) {
  Shape strides(sizes.size());
  std::int64_t step = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step *= sizes[order[i]];
  }
  return strides;
}

struct PostOpCase {
  abi::PostOpKind kind;
  double alpha = 0;
  double beta = 0;
  Shape sizes, strides;  // of the operand as laid out in memory; size 1: broadcast
};

inline void add_post_ops(PlanBuilder& b, const std::vector<PostOpCase>& cases, const Shape& result,
                         Arguments& a, std::vector<abi::PostOp>& post_ops,
                         std::vector<Tensor>& operands) {
  for (const PostOpCase& p : cases) {
    abi::PostOp op{.kind = p.kind, .alpha = p.alpha, .beta = p.beta, .operand = {}};
    if (!p.sizes.empty()) {
      const auto buffer = b.argument("p", p.sizes, p.strides);
      Shape strides = p.strides;
      for (std::size_t d = 0; d < result.size(); ++d) {
        if (p.sizes[d] != result[d]) strides[d] = 0;
      }
      op.operand = b.operand(buffer, result, strides);
      operands.push_back({a.random(p.sizes, p.strides), p.sizes, p.strides});
    }
    post_ops.push_back(std::move(op));
  }
}

inline double with_post_ops(double x, const std::vector<PostOpCase>& cases,
                            const std::vector<Tensor>& operands, const Shape& index) {
  std::size_t operand = 0;
  for (const PostOpCase& p : cases) {
    const double other = p.sizes.empty() ? 0 : operands[operand++].at(index);
    x = apply({.kind = p.kind, .alpha = p.alpha, .beta = p.beta, .operand = {}},
              static_cast<float>(x), static_cast<float>(other));
  }
  return x;
}

}  // namespace inkle::runtime::cpu
