// Writes by index: a scatter nest stores into a copy of the operand (into the operand itself at its
// last use). Writes to one position through a view (select_scatter, slice_scatter) are pointwise.
#include <algorithm>

#include "base/error.h"
#include "ops/advanced_index.h"
#include "ops/axes.h"
#include "ops/infer.h"
#include "ops/samples.h"
#include "ops/table.h"
#include "ops/views.h"

namespace inkle::ops {
namespace {

using graph::Argument;
using graph::OpDef;
using graph::Sample;
using graph::Trait;
using graph::ValueId;
using infer::Types;
using loop::StoreMode;

Types same_as_self(Inference& in) {
  const Type& x = infer::computable(in, 0);
  return {infer::make(x, x.dtype, x.sizes)};
}
void check_index(Inference& in, std::size_t arg) {
  const Type& index = infer::computable(in, arg);
  if (index.dtype != DType::i64 && index.dtype != DType::i32)
    in.fail("an index must be i32 or i64");
}

// --- scatter and its kin: (self, dim, index, src or value, ...)

enum class Update { overwrite, add, reduce_argument };

template <Update update>
Types infer_scatter(Inference& in) {
  Types types = same_as_self(in);
  check_index(in, 2);
  const Type& index = in.tensor(2);
  const std::size_t rank = types[0].rank();
  (void)in.dim(in.constant_integer(1), rank);
  if (index.rank() != rank) in.fail("the index must have the rank of self");
  if (in.is_tensor(3)) {
    if (in.tensor(3).dtype != types[0].dtype) in.fail("src must have the dtype of self");
    if (in.tensor(3).rank() != rank) in.fail("src must have the rank of self");
  }
  if (update == Update::reduce_argument && (in.string(4) != "sum" || !in.boolean(5))) {
    unsupported("scatter_reduce: only sums that include self");
  }
  if (update != Update::overwrite && types[0].dtype == DType::boolean) {
    unsupported("scatter: sums of bool");
  }
  return types;
}
template <Update update>
void lower_scatter(Lowering& l) {
  const Tensor &x = l.tensor(0), &index = l.tensor(2);
  const std::size_t dim = l.args().dim(l.args().constant_integer(1), x.rank());
  const StoreMode mode = update == Update::overwrite ? StoreMode::overwrite : StoreMode::atomic_add;
  l.result(l.scatter(
      x, index.sizes, mode,
      [&](BodyBuilder& b, Indices i) {
        std::vector<Expr> at(i.begin(), i.end());
        // A 0-dim tensor has one element.
        if (at.empty()) return at;
        at[dim] = b.indirect(element_as(l, b, index, i, DType::i64), x.sizes[dim]);
        return at;
      },
      [&](BodyBuilder& b, Indices i) {
        // src may be larger than the index: only its leading part is used.
        if (l.args().is_tensor(3)) return l.element(b, l.tensor(3), i);
        return b.cast(b.constant(DType::f64, l.args().real(3)), x.dtype);
      }));
}
void add_element(RefTensor& y, std::size_t p, const RefTensor& from, std::size_t q) {
  if (y.is_real())
    y.set(p, y.real(p) + from.real(q));
  else
    y.set(p, y.integer(p) + from.integer(q));
}
template <Update update>
void reference_scatter(Evaluation& e) {
  RefTensor& y = e.result();
  y = e.tensor(0);
  const RefTensor& index = e.tensor(2);
  const RefTensor src = e.operand(3);
  const std::size_t dim = e.dim(e.integer(1), y.rank());
  for_each_index(index.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    std::vector<std::int64_t> at(i.begin(), i.end());
    if (!at.empty()) at[dim] = index.integer(p);
    if (!at.empty() && (at[dim] < 0 || at[dim] >= y.sizes[dim])) {
      user_error("index {} is out of range", at[dim]);
    }
    const std::size_t q = src.rank() == 0 ? 0 : src.at(i);
    if (update == Update::overwrite)
      y.copy_element(y.at(at), src, q);
    else
      add_element(y, y.at(at), src, q);
  });
}

// --- index_put: (self, indices, values, accumulate)

Types infer_index_put(Inference& in) {
  Types types = same_as_self(in);
  const Type& values = infer::computable(in, 2);
  if (values.dtype != types[0].dtype) in.fail("values must have the dtype of self");
  const Sizes sizes = advanced_index_of(in, 1).result_sizes(types[0].sizes);
  (void)infer::broadcast(in, values.sizes, sizes);
  if (in.boolean(3) && types[0].dtype == DType::boolean) unsupported("index_put: sums of bool");
  return types;
}
void lower_index_put(Lowering& l) {
  const Tensor &x = l.tensor(0), &values = l.tensor(2);
  const AdvancedIndex plan = advanced_index_of(l.args(), 1);
  const std::vector<const Tensor*> indices = l.tensors(1);
  l.result(l.scatter(
      x, plan.result_sizes(x.sizes),
      l.args().boolean(3) ? StoreMode::atomic_add : StoreMode::overwrite,
      [&](BodyBuilder& b, Indices i) { return plan.source_indices(l, b, indices, x.sizes, i); },
      [&](BodyBuilder& b, Indices i) { return l.broadcast_element(b, values, i); }));
}
void reference_index_put(Evaluation& e) {
  RefTensor& y = e.result();
  y = e.tensor(0);
  const RefTensor& values = e.tensor(2);
  const std::vector<const RefTensor*> indices = e.tensors(1);
  // The space written is that of an indexed read: its sizes by position of the first index.
  std::vector<std::int64_t> shape, sizes;
  std::size_t first = y.rank(), count = 0, last = 0;
  for (std::size_t d = 0; d < y.rank(); ++d) {
    if (d >= indices.size() || indices[d] == nullptr) {
      sizes.push_back(y.sizes[d]);
      continue;
    }
    first = std::min(first, d);
    last = d;
    ++count;
    const auto& own = indices[d]->sizes;
    while (shape.size() < own.size()) shape.insert(shape.begin(), 1);
    for (std::size_t k = 0; k < own.size(); ++k) {
      std::int64_t& size = shape[shape.size() - own.size() + k];
      if (own[k] != 1) size = own[k];
    }
  }
  if (last - first + 1 != count) first = 0;
  sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(first), shape.begin(), shape.end());
  for_each_index(sizes, [&](std::span<const std::int64_t> i, std::size_t) {
    const std::size_t p = y.at(reference_source_indices(indices, y, i));
    const std::size_t q = broadcast_position(values, i);
    if (e.boolean(3))
      add_element(y, p, values, q);
    else
      y.copy_element(p, values, q);
  });
}

