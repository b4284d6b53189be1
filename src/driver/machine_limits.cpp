#include "driver/machine_limits.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <new>
#include <numeric>

#include "base/error.h"
#include "base/function_ref.h"
#include "base/threads.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace inkle::driver {
namespace {

using Clock = std::chrono::steady_clock;

// Floats [first, last) of the triad, and `rounds` of ten independent multiply-adds; `first` and
// `last` are multiples of 16, pointers 64-byte aligned.
struct Kernels {
  void (*triad)(float* a, const float* b, const float* c, std::int64_t first, std::int64_t last);
  float (*multiply_adds)(const float* start, std::int64_t rounds);
  int lanes;
};
constexpr int kAccumulators = 10;  // latency of 4 or 5 cycles, two a cycle
// Where each starts: what a compiler cannot tell apart from its neighbour it computes once.
constexpr float kStarts[kAccumulators] = {.1F, .2F, .3F, .4F, .5F, .6F, .7F, .8F, .9F, 1};

// Compiled for the instructions of each caller.
template <class Vector>
[[gnu::always_inline]] inline float multiply_adds(const float* start, std::int64_t rounds) {
  const Vector x = Vector{} + 0.999F, y = Vector{} + 0.001F;
  Vector v[kAccumulators];
#pragma GCC unroll 10
  for (int a = 0; a < kAccumulators; ++a) v[a] = Vector{} + start[a];
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 10
    for (int a = 0; a < kAccumulators; ++a) v[a] = v[a] * x + y;
  }
  Vector sum = v[0];
#pragma GCC unroll 10
  for (int a = 1; a < kAccumulators; ++a) sum += v[a];
  return sum[0] + sum[sizeof(Vector) / sizeof(float) - 1];
}

#if defined(__x86_64__)

__attribute__((target("avx512f"))) void triad_512(float* a, const float* b, const float* c,
                                                  std::int64_t first, std::int64_t last) {
  const __m512 s = _mm512_set1_ps(3);
  for (std::int64_t i = first; i < last; i += 16) {
    _mm512_store_ps(a + i, _mm512_fmadd_ps(s, _mm512_load_ps(c + i), _mm512_load_ps(b + i)));
  }
}

__attribute__((target("avx512f"))) float multiply_adds_512(const float* start,
                                                           std::int64_t rounds) {
  return multiply_adds<float __attribute__((vector_size(64)))>(start, rounds);
}

__attribute__((target("avx2,fma"))) void triad_256(float* a, const float* b, const float* c,
                                                   std::int64_t first, std::int64_t last) {
  const __m256 s = _mm256_set1_ps(3);
  for (std::int64_t i = first; i < last; i += 8) {
    _mm256_store_ps(a + i, _mm256_fmadd_ps(s, _mm256_load_ps(c + i), _mm256_load_ps(b + i)));
  }
}

__attribute__((target("avx2,fma"))) float multiply_adds_256(const float* start,
                                                            std::int64_t rounds) {
  return multiply_adds<float __attribute__((vector_size(32)))>(start, rounds);
}

Kernels host_kernels(const abi::DeviceDescription& device) {
  if (device.vector_bytes >= 64) return {triad_512, multiply_adds_512, 16};
  return {triad_256, multiply_adds_256, 8};
}

#elif defined(__aarch64__)

void triad_128(float* a, const float* b, const float* c, std::int64_t first, std::int64_t last) {
  const float32x4_t s = vdupq_n_f32(3);
  for (std::int64_t i = first; i < last; i += 4) {
    vst1q_f32(a + i, vfmaq_f32(vld1q_f32(b + i), s, vld1q_f32(c + i)));
  }
}

float multiply_adds_128(const float* start, std::int64_t rounds) {
  return multiply_adds<float __attribute__((vector_size(16)))>(start, rounds);
}

Kernels host_kernels(const abi::DeviceDescription&) { return {triad_128, multiply_adds_128, 4}; }

#else
#error "no measurement of limits for this processor"
#endif

// Work a second of all threads: each calls work(thread, i) for i = 0, 1, ... for about `budget`
// seconds, all at once, and counts with its best call; the clock runs in the thread, so that no
// fork or join is measured. On a busy machine this is still the machine's limit, not what is left
// of it.
double best_rate(int threads, double budget,
                 function_ref<double(std::int64_t thread, std::int64_t i)> work) {
  constexpr std::size_t kApart = 8;  // numbers of two threads lie on different cache lines
  std::vector<double> best(static_cast<std::size_t>(threads) * kApart, 0);
  parallel_for(0, threads, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) {
      double& rate = best[static_cast<std::size_t>(t) * kApart];
      double spent = 0;
      for (std::int64_t i = 0; i < 3 || spent < budget; ++i) {
        const auto start = Clock::now();
        const double done = work(t, i);
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        rate = std::max(rate, done / seconds);
        spent += seconds;
      }
    }
  });
  return std::accumulate(best.begin(), best.end(), 0.0);
}

