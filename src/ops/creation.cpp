// Tensors made from scalars: fills and ranges.
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

// The keyword arguments of every creation op, from position `first`:
// dtype, layout, device, pin_memory.
infer::Type made(Inference& args, std::size_t first, const infer::Type* like, DType otherwise,
                 Sizes sizes) {
  infer::Type r{.dtype = args.dtype(first).value_or(like != nullptr ? like->dtype : otherwise)};
  require_computable(r.dtype);
  if (!args.is_none(first + 1) && args.string(first + 1).find("strided") == std::string::npos) {
    unsupported("layout {}", args.string(first + 1));
  }
  if (like != nullptr) r.device = like->device;
  if (const auto* device = std::get_if<graph::Device>(&args.arg(first + 2))) r.device = *device;
  for (Expr size : sizes) {
    if (size.is_constant() && *size.constant() < 0) args.fail("a size is negative");
  }
  r.sizes = std::move(sizes);
  return r;
}

// --- Fills
// ------------------------------------------------------------------------------------------

template <int kValue>
void lower_constant(Lowering& l) {
  const graph::Type& r = l.result_type();
  const DType compute = abi::compute_type(r.dtype);
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices) {
    return abi::is_float(compute) ? b.constant(compute, static_cast<double>(kValue))
                                  : b.constant(compute, std::int64_t{kValue});
  }));
}

template <int kValue>
void ref_constant(Evaluation& e) {
  for (std::size_t p = 0; p < e.result().count(); ++p) e.result().set(p, std::int64_t{kValue});
}

template <std::size_t kArg>
void lower_fill(Lowering& l) {
  const graph::Type& r = l.result_type();
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    return l.element(b, kArg, i, abi::compute_type(r.dtype));
  }));
}

template <std::size_t kArg>
void ref_fill(Evaluation& e) {
  const RefTensor value = e.operand(kArg);
  for (std::size_t p = 0; p < e.result().count(); ++p) e.result().copy_element(p, value, 0);
}

Types infer_sizes(Inference& args) {
  return {made(args, 1, nullptr, DType::f32, args.integers(0))};
}
Types infer_full(Inference& args) {
  return {made(args, 2, nullptr, number_dtype(args.arg(1)), args.integers(0))};
}
Types infer_like(Inference& args) {
  const infer::Type& x = args.tensor(0);
  return {made(args, 1, &x, x.dtype, x.sizes)};
}
Types infer_full_like(Inference& args) {
  const infer::Type& x = args.tensor(0);
  return {made(args, 2, &x, x.dtype, x.sizes)};
}
Types infer_new(Inference& args) {
  const infer::Type& x = args.tensor(0);
  return {made(args, 2, &x, x.dtype, args.integers(1))};
}
Types infer_new_full(Inference& args) {
  const infer::Type& x = args.tensor(0);
  return {made(args, 3, &x, x.dtype, args.integers(1))};
}
// Strides at position kStrides, keyword arguments after it.
template <bool kLike>
Types infer_strided(Inference& args) {
  const std::size_t size_arg = kLike ? 1 : 0;
  const infer::Type* x = kLike ? &args.tensor(0) : nullptr;
  Types types = {made(args, size_arg + 2, x, DType::f32, args.integers(size_arg))};
  types[0].strides = args.integers(size_arg + 1);
  if (types[0].strides->size() != types[0].rank()) args.fail("needs a stride for each size");
  return types;
}
Types infer_permuted(Inference& args) {
  return {made(args, 2, nullptr, DType::f32, args.integers(0))};
}
Types infer_scalar(Inference& args) { return {made(args, 1, nullptr, DType::f32, {})}; }
Types infer_filled(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  if (args.is_tensor(1) && args.tensor(1).rank() != 0) args.fail("the value must be 0-dim");
  return {infer::make(x, x.dtype, x.sizes)};
}
Types infer_zero(Inference& args) { return infer::same(args); }

// --- Ranges
// -----------------------------------------------------------------------------------------

