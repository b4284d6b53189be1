#include "schedule/epilogue.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "loop/builder.h"
#include "schedule/epilogue_patterns.h"
#include "schedule/inline.h"
#include "schedule/library.h"
#include "schedule/linear.h"

namespace inkle::schedule {
namespace {

using loop::Body;
using loop::BufferId;
using loop::Instruction;
using loop::Nest;
using loop::NestKind;
using loop::Opcode;
using loop::Program;
using loop::Val;

// More post-ops than this run slower in the library than a kernel of our own after it.
constexpr std::size_t kMaxPostOps = 4;

// `offset`, written in a consumer's variables, as strides over the dimensions of a contraction's
// result, whose indices in those variables are `indices`.
std::optional<View> view_over(BufferId buffer, Expr offset, std::span<const Expr> indices,
                              std::span<const Expr> extents, std::span<const loop::Dim> dims,
                              sym::Context& context) {
  View view;
  view.buffer = buffer;
  Expr rest = offset;
  for (std::size_t d = 0; d < indices.size(); ++d) {
    Expr stride = context.constant(0);
    for (const loop::Dim& dim : dims) {
      if (!sym::contains(indices[d], dim.variable)) continue;
      const auto unit = sym::stride(indices[d], dim.variable);
      if (!unit || !unit->is_constant(1)) continue;
      if (!sym::contains(offset, dim.variable)) break;
      const auto found = sym::stride(offset, dim.variable);
      if (!found) return std::nullopt;
      stride = *found;
      break;
    }
    rest = rest - stride * indices[d];
    view.sizes.push_back(extents[d]);
    view.strides.push_back(stride);
  }
  const auto depends = [](Expr e) { return has_variables(e); };
  if (depends(rest) || std::any_of(view.strides.begin(), view.strides.end(), depends)) {
    return std::nullopt;
  }
  view.offset = rest;
  return view;
}

// Reads a consumer's body as a chain of post-ops over the contraction's result.
class ChainReader {
 public:
  ChainReader(const Program& program, const Nest& consumer, BufferId result,
              abi::SetOf<abi::PostOpKind> post_ops, bool adds_before_rounding)
      : program_(program),
        consumer_(consumer),
        result_(result),
        post_ops_(post_ops),
        adds_before_rounding_(adds_before_rounding) {}

  bool read() {
    const Body& body = consumer_.body;
    if (consumer_.stores.size() != 1 || body.yields.size() != 1) return false;
    for (const Instruction& i : body.instructions) {
      if (i.opcode != Opcode::load || i.buffer != result_) continue;
      if (i.operand_count != 0) return false;
      if (!indices_.empty() && indices_ != i.indices) return false;
      indices_ = i.indices;
    }
    const DType result_dtype = program_.buffers[result_].dtype;
    Val last = body.yields.front();
    const DType stored = body[last].dtype;
    if (body[last].opcode == Opcode::cast && abi::is_reduced_float(stored) &&
        body[body[last].operands[0]].dtype == abi::DType::f32) {
      last = body[last].operands[0];
    }
    if (body[last].dtype != abi::DType::f32) return false;
    is_rounded_ = abi::is_reduced_float(result_dtype);
    if (is_rounded_ ? stored != result_dtype : result_dtype != abi::DType::f32) return false;
    return chain(last);
  }

  [[nodiscard]] const std::vector<Expr>& indices() const { return indices_; }
  [[nodiscard]] std::vector<Epilogue> take() { return std::move(chain_); }

 private:
  bool depends(Val v) const {
    const Instruction& i = consumer_.body[v];
    if (i.opcode == Opcode::load && i.buffer == result_) return true;
    return std::any_of(i.used().begin(), i.used().end(), [&](Val o) { return depends(o); });
  }

  // After a rounding only relu, which commutes with it, and by option an addition.
  bool allowed(abi::PostOpKind kind) const {
    const bool may_add = kind == abi::PostOpKind::add && adds_before_rounding_;
    if (is_rounded_ && kind != abi::PostOpKind::relu && !may_add) return false;
    return chain_.size() < kMaxPostOps && post_ops_.has(kind);
  }

  bool chain(Val v) {
    const Body& body = consumer_.body;
    const Instruction& i = body[v];
    if (i.opcode == Opcode::load) return i.buffer == result_;
    if (is_rounded_ && i.opcode == Opcode::cast) return chain(i.operands[0]);
    if (const auto match = match_activation(body, v)) {
      if (!depends(match->x) || !chain(match->x) || !allowed(match->kind)) return false;
      chain_.push_back({match->kind, match->alpha, match->beta, std::nullopt});
      return true;
    }
    const bool add = i.opcode == Opcode::add;
    const bool sub = i.opcode == Opcode::sub;
    if (!add && !sub && i.opcode != Opcode::mul) return false;
    Val inside = i.operands[0];
    Val other = i.operands[1];
    if (depends(other)) std::swap(inside, other);
    if (!depends(inside) || depends(other)) return false;
    if (sub && inside != i.operands[0]) return false;
    if (!chain(inside)) return false;
    return add_operand(add || sub, sub, other);
  }

