#include "schedule/epilogue_patterns.h"

#include <array>
#include <cmath>
#include <functional>

#include "loop/builder.h"

namespace inkle::schedule {
namespace {

using abi::DType;
using abi::PostOpKind;
using loop::Body;
using loop::BodyBuilder;
using loop::Instruction;
using loop::Opcode;
using loop::Val;

bool is_commutative(Opcode opcode) {
  return opcode == Opcode::add || opcode == Opcode::mul || opcode == Opcode::min ||
         opcode == Opcode::max;
}

// Pattern constants are written in double; bodies may carry them rounded to f32.
bool same_constant(double a, double b) {
  return a == b || std::abs(a - b) <= 1e-7 * std::max(std::abs(a), std::abs(b));
}

// Structural match of a pattern against a body: the pattern's only load stands for x.
class BodyMatcher {
 public:
  BodyMatcher(const Body& pattern, const Body& body) : pattern_(pattern), body_(body) {}

  bool match(Val p, Val v) {
    const Instruction& want = pattern_[p];
    if (want.opcode == Opcode::load) {
      if (x) return *x == v;
      x = v;
      return true;
    }
    const Instruction& have = body_[v];
    if (want.opcode != have.opcode || want.dtype != have.dtype ||
        want.operand_count != have.operand_count) {
      return false;
    }
    if (want.opcode == Opcode::constant) return same_constant(want.real, have.real);
    const std::optional<Val> before = x;
    if (match_operands(want, have, false)) return true;
    x = before;
    return is_commutative(want.opcode) && match_operands(want, have, true);
  }

  std::optional<Val> x;

 private:
  bool match_operands(const Instruction& want, const Instruction& have, bool swapped) {
    const std::optional<Val> before = x;
    for (std::size_t o = 0; o < want.operand_count; ++o) {
      const std::size_t other = swapped ? 1 - o : o;
      if (!match(want.operands[o], have.operands[other])) {
        x = before;
        return false;
      }
    }
    return true;
  }

  const Body& pattern_;
  const Body& body_;
};

struct Pattern {
  PostOpKind kind;
  double alpha;
  double beta;
  Val (*write)(BodyBuilder&, Val x);
};

Val f(BodyBuilder& b, double value) { return b.constant(DType::f32, value); }

Val gelu_tanh_inner(BodyBuilder& b, Val x, Val cube) {
  constexpr double kSqrtTwoOverPi = 0.7978845608028654;
  const Val sum = b.add(x, b.mul(f(b, 0.044715), cube));
  return b.add(f(b, 1), b.unary(Opcode::tanh, b.mul(f(b, kSqrtTwoOverPi), sum)));
}
Val erf_plus_one(BodyBuilder& b, Val x) {
  constexpr double kSqrtHalf = 0.7071067811865476;
  return b.add(f(b, 1), b.unary(Opcode::erf, b.mul(x, f(b, kSqrtHalf))));
}
Val logistic(BodyBuilder& b, Val x) {
  return b.div(f(b, 1), b.add(f(b, 1), b.unary(Opcode::exp, b.neg(x))));
}
Val clip_0_6(BodyBuilder& b, Val x) { return b.min(b.max(b.add(x, f(b, 3)), f(b, 0)), f(b, 6)); }

// Several ways to write one function have a row each.
constexpr std::array kPatterns = {
    Pattern{PostOpKind::relu, 0, 0, [](BodyBuilder& b, Val x) { return b.max(x, f(b, 0)); }},
    Pattern{PostOpKind::gelu_erf, 0, 0,
            [](BodyBuilder& b, Val x) { return b.mul(b.mul(x, f(b, 0.5)), erf_plus_one(b, x)); }},
    Pattern{PostOpKind::gelu_erf, 0, 0,
            [](BodyBuilder& b, Val x) { return b.mul(x, b.mul(f(b, 0.5), erf_plus_one(b, x))); }},
    Pattern{PostOpKind::gelu_tanh, 0, 0,
            [](BodyBuilder& b, Val x) {
              const Val cube = b.mul(b.mul(x, x), x);
              return b.mul(b.mul(f(b, 0.5), x), gelu_tanh_inner(b, x, cube));
            }},
    Pattern{PostOpKind::gelu_tanh, 0, 0,
            [](BodyBuilder& b, Val x) {
              const Val cube = b.binary(Opcode::pow, x, f(b, 3));
              return b.mul(b.mul(f(b, 0.5), x), gelu_tanh_inner(b, x, cube));
            }},
    Pattern{PostOpKind::swish, 1, 0,
            [](BodyBuilder& b, Val x) {
              return b.div(x, b.add(f(b, 1), b.unary(Opcode::exp, b.neg(x))));
            }},
    Pattern{PostOpKind::swish, 1, 0,
            [](BodyBuilder& b, Val x) { return b.mul(x, logistic(b, x)); }},
    Pattern{PostOpKind::logistic, 0, 0, logistic},
    Pattern{PostOpKind::tanh, 0, 0, [](BodyBuilder& b, Val x) { return b.unary(Opcode::tanh, x); }},
    Pattern{PostOpKind::hardswish, 0, 0,
            [](BodyBuilder& b, Val x) { return b.div(b.mul(x, clip_0_6(b, x)), f(b, 6)); }},
    Pattern{PostOpKind::hardswish, 0, 0,
            [](BodyBuilder& b, Val x) { return b.mul(b.mul(x, clip_0_6(b, x)), f(b, 1.0 / 6)); }},
    Pattern{PostOpKind::clip, 0, 6,
            [](BodyBuilder& b, Val x) { return b.min(b.max(x, f(b, 0)), f(b, 6)); }},
};

struct Recorded {
  const Pattern* pattern;
  Body body;
};

std::vector<Recorded> record_patterns() {
  std::vector<Recorded> recorded;
  sym::Context context;
  for (const Pattern& pattern : kPatterns) {
    Recorded r{&pattern, {}};
    BodyBuilder builder(r.body, context);
    builder.yield(pattern.write(builder, builder.load(0, DType::f32, {})));
    recorded.push_back(std::move(r));
  }
  return recorded;
}

}  // namespace

std::optional<ActivationMatch> match_activation(const Body& body, Val v) {
  static const std::vector<Recorded> patterns = record_patterns();
  for (const Recorded& recorded : patterns) {
    BodyMatcher matcher(recorded.body, body);
    if (!matcher.match(recorded.body.yields.front(), v) || !matcher.x) continue;
    const Pattern& p = *recorded.pattern;
    return ActivationMatch{p.kind, p.alpha, p.beta, *matcher.x};
  }
  return std::nullopt;
}

std::optional<Val> append_activation(BodyBuilder& body, PostOpKind kind, double alpha, double beta,
                                     Val x) {
  if (kind == PostOpKind::linear) {
    const Val scaled = alpha == 1 ? x : body.mul(f(body, alpha), x);
    return beta == 0 ? scaled : body.add(scaled, f(body, beta));
  }
  for (const Pattern& p : kPatterns) {
    if (p.kind == kind && p.alpha == alpha && p.beta == beta) return p.write(body, x);
  }
  return std::nullopt;
}

}  // namespace inkle::schedule
