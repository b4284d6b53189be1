// The part of the prelude in which threads work together: reductions and scans of warps, blocks and
// clusters.
#include "codegen/cuda/prelude.h"

namespace inkle::codegen::cuda {
namespace {

constexpr const char* kTeams = R"(
// Ways to join two partial results.
struct Sum { template <class T> INLINE T join(T a, T b) { return a + b; } };
struct Prod { template <class T> INLINE T join(T a, T b) { return a * b; } };
struct Min { template <class T> INLINE T join(T a, T b) { return min_of(a, b); } };
struct Max { template <class T> INLINE T join(T a, T b) { return max_of(a, b); } };
struct Any { INLINE bool join(bool a, bool b) { return a | b; } };
struct All { INLINE bool join(bool a, bool b) { return a & b; } };

// The best value and where it is: the first of ties, a NaN before all else.
template <class T, class I> struct Best { T value; I at; };
template <class T> INLINE bool beats_max(T x, T best) {
  return x > best || (x != x && best == best);
}
template <class T> INLINE bool beats_min(T x, T best) {
  return x < best || (x != x && best == best);
}
struct ArgMax {
  template <class T, class I> INLINE Best<T, I> join(Best<T, I> a, Best<T, I> b) {
    const bool same = !beats_max(a.value, b.value) && !beats_max(b.value, a.value);
    return (same ? b.at < a.at : beats_max(b.value, a.value)) ? b : a;
  }
};
struct ArgMin {
  template <class T, class I> INLINE Best<T, I> join(Best<T, I> a, Best<T, I> b) {
    const bool same = !beats_min(a.value, b.value) && !beats_min(b.value, a.value);
    return (same ? b.at < a.at : beats_min(b.value, a.value)) ? b : a;
  }
};

// The lanes' values at positions from `at` on, which come after all that `a` has seen.
template <class T, class I, int N> INLINE void add_max(Best<T, I>& a, const T (&w)[N], I at) {
  T top = w[0];
#pragma unroll
  for (int l = 1; l < N; ++l) top = max_of(top, w[l]);
  if (!(top <= a.value) && beats_max(top, a.value)) {
    a.value = top;
    int first = 0;
#pragma unroll
    for (int l = N - 1; l >= 0; --l) {
      if (w[l] == top || w[l] != w[l]) first = l;
    }
    a.at = at + first;
  }
}
template <class T, class I, int N> INLINE void add_min(Best<T, I>& a, const T (&w)[N], I at) {
  T top = w[0];
#pragma unroll
  for (int l = 1; l < N; ++l) top = min_of(top, w[l]);
  if (!(top >= a.value) && beats_min(top, a.value)) {
    a.value = top;
    int first = 0;
#pragma unroll
    for (int l = N - 1; l >= 0; --l) {
      if (w[l] == top || w[l] != w[l]) first = l;
    }
    a.at = at + first;
  }
}
template <class T, int K, int N> INLINE T max_of_all(const T (&w)[K][N]) {
  T top = w[0][0];
#pragma unroll
  for (int k = 0; k < K; ++k) {
#pragma unroll
    for (int l = 0; l < N; ++l) top = max_of(top, w[k][l]);
  }
  return top;
}
template <class T, int K, int N> INLINE T min_of_all(const T (&w)[K][N]) {
  T top = w[0][0];
#pragma unroll
  for (int k = 0; k < K; ++k) {
#pragma unroll
    for (int l = 0; l < N; ++l) top = min_of(top, w[k][l]);
  }
  return top;
}
// The first place of this value, or of a NaN, among accesses `step` elements apart.
template <class T, int K, int N>
INLINE int place_in(const T (&w)[K][N], T best, int first, int step) {
  int at = 2147483647;
#pragma unroll
  for (int k = K - 1; k >= 0; --k) {
#pragma unroll
    for (int l = N - 1; l >= 0; --l) {
      if (w[k][l] == best || w[k][l] != w[k][l]) at = first + k * step + l;
    }
  }
  return at;
}
// Where nothing was better than the least value there is, the first element is as good.
template <class T, class I> INLINE i64 place_of(Best<T, I> a) {
  constexpr I none = (I)(sizeof(I) == 4 ? 2147483647ll : 9223372036854775807ll);
  return a.at == none ? 0 : (i64)a.at;
}

// Count, mean and sum of squared deviations of a part.
template <class T> struct Moments { T count, mean, m2; };
struct Welford {
  template <class T> INLINE Moments<T> join(Moments<T> a, Moments<T> b) {
    const T n = a.count + b.count;
    const T share = n == 0 ? (T)0 : b.count / n;
    const T d = b.mean - a.mean;
    Moments<T> r;
    r.count = n;
    r.mean = a.mean + d * share;
    r.m2 = a.m2 + b.m2 + d * d * a.count * share;
    return r;
  }
};
// One more element of a part whose count is kept elsewhere; share: 1 / the count with it.
template <class T> INLINE void add_moment(Moments<T>& a, T x, T share) {
  const T d = x - a.mean;
  a.mean += d * share;
  a.m2 += d * (x - a.mean);
}
INLINE float exponential(float x) { return expf(x); }
INLINE double exponential(double x) { return exp(x); }
template <class T> INLINE T lowest() { return (T)__int_as_float(0xff800000); }
// exp(x), x at most 4, for sums of which each term is a part: the product's error makes a term off by
// |x| 2^-24 of itself, which is less than 2^-22 of the sum, as small terms are a small part of it.
INLINE float term(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x * 1.44269504f));
  return r;
}
INLINE double term(double x) { return exp(x); }
// A maximum and the sum of exp(x - maximum). Before the end the sum of a part without a finite
// element is 0; finish() makes it what exp(x - maximum) adds up to.
// While a thread adds, its sum is of exp(x - base), the base a maximum of before that is at most 4
// below the present one: raising it with every new maximum would keep a warp busy with that.
template <class T> struct Exponentials { T top, sum, base; };
struct Softmax {
  template <class T> INLINE T scale(T from, T to) {
    return from == to || from == lowest<T>() ? (T)(from == to) : exponential(from - to);
  }
  template <class T> INLINE Exponentials<T> join(Exponentials<T> a, Exponentials<T> b) {
    Exponentials<T> r;
    r.top = max_of(a.top, b.top);
    r.sum = a.sum * scale(a.top, r.top) + b.sum * scale(b.top, r.top);
    return r;
  }
};
template <class T> INLINE Exponentials<T> finish(Exponentials<T> a) {
  const T inf = -lowest<T>();
  if (!(a.top > lowest<T>() && a.top < inf)) a.sum = inf - inf;
  return a;
}

