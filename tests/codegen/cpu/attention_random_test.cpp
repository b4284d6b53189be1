// Attention and its gradient on random problems: strides, masks, dropout, blocks and types as they
// come. The kernel that a template writes is interpreted, before its passes and after: no access
// outside, no read of what nobody has written, no race between tasks; and machine code of each
// width gives what the interpreter gives.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>

#include "abi/targets.h"
#include "codegen/cpu/attention_fixture.h"
#include "codegen/cpu/attention_problem.h"

namespace inkle::codegen::cpu {
namespace {

using schedule::ParamRole;

class Random {
 public:
  explicit Random(unsigned seed) : generator_(seed) {}
  std::int64_t from(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(generator_);
  }
  bool one_in(int n) { return from(1, n) == 1; }
  template <class T>
  T pick(std::initializer_list<T> list) {
    return *(list.begin() + from(0, static_cast<std::int64_t>(list.size()) - 1));
  }

 private:
  std::mt19937 generator_;
};

// Sizes of the four variables, the order in which memory has them, and which of them it has.
struct Layout {
  std::array<std::int64_t, 4> sizes{};
  std::array<int, 4> order{0, 1, 2, 3};
  std::array<bool, 4> has{true, true, true, true};
  std::int64_t padding = 0;  // elements behind each run of the innermost one
};

struct Problem {
  schedule::AttentionKernel kernel;  // of the forward; a gradient shares what is in it
  std::array<std::int64_t, 7> sizes{};
  std::vector<std::pair<Expr, std::int64_t>> symbols;
  DType dtype = DType::f32;
  Layout q, k, v, out, mask;
  std::optional<DType> mask_dtype;
  bool lse = false;
  Schedule schedule;
  unsigned seed = 0;
};

Expr offset_of(sym::Context& context, const Layout& layout, const std::vector<Expr>& variables,
               const std::array<Expr, 4>& sizes) {
  Expr offset = context.constant(0);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto d = static_cast<std::size_t>(layout.order[i]);
    if (!layout.has[d]) continue;
    offset = offset * (i == 3 ? sizes[d] + layout.padding : sizes[d]) + variables[d];
  }
  return offset;
}

std::int64_t elements_of(const Layout& layout) {
  std::int64_t count = 1;
  for (std::size_t i = 0; i < 4; ++i) {
    const auto d = static_cast<std::size_t>(layout.order[i]);
    if (layout.has[d]) count *= layout.sizes[d] + (i == 3 ? layout.padding : 0);
  }
  return count;
}

Layout random_layout(Random& random, std::array<std::int64_t, 4> sizes, bool may_be_strange) {
  Layout layout{sizes};
  if (random.one_in(2)) std::swap(layout.order[1], layout.order[2]);
  if (may_be_strange && random.one_in(6)) std::swap(layout.order[3], layout.order[2]);
  if (random.one_in(4)) layout.padding = random.from(1, 9);
  return layout;
}

// Sizes stay small: everything is interpreted.
Problem random_problem(sym::Context& context, unsigned seed, bool is_gradient) {
  Random random(seed);
  Problem p;
  p.seed = seed;
  const std::int64_t batch = random.from(1, 2), kv_heads = random.from(1, 2);
  const std::int64_t heads = kv_heads * random.from(1, 2);
  const std::int64_t q = random.pick<std::int64_t>({1, 3, 6, 7, 13, 20, 37});
  const std::int64_t kv =
      random.one_in(4) ? q : random.pick<std::int64_t>({0, 1, 5, 16, 33, 70, 130});
  const std::int64_t dim = random.pick<std::int64_t>({3, 8, 16, 20, 32, 40});
  const std::int64_t value_dim = random.one_in(2) ? dim : random.pick<std::int64_t>({1, 8, 24, 48});
  p.sizes = {batch, heads, kv_heads, q, kv, dim, value_dim};
  p.dtype = random.pick({DType::f32, DType::f32, DType::bf16, DType::f16});
  const bool dynamic = random.one_in(3);
  const auto size = [&](const char* name, std::int64_t v) {
    if (!dynamic) return context.constant(v);
    const Expr s = context.symbol(name, {.range = {0, 1 << 16}, .hint = v});
    p.symbols.emplace_back(s, v);
    return s;
  };
  schedule::AttentionKernel& a = p.kernel;
  a.dtype = p.dtype;
  a.batch = size("b", batch);
  a.heads = context.constant(heads);
  a.kv_heads = context.constant(kv_heads);
  a.q_length = size("q", q);
  a.kv_length = size("k", kv);
  a.head_dim = context.constant(dim);
  a.value_dim = context.constant(value_dim);
  for (const Expr extent : {a.batch, a.heads, a.q_length, a.kv_length}) {
    a.variables.push_back(context.index(extent));
  }
  p.q = random_layout(random, {batch, heads, q, dim}, false);
  p.k = random_layout(random, {batch, kv_heads, kv, dim}, true);
  p.v = random_layout(random, {batch, kv_heads, kv, value_dim}, true);
  p.out = random_layout(random, {batch, heads, q, value_dim}, false);
  if (random.one_in(2)) {
    p.mask_dtype = random.pick({DType::f32, DType::boolean, p.dtype});
    p.mask = {{batch, heads, q, kv}};
    for (bool& has : p.mask.has) has = !random.one_in(4);
    if (random.one_in(5)) std::swap(p.mask.order[2], p.mask.order[3]);
    a.has_mask = true;
    a.mask_dtype = *p.mask_dtype;
    if (a.mask_dtype == DType::boolean && random.one_in(3)) a.hidden = -1e4;
  }
  p.lse = !is_gradient && random.one_in(3);
  a.scale = random.one_in(8) ? 1 : 1 / std::sqrt(static_cast<double>(dim));
  a.is_causal = random.one_in(3);
  a.safe = !random.one_in(4);
  if (random.one_in(4)) a.dropout = {random.from(0, 5), random.one_in(6) ? 1.0 : 0.3};
  p.schedule.row_block = random.pick<std::int64_t>({1, 4, 6, 16, 32, 64});
  p.schedule.column_block = random.pick<std::int64_t>({16, 64, 128, 256});
  return p;
}

struct Made {
  Kernel kernel;
  std::vector<Array> arrays;
  std::vector<std::int64_t> sizes;
};

class Maker {
 public:
  Maker(Problem& problem, sym::Context& context, Made& made)
      : p_(problem), context_(context), made_(made) {
    const auto& a = p_.kernel;
    rows_ = {a.batch, a.heads, a.q_length, a.head_dim};
    columns_ = {a.batch, a.kv_heads, a.kv_length, a.head_dim};
  }

