#include "runtime/cuda/cudnn.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "runtime/cuda/convolution_choice.h"
#include "runtime/cuda/cudnn_api.h"

namespace inkle::runtime::cuda {
namespace {

using cudnn::Api;

// Engines that the library compiles at run time, which takes a tenth of a second each.
constexpr int kCompiled = 2;
// None for gradients: a model has three times as many of them as a forward alone.
constexpr int kCompiledGradients = 0;

void check(const Api& api, cudnn::Status status, const char* doing) {
  if (status != cudnn::kSuccess) [[unlikely]]
    throw InternalError(fmt::format("cuDNN, {}: {}", doing, api.error(status)));
}

// A descriptor of the library's, destroyed with this object.
class Descriptor {
 public:
  Descriptor(const Api& api, int kind) : api_(&api) {
    check(api, api.make(kind, &descriptor_), "making a descriptor");
  }
  ~Descriptor() {
    if (descriptor_ != nullptr) api_->destroy(descriptor_);
  }
  Descriptor(Descriptor&& other) noexcept
      : api_(other.api_), descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  template <class T>
  void set(int attribute, int type, const T& value) {
    check(*api_, api_->set(descriptor_, attribute, type, 1, &value), "setting an attribute");
  }
  template <class T>
  void set_all(int attribute, int type, const T* values, std::size_t count) {
    check(*api_, api_->set(descriptor_, attribute, type, static_cast<std::int64_t>(count), values),
          "setting an attribute");
  }
  void refer(int attribute, const Descriptor& other) {
    set(attribute, cudnn::kTypeDescriptor, other.get());
  }
  [[nodiscard]] cudnn::Status try_finalize() { return api_->finalize(descriptor_); }
  void finalize(const char* doing) { check(*api_, try_finalize(), doing); }
  [[nodiscard]] cudnn::Descriptor get() const { return descriptor_; }

 private:
  const Api* api_;
  cudnn::Descriptor descriptor_ = nullptr;
};

enum Id : std::int64_t { kX = 1, kW, kBias, kResidual, kY, kFirstVirtual };

// The operation graph of a shape: the order of its operations is that of the library's fused
// kernels, convolution, residual, bias, relu.
class GraphBuilder {
 public:
  GraphBuilder(const Api& api, const ConvolutionShape& shape) : api_(api), shape_(shape) {}

  Descriptor run(cudnn::Handle handle) {
    const bool last_is_convolution = !shape_.has_residual && !shape_.has_bias && !shape_.relu;
    Descriptor* at = convolution(last_is_convolution);
    if (shape_.has_residual) {
      at = pointwise(cudnn::kAdd, at, operand(kResidual, shape_.y, shape_.residual_strides),
                     !shape_.has_bias && !shape_.relu);
    }
    if (shape_.has_bias) at = pointwise(cudnn::kAdd, at, bias(), !shape_.relu);
    if (shape_.relu) pointwise(cudnn::kRelu, at, nullptr, true);
    Descriptor graph(api_, cudnn::kOperationGraph);
    graph.set(cudnn::kGraphHandle, cudnn::kTypeHandle, handle);
    std::vector<cudnn::Descriptor> list;
    for (const Descriptor& d : operations_) list.push_back(d.get());
    graph.set_all(cudnn::kGraphOperations, cudnn::kTypeDescriptor, list.data(), list.size());
    graph.finalize("describing a convolution");
    return graph;
  }

 private:
  [[nodiscard]] int type() const {
    if (shape_.dtype == abi::DType::f32) return cudnn::kF32;
    return shape_.dtype == abi::DType::f16 ? cudnn::kF16 : cudnn::kBf16;
  }

  // Without depth, where that is none.
  [[nodiscard]] std::vector<std::int64_t> dims(const ConvolutionShape::Dims& d) const {
    std::vector<std::int64_t> result(d.begin(), d.end());
    if (!shape_.is_volume) result.erase(result.begin() + 2);
    return result;
  }
  [[nodiscard]] std::vector<std::int64_t> spatial(const ConvolutionShape::Spatial& s) const {
    return {s.begin() + (shape_.is_volume ? 0 : 1), s.end()};
  }

