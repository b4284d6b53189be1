// Operations of the kernel IR: a closed set. Each says its operands, results, regions and who takes
// part. What an arithmetic opcode means is said once, in loop/body.h.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "kernel/type.h"
#include "loop/body.h"
#include "loop/program.h"

namespace inkle::kernel {

enum class Op : std::uint8_t {
  // --- Values
  constant,  // Immediate
  index,     // value of an expression (IndexOf), as i64, or as i32 where it and its parts fit that
  divide_index,  // {a, b} i64 or i32: floor quotient or modulo (IndexDivision); by 0: as by 1
  compute,   // opcode of loop bodies from `cast` on but `indirect`, and `random`: Compute. Integer
             // division by 0 reports a failed call; nothing is divided in lanes that are masked off
  function,  // a named function that is no opcode: Function, its error bound in function.h
  indirect,  // {i64[, i64 extent, once lowered]}: checked 0 <= v < extent; the result is v (0 where
             // the check fails, which is
             // reported) and the value of a new symbol (Symbolic)
  bind,      // {i64}: the value of a new symbol whose range is promised, and checked by the
             // interpreter alone (Symbolic); the result is the operand

  // --- Control. A loop variable, a lane and an axis are symbols of index expressions.
  loop,    // {[begin, end,] initial...} -> final...: Loop; region (carried...) yields carried...
  repeat,  // {initial...} -> final...; region (carried...) yields {bool again, carried...}: at
           // least once
  branch,  // {bool} -> results...: Branch; regions then, else (both yield the results). A condition
           // that varies by lane masks: both regions are run, each by its lanes, and memory is
           // touched, divisions are made and failures reported by those alone
  vector,  // -> results...: Vector; region without arguments, run by all lanes; what it yields must
           // not vary by lane
  fold,    // {initial totals...} -> totals...: Fold; see there
  roles,   // Roles; one region for each, run by different warps of a block

  // --- Memory: Access. With `indices_are_operands`, one operand (i32 or i64) for each dimension
  // comes first. With `is_lowered` it is the element's linear offset, layout included (i64, of a
  // wide access that of lane 0); an access of `each` form inside of a vector region may have a
  // second one (i32 or i64), the lane's own offset from there. With `remote`, the rank (i32 or i64)
  // of a block of the cluster comes last.
  load,      // -> value of the memory's dtype
  store,     // {..., value}
  atomic,    // {..., operand} -> old value (Atomic); compare_exchange {..., expected, desired}
  prefetch,  // into L2; no access

  // --- Threads that work together. All threads of the scope come here, or none.
  reduce,     // {states...} -> merged...: Collective; region (a..., b...) yields merged...; every
              // thread gets the result
  scan,       // {states...} -> states...: likewise; inclusive, or exclusive {states..., first...}:
              // the first participant gets `first`, the others the merge of all before them
  broadcast,  // {value} -> the value of participant number `from`: Collective
  transpose,  // {value, ...} -> as many values, as there are lanes: lane i of result j is lane j of
              // operand i
  shuffle,    // {value[, i32 by]} -> value of another lane of the warp: Shuffle
  barrier,  // of a warp or a part of it, a block, a cluster or so many threads of a block: Barrier
  fence,    // Fence

  // --- Asynchronous copies
  copy_async,  // {}: cp.async of elements from global to shared memory: Copy; by the thread itself,
               // visible to it after copy_wait. Operands that are indices: of `from`, then `to`
  copy_commit,     // those since the last commit are a group
  copy_wait,       // until at most `count` of the last groups are under way (Count)
  barrier_init,    // mbarrier {}: Access; Count: arrivals of a phase
  barrier_arrive,  // mbarrier {}: Access; Count: bytes that this phase is to receive, or 0
  barrier_wait,  // mbarrier {[index phase,] bool or i32 parity}: until the phase of that parity is
                 // complete, which is the one of the number given (Count)
  tma_load,   // bulk copy of a map's box to shared memory, by one thread; completes on an mbarrier:
              // Bulk; operands (i32 or i64): indices of the box's first element; then indices of
              // the shared memory and the barrier where those are operands
  tma_store,  // likewise from shared memory, in the thread's bulk group
  bulk_commit,
  bulk_wait,  // until at most `count` of the last bulk groups are still reading (Count)

