// Comparisons, logic, bits, and choosing between values.
#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

using graph::Argument;
using graph::Inference;
using infer::Types;
using Args = std::vector<Argument>;

constexpr Trait kCommutative = Trait::pointwise | Trait::commutative;

template <Opcode kOp>
Val opcode_value(BodyBuilder& b, Val x, Val y) {
  return b.binary(kOp, x, y);
}

template <Opcode kOp, auto F>
constexpr OpDef comparison(std::string_view name, std::string_view aten, std::string_view doc,
                           Trait traits = kPointwise) {
  return binary_row(name, aten, doc, infer::binary_bool, lower_binary<opcode_value<kOp>>,
                    ref_binary_split<F, F>, samples::binary, traits);
}

// --- Logic and bits
// ---------------------------------------------------------------------------------

template <Opcode kOp>
Val logical_value(BodyBuilder& b, Val x, Val y) {
  return b.binary(kOp, b.cast(x, DType::boolean), b.cast(y, DType::boolean));
}

Types infer_bitwise(Inference& args) {
  Types types = infer::binary(args);
  if (abi::is_float(types[0].dtype)) args.fail("is not defined on floats");
  return types;
}

template <Opcode kOp, auto F>
constexpr OpDef bitwise(std::string_view name, std::string_view aten, std::string_view doc,
                        Trait traits = kPointwise) {
  return binary_row(name, aten, doc, infer_bitwise, lower_binary<opcode_value<kOp>>,
                    ref_binary_split<[](double, double) { return 0.0; }, F>,
                    samples::binary_integer, traits);
}

// Counts outside the width give 0, or the sign to the right.
template <bool kLeft>
void ref_shift(Evaluation& e) {
  const DType in = evaluated_common(e, {0, 1}, In::own);
  const RefTensor x = e.operand(0), y = e.operand(1);
  const std::int64_t width = 8 * abi::size_of(in);
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const std::int64_t a = wrap_to(in, x.integer(broadcast_position(x, i)));
    const std::int64_t count = wrap_to(in, y.integer(broadcast_position(y, i)));
    const bool is_out = count < 0 || count >= width;
    std::int64_t value = is_out ? (!kLeft && a < 0 ? -1 : 0) : a >> count;
    if (kLeft && !is_out) {
      value = static_cast<std::int64_t>(static_cast<std::uint64_t>(a) << count);
    }
    e.result().set(p, value);
  });
}

// --- isclose
// ----------------------------------------------------------------------------------------

Val isclose_value(Lowering& l, BodyBuilder& b, Val x, Val y) {
  const Val same = b.binary(Opcode::equal, x, y);
  if (!abi::is_float(b.dtype(x))) unsupported("isclose of integers");
  const Val allowed = b.add(constant_like(b, x, l.args().real(3)),
                            b.unary(Opcode::abs, b.mul(y, constant_like(b, x, l.args().real(2)))));
  const Val error = b.unary(Opcode::abs, b.sub(x, y));
  const Val finite =
      b.logical_not(b.logical_or(b.unary(Opcode::is_inf, error), b.unary(Opcode::is_nan, error)));
  Val close =
      b.logical_or(same, b.logical_and(finite, b.binary(Opcode::less_equal, error, allowed)));
  if (l.args().boolean(4)) {
    close =
        b.logical_or(close, b.logical_and(b.unary(Opcode::is_nan, x), b.unary(Opcode::is_nan, y)));
  }
  return close;
}

bool isclose_reference(Evaluation& e, double x, double y) {
  if (x == y) return true;
  if (std::isnan(x) && std::isnan(y)) return e.boolean(4);
  const double error = std::abs(x - y);
  return std::isfinite(error) && error <= e.real(3) + std::abs(e.real(2) * y);
}

// --- where and masked_fill
// --------------------------------------------------------------------------

void require_condition(Inference& args, std::size_t i) {
  const DType dtype = infer::computable(args, i).dtype;
  if (dtype != DType::boolean && dtype != DType::u8) args.fail("the condition must be bool");
}

Types infer_where(Inference& args) {
  require_condition(args, 0);
  return {infer::broadcast_all(args, {0, 1, 2}, common_dtype(args, {1, 2}))};
}