// The moments of lanes first <= l < last.
template <class T, int N>
INLINE Moments<T> moments_of(const T (&w)[N], int first, int last) {
  Moments<T> r = {0, 0, 0};
  if (first == 0 && last == N) {
#pragma unroll
    for (int l = 0; l < N; ++l) r.mean += w[l];
    r.mean *= (T)1 / N;
#pragma unroll
    for (int l = 0; l < N; ++l) r.m2 += (w[l] - r.mean) * (w[l] - r.mean);
    r.count = N;
    return r;
  }
#pragma unroll
  for (int l = 0; l < N; ++l) {
    if (l >= first && l < last) r = Welford::join(r, Moments<T>{1, w[l], 0});
  }
  return r;
}
template <class T, int N> INLINE void add_exponentials(Exponentials<T>& a, const T (&w)[N]) {
#pragma unroll
  for (int l = 0; l < N; ++l) a.top = max_of(a.top, w[l]);
  if (!(a.top <= a.base + 4)) {
    a.sum *= Softmax::scale(a.base, a.top);
    a.base = a.top;
  }
  if (a.base == lowest<T>()) return;
#pragma unroll
  for (int l = 0; l < N; ++l) a.sum += term(w[l] - a.base);
}
template <class T> INLINE void settle(Exponentials<T>& a) {
  a.sum *= Softmax::scale(a.base, a.top);
}

