// The part of cuBLASLt's ABI that is used: names, values and layouts as NVIDIA documents them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace inkle::runtime::cuda::cublaslt {

using Status = int;
using Handle = void*;

inline constexpr Status kSuccess = 0;

// Element types, and types that sums are kept in.
inline constexpr int kF32 = 0, kF64 = 1, kF16 = 2, kBf16 = 14;
inline constexpr int kComputeF32 = 68, kComputeF64 = 70;

inline constexpr int kLayoutBatchCount = 5;
inline constexpr int kLayoutBatchStride = 6;

inline constexpr int kTransposeA = 3;
inline constexpr int kTransposeB = 4;
inline constexpr int kEpilogue = 7;
inline constexpr int kBiasPointer = 8;
inline constexpr std::int32_t kTransposed = 1;
inline constexpr std::uint32_t kEpilogueNone = 1, kEpilogueRelu = 2, kEpilogueBias = 4,
                               kEpilogueGelu = 32;

inline constexpr int kPreferWorkspace = 1;
inline constexpr int kPreferAlignmentA = 5;  // of b, c, d: the three numbers after it

inline constexpr int kAlgorithmId = 0, kAlgorithmTile = 1, kAlgorithmSplit = 2;
// All that configures an algorithm, from its number to the shape of its clusters: the first have 32
// bits, the last two 16.
inline constexpr int kAlgorithmAttributes = 9, kAlgorithmWideAttributes = 7;

struct Layout {
  std::array<std::uint64_t, 8> data{};
};
struct Description {
  std::array<std::uint64_t, 32> data{};
};
struct Preference {
  std::array<std::uint64_t, 8> data{};
};
struct Algorithm {
  std::array<std::uint64_t, 8> data{};
};
struct Candidate {
  Algorithm algorithm;
  std::size_t workspace = 0;
  Status state = 0;
  float waves = 0;
  std::array<int, 4> reserved{};
};

struct Api {
  std::size_t (*version)();
  Status (*create)(Handle* handle);
  Status (*layout_init)(Layout* layout, std::size_t size, int type, std::uint64_t rows,
                        std::uint64_t columns, std::int64_t leading);
  Status (*layout_set)(Layout* layout, int attribute, const void* value, std::size_t bytes);
  Status (*description_init)(Description* description, std::size_t size, int compute, int scale);
  Status (*description_set)(Description* description, int attribute, const void* value,
                            std::size_t bytes);
  Status (*preference_init)(Preference* preference, std::size_t size);
  Status (*preference_set)(Preference* preference, int attribute, const void* value,
                           std::size_t bytes);
  Status (*heuristic)(Handle handle, Description* description, Layout* a, Layout* b, Layout* c,
                      Layout* d, Preference* preference, int wanted, Candidate* found, int* count);
  Status (*algorithm_get)(const Algorithm* algorithm, int attribute, void* value, std::size_t bytes,
                          std::size_t* written);
  Status (*matmul)(Handle handle, Description* description, const void* alpha, const void* a,
                   Layout* a_layout, const void* b, Layout* b_layout, const void* beta,
                   const void* c, Layout* c_layout, void* d, Layout* d_layout,
                   const Algorithm* algorithm, void* workspace, std::size_t workspace_bytes,
                   void* stream);
};

// The library, opened once; null, and why, where that fails. Under torch, its copy is taken.
[[nodiscard]] const Api* find(std::string& why_not);

}  // namespace inkle::runtime::cuda::cublaslt