// The chosen value is not computed with, so it is only cast to the result dtype.
void lower_choice(Lowering& l, std::size_t condition, std::size_t yes, std::size_t no) {
  const graph::Type& r = l.result_type();
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    const Val c = b.cast(l.element(b, condition, i, DType::boolean), DType::boolean);
    const Val x = operand(l, b, yes, i, r.dtype), y = operand(l, b, no, i, r.dtype);
    return b.select(c, x, y);
  }));
}

void lower_where(Lowering& l) { lower_choice(l, 0, 1, 2); }

void ref_choice(Evaluation& e, std::size_t condition, std::size_t yes, std::size_t no) {
  const RefTensor c = e.operand(condition), x = e.operand(yes), y = e.operand(no);
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const RefTensor& chosen = c.integer(broadcast_position(c, i)) != 0 ? x : y;
    e.result().copy_element(p, chosen, broadcast_position(chosen, i));
  });
}

void ref_where(Evaluation& e) { ref_choice(e, 0, 1, 2); }

Types infer_masked_fill(Inference& args) {
  require_condition(args, 1);
  const infer::Type& x = infer::computable(args, 0);
  return {infer::broadcast_all(args, {0, 1}, x.dtype)};
}

void lower_masked_fill(Lowering& l) { lower_choice(l, 1, 2, 0); }
void ref_masked_fill(Evaluation& e) { ref_choice(e, 1, 2, 0); }

const std::vector<DType>& value_dtypes() {
  static const std::vector<DType> kDTypes = {DType::f32, DType::bf16, DType::i64, DType::boolean};
  return kDTypes;
}

std::vector<graph::Sample> where_samples() {
  return {{"tensors",
           [](SampleBuilder& s) {
             return Args{s.tensor(DType::boolean, {s.size(3), s.size(4)}, 0, 1),
                         s.free_tensor({3, 4}), s.tensor({s.size(4)})};
           },
           value_dtypes()},
          {"number", [](SampleBuilder& s) {
             return Args{s.tensor(DType::boolean, {s.size(4)}, 0, 1), s.free_tensor({3, 4}), 0.1};
           }}};
}

std::vector<graph::Sample> masked_fill_samples() {
  return {{"number",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 4}), s.tensor(DType::boolean, {s.size(4)}, 0, 1),
                         s.constant(1)};
           },
           value_dtypes()}};
}

std::vector<graph::Sample> isclose_samples() {
  return {{"near", [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 4}), s.free_tensor({3, 4}), 0.5, 0.1, false};
           }}};
}

constexpr auto kEqual = [](auto a, auto b) { return a == b; };
constexpr auto kNotEqual = [](auto a, auto b) { return a != b; };
constexpr auto kLess = [](auto a, auto b) { return a < b; };
constexpr auto kLessEqual = [](auto a, auto b) { return a <= b; };
constexpr auto kGreater = [](auto a, auto b) { return (a > b); };
constexpr auto kGreaterEqual = [](auto a, auto b) { return a >= b; };
constexpr auto kAnd = [](std::int64_t a, std::int64_t b) { return a & b; };
constexpr auto kOr = [](std::int64_t a, std::int64_t b) { return a | b; };
constexpr auto kXor = [](std::int64_t a, std::int64_t b) { return a ^ b; };
constexpr auto kBothTrue = [](auto a, auto b) { return a != 0 && b != 0; };
constexpr auto kAnyTrue = [](auto a, auto b) { return a != 0 || b != 0; };
constexpr auto kOneTrue = [](auto a, auto b) { return (a != 0) != (b != 0); };