// The lanes of this thread's team of so many, a power of two: other teams of the warp may have ended.
template <int Lanes> INLINE u32 team() {
  return Lanes >= 32 ? 0xffffffffu : ((1u << (Lanes & 31)) - 1) << (threadIdx.x & (32 - Lanes));
}
// Values of any size go from lane to lane in words.
template <class T, class F> INLINE T by_words(T x, F move) {
  constexpr int Words = (sizeof(T) + 3) / 4;
  union { T value; u32 words[Words]; } a, b;
  a.words[Words - 1] = 0;
  a.value = x;
#pragma unroll
  for (int w = 0; w < Words; ++w) b.words[w] = move(a.words[w]);
  return b.value;
}
template <class T> INLINE T exchange(T x, int with, u32 members) {
  return by_words(x, [=](u32 word) { return __shfl_xor_sync(members, word, with); });
}
// The values of other lanes, among `Lanes` that lie side by side.
template <int Lanes = 32, class T> INLINE T shuffle_from(T x, int lane, u32 members) {
  return by_words(x, [=](u32 word) { return __shfl_sync(members, word, lane, Lanes); });
}
template <int Lanes = 32, class T> INLINE T shuffle_up(T x, int by, u32 members) {
  return by_words(x, [=](u32 word) { return __shfl_up_sync(members, word, by, Lanes); });
}
template <int Lanes = 32, class T> INLINE T shuffle_down(T x, int by, u32 members) {
  return by_words(x, [=](u32 word) { return __shfl_down_sync(members, word, by, Lanes); });
}
// `Members` of the warp come here together: the team alone, or all.
template <class Op, int Lanes, int Members = Lanes, class T> INLINE T reduce_warp(T x) {
  const u32 members = team<Members>();
#pragma unroll
  for (int d = Lanes / 2; d > 0; d /= 2) x = Op::join(x, exchange(x, d, members));
  return x;
}
// All threads of the block get the result; the number of warps is a power of two. `slots` has a
// place for each warp and is used for nothing else.
template <class Op, int Threads, class T> INLINE T reduce_block(T x, T* slots) {
  constexpr int Warps = Threads / 32;
  x = reduce_warp<Op, 32>(x);
  if (Warps == 1) return x;
  if ((threadIdx.x & 31) == 0) slots[threadIdx.x >> 5] = x;
  __syncthreads();
  return reduce_warp<Op, Warps, 32>(slots[threadIdx.x & (Warps - 1)]);
}
// Copies to shared memory that go on while the thread works, by groups; the thread alone that asked
// for them waits for them, until at most `Groups` of the last are under way.
template <int Bytes> INLINE void copy_ahead(char* to, const void* from) {
  const u32 at = (u32)__cvta_generic_to_shared(to);
  if (Bytes == 8) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(at), "l"(from) : "memory");
  }