// --- index_add and index_copy: (self, dim, index, source, alpha); index_fill: (.., value)

enum class Along { add, copy, fill };

template <Along along>
Types infer_along(Inference& in) {
  Types types = same_as_self(in);
  check_index(in, 2);
  const std::size_t rank = types[0].rank();
  const std::size_t dim = in.dim(in.constant_integer(1), rank);
  if (rank == 0 || in.tensor(2).rank() != 1) unsupported("index_add: needs dimensions");
  if (along == Along::fill) return types;
  const Type& source = infer::computable(in, 3);
  if (source.dtype != types[0].dtype || source.rank() != rank) in.fail("source does not fit self");
  for (std::size_t d = 0; d < rank; ++d) {
    const Expr wanted = d == dim ? in.tensor(2).sizes[0] : types[0].sizes[d];
    if (!in.context().guard_equal(source.sizes[d], wanted)) in.fail("source does not fit self");
  }
  if (along == Along::add && types[0].dtype == DType::boolean) unsupported("index_add: of bool");
  return types;
}
template <Along along>
void lower_along(Lowering& l) {
  const Tensor &x = l.tensor(0), &index = l.tensor(2);
  const std::size_t dim = l.args().dim(l.args().constant_integer(1), x.rank());
  Sizes sizes = x.sizes;
  sizes[dim] = index.sizes[0];
  const StoreMode mode = along == Along::add ? StoreMode::atomic_add : StoreMode::overwrite;
  l.result(l.scatter(
      x, sizes, mode,
      [&](BodyBuilder& b, Indices i) {
        std::vector<Expr> at(i.begin(), i.end());
        const Val value = element_as(l, b, index, i.subspan(dim, 1), DType::i64);
        at[dim] = along == Along::fill ? b.indirect_wrapped(value, x.sizes[dim])
                                       : b.indirect(value, x.sizes[dim]);
        return at;
      },
      [&](BodyBuilder& b, Indices i) {
        if (along == Along::fill) return b.cast(b.constant(DType::f64, l.args().real(3)), x.dtype);
        const Val v = l.element(b, l.tensor(3), i);
        if (along == Along::copy || l.args().real(4) == 1) return v;
        const DType compute = abi::compute_type(x.dtype);
        const Val alpha = b.cast(b.constant(DType::f64, l.args().real(4)), compute);
        return b.mul(b.cast(v, compute), alpha);
      }));
}
template <Along along>
void reference_along(Evaluation& e) {
  RefTensor& y = e.result();
  y = e.tensor(0);
  const RefTensor& index = e.tensor(2);
  const RefTensor source = e.operand(3);
  const std::size_t dim = e.dim(e.integer(1), y.rank());
  std::vector<std::int64_t> sizes = y.sizes;
  sizes[dim] = index.sizes[0];
  for_each_index(sizes, [&](std::span<const std::int64_t> i, std::size_t) {
    std::vector<std::int64_t> at(i.begin(), i.end());
    at[dim] = index.integer(static_cast<std::size_t>(i[dim]));
    if (along == Along::fill && at[dim] < 0) at[dim] += y.sizes[dim];
    if (at[dim] < 0 || at[dim] >= y.sizes[dim]) user_error("index {} is out of range", at[dim]);
    const std::size_t p = y.at(at), q = source.rank() == 0 ? 0 : source.at(i);
    if (along != Along::add)
      y.copy_element(p, source, q);
    else if (y.is_real())
      y.set(p, y.real(p) + e.real(4) * source.real(q));
    else
      y.set(p, y.integer(p) + static_cast<std::int64_t>(e.real(4)) * source.integer(q));
  });
}

