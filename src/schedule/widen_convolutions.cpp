// Convolutions of f16 and bf16 on processors whose library has them in f32 alone.
#include <map>

#include "loop/builder.h"
#include "schedule/buffers.h"
#include "schedule/rewrite.h"

namespace inkle::schedule {
namespace {

using abi::DType;
using loop::BodyBuilder;
using loop::BufferId;
using loop::Nest;
using loop::NestKind;
using loop::Program;

class Widener {
 public:
  Widener(Program& program, const abi::ConvolutionLibrary& library)
      : program_(program), library_(library) {}

  void run() {
    for (Nest& nest : program_.nests) {
      if (nest.kind == NestKind::convolution && is_narrow(nest)) {
        widen(nest);
      } else {
        result_.push_back(std::move(nest));
      }
    }
    program_.nests = std::move(result_);
  }

 private:
  bool is_narrow(const Nest& nest) const {
    const DType dtype = program_.buffers[std::get<loop::Convolution>(nest.detail).x].dtype;
    return abi::is_reduced_float(dtype) && !library_.types.has(dtype) &&
           library_.types.has(DType::f32);
  }

  void widen(Nest& nest) {
    auto& c = std::get<loop::Convolution>(nest.detail);
    c.x = widened(c.x, nest.source);
    c.w = widened(c.w, nest.source);
    if (c.bias) c.bias = widened(*c.bias, nest.source);

    Nest rounded;
    rounded.label = "round_convolution";
    rounded.source = nest.source;
    rounded.stores = nest.stores;
    rounded.dims = nest.dims;
    loop::Store& store = nest.stores.front();
    const loop::Buffer& given = program_.buffers[store.buffer];
    const DType dtype = given.dtype;
    std::vector<Expr> sizes;
    for (const loop::Dim& dim : nest.dims) sizes.push_back(dim.extent);
    store.buffer =
        program_.add_buffer(temporary(program_, store.buffer, DType::f32, std::move(sizes)));
    nest.dims.clear();
    store.indices = add_loops(nest, program_.buffers[store.buffer].sizes, *program_.context);
    store.mode = loop::StoreMode::overwrite;

    BodyBuilder b(rounded.body, *program_.context);
    std::vector<Expr> place;
    for (const loop::Dim& dim : rounded.dims) place.push_back(dim.variable);
    b.yield(b.cast(b.load(store.buffer, DType::f32, std::move(place)), dtype));
    result_.push_back(std::move(nest));
    result_.push_back(std::move(rounded));
  }

  // The buffer in f32. Nests that write it come before its first reader, so one copy serves all.
  BufferId widened(BufferId from, const std::string& source) {
    if (program_.buffers[from].dtype == DType::f32) return from;
    if (const auto at = widened_.find(from); at != widened_.end()) return at->second;
    Nest nest;
    nest.label = "widen";
    nest.source = source;
    const std::vector<Expr> sizes = program_.buffers[from].sizes;
    std::vector<Expr> indices = add_loops(nest, sizes, *program_.context);
    BodyBuilder b(nest.body, *program_.context);
    b.yield(b.cast(b.load(from, program_.buffers[from].dtype, indices), DType::f32));
    const BufferId made = program_.add_buffer(temporary(program_, from, DType::f32, sizes));
    nest.stores.push_back({made, std::move(indices), loop::StoreMode::overwrite, 0});
    result_.push_back(std::move(nest));
    widened_.emplace(from, made);
    return made;
  }

  Program& program_;
  const abi::ConvolutionLibrary& library_;
  std::vector<Nest> result_;
  std::map<BufferId, BufferId> widened_;
};

}  // namespace

void widen_convolutions(Program& program, const abi::ConvolutionLibrary& library) {
  Widener(program, library).run();
}

}  // namespace inkle::schedule
