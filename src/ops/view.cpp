// Views that rearrange whole dimensions: reshape, permute, expand, squeeze. No arithmetic: each is
// a map from indices of the result to indices of the operand.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/table.h"
#include "ops/views.h"

namespace inkle::ops {

using graph::Argument;
using graph::Inference;
using infer::Types;

IndexMap reshape_map(sym::Context& context, const Sizes& from, const Sizes& to) {
  const auto is_empty = [](const Sizes& sizes) {
    return std::ranges::any_of(sizes, [](Expr e) { return e.is_constant(0); });
  };
  if (is_empty(from) || is_empty(to)) {  // never evaluated
    return [zero = context.constant(0), rank = from.size()](Indices) {
      return std::vector<Expr>(rank, zero);
    };
  }
  // Dimensions [from_begin, from_end) and [to_begin, to_end) hold the same number of elements.
  struct Group {
    std::size_t from_begin, from_end, to_begin, to_end;
  };
  std::vector<Group> groups;
  std::size_t f = from.size(), t = to.size();
  while (f > 0 || t > 0) {
    Group g{f, f, t, t};
    Expr in = context.constant(1), out = in;
    do {
      const bool can_in = g.from_begin > 0, can_out = g.to_begin > 0;
      if (can_in && (!can_out || (g.from_begin == f) || (in != out && sym::divides(in, out)))) {
        in = in * from[--g.from_begin];
      } else if (can_out) {
        out = out * to[--g.to_begin];
      } else {
        break;
      }
    } while (in != out || g.to_begin == g.to_end);
    groups.push_back(g);
    f = g.from_begin;
    t = g.to_begin;
  }
  return [groups, from, to, zero = context.constant(0)](Indices i) {
    std::vector<Expr> result(from.size(), zero);
    for (const Group& g : groups) {
      Expr linear = zero;
      for (std::size_t k = g.to_begin; k < g.to_end; ++k) linear = linear * to[k] + i[k];
      for (std::size_t k = g.from_end; k-- > g.from_begin;) {
        const bool is_outermost = k == g.from_begin;
        result[k] = is_outermost ? linear : mod(linear, from[k]);
        if (!is_outermost) linear = floordiv(linear, from[k]);
      }
    }
    return result;
  };
}

void ref_from(
    Evaluation& e,
    const std::function<void(std::span<const std::int64_t>, std::vector<std::int64_t>&)>& source) {
  const RefTensor& x = e.tensor(0);
  RefTensor& r = e.result();
  std::vector<std::int64_t> from(x.rank());
  for_each_index(r.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    source(i, from);
    r.copy_element(p, x, x.at(from));
  });
}

