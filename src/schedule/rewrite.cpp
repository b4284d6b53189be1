#include "schedule/rewrite.h"

#include <algorithm>

#include "base/error.h"
#include "loop/builder.h"
#include "schedule/linear.h"

namespace inkle::schedule {
namespace {

using abi::DType;
using loop::BodyBuilder;
using loop::BufferId;
using loop::Dim;
using loop::Nest;
using loop::NestKind;
using loop::Opcode;
using loop::Program;
using loop::ReduceOp;
using loop::Val;

Val multiply(BodyBuilder& b, Val x, Val y, DType accumulator) {
  return b.mul(b.cast(x, accumulator), b.cast(y, accumulator));
}

DType accumulator_of(DType dtype) {
  if (dtype == DType::boolean) return DType::i64;
  return abi::is_float(dtype) ? abi::compute_type(dtype) : DType::i64;
}

void matmul_to_loops(Nest& nest, const Program& program) {
  const auto m = std::get<loop::Matmul>(nest.detail);
  const DType dtype = program.buffers[m.a.buffer].dtype;
  nest.kind = NestKind::reduction;
  nest.reduce = ReduceOp::sum;
  nest.accumulator = accumulator_of(dtype);
  nest.detail = std::monostate{};
  nest.body = {};
  BodyBuilder b(nest.body, *program.context);
  b.yield(multiply(b, b.load(m.a.buffer, dtype, m.a.indices),
                   b.load(m.b.buffer, program.buffers[m.b.buffer].dtype, m.b.indices),
                   nest.accumulator));
}

// x[n, g*C+c, o*s + k*d - p] * w[o, c, k], summed over c and k; zero outside of x.
void convolution_to_loops(Nest& nest, const Program& program) {
  const auto c = std::get<loop::Convolution>(nest.detail);
  sym::Context& context = *program.context;
  if (c.transposed || c.bias || c.weight_gradient) {
    unsupported("{} at {}: a transposed convolution or a gradient of {}", nest.label, nest.source,
                abi::name_of(program.buffers[c.x].dtype));
  }
  const loop::Buffer& x = program.buffers[c.x];
  const loop::Buffer& w = program.buffers[c.w];
  const std::size_t spatial = x.sizes.size() - 2;
  nest.kind = NestKind::reduction;
  nest.reduce = ReduceOp::sum;
  nest.accumulator = accumulator_of(x.dtype);
  nest.detail = std::monostate{};
  nest.reduced.clear();
  nest.body = {};
  for (std::size_t d = 1; d < w.sizes.size(); ++d) {
    nest.reduced.push_back({context.index(w.sizes[d]), w.sizes[d]});
  }
  BodyBuilder b(nest.body, context);
  const Expr out_channel = nest.dims[1].variable;
  const Expr group = sym::floordiv(out_channel, sym::floordiv(w.sizes[0], c.groups));
  std::vector<Expr> xi = {nest.dims[0].variable, group * w.sizes[1] + nest.reduced[0].variable};
  std::vector<Expr> wi = {out_channel, nest.reduced[0].variable};
  Val inside = b.constant(DType::boolean, std::int64_t{1});
  for (std::size_t s = 0; s < spatial; ++s) {
    const Expr tap = nest.reduced[s + 1].variable;
    const Expr at = nest.dims[s + 2].variable * c.stride[s] + tap * c.dilation[s] - c.padding[s];
    if (c.padding[s] != 0) {
      const Val position = b.index(at);
      const Val zero = b.constant(DType::i64, std::int64_t{0});
      inside = b.logical_and(inside, b.binary(Opcode::greater_equal, position, zero));
      inside = b.logical_and(inside, b.less(position, b.index(x.sizes[s + 2])));
    }
    xi.push_back(at);
    wi.push_back(tap);
  }
  const Val zero =
      abi::is_float(x.dtype) ? b.constant(x.dtype, 0.0) : b.constant(x.dtype, std::int64_t{0});
  const Val value = b.load_if(inside, zero, c.x, x.dtype, std::move(xi));
  b.yield(multiply(b, value, b.load(c.w, w.dtype, std::move(wi)), nest.accumulator));
}

bool can_split(const Nest& nest) {
  if (nest.kind != NestKind::reduction || nest.stores.size() != 1) return false;
  switch (nest.reduce) {
    case ReduceOp::sum:
    case ReduceOp::prod:
    case ReduceOp::min:
    case ReduceOp::max:
    case ReduceOp::any:
    case ReduceOp::all:
      return true;
    case ReduceOp::argmin:
    case ReduceOp::argmax:
    case ReduceOp::welford:
    case ReduceOp::online_softmax:
      return false;
  }
  return false;
}

// A divisor of `n` nearest to its square root from below, at least 8; 0 if there is none.
std::int64_t middle_divisor(std::int64_t n) {
  for (auto d = static_cast<std::int64_t>(std::min<double>(4096, std::max(8.0, double(n) / 8)));
       d >= 8; --d) {
    if (d * d <= n && n % d == 0) return d;
  }
  return 0;
}

// The least divisor of `n` that is `wanted` or more, by a factor of 4 at most; 0 if there is none.
std::int64_t divisor_from(std::int64_t n, std::int64_t wanted) {
  for (std::int64_t d = wanted; d <= std::min(n / 2, 4 * wanted); ++d) {
    if (n % d == 0) return d;
  }
  return 0;
}

// Whether the last reduced loop walks memory densely (a row), or one that is kept does (columns).
// What is the same for all that is kept, as a number for each row of which columns are summed, is
// little and tells nothing.
bool reduces_rows(const Nest& nest, const Program& program) {
  const Expr last = nest.reduced.back().variable;
  for (const loop::Instruction& i : nest.body.instructions) {
    if (i.opcode != Opcode::load) continue;
    const Expr offset = linear_offset(program.buffers[i.buffer], i.indices, *program.context);
    const bool varies = std::any_of(nest.dims.begin(), nest.dims.end(), [&](const Dim& dim) {
      return sym::contains(offset, dim.variable);
    });
    if (!varies && !nest.dims.empty()) continue;
    const auto stride = sym::stride(offset, last);
    if (sym::contains(offset, last) && stride && stride->is_constant(1)) return true;
  }
  return false;
}

// On a GPU, into how many parts a reduction is cut so that all multiprocessors have work: 0 for as
// it is. Columns are walked by 32 threads with 8 lanes and up to 8 of those in a block, rows by
// up to 1024 threads; a part of a row is worth a block's work.
std::int64_t parts_on_gpu(const Nest& nest, const Program& program,
                          const abi::DeviceDescription& device) {
  constexpr std::int64_t kPartOfRow = 8192;
  constexpr std::int64_t kPartOfColumn = 256;
  const std::int64_t wanted = std::int64_t{device.parallelism} * device.resident_threads / 2;
  const std::int64_t kept = extent_hint(nest.dims);
  const std::int64_t length = extent_hint(nest.reduced);
  const bool rows = reduces_rows(nest, program);
  const std::int64_t threads = rows ? kept * std::min<std::int64_t>(1024, (length + 31) / 32)
                                    : kept * std::min<std::int64_t>(8, (length + 3) / 4) / 8;
  // Two kernels cannot share what they read with their neighbours: only where much is idle.
  if (threads >= wanted / 4) return 0;
  const std::int64_t most = length / (rows ? kPartOfRow : kPartOfColumn);
  const std::int64_t parts = std::min(wanted / std::max<std::int64_t>(threads, 1), most);
  return parts < 2 ? 0 : parts;
}

// Work under which one thread finishes before a second one has started in earnest.
constexpr std::int64_t kLongReduction = 1 << 16;

bool divide_first_loop(Nest& nest, sym::Context& context, std::int64_t wanted) {
  const auto extent = nest.reduced.front().extent.constant();
  if (!extent) return false;
  const std::int64_t outer = wanted == 0 ? middle_divisor(*extent) : divisor_from(*extent, wanted);
  if (outer == 0) return false;
  const Expr o = context.constant(outer);
  const Expr i = context.constant(*extent / outer);
  const Dim first = {context.index(o), o};
  const Dim second = {context.index(i), i};
  const std::pair<Expr, Expr> map[] = {
      {nest.reduced.front().variable, first.variable * i + second.variable}};
  for (loop::Instruction& instruction : nest.body.instructions) {
    if (instruction.opcode == Opcode::indirect) continue;
    for (Expr& e : instruction.indices) e = sym::substitute(e, map);
  }
  nest.reduced.front() = second;
  nest.reduced.insert(nest.reduced.begin(), first);
  return true;
}

void substitute_all(std::vector<Expr>& list, sym::Substitution map) {
  for (Expr& e : list) e = sym::substitute(e, map);
}

}  // namespace

void drop_unit_variables(Program& program) {
  const Expr zero = program.context->constant(0);
  for (Nest& nest : program.nests) {
    std::vector<std::pair<Expr, Expr>> map;
    for (const std::vector<Dim>* dims : {&nest.dims, &nest.reduced}) {
      for (const Dim& dim : *dims) {
        if (dim.extent.is_constant(1)) map.emplace_back(dim.variable, zero);
      }
    }
    if (map.empty()) continue;
    for (loop::Instruction& i : nest.body.instructions) {
      if (i.opcode != Opcode::indirect) substitute_all(i.indices, map);
    }
    for (loop::Store& store : nest.stores) substitute_all(store.indices, map);
    if (auto* matmul = std::get_if<loop::Matmul>(&nest.detail)) {
      substitute_all(matmul->a.indices, map);
      substitute_all(matmul->b.indices, map);
    }
  }
}

namespace {

void drop_dead_values(Nest& nest) {
  loop::Body& body = nest.body;
  const std::size_t count = body.instructions.size();
  std::vector<bool> needed(count, false);
  for (const Val v : body.yields) needed[v] = true;
  std::vector<Expr> offsets;
  for (const loop::Store& store : nest.stores) {
    offsets.insert(offsets.end(), store.indices.begin(), store.indices.end());
  }
  const auto named = [&](Expr symbol) {
    return std::any_of(offsets.begin(), offsets.end(),
                       [&](Expr e) { return sym::contains(e, symbol); });
  };
  for (std::size_t v = count; v-- > 0;) {
    const loop::Instruction& i = body.instructions[v];
    if (i.opcode == Opcode::indirect && named(i.indices[0])) needed[v] = true;
    if (!needed[v]) continue;
    for (const Val operand : i.used()) needed[operand] = true;
    if (i.opcode != Opcode::indirect) {
      offsets.insert(offsets.end(), i.indices.begin(), i.indices.end());
    }
  }
  if (std::find(needed.begin(), needed.end(), false) == needed.end()) return;
  std::vector<Val> place(count, 0);
  std::vector<loop::Instruction> kept;
  for (std::size_t v = 0; v < count; ++v) {
    if (!needed[v]) continue;
    place[v] = static_cast<Val>(kept.size());
    kept.push_back(std::move(body.instructions[v]));
    for (std::size_t k = 0; k < kept.back().operand_count; ++k) {
      kept.back().operands[k] = place[kept.back().operands[k]];
    }
  }
  body.instructions = std::move(kept);
  for (Val& v : body.yields) v = place[v];
}

}  // namespace

void drop_dead_values(Program& program) {
  for (Nest& nest : program.nests) drop_dead_values(nest);
}

void contractions_to_loops(Program& program, const Options& options) {
  for (Nest& nest : program.nests) {
    if (nest.kind == NestKind::matmul) {
      const auto& m = std::get<loop::Matmul>(nest.detail);
      const bool one_row = nest.dims[nest.dims.size() - 2].extent.is_constant(1);
      const bool library =
          options.can_matmul(program.buffers[m.a.buffer].dtype, program.buffers[m.b.buffer].dtype,
                             program.buffers[nest.stores[0].buffer].dtype);
      if (one_row || !library) matmul_to_loops(nest, program);
    } else if (nest.kind == NestKind::convolution) {
      const auto& c = std::get<loop::Convolution>(nest.detail);
      if (!options.can_convolve(program.buffers[c.x].dtype)) convolution_to_loops(nest, program);
    }
  }
}

void split_long_reductions(Program& program, const abi::DeviceDescription& device) {
  sym::Context& context = *program.context;
  std::vector<Nest> result;
  for (Nest& nest : program.nests) {
    const bool gpu = device.kind != abi::DeviceKind::cpu;
    bool wanted = can_split(nest);
    std::int64_t parts = 0;
    if (gpu) {
      parts = wanted ? parts_on_gpu(nest, program, device) : 0;
      wanted = parts != 0;
    } else {
      wanted = wanted && extent_hint(nest.dims) < 2 * device.parallelism &&
               extent_hint(nest.reduced) >= kLongReduction;
    }
    // The first loop as it is makes enough parts, or is divided.
    const bool divide =
        nest.reduced.size() == 1 ||
        (parts != 0 && sym::hint(nest.reduced.front().extent).value_or(0) > 16 * parts);
    if (!wanted || (divide && !divide_first_loop(nest, context, parts)) ||
        nest.reduced.size() < 2) {
      result.push_back(std::move(nest));
      continue;
    }
    Nest partial = nest;
    const Dim moved = partial.reduced.front();
    partial.reduced.erase(partial.reduced.begin());
    partial.dims.push_back(moved);
    loop::Buffer buffer;
    buffer.name = "t" + std::to_string(program.buffers.size());
    buffer.dtype = nest.accumulator;
    buffer.device = program.buffers[nest.stores.front().buffer].device;
    std::vector<Expr> indices;
    std::vector<Expr> strides;
    for (const Dim& dim : partial.dims) {
      buffer.sizes.push_back(dim.extent);
      indices.push_back(dim.variable);
    }
    Expr running = context.constant(1);
    strides.resize(buffer.sizes.size());
    // Columns of partial results lie next to each other, as the columns do.
    const bool columns = parts != 0 && !reduces_rows(nest, program);
    for (std::size_t d = buffer.sizes.size() - (columns ? 1 : 0); d-- > 0;) {
      strides[d] = running;
      running = running * buffer.sizes[d];
    }
    if (columns) strides.back() = running;
    buffer.strides = strides;
    const BufferId made = program.add_buffer(std::move(buffer));
    partial.stores = {{made, indices, loop::StoreMode::overwrite, 0}};
    Nest total = nest;
    total.body = {};
    total.dims = nest.dims;
    const Expr variable = context.index(moved.extent);
    total.reduced = {{variable, moved.extent}};
    indices.back() = variable;
    BodyBuilder b(total.body, context);
    b.yield(b.load(made, nest.accumulator, indices));
    result.push_back(std::move(partial));
    result.push_back(std::move(total));
  }
  program.nests = std::move(result);
}

}  // namespace inkle::schedule
