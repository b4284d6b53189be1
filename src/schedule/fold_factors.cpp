// Folds per-channel factors after a convolution into its weights. In f16 and bf16 the weights
// are rounded where eager rounds the sums: an error of the same size, as often.
#include <algorithm>
#include <functional>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "loop/builder.h"
#include "schedule/buffers.h"
#include "schedule/inline.h"
#include "schedule/linear.h"
#include "schedule/rewrite.h"

namespace inkle::schedule {
namespace {

using abi::DType;
using loop::Body;
using loop::BodyBuilder;
using loop::Buffer;
using loop::BufferId;
using loop::Instruction;
using loop::Nest;
using loop::NestKind;
using loop::Opcode;
using loop::Program;
using loop::Val;

class FactorFolder {
 public:
  explicit FactorFolder(Program& program) : program_(program), mutated_(mutated_buffers(program)) {
    find_derived();
  }

  void run() {
    // What depends on parameters alone may run first, so that convolutions may read it.
    std::stable_partition(program_.nests.begin(), program_.nests.end(), [&](const Nest& nest) {
      const auto w = loop::writes(nest);
      return (nest.kind == NestKind::pointwise || nest.kind == NestKind::reduction) && !w.empty() &&
             std::all_of(w.begin(), w.end(), [&](BufferId b) { return derived_[b]; });
    });
    std::vector<Nest> result;
    const std::size_t count = program_.nests.size();
    for (std::size_t n = 0; n < count; ++n) {
      added_.clear();
      if (program_.nests[n].kind == NestKind::convolution) fold(n);
      for (Nest& nest : added_) result.push_back(std::move(nest));
      result.push_back(std::move(program_.nests[n]));
      // Later nests are still looked at in their place.
      program_.nests[n] = Nest{};
    }
    program_.nests = std::move(result);
  }

 private:
  // Buffers that are parameters, or computed from parameters alone.
  void find_derived() {
    derived_.resize(program_.buffers.size());
    for (std::size_t b = 0; b < derived_.size(); ++b) {
      derived_[b] = program_.buffers[b].is_parameter && !mutated_[b];
    }
    for (const Nest& nest : program_.nests) {
      if (nest.kind != NestKind::pointwise && nest.kind != NestKind::reduction) continue;
      const auto r = loop::reads(nest);
      const bool stable =
          !r.empty() && std::all_of(r.begin(), r.end(), [&](BufferId b) { return derived_[b]; });
      if (!stable) continue;
      for (const BufferId b : loop::writes(nest)) {
        derived_[b] = program_.buffers[b].role == loop::BufferRole::temporary && !mutated_[b];
      }
    }
  }

  Nest* only_consumer(std::size_t n, BufferId buffer) {
    if (program_.buffers[buffer].role != loop::BufferRole::temporary || mutated_[buffer]) {
      return nullptr;
    }
    Nest* consumer = nullptr;
    for (std::size_t m = n + 1; m < program_.nests.size(); ++m) {
      const auto r = loop::reads(program_.nests[m]);
      if (std::find(r.begin(), r.end(), buffer) == r.end()) continue;
      if (consumer != nullptr) return nullptr;
      consumer = &program_.nests[m];
    }
    return consumer != nullptr && consumer->kind == NestKind::pointwise ? consumer : nullptr;
  }

  // The vector over channels that `v` loads at the channel of `result`'s indices, if it is one.
  std::optional<BufferId> channel_vector(const Body& body, Val v, Expr channel) const {
    const Instruction& i = body[v];
    if (i.opcode != Opcode::load || i.operand_count != 0 || i.dtype != DType::f32 ||
        !derived_[i.buffer]) {
      return std::nullopt;
    }
    bool found = false;
    for (const Expr e : i.indices) {
      if (e.is_constant(0)) continue;
      if (found || !(e == channel)) return std::nullopt;
      found = true;
    }
    const Buffer& buffer = program_.buffers[i.buffer];
    if (!found || buffer.sizes.size() != 1 || !(*buffer.strides)[0].is_constant(1)) {
      return std::nullopt;
    }
    return i.buffer;
  }

  static std::vector<Val> users(const Body& body, Val v) {
    std::vector<Val> result;
    for (Val u = 0; u < body.instructions.size(); ++u) {
      const auto used = body[u].used();
      if (std::find(used.begin(), used.end(), v) != used.end()) result.push_back(u);
    }
    return result;
  }

  static bool is_yielded(const Body& body, Val v) {
    return std::find(body.yields.begin(), body.yields.end(), v) != body.yields.end();
  }

  // The only user of `v`, if it is `opcode` with a channel vector as its other operand.
  std::optional<std::pair<Val, BufferId>> next(const Body& body, Val v, Opcode opcode,
                                               Expr channel) const {
    const std::vector<Val> u = users(body, v);
    if (u.size() != 1 || is_yielded(body, v) || body[u[0]].opcode != opcode) return std::nullopt;
    const Instruction& i = body[u[0]];
    const Val other = i.operands[0] == v ? i.operands[1] : i.operands[0];
    const auto vector = other == v ? std::nullopt : channel_vector(body, other, channel);
    if (!vector) return std::nullopt;
    return std::pair(u[0], *vector);
  }

