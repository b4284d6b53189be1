// Random numbers. A program that must draw what eager would draw from the same generator leaves
// ATen's ops to the host: their rows say so. Otherwise the frontend asks for numbers of a seed,
// which Philox draws an element at a time.
#include <algorithm>
#include <bit>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

#include "base/error.h"
#include "loop/scalar.h"
#include "ops/elementwise.h"
#include "ops/seeded.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

using graph::Inference;
using infer::Types;

Types infer_nothing(Inference& args) {
  unsupported("{} draws from the host's generator", args.op().name);
}

// --- With a seed: (size, seed, number, dtype)

// Bits of a number below 1 in ATen: those of the mantissa, the leading one included.
int bits_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 24;
    case DType::f16:
      return 11;
    case DType::bf16:
      return 8;
    default:
      unsupported("uniform random numbers of dtype {}", abi::name_of(dtype));
  }
}

Types infer_uniform(Inference& args) {
  seeded::check(args, 1);
  const DType dtype = *args.dtype(3);
  (void)bits_of(dtype);
  return {infer::make(args.tensor(1), dtype, args.integers(0))};
}

void lower_uniform(Lowering& l) {
  const graph::Type& r = l.result_type();
  const int bits = bits_of(r.dtype);
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    const Val word = seeded::word(l, b, 1, r.sizes, i);
    const Val high = b.binary(Opcode::shift_right, word, b.constant(DType::i64, 32 - bits));
    return b.mul(b.cast(high, DType::f32), b.constant(DType::f32, std::ldexp(1.0, -bits)));
  }));
}

void reference_uniform(Evaluation& e) {
  const int bits = bits_of(e.result().dtype);
  for (std::size_t i = 0; i < e.result().count(); ++i) {
    const std::int64_t word = seeded::reference_word(e, 1, i);
    e.result().set(i, std::ldexp(static_cast<double>(word >> (32 - bits)), -bits));
  }
}

std::vector<graph::Sample> uniform_samples() {
  return {{"rows",
           [](SampleBuilder& s) {
             return std::vector<graph::Argument>{std::vector<Expr>{s.size(3), s.size(5)},
                                                 s.tensor(DType::i64, {}, -9, 9), s.constant(1),
                                                 s.dtype()};
           },
           {DType::f32, DType::bf16, DType::f16}}};
}

// Normal numbers by the transform of Box and Muller, Annals of Mathematical Statistics 29 (1958):
// sqrt(-2 ln u) cos(2 pi v), u in (0, 1], v in [0, 1), of 24 bits each. Computed in f32.
constexpr int kNormalBits = 24;
constexpr double kTurn = 2 * std::numbers::pi;

Types infer_normal(Inference& args) {
  seeded::check(args, 1);
  const DType dtype = *args.dtype(3);
  (void)bits_of(dtype);
  return {infer::make(args.tensor(1), dtype, args.integers(0))};
}

void lower_normal(Lowering& l) {
  const graph::Type& r = l.result_type();
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    const auto uniform = [&](std::int64_t which, std::int64_t least) {
      const Val word = seeded::word(l, b, 1, r.sizes, i, which);
      const Val high =
          b.add(b.binary(Opcode::shift_right, word, b.constant(DType::i64, 32 - kNormalBits)),
                b.constant(DType::i64, least));
      return b.mul(b.cast(high, DType::f32), b.constant(DType::f32, std::ldexp(1.0, -kNormalBits)));
    };
    const Val log = b.unary(Opcode::log, uniform(0, 1));
    const Val radius = b.unary(Opcode::sqrt, b.mul(log, b.constant(DType::f32, -2.0)));
    const Val turn = b.mul(uniform(1, 0), b.constant(DType::f32, kTurn));
    return b.cast(b.mul(radius, b.unary(Opcode::cos, turn)), r.dtype);
  }));
}

void reference_normal(Evaluation& e) {
  for (std::size_t i = 0; i < e.result().count(); ++i) {
    const auto uniform = [&](std::int64_t which, std::int64_t least) {
      const std::int64_t word = seeded::reference_word(e, 1, i, which);
      return std::ldexp(static_cast<double>((word >> (32 - kNormalBits)) + least), -kNormalBits);
    };
    const double radius = std::sqrt(-2 * std::log(uniform(0, 1)));
    // The angle is rounded, as in the kernel: near a quarter turn the cosine is that rounding.
    const auto turn = static_cast<float>(uniform(1, 0) * static_cast<float>(kTurn));
    e.result().set(i, radius * std::cos(static_cast<double>(turn)));
  }
}

// Integers in [low, high): their count times a random fraction, with enough words to leave
// kSpareBits below the digits of the count, so that no integer is more likely than another by more
// than a factor of 1 + 2^-kSpareBits. If the count is a power of two, all are as likely.
constexpr int kSpareBits = 24;

