// Composites of the torch.export dialect, made of other rows, Einstein sums first.
#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "ops/axes.h"
#include "ops/composite_reference.h"
#include "ops/infer.h"
#include "ops/promotion.h"
#include "ops/samples.h"
#include "ops/table.h"
#include "ops/views.h"

namespace inkle::ops {
namespace {

using graph::Argument;
using graph::Builder;
using graph::Node;
using graph::OpDef;
using graph::Sample;
using graph::Trait;
using graph::ValueId;
using infer::Types;

std::vector<Expr> exprs(Builder& b, const std::vector<std::size_t>& numbers) {
  std::vector<Expr> out;
  for (const std::size_t n : numbers) out.push_back(b.integer(static_cast<std::int64_t>(n)));
  return out;
}

// --- einsum: (equation, tensors, path?)

struct Equation {
  std::vector<std::string> inputs;  // one letter a dimension
  std::string output;
};
// Without an arrow the output has the letters that occur once, in alphabetical order. Ellipses,
// repeated letters in one operand and more than two operands are Unsupported.
Equation equation_of(std::string_view text) {
  Equation e{.inputs = {""}};
  bool arrow = false;
  for (const char c : text) {
    if (c == ' ') continue;
    if (c == '.') unsupported("einsum: an ellipsis");
    if (c == ',')
      e.inputs.emplace_back();
    else if (c == '-')
      arrow = true;
    else if (c != '>')
      (arrow ? e.output : e.inputs.back()) += c;
  }
  std::string all;
  for (const std::string& input : e.inputs) {
    for (const char c : input) {
      if (std::count(input.begin(), input.end(), c) > 1) unsupported("einsum: a repeated letter");
    }
    all += input;
  }
  if (e.inputs.size() > 2) unsupported("einsum: more than two operands");
  if (arrow) return e;
  std::sort(all.begin(), all.end());
  for (const char c : all) {
    if (std::count(all.begin(), all.end(), c) == 1) e.output += c;
  }
  return e;
}
bool has_letter(const std::string& s, char c) { return s.find(c) != std::string::npos; }

Types infer_einsum(Inference& in) {
  const Equation e = equation_of(in.string(0));
  const std::vector<const Type*> tensors = in.tensors(1);
  if (tensors.size() != e.inputs.size()) in.fail("operands do not fit the equation");
  std::vector<std::pair<char, Expr>> sizes;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    if (tensors[t] == nullptr || tensors[t]->rank() != e.inputs[t].size()) {
      in.fail("an operand has the wrong rank");
    }
    require_computable(tensors[t]->dtype);
    if (tensors[t]->dtype != tensors[0]->dtype) in.fail("operands differ in dtype");
    for (std::size_t d = 0; d < e.inputs[t].size(); ++d) {
      const char c = e.inputs[t][d];
      const auto known =
          std::find_if(sizes.begin(), sizes.end(), [&](const auto& s) { return s.first == c; });
      if (known == sizes.end())
        sizes.emplace_back(c, tensors[t]->sizes[d]);
      else if (!in.context().guard_equal(known->second, tensors[t]->sizes[d])) {
        unsupported("einsum: sizes of one letter that broadcast");
      }
    }
  }
  Sizes result;
  for (const char c : e.output) {
    const auto known =
        std::find_if(sizes.begin(), sizes.end(), [&](const auto& s) { return s.first == c; });
    if (known == sizes.end()) in.fail("an output letter is in no operand");
    result.push_back(known->second);
  }
  return {infer::make(*tensors[0], tensors[0]->dtype, std::move(result))};
}

// `x` with its dimensions in the order of `to`; letters not in `to` must not exist any more.
ValueId ordered(Builder& b, ValueId x, const std::string& from, const std::string& to) {
  if (from == to) return x;
  std::vector<std::size_t> order;
  for (const char c : to) order.push_back(from.find(c));
  return b.node("permute", {x, exprs(b, order)});
}
// Sums the letters that are neither in `kept` nor in `also`.
ValueId summed(Builder& b, ValueId x, std::string& letters, const std::string& kept,
               const std::string& also) {
  std::vector<std::size_t> dims;
  std::string rest;
  for (std::size_t d = 0; d < letters.size(); ++d) {
    if (has_letter(kept, letters[d]) || has_letter(also, letters[d]))
      rest += letters[d];
    else
      dims.push_back(d);
  }
  letters = rest;
  return dims.empty() ? x : b.node("sum_dim", {x, exprs(b, dims)});
}
std::vector<ValueId> decompose_einsum(Builder& b, const Node& node) {
  const Equation e = equation_of(std::get<std::string>(node.args[0]));
  const auto& tensors = std::get<std::vector<ValueId>>(node.args[1]);
  std::string left = e.inputs[0];
  if (tensors.size() == 1) {
    const ValueId x = summed(b, tensors[0], left, e.output, "");
    return {ordered(b, x, left, e.output)};
  }
  std::string right = e.inputs[1];
  const ValueId x = summed(b, tensors[0], left, e.output, right);
  const ValueId y = summed(b, tensors[1], right, e.output, left);
  std::string batch, rows, columns, inner;
  for (const char c : left) {
    if (!has_letter(right, c))
      rows += c;
    else
      (has_letter(e.output, c) ? batch : inner) += c;
  }
  for (const char c : right) {
    if (!has_letter(left, c)) columns += c;
  }
  const auto sizes_of = [&](const std::string& letters) {
    Sizes sizes;
    for (const char c : letters) {
      const bool in_left = has_letter(left, c);
      const std::size_t d = (in_left ? left : right).find(c);
      sizes.push_back(b.type(in_left ? x : y).sizes[d]);
    }
    return sizes;
  };
  const auto count = [&](const std::string& letters) {
    return sym::product(b.context(), sizes_of(letters));
  };
  const auto folded = [&](ValueId v, const std::string& from, const std::string& first,
                          const std::string& second) {
    Sizes sizes = {count(first), count(second)};
    if (!batch.empty()) sizes.insert(sizes.begin(), count(batch));
    return b.node("reshape", {ordered(b, v, from, batch + first + second), sizes});
  };
  const ValueId product = b.node(batch.empty() ? "mm" : "bmm",
                                 {folded(x, left, rows, inner), folded(y, right, inner, columns)});
  const std::string order = batch + rows + columns;
  return {ordered(b, b.node("reshape", {product, sizes_of(order)}), order, e.output)};
}

// --- Small ones

// A value of its own, which may have other strides than a view of the operand.
Types infer_expand_as(Inference& in) {
  infer::Type r = expanded(in, in.tensor(1).sizes);
  r.strides.reset();
  return {std::move(r)};
}
std::vector<ValueId> decompose_expand_as(Builder& b, const Node& node) {
  return {b.node("expand", {operand_of(node, 0), b.type(operand_of(node, 1)).sizes})};
}
Types infer_type_as(Inference& in) {
  const Type& x = infer::computable(in, 0);
  return {infer::make(x, infer::computable(in, 1).dtype, x.sizes)};
}
std::vector<ValueId> decompose_type_as(Builder& b, const Node& node) {
  return {b.node("_to_copy", {operand_of(node, 0), b.type(operand_of(node, 1)).dtype})};
}
Types infer_outer(Inference& in) {
  const Type &x = infer::computable(in, 0), &y = infer::computable(in, 1);
  if (x.rank() != 1 || y.rank() != 1) in.fail("needs two vectors");
  if (x.dtype != y.dtype) unsupported("outer: operands of two dtypes");
  return {infer::make(x, x.dtype, {x.sizes[0], y.sizes[0]})};
}
std::vector<ValueId> decompose_outer(Builder& b, const Node& node) {
  const ValueId column = b.node("unsqueeze", {operand_of(node, 0), b.integer(1)});
  return {b.node("mul", {column, operand_of(node, 1)})};
}
// The power is rounded to the exponent's type first; that of an integer has f64's range.
std::vector<ValueId> decompose_ldexp(Builder& b, const Node& node) {
  const ValueId x = operand_of(node, 0);
  ValueId exponent = operand_of(node, 1);
  const Type type = b.type(x);
  const bool is_wide = abi::is_float(type.dtype) && !abi::is_float(b.type(exponent).dtype);
  if (is_wide) exponent = b.node("_to_copy", {exponent, DType::f64});
  const ValueId product = b.node("mul", {x, b.node("pow", {2.0, exponent})});
  return {is_wide ? b.node("_to_copy", {product, type.dtype}) : product};
}
Types infer_matrix_transpose(Inference& in) {
  const Type& x = infer::computable(in, 0);
  if (x.rank() < 2) in.fail("needs a matrix");
  Sizes sizes = x.sizes;
  std::swap(sizes[x.rank() - 1], sizes[x.rank() - 2]);
  return {infer::make(x, x.dtype, std::move(sizes))};
}
std::vector<ValueId> decompose_matrix_transpose(Builder& b, const Node& node) {
  return {b.node("transpose", {operand_of(node, 0), b.integer(-2), b.integer(-1)})};
}

// pad: (self, pad, mode, value?); only constants, the other modes have rows of their own.
Types infer_pad(Inference& in) {
  const Type& x = infer::computable(in, 0);
  const std::vector<Expr> pad = in.integers(1);
  if (pad.size() % 2 != 0 || pad.size() / 2 > x.rank()) in.fail("pad has the wrong length");
  if (in.string(2) != "constant") unsupported("pad: mode {}", in.string(2));
  Sizes sizes = x.sizes;
  for (std::size_t d = 0; d < pad.size() / 2; ++d) {
    Expr& size = sizes[sizes.size() - 1 - d];
    size = size + pad[2 * d] + pad[2 * d + 1];
  }
  return {infer::make(x, x.dtype, std::move(sizes))};
}
std::vector<ValueId> decompose_pad(Builder& b, const Node& node) {
  Argument fill = node.args[3];
  if (std::holds_alternative<graph::None>(fill)) fill = 0.0;
  return {b.node("constant_pad_nd", {operand_of(node, 0), node.args[1], fill})};
}

// pixel_shuffle: (self, factor): [.., c * f * f, h, w] as [.., c, h * f, w * f].
Types infer_pixel_shuffle(Inference& in) {
  const Type& x = infer::computable(in, 0);
  const std::int64_t f = in.constant_integer(1);
  if (x.rank() < 3 || f <= 0) in.fail("needs channels, rows and columns, and a positive factor");
  Sizes sizes = x.sizes;
  const std::size_t c = x.rank() - 3;
  sizes[c] = floordiv(sizes[c], f * f);
  sizes[c + 1] = sizes[c + 1] * f;
  sizes[c + 2] = sizes[c + 2] * f;
  return {infer::make(x, x.dtype, std::move(sizes))};
}
std::vector<ValueId> decompose_pixel_shuffle(Builder& b, const Node& node) {
  const ValueId x = operand_of(node, 0);
  const Sizes from = b.type(x).sizes;
  const Expr f = std::get<Expr>(node.args[1]);
  const std::size_t c = from.size() - 3;
  Sizes split(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(c)), merged = split;
  const Expr channels = floordiv(from[c], f * f);
  split.insert(split.end(), {channels, f, f, from[c + 1], from[c + 2]});
  merged.insert(merged.end(), {channels, from[c + 1] * f, from[c + 2] * f});
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d <= c; ++d) order.push_back(d);
  for (const std::size_t d : {3, 1, 4, 2}) order.push_back(c + d);
  const ValueId parts = b.node("reshape", {x, split});
  return {b.node("reshape", {b.node("permute", {parts, exprs(b, order)}), merged})};
}

