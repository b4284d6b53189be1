// Random numbers. A program that must draw what eager would draw from the same generator leaves
// ATen's ops to the host: their rows say so. Otherwise the frontend asks for numbers of a seed,
// which Philox draws an element at a time.
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
      unsupported("uniform numbers of {}", abi::name_of(dtype));
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