struct Range {
  std::int64_t low = 0;
  std::uint64_t count = 0;
  std::int64_t words = 0;
};
Range range_of(std::int64_t low, std::int64_t high) {
  Range r{.low = low, .count = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low)};
  const int bits = std::bit_width(r.count - 1) + (std::has_single_bit(r.count) ? 0 : kSpareBits);
  r.words = std::max(1, (bits + 31) / 32);
  return r;
}

// Whether the dtype represents every integer in [low, high) exactly; others are the host's, which
// refuses or rounds them.
bool holds(DType dtype, std::int64_t low, std::int64_t high) {
  if (dtype == DType::i64) return true;
  const int bits = abi::is_float(dtype) ? (dtype == DType::f64 ? 53 : bits_of(dtype))
                   : dtype == DType::u8 ? 8
                                        : static_cast<int>(abi::size_of(dtype) * 8 - 1);
  const std::int64_t most = std::int64_t{1} << bits;
  return low >= (dtype == DType::u8 ? 0 : -most) && high <= most;
}

Types infer_integers(Inference& args) {
  seeded::check(args, 3);
  const auto low = args.integer(1).constant(), high = args.integer(2).constant();
  if (!low || !high) unsupported("random integers whose bounds are not constant");
  if (*high <= *low) args.fail("needs low < high");
  const DType dtype = *args.dtype(5);
  if (dtype == DType::boolean || !holds(dtype, *low, *high)) {
    unsupported("random integers that {} does not represent exactly", abi::name_of(dtype));
  }
  return {infer::make(args.tensor(3), dtype, args.integers(0))};
}

void lower_integers(Lowering& l) {
  const graph::Type& t = l.result_type();
  const Range r = range_of(*l.args().integer(1).constant(), *l.args().integer(2).constant());
  l.result(l.pointwise(t.sizes, t.dtype, [&](BodyBuilder& b, Indices i) {
    const auto number = [&](std::uint64_t v) {
      return b.constant(DType::i64, static_cast<std::int64_t>(v));
    };
    const Val mask = number(0xffffffff);
    const auto high_word = [&](Val v) {
      return b.binary(Opcode::bit_and, b.binary(Opcode::shift_right, v, number(32)), mask);
    };
    // From the last word to the first: the digits above the point of (word . below) * count.
    Val above = number(0);
    for (std::int64_t which = r.words; which-- > 0;) {
      const Val word = seeded::word(l, b, 3, t.sizes, i, which);
      const Val low_product = b.mul(word, number(r.count & 0xffffffff));
      if (r.count >> 32 == 0) {
        above = high_word(b.add(low_product, above));
      } else {
        const Val carry =
            b.add(high_word(b.add(low_product, b.binary(Opcode::bit_and, above, mask))),
                  high_word(above));
        above = b.add(b.mul(word, number(r.count >> 32)), carry);
      }
    }
    return b.cast(b.add(above, b.constant(DType::i64, r.low)), t.dtype);
  }));
}

__extension__ typedef unsigned __int128 Wide;

void reference_integers(Evaluation& e) {
  const Range r = range_of(e.integer(1), e.integer(2));
  for (std::size_t i = 0; i < e.result().count(); ++i) {
    Wide above = 0;
    for (std::int64_t which = r.words; which-- > 0;) {
      const auto word = static_cast<std::uint64_t>(seeded::reference_word(e, 3, i, which));
      above = (static_cast<Wide>(word) * r.count + above) >> 32;
    }
    const std::uint64_t value =
        static_cast<std::uint64_t>(above) + static_cast<std::uint64_t>(r.low);
    e.result().set(i, static_cast<std::int64_t>(value));
  }
}

template <std::int64_t kLow, std::int64_t kHigh>
graph::Sample integers_sample(std::string_view name, std::vector<DType> dtypes) {
  return {name,
          [](SampleBuilder& s) {
            return std::vector<graph::Argument>{
                std::vector<Expr>{s.size(3), s.size(5)}, s.constant(kLow), s.constant(kHigh),
                s.tensor(DType::i64, {}, -9, 9),         s.constant(1),    s.dtype()};
          },
          std::move(dtypes)};
}

std::vector<graph::Sample> integers_samples() {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  return {integers_sample<-2, 7>("dice", {DType::i64, DType::i32, DType::f32}),
          integers_sample<0, 256>("bytes", {DType::u8}),
          integers_sample<-70000, 3000000000>("two words", {DType::i64}),
          integers_sample<-5, (std::int64_t{1} << 33) + 7>("carry", {DType::i64}),
          integers_sample<kLeast, kMost>("three words", {DType::i64})};
}

// A permutation of 0 .. n-1: the rank of each element's random word, the earlier first where two
// words are equal. Takes n^2 comparisons.
Types infer_permutation(Inference& args) {
  seeded::check(args, 1);
  return {infer::make(args.tensor(1), *args.dtype(3), {args.integer(0)})};
}

