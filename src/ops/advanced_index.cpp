#include "ops/advanced_index.h"

#include <algorithm>

#include "base/error.h"

namespace inkle::ops {
namespace {

// Where the broadcast shape stands: at the first indexed dimension if they are adjacent, else 0.
std::size_t shape_position(const std::vector<bool>& is_indexed) {
  const auto begin = std::find(is_indexed.begin(), is_indexed.end(), true);
  const auto end = std::find(begin, is_indexed.end(), false);
  const bool adjacent = std::find(end, is_indexed.end(), true) == is_indexed.end();
  return adjacent ? static_cast<std::size_t>(begin - is_indexed.begin()) : 0;
}

void merge_shape(const graph::Inference& in, Sizes& shape, const Sizes& sizes) {
  while (shape.size() < sizes.size()) shape.insert(shape.begin(), in.context().constant(1));
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    Expr& size = shape[shape.size() - sizes.size() + d];
    if (sizes[d].is_constant(1) || size == sizes[d]) continue;
    if (size.is_constant(1))
      size = sizes[d];
    else if (!in.context().guard_equal(size, sizes[d]))
      in.fail("index shapes do not broadcast");
  }
}

}  // namespace

AdvancedIndex advanced_index_of(const graph::Inference& in, std::size_t arg) {
  const std::size_t rank = in.tensor(0).rank();
  AdvancedIndex plan{.is_indexed = std::vector<bool>(rank, false)};
  std::size_t dim = 0;
  bool any = false;
  for (const graph::Type* index : in.tensors(arg)) {
    if (dim >= rank) in.fail("more indices than dimensions");
    if (index != nullptr) {
      if (index->dtype == DType::boolean || index->dtype == DType::u8) {
        unsupported("{}: a mask as an index", in.op().name);
      }
      if (index->dtype != DType::i64 && index->dtype != DType::i32) {
        in.fail("an index must be i32 or i64");
      }
      plan.is_indexed[dim] = true;
      any = true;
      merge_shape(in, plan.shape, index->sizes);
    }
    ++dim;
  }
  if (!any) in.fail("needs an index");
  plan.first = shape_position(plan.is_indexed);
  return plan;
}

Sizes AdvancedIndex::result_sizes(const Sizes& sizes) const {
  Sizes result;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (!is_indexed[d]) result.push_back(sizes[d]);
  }
  result.insert(result.begin() + static_cast<std::ptrdiff_t>(first), shape.begin(), shape.end());
  return result;
}

std::vector<Expr> AdvancedIndex::source_indices(const Lowering& l, BodyBuilder& b,
                                                const std::vector<const Tensor*>& indices,
                                                const Sizes& sizes, Indices result) const {
  const Indices at = result.subspan(first, shape.size());
  std::vector<Expr> source;
  std::size_t next = 0;  // position in `result` of the next dimension that is not indexed
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (is_indexed[d]) {
      const Val value = b.cast(l.broadcast_element(b, *indices[d], at), DType::i64);
      source.push_back(b.indirect_wrapped(value, sizes[d]));
    } else {
      if (next == first) next += shape.size();
      source.push_back(result[next++]);
    }
  }
  return source;
}

std::vector<std::int64_t> reference_source_indices(const std::vector<const RefTensor*>& indices,
                                                   const RefTensor& x,
                                                   std::span<const std::int64_t> result) {
  std::vector<bool> is_indexed(x.rank(), false);
  std::size_t shape_rank = 0;
  for (std::size_t d = 0; d < indices.size(); ++d) {
    is_indexed[d] = indices[d] != nullptr;
    if (is_indexed[d]) shape_rank = std::max(shape_rank, indices[d]->rank());
  }
  const std::size_t first = shape_position(is_indexed);
  const auto at = result.subspan(first, shape_rank);
  std::vector<std::int64_t> source;
  std::size_t next = 0;
  for (std::size_t d = 0; d < x.rank(); ++d) {
    if (!is_indexed[d]) {
      if (next == first) next += shape_rank;
      source.push_back(result[next++]);
      continue;
    }
    std::int64_t value = indices[d]->integer(broadcast_position(*indices[d], at));
    if (value < 0) value += x.sizes[d];
    if (value < 0 || value >= x.sizes[d]) user_error("index {} is out of range", value);
    source.push_back(value);
  }
  return source;
}

}  // namespace inkle::ops