  bool add_operand(bool is_add, bool negate, Val other) {
    const Body& body = consumer_.body;
    const Instruction* value = &body[other];
    if (value->opcode == Opcode::constant) {
      if (!allowed(abi::PostOpKind::linear)) return false;
      const double c = negate ? -value->real : value->real;
      const bool completes = is_add && !chain_.empty() &&
                             chain_.back().kind == abi::PostOpKind::linear &&
                             chain_.back().beta == 0;
      if (completes) {
        chain_.back().beta = c;
        return true;
      }
      chain_.push_back({abi::PostOpKind::linear, is_add ? 1.0 : c, is_add ? c : 0.0, std::nullopt});
      return true;
    }
    if (negate) return false;
    if (value->opcode == Opcode::cast) value = &body[value->operands[0]];
    if (value->opcode != Opcode::load || value->operand_count != 0) return false;
    const DType dtype = program_.buffers[value->buffer].dtype;
    if (dtype != abi::DType::f32 && dtype != abi::DType::bf16) return false;
    const auto kind = is_add ? abi::PostOpKind::add : abi::PostOpKind::mul;
    if (!allowed(kind)) return false;
    const loop::Buffer& result = program_.buffers[result_];
    const Expr offset =
        linear_offset(program_.buffers[value->buffer], value->indices, *program_.context);
    auto view =
        view_over(value->buffer, offset, indices_, result.sizes, consumer_.dims, *program_.context);
    if (!view) return false;
    chain_.push_back({kind, 0, 0, std::move(view)});
    return true;
  }

  const Program& program_;
  const Nest& consumer_;
  BufferId result_;
  abi::SetOf<abi::PostOpKind> post_ops_;
  bool adds_before_rounding_;
  bool is_rounded_ = false;  // the result is of f16 or bf16
  std::vector<Expr> indices_;
  std::vector<Epilogue> chain_;
};

bool is_zero(Expr e) { return e.is_constant(0); }

// Unit stride along `dim`, or the same value all along it. Libraries write and add rows; other
// layouts are left to a kernel.
bool is_row(const View& view, std::size_t dim) {
  return view.strides[dim].is_constant(1) || is_zero(view.strides[dim]) ||
         view.sizes[dim].is_constant(1);
}

// The first addition of a vector along `dim` is the bias.
std::optional<View> take_bias(std::vector<Epilogue>& chain, std::size_t dim) {
  if (chain.empty() || chain.front().kind != abi::PostOpKind::add) return std::nullopt;
  const View& view = *chain.front().operand;
  for (std::size_t d = 0; d < view.strides.size(); ++d) {
    if (d == dim ? !view.strides[d].is_constant(1) : !is_zero(view.strides[d])) {
      return std::nullopt;
    }
  }
  View bias{view.buffer, view.offset, {view.sizes[dim]}, {view.strides[dim]}};
  chain.erase(chain.begin());
  return bias;
}

class ContractionBuilder {
 public:
  ContractionBuilder(Program& program, const abi::Libraries& libraries)
      : program_(program), libraries_(libraries), mutated_(mutated_buffers(program)) {}

  ContractionSteps run() {
    for (std::size_t n = 0; n < program_.nests.size(); ++n) {
      if (done_.contains(n)) continue;
      Nest& nest = program_.nests[n];
      std::optional<Step> step;
      if (nest.kind == NestKind::matmul) step = matmul(nest);
      if (nest.kind == NestKind::convolution) step = convolution(nest);
      if (!step) continue;
      const BufferId written = absorb(n, *step);
      steps_.emplace(written, std::move(*step));
    }
    std::erase_if(program_.nests, [](const Nest& nest) {
      return nest.stores.empty() && nest.kind != NestKind::eager;
    });
    return std::move(steps_);
  }

 private:
  DType dtype(BufferId b) const { return program_.buffers[b].dtype; }
  bool is_parameter(BufferId b) const { return program_.buffers[b].is_parameter; }

  std::optional<View> whole(BufferId b) const {
    const loop::Buffer& buffer = program_.buffers[b];
    const Expr zero = program_.context->constant(0);
    return View{b, buffer.offset.is_null() ? zero : buffer.offset, buffer.sizes, *buffer.strides};
  }

