#include "runtime/cpu/onednn_primitive.h"

#include <array>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <utility>

#include "base/error.h"
#include "base/threads.h"
#include "runtime/common/errors.h"
#include "runtime/cpu/onednn_library.h"

namespace inkle::runtime::cpu {
namespace {

using abi::DType;
using abi::PostOpKind;
using dnnl::algorithm;
using dnnl::memory;
using Kind = PrimitiveDescription::Kind;

// CPU engines and streams have no state that execution changes; one engine serves all.
const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

[[noreturn]] void rethrow(const dnnl::error& e, const char* what) {
  if (e.status == dnnl_out_of_memory)
    throw common::OutOfMemory(std::string("out of memory: oneDNN, ") + what);
  if (e.status == dnnl_unimplemented) unsupported("oneDNN has no implementation to {}", what);
  throw InternalError(fmt::format("oneDNN failed to {}: {} (status {})", what, e.what(),
                                  static_cast<int>(e.status)));
}

memory::data_type data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return memory::data_type::f32;
    case DType::bf16:
      return memory::data_type::bf16;
    default:
      unsupported("oneDNN call on {}", abi::name_of(dtype));
  }
}

memory::desc describe(const TensorDescription& t) {
  return {memory::dims(t.sizes), data_type(t.dtype), memory::dims(t.strides)};
}

memory::desc describe_any(const TensorDescription& t) {
  return {memory::dims(t.sizes), data_type(t.dtype), memory::format_tag::any};
}

struct Eltwise {
  algorithm kind;
  double alpha;
  double beta;
};

std::optional<Eltwise> eltwise(PostOpKind kind, double alpha, double beta) {
  switch (kind) {
    // elu keeps NaN; -0 * (exp(x) - 1) is +0 below zero.
    case PostOpKind::relu:
      return Eltwise{algorithm::eltwise_elu, -0.0, 0};
    case PostOpKind::gelu_erf:
      return Eltwise{algorithm::eltwise_gelu_erf, 0, 0};
    case PostOpKind::gelu_tanh:
      return Eltwise{algorithm::eltwise_gelu_tanh, 0, 0};
    case PostOpKind::tanh:
      return Eltwise{algorithm::eltwise_tanh, 0, 0};
    case PostOpKind::logistic:
      return Eltwise{algorithm::eltwise_logistic, 0, 0};
    case PostOpKind::swish:
      return Eltwise{algorithm::eltwise_swish, alpha, 0};
    case PostOpKind::hardswish:
      return Eltwise{algorithm::eltwise_hardswish, 0, 0};
    case PostOpKind::elu:
      return Eltwise{algorithm::eltwise_elu, alpha, 0};
    case PostOpKind::leaky_relu:
      if (alpha == 0) return std::nullopt;  // oneDNN takes its NaN-dropping maximum
      return Eltwise{algorithm::eltwise_relu, alpha, 0};
    case PostOpKind::linear:
      return Eltwise{algorithm::eltwise_linear, alpha, beta};
    case PostOpKind::abs:
      return Eltwise{algorithm::eltwise_abs, 0, 0};
    case PostOpKind::square:
      return Eltwise{algorithm::eltwise_square, 0, 0};
    case PostOpKind::sqrt:
      return Eltwise{algorithm::eltwise_sqrt, 0, 0};
    case PostOpKind::clip:
    case PostOpKind::hardsigmoid:
    case PostOpKind::exp:
    case PostOpKind::add:
    case PostOpKind::mul:
      return std::nullopt;
  }
  return std::nullopt;
}

dnnl::primitive_attr attributes(const std::vector<PostOpDescription>& post_ops) {
  dnnl::post_ops ops;
  for (const PostOpDescription& p : post_ops) {
    if (p.kind == PostOpKind::add || p.kind == PostOpKind::mul) {
      ops.append_binary(p.kind == PostOpKind::add ? algorithm::binary_add : algorithm::binary_mul,
                        describe(p.operand));
      continue;
    }
    const auto e = p.kind == PostOpKind::relu && p.is_finite
                       ? Eltwise{algorithm::eltwise_relu, 0, 0}
                       : eltwise(p.kind, p.alpha, p.beta);
    if (!e) unsupported("a post-op that oneDNN does not compute as eager does");
    ops.append_eltwise(1.0F, e->kind, static_cast<float>(e->alpha), static_cast<float>(e->beta));
  }
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attr.set_post_ops(ops);
  return attr;
}

