// Templates that turn one formula into a row's lowering and another into its reference. Formulas
// are captureless lambdas given as template arguments, so that a row stays in one place.
//
// Dtypes: operands are cast to the common dtype of ATen's promotion, arithmetic is done in its
// compute type (f32 for f16 and bf16), the result is cast to the result dtype.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "graph/op_def.h"
#include "loop/builder.h"
#include "ops/infer.h"
#include "ops/interpreter.h"
#include "ops/lowering.h"
#include "ops/promotion.h"
#include "ops/samples.h"

namespace inkle::ops {

using graph::OpDef;
using graph::Trait;

// How an operand reaches the compute type.
enum class OperandCast : std::uint8_t {
  rounded,  // to the common dtype first, as kernels that read their operands in it
  exact,    // numbers and 0-dim tensors directly, as ATen's arithmetic kernels on the CPU
};

// Operand `arg` at result indices in the compute type of `common`.
inline Val operand(const Lowering& l, BodyBuilder& b, std::size_t arg, Indices i, DType common,
                   OperandCast how = OperandCast::rounded) {
  const DType compute = abi::compute_type(common);
  Val v = l.element(b, arg, i, compute);
  const bool direct =
      how == OperandCast::exact && (!l.args().is_tensor(arg) || l.args().tensor(arg).rank() == 0);
  if (!direct) v = b.cast(v, common);
  return b.cast(v, compute);
}

// The dtype arithmetic starts from: the result's for float functions of integers.
enum class In : std::uint8_t {
  own,       // the common dtype of the operands
  as_float,  // the same, integers become f32
};

inline DType input_dtype(const Lowering& l, std::initializer_list<std::size_t> operands, In in) {
  const DType common = common_dtype(l.args(), operands);
  return in == In::as_float ? float_result(common) : common;
}

// f(BodyBuilder&, x) -> value.
template <auto F, In kIn = In::own>
void lower_unary(Lowering& l) {
  const DType in = input_dtype(l, {0}, kIn);
  const graph::Type& r = l.result_type();
  l.result(l.pointwise(r.sizes, r.dtype,
                       [&](BodyBuilder& b, Indices i) { return F(b, operand(l, b, 0, i, in)); }));
}

// f(BodyBuilder&, x, y) -> value.
template <auto F, In kIn = In::own, OperandCast kCast = OperandCast::rounded>
void lower_binary(Lowering& l) {
  const DType in = input_dtype(l, {0, 1}, kIn);
  const graph::Type& r = l.result_type();
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    const Val x = operand(l, b, 0, i, in, kCast);
    const Val y = operand(l, b, 1, i, in, kCast);
    return F(b, x, y);
  }));
}

// f(Lowering&, BodyBuilder&, x) -> value: formulas with further numeric arguments.
template <auto F, In kIn = In::own>
void lower_unary_with(Lowering& l) {
  const DType in = input_dtype(l, {0}, kIn);
  const graph::Type& r = l.result_type();
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    return F(l, b, operand(l, b, 0, i, in));
  }));
}

// The same of two tensors.
template <auto F, In kIn = In::own>
void lower_binary_with(Lowering& l) {
  const DType in = input_dtype(l, {0, 1}, kIn);
  const graph::Type& r = l.result_type();
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    const Val x = operand(l, b, 0, i, in);
    const Val y = operand(l, b, 1, i, in);
    return F(l, b, x, y);
  }));
}

// --- References ---------------------------------------------------------------------------------

// An operand as eager's kernel reads it.
inline double rounded_operand(const RefTensor& t, std::size_t position, DType common,
                              OperandCast how) {
  const DType compute = abi::compute_type(common);
  const double v = t.real(position);
  if (how == OperandCast::exact && t.rank() == 0) return round_to(compute, v);
  return round_to(common, v);
}

// The common dtype of operands of a node being evaluated.
DType evaluated_common(const Evaluation& e, std::initializer_list<std::size_t> operands, In in);

// f(double) -> double or bool.
template <auto F, In kIn = In::own>
void ref_unary(Evaluation& e) {
  const RefTensor x = e.operand(0);
  const DType in = evaluated_common(e, {0}, kIn);
  RefTensor& r = e.result();
  for (std::size_t p = 0; p < r.count(); ++p) {
    r.set(p, static_cast<double>(F(round_to(in, x.real(p)))));
  }
}

// Float and integer formulas apart: f(double) and g(int64).
template <auto F, auto G>
void ref_unary_split(Evaluation& e) {
  const RefTensor x = e.operand(0);
  RefTensor& r = e.result();
  for (std::size_t p = 0; p < r.count(); ++p) {
    if (x.is_real()) {
      r.set(p, static_cast<double>(F(x.real(p))));
    } else {
      r.set(p, static_cast<std::int64_t>(G(x.integer(p))));
    }
  }
}