// start + i * step for 0 <= i < count.
struct ArangeArguments {
  std::optional<std::size_t> start;
  std::size_t end = 0;
  std::optional<std::size_t> step;
  std::size_t keywords = 1;
};
template <int kForm>
constexpr ArangeArguments arange_arguments() {
  if constexpr (kForm == 0) return {std::nullopt, 0, std::nullopt, 1};
  if constexpr (kForm == 1) return {0, 1, std::nullopt, 2};
  return {0, 1, 2, 3};
}

// Of the numbers among a node's arguments, as `argument` gives them.
template <class F>
bool is_integral(const ArangeArguments& a, const F& argument) {
  bool integral = true;
  for (std::size_t i = 0; i < a.keywords; ++i) {
    integral = integral && std::holds_alternative<Expr>(argument(i));
  }
  return integral;
}

Expr arange_count(Inference& args, const ArangeArguments& a, bool integral) {
  sym::Context& context = args.context();
  if (integral) {
    const Expr start = a.start ? args.integer(*a.start) : context.constant(0);
    const std::int64_t step = a.step ? args.constant_integer(*a.step) : 1;
    if (step == 0) args.fail("the step must not be 0");
    const Expr span = step > 0 ? args.integer(a.end) - start : start - args.integer(a.end);
    const Expr count = ceildiv(span, std::abs(step));
    return sym::bounds(count).low >= 0 ? count : max(count, context.constant(0));
  }
  const double start = a.start ? args.real(*a.start) : 0;
  const double step = a.step ? args.real(*a.step) : 1;
  const double count = std::ceil((args.real(a.end) - start) / step);
  if (step == 0 || !(count >= 0)) args.fail("the bounds do not agree with the step");
  return context.constant(static_cast<std::int64_t>(count));
}

template <int kForm>
Types infer_arange(Inference& args) {
  constexpr ArangeArguments kArguments = arange_arguments<kForm>();
  const bool integral = is_integral(kArguments, [&](std::size_t i) { return args.arg(i); });
  return {made(args, kArguments.keywords, nullptr, integral ? DType::i64 : DType::f32,
               {arange_count(args, kArguments, integral)})};
}

// Integers exactly in i64, floats in f64 as ATen's CPU kernel.
template <int kForm>
void lower_arange(Lowering& l) {
  constexpr ArangeArguments kArguments = arange_arguments<kForm>();
  const graph::Type& r = l.result_type();
  const bool integral = is_integral(kArguments, [&](std::size_t i) { return l.args().arg(i); });
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    const Expr start = integral && kArguments.start ? l.args().integer(*kArguments.start)
                                                    : l.context().constant(0);
    if (integral) {
      const std::int64_t step = kArguments.step ? l.args().constant_integer(*kArguments.step) : 1;
      return b.index(start + i[0] * step);
    }
    const double from = kArguments.start ? l.args().real(*kArguments.start) : 0;
    const double step = kArguments.step ? l.args().real(*kArguments.step) : 1;
    const Val position = b.cast(b.index(i[0]), DType::f64);
    return b.add(b.constant(DType::f64, from), b.mul(position, b.constant(DType::f64, step)));
  }));
}

template <int kForm>
void ref_arange(Evaluation& e) {
  constexpr ArangeArguments kArguments = arange_arguments<kForm>();
  if (is_integral(kArguments, [&](std::size_t i) { return e.node().args[i]; })) {
    std::int64_t next = kArguments.start ? e.integer(*kArguments.start) : 0;
    const std::int64_t step = kArguments.step ? e.integer(*kArguments.step) : 1;
    for (std::size_t p = 0; p < e.result().count(); ++p, next = wrapping_add(next, step)) {
      e.result().set(p, next);
    }
    return;
  }
  const double start = kArguments.start ? e.real(*kArguments.start) : 0;
  const double step = kArguments.step ? e.real(*kArguments.step) : 1;
  for (std::size_t p = 0; p < e.result().count(); ++p) {
    e.result().set(p, start + static_cast<double>(p) * step);
  }
}

// From both ends towards the middle, as ATen.
Types infer_linspace(Inference& args) {
  if (args.is_tensor(0) || args.is_tensor(1)) unsupported("linspace of tensors");
  return {made(args, 3, nullptr, DType::f32, {args.integer(2)})};
}