  // The gradient takes result and statistics of the forward.
  void run(const Made* forward) {
    schedule::AttentionKernel a = p_.kernel;
    a.is_gradient = forward != nullptr;
    a.has_statistics = !a.is_gradient;
    a.has_lse = p_.lse && !a.is_gradient;
    const std::array<Expr, 4> value_rows{rows_[0], rows_[1], rows_[2], a.value_dim};
    const std::array<Expr, 4> value_columns{columns_[0], columns_[1], columns_[2], a.value_dim};
    input(a, p_.q, rows_, p_.dtype, 1);
    input(a, p_.k, columns_, p_.dtype, 2);
    input(a, p_.v, value_columns, p_.dtype, 3);
    const Layout pairs{{p_.sizes[0], p_.sizes[1], p_.sizes[3], 2}};
    const std::array<Expr, 4> pair_rows{rows_[0], rows_[1], rows_[2], context_.constant(2)};
    if (forward != nullptr) {
      add(a, p_.out, value_rows, forward->arrays[3], ParamRole::in);
      input(a, p_.out, value_rows, p_.dtype, 5);
      add(a, pairs, pair_rows, forward->arrays[forward_statistics()], ParamRole::in);
      output(a, p_.q, rows_, p_.dtype);
      output(a, p_.k, columns_, p_.dtype);
      output(a, p_.v, value_columns, p_.dtype);
    } else {
      output(a, p_.out, value_rows, p_.dtype);
    }
    if (p_.mask_dtype) mask(a);
    if (a.has_lse) {
      Layout rows{{p_.sizes[0], p_.sizes[1], p_.sizes[3], 1}};
      rows.has[3] = false;
      output(a, rows, rows_, DType::f32);
    }
    if (a.has_statistics) output(a, pairs, pair_rows, DType::f32);
    if (a.dropout) {
      Array seed(DType::i64, 1);
      const std::int64_t value = 0x123456789abcdef0 + static_cast<std::int64_t>(p_.seed);
      std::memcpy(seed.bytes.data(), &value, sizeof(value));
      a.offsets.push_back(context_.constant(0));
      made_.kernel.params.push_back({ParamRole::in, DType::i64, 8, false});
      made_.arrays.push_back(std::move(seed));
    }
    made_.kernel.name = a.is_gradient ? "attention_gradient" : "attention";
    made_.kernel.body = a;
    for (const auto& [symbol, value] : p_.symbols) {
      made_.kernel.sizes.push_back(symbol);
      made_.sizes.push_back(value);
    }
  }

 private:
  std::size_t forward_statistics() const {
    return 4 + (p_.mask_dtype ? 1U : 0U) + (p_.lse ? 1U : 0U);
  }

