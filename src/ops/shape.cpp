// Joining, padding, repeating and rearranging: pointwise nests that read at mapped indices.
#include <algorithm>

#include "base/error.h"
#include "graph/builder.h"
#include "ops/composite_reference.h"
#include "ops/elementwise.h"
#include "ops/table.h"
#include "ops/views.h"

namespace inkle::ops {
namespace {

using graph::Argument;
using graph::Builder;
using graph::Inference;
using graph::Node;
using graph::ValueId;
using infer::Types;
using Args = std::vector<Argument>;

Val zero_of(BodyBuilder& b, DType dtype) {
  return b.cast(b.constant(DType::i64, std::int64_t{0}), dtype);
}

// low <= e < high.
Val in_range(BodyBuilder& b, Expr e, Expr low, Expr high) {
  const Val v = b.index(e);
  return b.logical_and(b.binary(Opcode::less_equal, b.index(low), v), b.less(v, b.index(high)));
}

// --- cat and stack
// ----------------------------------------------------------------------------------

// Empty tensors of rank 1 take part in any cat.
bool is_legacy_empty(const infer::Type& type) {
  return type.rank() == 1 && type.sizes[0].is_constant(0);
}

Types infer_cat(Inference& args) {
  const std::vector<const infer::Type*> tensors = args.tensors(0);
  if (tensors.empty()) args.fail("needs at least one tensor");
  Promotion promotion;
  const infer::Type* first = nullptr;
  for (const infer::Type* t : tensors) {
    promotion.add(*t);
    if (first == nullptr && !is_legacy_empty(*t)) first = t;
  }
  if (first == nullptr) first = tensors[0];
  if (first->rank() == 0) args.fail("0-dim tensors cannot be joined");
  const std::size_t dim = args.dim(args.constant_integer(1), first->rank());
  infer::Type r = infer::make(*first, promotion.result(), first->sizes);
  r.sizes[dim] = args.context().constant(0);
  for (const infer::Type* t : tensors) {
    if (is_legacy_empty(*t)) continue;
    if (t->rank() != first->rank()) args.fail("tensors must have the same rank");
    for (std::size_t d = 0; d < t->rank(); ++d) {
      if (d != dim && !args.context().guard_equal(t->sizes[d], first->sizes[d])) {
        args.fail(fmt::format("sizes {} and {} of dimension {} differ", to_string(t->sizes[d]),
                              to_string(first->sizes[d]), d));
      }
    }
    r.sizes[dim] = r.sizes[dim] + t->sizes[dim];
  }
  return {r};
}

void lower_cat(Lowering& l) {
  const graph::Type& r = l.result_type();
  const std::size_t dim = l.args().dim(l.args().constant_integer(1), r.rank());
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    std::vector<std::pair<Val, Val>> pieces;  // is before the end; element
    Expr start = l.context().constant(0);
    for (const Tensor* t : l.tensors(0)) {
      if (t->rank() != r.rank() || t->sizes[dim].is_constant(0)) continue;
      const Expr end = start + t->sizes[dim];
      std::vector<Expr> from(i.begin(), i.end());
      from[dim] = from[dim] - start;
      const Val inside = in_range(b, i[dim], start, end);
      const Val element =
          b.load_if(inside, zero_of(b, t->dtype), t->buffer, t->dtype, t->buffer_indices(from));
      pieces.emplace_back(b.less(b.index(i[dim]), b.index(end)), b.cast(element, r.dtype));
      start = end;
    }
    if (pieces.empty()) return zero_of(b, r.dtype);
    Val value = pieces.back().second;
    for (std::size_t k = pieces.size() - 1; k-- > 0;) {
      value = b.select(pieces[k].first, pieces[k].second, value);
    }
    return value;
  }));
}

void ref_cat(Evaluation& e) {
  RefTensor& r = e.result();
  const std::size_t dim = e.dim(e.integer(1), r.rank());
  std::int64_t start = 0;
  for (const RefTensor* t : e.tensors(0)) {
    if (t->rank() != r.rank()) continue;
    for_each_index(t->sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
      std::vector<std::int64_t> to(i.begin(), i.end());
      to[dim] += start;
      r.copy_element(r.at(to), *t, p);
    });
    start += t->sizes[dim];
  }
}