void lower_linspace(Lowering& l) {
  const graph::Type& r = l.result_type();
  const double start = l.args().real(0), end = l.args().real(1);
  const std::int64_t steps = l.args().constant_integer(2);
  const DType compute = r.dtype == DType::f64 ? DType::f64 : DType::f32;
  if (!abi::is_float(r.dtype)) unsupported("linspace of integers");
  const double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    const Val h = b.constant(compute, step);
    const Val up = b.add(b.constant(compute, start), b.mul(h, b.cast(b.index(i[0]), compute)));
    const Val left = b.cast(b.index(steps - 1 - i[0]), compute);
    const Val down = b.sub(b.constant(compute, end), b.mul(h, left));
    const Val in_first_half =
        b.less(b.index(i[0]), b.constant(DType::i64, std::int64_t{steps / 2}));
    return steps == 1 ? b.constant(compute, start) : b.select(in_first_half, up, down);
  }));
}

void ref_linspace(Evaluation& e) {
  const double start = e.real(0), end = e.real(1);
  const auto steps = static_cast<double>(e.integer(2));
  const double step = steps > 1 ? (end - start) / (steps - 1) : 0;
  for (std::size_t p = 0; p < e.result().count(); ++p) {
    e.result().set(p, start + static_cast<double>(p) * step);
  }
}

template <bool kSquare>
Types infer_eye(Inference& args) {
  return {made(args, kSquare ? 1 : 2, nullptr, DType::f32,
               {args.integer(0), args.integer(kSquare ? 0 : 1)})};
}

void lower_eye(Lowering& l) {
  const graph::Type& r = l.result_type();
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    return b.binary(Opcode::equal, b.index(i[0]), b.index(i[1]));
  }));
}

void ref_eye(Evaluation& e) {
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    e.result().set(p, std::int64_t{i[0] == i[1]});
  });
}

// --- Samples
// ----------------------------------------------------------------------------------------

std::vector<DType> all_dtypes() { return {DType::f32, DType::bf16, DType::i64, DType::boolean}; }

std::vector<graph::Sample> sizes_samples() {
  return {{"dtype",
           [](SampleBuilder& s) {
             return Args{Sizes{s.size(3), s.size(4)}, s.dtype()};
           },
           all_dtypes()}};
}
std::vector<graph::Sample> full_samples() {
  return {{"number",
           [](SampleBuilder& s) {
             return Args{Sizes{s.size(3), s.size(4)}, 1.5, s.dtype()};
           },
           all_dtypes()},
          {"integer", [](SampleBuilder& s) {
             return Args{Sizes{s.size(3)}, s.constant(7)};
           }}};
}
std::vector<graph::Sample> new_samples() {
  return {{"own dtype",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({2, 3}), Sizes{s.size(4)}};
           },
           all_dtypes()}};
}
std::vector<graph::Sample> new_full_samples() {
  return {{"own dtype",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({2, 3}), Sizes{s.size(4)}, 2.5};
           },
           all_dtypes()}};
}
std::vector<graph::Sample> full_like_samples() {
  return {{"own dtype",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({2, 3}), 0.1};
           },
           all_dtypes()}};
}
std::vector<graph::Sample> fill_samples() {
  return {{"tensor", [](SampleBuilder& s) {
             return Args{s.free_tensor({2, 3}), s.tensor(DType::f32, {})};
           }}};
}
std::vector<graph::Sample> scalar_samples() {
  return {{"number", [](SampleBuilder& s) { return Args{0.1, s.dtype()}; }, all_dtypes()}};
}
std::vector<graph::Sample> arange_samples() {
  return {{"integers", [](SampleBuilder& s) { return Args{s.size(9)}; }},
          {"floats", [](SampleBuilder&) { return Args{5.5}; }}};
}
std::vector<graph::Sample> arange_start_samples() {
  return {{"integers", [](SampleBuilder& s) { return Args{s.constant(2), s.size(9) + 2}; }}};
}
std::vector<graph::Sample> arange_step_samples() {
  return {{"down",
           [](SampleBuilder& s) {
             return Args{s.size(9), s.constant(-1), s.constant(-2)};
           }},
          {"floats", [](SampleBuilder&) {
             return Args{0.0, 1.0, 0.125, DType::f32};
           }}};
}
std::vector<graph::Sample> linspace_samples() {
  return {{"five", [](SampleBuilder& s) { return Args{-1.0, 2.0, s.constant(5)}; }}};
}
std::vector<graph::Sample> eye_samples() {
  return {{"square", [](SampleBuilder& s) { return Args{s.size(4)}; }}};
}
std::vector<graph::Sample> eye_m_samples() {
  return {{"wide", [](SampleBuilder& s) { return Args{s.size(3), s.constant(5)}; }}};
}