  // --- Fragments; all threads of the holder
  fragment_fill,   // {scalar} -> fragment; of a tile 0
  fragment_load,   // -> fragment: elements (r, c) at indices + r * row stride + c * column stride:
                   // FragmentAccess; rows and columns at or beyond the limits are 0. Of a tile
                   // without limits, rows contiguous; lowered: the linear offset of (0, 0)
  fragment_store,  // {fragment}; rows and columns at or beyond the limits are left out
  fragment_map,    // {fragments...} -> fragments...: FragmentMap; region (elements...) yields
                   // elements...; row and column are symbols
  convert_layout,  // {fragment} -> fragment of the same shape in another layout
  mma,             // {c, a, b} -> c + a * b: MatrixMultiply; a, b: fragments, or of wgmma tiles of
                   // shared memory (FragmentAccess), whose indices, where operands, come last
  mma_fence,       // wgmma.fence: registers and shared memory written before are seen by later mma
  mma_commit,      // the wgmma since the last commit are a group
  mma_wait,        // until at most `count` of the last groups are under way (Count)

  // --- Launches and failures
  dependency_wait,    // what earlier launches have written is visible from here on
  launch_dependents,  // later launches may start
  report,             // {}: the call has failed (Report); the kernel goes on
};

[[nodiscard]] std::string_view name_of(Op op);

struct Immediate {
  double real = 0;
  std::int64_t integer = 0;
};
struct IndexOf {
  Expr expression;
};
struct IndexDivision {
  bool modulo = false;
  bool non_negative = false;  // both operands are at least 0
  bool narrow = false;        // and fit 32 bits
};
struct Compute {
  loop::Opcode opcode = loop::Opcode::add;
  Form form = Form::each;  // random: `wide` where lanes have consecutive offsets from a multiple of
                           // 4 on
};

// Functions beyond the opcodes of loop bodies: those of which a pass has shown that they are exact
// enough at this place. function.h has a row for each: arity, meaning in double, error bound.
enum class NamedFunction : std::uint8_t {
  exp_term,      // exp(x), x <= 4, as a term of a sum
  erf_plus_one,  // 1 + erf(x), to be rounded to f16 or bf16
  quotient,      // a / b, to be rounded to f16 or bf16
  exp_negative,  // exp(x), x <= 0
  round_bf16,    // the f32 nearest to x that is a bf16
  round_f16,     // the f32 nearest to x that is an f16
  pack_bf16,     // a pair of bf16 as an i32: a rounded in the low half, b in the high half
  dot_bf16,      // c + a * b, of f32 and two pairs of bf16: the high products first
};
struct Function {
  NamedFunction function = NamedFunction::exp_term;
};
struct Symbolic {
  Expr symbol;
  Expr extent;  // indirect
};

enum class LoopKind : std::uint8_t {
  serial,  // the machine's compiler may unroll it
  unroll,  // fully unrolled
  rolled,  // stays a loop: its code is to be small
};
struct Loop {
  LoopKind kind = LoopKind::serial;
  Expr variable;  // begin <= variable < end, in steps
  Expr begin, end, step;
  bool is_lowered = false;     // begin and end are the first two operands, i64
  bool at_least_once = false;  // begin < end is promised, where sym/ cannot see it
  std::int32_t unroll = 1;     // serial: so many iterations at a time are a hint for the machine
};
struct Branch {
  // Of a condition that varies by lane: lanes from here on never fulfil it; 0: any may.
  std::int32_t limit = 0;
  bool some_lane = false;  // of such a condition: at least one lane fulfils it
  bool is_likely = true;
};
struct Vector {
  Expr lane;  // 0 <= lane < width
  std::int32_t width = 1;
  // Lanes of a machine's vector; width is a multiple. Groups of so many are its copies.
  std::int32_t native = 1;
};

// Takes states through loops, in a stated order. The `loops` are run one inside of the other, the
// last fastest; at each point `step` makes new states of the old ones. With a chunk, the loop of
// that number is cut into parts of so many iterations: `begin` makes the states of a part from the
// totals, `step` runs through the part (and the loops inside), and `merge` joins totals and part;
// `begin` and `merge` see the variables of the loops around that loop alone.
//   regions  step (states...) yields states...
//            begin (totals...) yields states...        with a chunk
//            merge (totals..., states...) yields totals...   with a chunk
struct Fold {
  std::vector<Loop> loops;
  std::int32_t chunked_loop = -1;
  std::int64_t chunk = 0;
};

struct Roles {
  struct Role {
    std::string name;
    std::int32_t first_warp = 0;
    std::int32_t warps = 1;
    std::int32_t registers = 0;  // of each thread (setmaxnreg); 0: as launched
  };
  std::vector<Role> roles;  // they cover all warps of the block
};

struct Access {
  MemoryId memory = 0;
  std::vector<Expr> indices;  // one for each dimension; empty once lowered
  bool indices_are_operands = false;
  bool is_lowered = false;
  bool has_lane_offset = false;  // lowered: the second operand
  bool remote = false;
  Form form = Form::each;
  Hint hint = Hint::none;
  bool constant = false;  // by the read-only path: the launch does not write the memory
  Order order = Order::weak;
  Scope scope = Scope::thread;
};
enum class AtomicOp : std::uint8_t { add, exchange, min, max, bit_or, compare_exchange };
struct Atomic {
  Access access;
  AtomicOp op = AtomicOp::add;
  bool needs_old = false;  // else the result is not used and the machine need not return it
};

// Who takes part: threads that differ in these axes of the launch alone, counted row-major; or,
// with `lanes`, the lanes of the vector region around. Over axes in a vector region, each lane has
// states of its own. The states are joined in this order: of axes, from the last axis to the first,
// each by halves (participant i with i + n/2, then n/4 ...). With `sequential`, thread axes count
// as one, and fewer than that are joined one after the other. Of two states that are joined, either
// may be the merge's first. Scans keep the order and may associate in any way. Lanes: neighbouring
// copies in pairs until one is left, then lanes by halves.
struct Collective {
  std::vector<AxisId> axes;
  bool lanes = false;
  std::int32_t sequential = 0;
  bool exclusive = false;  // scan
  std::int32_t from = 0;   // broadcast
  // Shared memory, one for each state, for what crosses warps: scratch_places (collective.h).
  std::vector<MemoryId> scratch;
};
enum class ShuffleKind : std::uint8_t { exclusive_or, up, down, from };
struct Shuffle {
  ShuffleKind kind = ShuffleKind::exclusive_or;
  std::int32_t by = 0;      // where there is no operand
  std::int32_t width = 32;  // lanes that exchange among themselves: a power of two
  bool whole_warp = true;   // all 32 lanes come here; else those of the `width` alone
};
struct Barrier {
  Scope scope = Scope::block;
  std::int32_t number = 0;   // block: of the hardware's sixteen
  std::int32_t threads = 0;  // block: so many; warp: of the part with so many lanes; 0: all
  enum class Part : std::uint8_t { both, arrive, wait };
  Part part = Part::both;
};
struct Fence {
  Order order = Order::acquire_release;
  Scope scope = Scope::gpu;
  bool proxy = false;  // between accesses of threads and asynchronous copies of shared memory
};

struct Copy {
  Access from, to;
  std::int32_t elements = 1;  // consecutive on both sides; 4, 8 or 16 bytes together
};
struct Count {
  Access access;  // barrier_init, barrier_arrive, barrier_wait
  std::int64_t count = 0;
  // barrier_wait: which phase is meant is an operand, since the thread does not wait for each. It
  // is that or the one before that is under way: something else has shown the thread that.
  bool has_phase = false;
};
struct Bulk {
  MemoryId map = 0;
  Access shared;   // where the box lies
  Access barrier;  // tma_load
};

struct FragmentAccess {
  Access access;                   // of element (0, 0)
  Expr row_stride, column_stride;  // elements of the last dimension
  Expr row_limit, column_limit;    // null: none
  std::int32_t rows = 0, columns = 0;
  // A b of wgmma: its columns lie in panels of so many, each so many elements behind the one
  // before; 0: in one.
  std::int32_t panel = 0;
  std::int64_t panel_stride = 0;
};
struct FragmentMap {
  Expr row, column;
};
enum class MatrixUnit : std::uint8_t {
  fma,    // core: outer product in f32 or f64, one rounding each
  bf16,   // core: AVX512-BF16 dot products of pairs
  amx,    // tile: c of f32, a and b of pairs of bf16 as i32, whose terms are pairs. The even
          // products of an element are added up, the odd ones, then both, then c
  sync,   // mma.sync.m16n8k16
  wgmma,  // asynchronous
};
struct MatrixMultiply {
  MatrixUnit unit = MatrixUnit::fma;
  std::vector<FragmentAccess> shared;  // wgmma: a and b, or b alone where a is a fragment
};
struct Report {
  std::int32_t status = 1;  // abi::KernelStatus
};

using Detail =
    std::variant<std::monostate, Immediate, IndexOf, IndexDivision, Compute, Function, Symbolic,
                 Loop, Branch, Vector, Fold, Roles, Access, Atomic, Collective, Shuffle, Barrier,
                 Fence, Copy, Count, Bulk, FragmentAccess, FragmentMap, MatrixMultiply, Report>;

}  // namespace inkle::kernel
