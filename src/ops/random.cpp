// Random numbers. A program must draw what eager would draw from the same generator, so the host
// runs these; the rows say so and give their ATen names.
#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

using graph::Inference;
using infer::Types;

Types infer_nothing(Inference& args) {
  unsupported("{} draws from the host's generator", args.op().name);
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
    row("uniform", "(self: tensor, ...) -> tensor", "aten::uniform", "Uniform in [from, to)."),
};

}  // namespace

std::span<const graph::OpDef> random_ops() { return kRandom; }

}  // namespace inkle::ops
