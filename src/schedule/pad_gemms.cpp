// Pads GEMM operand rows not divisible by the vector width with zeros, for the library.
#include <algorithm>
#include <map>

#include "loop/builder.h"
#include "schedule/buffers.h"
#include "schedule/inline.h"
#include "schedule/rewrite.h"

namespace inkle::schedule {
namespace {

using abi::DType;
using loop::Access;
using loop::BodyBuilder;
using loop::Buffer;
using loop::BufferId;
using loop::Dim;
using loop::Nest;
using loop::NestKind;
using loop::Opcode;
using loop::Program;
using loop::Val;

class ProductPadder {
 public:
  ProductPadder(Program& program, const abi::GemmLibrary& library)
      : program_(program), library_(library), mutated_(mutated_buffers(program)) {}

  void run() {
    std::vector<Nest> result;
    for (Nest& nest : program_.nests) {
      std::optional<Nest> back;
      if (nest.kind == NestKind::matmul) back = pad(nest, result);
      result.push_back(std::move(nest));
      if (back) result.push_back(std::move(*back));
    }
    program_.nests = std::move(result);
    redirect();
  }

 private:
  const Buffer& buffer(BufferId b) const { return program_.buffers[b]; }

  // The dimension of the operand that `dim` alone indexes, over its whole size; nullopt if there is
  // none.
  std::optional<std::size_t> dimension_of(BufferId b, const std::vector<Expr>& indices,
                                          const Dim& dim) const {
    std::optional<std::size_t> found;
    for (std::size_t d = 0; d < indices.size(); ++d) {
      if (!sym::contains(indices[d], dim.variable)) continue;
      if (found || !(indices[d] == dim.variable) || !(buffer(b).sizes[d] == dim.extent)) {
        return std::nullopt;
      }
      found = d;
    }
    return found;
  }

  static bool uses(const std::vector<Expr>& indices, const Dim& dim) {
    return std::any_of(indices.begin(), indices.end(),
                       [&](Expr e) { return sym::contains(e, dim.variable); });
  }

  // Its elements lie next to each other along the last dimension.
  bool has_rows(BufferId b) const {
    const Buffer& of = buffer(b);
    return !mutated_[b] && (!of.strides || of.strides->back().is_constant(1));
  }

  bool is_large(BufferId b) const {
    std::int64_t count = 1;
    for (const Expr size : buffer(b).sizes) count *= std::max<std::int64_t>(hint(size), 1);
    return count >= library_.least_elements;
  }
  static std::int64_t hint(Expr e) { return sym::hint(e).value_or(0); }

  // Whether rows of the operand along `dim` are not divisible by the library's vector width.
  bool is_odd(const Access& access, const Dim& dim) const {
    const Buffer& of = buffer(access.buffer);
    const auto extent = dim.extent.constant();
    if (!extent || *extent < library_.least_row || !abi::is_reduced_float(of.dtype) ||
        *extent * abi::size_of(of.dtype) % library_.row_bytes == 0) {
      return false;
    }
    const auto at = dimension_of(access.buffer, access.indices, dim);
    return at && *at + 1 == of.sizes.size() && has_rows(access.buffer) && is_large(access.buffer);
  }

  // Pads the loops of the GEMM; returns the nest that copies its result from the padded one.
  std::optional<Nest> pad(Nest& nest, std::vector<Nest>& before) {
    auto& m = std::get<loop::Matmul>(nest.detail);
    if (nest.stores.size() != 1) return std::nullopt;
    std::vector<Dim*> dims = {&nest.dims[nest.dims.size() - 2], &nest.dims.back(),
                              &nest.reduced.front()};
    for (Dim* dim : dims) {
      if (!is_odd(m.a, *dim) && !is_odd(m.b, *dim)) continue;
      // Each dimension that the loop indexes must be padded.
      for (const Access* access : {&m.a, &m.b}) {
        const bool fits =
            !uses(access->indices, *dim) ||
            (dimension_of(access->buffer, access->indices, *dim) && !mutated_[access->buffer]);
        if (!fits) return std::nullopt;
      }
      const loop::Store& store = nest.stores.front();
      const bool stores = uses(store.indices, *dim);
      if (stores && (mutated_[store.buffer] || buffer(store.buffer).writes_into ||
                     !dimension_of(store.buffer, store.indices, *dim))) {
        return std::nullopt;
      }
      return lengthen(nest, *dim, stores, before);
    }
    return std::nullopt;
  }