class OneDnnPrimitive final : public Primitive {
 public:
  explicit OneDnnPrimitive(const PrimitiveDescription& d)
      : source_(describe(d.source)),
        plain_weights_(describe(d.weights)),
        destination_(describe(d.destination)) {
    const auto attr = attributes(d.post_ops);
    const memory::desc weights = d.pack_weights ? describe_any(d.weights) : plain_weights_;
    if (d.bias) bias_ = describe_bias(d);
    switch (d.kind) {
      case Kind::matmul:
        make_matmul(weights, attr);
        break;
      case Kind::inner_product:
        make_inner_product(weights, attr);
        break;
      case Kind::convolution:
        make_convolution(d, weights, attr);
        break;
      case Kind::deconvolution:
        make_deconvolution(d, weights, attr);
        break;
      case Kind::convolution_weights:
        make_convolution_weights(d, attr);
        break;
    }
    const bool gradient = d.kind == Kind::convolution_weights;
    arguments_.push_back({gradient ? DNNL_ARG_DIFF_DST : DNNL_ARG_SRC, source_});
    arguments_.push_back({gradient ? DNNL_ARG_SRC : DNNL_ARG_WEIGHTS, weights_});
    arguments_.push_back({gradient ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_DST, destination_});
    arguments_.push_back({d.bias ? DNNL_ARG_BIAS : 0, bias_});
    for (std::size_t i = 0; i < d.post_ops.size(); ++i) {
      const PostOpDescription& p = d.post_ops[i];
      if (p.kind != PostOpKind::add && p.kind != PostOpKind::mul) continue;
      arguments_.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1,
                            describe(p.operand)});
    }
    arguments_.push_back({DNNL_ARG_SCRATCHPAD, scratchpad_});
    layout_.assign(reinterpret_cast<const char*>(&weights_.data), sizeof weights_.data);
  }

  const std::string& implementation() const override { return implementation_; }
  std::int64_t scratchpad_bytes() const override {
    const auto own = static_cast<std::int64_t>(scratchpad_.get_size());
    return reorder_ ? result_offset() + static_cast<std::int64_t>(destination_.get_size()) : own;
  }
  std::int64_t packed_bytes() const override {
    return weights_ == plain_weights_ ? 0 : static_cast<std::int64_t>(weights_.get_size());
  }
  const std::string& packed_layout() const override { return layout_; }
  void pack(const void* weights, void* packed) const override;
  std::unique_ptr<Execution> bind() const override;

  struct Argument {
    int id;  // 0: not there
    memory::desc desc;
  };
  const std::vector<Argument>& arguments() const { return arguments_; }
  const dnnl::primitive& primitive() const { return primitive_; }
  // Where oneDNN's layout of the result is not the wanted one: from scratch memory, at this offset
  // in it, to the destination.
  struct Reorder {
    dnnl::reorder primitive;
    memory::desc to;
  };
  const std::optional<Reorder>& reorder() const { return reorder_; }
  std::int64_t result_offset() const {
    return (static_cast<std::int64_t>(scratchpad_.get_size()) + 63) / 64 * 64;
  }

 private:
  static memory::desc describe_bias(const PrimitiveDescription& d) {
    TensorDescription bias = *d.bias;
    if (d.kind == Kind::matmul) {  // oneDNN wants the destination's rank
      while (bias.sizes.size() < d.destination.sizes.size()) {
        bias.strides.insert(bias.strides.begin(), bias.sizes.back());
        bias.sizes.insert(bias.sizes.begin(), 1);
      }
    }
    return describe(bias);
  }
  template <class Descriptor>
  void finish(const Descriptor& pd) {
    weights_ = pd.weights_desc();
    scratchpad_ = pd.scratchpad_desc();
    implementation_ = pd.impl_info_str();
  }
  void make_matmul(const memory::desc& weights, const dnnl::primitive_attr& attr) {
    const auto d = bias_.data.ndims > 0 ? dnnl::matmul::desc(source_, weights, bias_, destination_)
                                        : dnnl::matmul::desc(source_, weights, destination_);
    const dnnl::matmul::primitive_desc pd(d, attr, cpu_engine());
    finish(pd);
    primitive_ = dnnl::matmul(pd);
  }
  void make_inner_product(const memory::desc& weights, const dnnl::primitive_attr& attr) {
    using Forward = dnnl::inner_product_forward;
    constexpr auto kind = dnnl::prop_kind::forward_inference;
    const auto d = bias_.data.ndims > 0 ? Forward::desc(kind, source_, weights, bias_, destination_)
                                        : Forward::desc(kind, source_, weights, destination_);
    const Forward::primitive_desc pd(d, attr, cpu_engine());
    finish(pd);
    primitive_ = Forward(pd);
  }
  template <class Forward>
  void make_convolution_of(algorithm direct, const PrimitiveDescription& p,
                           const memory::desc& weights, const dnnl::primitive_attr& attr) {
    constexpr auto kind = dnnl::prop_kind::forward_inference;
    const memory::dims stride(p.stride), dilation(p.dilation), low(p.padding_low),
        high(p.padding_high);
    const auto d = bias_.data.ndims > 0
                       ? typename Forward::desc(kind, direct, source_, weights, bias_, destination_,
                                                stride, dilation, low, high)
                       : typename Forward::desc(kind, direct, source_, weights, destination_,
                                                stride, dilation, low, high);
    const typename Forward::primitive_desc pd(d, attr, cpu_engine());
    finish(pd);
    primitive_ = Forward(pd);
  }
  void make_convolution(const PrimitiveDescription& p, const memory::desc& weights,
                        const dnnl::primitive_attr& attr) {
    make_convolution_of<dnnl::convolution_forward>(algorithm::convolution_direct, p, weights, attr);
  }
  void make_deconvolution(const PrimitiveDescription& p, const memory::desc& weights,
                          const dnnl::primitive_attr& attr) {
    make_convolution_of<dnnl::deconvolution_forward>(algorithm::deconvolution_direct, p, weights,
                                                     attr);
  }

  // Leaves the layout of the result to oneDNN, whose fast kernels write blocked ones only.
  void make_convolution_weights(const PrimitiveDescription& p, const dnnl::primitive_attr& attr) {
    const memory::dims stride(p.stride), dilation(p.dilation), low(p.padding_low),
        high(p.padding_high);
    const auto direct = algorithm::convolution_direct;
    const memory::desc any = describe_any(p.destination);
    // Its backward wants a forward to agree with.
    const dnnl::convolution_forward::primitive_desc forward(
        dnnl::convolution_forward::desc(dnnl::prop_kind::forward_training, direct, plain_weights_,
                                        any, source_, stride, dilation, low, high),
        cpu_engine());
    using Backward = dnnl::convolution_backward_weights;
    const Backward::primitive_desc pd(
        Backward::desc(direct, plain_weights_, any, source_, stride, dilation, low, high), attr,
        cpu_engine(), forward);
    weights_ = plain_weights_;
    scratchpad_ = pd.scratchpad_desc();
    implementation_ = pd.impl_info_str();
    primitive_ = Backward(pd);
    const memory::desc made = pd.diff_weights_desc();
    if (made == destination_) return;
    reorder_ = Reorder{dnnl::reorder(dnnl::reorder::primitive_desc(cpu_engine(), made, cpu_engine(),
                                                                   destination_)),
                       destination_};
    destination_ = made;
  }

  memory::desc source_, plain_weights_, destination_, bias_, weights_, scratchpad_;
  dnnl::primitive primitive_;
  std::optional<Reorder> reorder_;
  std::string implementation_;
  std::string layout_;
  std::vector<Argument> arguments_;
};

