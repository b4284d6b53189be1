// Host time of the executor, and what library calls reach through it. Prints ns a call for plans
// of many arguments, launches or library calls, and GFLOP/s of contractions and convolutions.
#include <benchmark/benchmark.h>

#include "../tests/runtime/cpu/plan_builder.h"

namespace inkle::runtime::cpu {
namespace {

void nothing(void* const*, const std::int64_t*, void*, std::int64_t, std::int64_t) {}

// A host as cheap as can be: outputs come from one place.
class FixedHost final : public Host {
 public:
  HostTensor make_output(abi::DType dtype, std::span<const std::int64_t> sizes,
                         std::span<const std::int64_t> strides) override {
    const auto rank = static_cast<std::int32_t>(sizes.size());
    return {.handle = this,
            .view = {.data = memory_,
                     .dtype = dtype,
                     .device = {},
                     .rank = rank,
                     .sizes = sizes.data(),
                     .strides = strides.data()}};
  }
  void call(std::uint32_t, std::span<const EagerOperand>, std::span<HostTensor>) override {}
  void give(std::uint32_t, const Output& output) override { benchmark::DoNotOptimize(output); }

 private:
  alignas(64) std::byte memory_[1 << 16];
};

void run(benchmark::State& state, PlanBuilder& b, Arguments& a, Check check) {
  Executable e(b.done());
  FixedHost host;
  const Call call{.tensors = a.views, .host = &host, .check = check};
  e.run(call);
  for (auto _ : state) e.run(call);
}

void arguments(benchmark::State& state, Check check) {
  PlanBuilder b;
  Arguments a;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    b.argument("x", {8, 16, 4}, {}, abi::DType::f32, true);
    a.add({8, 16, 4});
  }
  run(state, b, a, check);
}
BENCHMARK_CAPTURE(arguments, full, Check::full)->Arg(1)->Arg(101);
BENCHMARK_CAPTURE(arguments, trusted, Check::trusted)->Arg(1)->Arg(101);

// Weights of `bytes` bytes that a prepare step reads: are they what they were? `cold`: other memory
// has been read meanwhile, as in a call of a real model.
void prepared(benchmark::State& state, std::int64_t bytes, bool cold) {
  constexpr std::int64_t kWeights = 256;
  PlanBuilder b;
  Arguments a;
  std::vector<abi::PlanBuffer> buffers;
  for (std::int64_t i = 0; i < kWeights; ++i) {
    buffers.push_back(b.argument("w", {bytes / 4}, {}, abi::DType::f32, true));
    a.random({bytes / 4});
  }
  buffers.push_back(b.buffer(abi::BufferDecl::Kind::prepared, "t", {1}, {1}, abi::DType::f32, 0));
  b.launch(nothing, buffers, {}, 1);
  b.plan.steps[0].prepare = true;
  Executable e(b.done());
  FixedHost host;
  const Call call{.tensors = a.views, .host = &host, .check = Check::trusted};
  e.run(call);
  std::vector<std::int64_t> other(std::size_t{16} << 20, 1);
  std::int64_t sum = 0;
  for (auto _ : state) {
    if (cold) {
      state.PauseTiming();
      for (const std::int64_t value : other) sum += value;
      benchmark::DoNotOptimize(sum);
      state.ResumeTiming();
    }
    e.run(call);
  }
  state.counters["ns_a_weight"] =
      benchmark::Counter(static_cast<double>(state.iterations() * kWeights) / 1e9,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK_CAPTURE(prepared, small_warm, 1024, false);
BENCHMARK_CAPTURE(prepared, small_cold, 1024, true);
BENCHMARK_CAPTURE(prepared, large_warm, 1 << 19, false);
BENCHMARK_CAPTURE(prepared, large_cold, 1 << 19, true);

// 6 buffers and 3 sizes a launch; one iteration each, so no fork.
void launches(benchmark::State& state) {
  PlanBuilder b;
  Arguments a;
  std::vector<abi::PlanBuffer> buffers;
  for (int i = 0; i < 5; ++i) {
    buffers.push_back(b.argument("x", {16}));
    a.add({16});
  }
  buffers.push_back(b.output("y", {16}));
  for (std::int64_t i = 0; i < state.range(0); ++i) b.launch(nothing, buffers, {1, 2, 3}, 1);
  run(state, b, a, Check::trusted);
}
BENCHMARK(launches)->Arg(1)->Arg(101);

void forked_launches(benchmark::State& state) {
  PlanBuilder b;
  Arguments a;
  const auto x = b.argument("x", {16});
  a.add({16});
  for (std::int64_t i = 0; i < state.range(0); ++i) b.launch(nothing, {x}, {1, 2, 3}, 1000);
  run(state, b, a, Check::trusted);
}
BENCHMARK(forked_launches)->Arg(1)->Arg(101);

// 1 x 1 products: all overhead. oneDNN's own share is in it.
void library_calls(benchmark::State& state, bool weight) {
  PlanBuilder b;
  Arguments a;
  abi::MatmulCall m;
  m.a = b.operand(b.argument("a", {1, 16}));
  m.b = b.operand(b.argument("b", {16, 16}, {1, 16}, abi::DType::f32, weight));
  m.c = b.operand(b.output("c", {1, 16}));
  m.b_is_weight = weight;
  a.random({1, 16});
  a.random({16, 16}, {1, 16});
  for (std::int64_t i = 0; i < state.range(0); ++i) b.call(m);
  run(state, b, a, Check::trusted);
}
BENCHMARK_CAPTURE(library_calls, in_place, false)->Arg(1)->Arg(101);
BENCHMARK_CAPTURE(library_calls, packed, true)->Arg(1)->Arg(101);

// [rows, k] by [n, k]^T with bias.
void matmul(benchmark::State& state, bool weight, std::vector<abi::PostOp> post_ops) {
  const std::int64_t rows = state.range(0), k = state.range(1), n = state.range(2);
  PlanBuilder b;
  Arguments a;
  abi::MatmulCall m;
  m.a = b.operand(b.argument("a", {rows, k}));
  m.b = b.operand(b.argument("b", {n, k}, {}, abi::DType::f32, weight), {k, n}, {1, k});
  m.has_bias = true;
  m.bias = b.operand(b.argument("bias", {n}));
  m.c = b.operand(b.arena("c", {rows, n}, 0, 0));
  m.b_is_weight = weight;
  m.post_ops = std::move(post_ops);
  b.call(m);
  a.random({rows, k});
  a.random({n, k});
  a.random({n});
  run(state, b, a, Check::trusted);
  state.counters["GFLOP/s"] = benchmark::Counter(
      2e-9 * static_cast<double>(rows * k * n) * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}
void shapes(benchmark::internal::Benchmark* b) {
  for (const std::int64_t rows : {1, 32, 128, 1024}) {
    b->Args({rows, 384, 1536})->Args({rows, 768, 3072})->Args({rows, 3072, 768});
  }
  b->MinTime(0.2)->UseRealTime();
}
BENCHMARK_CAPTURE(matmul, in_place, false, {})->Apply(shapes);
BENCHMARK_CAPTURE(matmul, weight, true, {})->Apply(shapes);
BENCHMARK_CAPTURE(matmul, weight_gelu, true, {{.kind = abi::PostOpKind::gelu_erf, .operand = {}}})
    ->Apply(shapes);

// Square images of resnet50: channels in, out, size in, kernel, stride.
void convolution(benchmark::State& state, bool channels_last, bool relu) {
  const std::int64_t c = state.range(0), o = state.range(1), size = state.range(2),
                     kernel = state.range(3), stride = state.range(4), out = size / stride;
  const Shape x = {1, c, size, size}, y = {1, o, out, out}, w = {o, c, kernel, kernel};
  const Shape xs = channels_last ? Shape{c * size * size, 1, c * size, c} : dense_strides(x);
  const Shape ys = channels_last ? Shape{o * out * out, 1, o * out, o} : dense_strides(y);
  PlanBuilder b;
  Arguments a;
  abi::ConvolutionCall call{.x = b.operand(b.argument("x", x, xs)),
                            .w = b.operand(b.argument("w", w, {}, abi::DType::f32, true))};
  call.has_bias = true;
  call.bias = b.operand(b.argument("bias", {o}));
  const auto result = b.arena("y", y, 0, 0);
  call.y = b.operand(result, y, ys);
  call.stride = {stride, stride};
  call.padding = {kernel / 2, kernel / 2};
  call.dilation = {1, 1};
  call.w_is_weight = true;
  if (relu) call.post_ops = {{.kind = abi::PostOpKind::relu, .operand = {}}};
  b.call(call);
  a.random(x, xs);
  a.random(w);
  a.random({o});
  run(state, b, a, Check::trusted);
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(c * o * kernel * kernel * out * out) *
                             static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}
void layers(benchmark::internal::Benchmark* b) {
  b->Args({3, 64, 224, 7, 2})->Args({64, 64, 56, 1, 1})->Args({64, 64, 56, 3, 1});
  b->Args({64, 256, 56, 1, 1})->Args({512, 128, 28, 1, 1})->Args({128, 128, 28, 3, 1});
  b->Args({512, 1024, 28, 1, 2})->Args({256, 256, 14, 3, 1})->Args({1024, 256, 14, 1, 1});
  b->Args({512, 512, 7, 3, 1})->Args({512, 2048, 7, 1, 1})->MinTime(0.1)->UseRealTime();
}
BENCHMARK_CAPTURE(convolution, channels_last, true, false)->Apply(layers);
BENCHMARK_CAPTURE(convolution, channels_last_relu, true, true)->Apply(layers);
BENCHMARK_CAPTURE(convolution, channels_first, false, false)->Apply(layers);

}  // namespace
}  // namespace inkle::runtime::cpu

BENCHMARK_MAIN();
