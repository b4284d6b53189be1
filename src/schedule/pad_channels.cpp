// Pads images of few channels with channels of zeros, for the fast algorithms of the library.
#include <algorithm>
#include <optional>

#include "loop/builder.h"
#include "schedule/buffers.h"
#include "schedule/linear.h"
#include "schedule/rewrite.h"

namespace inkle::schedule {
namespace {

using loop::BodyBuilder;
using loop::Buffer;
using loop::BufferId;
using loop::Nest;
using loop::NestKind;
using loop::Opcode;
using loop::Program;
using loop::Val;

class ChannelPadder {
 public:
  ChannelPadder(Program& program, std::int64_t channels) : program_(program), channels_(channels) {}

  void run() {
    std::vector<Nest> result;
    for (Nest& nest : program_.nests) {
      std::optional<Nest> after;
      if (nest.kind == NestKind::convolution) after = pad(nest, result);
      result.push_back(std::move(nest));
      if (after) result.push_back(std::move(*after));
    }
    program_.nests = std::move(result);
  }

 private:
  // Returns the nest that takes a weight gradient from the one of the padded channels.
  std::optional<Nest> pad(Nest& nest, std::vector<Nest>& before) {
    auto& c = std::get<loop::Convolution>(nest.detail);
    const auto given = program_.buffers[c.x].sizes[1].constant();
    if (!abi::is_reduced_float(program_.buffers[c.x].dtype) || c.transposed || c.groups != 1 ||
        program_.buffers[c.x].sizes.size() < 4 || !given || *given < 1 || *given >= channels_) {
      return std::nullopt;
    }
    if (c.weight_gradient) {
      if (!is_identity(nest.stores.front().indices, nest.dims)) return std::nullopt;
      c.x = padded(c.x, *given, nest.source, before);
      return given_channels(nest);
    }
    c.x = padded(c.x, *given, nest.source, before);
    c.w = padded(c.w, *given, nest.source, before);
    return std::nullopt;
  }

  // The nest computes the gradient of all channels; the given channels are copied from it.
  Nest given_channels(Nest& nest) {
    sym::Context& context = *program_.context;
    loop::Store& store = nest.stores.front();
    const BufferId made = program_.add_buffer(of_channels(store.buffer));
    Nest copy;
    copy.label = "given_channels";
    copy.source = nest.source;
    copy.stores = nest.stores;
    copy.dims = nest.dims;
    BodyBuilder b(copy.body, context);
    b.yield(b.load(made, program_.buffers[made].dtype, store.indices));
    store.buffer = made;
    for (std::size_t d = 0; d < nest.dims.size(); ++d) {
      const Expr extent = program_.buffers[made].sizes[d];
      nest.dims[d] = {context.index(extent), extent};
      store.indices[d] = nest.dims[d].variable;
    }
    return copy;
  }

  // A buffer like `from` with more channels, channels last.
  Buffer of_channels(BufferId from) const {
    sym::Context& context = *program_.context;
    const Buffer& given = program_.buffers[from];
    Buffer buffer = temporary(program_, from, given.dtype, given.sizes);
    buffer.sizes[1] = context.constant(channels_);
    std::vector<Expr> strides(buffer.sizes.size());
    Expr step = context.constant(channels_);
    strides[1] = context.constant(1);
    for (std::size_t d = strides.size(); d-- > 2;) {
      strides[d] = step;
      step = step * buffer.sizes[d];
    }
    strides[0] = step;
    buffer.strides = std::move(strides);
    return buffer;
  }

  // The buffer with zeros behind its `given` channels, channels last.
  BufferId padded(BufferId from, std::int64_t given, const std::string& source,
                  std::vector<Nest>& before) {
    sym::Context& context = *program_.context;
    Buffer buffer = of_channels(from);
    Nest nest;
    nest.label = "pad_channels";
    nest.source = source;
    std::vector<Expr> indices = add_loops(nest, buffer.sizes, context);
    BodyBuilder b(nest.body, context);
    const Val is_given =
        b.binary(Opcode::less, b.index(indices[1]), b.constant(abi::DType::i64, given));
    b.yield(b.load_if(is_given, b.constant(buffer.dtype, 0.0), from, buffer.dtype, indices));
    const BufferId made = program_.add_buffer(std::move(buffer));
    nest.stores.push_back({made, std::move(indices), loop::StoreMode::overwrite, 0});
    before.push_back(std::move(nest));
    return made;
  }

  Program& program_;
  std::int64_t channels_;
};

}  // namespace

void pad_channels(Program& program, std::int64_t channels) {
  if (channels > 1) ChannelPadder(program, channels).run();
}

}  // namespace inkle::schedule