namespace {

Sizes product_groups_strides(Inference& args, const infer::Type& x, const Sizes& sizes, bool& ok);

// ATen's computeStride: strides of a view of other sizes, if one exists.
std::optional<Sizes> view_strides(Inference& args, const infer::Type& x, const Sizes& sizes) {
  if (!x.strides) return std::nullopt;
  if (graph::is_contiguous(x)) return graph::contiguous_strides(args.context(), sizes);
  bool ok = true;
  Sizes strides = product_groups_strides(args, x, sizes, ok);
  if (!ok) return std::nullopt;
  return strides;
}

Sizes product_groups_strides(Inference& args, const infer::Type& x, const Sizes& sizes, bool& ok) {
  const Expr one = args.context().constant(1);
  Sizes strides(sizes.size(), one);
  std::size_t next = sizes.size();  // result dimensions left to place, from the right
  Expr chunk_base = x.rank() > 0 ? x.strides->back() : one;
  Expr in = one, out = one;
  for (std::size_t d = x.rank(); d-- > 0;) {
    in = in * x.sizes[d];
    const bool ends = d == 0 || (!x.sizes[d - 1].is_constant(1) &&
                                 sym::equal((*x.strides)[d - 1], in * chunk_base) != true);
    if (!ends) continue;
    while (next > 0 && (out != in || sizes[next - 1].is_constant(1))) {
      if (out != in && !sym::divides(out * sizes[next - 1], in)) {
        ok = false;
        return strides;
      }
      strides[--next] = out * chunk_base;
      out = out * sizes[next];
    }
    if (out != in) {
      ok = false;
      return strides;
    }
    if (d > 0) {
      chunk_base = (*x.strides)[d - 1];
      in = one;
      out = one;
    }
  }
  ok = next == 0;
  return strides;
}

Types infer_view(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  Sizes sizes =
      infer::resolve_minus_one(args, args.integers(1), graph::element_count(args.context(), x));
  infer::Type r = infer::make(x, x.dtype, std::move(sizes));
  r.strides = view_strides(args, x, r.sizes);
  return {r};
}

Types infer_unsafe_view(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  Sizes sizes =
      infer::resolve_minus_one(args, args.integers(1), graph::element_count(args.context(), x));
  infer::Type r = infer::make(x, x.dtype, std::move(sizes));
  if (x.strides) r.strides = view_strides(args, x, r.sizes);
  return {r};
}

void lower_view(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const Sizes& sizes = l.result_type().sizes;
  l.result(l.view(x, sizes, reshape_map(l.context(), x.sizes, sizes)));
}

void ref_view(Evaluation& e) {
  for (std::size_t p = 0; p < e.result().count(); ++p) {
    e.result().copy_element(p, e.tensor(0), p);
  }
}

Types infer_flatten(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  if (x.rank() == 0) return {infer::make(x, x.dtype, {args.context().constant(1)})};
  const std::size_t first = args.dim(args.constant_integer(1), x.rank());
  const std::size_t last = args.dim(args.constant_integer(2), x.rank());
  if (first > last) args.fail("start_dim must not come after end_dim");
  Sizes sizes(x.sizes.begin(), x.sizes.begin() + static_cast<std::ptrdiff_t>(first));
  Expr merged = args.context().constant(1);
  for (std::size_t d = first; d <= last; ++d) merged = merged * x.sizes[d];
  sizes.push_back(merged);
  sizes.insert(sizes.end(), x.sizes.begin() + static_cast<std::ptrdiff_t>(last) + 1, x.sizes.end());
  infer::Type r = infer::make(x, x.dtype, std::move(sizes));
  r.strides = view_strides(args, x, r.sizes);
  return {r};
}

// --- Permutations
// -----------------------------------------------------------------------------------

// order[d] is the operand's dimension that becomes result dimension d.
using Order = std::vector<std::size_t>;

Order permute_order(const Inference& args) {
  const std::size_t rank = args.tensor(0).rank();
  Order order;
  for (std::int64_t d : args.constant_integers(1)) order.push_back(args.dim(d, rank));
  Order sorted = order;
  std::ranges::sort(sorted);
  if (order.size() != rank || std::ranges::adjacent_find(sorted) != sorted.end()) {
    args.fail("dims must name each dimension once");
  }
  return order;
}

Order transpose_order(const Inference& args) {
  Order order(args.tensor(0).rank());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (order.empty()) return order;
  std::swap(order[args.dim(args.constant_integer(1), order.size())],
            order[args.dim(args.constant_integer(2), order.size())]);
  return order;
}

Order t_order(const Inference& args) {
  Order order(args.tensor(0).rank());
  if (order.size() > 2) args.fail("needs a tensor of at most 2 dimensions");
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::reverse(order);
  return order;
}

Order movedim_order(const Inference& args) {
  const std::size_t rank = args.tensor(0).rank();
  const std::vector<std::int64_t> sources = args.constant_integers(1);
  const std::vector<std::int64_t> targets = args.constant_integers(2);
  if (sources.size() != targets.size()) args.fail("needs as many sources as destinations");
  constexpr std::size_t kFree = ~std::size_t{0};
  Order order(rank, kFree);
  std::vector<bool> moved(rank, false);
  for (std::size_t k = 0; k < sources.size(); ++k) {
    const std::size_t from = args.dim(sources[k], rank), to = args.dim(targets[k], rank);
    if (moved[from] || order[to] != kFree) args.fail("a dimension is named twice");
    order[to] = from;
    moved[from] = true;
  }
  std::size_t next = 0;
  for (std::size_t& d : order) {
    if (d != kFree) continue;
    while (moved[next]) ++next;
    d = next++;
  }
  return order;
}

template <auto kOrder>
Types infer_permutation(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  const Order order = kOrder(args);
  infer::Type r = infer::make(x, x.dtype, x.sizes);
  if (x.strides) r.strides = x.strides;
  for (std::size_t d = 0; d < order.size(); ++d) {
    r.sizes[d] = x.sizes[order[d]];
    if (x.strides) (*r.strides)[d] = (*x.strides)[order[d]];
  }
  return {r};
}

template <auto kOrder>
void lower_permutation(Lowering& l) {
  l.result(l.view(l.tensor(0), l.result_type().sizes, [order = kOrder(l.args())](Indices i) {
    std::vector<Expr> from(order.size());
    for (std::size_t d = 0; d < order.size(); ++d) from[order[d]] = i[d];
    return from;
  }));
}

template <auto kOrder>
void ref_permutation(Evaluation& e) {
  const Order order = kOrder(Inference(e.graph(), *e.node().op, e.node().args));
  ref_from(e, [&](std::span<const std::int64_t> i, std::vector<std::int64_t>& from) {
    for (std::size_t d = 0; d < order.size(); ++d) from[order[d]] = i[d];
  });
}

// --- Expand
// -----------------------------------------------------------------------------------------

Types infer_expand(Inference& args) { return {expanded(args, args.integers(1))}; }

}  // namespace

