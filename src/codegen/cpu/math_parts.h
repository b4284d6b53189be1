// The functions of math_f32.cpp and math_wide.cpp. All take and give f32 of any lanes.
#pragma once

#include <span>

#include "codegen/cpu/ir.h"

namespace inkle::codegen::cpu {

// sum of c[i] * x^i by Horner's rule with fused multiply-adds.
Value* polynomial(Ir& ir, Value* x, std::span<const double> c);
// 2^n as f32 or f64 (the type of `like`), n an integer vector within the exponents of normals.
Value* power_of_two(Ir& ir, Value* n, Type* like);

Value* exp2_f32(Ir& ir, Value* x);
Value* expm1_f32(Ir& ir, Value* x);
Value* log_f32(Ir& ir, Value* x);
Value* log1p_f32(Ir& ir, Value* x);
Value* tanh_f32(Ir& ir, Value* x);
Value* erf_f32(Ir& ir, Value* x);
Value* sin_f32(Ir& ir, Value* x);
Value* cos_f32(Ir& ir, Value* x);

// Through f64.
// exp(factor x), of any lanes.
Value* exp_by_f64(Ir& ir, Value* x, double factor);
// exp(x) - 1, of any lanes.
Value* expm1_by_f64(Ir& ir, Value* x);
Value* log2_f32(Ir& ir, Value* x);
Value* log10_f32(Ir& ir, Value* x);
Value* tan_f32(Ir& ir, Value* x);
Value* asin_f32(Ir& ir, Value* x);
Value* acos_f32(Ir& ir, Value* x);
Value* atan_f32(Ir& ir, Value* x);
Value* sinh_f32(Ir& ir, Value* x);
Value* cosh_f32(Ir& ir, Value* x);
Value* asinh_f32(Ir& ir, Value* x);
Value* acosh_f32(Ir& ir, Value* x);
Value* atanh_f32(Ir& ir, Value* x);
Value* erfc_f32(Ir& ir, Value* x);
Value* erfinv_f32(Ir& ir, Value* x);
Value* pow_f32(Ir& ir, Value* x, Value* y);
Value* atan2_f32(Ir& ir, Value* y, Value* x);
Value* hypot_f32(Ir& ir, Value* x, Value* y);

// `result` with the sign of x, where x is zero and elsewhere a sign that result has already.
Value* with_sign_of_zero(Ir& ir, Value* result, Value* x);

// `fast`, but where some lane is beyond 2^40 (and finite) the C function `name` of f64 for all
// lanes.
Value* unless_huge(Ir& ir, Value* x, std::string_view name, const std::function<Value*()>& fast);

}  // namespace inkle::codegen::cpu
