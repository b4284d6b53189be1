// Text in CUDA C++. It needs no header: only what NVRTC has built in (vector types, shuffles, the
// functions of libdevice).
#include "codegen/cuda/prelude.h"

namespace inkle::codegen::cuda {
namespace {

constexpr const char* kTypes = R"(
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef long long i64;
typedef unsigned u32;
typedef unsigned long long u64;
struct alignas(2) bf16 { unsigned short bits; };
struct alignas(2) f16 { unsigned short bits; };
#define INLINE static __device__ __forceinline__

template <class P> INLINE void launder(P& p) { asm volatile("" : "+l"(p)::"memory"); }

INLINE float to_f32(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
INLINE float to_f32(f16 x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits));
  return r;
}
// Of a pair, as the conversion of one value runs at a quarter of the speed.
INLINE bf16 to_bf16(float x) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(x));
  bf16 r;
  r.bits = (unsigned short)pair;
  return r;
}
INLINE f16 to_f16(float x) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(x));
  f16 r;
  r.bits = (unsigned short)pair;
  return r;
}
// The value of the narrow type nearest to x: as the upper half of a pair it is a float already.
INLINE float round_bf16(float x) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x), "f"(0.0f));
  return __uint_as_float(pair);
}
INLINE float round_f16(float x) { return to_f32(to_f16(x)); }
INLINE bf16 make_bf16(unsigned short bits) { bf16 r; r.bits = bits; return r; }
INLINE f16 make_f16(unsigned short bits) { f16 r; r.bits = bits; return r; }
// The first thing that a kernel does. Its blocks may be there before what was queued earlier has
// ended: nothing is read or written before that. The addresses of what is only read come out of
// here, as NVVM may move such reads as it likes.
template <class... P> INLINE void begin(P&... p) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const int each[] = {0, (launder(p), 0)...};
  (void)each;
#endif
}
// The same for a kernel that reads by the read-only path. Within a basic block ptxas moves such
// reads anywhere, above the wait too. So the wait ends its block: no kernel is without a status.
template <class... P> INLINE void begin_read_only(const u32* status, P&... p) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{.reg .pred none;\n"
      "griddepcontrol.wait;\n"
      "setp.eq.u64 none, %0, 0;\n"
      "@none exit;}" ::"l"(status) : "memory");
  const int each[] = {0, (launder(p), 0)...};
  (void)each;