graph::Type expanded(Inference& args, Sizes sizes) {
  const infer::Type& x = infer::computable(args, 0);
  if (sizes.size() < x.rank()) args.fail("needs at least as many sizes as the tensor has");
  const std::size_t shift = sizes.size() - x.rank();
  Sizes strides(sizes.size(), args.context().constant(0));
  const Expr one = args.context().constant(1);
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (d < shift) {
      if (sizes[d].is_constant(-1)) args.fail("-1 cannot stand for a new dimension");
      continue;
    }
    const Expr own = x.sizes[d - shift];
    if (sizes[d].is_constant(-1)) sizes[d] = own;
    // A size of 1 is read at 0 whatever it expands to, another 1 included: nothing to guard.
    if (own == one && !sizes[d].is_constant()) continue;
    if (own == sizes[d] || args.context().guard_equal(own, sizes[d])) {
      sizes[d] = own;
      if (x.strides) strides[d] = (*x.strides)[d - shift];
    } else if (!args.context().guard_equal(own, one)) {
      args.fail(fmt::format("size {} does not expand to {}", to_string(own), to_string(sizes[d])));
    }
  }
  infer::Type r = infer::make(x, x.dtype, std::move(sizes));
  if (x.strides) r.strides = std::move(strides);
  return r;
}

IndexMap expand_map(sym::Context& context, const Sizes& from, const Sizes& to) {
  return [from, to, zero = context.constant(0)](Indices i) {
    const std::size_t shift = to.size() - from.size();
    std::vector<Expr> result;
    for (std::size_t d = 0; d < from.size(); ++d) {
      // Inference has shown that a size is equal or 1, by a guard where only hints decide.
      const bool is_equal = sym::equal(from[d], to[shift + d]).value_or(false);
      result.push_back(is_equal ? i[shift + d] : zero);
    }
    return result;
  };
}

