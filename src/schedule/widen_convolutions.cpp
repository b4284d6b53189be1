// Widens convolutions of f16 and bf16 to f32 where the library has f32 alone, and matrix products
// of f16 and bf16 for an f32 template.
#include <functional>
#include <map>

#include "loop/builder.h"
#include "schedule/buffers.h"
#include "schedule/numerics.h"
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
  Widener(Program& program, std::function<bool(const Nest&)> wants)
      : program_(program), wants_(std::move(wants)) {}

  void run() {
    for (Nest& nest : program_.nests) {
      if (wants_(nest)) {
        widen(nest);
      } else {
        result_.push_back(std::move(nest));
      }
    }
    program_.nests = std::move(result_);
  }

 private:
  void widen(Nest& nest) {
    widen_operands(nest);
    if (program_.buffers[nest.stores.front().buffer].dtype == DType::f32) {
      result_.push_back(std::move(nest));
      return;
    }
    Nest rounded;
    rounded.label = nest.kind == NestKind::matmul ? "round_product" : "round_convolution";
    rounded.source = nest.source;
    rounded.stores = nest.stores;
    loop::Store& store = nest.stores.front();
    const loop::Buffer& given = program_.buffers[store.buffer];
    const DType dtype = given.dtype;
    std::vector<Expr> sizes;
    for (const loop::Dim& dim : nest.dims) sizes.push_back(dim.extent);
    store.buffer =
        program_.add_buffer(temporary(program_, store.buffer, DType::f32, std::move(sizes)));
    const std::vector<Expr> place =
        add_loops(rounded, program_.buffers[store.buffer].sizes, *program_.context);
    std::vector<std::pair<Expr, Expr>> map;
    std::vector<Expr> own;
    for (std::size_t d = 0; d < place.size(); ++d) {
      map.emplace_back(nest.dims[d].variable, place[d]);
      own.push_back(nest.dims[d].variable);
    }
    for (Expr& e : rounded.stores.front().indices) e = sym::substitute(e, map);
    store.indices = std::move(own);
    store.mode = loop::StoreMode::overwrite;

    BodyBuilder b(rounded.body, *program_.context);
    b.yield(b.cast(b.load(store.buffer, DType::f32, std::move(place)), dtype));
    result_.push_back(std::move(nest));
    result_.push_back(std::move(rounded));
  }

  void widen_operands(Nest& nest) {
    if (auto* m = std::get_if<loop::Matmul>(&nest.detail)) {
      m->a.buffer = widened(m->a.buffer, nest.source);
      m->b.buffer = widened(m->b.buffer, nest.source);
      return;
    }
    auto& c = std::get<loop::Convolution>(nest.detail);
    c.x = widened(c.x, nest.source);
    c.w = widened(c.w, nest.source);
    if (c.bias) c.bias = widened(*c.bias, nest.source);
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
  std::function<bool(const Nest&)> wants_;
  std::vector<Nest> result_;
  std::map<BufferId, BufferId> widened_;
};

}  // namespace

void widen_convolutions(Program& program, const abi::ConvolutionLibrary& library) {
  Widener(program, [&](const Nest& nest) {
    const auto* convolution = std::get_if<loop::Convolution>(&nest.detail);
    if (convolution == nullptr) return false;
    const DType dtype = program.buffers[convolution->x].dtype;
    return abi::is_reduced_float(dtype) && !library.types.has(dtype) &&
           library.types.has(DType::f32);
  }).run();
}

void widen_products(Program& program) {
  Widener(program, [&](const Nest& nest) {
    const auto* product = std::get_if<loop::Matmul>(&nest.detail);
    return product != nullptr && abi::is_reduced_float(program.buffers[product->a.buffer].dtype);
  }).run();
}

}  // namespace inkle::schedule