  Descriptor* tensor(std::int64_t id, const std::vector<std::int64_t>& sizes,
                     const std::vector<std::int64_t>& strides, bool is_virtual) {
    Descriptor t(api_, cudnn::kTensor);
    t.set(cudnn::kTensorType, cudnn::kTypeDataType, is_virtual ? cudnn::kF32 : type());
    t.set_all(cudnn::kTensorSizes, cudnn::kTypeInt64, sizes.data(), sizes.size());
    t.set_all(cudnn::kTensorStrides, cudnn::kTypeInt64, strides.data(), strides.size());
    t.set(cudnn::kTensorId, cudnn::kTypeInt64, id);
    t.set(cudnn::kTensorAlignment, cudnn::kTypeInt64, std::int64_t{shape_.alignment});
    t.set(cudnn::kTensorVirtual, cudnn::kTypeBoolean, is_virtual);
    t.finalize("describing a tensor");
    tensors_.push_back(std::make_unique<Descriptor>(std::move(t)));
    return tensors_.back().get();
  }
  Descriptor* operand(std::int64_t id, const ConvolutionShape::Dims& sizes,
                      const ConvolutionShape::Dims& strides) {
    return tensor(id, dims(sizes), dims(strides), false);
  }
  // What an operation makes: y if it is the last one, else a value between two.
  Descriptor* result(bool is_last) {
    if (is_last) return operand(kY, shape_.y, shape_.y_strides);
    return tensor(next_virtual_++, dims(shape_.y), dims(shape_.y_strides), true);
  }
  Descriptor* bias() {
    const std::int64_t channels = shape_.y[1];
    const ConvolutionShape::Dims sizes = {1, channels, 1, 1, 1};
    const ConvolutionShape::Dims strides = {channels, 1, channels, channels, channels};
    return operand(kBias, sizes, strides);
  }

  // The attributes of the operation that makes one of the three.
  struct Names {
    int kind, alpha, beta, convolution, x, w, y;
  };
  static Names names_of(ConvolutionShape::Result result) {
    switch (result) {
      case ConvolutionShape::Result::y:
        break;
      case ConvolutionShape::Result::x:
        return {cudnn::kConvolutionImage,
                cudnn::kImageAlpha,
                cudnn::kImageBeta,
                cudnn::kImageConvolution,
                cudnn::kImageX,
                cudnn::kImageW,
                cudnn::kImageY};
      case ConvolutionShape::Result::w:
        return {cudnn::kConvolutionWeights,
                cudnn::kWeightsAlpha,
                cudnn::kWeightsBeta,
                cudnn::kWeightsConvolution,
                cudnn::kWeightsX,
                cudnn::kWeightsW,
                cudnn::kWeightsY};
    }
    return {cudnn::kConvolutionForward,
            cudnn::kForwardAlpha,
            cudnn::kForwardBeta,
            cudnn::kForwardConvolution,
            cudnn::kForwardX,
            cudnn::kForwardW,
            cudnn::kForwardY};
  }

  Descriptor* convolution(bool is_last) {
    Descriptor c(api_, cudnn::kConvolution);
    const auto padding = spatial(shape_.padding);
    const auto stride = spatial(shape_.stride);
    const auto dilation = spatial(shape_.dilation);
    const auto count = static_cast<std::int64_t>(padding.size());
    c.set(cudnn::kConvolutionType, cudnn::kTypeDataType, cudnn::kF32);
    c.set(cudnn::kConvolutionMode, cudnn::kTypeConvolutionMode, cudnn::kCrossCorrelation);
    c.set(cudnn::kConvolutionDims, cudnn::kTypeInt64, count);
    c.set_all(cudnn::kConvolutionPrePadding, cudnn::kTypeInt64, padding.data(), padding.size());
    c.set_all(cudnn::kConvolutionPostPadding, cudnn::kTypeInt64, padding.data(), padding.size());
    c.set_all(cudnn::kConvolutionStrides, cudnn::kTypeInt64, stride.data(), stride.size());
    c.set_all(cudnn::kConvolutionDilations, cudnn::kTypeInt64, dilation.data(), dilation.size());
    c.finalize("describing a convolution");
    tensors_.push_back(std::make_unique<Descriptor>(std::move(c)));
    const Descriptor* parameters = tensors_.back().get();
    Descriptor* const y = result(is_last);
    const Names names = names_of(shape_.result);
    Descriptor o(api_, names.kind);
    o.refer(names.convolution, *parameters);
    o.refer(names.x, *operand(kX, shape_.x, shape_.x_strides));
    o.refer(names.w, *operand(kW, shape_.w, shape_.w_strides));
    o.refer(names.y, *y);
    o.set(names.alpha, cudnn::kTypeFloat, 1.0F);
    o.set(names.beta, cudnn::kTypeFloat, 0.0F);
    o.finalize("describing a convolution");
    operations_.push_back(std::move(o));
    return y;
  }

