// Shape inference that rows share.
#include "ops/infer.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "ops/promotion.h"

namespace inkle::ops::infer {

const Type& computable(Inference& args, std::size_t i) {
  const Type& type = args.tensor(i);
  require_computable(type.dtype);
  return type;
}

Type make(const Type& like, abi::DType dtype, Sizes sizes) {
  return Type{.dtype = dtype, .device = like.device, .sizes = std::move(sizes)};
}

namespace {

Expr broadcast_size(Inference& args, Expr a, Expr b) {
  if (a == b || b.is_constant(1)) return a;
  if (a.is_constant(1)) return b;
  if (a.is_constant() && b.is_constant()) {
    args.fail(fmt::format("sizes {} and {} do not broadcast", to_string(a), to_string(b)));
  }
  const Expr one = args.context().constant(1);
  if (args.context().guard_equal(a, b)) return a.is_constant() ? a : b.is_constant() ? b : a;
  if (args.context().guard_equal(b, one)) return a;
  if (args.context().guard_equal(a, one)) return b;
  args.fail(fmt::format("sizes {} and {} do not broadcast", to_string(a), to_string(b)));
}

}  // namespace

Sizes broadcast(Inference& args, const Sizes& a, const Sizes& b) {
  const Sizes& longer = a.size() >= b.size() ? a : b;
  const Sizes& shorter = a.size() >= b.size() ? b : a;
  Sizes result = longer;
  const std::size_t shift = longer.size() - shorter.size();
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    result[shift + i] = broadcast_size(args, longer[shift + i], shorter[i]);
  }
  return result;
}

Type broadcast_all(Inference& args, std::initializer_list<std::size_t> operands, abi::DType dtype) {
  Type result{.dtype = dtype};
  bool first = true;
  bool has_dimensions = false;
  for (std::size_t i : operands) {
    if (args.is_none(i) || !args.is_tensor(i)) continue;
    const Type& type = computable(args, i);
    // A 0-dim CPU tensor may take part in work on another device.
    if (first || (!has_dimensions && type.rank() > 0) ||
        result.device.kind == abi::DeviceKind::cpu) {
      result.device = type.device;
    }
    result.sizes = first ? type.sizes : broadcast(args, result.sizes, type.sizes);
    has_dimensions = has_dimensions || type.rank() > 0;
    first = false;
  }
  if (first) args.fail("needs a tensor");
  return result;
}

Sizes resolve_minus_one(Inference& args, Sizes sizes, Expr count) {
  std::optional<std::size_t> unknown;
  Expr known = args.context().constant(1);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].is_constant(-1)) {
      if (unknown) args.fail("only one size can be -1");
      unknown = i;
    } else {
      known = known * sizes[i];
    }
  }
  if (unknown) {
    if (known.is_constant(0)) args.fail("-1 beside a size of 0 is ambiguous");
    sizes[*unknown] = floordiv(count, known);
    if (count.is_constant() && known.is_constant() && *count.constant() % *known.constant() != 0) {
      args.fail(fmt::format("{} elements do not fill a multiple of {}", to_string(count),
                            to_string(known)));
    }
  } else if (!args.context().guard_equal(known, count)) {
    args.fail(fmt::format("{} elements do not fill {}", to_string(count), to_string(known)));
  }
  return sizes;
}

namespace {

// Dimensions by stride, largest first; equal strides keep their order. None where a stride is not
// known.
std::optional<std::vector<std::size_t>> by_stride(const Sizes& strides) {
  std::vector<std::size_t> order(strides.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (Expr stride : strides) {
    if (!stride.is_constant() && sym::hint(stride) == std::nullopt) return std::nullopt;
  }
  const auto value = [&](std::size_t d) { return sym::hint(strides[d]).value_or(0); };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return value(a) > value(b); });
  return order;
}

}  // namespace

Sizes preserved_strides(Inference& args, const Type& type) {
  Sizes row_major = graph::contiguous_strides(args.context(), type.sizes);
  if (!type.strides) return row_major;
  const auto order = by_stride(*type.strides);
  if (!order) return row_major;
  Sizes dense(type.rank(), args.context().constant(1));
  Expr next = args.context().constant(1);
  for (std::size_t k = order->size(); k-- > 0;) {
    const std::size_t d = (*order)[k];
    dense[d] = next;
    // A size of 1 may have any stride; anything else must be dense.
    if (!type.sizes[d].is_constant(1)) {
      if (sym::equal((*type.strides)[d], next) != true) return row_major;
      next = next * type.sizes[d];
    } else {
      dense[d] = (*type.strides)[d];
    }
  }
  return dense;
}

namespace {

// Whether each dimension steps over all that those with smaller strides reach, by `less`.
template <class Less>
bool are_apart(const Sizes& sizes, const Sizes& strides, std::span<const std::size_t> by_stride,
               const Less& less) {
  if (sizes.empty()) return true;
  Expr span = sizes[0].context().constant(0);  // from the first element to the last, so far
  for (std::size_t k = by_stride.size(); k-- > 0;) {
    const std::size_t d = by_stride[k];
    if (sizes[d].is_constant(1)) continue;
    if (!less(span, strides[d])) return false;
    span = span + strides[d] * (sizes[d] - 1);
  }
  return true;
}

}  // namespace

bool are_apart(const Sizes& sizes, const Sizes& strides) {
  const auto order = by_stride(strides);
  const auto less = [](Expr a, Expr b) { return sym::less(a, b) == true; };
  return order && are_apart(sizes, strides, *order, less);
}

void refuse_overlap(Inference& args) {
  const Type& type = args.tensor(0);
  sym::Context& context = args.context();
  if (!type.strides || graph::is_contiguous(type)) return;
  const Sizes& strides = *type.strides;
  for (std::size_t d = 0; d < type.rank(); ++d) {
    // ATen copies what repeats elements.
    if (strides[d].is_constant(0) && !type.sizes[d].is_constant(1)) return;
  }
  const auto order = by_stride(strides);
  if (!order) unsupported("{}: strides of self are not known", args.op().name);
  const auto less = [&](Expr a, Expr b) { return context.guard_less(a, b); };
  if (!are_apart(type.sizes, strides, *order, less)) {
    unsupported("{}: elements of self share memory", args.op().name);
  }
}

Types same(Inference& args) {
  const Type& type = computable(args, 0);
  return {make(type, type.dtype, type.sizes)};
}

Types float_unary(Inference& args) {
  const Type& type = computable(args, 0);
  return {make(type, float_result(type.dtype), type.sizes)};
}

Types unary_bool(Inference& args) {
  const Type& type = computable(args, 0);
  return {make(type, abi::DType::boolean, type.sizes)};
}

Types binary(Inference& args) { return {broadcast_all(args, {0, 1}, common_dtype(args, {0, 1}))}; }

Types binary_float(Inference& args) {
  return {broadcast_all(args, {0, 1}, float_result(common_dtype(args, {0, 1})))};
}

Types binary_bool(Inference& args) {
  (void)common_dtype(args, {0, 1});
  return {broadcast_all(args, {0, 1}, abi::DType::boolean)};
}

Types like_first_two(Inference& args) { return binary(args); }

}  // namespace inkle::ops::infer
