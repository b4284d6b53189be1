// Operands of library calls are read in place where they can be, else copied.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "loop/builder.h"
#include "schedule/buffers.h"
#include "schedule/inline.h"
#include "schedule/layout.h"
#include "schedule/linear.h"

namespace inkle::schedule {
namespace {

using loop::Access;
using loop::Buffer;
using loop::BufferId;
using loop::Instruction;
using loop::Nest;
using loop::NestKind;
using loop::Opcode;
using loop::Program;

class OperandSettler {
 public:
  OperandSettler(Program& program, const abi::Libraries& libraries)
      : program_(program), libraries_(libraries), mutated_(mutated_buffers(program)) {
    producer_.assign(program.buffers.size(), -1);
    for (std::size_t n = 0; n < program.nests.size(); ++n) {
      for (const BufferId b : loop::writes(program.nests[n])) {
        producer_[b] = static_cast<std::int64_t>(n);
      }
    }
  }

  void run() {
    const std::size_t count = program_.nests.size();
    std::vector<Nest> result;
    for (std::size_t n = 0; n < count; ++n) {
      Nest nest = program_.nests[n];
      copies_.clear();
      settle(nest, n);
      std::optional<Nest> back = settle_result(nest);
      for (Nest& copy : copies_) result.push_back(std::move(copy));
      result.push_back(std::move(nest));
      if (back) result.push_back(std::move(*back));
    }
    program_.nests = std::move(result);
    remove_dead_nests(program_);
  }

 private:
  void settle(Nest& nest, std::size_t number) {
    if (auto* matmul = std::get_if<loop::Matmul>(&nest.detail)) {
      // Loops over batches come first; libraries want a unit stride in one of the others.
      const std::size_t batches = nest.dims.size() - 2;
      for (const std::size_t other : {batches + 1, batches}) {
        std::vector<loop::Dim> dims = nest.dims;
        dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(other));
        dims.push_back(nest.reduced.front());
        settle_access(other == batches ? matmul->b : matmul->a, dims, batches);
      }
    } else if (auto* attention = std::get_if<loop::Attention>(&nest.detail)) {
      settle_attention(*attention);
    } else if (auto* convolution = std::get_if<loop::Convolution>(&nest.detail)) {
      convolution->x = settle_image(convolution->x);
      if (convolution->weight_gradient) convolution->w = settle_image(convolution->w);
    } else if (auto* call = std::get_if<loop::EagerCall>(&nest.detail)) {
      settle_call(*call, number);
    }
  }

  // Copies that only take a part of another buffer, with the strides that the part has there, need
  // not be made (q, k and v of one fused projection). Dimensions of one element have any stride.
  void settle_call(loop::EagerCall& call, std::size_t number) const {
    if (!libraries_.eager_takes_parts) return;
    for (std::size_t n = 0; n < call.arguments.size(); ++n) {
      const auto* b = std::get_if<BufferId>(&call.arguments[n]);
      if (b == nullptr) continue;
      const Nest* copy = copy_that_makes(*b, number);
      if (copy == nullptr || !program_.buffers[*b].offset.is_null()) continue;
      const Instruction& load = copy->body.instructions.front();
      const auto view = strided_view(program_, {load.buffer, load.indices}, copy->dims);
      if (!view) continue;
      const std::vector<Expr>& strides = *program_.buffers[*b].strides;
      bool is_alike = true;
      for (std::size_t d = 0; d < strides.size(); ++d) {
        is_alike = is_alike && (view->sizes[d].is_constant(1) || view->strides[d] == strides[d]);
      }
      if (!is_alike) continue;
      call.parts.push_back({n, view->sizes, strides, view->offset});
      call.arguments[n] = load.buffer;
    }
  }