Types infer_stack(Inference& args) {
  const std::vector<const infer::Type*> tensors = args.tensors(0);
  if (tensors.empty()) args.fail("needs at least one tensor");
  Promotion promotion;
  for (const infer::Type* t : tensors) {
    promotion.add(*t);
    if (t->rank() != tensors[0]->rank()) args.fail("tensors must have the same sizes");
    for (std::size_t d = 0; d < t->rank(); ++d) {
      if (!args.context().guard_equal(t->sizes[d], tensors[0]->sizes[d])) {
        args.fail("tensors must have the same sizes");
      }
    }
  }
  const std::size_t dim = args.dim(args.constant_integer(1), tensors[0]->rank() + 1);
  infer::Type r = infer::make(*tensors[0], promotion.result(), tensors[0]->sizes);
  r.sizes.insert(r.sizes.begin() + static_cast<std::ptrdiff_t>(dim),
                 args.context().constant(static_cast<std::int64_t>(tensors.size())));
  return {r};
}

std::vector<ValueId> decompose_stack(Builder& b, const Node& node) {
  std::vector<ValueId> pieces;
  for (ValueId v : std::get<std::vector<ValueId>>(node.args[0])) {
    pieces.push_back(b.node("unsqueeze", {v, node.args[1]}));
  }
  return {b.node("cat", {pieces, node.args[1]})};
}

// --- Padding
// ----------------------------------------------------------------------------------------

// Pads come in pairs from the last dimension.
struct Pads {
  std::vector<Expr> before, after;
};

Pads pads_of(const Inference& args, std::size_t rank) {
  const std::vector<Expr> list = args.integers(1);
  if (list.size() % 2 != 0 || list.size() > 2 * rank) {
    args.fail("the padding must be pairs for the last dimensions");
  }
  Pads pads{std::vector<Expr>(rank, args.context().constant(0)),
            std::vector<Expr>(rank, args.context().constant(0))};
  for (std::size_t k = 0; k < list.size() / 2; ++k) {
    pads.before[rank - 1 - k] = list[2 * k];
    pads.after[rank - 1 - k] = list[2 * k + 1];
  }
  return pads;
}

Types infer_pad(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  const Pads pads = pads_of(args, x.rank());
  Sizes sizes;
  for (std::size_t d = 0; d < x.rank(); ++d) {
    sizes.push_back(x.sizes[d] + pads.before[d] + pads.after[d]);
  }
  return {infer::make(x, x.dtype, std::move(sizes))};
}

void lower_constant_pad(Lowering& l) {
  const graph::Type& r = l.result_type();
  const Tensor& x = l.tensor(0);
  const Pads pads = pads_of(l.args(), x.rank());
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    const Val fill = b.cast(l.element(b, 2, i, abi::compute_type(r.dtype)), r.dtype);
    std::vector<Expr> from(i.begin(), i.end());
    std::optional<Val> inside;
    for (std::size_t d = 0; d < x.rank(); ++d) {
      from[d] = from[d] - pads.before[d];
      if (pads.before[d].is_constant(0) && pads.after[d].is_constant(0)) continue;
      const Val here = in_range(b, from[d], l.context().constant(0), x.sizes[d]);
      inside = inside ? b.logical_and(*inside, here) : here;
    }
    if (!inside) return l.element(b, x, from);
    return b.load_if(*inside, fill, x.buffer, x.dtype, x.buffer_indices(from));
  }));
}

void ref_constant_pad(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const std::vector<std::int64_t> pads = e.integers(1);
  const RefTensor fill = e.operand(2);
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    std::vector<std::int64_t> from(i.begin(), i.end());
    bool inside = true;
    for (std::size_t k = 0; k < pads.size() / 2; ++k) {
      const std::size_t d = x.rank() - 1 - k;
      from[d] -= pads[2 * k];
      inside = inside && from[d] >= 0 && from[d] < x.sizes[d];
    }
    if (inside) {
      e.result().copy_element(p, x, x.at(from));
    } else {
      e.result().copy_element(p, fill, 0);
    }
  });
}

// --- repeat, roll, flip
// -----------------------------------------------------------------------------

Types infer_repeat(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  Sizes sizes = args.integers(1);
  if (sizes.size() < x.rank()) args.fail("needs at least one number for each dimension");
  const std::size_t shift = sizes.size() - x.rank();
  for (std::size_t d = 0; d < x.rank(); ++d) sizes[shift + d] = sizes[shift + d] * x.sizes[d];
  return {infer::make(x, x.dtype, std::move(sizes))};
}