#endif
}
// N neighbouring elements.
template <class T, int N>
struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Pack {
  T at[N];
};
// A lane as a float, without taking halves of words apart.
template <int N> INLINE float to_f32(const Pack<bf16, N>& p, int l) {
  const u32 word = ((const u32*)&p)[l / 2];
  return __uint_as_float(l % 2 == 0 ? word << 16 : word & 0xffff0000u);
}
template <int N> INLINE float to_f32(const Pack<f16, N>& p, int l) { return to_f32(p.at[l]); }
template <int Bytes> struct Word;
template <> struct Word<1> { typedef u8 type; };
template <> struct Word<2> { typedef unsigned short type; };
template <> struct Word<4> { typedef u32 type; };
template <> struct Word<8> { typedef uint2 type; };
template <> struct Word<16> { typedef uint4 type; };
template <int Bytes> INLINE void read_word(void* to, const void* from) {
  *(typename Word<Bytes>::type*)to = *(const typename Word<Bytes>::type*)from;
}
template <int Bytes> INLINE void read_word_constant(void* to, const void* from) {
  *(typename Word<Bytes>::type*)to = __ldg((const typename Word<Bytes>::type*)from);
}
// N elements in accesses of W, which the address is aligned to.
template <int N, int W, class T> INLINE Pack<T, N> load(const T* p) {
  Pack<T, N> r;
  constexpr int S = sizeof(T) * W > 16 ? 16 / (int)sizeof(T) : W;
#pragma unroll
  for (int l = 0; l < N; l += S) read_word<S * (int)sizeof(T)>(&r.at[l], p + l);
  return r;
}
// The same of memory that nobody writes while the kernel runs.
template <int N, int W, class T> INLINE Pack<T, N> load_constant(const T* p) {
  Pack<T, N> r;
  constexpr int S = sizeof(T) * W > 16 ? 16 / (int)sizeof(T) : W;
#pragma unroll
  for (int l = 0; l < N; l += S) read_word_constant<S * (int)sizeof(T)>(&r.at[l], p + l);
  return r;
}
// What is read once: it need not stay in the first cache. Volatile, since the compiler may move other
// assembly out of a condition, and read where nothing is.
template <int Bytes> INLINE void read_word_once(void* to, const void* from) {
  u32* w = (u32*)to;
  if (Bytes == 16) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(from));
  } else if (Bytes == 8) {
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
        : "=r"(w[0]), "=r"(w[1]) : "l"(from));
  } else if (Bytes == 4) {
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(w[0]) : "l"(from));
  } else {
    read_word_constant<Bytes>(to, from);
  }
}
template <int N, int W, class T> INLINE Pack<T, N> load_once(const T* p) {
  Pack<T, N> r;
  constexpr int S = sizeof(T) * W > 16 ? 16 / (int)sizeof(T) : W;
#pragma unroll
  for (int l = 0; l < N; l += S) read_word_once<S * (int)sizeof(T)>(&r.at[l], p + l);
  return r;
}
// What is read once and stays in the cache that all share after the rest has left it.
template <int N, int W, class T> INLINE Pack<T, N> load_lasting(const T* p) {
  constexpr int S = sizeof(T) * W > 16 ? 16 / (int)sizeof(T) : W;
  if (S * sizeof(T) != 16) return load_once<N, W>(p);
  u64 policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  Pack<T, N> r;
#pragma unroll
  for (int l = 0; l < N; l += S) {
    u32* w = (u32*)&r.at[l];
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
        : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(p + l), "l"(policy));
  }
  return r;
}
// Of memory that nobody writes, before what comes after it in the text.
template <int Bytes> INLINE void read_word_now(void* to, const void* from) {
  u32* w = (u32*)to;
  if (Bytes == 16) {
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(from));
  } else if (Bytes == 8) {
    asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(from));
  } else if (Bytes == 4) {
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(w[0]) : "l"(from));
  } else {
    read_word_constant<Bytes>(to, from);
  }
}
template <int N, int W, class T> INLINE Pack<T, N> load_now(const T* p) {
  Pack<T, N> r;
  constexpr int S = sizeof(T) * W > 16 ? 16 / (int)sizeof(T) : W;
#pragma unroll
  for (int l = 0; l < N; l += S) read_word_now<S * (int)sizeof(T)>(&r.at[l], p + l);
  return r;
}
template <int W, class T, int N> INLINE void store(T* p, const Pack<T, N>& v) {
  constexpr int S = sizeof(T) * W > 16 ? 16 / (int)sizeof(T) : W;
#pragma unroll
  for (int l = 0; l < N; l += S) read_word<S * (int)sizeof(T)>(p + l, &v.at[l]);
}
// The same of what nobody reads soon: what is read again stays in the cache that all share.
template <int W, class T, int N> INLINE void store_away(T* p, const Pack<T, N>& v) {
  constexpr int S = sizeof(T) * W > 16 ? 16 / (int)sizeof(T) : W;
#pragma unroll
  for (int l = 0; l < N; l += S) {
    if (S * sizeof(T) == 16) {
      const u32* w = (const u32*)&v.at[l];
      asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p + l), "r"(w[0]),
                   "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
    } else {
      read_word<S * (int)sizeof(T)>(p + l, &v.at[l]);
    }
  }
}
template <int N> INLINE Pack<bf16, N> narrow(bf16*, const float (&v)[N]) {
  Pack<bf16, N> r;
#pragma unroll
  for (int l = 0; l + 1 < N; l += 2) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(*(u32*)&r.at[l]) : "f"(v[l + 1]), "f"(v[l]));
  }
  return r;
}
template <int N> INLINE Pack<f16, N> narrow(f16*, const float (&v)[N]) {
  Pack<f16, N> r;
#pragma unroll
  for (int l = 0; l + 1 < N; l += 2) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(*(u32*)&r.at[l]) : "f"(v[l + 1]), "f"(v[l]));
  }
  return r;
}
)";