  // Libraries write GEMM results with unit stride along columns and images channels last (weight
  // gradients in any layout). For a result of another layout they write a temporary, which the
  // returned nest copies.
  std::optional<Nest> settle_result(Nest& nest) {
    if (nest.kind != NestKind::matmul && nest.kind != NestKind::convolution) return std::nullopt;
    const auto* convolution = std::get_if<loop::Convolution>(&nest.detail);
    if (convolution != nullptr && convolution->weight_gradient) return std::nullopt;
    const BufferId out = nest.stores.front().buffer;
    const loop::Buffer original = program_.buffers[out];
    const std::size_t rank = original.sizes.size();
    const bool good = nest.kind == NestKind::matmul ? original.sizes.back().is_constant(1) ||
                                                          original.strides->back().is_constant(1)
                                                    : is_settled(original);
    if (good || !is_identity(nest.stores.front().indices, nest.dims)) return std::nullopt;
    const Order order = nest.kind == NestKind::matmul
                            ? row_major(rank)
                            : convolved_order(program_.buffers[convolution->x],
                                              libraries_.convolution, *program_.context);
    return copy_result(nest, out, order);
  }

  Nest copy_result(Nest& nest, BufferId out, const Order& order) {
    sym::Context& context = *program_.context;
    const Buffer original = program_.buffers[out];
    Buffer buffer = temporary(program_, out, original.dtype, original.sizes);
    buffer.strides = dense_strides(context, original.sizes, order);
    const BufferId made = program_.add_buffer(std::move(buffer));
    producer_.push_back(-1);
    mutated_.push_back(false);
    Nest copy;
    copy.label = "copy";
    std::vector<Expr> indices = add_loops(copy, original.sizes, context);
    loop::BodyBuilder body(copy.body, context);
    body.yield(body.load(made, original.dtype, indices));
    copy.stores = nest.stores;
    copy.stores.front().indices = std::move(indices);
    nest.stores.front().buffer = made;
    return copy;
  }

  // The nest that makes `buffer` as an elementwise copy of another buffer of its device: kernels of
  // a GPU read numbers of the CPU, libraries and ops in eager do not. What is copied may be written
  // to, but not between the copy and nest `reader`, if one is given.
  const Nest* copy_that_makes(BufferId buffer, std::optional<std::size_t> reader = {}) const {
    if (producer_[buffer] < 0 || mutated_[buffer]) return nullptr;
    const Nest& nest = program_.nests[static_cast<std::size_t>(producer_[buffer])];
    if (nest.kind != NestKind::pointwise || nest.stores.size() != 1) return nullptr;
    if (nest.body.instructions.size() != 1 || !is_identity(nest.stores[0].indices, nest.dims)) {
      return nullptr;
    }
    const Instruction& load = nest.body.instructions.front();
    if (load.opcode != Opcode::load || load.operand_count != 0 ||
        (reader ? is_written(load.buffer, producer_[buffer] + 1, *reader)
                : mutated_[load.buffer]) ||
        load.dtype != program_.buffers[buffer].dtype ||
        program_.buffers[load.buffer].device != program_.buffers[buffer].device) {
      return nullptr;
    }
    return &nest;
  }

  // By the nests from `begin` to before `end`, as they were.
  bool is_written(BufferId buffer, std::int64_t begin, std::size_t end) const {
    for (auto n = static_cast<std::size_t>(begin); n < end; ++n) {
      for (const BufferId b : loop::writes(program_.nests[n])) {
        if (b == buffer) return true;
      }
    }
    return false;
  }

  Access through_copy(const Access& access, const Nest& copy) const {
    std::vector<std::pair<Expr, Expr>> map;
    for (std::size_t d = 0; d < copy.dims.size(); ++d) {
      map.emplace_back(copy.dims[d].variable, access.indices[d]);
    }
    Access original{copy.body.instructions.front().buffer, {}};
    for (const Expr e : copy.body.instructions.front().indices) {
      original.indices.push_back(sym::substitute(e, map));
    }
    return original;
  }

  // Libraries do not support negative strides, as reversed rows have.
  static bool is_reversed(const View& view) {
    return std::ranges::any_of(view.strides,
                               [](Expr stride) { return sym::hint(stride).value_or(0) < 0; });
  }

