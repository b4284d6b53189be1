// Functions of reals that the C library lacks. Interpreters and generated code call the same ones.
#pragma once

namespace inkle {

// The x with erf(x) = y; infinite at -1 and 1, NaN beyond.
[[nodiscard]] double erfinv(double y);

// The derivative of log(gamma(x)); NaN at negative integers, infinite at zeros.
[[nodiscard]] double digamma(double x);

}  // namespace inkle