namespace {

void lower_expand(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const Sizes& sizes = l.result_type().sizes;
  l.result(l.view(x, sizes, expand_map(l.context(), x.sizes, sizes)));
}

void ref_expand(Evaluation& e) {
  ref_from(e, [&](std::span<const std::int64_t> i, std::vector<std::int64_t>& from) {
    const std::size_t shift = i.size() - from.size();
    for (std::size_t d = 0; d < from.size(); ++d) {
      from[d] = e.tensor(0).sizes[d] == 1 ? 0 : i[shift + d];
    }
  });
}

// --- Squeeze and unsqueeze
// --------------------------------------------------------------------------

// The operand's dimensions that stay.
using Kept = std::vector<std::size_t>;

template <bool kAll>
Kept squeeze_kept(Inference& args) {
  const infer::Type& x = args.tensor(0);
  std::vector<bool> asked(x.rank(), kAll);
  if (!kAll) {
    for (std::int64_t d : args.constant_integers(1)) {
      const std::size_t k = args.dim(d, x.rank());
      if (k < asked.size()) asked[k] = true;
    }
  }
  Kept kept;
  const Expr one = args.context().constant(1);
  for (std::size_t d = 0; d < x.rank(); ++d) {
    if (!asked[d] || !args.context().guard_equal(x.sizes[d], one)) kept.push_back(d);
  }
  return kept;
}

template <bool kAll>
Types infer_squeeze(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  infer::Type r = infer::make(x, x.dtype, {});
  if (x.strides) r.strides = Sizes{};
  for (std::size_t d : squeeze_kept<kAll>(args)) {
    r.sizes.push_back(x.sizes[d]);
    if (x.strides) r.strides->push_back((*x.strides)[d]);
  }
  return {r};
}

template <bool kAll>
void lower_squeeze(Lowering& l) {
  Inference args = l.args();
  const Tensor& x = l.tensor(0);
  l.result(l.view(x, l.result_type().sizes,
                  [kept = squeeze_kept<kAll>(args), rank = x.rank(),
                   zero = l.context().constant(0)](Indices i) {
                    std::vector<Expr> from(rank, zero);
                    for (std::size_t k = 0; k < kept.size(); ++k) from[kept[k]] = i[k];
                    return from;
                  }));
}

std::size_t unsqueeze_dim(const Inference& args) {
  return args.dim(args.constant_integer(1), args.tensor(0).rank() + 1);
}

Types infer_unsqueeze(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  const std::size_t dim = unsqueeze_dim(args);
  infer::Type r = infer::make(x, x.dtype, x.sizes);
  const auto at = static_cast<std::ptrdiff_t>(dim);
  r.sizes.insert(r.sizes.begin() + at, args.context().constant(1));
  if (x.strides) {
    r.strides = x.strides;
    const Expr stride =
        dim < x.rank() ? x.sizes[dim] * (*x.strides)[dim] : args.context().constant(1);
    r.strides->insert(r.strides->begin() + at, stride);
  }
  return {r};
}

void lower_unsqueeze(Lowering& l) {
  const std::size_t dim = unsqueeze_dim(l.args());
  l.result(l.view(l.tensor(0), l.result_type().sizes, [dim](Indices i) {
    std::vector<Expr> from(i.begin(), i.end());
    from.erase(from.begin() + static_cast<std::ptrdiff_t>(dim));
    return from;
  }));
}

// --- The identity
// -----------------------------------------------------------------------------------

Types infer_alias(Inference& args) { return {infer::computable(args, 0)}; }

void lower_alias(Lowering& l) { l.result(l.tensor(0)); }

// --- Samples
// ----------------------------------------------------------------------------------------

using Args = std::vector<Argument>;
std::vector<graph::Sample> plain_samples() {
  return {{"plain", [](SampleBuilder& s) { return Args{s.free_tensor({2, 3})}; }}};
}
std::vector<graph::Sample> view_samples() {
  return {
      {"merge",
       [](SampleBuilder& s) {
         const Expr a = s.size(4), b = s.size(6);
         return Args{s.tensor({a, b, s.constant(8)}), Sizes{a * b, s.constant(8)}};
       }},
      {"split",
       [](SampleBuilder& s) {
         const Expr a = s.size(4);
         return Args{s.tensor({a, s.constant(12)}),
                     Sizes{a, s.constant(3), s.constant(1), s.constant(4)}};
       }},
      {"inferred",
       [](SampleBuilder& s) {
         return Args{s.tensor({s.size(4), s.constant(12)}), Sizes{s.constant(6), s.constant(-1)}};
       }},
      {"regroup", [](SampleBuilder& s) {
         const Expr a = s.size(4);
         return Args{s.tensor({a, s.constant(4), s.constant(6)}),
                     Sizes{a, s.constant(8), s.constant(3)}};
       }}};
}
std::vector<graph::Sample> flatten_samples() {
  return {{"middle", [](SampleBuilder& s) {
             return Args{s.free_tensor({2, 3, 4}), s.constant(1), s.constant(-1)};
           }}};
}
std::vector<graph::Sample> permute_samples() {
  return {
      {"cycle", [](SampleBuilder& s) {
         return Args{s.free_tensor({2, 3, 4}), Sizes{s.constant(2), s.constant(0), s.constant(-2)}};
       }}};
}
std::vector<graph::Sample> transpose_samples() {
  return {{"last", [](SampleBuilder& s) {
             return Args{s.free_tensor({2, 3, 4}), s.constant(-1), s.constant(1)};
           }}};
}
std::vector<graph::Sample> movedim_samples() {
  return {{"one", [](SampleBuilder& s) {
             return Args{s.free_tensor({2, 3, 4}), Sizes{s.constant(0)}, Sizes{s.constant(2)}};
           }}};
}
std::vector<graph::Sample> expand_samples() {
  return {{"outer", [](SampleBuilder& s) {
             return Args{s.tensor({s.constant(1), s.size(3)}),
                         Sizes{s.constant(5), s.constant(2), s.constant(-1)}};
           }}};
}
std::vector<graph::Sample> squeeze_samples() {
  return {{"dims", [](SampleBuilder& s) {
             return Args{s.tensor({s.constant(1), s.size(3), s.constant(1)}),
                         Sizes{s.constant(0), s.constant(1)}};
           }}};
}
std::vector<graph::Sample> squeeze_all_samples() {
  return {{"all", [](SampleBuilder& s) {
             return Args{s.tensor({s.constant(1), s.size(3), s.constant(1)})};
           }}};
}
std::vector<graph::Sample> unsqueeze_samples() {
  return {{"last",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({2, 3}), s.constant(-1)};
           }},
          {"first", [](SampleBuilder& s) {
             return Args{s.free_tensor({2, 3}), s.constant(0)};
           }}};
}