  std::optional<Nest> lengthen(Nest& nest, Dim& dim, bool stores, std::vector<Nest>& before) {
    sym::Context& context = *program_.context;
    auto& m = std::get<loop::Matmul>(nest.detail);
    const std::int64_t size = abi::size_of(buffer(m.a.buffer).dtype);
    const std::int64_t unit = library_.row_bytes / size;
    const Expr extent = context.constant((*dim.extent.constant() + unit - 1) / unit * unit);
    const Dim longer = {context.index(extent), extent};
    const std::pair<Expr, Expr> map[] = {{dim.variable, longer.variable}};
    for (Access* access : {&m.a, &m.b}) {
      const auto at = dimension_of(access->buffer, access->indices, dim);
      if (!at) continue;
      access->buffer = padded(access->buffer, *at, extent, nest.source, before);
      for (Expr& e : access->indices) e = sym::substitute(e, map);
    }
    std::optional<Nest> back;
    if (stores) {
      loop::Store& store = nest.stores.front();
      const std::size_t at = *dimension_of(store.buffer, store.indices, dim);
      Buffer made = like(store.buffer);
      made.sizes[at] = extent;
      const BufferId wide = add(std::move(made));
      back = copy_of(wide, buffer(store.buffer).sizes, nest.source, Expr());
      back->stores.front().buffer = store.buffer;
      store.buffer = wide;
      for (Expr& e : store.indices) e = sym::substitute(e, map);
    }
    dim = longer;
    return back;
  }

  Buffer like(BufferId b) const { return temporary(program_, b, buffer(b).dtype, buffer(b).sizes); }
  BufferId add(Buffer made) {
    mutated_.push_back(false);
    return program_.add_buffer(std::move(made));
  }

  // The buffer padded with zeros along dimension `d`; one for all GEMMs.
  BufferId padded(BufferId from, std::size_t d, Expr extent, const std::string& source,
                  std::vector<Nest>& before) {
    const auto known = padded_.find({from, d});
    if (known != padded_.end()) return known->second;
    Buffer made = like(from);
    made.sizes[d] = extent;
    const std::vector<Expr> sizes = made.sizes;
    const BufferId to = add(std::move(made));
    const Expr given = buffer(from).sizes[d];
    Nest copy = copy_of(from, sizes, source, given, d);
    copy.stores.front().buffer = to;
    before.push_back(std::move(copy));
    return padded_[{from, d}] = to;
  }

  // A nest over `sizes` that reads `from` at the same indices; along dimension `d` only below
  // `given`, zero beyond. Its store has no buffer yet.
  Nest copy_of(BufferId from, const std::vector<Expr>& sizes, const std::string& source, Expr given,
               std::size_t d = 0) {
    sym::Context& context = *program_.context;
    Nest nest;
    nest.label = "pad_rows";
    nest.source = source;
    const std::vector<Expr> at = add_loops(nest, sizes, context);
    BodyBuilder b(nest.body, context);
    const DType dtype = buffer(from).dtype;
    if (given.is_null()) {
      b.yield(b.load(from, dtype, at));
    } else {
      const Val inside = b.less(b.index(at[d]), b.index(given));
      b.yield(b.load_if(inside, b.constant(dtype, 0.0), from, dtype, at));
    }
    nest.stores.push_back({0, std::move(at), loop::StoreMode::overwrite, 0});
    return nest;
  }

  // Other readers of a padded temporary read the padded rows, so that the unpadded ones need not be
  // written.
  void redirect() {
    for (const auto& [key, to] : padded_) {
      const BufferId from = key.first;
      if (buffer(from).role != loop::BufferRole::temporary || buffer(from).writes_into) continue;
      std::size_t made_at = 0;
      for (std::size_t n = 0; n < program_.nests.size(); ++n) {
        const auto w = loop::writes(program_.nests[n]);
        if (std::find(w.begin(), w.end(), to) != w.end()) made_at = n;
      }
      for (std::size_t n = made_at + 1; n < program_.nests.size(); ++n) {
        Nest& nest = program_.nests[n];
        for (loop::Instruction& i : nest.body.instructions) {
          if (i.opcode == Opcode::load && i.buffer == from) i.buffer = to;
        }
      }
    }
  }

  Program& program_;
  const abi::GemmLibrary& library_;
  std::vector<bool> mutated_;
  std::map<std::pair<BufferId, std::size_t>, BufferId> padded_;
};

}  // namespace

void pad_gemms(Program& program, const abi::GemmLibrary& library) {
  ProductPadder(program, library).run();
}

}  // namespace inkle::schedule