  std::optional<Step> matmul(const Nest& nest) const {
    const auto& m = std::get<loop::Matmul>(nest.detail);
    const BufferId out = nest.stores.front().buffer;
    if (!multiplies(libraries_.gemm, dtype(m.a.buffer), dtype(m.b.buffer), dtype(out))) {
      return std::nullopt;
    }
    MatmulStep step;
    const std::size_t rank = nest.dims.size();
    std::vector<loop::Dim> a_dims(nest.dims.begin(), nest.dims.end() - 1);
    a_dims.push_back(nest.reduced.front());
    std::vector<loop::Dim> b_dims(nest.dims.begin(), nest.dims.end() - 2);
    b_dims.push_back(nest.reduced.front());
    b_dims.push_back(nest.dims[rank - 1]);
    const auto a = strided_view(program_, m.a, a_dims);
    const auto b = strided_view(program_, m.b, b_dims);
    const auto c = strided_view(program_, {out, nest.stores.front().indices}, nest.dims);
    if (!a || !b || !c) return std::nullopt;
    step.a = *a;
    step.b = *b;
    step.c = *c;
    step.b_is_weight = is_parameter(m.b.buffer);
    if (!takes(libraries_.gemm, step, program_)) return std::nullopt;
    Step result;
    result.label = "matmul";
    result.flops = extent_product(nest.dims, *program_.context) * nest.reduced.front().extent * 2;
    if (!nest.source.empty()) result.sources.push_back(nest.source);
    result.action = std::move(step);
    return result;
  }

  std::optional<Step> convolution(const Nest& nest) const {
    const auto& c = std::get<loop::Convolution>(nest.detail);
    if (!libraries_.convolution.types.has(dtype(c.x))) return std::nullopt;
    ConvolutionStep step;
    step.x = *whole(c.x);
    step.w = *whole(c.w);
    step.y = *whole(nest.stores.front().buffer);
    if (c.bias) step.bias = whole(*c.bias);
    step.parameters = c;
    step.w_is_weight = is_parameter(c.w);
    Step result;
    result.label = c.weight_gradient ? "weight gradient" : "convolution";
    const auto& w = program_.buffers[c.w].sizes;
    Expr per_point = program_.context->constant(2);
    for (std::size_t d = 0; d < w.size(); ++d) {
      if (d != (c.weight_gradient ? 1U : 0U)) per_point = per_point * w[d];
    }
    result.flops = extent_product(nest.dims, *program_.context) * per_point;
    if (!nest.source.empty()) result.sources.push_back(nest.source);
    result.action = std::move(step);
    return result;
  }

  static bool reads(const Nest& nest, BufferId buffer) {
    const auto loads = [&](const Instruction& i) {
      return i.opcode == Opcode::load && i.buffer == buffer;
    };
    if (std::ranges::any_of(nest.body.instructions, loads)) return true;
    if (std::holds_alternative<std::monostate>(nest.detail)) return false;
    const std::vector<BufferId> all = loop::reads(nest);
    return std::ranges::find(all, buffer) != all.end();
  }

  // The only reader of `buffer`, if it is a later pointwise nest that may be fused.
  std::optional<std::size_t> only_consumer(std::size_t n, BufferId buffer) const {
    if (program_.buffers[buffer].role != loop::BufferRole::temporary || mutated_[buffer]) {
      return std::nullopt;
    }
    for (const auto& output : program_.outputs) {
      if (output.kind == loop::ProgramOutput::Kind::buffer && output.buffer == buffer) {
        return std::nullopt;
      }
    }
    std::optional<std::size_t> consumer;
    for (std::size_t m = 0; m < program_.nests.size(); ++m) {
      if (m == n) continue;
      if (!reads(program_.nests[m], buffer)) continue;
      if (consumer) return std::nullopt;
      consumer = m;
    }
    if (!consumer || *consumer < n) return std::nullopt;
    if (program_.nests[*consumer].kind != NestKind::pointwise) return std::nullopt;
    if (is_overwritten(program_.nests[n], n, *consumer)) return std::nullopt;
    return consumer;
  }

  // Whether a nest between two writes memory that `nest` reads, so that it may not move there.
  bool is_overwritten(const Nest& nest, std::size_t from, std::size_t to) const {
    const auto memory = [&](BufferId b) { return program_.buffers[b].writes_into.value_or(b); };
    std::set<BufferId> read;
    for (const BufferId b : loop::reads(nest)) read.insert(memory(b));
    for (std::size_t m = from + 1; m < to; ++m) {
      for (const BufferId b : loop::writes(program_.nests[m])) {
        if (read.contains(memory(b))) return true;
      }
    }
    return false;
  }

