// Running sums, products and extremes along a dimension.
#include <cmath>
#include <cstdint>

#include "ops/axes.h"
#include "ops/infer.h"
#include "ops/samples.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

using graph::Argument;
using graph::OpDef;
using graph::Sample;
using infer::Types;
using loop::ReduceOp;

// (self, dim, dtype?): the dtype asked for, else i64 for integers and bool.
Types infer_scan(Inference& in) {
  const Type& x = infer::computable(in, 0);
  (void)in.dim(in.constant_integer(1), x.rank());
  const DType dtype = in.dtype(2).value_or(abi::is_float(x.dtype) ? x.dtype : DType::i64);
  return {infer::make(x, dtype, x.sizes)};
}
// As in eager: on the CPU f32 accumulates in f64, which may leave the range of f32 and come back.
template <ReduceOp op>
void lower_scan(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const DType dtype = l.result_type().dtype;
  const auto element = [&](BodyBuilder& b, Indices i) { return element_as(l, b, x, i, dtype); };
  if (x.rank() == 0) {
    l.result(l.pointwise(x.sizes, dtype, element));
    return;
  }
  const std::size_t dim = l.args().dim(l.args().constant_integer(1), x.rank());
  l.result(l.scan(op, x.sizes, dim, accumulator_of(l.result_type(), {DType::f32}), dtype, element));
}
template <bool is_product>
void reference_scan(Evaluation& e) {
  RefTensor& y = e.result();
  const RefTensor x = cast(e.tensor(0), y.dtype);
  const Axes axes = Axes::only(e.dim(e.integer(1), x.rank()), x.rank());
  for (const auto& group : reduction_groups(x, axes)) {
    double real = is_product ? 1 : 0;
    std::uint64_t integer = is_product ? 1 : 0;
    for (const std::size_t j : group) {
      if (x.is_real()) {
        real = is_product ? real * x.real(j) : real + x.real(j);
        y.set(j, real);
      } else {
        const auto v = static_cast<std::uint64_t>(x.integer(j));
        integer = is_product ? integer * v : integer + v;
        y.set(j, static_cast<std::int64_t>(integer));
      }
    }
  }
}

// --- cummax and cummin: (self, dim) -> (values, indices); of equal elements the last, and a NaN
// wins

Types infer_extreme(Inference& in) {
  const Type& x = infer::computable(in, 0);
  (void)in.dim(in.constant_integer(1), x.rank());
  return {infer::make(x, x.dtype, x.sizes), infer::make(x, DType::i64, x.sizes)};
}

// Two running maxima find both results, of integers, whose maximum takes one instruction:
//   order  of the elements, as an integer: what comes later in it wins. Both zeros are equal in it,
//          and NaNs come last
//   place  of the elements that are equal to the order so far: twice the index, and one more where
//          a float is negative, which tells one zero from the other. The last of equals wins
// An element is made of the two again: of a NaN the payload is lost.
struct Float {
  DType element, bits;
  std::int64_t magnitude, infinity, nan;
  int sign;  // its bit
};
constexpr Float kF32{DType::f32, DType::i32, 0x7fffffff, 0x7f800000, 0x7fc00000, 31};
constexpr Float kF64{DType::f64,         DType::i64,         0x7fffffffffffffff,
                     0x7ff0000000000000, 0x7ff8000000000000, 63};
// Of places in 32 bits.
constexpr std::int64_t kMostPlaces = std::int64_t{1} << 30;

const Float& float_of(DType dtype) { return dtype == DType::f64 ? kF64 : kF32; }
DType order_type(DType dtype) { return abi::size_of(dtype) == 8 ? DType::i64 : DType::i32; }
Val bits_of(BodyBuilder& b, Val x) {
  const Float& f = float_of(b.dtype(x));
  return b.bitcast(b.cast(x, f.element), f.bits);
}
Val is_negative(BodyBuilder& b, Val bits) { return b.less(bits, b.constant(b.dtype(bits), 0)); }

template <bool is_max>
Val order_of(BodyBuilder& b, Val x) {
  const DType type = order_type(b.dtype(x));
  if (!abi::is_float(b.dtype(x))) {
    const Val order = b.cast(x, type);
    return is_max ? order : b.unary(Opcode::bit_not, order);
  }
  const Float& f = float_of(b.dtype(x));
  const Val bits = bits_of(b, x);
  const Val magnitude = b.binary(Opcode::bit_and, bits, b.constant(type, f.magnitude));
  const Val opposite = b.neg(magnitude);
  const Val order = is_max ? b.select(is_negative(b, bits), opposite, magnitude)
                           : b.select(is_negative(b, bits), magnitude, opposite);
  const Val is_nan = b.less(b.constant(type, f.infinity), magnitude);
  return b.select(is_nan, b.constant(type, f.nan), order);
}
Val place_of(BodyBuilder& b, Val x, Expr index, DType type) {
  const Val place = b.cast(b.index(index * 2), type);
  if (!abi::is_float(b.dtype(x))) return place;
  return b.add(place, b.cast(is_negative(b, bits_of(b, x)), type));
}
Val element_of(BodyBuilder& b, Val order, Val place, DType dtype) {
  const Float& f = float_of(dtype);
  const Val sign = b.binary(Opcode::shift_left, b.cast(place, f.bits), b.constant(f.bits, f.sign));
  const Val bits = b.binary(Opcode::bit_or, b.unary(Opcode::abs, order), sign);
  return b.cast(b.bitcast(bits, f.element), dtype);
}

