// Activations as arithmetic: finds in a recorded body what a library knows as one post-op.
#pragma once

#include <optional>

#include "abi/library_call.h"
#include "loop/body.h"
#include "loop/builder.h"

namespace inkle::schedule {

struct ActivationMatch {
  abi::PostOpKind kind;
  double alpha = 0;
  double beta = 0;
  loop::Val x = 0;  // the argument
};

// The activation whose result is `v`, if the arithmetic that ends there is one (in f32).
[[nodiscard]] std::optional<ActivationMatch> match_activation(const loop::Body& body, loop::Val v);

// The same as arithmetic of f32, with the post-ops that are no activation but take no operand;
// nullopt: there is none.
[[nodiscard]] std::optional<loop::Val> append_activation(loop::BodyBuilder& body,
                                                         abi::PostOpKind kind, double alpha,
                                                         double beta, loop::Val x);

}  // namespace inkle::schedule