// f(Evaluation&, double) -> double.
template <auto F, In kIn = In::own>
void ref_unary_with(Evaluation& e) {
  const RefTensor x = e.operand(0);
  const DType in = evaluated_common(e, {0}, kIn);
  RefTensor& r = e.result();
  for (std::size_t p = 0; p < r.count(); ++p) {
    r.set(p, static_cast<double>(F(e, round_to(in, x.real(p)))));
  }
}

// f(double, double); integers below 2^53 are exact.
template <auto F, In kIn = In::own, OperandCast kCast = OperandCast::rounded>
void ref_binary(Evaluation& e) {
  const RefTensor x = e.operand(0), y = e.operand(1);
  const DType in = evaluated_common(e, {0, 1}, kIn);
  RefTensor& r = e.result();
  for_each_index(r.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const double a = rounded_operand(x, broadcast_position(x, i), in, kCast);
    const double b = rounded_operand(y, broadcast_position(y, i), in, kCast);
    r.set(p, static_cast<double>(F(a, b)));
  });
}

// f(double, double) for floats, g(int64, int64) for integers and bool.
template <auto F, auto G, OperandCast kCast = OperandCast::rounded>
void ref_binary_split(Evaluation& e) {
  const DType in = evaluated_common(e, {0, 1}, In::own);
  if (abi::is_float(in)) return ref_binary<F, In::own, kCast>(e);
  const RefTensor x = e.operand(0), y = e.operand(1);
  RefTensor& r = e.result();
  for_each_index(r.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const std::int64_t a = wrap_to(in, x.integer(broadcast_position(x, i)));
    const std::int64_t b = wrap_to(in, y.integer(broadcast_position(y, i)));
    r.set(p, static_cast<std::int64_t>(G(a, b)));
  });
}

// f(Evaluation&, double, double): backward formulas.
template <auto F>
void ref_binary_with(Evaluation& e) {
  const RefTensor x = e.operand(0), y = e.operand(1);
  const DType in = evaluated_common(e, {0, 1}, In::own);
  RefTensor& r = e.result();
  for_each_index(r.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    r.set(p, static_cast<double>(F(e, round_to(in, x.real(broadcast_position(x, i))),
                                   round_to(in, y.real(broadcast_position(y, i))))));
  });
}

// Wrapping 64-bit arithmetic without undefined behaviour.
inline std::int64_t wrapping_add(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
inline std::int64_t wrapping_sub(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}
inline std::int64_t wrapping_mul(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

// A constant of the value's dtype.
inline Val constant_like(BodyBuilder& b, Val like, double value) {
  const DType dtype = b.dtype(like);
  return abi::is_float(dtype) ? b.constant(dtype, value)
                              : b.constant(dtype, static_cast<std::int64_t>(value));
}

// The number that argument `arg` is, in the compute type of `like`. An integer keeps all its bits.
inline Val constant_argument(const Lowering& l, BodyBuilder& b, Val like, std::size_t arg) {
  const DType dtype = b.dtype(like);
  return abi::is_float(dtype) ? b.constant(dtype, l.args().real(arg))
                              : b.constant(dtype, l.args().whole(arg));
}

constexpr Trait kPointwise = Trait::pointwise;

using SampleFunction = std::vector<graph::Sample> (*)();

// A row of an op on two operands that broadcast.
constexpr OpDef binary_row(std::string_view name, std::string_view aten, std::string_view doc,
                           infer::Types (*rule)(graph::Inference&), void (*lower)(Lowering&),
                           void (*reference)(Evaluation&), SampleFunction sample,
                           Trait traits = kPointwise) {
  return {.name = name,
          .schema = "(self: operand, other: operand) -> tensor",
          .doc = doc,
          .traits = traits,
          .infer = rule,
          .lower = lower,
          .reference = reference,
          .aten = aten,
          .samples = sample};
}

// Samples of rows with tensor arguments only.
namespace samples {
std::vector<graph::Sample> unary();           // floats and integers in [-2, 2]
std::vector<graph::Sample> unary_number();    // the same without bool and u8
std::vector<graph::Sample> unary_float();     // floats in [-2, 2]
std::vector<graph::Sample> unary_positive();  // [0.1, 3]
std::vector<graph::Sample> unary_unit();      // [-0.9, 0.9]
std::vector<graph::Sample> unary_integer();   // integers and bool
std::vector<graph::Sample> binary();  // equal sizes, broadcast, with a number; also integers
std::vector<graph::Sample> binary_float();
std::vector<graph::Sample> binary_nonzero();  // the second in [0.5, 3] or [1, 3]; also integers
std::vector<graph::Sample> binary_integer();  // values in [0, 7]
std::vector<graph::Sample> backward();        // two tensors of equal sizes
}  // namespace samples

}  // namespace inkle::ops