  void add(schedule::AttentionKernel& a, const Layout& layout, const std::array<Expr, 4>& sizes,
           Array array, ParamRole role) {
    a.offsets.push_back(offset_of(context_, layout, a.variables, sizes));
    const auto alignment = static_cast<std::int32_t>(abi::size_of(array.dtype));
    made_.kernel.params.push_back({role, array.dtype, alignment, false});
    made_.arrays.push_back(std::move(array));
  }
  void input(schedule::AttentionKernel& a, const Layout& layout, const std::array<Expr, 4>& sizes,
             DType dtype, unsigned number) {
    add(a, layout, sizes, random_array(dtype, elements_of(layout), 8 * p_.seed + number),
        ParamRole::in);
  }
  void output(schedule::AttentionKernel& a, const Layout& layout, const std::array<Expr, 4>& sizes,
              DType dtype) {
    add(a, layout, sizes, Array(dtype, elements_of(layout)), ParamRole::out);
  }
  void mask(schedule::AttentionKernel& a) {
    const bool hides = p_.mask_dtype == DType::boolean;
    Array mask = random_array(*p_.mask_dtype, elements_of(p_.mask), 8 * p_.seed + 4, hides ? 0 : -3,
                              hides ? 1.99 : 2);
    Random random(p_.seed + 7);
    // Rows that see nothing at all.
    const bool is_empty = random.one_in(4);
    for (std::int64_t i = 0; i < mask.count; ++i) {
      if (is_empty && i < p_.sizes[4]) {
        mask.set(i, hides ? 0 : -std::numeric_limits<double>::infinity());
      } else if (hides) {
        mask.set(i, random.one_in(3) ? 0 : 1);
      }
    }
    const std::array<Expr, 4> sizes{rows_[0], rows_[1], rows_[2], a.kv_length};
    add(a, p_.mask, sizes, std::move(mask), ParamRole::in);
  }

  Problem& p_;
  sym::Context& context_;
  Made& made_;
  std::array<Expr, 4> rows_, columns_;
};

std::vector<Array> run_compiled(CpuCompiler& compiler, const Made& made, const Schedule& schedule,
                                sym::Context& context) {
  const auto value = [&](Expr e) {
    return sym::evaluate(e, [&](Expr s) {
      const auto& sizes = made.kernel.sizes;
      const auto at = std::ranges::find(sizes, s) - sizes.begin();
      return made.sizes.at(static_cast<std::size_t>(at));
    });
  };
  const std::int64_t extent = value(schedule::parallel_extent(made.kernel, schedule, context));
  const CompileUnit unit{&made.kernel, schedule};
  const auto compiled = compiler.compile({&unit, 1});
  std::vector<Array> arrays = made.arrays;
  std::vector<void*> pointers;
  for (Array& a : arrays) pointers.push_back(a.bytes.data());
  std::vector<std::byte> memory(static_cast<std::size_t>(value(compiled[0].scratch_bytes)) + 64);
  void* scratch = memory.data();
  std::size_t space = memory.size();
  std::align(64, memory.size() - 64, scratch, space);
  // The later part first: what an iteration writes beyond its own elements then shows.
  compiled[0].function(pointers.data(), made.sizes.data(), scratch, extent / 3, extent);
  compiled[0].function(pointers.data(), made.sizes.data(), scratch, 0, extent / 3);
  return arrays;
}

void check_problem(unsigned seed, bool is_gradient) {
  SCOPED_TRACE(fmt::format("seed {}{}", seed, is_gradient ? ", gradient" : ""));
  for (CpuCompiler* compiler : compilers()) {
    sym::Context context;
    Problem problem = random_problem(context, seed, is_gradient);
    Made forward, gradient;
    Maker(problem, context, forward).run(nullptr);
    std::vector<Array> results = run_compiled(*compiler, forward, problem.schedule, context);
    Made* made = &forward;
    if (is_gradient) {
      forward.arrays = results;
      Maker(problem, context, gradient).run(&forward);
      results = run_compiled(*compiler, gradient, problem.schedule, context);
      made = &gradient;
    }
    check_interpreted_attention(made->kernel, problem.schedule, compiler->row(), made->arrays,
                                made->sizes, results);
  }
}

// The kernel in tiles (AMX) in the interpreter, whatever the processor has, against this one's
// code; false if the problem has none.
bool check_tiles(unsigned seed) {
  SCOPED_TRACE(fmt::format("seed {}, tiles", seed));
  sym::Context context;
  Problem problem = random_problem(context, seed, false);
  problem.dtype = problem.kernel.dtype = DType::bf16;
  problem.kernel.dropout.reset();
  Made made;
  Maker(problem, context, made).run(nullptr);
  const auto written =
      attention_problem(made.kernel, std::get<schedule::AttentionKernel>(made.kernel.body));
  const abi::Target& target = *abi::target_named("x86-64-v4+amx");
  const auto& row = templates::attention_template_of(written);
  if (!row.configs(written, target).front().tiles) return false;
  const std::vector<Array> results =
      run_compiled(*compilers().front(), made, problem.schedule, context);
  check_interpreted_attention(made.kernel, problem.schedule, target, made.arrays, made.sizes,
                              results);
  return true;
}

// 12 problems; INKLE_LONG_TESTS=1 takes 300.
unsigned problems() { return std::getenv("INKLE_LONG_TESTS") != nullptr ? 300 : 12; }

TEST(RandomAttention, Forward) {
  for (unsigned seed = 0; seed < problems(); ++seed) check_problem(1000U + seed, false);
}

TEST(RandomAttention, ForwardInTiles) {
  unsigned done = 0;
  for (unsigned seed = 7000; done < problems(); ++seed) done += check_tiles(seed) ? 1 : 0;
}

TEST(RandomAttention, Gradient) {
  for (unsigned seed = 0; seed < problems(); ++seed) check_problem(5000U + seed, true);
}

}  // namespace
}  // namespace inkle::codegen::cpu
