// Convolutions whose windows do not overlap become GEMMs of patches with the weights (im2col).
#include <algorithm>
#include <array>

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

class PatchWriter {
 public:
  PatchWriter(Program& program, std::int64_t channels) : program_(program), channels_(channels) {}

  void run() {
    std::vector<Nest> result;
    for (Nest& nest : program_.nests) {
      if (nest.kind == NestKind::convolution && is_for_patches(nest)) {
        if (std::get<loop::Convolution>(nest.detail).weight_gradient) {
          rewrite_gradient(nest, result);
        } else {
          rewrite(nest, result);
        }
      } else {
        result.push_back(std::move(nest));
      }
    }
    program_.nests = std::move(result);
  }

 private:
  const std::vector<Expr>& sizes(BufferId b) const { return program_.buffers[b].sizes; }

  bool is_for_patches(const Nest& nest) const {
    const auto& c = std::get<loop::Convolution>(nest.detail);
    if (!abi::is_reduced_float(program_.buffers[c.x].dtype) || c.transposed || c.groups != 1 ||
        sizes(c.x).size() != 4) {
      return false;
    }
    const auto& weights = sizes(c.weight_gradient ? nest.stores.front().buffer : c.w);
    const auto given = sizes(c.x)[1].constant();
    if (!given || *given < 1 || *given >= channels_) return false;
    for (std::size_t d = 0; d < 2; ++d) {
      if (!weights[d + 2].is_constant(c.stride[d]) || c.padding[d] != 0 || c.dilation[d] != 1) {
        return false;
      }
    }
    const auto& stored = nest.stores.front().indices;
    return std::ranges::equal(stored, nest.dims, {}, {}, &loop::Dim::variable);
  }

  static Nest empty_nest(const Nest& from, NestKind kind, const char* label) {
    Nest nest;
    nest.kind = kind;
    nest.label = label;
    nest.source = from.source;
    return nest;
  }

  // Indices in a patch. Neighbours in the image are neighbours in a patch.
  struct Patch {
    std::int64_t channels = 0, height = 0, width = 0;
    bool channels_last = false;

    struct Coordinates {
      Expr channel, row, column;
    };
    [[nodiscard]] std::int64_t depth() const { return channels * height * width; }
    [[nodiscard]] Coordinates coordinates(Expr k) const {
      if (channels_last) {
        return {sym::mod(k, channels), sym::floordiv(k, channels * width),
                sym::mod(sym::floordiv(k, channels), width)};
      }
      return {sym::floordiv(k, height * width), sym::mod(sym::floordiv(k, width), height),
              sym::mod(k, width)};
    }
    [[nodiscard]] Expr number(Expr channel, Expr row, Expr column) const {
      if (channels_last) return (row * width + column) * channels + channel;
      return (channel * height + row) * width + column;
    }
  };
  Patch patch_of(const loop::Convolution& c) const {
    const auto& strides = program_.buffers[c.x].strides;
    return {*sizes(c.x)[1].constant(), c.stride[0], c.stride[1],
            strides && (*strides)[1].is_constant(1)};
  }

  // The image as [image, row, column, index in the patch].
  BufferId write_patches(const Nest& convolution, const Patch& patch, Expr rows, Expr columns,
                         std::vector<Nest>& result) {
    const auto& c = std::get<loop::Convolution>(convolution.detail);
    sym::Context& context = *program_.context;
    const Expr depth = context.constant(patch.depth());
    const Expr images = sizes(c.x)[0];
    const DType dtype = program_.buffers[c.x].dtype;
    Nest patches = empty_nest(convolution, NestKind::pointwise, "patches");
    const std::vector<Expr> at =
        add_loops(patches, std::array{images, rows, columns, depth}, context);
    const Patch::Coordinates from = patch.coordinates(at[3]);
    BodyBuilder read(patches.body, context);
    read.yield(read.load(
        c.x, dtype,
        {at[0], from.channel, at[1] * patch.height + from.row, at[2] * patch.width + from.column}));
    const BufferId made =
        program_.add_buffer(temporary(program_, c.x, dtype, {images, rows, columns, depth}));
    patches.stores.push_back({made, at, loop::StoreMode::overwrite, 0});
    result.push_back(std::move(patches));
    return made;
  }