// --- Samples and rows

template <std::size_t index>
std::vector<Argument> sample_einsum(SampleBuilder& s) {
  constexpr std::string_view kEquations[] = {"bhqd,bhkd->bhqk", "ij,jk", "abc->ca"};
  const auto list = [](std::vector<Argument> tensors) {
    std::vector<ValueId> ids;
    for (const Argument& t : tensors) ids.push_back(std::get<ValueId>(t));
    return ids;
  };
  const Argument equation = std::string(kEquations[index]);
  if (index == 0) {
    return {equation, list({s.free_tensor({2, 3, 5, 7}), s.free_tensor({2, 3, 4, 7})})};
  }
  if (index == 1) return {equation, list({s.free_tensor({3, 5}), s.free_tensor({5, 4})})};
  return {equation, list({s.free_tensor({3, 5, 4})})};
}
std::vector<Sample> samples_einsum() {
  return {{"batched", sample_einsum<0>, float_dtypes()},
          {"implicit", sample_einsum<1>, float_dtypes()},
          {"one", sample_einsum<2>, float_dtypes()}};
}
std::vector<Sample> samples_expand_as() {
  return {{"row",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.constant(1), s.size(5)}), s.free_tensor({3, 5})};
           },
           number_dtypes()}};
}
std::vector<Sample> samples_type_as() {
  return {{"integers",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 5}), s.tensor(DType::i32, {s.size(3)})};
           },
           number_dtypes()}};
}
std::vector<Sample> samples_outer() {
  return {{"vectors",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3}), s.free_tensor({5})};
           },
           number_dtypes()}};
}
std::vector<Sample> samples_transpose() {
  return {{"batched",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({2, 3, 5})};
           },
           number_dtypes()}};
}
std::vector<Sample> samples_ldexp() {
  return {{"matrices",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 7}), s.free_tensor({3, 7})};
           },
           float_dtypes()}};
}
std::vector<Sample> samples_pad() {
  return {{"constant",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({2, 3, 5}), std::vector<Expr>{s.constant(1), s.constant(2)},
                     std::string("constant"), 0.5};
           },
           float_dtypes()}};
}
std::vector<Sample> samples_pixel_shuffle() {
  return {{"two",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.size(2), s.constant(12), s.size(3), s.size(5)}), s.constant(2)};
           },
           number_dtypes()}};
}

