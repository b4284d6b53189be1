#include "schedule/rewrite.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/unsupported.h"
#include "loop/builder.h"
#include "schedule/buffers.h"
#include "schedule/inline.h"
#include "schedule/library.h"
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

// The right operand is a parameter of many columns and terms: its packed panels are read
// sequentially, and packing them costs little.
bool is_wide_weight(const Nest& nest, const Program& program) {
  constexpr std::int64_t kLeast = 64;
  const auto columns = nest.dims.back().extent.constant();
  const auto terms = nest.reduced.front().extent.constant();
  return columns && terms && *columns >= kLeast && *terms >= kLeast && *terms % 2 == 0 &&
         program.buffers[std::get<loop::Matmul>(nest.detail).b.buffer].is_parameter;
}

// x[n, g*C+c, o*s + k*d - p] * w[o, c, k], summed over c and k; zero outside of x.
void convolution_to_loops(Nest& nest, const Program& program) {
  const auto c = std::get<loop::Convolution>(nest.detail);
  sym::Context& context = *program.context;
  if (c.transposed || c.weight_gradient) {
    unsupported_at({&nest.source, 1},
                   "{} at {}: no algorithm for a transposed convolution or a weight gradient of {}",
                   nest.label, nest.source, abi::name_of(program.buffers[c.x].dtype));
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

// The bias of a convolution as a nest after it; the convolution then stores sums without bias.
std::optional<Nest> take_bias(Nest& nest, Program& program) {
  auto& c = std::get<loop::Convolution>(nest.detail);
  if (!c.bias || c.transposed || c.weight_gradient) return std::nullopt;
  sym::Context& context = *program.context;
  const BufferId out = nest.stores.front().buffer;
  const DType sums = accumulator_of(program.buffers[c.x].dtype);
  Nest added;
  added.label = "bias";
  added.source = nest.source;
  std::vector<Expr> sizes = program.buffers[out].sizes;
  loop::Buffer buffer = temporary(program, out, sums, sizes);
  buffer.strides = program.buffers[out].strides;
  const std::vector<Expr> place = add_loops(added, sizes, context);
  const DType dtype = program.buffers[*c.bias].dtype;
  const BufferId made = program.add_buffer(std::move(buffer));
  BodyBuilder b(added.body, context);
  const Val bias = b.cast(b.load(*c.bias, dtype, {place[1]}), sums);
  b.yield(b.cast(b.add(b.load(made, sums, place), bias), program.buffers[out].dtype));
  added.stores.push_back({out, place, loop::StoreMode::overwrite, 0});
  nest.stores.front().buffer = made;
  c.bias.reset();
  return added;
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

void divide_loop(Nest& nest, std::vector<Dim>& dims, std::size_t at, Expr inner,
                 sym::Context& context) {
  const Dim whole = dims[at];
  const Expr outer = sym::floordiv(whole.extent, inner);
  const Dim slow{context.index(outer), outer};
  const Dim fast{context.index(inner), inner};
  dims[at] = slow;
  dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(at) + 1, fast);
  const std::pair<Expr, Expr> map[] = {{whole.variable, slow.variable * inner + fast.variable}};
  for (loop::Instruction& i : nest.body.instructions) {
    if (i.opcode != Opcode::indirect) substitute_all(i.indices, map);
  }
  for (loop::Store& store : nest.stores) substitute_all(store.indices, map);
}

namespace {

const Dim* find(const Nest& nest, Expr variable) {
  for (const std::vector<Dim>* dims : {&nest.dims, &nest.reduced}) {
    for (const Dim& dim : *dims) {
      if (dim.variable == variable) return &dim;
    }
  }
  return nullptr;
}

// Whether the reader's loops cover the whole of their dimensions, and do not leave out padding at
// the end (pad_gemms).
bool reads_whole(const Nest& reader, const loop::Instruction& load, const Nest* writer) {
  if (writer == nullptr) return true;
  for (const loop::Store& store : writer->stores) {
    if (store.buffer != load.buffer) continue;
    for (std::size_t d = 0; d < load.indices.size(); ++d) {
      const Dim* theirs = find(*writer, store.indices[d]);
      const Dim* ours = find(reader, load.indices[d]);
      if (theirs && ours && !(theirs->extent == ours->extent)) return false;
    }
  }
  return true;
}

// The divisor of an index floordiv(variable, divisor) of a load, where it divides the loop.
std::optional<Expr> quotient_of(const Nest& nest, const Dim& dim,
                                const std::vector<const Nest*>& writers) {
  for (const loop::Instruction& i : nest.body.instructions) {
    if (i.opcode != Opcode::load || !reads_whole(nest, i, writers[i.buffer])) continue;
    for (const Expr e : i.indices) {
      if (e.kind() != sym::Kind::floordiv || !(e.operands()[0] == dim.variable)) continue;
      const Expr divisor = e.operands()[1];
      const auto varies = [&](const Dim& d) { return sym::contains(divisor, d.variable); };
      if (std::any_of(nest.dims.begin(), nest.dims.end(), varies)) continue;
      if (std::any_of(nest.reduced.begin(), nest.reduced.end(), varies)) continue;
      if (sym::mod(dim.extent, divisor).is_constant(0)) return divisor;
    }
  }
  return std::nullopt;
}

// The number of results of a nest; 0 where sizes are not known.
std::int64_t results_of(const Nest& nest) {
  std::int64_t results = 1;
  for (const Dim& dim : nest.dims) results *= dim.extent.constant().value_or(0);
  return results;
}

}  // namespace

void unfold_reshapes(Program& program, std::int64_t most_sums) {
  std::vector<const Nest*> writers(program.buffers.size(), nullptr);
  for (Nest& nest : program.nests) {
    for (const loop::Store& store : nest.stores) writers[store.buffer] = &nest;
    if (nest.kind != NestKind::reduction) continue;
    if (most_sums > 0 && results_of(nest) > most_sums) continue;
    for (std::vector<Dim>* dims : {&nest.dims, &nest.reduced}) {
      for (std::size_t d = 0; d < dims->size(); ++d) {
        const auto inner = quotient_of(nest, (*dims)[d], writers);
        if (inner) divide_loop(nest, *dims, d, *inner, *program.context);
      }
    }
  }
}

namespace {

void drop_dead_values(Nest& nest) {
  std::vector<Expr> indices;
  for (const loop::Store& store : nest.stores) {
    indices.insert(indices.end(), store.indices.begin(), store.indices.end());
  }
  loop::drop_unused(nest.body, std::move(indices));
}

}  // namespace

void drop_dead_values(Program& program) {
  for (Nest& nest : program.nests) drop_dead_values(nest);
}

void contractions_to_loops(Program& program, const abi::Libraries& libraries, OneRow stay,
                           UnsupportedNodes& found) {
  std::vector<Nest> nests;
  for (Nest& nest : program.nests) {
    std::optional<Nest> bias;
    if (nest.kind == NestKind::matmul) {
      const auto& m = std::get<loop::Matmul>(nest.detail);
      const bool one_row = nest.dims[nest.dims.size() - 2].extent.is_constant(1);
      const bool one_column = nest.dims.back().extent.is_constant(1);
      const DType dtype = program.buffers[m.a.buffer].dtype;
      const bool library = multiplies(libraries.gemm, program.buffers[m.a.buffer].dtype,
                                      program.buffers[m.b.buffer].dtype,
                                      program.buffers[nest.stores[0].buffer].dtype);
      const bool stays = (stay.f32 && dtype == DType::f32) ||
                         (library && stay.weights.has(dtype) && is_wide_weight(nest, program));
      const bool is_vector = one_row || (one_column && libraries.gemm.column_loops.has(dtype));
      if (!stays && (is_vector || !library)) matmul_to_loops(nest, program);
    } else if (nest.kind == NestKind::convolution) {
      const auto& c = std::get<loop::Convolution>(nest.detail);
      if (!libraries.convolution.types.has(program.buffers[c.x].dtype)) {
        found.run([&] {
          bias = take_bias(nest, program);
          convolution_to_loops(nest, program);
        });
      }
    }
    nests.push_back(std::move(nest));
    if (bias) nests.push_back(std::move(*bias));
  }
  program.nests = std::move(nests);
}

}  // namespace inkle::schedule