// --- select_scatter: (self, src, dim, index); slice_scatter: (self, src, dim, start, end, step)

Types infer_place(Inference& in) {
  Types types = same_as_self(in);
  (void)in.dim(in.constant_integer(2), types[0].rank());
  (void)infer::computable(in, 1);
  infer::refuse_overlap(in);
  return types;
}
Types infer_select_scatter(Inference& in) {
  Types types = infer_place(in);
  if (in.tensor(1).rank() + 1 != types[0].rank()) in.fail("src must lack one dimension of self");
  (void)wrapped_index(in.integer(3),
                      types[0].sizes[in.dim(in.constant_integer(2), types[0].rank())]);
  return types;
}
void lower_select_scatter(Lowering& l) {
  const Tensor &x = l.tensor(0), &src = l.tensor(1);
  const std::size_t dim = l.args().dim(l.args().constant_integer(2), x.rank());
  const Expr place = wrapped_index(l.args().integer(3), x.sizes[dim]);
  if (l.should_update(x)) {
    l.result(l.scatter(
        x, src.sizes, StoreMode::overwrite,
        [&](BodyBuilder&, Indices i) {
          std::vector<Expr> at(i.begin(), i.end());
          at.insert(at.begin() + static_cast<std::ptrdiff_t>(dim), place);
          return at;
        },
        [&](BodyBuilder& b, Indices i) { return element_as(l, b, src, i, x.dtype); }));
    return;
  }
  l.result(l.pointwise(x.sizes, x.dtype, [&](BodyBuilder& b, Indices i) {
    std::vector<Expr> at(i.begin(), i.end());
    at.erase(at.begin() + static_cast<std::ptrdiff_t>(dim));
    const Val here = b.binary(Opcode::equal, b.index(i[dim]), b.index(place));
    return b.select(here, element_as(l, b, src, at, x.dtype), l.element(b, x, i));
  }));
}
Slice slice_in(const Inference& in, Expr size) {
  const auto bound = [&](std::size_t arg) {
    return in.is_none(arg) ? std::nullopt : std::optional(in.integer(arg));
  };
  return slice_of(in.context(), size, bound(3), bound(4), in.constant_integer(5));
}
Types infer_slice_scatter(Inference& in) {
  Types types = infer_place(in);
  const std::size_t dim = in.dim(in.constant_integer(2), types[0].rank());
  if (in.tensor(1).rank() != types[0].rank()) in.fail("src must have the rank of self");
  const Slice slice = slice_in(in, types[0].sizes[dim]);
  if (!in.context().guard_equal(slice.length, in.tensor(1).sizes[dim])) {
    in.fail("src does not fit the slice");
  }
  return types;
}
void lower_slice_scatter(Lowering& l) {
  const Tensor &x = l.tensor(0), &src = l.tensor(1);
  const std::size_t dim = l.args().dim(l.args().constant_integer(2), x.rank());
  const Slice slice = slice_in(l.args(), x.sizes[dim]);
  if (l.should_update(x)) {
    l.result(l.scatter(
        x, src.sizes, StoreMode::overwrite,
        [&](BodyBuilder&, Indices i) {
          std::vector<Expr> at(i.begin(), i.end());
          at[dim] = slice.start + i[dim] * slice.step;
          return at;
        },
        [&](BodyBuilder& b, Indices i) { return element_as(l, b, src, i, x.dtype); }));
    return;
  }
  l.result(l.pointwise(x.sizes, x.dtype, [&](BodyBuilder& b, Indices i) {
    const Expr offset = i[dim] - slice.start;
    std::vector<Expr> at(i.begin(), i.end());
    at[dim] = floordiv(offset, slice.step);
    const Val zero = b.constant(DType::i64, std::int64_t{0});
    Val inside = b.binary(Opcode::greater_equal, b.index(offset), zero);
    inside = b.logical_and(inside, b.less(b.index(at[dim]), b.index(slice.length)));
    const Val on_step = b.binary(Opcode::equal, b.index(mod(offset, slice.step)), zero);
    inside = b.logical_and(inside, on_step);
    const Val kept = b.cast(l.element(b, x, i), src.dtype);
    return b.load_if(inside, kept, src.buffer, src.dtype, src.buffer_indices(at));
  }));
}
void reference_select_scatter(Evaluation& e) {
  RefTensor& y = e.result();
  y = e.tensor(0);
  const RefTensor& src = e.tensor(1);
  const std::size_t dim = e.dim(e.integer(2), y.rank());
  const std::int64_t place = e.integer(3) < 0 ? e.integer(3) + y.sizes[dim] : e.integer(3);
  for_each_index(src.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    std::vector<std::int64_t> at(i.begin(), i.end());
    at.insert(at.begin() + static_cast<std::ptrdiff_t>(dim), place);
    y.copy_element(y.at(at), src, p);
  });
}
void reference_slice_scatter(Evaluation& e) {
  RefTensor& y = e.result();
  y = e.tensor(0);
  const RefTensor& src = e.tensor(1);
  const std::size_t dim = e.dim(e.integer(2), y.rank());
  std::int64_t start = e.is_none(3) ? 0 : e.integer(3);
  if (start < 0) start += y.sizes[dim];
  start = std::clamp<std::int64_t>(start, 0, y.sizes[dim]);
  for_each_index(src.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    std::vector<std::int64_t> at(i.begin(), i.end());
    at[dim] = start + i[dim] * e.integer(5);
    y.copy_element(y.at(at), src, p);
  });
}