  // Whether iterations of two loops access the same elements, as overlapping windows of a row do:
  // libraries do not support such matrices. Symbolic sizes count by their hints; where those are
  // wrong, the library refuses the call.
  static bool overlaps(const View& view) {
    std::vector<std::pair<std::int64_t, std::int64_t>> steps;
    for (std::size_t d = 0; d < view.sizes.size(); ++d) {
      const auto size = sym::hint(view.sizes[d]), stride = sym::hint(view.strides[d]);
      if (size && stride && *size > 1 && *stride > 0) steps.emplace_back(*stride, *size);
    }
    std::ranges::sort(steps);
    for (std::size_t i = 1; i < steps.size(); ++i) {
      if (steps[i].first < steps[i - 1].first * steps[i - 1].second) return true;
    }
    return false;
  }

  // Whether an operand can be read in place. Of the two loops from `matrix` on, one must have unit
  // stride, if any has a stride but 0.
  bool is_readable(const Access& access, const std::vector<loop::Dim>& dims,
                   std::optional<std::size_t> matrix) const {
    const auto view = strided_view(program_, access, dims);
    if (!view || is_reversed(*view)) return false;
    if (!matrix) return true;
    if (overlaps(*view)) return false;
    if (libraries_.gemm.needs_matrices) return is_matrix(*view);
    bool moves = false;
    for (std::size_t d = *matrix; d < dims.size(); ++d) {
      const Expr stride = view->strides[d];
      if (stride.is_constant(1)) return true;
      moves |= !stride.is_constant(0) && !view->sizes[d].is_constant(1);
    }
    return !moves;
  }

  void settle_access(Access& access, const std::vector<loop::Dim>& dims,
                     std::optional<std::size_t> matrix = std::nullopt) {
    while (const Nest* copy = copy_that_makes(access.buffer)) {
      const Access original = through_copy(access, *copy);
      if (!is_readable(original, dims, matrix)) break;
      access = original;
    }
    if (is_readable(access, dims, matrix)) return;
    copy_operand(access, dims, libraries_.gemm.needs_matrices && matrix ? *matrix : dims.size());
  }

  // access := a row-major copy over the dims that it depends on, and all dims from `whole` on.
  void copy_operand(Access& access, const std::vector<loop::Dim>& dims, std::size_t whole) {
    sym::Context& context = *program_.context;
    Nest copy;
    copy.kind = NestKind::pointwise;
    copy.label = "copy";
    std::vector<std::pair<Expr, Expr>> map;
    std::vector<Expr> new_indices;
    Buffer buffer = temporary(program_, access.buffer, program_.buffers[access.buffer].dtype, {});
    for (std::size_t d = 0; d < dims.size(); ++d) {
      const loop::Dim& dim = dims[d];
      const bool used = std::any_of(access.indices.begin(), access.indices.end(),
                                    [&](Expr e) { return sym::contains(e, dim.variable); });
      if (!used && d < whole) continue;
      const Expr variable = context.index(dim.extent);
      copy.dims.push_back({variable, dim.extent});
      map.emplace_back(dim.variable, variable);
      new_indices.push_back(dim.variable);
      buffer.sizes.push_back(dim.extent);
    }
    buffer.strides = dense_strides(context, buffer.sizes, row_major(buffer.sizes.size()));
    std::vector<Expr> from;
    for (const Expr e : access.indices) from.push_back(sym::substitute(e, map));
    loop::BodyBuilder body(copy.body, context);
    body.yield(body.load(access.buffer, buffer.dtype, std::move(from)));
    const BufferId made = program_.add_buffer(std::move(buffer));
    loop::Store store{made, {}, loop::StoreMode::overwrite, 0};
    for (const loop::Dim& dim : copy.dims) store.indices.push_back(dim.variable);
    copy.stores.push_back(std::move(store));
    copies_.push_back(std::move(copy));
    producer_.push_back(-1);
    mutated_.push_back(false);
    access = {made, std::move(new_indices)};
  }

  // The access with head h standing for group h of `repeat` heads, if all heads of a group read the
  // same.
  static std::optional<Access> for_groups(const Access& access, Expr head, std::int64_t repeat) {
    const std::pair<Expr, Expr> to_first[] = {{head, head * repeat}};
    const std::pair<Expr, Expr> to_group[] = {{head, sym::floordiv(head, repeat)}};
    Access grouped{access.buffer, {}};
    for (const Expr e : access.indices) {
      const Expr first = sym::substitute(e, to_first);
      if (!(sym::substitute(first, to_group) == e)) return std::nullopt;
      grouped.indices.push_back(first);
    }
    return grouped;
  }

