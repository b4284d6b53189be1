// The part of the prelude by which threads exchange values: between lanes of a warp, with memory as
// it is copied, between blocks of a GPU and of a cluster. Each function is one thread's.
#include "codegen/cuda/prelude.h"

namespace inkle::codegen::cuda {
namespace {

constexpr const char* kLanes = R"(
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
#endif
)";

}  // namespace

std::string exchange_helpers() { return std::string(kLanes) + kOrders + kClusters; }

}  // namespace inkle::codegen::cuda