  Descriptor* pointwise(int mode, const Descriptor* x, const Descriptor* b, bool is_last) {
    Descriptor p(api_, cudnn::kPointwise);
    p.set(cudnn::kPointwiseMode, cudnn::kTypePointwiseMode, mode);
    p.set(cudnn::kPointwisePrecision, cudnn::kTypeDataType, cudnn::kF32);
    if (mode == cudnn::kRelu) p.set(cudnn::kPointwiseNan, cudnn::kTypeNan, cudnn::kKeepNan);
    p.finalize("describing an operation");
    tensors_.push_back(std::make_unique<Descriptor>(std::move(p)));
    const Descriptor* parameters = tensors_.back().get();
    Descriptor* const y = result(is_last);
    Descriptor o(api_, cudnn::kPointwiseOperation);
    o.refer(cudnn::kOperationPointwise, *parameters);
    o.refer(cudnn::kOperationX, *x);
    if (b != nullptr) o.refer(cudnn::kOperationB, *b);
    o.refer(cudnn::kOperationY, *y);
    o.finalize("describing an operation");
    operations_.push_back(std::move(o));
    return y;
  }

  const Api& api_;
  const ConvolutionShape& shape_;
  std::vector<std::unique_ptr<Descriptor>> tensors_;  // and parameters: addresses are handed out
  std::vector<Descriptor> operations_;
  std::int64_t next_virtual_ = kFirstVirtual;
};

// The library's handle, whose stream is set before each use.
struct Context {
  explicit Context(const Api& the_api) : api(the_api) {}
  const Api& api;
  cudnn::Handle handle = nullptr;
  std::mutex mutex;
};

class CudnnConvolution final : public ConvolutionAlgorithm {
 public:
  CudnnConvolution(Context& context, const ConvolutionShape& shape, Descriptor plan,
                   std::string name, std::string identity)
      : context_(context),
        shape_(shape),
        plan_(std::move(plan)),
        name_(std::move(name)),
        identity_(std::move(identity)) {}

  void run(const ConvolutionPointers& p, void* workspace, Stream stream) const override {
    check(context_.api, execute(p, workspace, stream), "running a convolution");
  }
  bool try_run(const ConvolutionPointers& p, void* workspace, Stream stream) const override {
    return execute(p, workspace, stream) == cudnn::kSuccess;
  }
  std::string name() const override { return name_; }
  std::string identity() const override { return identity_; }

 private:
  [[nodiscard]] cudnn::Status execute(const ConvolutionPointers& p, void* workspace,
                                      Stream stream) const {
    std::array<std::int64_t, 5> ids{kX, kW, kY};
    std::array<const void*, 5> pointers{p.x, p.w, p.y};
    std::size_t count = 3;
    const auto add = [&](std::int64_t id, const void* pointer) {
      ids[count] = id;
      pointers[count++] = pointer;
    };
    if (shape_.has_bias) add(kBias, p.bias);
    if (shape_.has_residual) add(kResidual, p.residual);
    Descriptor pack(context_.api, cudnn::kVariantPack);
    pack.set_all(cudnn::kPackIds, cudnn::kTypeInt64, ids.data(), count);
    pack.set_all(cudnn::kPackPointers, cudnn::kTypePointer, pointers.data(), count);
    pack.set(cudnn::kPackWorkspace, cudnn::kTypePointer, workspace);
    pack.finalize("passing operands");
    const std::lock_guard lock(context_.mutex);
    check(context_.api, context_.api.set_stream(context_.handle, stream), "choosing a stream");
    return context_.api.execute(context_.handle, plan_.get(), pack.get());
  }