void lower_permutation(Lowering& l) {
  const graph::Type& r = l.result_type();
  const Tensor words = l.whole(l.pointwise(r.sizes, DType::i64, [&](BodyBuilder& b, Indices i) {
    return seeded::word(l, b, 1, r.sizes, i);
  }));
  const auto is_before = [&](BodyBuilder& b, Indices i, Indices j) {
    const Val mine = l.element(b, words, i), other = l.element(b, words, j);
    const Val tie = b.binary(Opcode::bit_and, b.binary(Opcode::equal, other, mine),
                             b.binary(Opcode::less, b.index(j[0]), b.index(i[0])));
    const Val before = b.binary(Opcode::bit_or, b.binary(Opcode::less, other, mine), tie);
    return b.cast(before, DType::i64);
  };
  l.result(l.reduce(loop::ReduceOp::sum, r.sizes, r.sizes, DType::i64, {r.dtype}, is_before)[0]);
}

void reference_permutation(Evaluation& e) {
  const std::size_t n = e.result().count();
  std::vector<std::pair<std::int64_t, std::size_t>> order;
  for (std::size_t i = 0; i < n; ++i) order.emplace_back(seeded::reference_word(e, 1, i), i);
  std::sort(order.begin(), order.end());
  for (std::size_t rank = 0; rank < n; ++rank) {
    e.result().set(order[rank].second, static_cast<std::int64_t>(rank));
  }
}

std::vector<graph::Sample> permutation_samples() {
  return {{"cards",
           [](SampleBuilder& s) {
             return std::vector<graph::Argument>{s.size(23), s.tensor(DType::i64, {}, -9, 9),
                                                 s.constant(1), s.dtype()};
           },
           {DType::i64, DType::i32}}};
}

constexpr OpDef row(std::string_view name, std::string_view schema, std::string_view aten,
                    std::string_view doc) {
  return {.name = name,
          .schema = schema,
          .doc = doc,
          .traits = Trait::random | Trait::eager_only,
          .infer = infer_nothing,
          .aten = aten};
}

constexpr OpDef kRandom[] = {
    row("bernoulli", "(self: tensor, ...) -> tensor", "aten::bernoulli",
        "1 with probability self."),
    row("bernoulli_p", "(self: tensor, ...) -> tensor", "aten::bernoulli.p",
        "1 with probability p."),
    row("normal_functional", "(self: tensor, ...) -> tensor", "aten::normal_functional",
        "Normal numbers in the sizes of self."),
    row("rand", "(size: integer[], ...) -> tensor", "aten::rand", "Uniform in [0, 1)."),
    row("rand_like", "(self: tensor, ...) -> tensor", "aten::rand_like", "Uniform in [0, 1)."),
    row("randint", "(high: integer, ...) -> tensor", "aten::randint", "Integers below high."),
    row("randint_low", "(low: integer, ...) -> tensor", "aten::randint.low",
        "Integers from low to below high."),
    row("randn", "(size: integer[], ...) -> tensor", "aten::randn", "Standard normal."),
    row("randn_like", "(self: tensor, ...) -> tensor", "aten::randn_like", "Standard normal."),
    row("randperm", "(n: integer, ...) -> tensor", "aten::randperm", "A random permutation."),
    {.name = "seeded_integers",
     .schema = "(size: integer[], low: integer, high: integer, seed: tensor, number: integer, "
               "dtype: dtype) -> tensor",
     .doc = "Integers from low to below high, from a seed.",
     .infer = infer_integers,
     .lower = lower_integers,
     .reference = reference_integers,
     .aten = "inkle::integers",
     .samples = integers_samples},
    {.name = "seeded_normal",
     .schema = "(size: integer[], seed: tensor, number: integer, dtype: dtype) -> tensor",
     .doc = "Standard normal, of a seed.",
     .infer = infer_normal,
     .lower = lower_normal,
     .reference = reference_normal,
     .aten = "inkle::normal",
     .samples = uniform_samples},
    {.name = "seeded_permutation",
     .schema = "(n: integer, seed: tensor, number: integer, dtype: dtype) -> tensor",
     .doc = "A permutation of 0 .. n-1, of a seed.",
     .infer = infer_permutation,
     .lower = lower_permutation,
     .reference = reference_permutation,
     .aten = "inkle::permutation",
     .samples = permutation_samples},
    {.name = "seeded_uniform",
     .schema = "(size: integer[], seed: tensor, number: integer, dtype: dtype) -> tensor",
     .doc = "Uniform in [0, 1), of a seed.",
     .infer = infer_uniform,
     .lower = lower_uniform,
     .reference = reference_uniform,
     .aten = "inkle::uniform",
     .samples = uniform_samples},
    row("uniform", "(self: tensor, ...) -> tensor", "aten::uniform", "Uniform in [from, to)."),
};

}  // namespace

std::span<const graph::OpDef> random_ops() { return kRandom; }

}  // namespace inkle::ops