// --- Samples and rows

// Positions along dim must not repeat where the last write would win: one index a column.
Argument column_index(SampleBuilder& s) {
  return s.tensor(DType::i64, {s.constant(1), s.size(5)}, 0, 8);
}
template <bool with_value>
std::vector<Sample> samples_scatter() {
  return {{"rows",
           [](SampleBuilder& s) -> std::vector<Argument> {
             const Argument x = s.tensor({s.constant(9), s.size(5)});
             const Argument index = column_index(s);
             if (with_value) return {x, s.constant(0), index, 3.0};
             return {x, s.constant(0), index, s.tensor({s.constant(1), s.size(5)})};
           },
           number_dtypes()}};
}
std::vector<Sample> samples_scatter_add() {
  return {{"rows",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.constant(9), s.size(5)}), s.constant(0),
                     s.tensor(DType::i64, {s.size(7), s.size(5)}, 0, 8),
                     s.tensor({s.size(7), s.size(5)})};
           },
           {DType::f32, DType::f64, DType::i32}}};
}
std::vector<Sample> samples_scatter_reduce() {
  return {{"rows",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.constant(9), s.size(5)}), s.constant(0),      column_index(s),
                     s.tensor({s.constant(1), s.size(5)}), std::string("sum"), true};
           },
           {DType::f32, DType::f64}}};
}
std::vector<Sample> samples_index_put() {
  return {
      {"sum",
       [](SampleBuilder& s) -> std::vector<Argument> {
         const Argument x = s.tensor({s.constant(9), s.size(5)});
         const Argument index = s.tensor(DType::i64, {s.size(4)}, -9, 8);
         return {x, std::vector<ValueId>{std::get<ValueId>(index)}, s.tensor({s.size(5)}), true};
       },
       {DType::f32, DType::f64, DType::i32}}};
}
template <Along along>
std::vector<Sample> samples_along() {
  return {{"rows",
           [](SampleBuilder& s) -> std::vector<Argument> {
             const std::int64_t count = along == Along::copy ? 1 : 4;
             const Argument x = s.tensor({s.constant(9), s.size(5)});
             const Argument index = s.tensor(DType::i64, {s.constant(count)}, 0, 8);
             if (along == Along::fill) return {x, s.constant(0), index, 3.0};
             return {x, s.constant(0), index, s.tensor({s.constant(count), s.size(5)})};
           },
           {DType::f32, DType::f64, DType::i32}}};
}
std::vector<Sample> samples_select_scatter() {
  return {{"middle",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.size(3), s.constant(4), s.size(5)}),
                     s.tensor({s.size(3), s.size(5)}), s.constant(1), s.constant(-2)};
           },
           number_dtypes()}};
}
std::vector<Sample> samples_slice_scatter() {
  return {{"stepped",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.size(3), s.constant(9)}),
                     s.tensor({s.size(3), s.constant(3)}),
                     s.constant(1),
                     s.constant(2),
                     s.constant(8),
                     s.constant(2)};
           },
           number_dtypes()}};
}