  // The only user of `v`, if it is a cast to `to`.
  static std::optional<Val> only_cast(const Body& body, Val v, DType to) {
    const std::vector<Val> u = users(body, v);
    if (u.size() != 1 || is_yielded(body, v)) return std::nullopt;
    const Instruction& i = body[u[0]];
    return i.opcode == Opcode::cast && i.dtype == to ? std::optional(u[0]) : std::nullopt;
  }

  void fold(std::size_t n) {
    Nest& nest = program_.nests[n];
    auto& convolution = std::get<loop::Convolution>(nest.detail);
    const BufferId result = nest.stores.front().buffer;
    const DType dtype = program_.buffers[convolution.w].dtype;
    const bool narrow = abi::is_reduced_float(dtype);
    if (convolution.transposed || convolution.weight_gradient || convolution.bias ||
        !derived_[convolution.w] || (dtype != DType::f32 && !narrow) ||
        program_.buffers[result].dtype != dtype) {
      return;
    }
    Nest* consumer = only_consumer(n, result);
    if (consumer == nullptr) return;
    Body& body = consumer->body;
    std::optional<Val> load;
    for (Val v = 0; v < body.instructions.size(); ++v) {
      if (body[v].opcode != Opcode::load || body[v].buffer != result) continue;
      if (load || body[v].operand_count != 0) return;
      load = v;
    }
    if (!load) return;
    const Expr channel = body[*load].indices[1];
    const auto wide = narrow ? only_cast(body, *load, DType::f32) : load;
    if (!wide) return;
    const auto factor = next(body, *wide, Opcode::mul, channel);
    if (!factor) return;
    Val last = factor->first;
    const auto bias = next(body, last, Opcode::add, channel);
    if (bias) last = bias->first;
    // The convolution's new result is what eager has after rounding the scaled one.
    const auto rounded = narrow ? only_cast(body, last, dtype) : std::nullopt;
    if (bias) {
      convolution.bias = narrow ? rounded_vector(bias->second, dtype, nest.source) : bias->second;
    }
    convolution.w = scaled_weights(convolution.w, factor->second, nest.source);
    // The load takes the place of what it went through.
    if (rounded) {
      body.instructions[*rounded] = body.instructions[*load];
    } else {
      body.instructions[last] = body.instructions[*wide];
    }
    Body clean;
    BodyBuilder builder(clean, *program_.context);
    clean.yields = loop::inline_body(remove_unused(body), {}, builder, {});
    body = std::move(clean);
  }

  // The body without instructions that no yield needs.
  static Body remove_unused(const Body& body) {
    std::vector<bool> live(body.instructions.size(), false);
    for (const Val y : body.yields) live[y] = true;
    for (Val v = static_cast<Val>(body.instructions.size()); v-- > 0;) {
      if (body[v].opcode == Opcode::indirect) live[v] = true;
      if (!live[v]) continue;
      for (const Val o : body[v].used()) live[o] = true;
    }
    Body result;
    std::vector<Val> map(body.instructions.size());
    for (Val v = 0; v < body.instructions.size(); ++v) {
      if (!live[v]) continue;
      Instruction i = body[v];
      for (std::size_t o = 0; o < i.operand_count; ++o) i.operands[o] = map[i.operands[o]];
      map[v] = static_cast<Val>(result.instructions.size());
      result.instructions.push_back(std::move(i));
    }
    for (const Val y : body.yields) result.yields.push_back(map[y]);
    return result;
  }

  // A new nest before the convolution, with a result like `like` but of this type.
  BufferId add_derived(const char* label, BufferId like, DType dtype, const std::string& source,
                       const std::function<Val(BodyBuilder&, std::span<const Expr>)>& value) {
    Buffer buffer = program_.buffers[like];
    buffer.dtype = dtype;
    buffer.name = "t" + std::to_string(program_.buffers.size());
    buffer.role = loop::BufferRole::temporary;
    buffer.is_parameter = false;
    buffer.offset = Expr();
    Nest nest;
    nest.label = label;
    nest.source = source;
    std::vector<Expr> indices = add_loops(nest, buffer.sizes, *program_.context);
    BodyBuilder b(nest.body, *program_.context);
    b.yield(value(b, indices));
    const BufferId made = program_.add_buffer(std::move(buffer));
    derived_.push_back(true);
    mutated_.push_back(false);
    nest.stores.push_back({made, std::move(indices), loop::StoreMode::overwrite, 0});
    added_.push_back(std::move(nest));
    return made;
  }

  BufferId scaled_weights(BufferId weights, BufferId factor, const std::string& source) {
    const DType dtype = program_.buffers[weights].dtype;
    return add_derived(
        "scaled_weights", weights, dtype, source, [&](BodyBuilder& b, std::span<const Expr> i) {
          const Val w = b.load(weights, dtype, {i.begin(), i.end()});
          return b.cast(b.mul(b.cast(w, DType::f32), b.load(factor, DType::f32, {i[0]})), dtype);
        });
  }

  BufferId rounded_vector(BufferId vector, DType dtype, const std::string& source) {
    return add_derived("rounded", vector, dtype, source,
                       [&](BodyBuilder& b, std::span<const Expr> i) {
                         return b.cast(b.load(vector, DType::f32, {i[0]}), dtype);
                       });
  }

  Program& program_;
  std::vector<bool> mutated_;
  std::vector<bool> derived_;
  std::vector<Nest> added_;
};

}  // namespace

void fold_channel_factors(Program& program) { FactorFolder(program).run(); }

}  // namespace inkle::schedule
