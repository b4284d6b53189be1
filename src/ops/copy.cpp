// Copies, casts and mutation.
#include <algorithm>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

using graph::Argument;
using graph::Inference;
using infer::Types;
using Args = std::vector<Argument>;

void lower_cast(Lowering& l) {
  const graph::Type& r = l.result_type();
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    return b.cast(l.element(b, 0, i, r.dtype), r.dtype);
  }));
}

void ref_cast(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  for (std::size_t p = 0; p < x.count(); ++p) e.result().copy_element(p, x, p);
}

// The result of a move to `device`, which must be where the tensor is.
Types cast_type(Inference& args, std::optional<DType> dtype, std::size_t device_arg) {
  const infer::Type& x = infer::computable(args, 0);
  if (dtype) require_computable(*dtype);
  if (device_arg < args.size() && !args.is_none(device_arg)) {
    const auto* device = std::get_if<graph::Device>(&args.arg(device_arg));
    if (device != nullptr && *device != x.device) unsupported("a copy between devices");
  }
  return {infer::make(x, dtype.value_or(x.dtype), x.sizes)};
}

Types infer_to_copy(Inference& args) { return cast_type(args, args.dtype(1), 3); }
Types infer_to_dtype(Inference& args) { return cast_type(args, args.dtype(1), args.size()); }

std::vector<graph::Sample> cast_samples() {
  const std::vector<DType> dtypes = {DType::f32, DType::bf16, DType::f16,
                                     DType::f64, DType::i64,  DType::boolean};
  return {{"to_f32",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 4}), DType::f32};
           },
           dtypes},
          {"to_bf16",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 4}), DType::bf16};
           },
           dtypes},
          {"to_i32",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 4}), DType::i32};
           },
           dtypes},
          {"to_bool",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 4}), DType::boolean};
           },
           dtypes}};
}

// --- copy: the second operand in the first one's dtype and sizes
// ------------------------------------

Types infer_copy(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  if (!args.is_tensor(1)) return {infer::make(x, x.dtype, x.sizes)};
  const infer::Type& source = infer::computable(args, 1);
  const infer::Sizes both = infer::broadcast(args, x.sizes, source.sizes);
  const auto same = [&](const sym::Expr& a, const sym::Expr& b) {
    return args.context().guard_equal(a, b);
  };
  if (!std::ranges::equal(both, x.sizes, same)) {
    args.fail("the source does not broadcast to the destination");
  }
  return {infer::make(x, x.dtype, x.sizes)};
}

Types infer_copy_into(Inference& args) {
  Types types = infer_copy(args);
  types[0].strides = args.tensor(0).strides;
  return types;
}

void lower_copy(Lowering& l) {
  const graph::Type& r = l.result_type();
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    return b.cast(l.element(b, 1, i, r.dtype), r.dtype);
  }));
}

void lower_copy_into(Lowering& l) {
  const DType dtype = l.result_type().dtype;
  l.result(l.store_into(l.tensor(0), [&](BodyBuilder& b, Indices i) {
    return b.cast(l.element(b, 1, i, dtype), dtype);
  }));
}

void ref_copy(Evaluation& e) {
  const RefTensor source = e.operand(1);
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    e.result().copy_element(p, source, broadcast_position(source, i));
  });
}

std::vector<graph::Sample> copy_samples() {
  return {{"broadcast", [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 4}), s.tensor({s.size(4)})};
           }}};
}

constexpr OpDef row(std::string_view name, std::string_view schema, std::string_view aten,
                    std::string_view doc, Types (*rule)(Inference&), void (*lower)(Lowering&),
                    void (*reference)(Evaluation&), std::vector<graph::Sample> (*sample)(),
                    Trait traits = kPointwise) {
  return {.name = name,
          .schema = schema,
          .doc = doc,
          .traits = traits,
          .infer = rule,
          .lower = lower,
          .reference = reference,
          .aten = aten,
          .samples = sample};
}

constexpr OpDef kCopies[] = {
    row("_to_copy",
        "(self: tensor, dtype: dtype? = none, layout: string? = none, device: device? = none, "
        "pin_memory: boolean? = none, non_blocking: boolean = false, "
        "memory_format: string? = none) -> tensor",
        "aten::_to_copy", "A copy in another dtype.", infer_to_copy, lower_cast, ref_cast,
        cast_samples),
    row("clone", "(self: tensor, memory_format: string? = none) -> tensor",
        "aten::clone aten::contiguous", "A copy.", infer::same, lower_cast, ref_cast,
        samples::unary),
    row("convert_element_type", "(a: tensor, dtype: dtype) -> tensor",
        "prims::convert_element_type", "The tensor in a dtype.", infer_to_copy, lower_cast,
        ref_cast, cast_samples),
    row("copy", "(self: tensor, src: operand, non_blocking: boolean = false) -> tensor",
        "aten::copy", "src in the dtype and sizes of self.", infer_copy, lower_copy, ref_copy,
        copy_samples),
    row("copy_", "(self: tensor, src: operand, non_blocking: boolean = false) -> tensor",
        "aten::copy_", "Writes src into self.", infer_copy_into, lower_copy_into, ref_copy, nullptr,
        Trait::effect),
    row("lift_fresh_copy", "(self: tensor) -> tensor", "aten::lift_fresh_copy", "A copy.",
        infer::same, lower_cast, ref_cast, samples::unary),
    row("to_dtype",
        "(self: tensor, dtype: dtype, non_blocking: boolean = false, copy: boolean = false, "
        "memory_format: string? = none) -> tensor",
        "aten::to.dtype", "The tensor in a dtype.", infer_to_dtype, lower_cast, ref_cast,
        cast_samples),
};

}  // namespace

std::span<const graph::OpDef> copy_ops() { return kCopies; }

}  // namespace inkle::ops