constexpr OpDef kScatter[] = {
    {.name = "index_add",
     .schema = "(self: tensor, dim: integer, index: tensor, source: tensor, alpha: scalar = 1) "
               "-> tensor",
     .doc = "self with alpha * source added to the slices along dim that index names.",
     .traits = Trait::update,
     .infer = infer_along<Along::add>,
     .lower = lower_along<Along::add>,
     .reference = reference_along<Along::add>,
     .aten = "aten::index_add",
     .samples = samples_along<Along::add>},
    {.name = "index_copy",
     .schema = "(self: tensor, dim: integer, index: tensor, source: tensor) -> tensor",
     .doc = "self with source in the slices along dim that index names.",
     .traits = Trait::update,
     .infer = infer_along<Along::copy>,
     .lower = lower_along<Along::copy>,
     .reference = reference_along<Along::copy>,
     .aten = "aten::index_copy",
     .samples = samples_along<Along::copy>},
    {.name = "index_fill",
     .schema = "(self: tensor, dim: integer, index: tensor, value: scalar) -> tensor",
     .doc = "self with a number in the slices along dim that index names, from the end below 0.",
     .traits = Trait::update,
     .infer = infer_along<Along::fill>,
     .lower = lower_along<Along::fill>,
     .reference = reference_along<Along::fill>,
     .aten = "aten::index_fill.int_Scalar",
     .samples = samples_along<Along::fill>},
    {.name = "index_put",
     .schema = "(self: tensor, indices: optional_tensor_list, values: tensor, "
               "accumulate: boolean = false) -> tensor",
     .doc = "self with values stored, or added, at the positions of an advanced index.",
     .traits = Trait::update,
     .infer = infer_index_put,
     .lower = lower_index_put,
     .reference = reference_index_put,
     .aten = "aten::index_put aten::_unsafe_index_put",
     .samples = samples_index_put},
    {.name = "scatter",
     .schema = "(self: tensor, dim: integer, index: tensor, src: tensor) -> tensor",
     .doc = "self with src written at the positions along dim that index names.",
     .traits = Trait::update,
     .infer = infer_scatter<Update::overwrite>,
     .lower = lower_scatter<Update::overwrite>,
     .reference = reference_scatter<Update::overwrite>,
     .aten = "aten::scatter.src",
     .samples = samples_scatter<false>},
    {.name = "scatter_add",
     .schema = "(self: tensor, dim: integer, index: tensor, src: tensor) -> tensor",
     .doc = "self with src added at the positions along dim that index names.",
     .traits = Trait::update,
     .infer = infer_scatter<Update::add>,
     .lower = lower_scatter<Update::add>,
     .reference = reference_scatter<Update::add>,
     .aten = "aten::scatter_add",
     .samples = samples_scatter_add},
    {.name = "scatter_reduce",
     .schema = "(self: tensor, dim: integer, index: tensor, src: tensor, reduce: string, "
               "include_self: boolean = true) -> tensor",
     .doc = "self with src reduced into the positions along dim that index names (sums only).",
     .traits = Trait::update,
     .infer = infer_scatter<Update::reduce_argument>,
     .lower = lower_scatter<Update::reduce_argument>,
     .reference = reference_scatter<Update::reduce_argument>,
     .aten = "aten::scatter_reduce.two",
     .samples = samples_scatter_reduce},
    {.name = "scatter_value",
     .schema = "(self: tensor, dim: integer, index: tensor, value: scalar) -> tensor",
     .doc = "self with a number at the positions along dim that index names.",
     .traits = Trait::update,
     .infer = infer_scatter<Update::overwrite>,
     .lower = lower_scatter<Update::overwrite>,
     .reference = reference_scatter<Update::overwrite>,
     .aten = "aten::scatter.value",
     .samples = samples_scatter<true>},
    {.name = "select_scatter",
     .schema = "(self: tensor, src: tensor, dim: integer, index: integer) -> tensor",
     .doc = "self with src at one position along dim.",
     .traits = Trait::update,
     .infer = infer_select_scatter,
     .lower = lower_select_scatter,
     .reference = reference_select_scatter,
     .aten = "aten::select_scatter",
     .samples = samples_select_scatter},
    {.name = "slice_scatter",
     .schema = "(self: tensor, src: tensor, dim: integer = 0, start: optional_integer = none, "
               "end: optional_integer = none, step: integer = 1) -> tensor",
     .doc = "self with src in a slice of dim.",
     .traits = Trait::update,
     .infer = infer_slice_scatter,
     .lower = lower_slice_scatter,
     .reference = reference_slice_scatter,
     .aten = "aten::slice_scatter",
     .samples = samples_slice_scatter},
};

}  // namespace

std::span<const OpDef> scatter_ops() { return kScatter; }

}  // namespace inkle::ops