constexpr OpDef kComparisons[] = {
    bitwise<Opcode::bit_and, kAnd>(
        "bitwise_and",
        "aten::bitwise_and.Tensor aten::bitwise_and.Scalar aten::bitwise_and.Scalar_Tensor "
        "aten::__and__.Tensor aten::__and__.Scalar",
        "And of all bits.", kCommutative),
    binary_row(
        "bitwise_left_shift",
        "aten::bitwise_left_shift.Tensor aten::bitwise_left_shift.Tensor_Scalar "
        "aten::bitwise_left_shift.Scalar_Tensor aten::__lshift__.Tensor aten::__lshift__.Scalar",
        "self times two to the power of other.", infer_bitwise,
        lower_binary<opcode_value<Opcode::shift_left>>, ref_shift<true>, samples::binary_integer),
    bitwise<Opcode::bit_or, kOr>(
        "bitwise_or",
        "aten::bitwise_or.Tensor aten::bitwise_or.Scalar aten::bitwise_or.Scalar_Tensor "
        "aten::__or__.Tensor aten::__or__.Scalar",
        "Or of all bits.", kCommutative),
    binary_row(
        "bitwise_right_shift",
        "aten::bitwise_right_shift.Tensor aten::bitwise_right_shift.Tensor_Scalar "
        "aten::bitwise_right_shift.Scalar_Tensor aten::__rshift__.Tensor aten::__rshift__.Scalar",
        "self shifted right, keeping the sign.", infer_bitwise,
        lower_binary<opcode_value<Opcode::shift_right>>, ref_shift<false>, samples::binary_integer),
    bitwise<Opcode::bit_xor, kXor>(
        "bitwise_xor",
        "aten::bitwise_xor.Tensor aten::bitwise_xor.Scalar aten::bitwise_xor.Scalar_Tensor "
        "aten::__xor__.Tensor aten::__xor__.Scalar",
        "Exclusive or of all bits.", kCommutative),
    comparison<Opcode::equal, kEqual>("eq", "aten::eq.Tensor aten::eq.Scalar", "self == other.",
                                      kCommutative),
    comparison<Opcode::greater_equal, kGreaterEqual>("ge", "aten::ge.Tensor aten::ge.Scalar",
                                                     "self >= other."),
    comparison<Opcode::greater, kGreater>("gt", "aten::gt.Tensor aten::gt.Scalar", "self > other."),
    {.name = "isclose",
     .schema = "(self: tensor, other: tensor, rtol: real = 1e-05, atol: real = 1e-08, "
               "equal_nan: boolean = false) -> tensor",
     .doc = "True where |self - other| <= atol + |rtol * other|.",
     .traits = kPointwise,
     .infer = infer::binary_bool,
     .lower = lower_binary_with<isclose_value>,
     .reference = ref_binary_with<isclose_reference>,
     .aten = "aten::isclose",
     .samples = isclose_samples},
    comparison<Opcode::less_equal, kLessEqual>("le", "aten::le.Tensor aten::le.Scalar",
                                               "self <= other."),
    binary_row("logical_and", "aten::logical_and", "And of what is not zero.", infer::binary_bool,
               lower_binary<logical_value<Opcode::bit_and>>, ref_binary<kBothTrue>, samples::binary,
               kCommutative),
    binary_row("logical_or", "aten::logical_or", "Or of what is not zero.", infer::binary_bool,
               lower_binary<logical_value<Opcode::bit_or>>, ref_binary<kAnyTrue>, samples::binary,
               kCommutative),
    binary_row("logical_xor", "aten::logical_xor", "Exclusive or of what is not zero.",
               infer::binary_bool, lower_binary<logical_value<Opcode::bit_xor>>,
               ref_binary<kOneTrue>, samples::binary, kCommutative),
    comparison<Opcode::less, kLess>("lt", "aten::lt.Tensor aten::lt.Scalar", "self < other."),
    {.name = "masked_fill",
     .schema = "(self: tensor, mask: tensor, value: operand) -> tensor",
     .doc = "value where mask is true, else self.",
     .traits = kPointwise,
     .infer = infer_masked_fill,
     .lower = lower_masked_fill,
     .reference = ref_masked_fill,
     .aten = "aten::masked_fill.Scalar aten::masked_fill.Tensor",
     .samples = masked_fill_samples},
    comparison<Opcode::not_equal, kNotEqual>("ne", "aten::ne.Tensor aten::ne.Scalar",
                                             "self != other.", kCommutative),
    {.name = "where",
     .schema = "(condition: tensor, self: operand, other: operand) -> tensor",
     .doc = "self where condition is true, else other.",
     .traits = kPointwise,
     .infer = infer_where,
     .lower = lower_where,
     .reference = ref_where,
     .aten = "aten::where.self aten::where.ScalarOther aten::where.ScalarSelf aten::where.Scalar",
     .samples = where_samples},
};

}  // namespace

std::span<const graph::OpDef> compare_ops() { return kComparisons; }

}  // namespace inkle::ops