#pragma unroll
  for (int b = 0; b + 16 <= Bytes; b += 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at + b),
                 "l"((const char*)from + b)
                 : "memory");
  }
}
INLINE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Groups> INLINE void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
}
// Sums of the positions that a thread has, on their way from one team to another. `slots`: N * Team
// for each team that hands over.
template <int Team, class T, int L, int N>
INLINE void put_sums(const Pack<T, L> (&sums)[N], Pack<T, L>* slots, int q, int t) {
#pragma unroll
  for (int k = 0; k < N; ++k) slots[(q * N + k) * Team + t] = sums[k];
}
template <int Team, class T, int L, int N>
INLINE void add_sums(Pack<T, L> (&sums)[N], const Pack<T, L>* slots, int q, int t) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const Pack<T, L> other = slots[(q * N + k) * Team + t];
#pragma unroll
    for (int l = 0; l < L; ++l) sums[k].at[l] += other.at[l];
  }
}
// By halves.
template <class T, int L> INLINE T sum_of(T (&x)[L]) {
#pragma unroll
  for (int half = L / 2; half > 0; half /= 2) {
#pragma unroll
    for (int l = 0; l < half; ++l) x[l] += x[l + half];
  }
  return x[0];
}
// Several sums at once: their exchanges do not wait for each other.
template <int Lanes, int Members = Lanes, class T, int N> INLINE void sum_warp(T (&x)[N]) {
  const u32 members = team<Members>();
#pragma unroll
  for (int d = Lanes / 2; d > 0; d /= 2) {
#pragma unroll
    for (int n = 0; n < N; ++n) x[n] += exchange(x[n], d, members);
  }
}
// `slots` has N places for each warp.
template <int Threads, class T, int N> INLINE void sum_block(T (&x)[N], T* slots) {
  constexpr int Warps = Threads / 32;
  sum_warp<32>(x);
  if ((threadIdx.x & 31) == 0) {
#pragma unroll
    for (int n = 0; n < N; ++n) slots[n * Warps + (threadIdx.x >> 5)] = x[n];
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < N; ++n) x[n] = slots[n * Warps + (threadIdx.x & (Warps - 1))];
  sum_warp<Warps, 32>(x);
}
// Threads of one column lie X apart, Y (a power of two) of them; each gets the result. `slots` has a
// place for every thread and lane and is used for nothing else: N * X results for each of Y rows.
// More than 8 rows are joined by halves, whose joins all threads share; the last 8 one after the
// other, a result by one thread (by each thread all of its lanes, it was 8 times the code: resnet50's
// kernels took 8.3 s to compile, 5.6 so).
template <class Op, int X, int Y, class T, int N>
INLINE void reduce_columns(T (&a)[N], T* slots) {
  const int x = threadIdx.x % X, y = threadIdx.x / X;
#pragma unroll
  for (int l = 0; l < N; ++l) slots[(y * N + l) * X + x] = a[l];
  __syncthreads();
#pragma unroll 1
  for (int half = Y / 2; half >= 8; half /= 2) {
#pragma unroll 1
    for (int p = y; p < half * N; p += Y) {
      T& mine = slots[p * X + x];
      mine = Op::join(mine, slots[(p + half * N) * X + x]);
    }
    __syncthreads();
  }
  constexpr int Rest = Y < 8 ? Y : 8;
#pragma unroll 1
  for (int l = y; l < N; l += Y) {
    T r = slots[l * X + x];
#pragma unroll
    for (int other = 1; other < Rest; ++other) r = Op::join(r, slots[(other * N + l) * X + x]);
    slots[l * X + x] = r;
  }
  __syncthreads();
#pragma unroll
  for (int l = 0; l < N; ++l) a[l] = slots[l * X + x];
}
// Whether this block is the last of `count` to come here: it then sees all that the others have
// stored. `counter` is 0 before the first comes and after the last has come.
INLINE bool last_of(u32* counter, u32 count) {
  __shared__ u32 before;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    before = count == 1 ? 0 : atomicAdd(counter, 1u);
    __threadfence();
    if (count != 1 && before == count - 1) *(volatile u32*)counter = 0;
  }
  __syncthreads();
  return before == count - 1;
}
// Numbers of 4 bytes that blocks leave for the one that has begun last, when all others are under way:
// with a mark in the same word, they need no order among stores. Cells are 0 before and after.
INLINE u32 begin_number(u32* counter) { return threadIdx.x == 0 ? atomicAdd(counter, 1u) : 0u; }
INLINE bool began_last(u32 number, u32* counter, u32 count) {
  __shared__ u32 is_last;
  if (threadIdx.x == 0) {
    is_last = number == count - 1;
    if (is_last) *(volatile u32*)counter = 0;
  }
  __syncthreads();
  return is_last;
}
template <class T> INLINE void leave_cell(u64* cell, T x) {
  union { T value; u32 bits; } u;
  u.value = x;
  *(volatile u64*)cell = (u64)u.bits | (u64)1 << 32;
}
template <class T> INLINE void take_cells(u64* cells, u32 count, T* to) {
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
    u64 word;
    do {
      word = *(volatile u64*)(cells + i);
    } while (word >> 32 == 0);
    *(volatile u64*)(cells + i) = 0;
    union { T value; u32 bits; } u;
    u.bits = (u32)word;
    to[i] = u.value;
  }
}
template <class T> INLINE T lane_value(T x, int lane) {
  return shuffle_from(x, lane, 0xffffffffu);
}
template <class T> INLINE T last_lane(T x, int lanes, u32 members) {
  return by_words(x, [=](u32 word) { return __shfl_sync(members, word, lanes - 1, lanes); });
}
// The running value of the lanes of a warp, each with its own.
template <class Op, int Lanes, class T> INLINE T scan_lanes(T x) {
  const u32 members = team<Lanes>();
#pragma unroll
  for (int d = 1; d < Lanes; d *= 2) {
    const T y = shuffle_up(x, d, members);
    if ((int)(threadIdx.x & (Lanes - 1)) >= d) x = Op::join(y, x);
  }
  return x;
}
// What comes before this thread's total x: all threads before it and `carry`, which then grows by
// all threads.
template <class Op, int Lanes, class T> INLINE T scan_warp(T x, T& carry) {
  const u32 members = team<Lanes>();
  const T all = scan_lanes<Op, Lanes>(x);
  const T y = shuffle_up(all, 1, members);
  const T before = (threadIdx.x & (Lanes - 1)) == 0 ? carry : Op::join(carry, y);
  carry = Op::join(carry, last_lane(all, Lanes, members));
  return before;
}
// `slots` has a place for each warp; the next call uses another one.
template <class Op, int Threads, class T> INLINE T scan_block(T x, T* slots, T& carry) {
  constexpr int Warps = Threads / 32;
  const T all = scan_lanes<Op, 32>(x);
  if ((threadIdx.x & 31) == 31) slots[threadIdx.x >> 5] = all;
  __syncthreads();
  const T totals = scan_lanes<Op, 32>(slots[threadIdx.x & (Warps - 1)]);
  const int warp = threadIdx.x >> 5;
  T before = carry;
  const T warps_before = lane_value(totals, warp == 0 ? 0 : warp - 1);
  if (warp > 0) before = Op::join(before, warps_before);
  const T y = shuffle_up(all, 1, 0xffffffffu);
  if ((threadIdx.x & 31) != 0) before = Op::join(before, y);
  carry = Op::join(carry, lane_value(totals, Warps - 1));
  return before;
}
)";