  // Removes repeats of the heads of k and v (grouped-query attention): attention reads one kv head
  // for a whole group of q heads.
  void find_groups(loop::Attention& attention) const {
    const Expr head = attention.variables[1];
    const auto heads = attention.kv_heads.constant();
    if (!heads || !(attention.heads == attention.kv_heads)) return;
    Access k = attention.k;
    Access v = attention.v;
    while (const Nest* copy = copy_that_makes(k.buffer)) k = through_copy(k, *copy);
    while (const Nest* copy = copy_that_makes(v.buffer)) v = through_copy(v, *copy);
    for (std::int64_t repeat = *heads; repeat > 1; --repeat) {
      if (*heads % repeat != 0) continue;
      const auto grouped_k = for_groups(k, head, repeat);
      const auto grouped_v = for_groups(v, head, repeat);
      if (!grouped_k || !grouped_v) continue;
      attention.k = *grouped_k;
      attention.v = *grouped_v;
      attention.kv_heads = attention.kv_heads.context().constant(*heads / repeat);
      return;
    }
  }

  void settle_attention(loop::Attention& attention) {
    if (!attention.gradient) find_groups(attention);
    const auto& v = attention.variables;
    const auto dims = [&](Expr heads, Expr rows, Expr columns) {
      return std::vector<loop::Dim>{
          {v[0], attention.batch}, {v[1], heads}, {v[2], rows}, {v[3], columns}};
    };
    settle_access(attention.q, dims(attention.heads, attention.q_length, attention.head_dim));
    settle_access(attention.k, dims(attention.kv_heads, attention.kv_length, attention.head_dim));
    settle_access(attention.v, dims(attention.kv_heads, attention.kv_length, attention.value_dim));
    if (attention.mask) {
      settle_access(*attention.mask,
                    dims(attention.heads, attention.q_length, attention.kv_length));
    }
    if (!attention.gradient) return;
    for (Access* access : {&attention.gradient->grad, &attention.gradient->out}) {
      settle_access(*access, dims(attention.heads, attention.q_length, attention.value_dim));
    }
  }

  bool keeps_order(const Buffer& image) const {
    return libraries_.convolution.keeps_order.has(image.dtype);
  }

  // Whether an image has the layout that convolutions read and write.
  bool is_settled(const Buffer& image) const {
    sym::Context& context = *program_.context;
    if (keeps_order(image)) return dense_order(image, context).has_value();
    return is_channels_last(image, context);
  }

  // A version of an image that a convolution reads.
  BufferId settle_image(BufferId image) {
    sym::Context& context = *program_.context;
    const Buffer original = program_.buffers[image];
    if (is_settled(original)) return image;
    Nest copy;
    copy.label = keeps_order(original) ? "contiguous" : "channels_last";
    Buffer buffer = temporary(program_, image, original.dtype, original.sizes);
    buffer.strides = dense_strides(context, original.sizes,
                                   convolved_order(original, libraries_.convolution, context));
    std::vector<Expr> indices = add_loops(copy, original.sizes, context);
    loop::BodyBuilder body(copy.body, context);
    body.yield(body.load(image, buffer.dtype, indices));
    const BufferId made = program_.add_buffer(std::move(buffer));
    copy.stores.push_back({made, std::move(indices), loop::StoreMode::overwrite, 0});
    copies_.push_back(std::move(copy));
    producer_.push_back(-1);
    mutated_.push_back(false);
    return made;
  }

  Program& program_;
  const abi::Libraries& libraries_;
  std::vector<bool> mutated_;
  std::vector<std::int64_t> producer_;  // nest index before settling
  std::vector<Nest> copies_;
};

}  // namespace

void settle_operands(Program& program, const abi::Libraries& libraries) {
  OperandSettler(program, libraries).run();
}

}  // namespace inkle::schedule
