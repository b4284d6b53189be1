// Biases of transposed convolutions become nests after them.
#include <utility>
#include <vector>

#include "loop/builder.h"
#include "schedule/buffers.h"
#include "schedule/rewrite.h"

namespace inkle::schedule {
namespace {

using abi::DType;
using loop::BodyBuilder;
using loop::BufferId;
using loop::Nest;
using loop::Program;
using loop::Val;

Nest take_bias(Nest& nest, Program& program) {
  auto& c = std::get<loop::Convolution>(nest.detail);
  loop::Store& store = nest.stores.front();
  const BufferId out = store.buffer;
  const DType dtype = program.buffers[out].dtype, of_bias = program.buffers[*c.bias].dtype;
  const BufferId sums =
      program.add_buffer(temporary(program, out, dtype, program.buffers[out].sizes));

  Nest added;
  added.label = "bias";
  added.source = nest.source;
  added.dims = nest.dims;
  added.stores = {store};
  store.buffer = sums;
  store.mode = loop::StoreMode::overwrite;
  std::vector<sym::Expr> place;
  for (const loop::Dim& dim : added.dims) place.push_back(dim.variable);
  const sym::Expr channel = place[1];
  const DType wide = abi::compute_type(dtype);
  BodyBuilder b(added.body, *program.context);
  const Val sum = b.cast(b.load(sums, dtype, std::move(place)), wide);
  const Val bias = b.cast(b.load(*c.bias, of_bias, {channel}), wide);
  b.yield(b.cast(b.add(sum, bias), dtype));
  c.bias.reset();
  return added;
}

}  // namespace

void separate_biases(Program& program) {
  std::vector<Nest> result;
  for (Nest& nest : program.nests) {
    const auto* c = std::get_if<loop::Convolution>(&nest.detail);
    if (c == nullptr || !c->transposed || !c->bias) {
      result.push_back(std::move(nest));
      continue;
    }
    Nest added = take_bias(nest, program);
    result.push_back(std::move(nest));
    result.push_back(std::move(added));
  }
  program.nests = std::move(result);
}

}  // namespace inkle::schedule