// A pointwise nest that reads argument 0 at source(i).
template <class Source>
void lower_read(Lowering& l, const Source& source) {
  const graph::Type& r = l.result_type();
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    return l.element(b, l.tensor(0), source(i));
  }));
}

void lower_repeat(Lowering& l) {
  const Tensor& x = l.tensor(0);
  lower_read(l, [&](Indices i) {
    std::vector<Expr> from;
    const std::size_t shift = i.size() - x.rank();
    for (std::size_t d = 0; d < x.rank(); ++d) {
      const bool is_once = l.result_type().sizes[shift + d] == x.sizes[d];
      from.push_back(is_once ? i[shift + d] : mod(i[shift + d], x.sizes[d]));
    }
    return from;
  });
}

void ref_repeat(Evaluation& e) {
  ref_from(e, [&](std::span<const std::int64_t> i, std::vector<std::int64_t>& from) {
    const std::size_t shift = i.size() - from.size();
    for (std::size_t d = 0; d < from.size(); ++d) from[d] = i[shift + d] % e.tensor(0).sizes[d];
  });
}

Types infer_repeat_interleave(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  if (args.is_none(2) && x.rank() != 1) unsupported("repeat_interleave of a flattened tensor");
  const std::size_t dim = args.is_none(2) ? 0 : args.dim(args.constant_integer(2), x.rank());
  infer::Type r = infer::make(x, x.dtype, x.sizes);
  r.sizes[dim] = r.sizes[dim] * args.integer(1);
  return {r};
}

void lower_repeat_interleave(Lowering& l) {
  const std::size_t dim =
      l.args().is_none(2) ? 0 : l.args().dim(l.args().constant_integer(2), l.tensor(0).rank());
  lower_read(l, [&](Indices i) {
    std::vector<Expr> from(i.begin(), i.end());
    // By 0 nothing is read.
    const Expr repeats = l.args().integer(1);
    if (!repeats.is_constant(0)) from[dim] = floordiv(from[dim], repeats);
    return from;
  });
}

void ref_repeat_interleave(Evaluation& e) {
  const std::size_t dim = e.is_none(2) ? 0 : e.dim(e.integer(2), e.tensor(0).rank());
  ref_from(e, [&](std::span<const std::int64_t> i, std::vector<std::int64_t>& from) {
    std::copy(i.begin(), i.end(), from.begin());
    from[dim] /= e.integer(1);
  });
}

// Without dims the tensor is rolled as if flat.
std::vector<std::pair<std::size_t, Expr>> rolls(const Inference& args) {
  const std::vector<Expr> shifts = args.integers(1);
  const std::vector<std::int64_t> dims = args.constant_integers(2);
  const std::size_t rank = args.tensor(0).rank();
  if (dims.empty() && rank != 1) unsupported("roll of a flattened tensor");
  if (dims.size() != shifts.size() && !(dims.empty() && shifts.size() == 1)) {
    args.fail("needs as many shifts as dims");
  }
  std::vector<std::pair<std::size_t, Expr>> result;
  for (std::size_t k = 0; k < shifts.size(); ++k) {
    result.emplace_back(dims.empty() ? 0 : args.dim(dims[k], rank), shifts[k]);
  }
  return result;
}

Types infer_roll(Inference& args) {
  (void)rolls(args);
  return infer::same(args);
}

// The index that comes to i. i - shift may leave 64 bits for a shift near the ends, and so may what
// mod(i - shift, size) simplifies to where the shift is itself a remainder of such an integer. Such
// a shift is taken modulo the size first, in a form that does not simplify so.
Expr rolled(Expr i, Expr shift, Expr size) {
  constexpr std::int64_t kSafe = sym::Range::kMax / 2;  // sizes are below 2^62
  const auto is_safe = [](Expr e) {
    const sym::Range range = sym::bounds(e);
    return range.low >= -kSafe && range.high <= kSafe;
  };
  if (is_safe(shift) && std::ranges::all_of(sym::symbols(shift), is_safe)) {
    return mod(i - shift, size);
  }
  const Expr zero = size.context().constant(0), one = size.context().constant(1);
  // The call computes it, also where a size of 0 leaves nothing to read.
  const Expr less = mod(shift, max(size, one));
  return i - less + min(max(less - i, zero), one) * size;
}