class OneDnnExecution final : public Execution {
 public:
  explicit OneDnnExecution(std::shared_ptr<const OneDnnPrimitive> primitive)
      : primitive_(std::move(primitive)), stream_(cpu_engine()) {
    for (const auto& a : primitive_->arguments()) {
      if (a.id == 0) {
        memories_.emplace_back();
        continue;
      }
      memories_.emplace_back(a.desc, cpu_engine(), nullptr);
      arguments_.push_back({a.id, memories_.back().get()});
    }
    if (!primitive_->reorder()) return;
    result_ = memory(primitive_->reorder()->to, cpu_engine(), nullptr);
    reorder_arguments_ = {{DNNL_ARG_FROM, memories_[kDestination].get()},
                          {DNNL_ARG_TO, result_.get()}};
  }

  void run(std::span<void* const> pointers, void* scratchpad) override {
    for (std::size_t i = 0; i + 1 < memories_.size(); ++i) {
      if (memories_[i]) set(memories_[i], pointers[i]);
    }
    set(memories_.back(), scratchpad);
    const auto& reorder = primitive_->reorder();
    if (reorder) {
      set(memories_[kDestination],
          static_cast<std::byte*>(scratchpad) + primitive_->result_offset());
      set(result_, pointers[kDestination]);
    }
    execute(primitive_->primitive(), arguments_);
    if (reorder) execute(reorder->primitive, reorder_arguments_);
  }