constexpr OpDef kViews[] = {
    view_row("_unsafe_view", "(self: tensor, size: integer[]) -> tensor",
             "aten::_unsafe_view aten::view_copy", "view of a tensor that has no other reader.",
             infer_unsafe_view, lower_view, ref_view, view_samples),
    view_row("alias", "(self: tensor) -> tensor",
             "aten::alias aten::alias_copy aten::lift_fresh aten::lift aten::positive aten::real "
             "aten::resolve_conj aten::resolve_neg",
             "The tensor itself.", infer_alias, lower_alias, ref_view, plain_samples),
    view_row("detach", "(self: tensor) -> tensor", "aten::detach aten::detach_copy",
             "The tensor itself, out of autograd.", infer_alias, lower_alias, ref_view,
             plain_samples),
    view_row("expand", "(self: tensor, size: integer[], implicit: boolean = false) -> tensor",
             "aten::expand aten::broadcast_to aten::expand_copy",
             "Repeats dimensions of size 1 and adds outer ones.", infer_expand, lower_expand,
             ref_expand, expand_samples),
    view_row("flatten", "(self: tensor, start_dim: integer = 0, end_dim: integer = -1) -> tensor",
             "aten::flatten.using_ints", "Merges dimensions start_dim to end_dim.", infer_flatten,
             lower_view, ref_view, flatten_samples),
    view_row("movedim", "(self: tensor, source: integer[], destination: integer[]) -> tensor",
             "aten::movedim.intlist aten::movedim.int aten::moveaxis.int aten::moveaxis.intlist",
             "Moves dimensions; the others keep their order.", infer_permutation<movedim_order>,
             lower_permutation<movedim_order>, ref_permutation<movedim_order>, movedim_samples),
    view_row("permute", "(self: tensor, dims: integer[]) -> tensor",
             "aten::permute aten::permute_copy", "Result dimension d is dimension dims[d].",
             infer_permutation<permute_order>, lower_permutation<permute_order>,
             ref_permutation<permute_order>, permute_samples),
    view_row("reshape", "(self: tensor, shape: integer[]) -> tensor", "aten::reshape",
             "The same elements in row-major order with other sizes.", infer_unsafe_view,
             lower_view, ref_view, view_samples),
    view_row("squeeze", "(self: tensor) -> tensor", "aten::squeeze aten::squeeze_copy",
             "Drops all dimensions of size 1.", infer_squeeze<true>, lower_squeeze<true>, ref_view,
             squeeze_all_samples),
    view_row("squeeze_dims", "(self: tensor, dim: integer[]) -> tensor",
             "aten::squeeze.dims aten::squeeze.dim aten::squeeze_copy.dims aten::squeeze_copy.dim",
             "Drops those of the dimensions that have size 1.", infer_squeeze<false>,
             lower_squeeze<false>, ref_view, squeeze_samples),
    view_row("t", "(self: tensor) -> tensor", "aten::t aten::t_copy",
             "Transpose of a matrix; other tensors of rank below 2 as they are.",
             infer_permutation<t_order>, lower_permutation<t_order>, ref_permutation<t_order>,
             plain_samples),
    view_row("transpose", "(self: tensor, dim0: integer, dim1: integer) -> tensor",
             "aten::transpose.int aten::transpose_copy.int aten::swapaxes aten::swapdims",
             "Swaps two dimensions.", infer_permutation<transpose_order>,
             lower_permutation<transpose_order>, ref_permutation<transpose_order>,
             transpose_samples),
    view_row("unsqueeze", "(self: tensor, dim: integer) -> tensor",
             "aten::unsqueeze aten::unsqueeze_copy", "Inserts a dimension of size 1.",
             infer_unsqueeze, lower_unsqueeze, ref_view, unsqueeze_samples),
    view_row("view", "(self: tensor, size: integer[]) -> tensor", "aten::view",
             "The same elements in row-major order with other sizes; one size may be -1.",
             infer_view, lower_view, ref_view, view_samples),
};

}  // namespace

std::span<const graph::OpDef> view_ops() { return kViews; }

}  // namespace inkle::ops