void lower_roll(Lowering& l) {
  const auto moves = rolls(l.args());
  lower_read(l, [&](Indices i) {
    std::vector<Expr> from(i.begin(), i.end());
    for (const auto& [dim, shift] : moves) {
      const Expr size = l.tensor(0).sizes[dim];
      if (!size.is_constant(0)) from[dim] = rolled(from[dim], shift, size);
    }
    return from;
  });
}

void ref_roll(Evaluation& e) {
  const auto moves = rolls(Inference(e.graph(), *e.node().op, e.node().args));
  ref_from(e, [&](std::span<const std::int64_t> i, std::vector<std::int64_t>& from) {
    std::copy(i.begin(), i.end(), from.begin());
    for (const auto& [dim, shift] : moves) {
      const std::int64_t size = e.tensor(0).sizes[dim];
      from[dim] = ((from[dim] - e.evaluate(shift) % size) % size + size) % size;
    }
  });
}

std::vector<bool> flipped(const Inference& args) {
  const std::size_t rank = args.tensor(0).rank();
  std::vector<bool> result(rank, false);
  for (std::int64_t d : args.constant_integers(1)) {
    const std::size_t dim = args.dim(d, rank);
    if (dim < rank) result[dim] = true;
  }
  return result;
}

void lower_flip(Lowering& l) {
  const std::vector<bool> flips = flipped(l.args());
  lower_read(l, [&](Indices i) {
    std::vector<Expr> from(i.begin(), i.end());
    for (std::size_t d = 0; d < from.size(); ++d) {
      if (flips[d]) from[d] = l.tensor(0).sizes[d] - 1 - from[d];
    }
    return from;
  });
}

void ref_flip(Evaluation& e) {
  const std::vector<bool> flips = flipped(Inference(e.graph(), *e.node().op, e.node().args));
  ref_from(e, [&](std::span<const std::int64_t> i, std::vector<std::int64_t>& from) {
    for (std::size_t d = 0; d < from.size(); ++d) {
      from[d] = flips[d] ? e.tensor(0).sizes[d] - 1 - i[d] : i[d];
    }
  });
}

// --- Triangles
// --------------------------------------------------------------------------------------

Types infer_triangle(Inference& args) {
  if (args.tensor(0).rank() < 2) args.fail("needs a matrix");
  return infer::same(args);
}

// Lower keeps column - row <= diagonal, upper column - row >= diagonal.
template <bool kLower>
void lower_triangle(Lowering& l) {
  const graph::Type& r = l.result_type();
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    const Val offset = b.index(i[i.size() - 1] - i[i.size() - 2]);
    const Val kept = b.binary(kLower ? Opcode::less_equal : Opcode::greater_equal, offset,
                              b.index(l.args().integer(1)));
    return b.select(kept, l.element(b, l.tensor(0), i), zero_of(b, r.dtype));
  }));
}

template <bool kLower>
void ref_triangle(Evaluation& e) {
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const std::int64_t offset = i[i.size() - 1] - i[i.size() - 2];
    const bool kept = kLower ? offset <= e.integer(1) : offset >= e.integer(1);
    if (kept) e.result().copy_element(p, e.tensor(0), p);
  });
}

// --- Samples
// ----------------------------------------------------------------------------------------

std::vector<DType> some() { return {DType::f32, DType::bf16, DType::i64, DType::boolean}; }