 private:
  static constexpr auto kDestination = static_cast<std::size_t>(Role::destination);

  void execute(const dnnl::primitive& primitive, const std::vector<dnnl_exec_arg_t>& arguments) {
    const LibraryThreads threads;
    const dnnl_status_t status = dnnl_primitive_execute(
        primitive.get(), stream_.get(), static_cast<int>(arguments.size()), arguments.data());
    if (status == dnnl_out_of_memory) throw common::OutOfMemory("out of memory in a oneDNN call");
    INKLE_CHECK(status == dnnl_success, "oneDNN {} failed with status {}",
                primitive_->implementation(), static_cast<int>(status));
  }
  static void set(const memory& m, void* data) {
    const dnnl_status_t status = dnnl_memory_set_data_handle(m.get(), data);
    INKLE_CHECK(status == dnnl_success, "oneDNN refuses a pointer, status {}",
                static_cast<int>(status));
  }

  std::shared_ptr<const OneDnnPrimitive> primitive_;
  dnnl::stream stream_;
  std::vector<memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
  memory result_;  // where a reorder writes
  std::vector<dnnl_exec_arg_t> reorder_arguments_;
};

void OneDnnPrimitive::pack(const void* weights, void* packed) const {
  try {
    const LibraryThreads threads;
    dnnl::stream stream(cpu_engine());
    memory from(plain_weights_, cpu_engine(), const_cast<void*>(weights));
    memory to(weights_, cpu_engine(), packed);
    dnnl::reorder(from, to).execute(stream, from, to);
  } catch (const dnnl::error& e) {
    rethrow(e, "pack weights");
  }
}

std::unique_ptr<Execution> OneDnnPrimitive::bind() const {
  try {
    return std::make_unique<OneDnnExecution>(
        std::static_pointer_cast<const OneDnnPrimitive>(shared_from_this()));
  } catch (const dnnl::error& e) {
    rethrow(e, "bind arguments");
  }
}

}  // namespace

std::shared_ptr<const Primitive> Primitive::make(const PrimitiveDescription& d) {
  open_onednn();
  const LibraryThreads threads;
  try {
    return std::make_shared<const OneDnnPrimitive>(d);
  } catch (const dnnl::error& e) {
    constexpr std::array<const char*, 5> kNames = {
        "multiply matrices", "compute an inner product", "convolve", "convolve transposed",
        "compute the gradient of a convolution's weights"};
    rethrow(e, kNames[static_cast<std::size_t>(d.kind)]);
  }
}

bool has_fast_bf16() {
  open_onednn();
  const auto isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
}

bool has_bf16() {
  open_onednn();
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core:
    case dnnl::cpu_isa::avx512_core_vnni:
    case dnnl::cpu_isa::avx512_core_bf16:
    case dnnl::cpu_isa::avx512_core_amx:
      return true;
    default:
      return false;
  }
}

bool supported(const abi::PostOp& op) {
  if (op.kind == PostOpKind::add || op.kind == PostOpKind::mul) return true;
  return eltwise(op.kind, op.alpha, op.beta).has_value();
}

}  // namespace inkle::runtime::cpu