constexpr const char* kOperations = R"(
template <class To, class From> INLINE To bit_cast(From x) {
  union { From from; To to; } u;
  u.from = x;
  return u.to;
}
INLINE void fault(u32* status, u32 code) { *(volatile u32*)status = code; }

INLINE float max_of(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
INLINE float min_of(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
INLINE double max_of(double a, double b) { return a != a ? a : (b < a ? a : b); }
INLINE double min_of(double a, double b) { return a != a ? a : (a < b ? a : b); }
template <class T> INLINE T max_of(T a, T b) { return a < b ? b : a; }
template <class T> INLINE T min_of(T a, T b) { return b < a ? b : a; }
// Of two maxima ptxas 13.0 for sm_90 makes one instruction, and loses the sign of an operand that is
// negated: max(max(-a, -b), -c) becomes max(-a, b, -c). So it does not see the negation.
INLINE u32 negated(u32 x) {
  u32 r;
  asm("{ .reg .b32 n; not.b32 n, %1; add.u32 %0, n, 1; }" : "=r"(r) : "r"(x));
  return r;
}

// A constant that NVVM does not know.
INLINE int hidden(int x) {
  int r;
  asm("mov.s32 %0, %1;" : "=r"(r) : "r"(x));
  return r;
}
INLINE i64 hidden(i64 x) {
  i64 r;
  asm("mov.s64 %0, %1;" : "=l"(r) : "l"(x));
  return r;
}

// Python's // and % for a divisor that is not 0.
template <class T> INLINE T floor_divide(T a, T b) {
  const T q = a / b;
  return q - (T)((a % b != 0) && ((a < 0) != (b < 0)));
}
template <class T> INLINE T floor_modulo(T a, T b) {
  const T r = a % b;
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}
// Integer division of values: a divisor of 0 fails the call, the least number by -1 wraps.
template <class T> INLINE T divide(T a, T b, bool active, u32* status) {
  if (b == 0) {
    if (active) fault(status, 2);
    return a;
  }
  if ((T)-1 < 0 && b == (T)-1) return (T)(0 - (u64)a);
  return a / b;
}
template <class T> INLINE T divide_floor(T a, T b, bool active, u32* status) {
  const T q = divide(a, b, active, status);
  const T r = (T)((u64)a - (u64)q * (u64)b);
  return q - (T)(r != 0 && ((r < 0) != (b < 0)));
}
template <class T> INLINE T modulo(T a, T b, bool active, u32* status) {
  return (T)((u64)a - (u64)divide(a, b, active, status) * (u64)b);
}
template <class T> INLINE T modulo_floor(T a, T b, bool active, u32* status) {
  const T r = modulo(a, b, active, status);
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}
INLINE float c_fmod(float a, float b) { return fmodf(a, b); }
INLINE double c_fmod(double a, double b) { return fmod(a, b); }
INLINE float sign_as(float a, float b) { return copysignf(a, b); }
INLINE double sign_as(double a, double b) { return copysign(a, b); }
INLINE float round_down(float a) { return floorf(a); }
INLINE double round_down(double a) { return floor(a); }
template <class T> INLINE T real_modulo(T a, T b) {
  const T m = c_fmod(a, b);
  return m != 0 && ((b < 0) != (m < 0)) ? m + b : m;
}
template <class T> INLINE T real_floor_divide(T a, T b) {
  if (b == 0) return a / b;
  const T m = c_fmod(a, b);
  T q = (a - m) / b;
  if (m != 0 && ((b < 0) != (m < 0))) q -= 1;
  if (q == 0) return sign_as((T)0, a / b);
  T down = round_down(q);
  if (q - down > (T)0.5) down += 1;
  return down;
}
template <class T> INLINE T shift_left(T a, T n) {
  return (u64)n >= 8 * sizeof(T) ? (T)0 : (T)((u64)a << n);
}
template <class T> INLINE T shift_right(T a, T n) {
  constexpr int last = 8 * sizeof(T) - 1;
  if ((u64)n > last) return (T)-1 < 0 ? (T)(a >> last) : (T)0;
  return (T)(a >> n);
}
INLINE void philox_words(i64 seed, i64 counter, u32 (&c)[4]) {
  u32 k0 = (u32)seed, k1 = (u32)((u64)seed >> 32);
  c[0] = (u32)counter;
  c[1] = (u32)((u64)counter >> 32);
  c[2] = c[3] = 0;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u32 h0 = __umulhi(0xD2511F53u, c[0]), l0 = 0xD2511F53u * c[0];
    const u32 h1 = __umulhi(0xCD9E8D57u, c[2]), l1 = 0xCD9E8D57u * c[2];
    c[0] = h1 ^ c[1] ^ k0;
    c[1] = l1;
    c[2] = h0 ^ c[3] ^ k1;
    c[3] = l0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}
INLINE i64 philox(i64 seed, i64 offset) {
  u32 c[4];
  philox_words(seed, offset >> 2, c);
  const u32 low = offset & 1 ? c[1] : c[0], high = offset & 1 ? c[3] : c[2];
  return offset & 2 ? high : low;
}
// Of n offsets from a multiple of 4 on: four of them share what is computed.
template <int n> INLINE Pack<i64, n> philox_pack(i64 seed, i64 offset) {
  Pack<i64, n> words;
#pragma unroll
  for (int i = 0; i < n; i += 4) {
    u32 c[4];
    philox_words(seed, (offset + i) >> 2, c);
#pragma unroll
    for (int k = 0; k < 4; ++k) words.at[i + k] = c[k];
  }
  return words;
}
// Both halves of the line are computed and one is taken: a choice between coefficients takes more
// instructions. Errors below 1 unit in the last place for |x| < 1, below 1.8 elsewhere; from 4 on
// the exponent is below -25 and the result 1.
INLINE float erf_of(float x) {
  const float a = fabsf(x), s = x * x;
  float p = 7.853857823647559e-05f;
  p = __fmaf_rn(p, s, -0.0008010192541405559f);
  p = __fmaf_rn(p, s, 0.005188327748328447f);
  p = __fmaf_rn(p, s, -0.026853810995817184f);
  p = __fmaf_rn(p, s, 0.1128358542919159f);
  p = __fmaf_rn(p, s, -0.3761262595653534f);
  p = __fmaf_rn(p, s, 0.12837916612625122f);
  const float small = __fmaf_rn(p, x, x);
  // The logarithm of 1 - erf(a) to base 2.
  float q = -3.128750904579647e-05f;
  q = __fmaf_rn(q, a, 0.0006367138121277094f);
  q = __fmaf_rn(q, a, -0.0060659004375338554f);
  q = __fmaf_rn(q, a, 0.03636782616376877f);
  q = __fmaf_rn(q, a, -0.1564149409532547f);
  q = __fmaf_rn(q, a, -0.9135432243347168f);
  q = __fmaf_rn(q, a, -1.6296372413635254f);
  q = __fmaf_rn(q, a, 0.0002712846908252686f);
  float rest;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(rest) : "f"(q));
  return a >= 1.0f ? copysignf(1.0f - rest, x) : small;
}
INLINE double erf_of(double x) { return erf(x); }
// 1 + erf(x) with an absolute error below 3e-7, for results that are rounded to 8 or 11 bits: one
// line for all x, the logarithm of 1 - erf(|x|) to base 2. Nearer to 0 than 1 + erf_of(x) where
// they cancel.
INLINE float one_plus_erf(float x) {
  const float a = fabsf(x);
  float q = -4.5358396164374426e-05f;
  q = __fmaf_rn(q, a, 0.0004455061862245202f);
  q = __fmaf_rn(q, a, -0.0014894376508891582f);
  q = __fmaf_rn(q, a, -0.0007746351766400039f);
  q = __fmaf_rn(q, a, 0.02825368568301201f);
  q = __fmaf_rn(q, a, -0.14848162233829498f);
  q = __fmaf_rn(q, a, -0.9184163808822632f);
  q = __fmaf_rn(q, a, -1.6279085874557495f);
  float rest;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(rest) : "f"(q * a));
  return x < 0.0f ? rest : 2.0f - rest;
}
INLINE double digamma(double x) {
  if (x == 0) return copysign(__longlong_as_double(0x7ff0000000000000ll), -x);
  double r = 0;
  if (x < 0) {
    if (x == trunc(x)) return __longlong_as_double(0x7ff8000000000000ll);
    const double whole = trunc(x);
    r = -3.14159265358979323846 / tan(3.14159265358979323846 * (x - whole));
    x = 1 - x;
  }
  while (x < 10) {
    r -= 1 / x;
    x += 1;
  }
  if (x == 10) return r + 2.25175258906672110764;
  const double z = 1 / (x * x);
  double y = 0;
  if (x < 1e17) {
    y = z * (8.33333333333333333333e-2 +
             z * (-8.33333333333333333333e-3 +
                  z * (3.96825396825396825397e-3 +
                       z * (-4.16666666666666666667e-3 +
                            z * (7.57575757575757575758e-3 +
                                 z * (-2.10927960927960927961e-2 +
                                      z * 8.33333333333333333333e-2))))));
  }
  return r + log(x) - 0.5 / x - y;
}

