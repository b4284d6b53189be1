// Tables of names for printer and parser: position in a table is the value of the enumerator.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "kernel/kernel.h"

namespace inkle::kernel {

template <class E, std::size_t N>
struct Names {
  std::array<std::string_view, N> names;

  [[nodiscard]] constexpr std::string_view name(E value) const {
    return names.at(static_cast<std::size_t>(value));
  }
  [[nodiscard]] constexpr std::optional<E> find(std::string_view name) const {
    for (std::size_t i = 0; i < N; ++i) {
      if (names[i] == name) return static_cast<E>(i);
    }
    return std::nullopt;
  }
};

inline constexpr Names<Op, 46> kOps{{
    "constant",
    "index",
    "divide_index",
    "compute",
    "function",
    "indirect",
    "bind",
    "for",
    "repeat",
    "if",
    "vector",
    "fold",
    "roles",
    "load",
    "store",
    "atomic",
    "prefetch",
    "reduce",
    "scan",
    "broadcast",
    "transpose",
    "shuffle",
    "barrier",
    "fence",
    "copy_async",
    "copy_commit",
    "copy_wait",
    "barrier_init",
    "barrier_arrive",
    "barrier_wait",
    "tma_load",
    "tma_store",
    "bulk_commit",
    "bulk_wait",
    "fragment_fill",
    "fragment_load",
    "fragment_store",
    "fragment_map",
    "convert_layout",
    "mma",
    "mma_fence",
    "mma_commit",
    "mma_wait",
    "dependency_wait",
    "launch_dependents",
    "report",
}};
inline constexpr Names<Holder, 4> kHolders{{"core", "tile", "warp", "warpgroup"}};
inline constexpr Names<FragmentLayout, 7> kFragmentLayouts{
    {"rows", "splat", "tile", "mma_a", "mma_b", "mma_c", "wgmma_c"}};
inline constexpr Names<Variance, 6> kVariances{
    {"kernel", "cluster", "block", "warp", "thread", "lane"}};
inline constexpr Names<Space, 7> kSpaces{
    {"global", "shared", "registers", "stack", "workspace", "barrier", "map"}};
inline constexpr Names<Role, 3> kRoles{{"in", "out", "inout"}};
inline constexpr Names<Scope, 6> kScopes{{"thread", "warp", "block", "cluster", "gpu", "system"}};
inline constexpr Names<Order, 5> kOrders{
    {"weak", "relaxed", "acquire", "release", "acquire_release"}};
inline constexpr Names<Form, 3> kForms{{"each", "wide", "splat"}};
inline constexpr Names<Hint, 5> kHints{{"none", "once", "lasting", "first", "early"}};
inline constexpr Names<AxisKind, 4> kAxisKinds{{"task", "grid", "cluster", "thread"}};
inline constexpr Names<LoopKind, 3> kLoopKinds{{"serial", "unroll", "rolled"}};
inline constexpr Names<AtomicOp, 6> kAtomicOps{
    {"add", "exchange", "min", "max", "bit_or", "compare_exchange"}};
inline constexpr Names<ShuffleKind, 4> kShuffleKinds{{"exclusive_or", "up", "down", "from"}};
inline constexpr Names<MatrixUnit, 5> kMatrixUnits{{"fma", "bf16", "amx", "sync", "wgmma"}};

}  // namespace inkle::kernel
