// Speed of the symbolic engine: linearised indices, views of views, proofs and substitution.
#include <benchmark/benchmark.h>

#include <array>
#include <utility>
#include <vector>

#include "sym/expr.h"

namespace inkle::sym {
namespace {

Expr size(Context& context, const char* name) {
  SymbolInfo info;
  info.range = {2, 1 << 20};
  return context.symbol(name, info);
}

// Runs of fresh work in one context: about what one program brings.
constexpr int kBatch = 64;

struct Four {
  Context context;
  std::array<Expr, 4> shape;
  std::array<Expr, 4> index;

  explicit Four(bool symbolic) {
    shape = {size(context, "s0"), size(context, "s1"), context.constant(12), context.constant(64)};
    if (!symbolic) {
      const std::array<std::int64_t, 4> sizes = {8, 128, 12, 64};
      for (std::size_t i = 0; i < 4; ++i) shape[i] = context.constant(sizes[i]);
    }
    renew();
  }
  void renew() {
    for (std::size_t i = 0; i < 4; ++i) index[i] = context.index(shape[i]);
  }
  Expr linear() const {
    return ((index[0] * shape[1] + index[1]) * shape[2] + index[2]) * shape[3] + index[3];
  }
};

// One 4-D index, again and again: what a loop body with many loads does.
void linear_index(benchmark::State& state) {
  const Four four(state.range(0) != 0);
  for (auto _ : state) benchmark::DoNotOptimize(four.linear());
}
BENCHMARK(linear_index)->Arg(0)->Arg(1)->ArgName("symbolic");

// Calls body(four) kBatch times a context, each with fresh iteration variables, so that nothing
// is remembered; reports the time of one.
template <class Body>
void run_fresh(benchmark::State& state, bool symbolic, const Body& body) {
  for (auto _ : state) {
    Four four(symbolic);
    for (int i = 0; i < kBatch; ++i) {
      four.renew();
      body(four);
    }
  }
  state.counters["each"] = benchmark::Counter(
      kBatch, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void fresh_variables(benchmark::State& state) {
  run_fresh(state, true, [](Four&) {});
}
BENCHMARK(fresh_variables);

void fresh_linear_index(benchmark::State& state) {
  run_fresh(state, state.range(0) != 0,
            [](Four& four) { benchmark::DoNotOptimize(four.linear()); });
}
BENCHMARK(fresh_linear_index)->Arg(0)->Arg(1)->ArgName("symbolic");

// [s0,s1,12,64] -> [s0*s1,768] and back to four plain variables.
void fresh_view_of_view(benchmark::State& state) {
  run_fresh(state, state.range(0) != 0, [](Four& four) {
    const Expr rows = four.shape[0] * four.shape[1];
    const Expr linear = four.linear();
    const Expr again = mod(floordiv(linear, 768), rows) * 768 + mod(linear, 768);
    for (const Expr i :
         {mod(again, 64), mod(floordiv(again, 64), 12), mod(floordiv(again, 768), four.shape[1]),
          floordiv(again, four.shape[1] * 768)}) {
      benchmark::DoNotOptimize(i);
    }
  });
}
BENCHMARK(fresh_view_of_view)->Arg(0)->Arg(1)->ArgName("symbolic");

void fresh_proof(benchmark::State& state) {
  run_fresh(state, true, [](Four& four) {
    const Expr total = four.shape[0] * four.shape[1] * 768;
    benchmark::DoNotOptimize(less(four.linear(), total));
  });
}
BENCHMARK(fresh_proof);

void fresh_substitute(benchmark::State& state) {
  run_fresh(state, true, [](Four& four) {
    const Expr linear = four.linear();
    const std::vector<std::pair<Expr, Expr>> map = {
        {four.index[1], four.context.index(four.shape[1])},
        {four.index[3], four.context.index(four.shape[3])}};
    benchmark::DoNotOptimize(substitute(linear, map));
  });
}
BENCHMARK(fresh_substitute);

void fresh_context(benchmark::State& state) {
  for (auto _ : state) {
    const Four four(true);
    benchmark::DoNotOptimize(four.linear());
  }
}
BENCHMARK(fresh_context);

}  // namespace
}  // namespace inkle::sym

BENCHMARK_MAIN();