// One divisor of many numbers, for quotients that are rounded to 8 or 11 bits at once: the error is
// below 1.5 units in the last of 24. The scale keeps the reciprocal a normal number.
struct Divisor { float scale, reciprocal; };
INLINE Divisor divisor(float s) {
  const float a = fabsf(s);
  const float scale = a < 0x1p-100f ? 0x1p100f : a > 0x1p100f ? 0x1p-100f : 1.0f;
  return {scale, 1.0f / (s * scale)};
}
INLINE float over(float a, Divisor d) { return a * d.scale * d.reciprocal; }

INLINE float exponential(float x) { return expf(x); }
INLINE double exponential(double x) { return exp(x); }
// exp(x), x at most 4, for sums of which each term is a part: the product's error makes a term off by
// |x| 2^-24 of itself, which is less than 2^-22 of the sum, as small terms are a small part of it.
INLINE float term(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x * 1.44269504f));
  return r;
}
INLINE double term(double x) { return exp(x); }

// Sums into memory, in any order.
INLINE void add_to(float* p, float v) { atomicAdd(p, v); }
INLINE void add_to(double* p, double v) { atomicAdd(p, v); }
INLINE void add_to(int* p, int v) { atomicAdd(p, v); }
INLINE void add_to(i64* p, i64 v) { atomicAdd((u64*)p, (u64)v); }
template <class T, class F> INLINE void replace_half(T* p, F f) {
  u32* word = (u32*)((u64)p & ~(u64)3);
  const int shift = ((u64)p & 2) != 0 ? 16 : 0;
  u32 seen = *(volatile u32*)word, next;
  do {
    next = seen;
    T half;
    half.bits = (unsigned short)(next >> shift);
    const u32 made = (next & ~(0xffffu << shift)) | ((u32)f(half).bits << shift);
    seen = atomicCAS(word, next, made);
  } while (seen != next);
}
INLINE void add_to(bf16* p, bf16 v) {
  replace_half(p, [v](bf16 x) { return to_bf16(to_f32(x) + to_f32(v)); });
}
INLINE void add_to(f16* p, f16 v) {
  replace_half(p, [v](f16 x) { return to_f16(to_f32(x) + to_f32(v)); });
}
)";

}  // namespace

const std::string& prelude() {
  static const std::string text = std::string("// Made by Inkle. Compile with --fmad=false.") +
                                  kTypes + kOperations + exchange_helpers();
  return text;
}

}  // namespace inkle::codegen::cuda
