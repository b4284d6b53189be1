// Ops that the host framework runs: known, listed, and not compiled. Each says why in its doc.
#include "base/error.h"
#include "ops/infer.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

using graph::Inference;
using graph::OpDef;
using graph::Trait;
using infer::Types;

Types infer_nothing(Inference& in) { unsupported("{}: runs in the host framework", in.op().name); }
constexpr OpDef row(std::string_view name, std::string_view schema, std::string_view aten,
                    std::string_view doc) {
  return {.name = name,
          .schema = schema,
          .doc = doc,
          .traits = Trait::eager_only,
          .infer = infer_nothing,
          .aten = aten};
}
constexpr OpDef view_row(std::string_view name, std::string_view schema, std::string_view aten,
                         std::string_view doc) {
  OpDef made = row(name, schema, aten, doc);
  made.traits = Trait::eager_only | Trait::view;
  return made;
}

constexpr OpDef kEager[] = {
    row("_fft_c2c",
        "(self: tensor, dim: integer_list, normalization: integer, forward: boolean) -> tensor",
        "aten::_fft_c2c", "Fourier transform; complex numbers run in eager."),
    row("_fft_c2r",
        "(self: tensor, dim: integer_list, normalization: integer, last_dim_size: integer) "
        "-> tensor",
        "aten::_fft_c2r", "Fourier transform to reals; complex numbers run in eager."),
    row("_fft_r2c",
        "(self: tensor, dim: integer_list, normalization: integer, onesided: boolean) -> tensor",
        "aten::_fft_r2c", "Fourier transform of reals; complex numbers run in eager."),
    row("argsort", "(self: tensor, dim: integer = -1, descending: boolean = false) -> tensor",
        "aten::argsort", "Positions of the sorted elements; sorting runs in eager."),
    row("grid_sampler_2d",
        "(input: tensor, grid: tensor, interpolation_mode: integer, padding_mode: integer, "
        "align_corners: boolean) -> tensor",
        "aten::grid_sampler_2d", "Samples an image at given coordinates."),
    row("histc", "(self: tensor, bins: integer = 100, min: scalar = 0, max: scalar = 0) -> tensor",
        "aten::histc", "Histogram; its bounds may depend on data."),
    row("kthvalue",
        "(self: tensor, k: integer, dim: integer = -1, keepdim: boolean = false) "
        "-> tensor, tensor",
        "aten::kthvalue", "The k-th smallest element; sorting runs in eager."),
    row("logcumsumexp", "(self: tensor, dim: integer) -> tensor", "aten::logcumsumexp",
        "Running log(sum(exp(x)))."),
    row("masked_scatter", "(self: tensor, mask: tensor, source: tensor) -> tensor",
        "aten::masked_scatter", "self with source's elements, in order, where mask is true."),
    row("masked_select", "(self: tensor, mask: tensor) -> tensor", "aten::masked_select",
        "The elements where mask is true; its size depends on data."),
    row("nonzero", "(self: tensor) -> tensor", "aten::nonzero",
        "Indices of elements that are not 0; its size depends on data."),
    row("searchsorted",
        "(sorted_sequence: tensor, self: tensor, out_int32: boolean = false, "
        "right: boolean = false, side: optional_string = none, sorter: optional_tensor = none) "
        "-> tensor",
        "aten::searchsorted.Tensor", "Where elements would be inserted."),
    row("sort", "(self: tensor, dim: integer = -1, descending: boolean = false) -> tensor, tensor",
        "aten::sort", "Sorted elements and their positions."),
    row("sort_stable",
        "(self: tensor, stable: optional_boolean, dim: integer = -1, "
        "descending: boolean = false) -> tensor, tensor",
        "aten::sort.stable", "Sorted elements and their positions, ties in order."),
    row("topk",
        "(self: tensor, k: integer, dim: integer = -1, largest: boolean = true, "
        "sorted: boolean = true) -> tensor, tensor",
        "aten::topk", "The k largest elements and their positions; sorting runs in eager."),
    view_row("view_as_complex", "(self: tensor) -> tensor", "aten::view_as_complex",
             "Pairs as complex numbers, which run in eager."),
    view_row("view_as_real", "(self: tensor) -> tensor", "aten::view_as_real",
             "Complex numbers, which run in eager, as pairs."),
};

}  // namespace

std::span<const OpDef> eager_ops() { return kEager; }

}  // namespace inkle::ops
