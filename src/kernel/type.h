// Types, memories and scopes of the kernel IR.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "abi/dtype.h"
#include "base/inline_vector.h"
#include "sym/expr.h"

namespace inkle::kernel {

using abi::DType;
using sym::Expr;

// Positions in the vectors of a Kernel.
using ValueId = std::uint32_t;
using OperationId = std::uint32_t;
using RegionId = std::uint32_t;
using MemoryId = std::uint32_t;
using AxisId = std::uint32_t;
inline constexpr std::uint32_t kNone = 0xffffffffu;
// Most operations have no more operands, results or regions.
using Values = InlineVector<ValueId, 4>;
using Regions = InlineVector<RegionId, 4>;

// --- Fragments -----------------------------------------------------------------------------------

// Which unit holds the elements of a fragment.
enum class Holder : std::uint8_t {
  core,       // the registers of one CPU core
  tile,       // a tile register of a core (AMX)
  warp,       // 32 threads
  warpgroup,  // 128 threads, of which the first is a multiple of 128
};

// Which element is where. fragment_element (fragment.h) says it for the layouts of threads.
enum class FragmentLayout : std::uint8_t {
  rows,     // core: row after row, each in vectors
  splat,    // core: every element by itself, to be multiplied with a whole row
  tile,     // tile: up to 16 rows of up to 16 elements of 32 bits; a pair of bf16 is an i32
  mma_a,    // warp: operand A of mma.sync.m16n8k16
  mma_b,    // warp: operand B of it
  mma_c,    // warp: accumulator of it
  wgmma_c,  // warpgroup: accumulator of wgmma.m64nNk16
};

struct FragmentType {
  DType dtype = DType::f32;
  std::int32_t rows = 0;
  std::int32_t columns = 0;
  Holder holder = Holder::core;
  FragmentLayout layout = FragmentLayout::rows;
  friend bool operator==(const FragmentType&, const FragmentType&) = default;
};

// --- Values --------------------------------------------------------------------------------------

// A value of one thread (inside of a vector region: of one lane), or of the holder of a fragment.
enum class TypeKind : std::uint8_t {
  scalar,    // of a dtype under the rules of loop bodies: f16 and bf16 are only moved and cast
  fragment,  // `fragment` is a position in Kernel::fragments
  token,     // orders what has no value: asynchronous work
};

struct Type {
  TypeKind kind = TypeKind::scalar;
  DType dtype = DType::f32;
  std::uint32_t fragment = 0;
  friend bool operator==(const Type&, const Type&) = default;
};

using TypeList = InlineVector<Type, 4>;

[[nodiscard]] inline Type scalar_type(DType dtype) { return {TypeKind::scalar, dtype, 0}; }

// Where a value may differ, from nowhere to everywhere: a value of `warp` is equal for all threads
// of a warp, one of `lane` may differ between the lanes of a vector region.
enum class Variance : std::uint8_t { kernel, cluster, block, warp, thread, lane };

// --- Memory --------------------------------------------------------------------------------------

enum class Space : std::uint8_t {
  global,     // a pointer parameter
  shared,     // of a block; with a rank, that of another block of the cluster
  registers,  // of a thread, addressed by constants once loops are unrolled
  stack,      // of a thread, or of a task on a CPU
  workspace,  // global memory that is 0 before the launch and after it
  barrier,    // in shared memory: mbarriers, 8 bytes each
  map,        // a tensor map parameter: how blocks of a global array lie, for bulk copies
};

enum class Role : std::uint8_t { in, out, inout };  // of a parameter

struct Memory {
  std::string name;
  Space space = Space::global;
  DType dtype = DType::f32;
  // Elements, row-major. A global memory has one dimension; how many elements it has may depend on
  // size symbols, or is not stated: no shape.
  std::vector<Expr> shape;
  std::int32_t alignment = 1;  // bytes, of the first element
  // Parameters. No two of them overlap unless one is `may_alias`.
  Role role = Role::in;
  bool may_alias = false;
  // Shared memory: so many elements follow each row (last dimension) unused; or the 16-byte chunks
  // of a row are swizzled within so many bytes (32, 64, 128), as bulk copies and wgmma have it.
  std::int32_t padding = 0;
  std::int32_t swizzle = 0;
  // map: the global memory (its `shape` here is that of the array, row-major) and the block that
  // one copy moves.
  MemoryId of = kNone;
  std::vector<std::int32_t> box;
  // Shared memory: with `of`, bytes of another shared memory, from byte `offset` on.
  std::int64_t offset = 0;
};

// --- Order ---------------------------------------------------------------------------------------

enum class Scope : std::uint8_t { thread, warp, block, cluster, gpu, system };

// Of a memory access or a fence. Weak accesses of two agents to one byte, of which one writes, must
// be ordered by happens-before, else the kernel has a race.
enum class Order : std::uint8_t { weak, relaxed, acquire, release, acquire_release };

// How the lanes of a vector region access memory. The verifier holds an access to it; printers take
// it as it is.
enum class Form : std::uint8_t {
  each,   // every lane an element of its own (gather, scatter); outside of vector regions: one
  wide,   // lane l element first + l: one access of so many elements, or several where alignment
          // shows so many together only (access_width in lanes.h)
  splat,  // all lanes one element
};

enum class Hint : std::uint8_t {
  none,
  once,     // not kept in L1
  lasting,  // leaves L2 after the rest (evict_last)
  first,    // leaves L2 before the rest (evict_first, streaming)
  early,    // of a load: issued where it stands, for a use that comes later
};

[[nodiscard]] std::string_view name_of(Holder holder);
[[nodiscard]] std::string_view name_of(FragmentLayout layout);
[[nodiscard]] std::string_view name_of(Variance variance);
[[nodiscard]] std::string_view name_of(Space space);
[[nodiscard]] std::string_view name_of(Role role);
[[nodiscard]] std::string_view name_of(Scope scope);
[[nodiscard]] std::string_view name_of(Order order);
[[nodiscard]] std::string_view name_of(Form form);
[[nodiscard]] std::string_view name_of(Hint hint);

}  // namespace inkle::kernel