  Context& context_;
  ConvolutionShape shape_;
  Descriptor plan_;
  std::string name_, identity_;
};

// Queries the library for algorithms. Each handle is used by one thread at a time.
class CudnnFinder final : public ConvolutionFinder {
 public:
  explicit CudnnFinder(const Api& api) : api_(api) { (void)context(0); }

  std::string library() const override { return fmt::format("cuDNN {}", api_.version()); }

  ConvolutionAlgorithms find_algorithms(std::size_t worker, const ConvolutionShape& shape,
                                        int most) override {
    Context& used = context(worker);
    const std::lock_guard lock(used.mutex);
    return find_algorithms(used, shape, most);
  }

  std::shared_ptr<ConvolutionAlgorithm> find_algorithm(std::size_t worker,
                                                       const ConvolutionShape& shape,
                                                       std::string_view identity) override {
    Context& used = context(worker);
    const std::lock_guard lock(used.mutex);
    const Descriptor graph = GraphBuilder(api_, shape).run(used.handle);
    Identities identities;
    for (const int mode : {cudnn::kModeA, cudnn::kModeFallback}) {
      for (const Descriptor& config : configurations(api_, graph, mode)) {
        const Engine engine = identities.numbered(describe_engine(api_, config));
        if (engine.identity == identity) return make_algorithm(used, shape, config, engine);
      }
    }
    return nullptr;
  }

 private:
  // Which of its engines the library would take.
  struct Engine {
    std::string name;
    std::string identity;   // with the knobs of the engine, as they are set
    bool compiles = false;  // when asked for
  };

  // Knobs need not tell all of a configuration: those of which they tell the same are told apart by
  // their order, which is the same in every process.
  class Identities {
   public:
    Engine numbered(Engine engine) {
      const int number = seen_[engine.identity]++;
      if (number > 0) engine.identity += fmt::format(" #{}", number);
      return engine;
    }

   private:
    std::map<std::string, int> seen_;
  };

  Context& context(std::size_t worker) {
    std::unique_ptr<Context>& made = contexts_.at(worker);
    if (!made) {
      auto fresh = std::make_unique<Context>(api_);
      check(api_, api_.create(&fresh->handle), "starting");
      made = std::move(fresh);
    }
    return *made;
  }

  // Algorithms that fit the workspace, in the library's order.
  static ConvolutionAlgorithms find_algorithms(Context& context, const ConvolutionShape& shape,
                                               int most) {
    const Descriptor graph = GraphBuilder(context.api, shape).run(context.handle);
    ConvolutionAlgorithms result;
    Identities identities;
    int compiled = 0;
    for (const int mode : {cudnn::kModeA, cudnn::kModeFallback}) {
      if (!result.empty()) break;
      for (Descriptor& config : configurations(context.api, graph, mode)) {
        if (static_cast<int>(result.size()) >= most) break;
        const Engine engine = identities.numbered(describe_engine(context.api, config));
        add_candidate(context, shape, config, engine, compiled, result);
      }
    }
    return result;
  }

  static void add_candidate(Context& context, const ConvolutionShape& shape,
                            const Descriptor& config, const Engine& engine, int& compiled,
                            ConvolutionAlgorithms& result) {
    const int most = shape.result == ConvolutionShape::Result::y ? kCompiled : kCompiledGradients;
    if (engine.compiles && compiled >= most) return;
    auto algorithm = make_algorithm(context, shape, config, engine);
    if (!algorithm) return;
    if (engine.compiles) ++compiled;
    result.push_back(std::move(algorithm));
  }

  // Null if the library refuses, or wants more memory than there is.
  static std::shared_ptr<ConvolutionAlgorithm> make_algorithm(Context& context,
                                                              const ConvolutionShape& shape,
                                                              const Descriptor& config,
                                                              const Engine& engine) {
    Descriptor plan(context.api, cudnn::kPlan);
    plan.set(cudnn::kPlanHandle, cudnn::kTypeHandle, context.handle);
    plan.refer(cudnn::kPlanConfig, config);
    if (plan.try_finalize() != cudnn::kSuccess) return nullptr;
    std::int64_t bytes = 0;
    std::int64_t count = 0;
    check(context.api,
          context.api.get(plan.get(), cudnn::kPlanWorkspace, cudnn::kTypeInt64, 1, &count, &bytes),
          "asking for the workspace");
    if (bytes > Convolutions::kWorkspaceBytes) return nullptr;
    return std::make_shared<CudnnConvolution>(context, shape, std::move(plan), engine.name,
                                              engine.identity);
  }

