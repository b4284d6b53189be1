// Random bits of a seed: what rows draw that take (..., seed, number, ...). `number` tells apart
// the ops that share a seed.
#pragma once

#include "loop/scalar.h"
#include "ops/infer.h"
#include "ops/interpreter.h"
#include "ops/lowering.h"

namespace inkle::ops::seeded {

// Each op has so many elements of its own.
inline constexpr std::int64_t kNumbers = std::int64_t{1} << 40;

// Argument `seed` is one i64.
inline void check(graph::Inference& args, std::size_t seed) {
  const graph::Type& type = args.tensor(seed);
  if (type.dtype != abi::DType::i64 || type.rank() != 0) args.fail("the seed is one i64");
}

// 32 random bits, as i64, of the element at `i` of a tensor of these sizes; ops that need several
// numbers an element ask for each of `count`.
inline loop::Val word(Lowering& l, loop::BodyBuilder& b, std::size_t seed,
                      const graph::Sizes& sizes, Indices i, std::int64_t which = 0,
                      std::int64_t count = 1) {
  sym::Expr position = b.context().constant(0);
  for (std::size_t d = 0; d < sizes.size(); ++d) position = position * sizes[d] + i[d];
  const Tensor& t = l.tensor(seed);
  return b.random(b.load(t.buffer, abi::DType::i64, t.buffer_indices({})),
                  b.index(position * count + (l.args().integer(seed + 1) * kNumbers + which)));
}

inline std::int64_t reference_word(Evaluation& e, std::size_t seed, std::size_t position,
                                   std::int64_t which = 0, std::int64_t count = 1) {
  return loop::philox(
      e.tensor(seed).integer(0),
      e.integer(seed + 1) * kNumbers + static_cast<std::int64_t>(position) * count + which);
}

}  // namespace inkle::ops::seeded