  // dw[o, k] = sum over the pixels of y of dy[o, pixel] * patches[pixel, k].
  void rewrite_gradient(const Nest& convolution, std::vector<Nest>& result) {
    const auto c = std::get<loop::Convolution>(convolution.detail);
    sym::Context& context = *program_.context;
    const Patch patch = patch_of(c);
    const std::vector<Expr> dy = sizes(c.w);
    const Expr rows = dy[2], columns = dy[3], depth = context.constant(patch.depth());
    const BufferId made = write_patches(convolution, patch, rows, columns, result);

    Nest product = empty_nest(convolution, NestKind::matmul, convolution.label.c_str());
    product.accumulator = DType::f32;
    for (const Expr size : {dy[1], depth}) product.dims.push_back({context.index(size), size});
    const Expr o = product.dims[0].variable, k = product.dims[1].variable;
    const Expr pixels = dy[0] * rows * columns;
    const Expr p = context.index(pixels);
    product.reduced = {{p, pixels}};
    const Expr image = sym::floordiv(p, rows * columns);
    const Expr row = sym::mod(sym::floordiv(p, columns), rows), column = sym::mod(p, columns);
    product.detail =
        loop::Matmul{.a = {c.w, {image, o, row, column}}, .b = {made, {image, row, column, k}}};
    const BufferId sums = program_.add_buffer(temporary(program_, c.x, DType::f32, {dy[1], depth}));
    product.stores.push_back({sums, {o, k}, loop::StoreMode::overwrite, 0});
    result.push_back(std::move(product));

    Nest rounded = empty_nest(convolution, NestKind::pointwise, convolution.label.c_str());
    rounded.dims = convolution.dims;
    const auto& w = rounded.dims;
    BodyBuilder b(rounded.body, context);
    const Expr number = patch.number(w[1].variable, w[2].variable, w[3].variable);
    b.yield(b.cast(b.load(sums, DType::f32, {w[0].variable, number}),
                   program_.buffers[convolution.stores.front().buffer].dtype));
    rounded.stores = convolution.stores;
    result.push_back(std::move(rounded));
  }

  void rewrite(const Nest& convolution, std::vector<Nest>& result) {
    const auto c = std::get<loop::Convolution>(convolution.detail);
    sym::Context& context = *program_.context;
    const Patch patch = patch_of(c);
    const Expr depth = context.constant(patch.depth());
    const Expr images = convolution.dims[0].extent, outputs = convolution.dims[1].extent;
    const Expr rows = convolution.dims[2].extent, columns = convolution.dims[3].extent;
    const DType dtype = program_.buffers[c.x].dtype;
    const BufferId made = write_patches(convolution, patch, rows, columns, result);

    Nest product = empty_nest(convolution, NestKind::matmul, convolution.label.c_str());
    product.accumulator = DType::f32;
    const std::vector<Expr> of =
        add_loops(product, std::array{images, rows, columns, outputs}, context);
    const Expr k = context.index(depth);
    product.reduced = {{k, depth}};
    const Patch::Coordinates in = patch.coordinates(k);
    product.detail = loop::Matmul{.a = {made, {of[0], of[1], of[2], k}},
                                  .b = {c.w, {of[3], in.channel, in.row, in.column}}};
    const BufferId sums =
        program_.add_buffer(temporary(program_, c.x, DType::f32, {images, rows, columns, outputs}));
    product.stores.push_back({sums, of, loop::StoreMode::overwrite, 0});

    Nest rounded = empty_nest(convolution, NestKind::pointwise, convolution.label.c_str());
    rounded.dims = convolution.dims;
    const auto& y = rounded.dims;
    BodyBuilder b(rounded.body, context);
    Val sum =
        b.load(sums, DType::f32, {y[0].variable, y[2].variable, y[3].variable, y[1].variable});
    if (c.bias) {
      const DType of_bias = program_.buffers[*c.bias].dtype;
      sum = b.add(sum, b.cast(b.load(*c.bias, of_bias, {y[1].variable}), DType::f32));
    }
    b.yield(b.cast(sum, dtype));
    rounded.stores = convolution.stores;
    for (Nest* nest : {&product, &rounded}) result.push_back(std::move(*nest));
  }

  Program& program_;
  std::int64_t channels_;
};

}  // namespace

void convolutions_of_patches(Program& program, std::int64_t channels) {
  if (channels > 1) PatchWriter(program, channels).run();
}

}  // namespace inkle::schedule
