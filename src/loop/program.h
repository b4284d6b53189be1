// Loop IR: nests over logical index spaces, and the buffers between them. No layout but the fixed
// ones, no loop order, no machine.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "abi/device.h"
#include "abi/dtype.h"
#include "loop/body.h"
#include "sym/expr.h"

namespace inkle::loop {

using abi::Device;

enum class BufferRole : std::uint8_t { input, output, temporary, constant };

struct Buffer {
  std::string name;
  BufferRole role = BufferRole::temporary;
  DType dtype = DType::f32;
  Device device;
  std::vector<Expr> sizes;
  // Fixed for inputs, outputs, constants and operands of calls to eager; else chosen later.
  std::optional<std::vector<Expr>> strides;
  Expr offset;  // null: 0
  bool is_parameter = false;
  std::uint32_t index = 0;  // input: argument number; constant: number
  // For an output or temporary that must be the same memory as an input (mutation), that buffer.
  std::optional<BufferId> writes_into;
};

struct Dim {
  Expr variable;  // 0 <= variable < extent
  Expr extent;
  friend bool operator==(const Dim&, const Dim&) = default;
};

enum class ReduceOp : std::uint8_t {
  sum,
  prod,
  min,
  max,
  any,
  all,
  argmin,
  argmax,          // one yield; result i64: position along the single reduced dimension (the
                   // row-major position if several), first of ties, a NaN wins
  welford,         // one yield; results mean and sum of squared deviations
  online_softmax,  // one yield; results maximum and sum of exp(x - maximum), NaN for a row of
                   // minus infinities
};
[[nodiscard]] std::size_t result_count(ReduceOp op);
[[nodiscard]] std::string_view name_of(ReduceOp op);

// Where a result goes: buffer[indices], the indices in terms of the nest's dims (of a scan also the
// reduced one, of a scatter also the body's indirect symbols). The yield of a pointwise or scatter
// nest has the buffer's dtype; results of other nests are in `accumulator` (argmin, argmax: i64;
// any, all: bool) and are converted to the buffer's dtype as Opcode::cast does.
enum class StoreMode : std::uint8_t { overwrite, atomic_add };
struct Store {
  BufferId buffer = 0;
  std::vector<Expr> indices;
  StoreMode mode = StoreMode::overwrite;
  std::uint32_t result = 0;  // which yield (pointwise) or reduction result
};

// A read of a contraction: buffer[indices] in terms of dims and reduced dims; indices are affine
// in them or throw Unsupported when they are made.
struct Access {
  BufferId buffer = 0;
  std::vector<Expr> indices;
};

// out[batch..., m, n] = sum over k of a * b. dims: batch..., m, n; reduced: k.
struct Matmul {
  Access a;  // over (batch, m, k)
  Access b;  // over (batch, k, n)
};
// y[n, o, spatial...]; operands whole, with their logical order as ATen's. As a weight gradient: x
// the images [n, c, ...], w the gradient [n, o, ...] of what a plain convolution makes of them, y
// the gradient [o, c/groups, window...] of its weights; no bias.
struct Convolution {
  BufferId x = 0, w = 0;
  std::optional<BufferId> bias;
  std::vector<std::int64_t> stride, padding, dilation, output_padding;
  std::int64_t groups = 1;
  bool transposed = false;
  bool weight_gradient = false;
};
// The logit of a masked column.
inline constexpr double kHides = -std::numeric_limits<double>::infinity();
// out[b..., h, q, d] = softmax(scale * q k^T + mask) v; mask over (b..., h, q, k), additive in its
// dtype or bool (false: minus infinity). kv heads: head h reads kv head h / (heads / kv_heads).
// Causal: row i attends to columns j <= i. Fully masked rows give 0 when `safe`, else NaN; without
// columns all give 0. lse: natural log of the sum of exp of the logits, over (batch, head, row), or
// none.
//
// As a gradient (`gradient` is set) it stores those of q, k and v, in this order, each over (batch,
// its own head, row, feature): nothing passes where a bool mask is false, and fully masked rows
// pass nothing when `safe`, else NaN.
struct Attention {
  // Weights are multiplied by 1 / (1 - p) or, with probability p, by 0; see loop::attention_word.
  struct Dropout {
    BufferId seed = 0;  // i64, no dimensions
    std::int64_t number = 0;
    double p = 0;
  };
  struct Gradient {
    Access grad, out;         // of the result, and the result, over (batch, head, row, feature)
    BufferId statistics = 0;  // as the forward has written them
  };
  Access q, k, v;  // over (batch, head, row, feature)
  std::optional<Access> mask;
  Expr batch, heads, kv_heads, q_length, kv_length, head_dim, value_dim;
  // Variables that the accesses are written in: batch, head, row, column or feature. They are
  // shared: in k and v, head counts kv heads and row counts rows of k; in mask the last is column.
  std::array<Expr, 4> variables;
  double scale = 1;
  bool is_causal = false;
  bool safe = true;
  std::optional<BufferId> lse;
  // Of a bool mask: the logit where it is false.
  double hidden = kHides;
  std::optional<Dropout> dropout;
  // Over (batch, head, row, 2): a row's largest logit and the sum of exp(logit - that).
  std::optional<BufferId> statistics;
  std::optional<Gradient> gradient;
};
// A call to the host framework on whole buffers.
struct EagerCall {
  std::string name;
  std::uint32_t target = 0;
  // In order; integers are evaluated expressions.
  std::vector<std::variant<BufferId, Expr>> arguments;
  std::vector<BufferId> results;
  // What the scheduler has found: arguments that are read as parts of their buffers, by position.
  struct Part {
    std::size_t argument = 0;
    std::vector<Expr> sizes, strides;  // elements
    Expr offset;
  };
  std::vector<Part> parts;
};

enum class NestKind : std::uint8_t {
  pointwise,
  reduction,
  scan,
  sort,
  scatter,
  matmul,
  convolution,
  attention,
  eager
};

[[nodiscard]] std::string_view name_of(NestKind kind);

// What the kinds do; a nest without stores does nothing, except eager.
//   pointwise    stores yields at every point of dims
//   reduction    reduces its one yield (of dtype `accumulator`; any, all: bool) over `reduced`
//   scan         `reduced` has one dim, the last loop: stores the running result, inclusive
//   scatter      as pointwise, but several points may store to one element: in an unspecified
//                order, or added up; the buffer has been filled by an earlier nest
//   matmul       dims batch..., m, n; reduced k; accumulates in `accumulator`
//   convolution  dims n, o, spatial...: the result's logical indices
//   attention    dims batch, head, row, value feature; a gradient's are those of q, and its stores,
//                one index for each dimension, stand for all of their buffers
//   eager        no dims, no stores
// Dims of extent 1 are kept, so that dims and a whole result correspond one to one.
struct Nest {
  NestKind kind = NestKind::pointwise;
  std::string source;  // the user's lines
  std::string label;   // the op it came from, for people only
  // The lines of ops in the body that may fail at run time (may_fail), for messages only: not part
  // of the text.
  std::vector<std::string> checked;
  std::vector<Dim> dims;  // one result element for each point
  std::vector<Dim> reduced;
  Body body;  // pointwise, reduction, scan, scatter
  ReduceOp reduce = ReduceOp::sum;
  DType accumulator = DType::f32;
  std::vector<Store> stores;
  // matmul, convolution, attention, eager
  std::variant<std::monostate, Matmul, Convolution, Attention, EagerCall> detail;
};

// Whether the body looks an index up that may be out of range, or divides integers.
[[nodiscard]] bool may_fail(const Body& body);

struct ProgramOutput {
  enum class Kind : std::uint8_t { buffer, input, integer, none };
  Kind kind = Kind::buffer;
  BufferId buffer = 0;  // also for input
  Expr integer;
  // The returned tensor as a view of the buffer.
  std::vector<Expr> sizes;
  std::vector<Expr> strides;
  Expr offset;  // elements
};

struct Argument {  // of the whole program, in order
  std::string name;
  std::optional<BufferId> buffer;  // a tensor
  Expr symbol;                     // or an integer
};

struct ConstantData {
  std::shared_ptr<const std::vector<std::byte>> bytes;
};

struct Program {
  std::string name;
  std::shared_ptr<sym::Context> context;
  std::vector<Argument> arguments;
  std::vector<Buffer> buffers;
  std::vector<ConstantData> constants;  // by Buffer::index of role constant
  std::vector<Nest> nests;              // in an order that respects dependencies and mutation
  std::vector<ProgramOutput> outputs;

  BufferId add_buffer(Buffer buffer) {
    buffers.push_back(std::move(buffer));
    return static_cast<BufferId>(buffers.size() - 1);
  }
};

// Buffers that a nest reads (each once, in order) and writes.
[[nodiscard]] std::vector<BufferId> reads(const Nest& nest);
[[nodiscard]] std::vector<BufferId> writes(const Nest& nest);
// Every mention of a buffer in the nest, for renumbering.
void for_each_buffer(Nest& nest, const std::function<void(BufferId&)>& f);

// Text as in EXAMPLE.md step 3; parse(print(p)) == p.
[[nodiscard]] std::string to_string(const Program& program);
[[nodiscard]] Program parse_program(std::string_view text, std::string_view file);
// Throws InternalError naming the nest: operands before use, dtypes, index ranks, variables.
void verify(const Program& program);

}  // namespace inkle::loop