// "(" + the op's own parameters + the keywords of every creation op + what follows.
template <std::size_t kFirst, std::size_t kLast>
struct SchemaText {
  static constexpr std::string_view kKeywords =
      "dtype: dtype? = none, layout: string? = none, device: device? = none, "
      "pin_memory: boolean? = none";
  char text[kFirst + kLast + kKeywords.size()] = {};

  consteval SchemaText(const char (&first)[kFirst], const char (&last)[kLast]) {
    char* out = std::copy_n(first, kFirst - 1, text);
    out = std::copy(kKeywords.begin(), kKeywords.end(), out);
    std::copy_n(last, kLast - 1, out);
  }
};
template <SchemaText kText>
constexpr std::string_view kSchemaOf{kText.text, sizeof kText.text - 2};

constexpr OpDef row(std::string_view name, std::string_view schema, std::string_view aten,
                    std::string_view doc, Types (*rule)(Inference&), void (*lower)(Lowering&),
                    void (*reference)(Evaluation&), SampleFunction sample) {
  return {.name = name,
          .schema = schema,
          .doc = doc,
          .traits = kPointwise | Trait::creation,
          .infer = rule,
          .lower = lower,
          .reference = reference,
          .aten = aten,
          .samples = sample};
}

constexpr std::string_view kSizesSchema =
    kSchemaOf<SchemaText("(size: integer[], ", ") -> tensor")>;
constexpr std::string_view kNewSchema =
    kSchemaOf<SchemaText("(self: tensor, size: integer[], ", ") -> tensor")>;
constexpr std::string_view kLikeSchema =
    kSchemaOf<SchemaText("(self: tensor, ", ", memory_format: string? = none) -> tensor")>;

