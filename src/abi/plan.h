// The plan: all that the runtime sees of a compiled program, as data without pointers. A flat
// immutable list of steps over buffers, with a small program that computes every size from the
// arguments. Machine code and constants stand beside it, by number (abi/code.h). Several threads
// may run one plan at once; the state of one call is a Frame of the runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "abi/device.h"
#include "abi/dtype.h"
#include "abi/library_call.h"

namespace inkle::abi {

// slot[result] = a op b. Floor division and modulo as Python's; an overflow or a division by zero
// fails the call. `constant`: the value `immediate`; `argument`: integer argument number
// `immediate`; `size`: size of dimension b of tensor argument `immediate`; `stride` likewise.
struct SizeInstruction {
  enum class Op : std::uint8_t {
    constant,
    argument,
    size,
    stride,
    add,
    mul,
    floordiv,
    mod,
    min,
    max
  };
  Op op = Op::constant;
  Slot result = 0;
  Slot a = 0;
  Slot b = 0;
  std::int64_t immediate = 0;
};

// Two slots that must compare so, or the call fails with `message`.
struct Guard {
  enum class Relation : std::uint8_t { equal, not_equal, less, less_equal };
  Relation relation = Relation::equal;
  Slot a = 0;
  Slot b = 0;
  std::string message;
};

// "==", "!=", "<" or "<=".
[[nodiscard]] std::string_view symbol_of(Guard::Relation relation);

struct PlanArgument {
  std::string name;
  bool is_integer = false;   // a size symbol (or other integer scalar)
  DType dtype = DType::f32;  // tensors from here on
  Device device;
  std::vector<Slot> sizes;  // expected
  std::vector<Slot> strides;
  std::int32_t alignment = 1;  // bytes that generated code assumes of the data pointer
  bool is_parameter = false;   // a weight: stays the same tensor from call to call
  bool is_written = false;  // by a kernel or library call, also through an alias; not in the text
};

struct BufferDecl {
  enum class Kind : std::uint8_t {
    argument,  // index = argument
    output,    // allocated by the caller's allocator; index = position among Plan::outputs
    arena,     // lives in the arena from step first_use to last_use, inclusive
    constant,  // index = Plan::constants
    external,  // made by an eager call
    alias,     // same storage as buffer `index`, from its first byte
    prepared,  // made by a prepare step, lives from call to call; constant sizes
    formal,    // of a region: stands for a buffer that a RegionCall names
  };
  Kind kind = Kind::arena;
  DType dtype = DType::f32;
  std::uint32_t index = 0;
  std::vector<Slot> sizes;
  std::vector<Slot> strides;
  Slot bytes = 0;  // span in memory
  std::uint32_t first_use = 0;
  std::uint32_t last_use = 0;
  std::string name;  // for reports
  Device device;
};

// Memory layout of a launch's scratch on the CPU: 64 bytes of status, then what the generator
// needs. The status word (i64 at offset 0) is 0; a kernel sets it to one of these when it meets
// them, and goes on without touching memory out of bounds.
enum class KernelStatus : std::int64_t { ok = 0, index_out_of_range = 1, division_by_zero = 2 };
inline constexpr std::int64_t kStatusBytes = 64;

// A tensor as the copy engine of sm_90 and later reads and writes it, a box at a time: what
// cuTensorMapEncodeTiled of the CUDA driver API takes. Coordinates beyond a size read as zeros and
// are not written.
struct TensorMap {
  PlanBuffer buffer = 0;
  DType dtype = DType::f32;
  std::vector<Slot> sizes;        // 1 to 5, the outermost first; each 1 to 2^32
  std::vector<Slot> strides;      // in elements; the last 1, the others multiples of 16 bytes
  std::vector<std::int64_t> box;  // elements of a box in each dimension, 1 to 256
  std::int32_t swizzle = 0;       // bytes of a row of the box in shared memory that are mixed: 0,
                                  // 32, 64 or 128, and at least those of the box's last dimension
};

// A kernel of a device (KernelDecl::device) takes, in this order: the addresses of `buffers`,
// `sizes` as i64, each of `maps` by value, the address of its workspace if
// DeviceKernel::has_workspace (zeros when it starts, and zeros again when it ends; for it alone),
// the address of a u32 where it stores the KernelStatus that it meets. A kernel over a table takes,
// instead of the first two, one structure: the addresses, the sizes, and as u32 the number of
// blocks before each instance and before their end.
struct Launch {
  std::uint32_t kernel = 0;  // index into Plan::kernels
  std::vector<PlanBuffer> buffers;
  std::vector<Slot> sizes;
  Slot extent = 0;  // iterations; on a device: blocks of a one-dimensional grid, none if 0
  Slot grain = 0;
  Slot scratch_bytes = 0;  // on a device: bytes of workspace
  // Of a table: the iterations of each instance, `extent` in all. `buffers` and `sizes` then hold
  // those of one instance after those of the other, equally many each.
  std::vector<Slot> extents;
  std::vector<TensorMap> maps;  // of a device; none of a table
  [[nodiscard]] std::size_t instances() const { return extents.empty() ? 1 : extents.size(); }
};

// A call of the host framework's own implementation, by number of the host's table.
struct EagerArgument {
  enum class Kind : std::uint8_t { buffer, slot };
  Kind kind = Kind::buffer;
  std::uint32_t index = 0;
  std::optional<Operand> part;  // of the buffer, on a GPU
};
struct EagerCall {
  std::uint32_t target = 0;
  std::vector<EagerArgument> arguments;
  std::vector<PlanBuffer> results;  // of kind external; results the host makes
  std::string name;
};

// Byte copy of a whole strided tensor into another of the same sizes and dtype.
struct CopyStep {
  PlanBuffer from = 0;
  PlanBuffer to = 0;
};

// Steps may nest, by number of Plan::regions; the steps of a region name only regions after it, so
// that none runs itself. No runtime runs these yet.
struct Branch {
  Slot condition = 0;  // not 0: then
  std::uint32_t then_region = 0;
  std::uint32_t else_region = 0;
};
struct Loop {
  Slot trips = 0;  // none if below 1
  std::uint32_t body = 0;
};
// In the region, buffer formals[i] is actuals[i].
struct RegionCall {
  std::uint32_t region = 0;
  std::vector<PlanBuffer> formals;
  std::vector<PlanBuffer> actuals;
};

struct PlanStep {
  std::variant<Launch, LibraryCall, EagerCall, CopyStep, Branch, Loop, RegionCall> action;
  std::string source;   // the user's lines, for reports
  std::string checked;  // of them, those of ops that may fail at run time; not part of the text
  // Runs only when what it reads has changed: parameters, constants and results of earlier prepare
  // steps. Writes buffers of kind `prepared` alone, each written by this step only; a launch or a
  // library call, with constant slots.
  bool prepare = false;
  // For reports: bytes and floating operations, as slots (0 if unknown).
  std::optional<Slot> bytes;
  std::optional<Slot> flops;
};

// Steps that run where a step of the plan, or of an earlier region, says so. Buffers that they use
// are in use during that step.
struct Region {
  std::vector<PlanStep> steps;
};

// Whether the action is made of steps of regions.
[[nodiscard]] bool is_nested(const PlanStep& step);

// A kernel as a device runs it: a function of one of Code::images.
struct DeviceKernel {
  std::uint32_t image = 0;
  std::string entry;                // its name in the image
  std::int32_t block_threads = 1;   // one-dimensional
  std::int64_t shared_bytes = 0;    // dynamic shared memory of a block
  std::int32_t cluster_blocks = 1;  // part of the image; the number of blocks is a multiple of it
  bool has_workspace = false;
  bool can_fail = false;  // whether it may write its status
  // It begins by waiting for all that was queued before it, so that its blocks may be brought up
  // while the last of that still runs.
  bool waits = false;
  // Its blocks wait for each other, so that all of them must be on the device at once: more of them
  // than it holds are not launched. Not with `waits`.
  bool co_resident = false;
};

// Its code is Code::functions, or in one of Code::images, by the kernel's number.
struct KernelDecl {
  std::string name;
  std::string text;      // of the kernel IR that its code was printed from
  std::string code_key;  // hash of what it was made of: the fused kernel with its schedule
  std::optional<DeviceKernel> device;
};

// Its bytes are Code::constants, by the constant's number.
struct ConstantDecl {
  DType dtype = DType::f32;
  std::vector<std::int64_t> sizes;  // contiguous
};

struct PlanOutput {
  enum class Kind : std::uint8_t { buffer, argument, integer, none };
  Kind kind = Kind::buffer;
  std::uint32_t index = 0;  // buffer, argument or slot
  std::vector<Slot> sizes;  // of the returned tensor (a view of the buffer)
  std::vector<Slot> strides;
  Slot offset = 0;
};

struct Plan {
  std::string name;
  std::vector<PlanArgument> arguments;
  std::uint32_t slot_count = 0;
  std::vector<SizeInstruction> size_program;
  std::vector<Guard> guards;
  std::vector<BufferDecl> buffers;
  std::vector<ConstantDecl> constants;
  std::vector<KernelDecl> kernels;
  std::vector<PlanStep> steps;
  std::vector<Region> regions;
  std::vector<PlanOutput> outputs;
};

// Where a step that has failed comes from, for messages: the lines of its ops that may fail, else
// all of its lines, else the plan's name.
[[nodiscard]] const std::string& place_of_failure(const Plan& plan, const PlanStep& step);

// Text for tests and people, e.g. "launch k0 (x, r, g, b, t1) over s0*s1".
[[nodiscard]] std::string to_string(const Plan& plan);

}  // namespace inkle::abi
