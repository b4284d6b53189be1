// Random bits of a seed: what rows draw that take (..., seed, number, ...). `number` tells apart
// the ops that share a seed.
#pragma once

#include "loop/scalar.h"
#include "ops/infer.h"
#include "ops/interpreter.h"
#include "ops/lowering.h"

namespace inkle::ops::seeded {

// Each op has so many words of its own: of each of the kWords that an element may draw, as many as
// a tensor can have elements. Words of one kind follow each other, as code draws four at a time.
inline constexpr std::int64_t kNumbers = std::int64_t{1} << 40;
inline constexpr std::int64_t kWords = 4;

// Argument `seed` is one i64.
inline void check(graph::Inference& args, std::size_t seed) {
  const graph::Type& type = args.tensor(seed);
  if (type.dtype != abi::DType::i64 || type.rank() != 0) args.fail("the seed is one i64");
}

// 32 random bits, as i64, of the element at `i` of a tensor of these sizes; ops that need several
// words an element ask for each, `which` below kWords.
inline loop::Val word(Lowering& l, loop::BodyBuilder& b, std::size_t seed,
                      const graph::Sizes& sizes, Indices i, std::int64_t which = 0) {
  sym::Expr position = b.context().constant(0);
  for (std::size_t d = 0; d < sizes.size(); ++d) position = position * sizes[d] + i[d];
  const Tensor& t = l.tensor(seed);
  return b.random(
      b.load(t.buffer, abi::DType::i64, t.buffer_indices({})),
      b.index(position + (l.args().integer(seed + 1) * kNumbers + which * (kNumbers / kWords))));
}

inline std::int64_t reference_word(Evaluation& e, std::size_t seed, std::size_t position,
                                   std::int64_t which = 0) {
  return loop::philox(e.tensor(seed).integer(0), e.integer(seed + 1) * kNumbers +
                                                     which * (kNumbers / kWords) +
                                                     static_cast<std::int64_t>(position));
}

}  // namespace inkle::ops::seeded