  static Engine describe_engine(const Api& api, const Descriptor& config) {
    Descriptor engine(api, cudnn::kEngine);
    cudnn::Descriptor handle = engine.get();
    std::int64_t count = 0;
    if (api.get(config.get(), cudnn::kConfigEngine, cudnn::kTypeDescriptor, 1, &count, &handle) !=
        cudnn::kSuccess) {
      return {"cudnn", "unknown"};
    }
    std::int64_t number = 0;
    api.get(engine.get(), cudnn::kEngineIndex, cudnn::kTypeInt64, 1, &count, &number);
    std::array<int, 8> notes{};
    std::int64_t noted = 0;
    const auto most = static_cast<std::int64_t>(notes.size());
    bool compiles = false;
    if (api.get(engine.get(), cudnn::kEngineBehavior, cudnn::kTypeBehavior, most, &noted,
                notes.data()) == cudnn::kSuccess) {
      const auto end = notes.begin() + std::min(noted, most);
      compiles = std::find(notes.begin(), end, cudnn::kCompilesAtRunTime) != end;
    }
    return {fmt::format("cudnn engine {}{}", number, compiles ? " (compiled)" : ""),
            fmt::format("engine {}{}", number, knobs_of(api, config)), compiles};
  }

  // " type=value" for each knob, in the library's order.
  static std::string knobs_of(const Api& api, const Descriptor& config) {
    std::string text;
    for (const Descriptor& knob : list(api, config, cudnn::kConfigKnobs, cudnn::kKnobChoice)) {
      std::int64_t count = 0, value = 0;
      int type = 0;
      if (api.get(knob.get(), cudnn::kKnobType, cudnn::kTypeKnob, 1, &count, &type) ==
              cudnn::kSuccess &&
          api.get(knob.get(), cudnn::kKnobValue, cudnn::kTypeInt64, 1, &count, &value) ==
              cudnn::kSuccess) {
        text += fmt::format(" {}={}", type, value);
      }
    }
    return text;
  }

  static std::vector<Descriptor> configurations(const Api& api, const Descriptor& graph, int mode) {
    Descriptor heuristics(api, cudnn::kHeuristics);
    heuristics.refer(cudnn::kHeuristicsGraph, graph);
    heuristics.set(cudnn::kHeuristicsMode, cudnn::kTypeHeuristicsMode, mode);
    if (heuristics.try_finalize() != cudnn::kSuccess) return {};
    return list(api, heuristics, cudnn::kHeuristicsResults, cudnn::kEngineConfig);
  }

  // Descriptors of this kind that another one lists; none where the library fails.
  static std::vector<Descriptor> list(const Api& api, const Descriptor& of, int attribute,
                                      int kind) {
    std::vector<Descriptor> result;
    std::int64_t count = 0;
    if (api.get(of.get(), attribute, cudnn::kTypeDescriptor, 0, &count, nullptr) !=
        cudnn::kSuccess) {
      return result;
    }
    std::vector<cudnn::Descriptor> handles;
    for (std::int64_t i = 0; i < count; ++i) {
      result.emplace_back(api, kind);
      handles.push_back(result.back().get());
    }
    std::int64_t found = 0;
    if (api.get(of.get(), attribute, cudnn::kTypeDescriptor, count, &found, handles.data()) !=
        cudnn::kSuccess) {
      found = 0;
    }
    result.erase(result.begin() + std::clamp<std::int64_t>(found, 0, count), result.end());
    return result;
  }

  const Api& api_;
  std::array<std::unique_ptr<Context>, kWorkers> contexts_;
};

}  // namespace

std::unique_ptr<Convolutions> make_cudnn(Device& device, std::string& why_not) {
  const Api* api = cudnn::find(why_not);
  if (api == nullptr) return nullptr;
  try {
    return choose_among(std::make_unique<CudnnFinder>(*api), device);
  } catch (const InternalError& error) {
    why_not = error.what();
    return nullptr;
  }
}

}  // namespace inkle::runtime::cuda