template <bool is_max>
void lower_extreme(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const Sizes& sizes = x.sizes;
  const std::size_t dim = l.args().dim(l.args().constant_integer(1), x.rank());
  const bool is_real = abi::is_float(x.dtype);
  const auto index = [&](BodyBuilder& b, Indices i) {
    return x.rank() == 0 ? b.context().constant(0) : i[dim];
  };
  const auto running = [&](DType type, const ElementFunction& f) {
    if (x.rank() == 0) return l.pointwise(sizes, type, f);
    return l.scan(ReduceOp::max, sizes, dim, type, type, f);
  };
  const Tensor order = running(order_type(x.dtype), [&](BodyBuilder& b, Indices i) {
    return order_of<is_max>(b, l.element(b, x, i));
  });
  if (l.is_used(0) && !is_real) {
    l.result(0, l.pointwise(sizes, x.dtype, [&](BodyBuilder& b, Indices i) {
      const Val v = l.element(b, order, i);
      return b.cast(is_max ? v : b.unary(Opcode::bit_not, v), x.dtype);
    }));
  }
  if (!is_real && !l.is_used(1)) return;
  const bool is_short =
      x.rank() == 0 || l.context().guard_less(sizes[dim], l.context().constant(kMostPlaces));
  const DType type = is_short ? DType::i32 : DType::i64;
  const Tensor place = running(type, [&](BodyBuilder& b, Indices i) {
    const Val own = l.element(b, x, i);
    const Val wins = b.binary(Opcode::equal, order_of<is_max>(b, own), l.element(b, order, i));
    return b.select(wins, place_of(b, own, index(b, i), type), b.constant(type, 0));
  });
  if (l.is_used(0) && is_real) {
    l.result(0, l.pointwise(sizes, x.dtype, [&](BodyBuilder& b, Indices i) {
      return element_of(b, l.element(b, order, i), l.element(b, place, i), x.dtype);
    }));
  }
  if (l.is_used(1)) {
    l.result(1, l.pointwise(sizes, DType::i64, [&](BodyBuilder& b, Indices i) {
      const Val half = b.binary(Opcode::shift_right, l.element(b, place, i), b.constant(type, 1));
      return b.cast(half, DType::i64);
    }));
  }
}

// Whether x replaces the extreme so far.
template <bool is_max>
bool takes_over(const RefTensor& t, std::size_t x, std::size_t best) {
  if (!t.is_real()) {
    return is_max ? t.integer(x) >= t.integer(best) : t.integer(x) <= t.integer(best);
  }
  if (std::isnan(t.real(x)) || std::isnan(t.real(best))) return std::isnan(t.real(x));
  return is_max ? t.real(x) >= t.real(best) : t.real(x) <= t.real(best);
}
template <bool is_max>
void reference_extreme(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const Axes axes = Axes::only(e.dim(e.integer(1), x.rank()), x.rank());
  for (const auto& group : reduction_groups(x, axes)) {
    std::size_t best = 0;
    for (std::size_t k = 0; k < group.size(); ++k) {
      if (takes_over<is_max>(x, group[k], group[best])) best = k;
      e.result(0).copy_element(group[k], x, group[best]);
      e.result(1).set(group[k], static_cast<std::int64_t>(best));
    }
  }
}

std::vector<Sample> samples_scan() {
  return {{"last",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 37}), s.constant(-1)};
           },
           number_dtypes()},
          {"first",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({9, 5}), s.constant(0)};
           },
           number_dtypes()}};
}

constexpr std::string_view kSchemaExtreme = "(self: tensor, dim: integer) -> tensor, tensor";
constexpr std::string_view kSchema =
    "(self: tensor, dim: integer, dtype: optional_dtype = none) -> tensor";

constexpr OpDef kScan[] = {
    {.name = "cummax",
     .schema = kSchemaExtreme,
     .doc = "Running maximum along a dimension, and where it is; of equal elements the last.",
     .infer = infer_extreme,
     .lower = lower_extreme<true>,
     .reference = reference_extreme<true>,
     .aten = "aten::cummax",
     .samples = samples_scan},
    {.name = "cummin",
     .schema = kSchemaExtreme,
     .doc = "Running minimum along a dimension, and where it is; of equal elements the last.",
     .infer = infer_extreme,
     .lower = lower_extreme<false>,
     .reference = reference_extreme<false>,
     .aten = "aten::cummin",
     .samples = samples_scan},
    {.name = "cumprod",
     .schema = kSchema,
     .doc = "Running product along a dimension.",
     .infer = infer_scan,
     .lower = lower_scan<ReduceOp::prod>,
     .reference = reference_scan<true>,
     .aten = "aten::cumprod",
     .samples = samples_scan},
    {.name = "cumsum",
     .schema = kSchema,
     .doc = "Running sum along a dimension.",
     .infer = infer_scan,
     .lower = lower_scan<ReduceOp::sum>,
     .reference = reference_scan<false>,
     .aten = "aten::cumsum",
     .samples = samples_scan},
};

}  // namespace

std::span<const OpDef> scan_ops() { return kScan; }

}  // namespace inkle::ops