// Accesses of memory by which blocks find out about each other, at the scope of the GPU.
constexpr const char* kOrders = R"(
INLINE int load_relaxed(const int* p) {
  int r;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(r) : "l"(p) : "memory");
  return r;
}
INLINE i64 load_relaxed(const i64* p) {
  i64 r;
  asm volatile("ld.relaxed.gpu.global.s64 %0, [%1];" : "=l"(r) : "l"(p) : "memory");
  return r;
}
INLINE int load_acquire(const int* p) {
  int r;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(r) : "l"(p) : "memory");
  return r;
}
INLINE void store_relaxed(int* p, int x) {
  asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}
INLINE void store_relaxed(i64* p, i64 x) {
  asm volatile("st.relaxed.gpu.global.s64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}
INLINE void store_release(int* p, int x) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}
// Releases what came before and acquires what others have released so; what was there.
INLINE int add_in_order(int* p, int x) {
  int r;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;"
               : "=r"(r) : "l"(p), "r"(x) : "memory");
  return r;
}
)";

constexpr const char* kClusters = R"(
#if __CUDA_ARCH__ >= 900
INLINE u32 cluster_rank() {
  u32 r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
INLINE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}
INLINE u32 read_peer(const u32* p, u32 rank) {
  const u32 mine = (u32)__cvta_generic_to_shared(p);
  u32 theirs, r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(theirs) : "r"(mine), "r"(rank));
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(r) : "r"(theirs) : "memory");
  return r;
}
template <class T> INLINE T load_peer(const T* p, u32 rank) {
  union { T value; u32 words[(sizeof(T) + 3) / 4]; } w;
#pragma unroll
  for (int i = 0; i < (int)(sizeof(T) + 3) / 4; ++i) {
    w.words[i] = read_peer((const u32*)p + i, rank);
  }
  return w.value;
}
// All threads of all blocks of the cluster get the result; `mine` is in shared memory.
template <class Op, int Blocks, class T> INLINE T reduce_cluster(T x, T* mine) {
  union Words { T value; u32 words[(sizeof(T) + 3) / 4]; };
  if (threadIdx.x == 0) *mine = x;
  cluster_sync();
#pragma unroll
  for (int b = 0; b < Blocks; ++b) {
    Words w;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) + 3) / 4; ++i) w.words[i] = read_peer((u32*)mine + i, b);
    x = b == 0 ? w.value : Op::join(x, w.value);
  }
  return x;
}
#endif
)";

}  // namespace

std::string team_helpers() { return std::string(kTeams) + kOrders + kClusters; }

}  // namespace inkle::codegen::cuda
