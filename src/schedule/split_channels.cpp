// Splits long sums over the channels of a sequence into groups of channels.
#include "loop/builder.h"
#include "schedule/buffers.h"
#include "schedule/rewrite.h"

namespace inkle::schedule {
namespace {

using abi::DType;
using loop::BodyBuilder;
using loop::Buffer;
using loop::BufferId;
using loop::Nest;
using loop::NestKind;
using loop::Program;
using loop::Val;

class ChannelSplitter {
 public:
  ChannelSplitter(Program& program, std::int64_t longest) : program_(program), longest_(longest) {}

  void run() {
    std::vector<Nest> result;
    for (Nest& nest : program_.nests) {
      const std::int64_t groups = nest.kind == NestKind::convolution ? groups_for(nest) : 1;
      if (groups > 1) {
        split(nest, groups, result);
      } else {
        result.push_back(std::move(nest));
      }
    }
    program_.nests = std::move(result);
  }

 private:
  // The least power of two that divides the channels and makes the sums short enough, 8 at most;
  // 1: as it is.
  std::int64_t groups_for(const Nest& nest) const {
    const auto& c = std::get<loop::Convolution>(nest.detail);
    const Buffer& w = program_.buffers[c.w];
    if (w.sizes.size() != 3 || w.dtype != DType::f32 || c.groups != 1 || c.transposed ||
        c.weight_gradient) {
      return 1;
    }
    const auto outputs = w.sizes[0].constant(), channels = w.sizes[1].constant(),
               taps = w.sizes[2].constant();
    if (!outputs || !channels || !taps) return 1;
    std::int64_t groups = 1;
    while (*channels / groups * *taps > longest_ && groups < 8) groups *= 2;
    return *channels % (groups * kChannelBlock) == 0 ? groups : 1;
  }

  BufferId add(BufferId like, std::vector<Expr> sizes) {
    return program_.add_buffer(temporary(program_, like, DType::f32, std::move(sizes)));
  }

  // w2[g * O + o, i, k] = w[o, g * I + i, k]
  BufferId grouped_weights(BufferId w, std::int64_t groups, Nest& nest) {
    std::vector<Expr> sizes = program_.buffers[w].sizes;
    const Expr outputs = sizes[0];
    sizes[0] = outputs * groups;
    sizes[1] = sym::floordiv(sizes[1], groups);
    nest.label = "group_weights";
    std::vector<Expr> at = add_loops(nest, sizes, *program_.context);
    BodyBuilder b(nest.body, *program_.context);
    b.yield(b.load(
        w, DType::f32,
        {sym::mod(at[0], outputs), sym::floordiv(at[0], outputs) * sizes[1] + at[1], at[2]}));
    const BufferId made = add(w, std::move(sizes));
    nest.stores.push_back({made, std::move(at), loop::StoreMode::overwrite, 0});
    return made;
  }

  Val sum_of(BodyBuilder& b, BufferId parts, const std::vector<Expr>& at, const Expr& outputs,
             std::int64_t first, std::int64_t count) {
    if (count == 1) {
      return b.load(parts, DType::f32, {at[0], outputs * first + at[1], at[2]});
    }
    return b.add(sum_of(b, parts, at, outputs, first, count / 2),
                 sum_of(b, parts, at, outputs, first + count / 2, count / 2));
  }

  void split(Nest& nest, std::int64_t groups, std::vector<Nest>& result) {
    auto& c = std::get<loop::Convolution>(nest.detail);
    const Expr outputs = nest.dims[1].extent;
    Nest weights;
    weights.source = nest.source;
    c.w = grouped_weights(c.w, groups, weights);
    c.groups = groups;

    Nest sums;
    sums.label = nest.label;
    sums.source = nest.source;
    sums.stores = std::move(nest.stores);
    sums.dims = nest.dims;

    nest.dims.clear();
    std::vector<Expr> sizes = {sums.dims[0].extent, outputs * groups, sums.dims[2].extent};
    std::vector<Expr> at = add_loops(nest, sizes, *program_.context);
    const BufferId parts = add(c.x, std::move(sizes));
    nest.stores = {{parts, std::move(at), loop::StoreMode::overwrite, 0}};

    BodyBuilder b(sums.body, *program_.context);
    std::vector<Expr> place;
    for (const loop::Dim& dim : sums.dims) place.push_back(dim.variable);
    Val sum = sum_of(b, parts, place, outputs, 0, groups);
    if (c.bias) sum = b.add(sum, b.load(*c.bias, DType::f32, {place[1]}));
    c.bias.reset();
    b.yield(sum);
    for (Nest* made : {&weights, &nest, &sums}) result.push_back(std::move(*made));
  }

  static constexpr std::int64_t kChannelBlock = 16;  // of the library's layouts

  Program& program_;
  std::int64_t longest_;
};

}  // namespace

void split_channels(Program& program, std::int64_t longest) {
  if (longest > 0) ChannelSplitter(program, longest).run();
}

}  // namespace inkle::schedule