constexpr OpDef kComposite[] = {
    {.name = "einsum",
     .schema = "(equation: string, tensors: tensor_list, path: optional_integer_list = none) "
               "-> tensor",
     .doc = "Sums of products of one or two operands, by letters.",
     .traits = Trait::contraction,
     .infer = infer_einsum,
     .decompose = decompose_einsum,
     .reference = composite::ref_einsum,
     .aten = "aten::einsum",
     .samples = samples_einsum},
    {.name = "expand_as",
     .schema = "(self: tensor, other: tensor) -> tensor",
     .doc = "self expanded to the sizes of other.",
     .infer = infer_expand_as,
     .decompose = decompose_expand_as,
     .reference = composite::ref_expand_as,
     .aten = "aten::expand_as",
     .samples = samples_expand_as},
    {.name = "ldexp",
     .schema = "(self: tensor, other: tensor) -> tensor",
     .doc = "self times two to the power of other.",
     .infer = infer::binary_float,
     .decompose = decompose_ldexp,
     .reference = composite::ref_ldexp,
     .aten = "aten::ldexp.Tensor",
     .samples = samples_ldexp},
    {.name = "mT",
     .schema = "(self: tensor) -> tensor",
     .doc = "The last two dimensions swapped.",
     .infer = infer_matrix_transpose,
     .decompose = decompose_matrix_transpose,
     .reference = composite::ref_matrix_transpose,
     .aten = "aten::mT aten::adjoint",
     .samples = samples_transpose},
    {.name = "outer",
     .schema = "(self: tensor, vec2: tensor) -> tensor",
     .doc = "All products of elements of two vectors.",
     .infer = infer_outer,
     .decompose = decompose_outer,
     .reference = composite::ref_outer,
     .aten = "aten::outer aten::ger",
     .samples = samples_outer},
    {.name = "pad",
     .schema = "(self: tensor, pad: integer_list, mode: string = \"constant\", "
               "value: optional_real = none) -> tensor",
     .doc = "Pads with a constant.",
     .infer = infer_pad,
     .decompose = decompose_pad,
     .reference = composite::ref_pad,
     .aten = "aten::pad",
     .samples = samples_pad},
    {.name = "pixel_shuffle",
     .schema = "(self: tensor, upscale_factor: integer) -> tensor",
     .doc = "Channels to blocks of pixels.",
     .infer = infer_pixel_shuffle,
     .decompose = decompose_pixel_shuffle,
     .reference = composite::ref_pixel_shuffle,
     .aten = "aten::pixel_shuffle",
     .samples = samples_pixel_shuffle},
    {.name = "type_as",
     .schema = "(self: tensor, other: tensor) -> tensor",
     .doc = "self in the dtype of other.",
     .infer = infer_type_as,
     .decompose = decompose_type_as,
     .reference = composite::ref_type_as,
     .aten = "aten::type_as",
     .samples = samples_type_as},
};

}  // namespace

std::span<const OpDef> composite_ops() { return kComposite; }

}  // namespace inkle::ops