std::vector<graph::Sample> cat_samples() {
  return {{"last",
           [](SampleBuilder& s) {
             std::vector<ValueId> list;
             for (std::int64_t n : {2, 5, 1}) {
               list.push_back(std::get<ValueId>(s.tensor({s.size(3), s.constant(n)})));
             }
             return Args{list, s.constant(-1)};
           },
           some()},
          {"promote", [](SampleBuilder& s) {
             const Argument a = s.free_tensor({3}), b = s.tensor(DType::i64, {s.size(4)});
             return Args{std::vector{std::get<ValueId>(a), std::get<ValueId>(b)}, s.constant(0)};
           }}};
}
std::vector<graph::Sample> stack_samples() {
  return {{"middle", [](SampleBuilder& s) {
             const Argument a = s.free_tensor({3, 4}), b = s.free_tensor({3, 4});
             return Args{std::vector{std::get<ValueId>(a), std::get<ValueId>(b)}, s.constant(1)};
           }}};
}
std::vector<graph::Sample> constant_pad_samples() {
  return {{"both",
           [](SampleBuilder& s) {
             return Args{s.tensor({s.size(3), s.constant(6)}),
                         Sizes{s.constant(1), s.constant(-2), s.constant(0), s.constant(3)},
                         s.constant(1)};
           },
           some()}};
}
std::vector<graph::Sample> repeat_samples() {
  return {{"outer",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 4}), Sizes{s.constant(2), s.constant(1), s.constant(3)}};
           },
           {DType::f32},
           false}};
}
std::vector<graph::Sample> repeat_interleave_samples() {
  return {{"last",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 4}), s.constant(2), s.constant(1)};
           }},
          {"never", [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 4}), s.constant(0), s.constant(1)};
           }}};
}
std::vector<graph::Sample> roll_samples() {
  return {{"two", [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 4}), Sizes{s.constant(1), s.constant(-1)},
                         Sizes{s.constant(0), s.constant(1)}};
           }}};
}
std::vector<graph::Sample> flip_samples() {
  return {{"last", [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 4}), Sizes{s.constant(-1)}};
           }}};
}
std::vector<graph::Sample> triangle_samples() {
  return {{"main",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({4, 5}), s.constant(0)};
           },
           some()},
          {"offset", [](SampleBuilder& s) {
             return Args{s.free_tensor({4, 5}), s.constant(-1)};
           }}};
}

constexpr OpDef row(std::string_view name, std::string_view schema, std::string_view aten,
                    std::string_view doc, Types (*rule)(Inference&), void (*lower)(Lowering&),
                    void (*reference)(Evaluation&), SampleFunction sample) {
  return {.name = name,
          .schema = schema,
          .doc = doc,
          .infer = rule,
          .lower = lower,
          .reference = reference,
          .aten = aten,
          .samples = sample};
}

constexpr OpDef kShapes[] = {
    row("cat", "(tensors: tensor[], dim: integer = 0) -> tensor",
        "aten::cat aten::concat aten::concatenate", "Tensors one after the other.", infer_cat,
        lower_cat, ref_cat, cat_samples),
    row("constant_pad_nd", "(self: tensor, pad: integer[], value: scalar = 0) -> tensor",
        "aten::constant_pad_nd", "A number around the tensor; negative pads cut.", infer_pad,
        lower_constant_pad, ref_constant_pad, constant_pad_samples),
    row("flip", "(self: tensor, dims: integer[]) -> tensor", "aten::flip",
        "Dimensions in reverse order.", infer::same, lower_flip, ref_flip, flip_samples),
    row("repeat", "(self: tensor, repeats: integer[]) -> tensor", "aten::repeat aten::tile",
        "Copies side by side.", infer_repeat, lower_repeat, ref_repeat, repeat_samples),
    row("repeat_interleave",
        "(self: tensor, repeats: integer, dim: integer? = none, output_size: integer? = none)"
        " -> tensor",
        "aten::repeat_interleave.self_int", "Each index of a dimension several times.",
        infer_repeat_interleave, lower_repeat_interleave, ref_repeat_interleave,
        repeat_interleave_samples),
    row("roll", "(self: tensor, shifts: integer[], dims: integer[] = []) -> tensor", "aten::roll",
        "Dimensions shifted, what leaves comes in again.", infer_roll, lower_roll, ref_roll,
        roll_samples),
    {.name = "stack",
     .schema = "(tensors: tensor[], dim: integer = 0) -> tensor",
     .doc = "Tensors side by side along a new dimension.",
     .infer = infer_stack,
     .decompose = decompose_stack,
     .reference = composite::ref_stack,
     .aten = "aten::stack",
     .samples = stack_samples},
    row("tril", "(self: tensor, diagonal: integer = 0) -> tensor", "aten::tril",
        "Zero above the diagonal.", infer_triangle, lower_triangle<true>, ref_triangle<true>,
        triangle_samples),
    row("triu", "(self: tensor, diagonal: integer = 0) -> tensor", "aten::triu",
        "Zero below the diagonal.", infer_triangle, lower_triangle<false>, ref_triangle<false>,
        triangle_samples),
};

}  // namespace

std::span<const graph::OpDef> shape_ops() { return kShapes; }

}  // namespace inkle::ops