struct Free {
  void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
};
using Floats = std::unique_ptr<float[], Free>;

Floats make_floats(std::int64_t count) {
  return Floats(static_cast<float*>(
      ::operator new[](static_cast<std::size_t>(count) * sizeof(float), std::align_val_t{64})));
}

// Bytes a second of the triad over a working set of `bytes` of all threads together.
double measure_triad(const Kernels& kernels, int threads, std::int64_t bytes, double budget) {
  constexpr std::int64_t kLine = 16;  // floats
  const std::int64_t lines = std::max<std::int64_t>(bytes / 12 / kLine / threads, 1);
  const std::int64_t floats = lines * kLine * threads;
  const Floats a = make_floats(floats);
  const Floats b = make_floats(floats);
  const Floats c = make_floats(floats);
  parallel_for(0, floats, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) a[i] = b[i] = c[i] = 1;
  });
  // A call does about kBytes: a piece of a large part, one after the other so that each has left
  // the caches when it comes again; or a small part several times.
  constexpr std::int64_t kBytes = std::int64_t{4} << 20;
  const std::int64_t part_bytes = lines * kLine * 12;
  const std::int64_t pieces = std::max<std::int64_t>(1, part_bytes / kBytes);
  const std::int64_t repeats = std::max<std::int64_t>(1, kBytes / part_bytes);
  const std::int64_t piece = lines / pieces * kLine;
  return best_rate(threads, budget, [&](std::int64_t thread, std::int64_t i) {
    const std::int64_t begin = thread * lines * kLine + i % pieces * piece;
    for (std::int64_t r = 0; r < repeats; ++r) {
      kernels.triad(a.get(), b.get(), c.get(), begin, begin + piece);
    }
    return static_cast<double>(piece * 12 * repeats);
  });
}

// The level-3 cache that one processor reaches; sysconf may give the sum over the chip.
std::int64_t shared_cache_bytes(std::int64_t otherwise) {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  std::int64_t size = 0;
  char unit = 0;
  if (!(file >> size)) return otherwise;
  file >> unit;
  return unit == 'M' ? size << 20 : unit == 'K' ? size << 10 : otherwise;
}

double measure_flops(const Kernels& kernels, int threads, double budget) {
  constexpr std::int64_t kRounds = 50'000;  // about 0.1 ms
  std::vector<float> sink(static_cast<std::size_t>(threads) * 16);
  const float* volatile hidden = kStarts;
  const float* const starts = hidden;
  return best_rate(threads, budget, [&](std::int64_t thread, std::int64_t) {
    sink[static_cast<std::size_t>(thread) * 16] = kernels.multiply_adds(starts, kRounds);
    return static_cast<double>(kRounds) * kAccumulators * kernels.lanes * 2;
  });
}

}  // namespace

const MachineLimits::Level& MachineLimits::level(std::int64_t bytes) const {
  INKLE_CHECK(!levels.empty(), "limits without a memory level");
  for (const Level& l : levels) {
    if (bytes <= l.capacity) return l;
  }
  return levels.back();
}

MachineLimits measure_limits(const abi::DeviceDescription& device) {
  if (device.kind != abi::DeviceKind::cpu) {
    MachineLimits limits;
    limits.levels = {{"memory", 0, device.bytes_per_second}};
    limits.flops_f32 = device.flops_f32;
    limits.flops_matrix = device.matrix_flops;
    limits.threads = device.parallelism;
    return limits;
  }
  constexpr double kBudget = 0.1;  // seconds, each
  const std::int64_t l3 = shared_cache_bytes(device.l3_bytes);
  constexpr std::int64_t kLargest = std::int64_t{256} << 20;
  const Kernels kernels = host_kernels(device);
  MachineLimits limits;
  limits.threads = num_threads();
  const std::int64_t l2 = device.l2_bytes * limits.threads;
  const auto add = [&](const char* name, std::int64_t capacity, std::int64_t bytes) {
    limits.levels.push_back(
        {name, capacity, measure_triad(kernels, limits.threads, bytes, kBudget)});
  };
  add("L2", l2, l2 / 2);
  if (l3 > l2) add("L3", l3, (l2 + l3) / 4);
  const std::int64_t far = std::clamp(4 * std::max(l3, l2), std::int64_t{64} << 20, kLargest);
  add("memory", INT64_MAX, far);
  limits.flops_f32 = measure_flops(kernels, limits.threads, kBudget);
  return limits;
}

}  // namespace inkle::driver