constexpr OpDef kCreation[] = {
    row("arange", kSchemaOf<SchemaText("(end: scalar, ", ") -> tensor")>, "aten::arange",
        "0, 1, ... below end.", infer_arange<0>, lower_arange<0>, ref_arange<0>, arange_samples),
    row("arange_start", kSchemaOf<SchemaText("(start: scalar, end: scalar, ", ") -> tensor")>,
        "aten::arange.start", "start, start + 1, ... below end.", infer_arange<1>, lower_arange<1>,
        ref_arange<1>, arange_start_samples),
    row("arange_step",
        kSchemaOf<SchemaText("(start: scalar, end: scalar, step: scalar = 1, ", ") -> tensor")>,
        "aten::arange.start_step", "start, start + step, ... before end.", infer_arange<2>,
        lower_arange<2>, ref_arange<2>, arange_step_samples),
    row("empty",
        kSchemaOf<SchemaText("(size: integer[], ", ", memory_format: string? = none) -> tensor")>,
        "aten::empty.memory_format", "Zeros, since a value must be something.", infer_sizes,
        lower_constant<0>, ref_constant<0>, sizes_samples),
    row("empty_like", kLikeSchema, "aten::empty_like", "Zeros of the same sizes.", infer_like,
        lower_constant<0>, ref_constant<0>, samples::unary),
    row("empty_permuted",
        kSchemaOf<SchemaText("(size: integer[], physical_layout: integer[], ", ") -> tensor")>,
        "aten::empty_permuted", "Zeros.", infer_permuted, lower_constant<0>, ref_constant<0>,
        nullptr),
    row("empty_strided",
        kSchemaOf<SchemaText("(size: integer[], stride: integer[], ", ") -> tensor")>,
        "aten::empty_strided", "Zeros.", infer_strided<false>, lower_constant<0>, ref_constant<0>,
        nullptr),
    row("eye", kSchemaOf<SchemaText("(n: integer, ", ") -> tensor")>, "aten::eye",
        "The identity matrix.", infer_eye<true>, lower_eye, ref_eye, eye_samples),
    row("eye_m", kSchemaOf<SchemaText("(n: integer, m: integer, ", ") -> tensor")>, "aten::eye.m",
        "Ones on the diagonal.", infer_eye<false>, lower_eye, ref_eye, eye_m_samples),
    row("fill", "(self: tensor, value: operand) -> tensor", "aten::fill.Scalar aten::fill.Tensor",
        "value in the sizes and dtype of self.", infer_filled, lower_fill<1>, ref_fill<1>,
        fill_samples),
    row("full", kSchemaOf<SchemaText("(size: integer[], fill_value: scalar, ", ") -> tensor")>,
        "aten::full", "One number everywhere.", infer_full, lower_fill<1>, ref_fill<1>,
        full_samples),
    row("full_like",
        kSchemaOf<SchemaText("(self: tensor, fill_value: scalar, ",
                             ", memory_format: string? = none) -> tensor")>,
        "aten::full_like", "One number in the sizes of self.", infer_full_like, lower_fill<1>,
        ref_fill<1>, full_like_samples),
    row("linspace",
        kSchemaOf<SchemaText("(start: operand, end: operand, steps: integer, ", ") -> tensor")>,
        "aten::linspace", "steps numbers evenly from start to end.", infer_linspace, lower_linspace,
        ref_linspace, linspace_samples),
    row("new_empty", kNewSchema, "aten::new_empty", "Zeros.", infer_new, lower_constant<0>,
        ref_constant<0>, new_samples),
    row("new_empty_strided",
        kSchemaOf<SchemaText("(self: tensor, size: integer[], stride: integer[], ", ") -> tensor")>,
        "aten::new_empty_strided", "Zeros.", infer_strided<true>, lower_constant<0>,
        ref_constant<0>, nullptr),
    row("new_full",
        kSchemaOf<SchemaText("(self: tensor, size: integer[], fill_value: scalar, ",
                             ") -> tensor")>,
        "aten::new_full", "One number everywhere.", infer_new_full, lower_fill<2>, ref_fill<2>,
        new_full_samples),
    row("new_ones", kNewSchema, "aten::new_ones", "Ones.", infer_new, lower_constant<1>,
        ref_constant<1>, new_samples),
    row("new_zeros", kNewSchema, "aten::new_zeros", "Zeros.", infer_new, lower_constant<0>,
        ref_constant<0>, new_samples),
    row("ones", kSizesSchema, "aten::ones", "Ones.", infer_sizes, lower_constant<1>,
        ref_constant<1>, sizes_samples),
    row("ones_like", kLikeSchema, "aten::ones_like", "Ones of the same sizes.", infer_like,
        lower_constant<1>, ref_constant<1>, samples::unary),
    row("scalar_tensor", kSchemaOf<SchemaText("(s: scalar, ", ") -> tensor")>,
        "aten::scalar_tensor", "A number as a 0-dim tensor.", infer_scalar, lower_fill<0>,
        ref_fill<0>, scalar_samples),
    row("zero", "(self: tensor) -> tensor", "aten::zero", "Zeros of the same sizes.", infer_zero,
        lower_constant<0>, ref_constant<0>, samples::unary),
    row("zeros", kSizesSchema, "aten::zeros", "Zeros.", infer_sizes, lower_constant<0>,
        ref_constant<0>, sizes_samples),
    row("zeros_like", kLikeSchema, "aten::zeros_like", "Zeros of the same sizes.", infer_like,
        lower_constant<0>, ref_constant<0>, samples::unary),
};

}  // namespace

std::span<const graph::OpDef> creation_ops() { return kCreation; }

}  // namespace inkle::ops