  // Fuses the consumer if it can; returns the buffer that the step writes in the end.
  BufferId absorb(std::size_t n, Step& step) {
    const BufferId buffer = program_.nests[n].stores.front().buffer;
    const auto consumer = only_consumer(n, buffer);
    if (!consumer) return buffer;
    Nest& into = program_.nests[*consumer];
    const BufferId out = into.stores.empty() ? buffer : into.stores.front().buffer;
    const auto post_ops = std::holds_alternative<MatmulStep>(step.action)
                              ? libraries_.gemm.post_ops
                              : libraries_.convolution.post_ops;
    ChainReader reader(program_, into, buffer, post_ops, libraries_.adds_before_rounding);
    const bool ok = !into.stores.empty() && !mutated_[out] && reader.read() &&
                    attach(step, buffer, into, reader);
    log(LogChannel::fusion, "fuse n{} ({}) + n{} ({})  {}   {}", n, program_.nests[n].label,
        *consumer, into.label, ok ? "yes" : "no",
        ok ? "post-ops of the library call" : "not a chain of post-ops");
    if (!ok) return buffer;
    Nest taken = std::move(program_.nests[n]);
    program_.nests[n] = Nest{};
    // What post-ops read stays among what the step reads: theirs, and those of the ones before
    // them.
    std::vector<Instruction>& reads = taken.body.instructions;
    reads.insert(reads.end(), into.body.instructions.begin(), into.body.instructions.end());
    std::erase_if(reads, [&](const Instruction& i) {
      return i.opcode != Opcode::load || i.buffer == buffer;
    });
    taken.body.yields.clear();
    for (Instruction& i : reads) i.operand_count = 0;
    taken.stores = into.stores;
    step.label += "+" + into.label;
    if (!into.source.empty() && into.source != taken.source) step.sources.push_back(into.source);
    into = std::move(taken);
    done_.insert(*consumer);
    return absorb(*consumer, step);
  }

  bool attach(Step& step, BufferId buffer, const Nest& into, ChainReader& reader) {
    const loop::Buffer& result = program_.buffers[buffer];
    const loop::Store& store = into.stores.front();
    const Expr offset =
        linear_offset(program_.buffers[store.buffer], store.indices, *program_.context);
    const auto view = view_over(store.buffer, offset, reader.indices(), result.sizes, into.dims,
                                *program_.context);
    // Every element of the result must be stored, once.
    if (!view || !(extent_product(into.dims, *program_.context) ==
                   sym::product(*program_.context, result.sizes))) {
      return false;
    }
    for (std::size_t d = 0; d < view->strides.size(); ++d) {
      if (is_zero(view->strides[d]) && !view->sizes[d].is_constant(1)) return false;
    }
    std::vector<Epilogue> chain = reader.take();
    if (auto* matmul = std::get_if<MatmulStep>(&step.action)) {
      if (!multiplies(libraries_.gemm, dtype(matmul->a.buffer), dtype(matmul->b.buffer),
                      dtype(store.buffer))) {
        return false;
      }
      if (matmul->c.sizes.size() != view->sizes.size()) return false;
      if (!is_row(*view, view->sizes.size() - 1)) return false;
      for (const Epilogue& e : chain) {
        if (e.operand && !is_row(*e.operand, e.operand->sizes.size() - 1)) return false;
      }
      MatmulStep fused = *matmul;
      if (!fused.bias && fused.epilogue.empty()) {
        fused.bias = take_bias(chain, view->strides.size() - 1);
      }
      fused.c = *view;
      fused.epilogue.insert(fused.epilogue.end(), chain.begin(), chain.end());
      if (fused.epilogue.size() > kMaxPostOps) return false;
      if (!takes(libraries_.gemm, fused, program_)) return false;
      *matmul = std::move(fused);
    } else {
      auto& convolution = std::get<ConvolutionStep>(step.action);
      if (convolution.parameters.weight_gradient) return false;
      if (convolution.parameters.transposed && !libraries_.convolution.transposed_with_post_ops) {
        return false;
      }
      if (!is_row(*view, 1)) return false;
      for (const Epilogue& e : chain) {
        if (e.operand && !is_row(*e.operand, 1)) return false;
      }
      ConvolutionStep fused = convolution;
      if (!fused.bias && fused.epilogue.empty()) fused.bias = take_bias(chain, 1);
      fused.y = *view;
      fused.epilogue.insert(fused.epilogue.end(), chain.begin(), chain.end());
      if (fused.epilogue.size() > kMaxPostOps) return false;
      if (!takes(libraries_.convolution, fused, program_)) return false;
      convolution = std::move(fused);
    }
    return true;
  }

  Program& program_;
  const abi::Libraries& libraries_;
  std::vector<bool> mutated_;
  std::set<std::size_t> done_;  // nests that contractions have been fused into
  ContractionSteps steps_;
};

}  // namespace

ContractionSteps build_contractions(Program& program, const abi::Libraries& libraries) {
  return ContractionBuilder(program, libraries).run();
}

}  // namespace inkle::schedule
