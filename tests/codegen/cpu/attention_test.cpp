// Attention against a plain computation in double.
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <regex>
#include <set>
#include <string>

#include "abi/targets.h"
#include "codegen/cpu/attention_fixture.h"
#include "templates/attention.h"

namespace inkle::codegen::cpu {
namespace {

struct Case {
  std::int64_t batch = 1, heads = 2, kv_heads = 2, q = 33, kv = 70, dim = 32, value_dim = 32;
  DType dtype = DType::f32;
  bool mask = false;
  DType mask_dtype = DType::f32;
  bool mask_broadcast = false;  // over batch, head and row
  bool lse = false;
  bool causal = false;
  bool safe = true;
  bool transposed_k = false;  // [.., feature, column] in memory
  bool dynamic = false;
  bool empty_row = false;
  std::int64_t row_block = 32, column_block = 128;
};

struct Built {
  sym::Context context;
  Kernel kernel;
  std::vector<std::int64_t> sizes;
};

void build(const Case& c, Built& b) {
  schedule::AttentionKernel a;
  const auto size = [&](const char* name, std::int64_t v) {
    if (!c.dynamic) return b.context.constant(v);
    Expr s = b.context.symbol(name, {.range = {0, 1 << 16}, .hint = v});
    b.kernel.sizes.push_back(s);
    b.sizes.push_back(v);
    return s;
  };
  a.dtype = c.dtype;
  a.batch = size("b", c.batch);
  a.heads = b.context.constant(c.heads);
  a.kv_heads = b.context.constant(c.kv_heads);
  a.q_length = size("q", c.q);
  a.kv_length = size("k", c.kv);
  a.head_dim = b.context.constant(c.dim);
  a.value_dim = b.context.constant(c.value_dim);
  for (const Expr extent : {a.batch, a.heads, a.q_length, a.kv_length}) {
    a.variables.push_back(b.context.index(extent));
  }
  const auto& v = a.variables;
  // q and out as [batch, row, head, feature], k and v as [batch, head, row, feature].
  const Expr q = ((v[0] * a.q_length + v[2]) * c.heads + v[1]) * c.dim + v[3];
  const Expr k = c.transposed_k ? ((v[0] * c.kv_heads + v[1]) * c.dim + v[3]) * a.kv_length + v[2]
                                : ((v[0] * c.kv_heads + v[1]) * a.kv_length + v[2]) * c.dim + v[3];
  const Expr value = ((v[0] * c.kv_heads + v[1]) * a.kv_length + v[2]) * c.value_dim + v[3];
  const Expr out = ((v[0] * a.q_length + v[2]) * c.heads + v[1]) * c.value_dim + v[3];
  a.offsets = {q, k, value, out};
  using schedule::ParamRole;
  b.kernel.params = {{ParamRole::in, c.dtype, 4, false},
                     {ParamRole::in, c.dtype, 4, false},
                     {ParamRole::in, c.dtype, 4, false},
                     {ParamRole::out, c.dtype, 4, false}};
  if (c.mask) {
    a.has_mask = true;
    a.mask_dtype = c.mask_dtype;
    a.offsets.push_back(c.mask_broadcast
                            ? v[3]
                            : ((v[0] * c.heads + v[1]) * a.q_length + v[2]) * a.kv_length + v[3]);
    b.kernel.params.push_back({ParamRole::in, c.mask_dtype, 1, false});
  }
  if (c.lse) {
    a.has_lse = true;
    a.offsets.push_back((v[0] * c.heads + v[1]) * a.q_length + v[2]);
    b.kernel.params.push_back({ParamRole::out, DType::f32, 4, false});
  }
  a.scale = 1 / std::sqrt(static_cast<double>(c.dim));
  a.is_causal = c.causal;
  a.safe = c.safe;
  b.kernel.name = "attention";
  b.kernel.body = a;
}

std::vector<Array> make_arrays(const Case& c) {
  std::vector<Array> arrays = {random_array(c.dtype, c.batch * c.heads * c.q * c.dim, 1),
                               random_array(c.dtype, c.batch * c.kv_heads * c.kv * c.dim, 2),
                               random_array(c.dtype, c.batch * c.kv_heads * c.kv * c.value_dim, 3),
                               Array(c.dtype, c.batch * c.heads * c.q * c.value_dim)};
  if (c.mask) {
    const std::int64_t count = c.mask_broadcast ? c.kv : c.batch * c.heads * c.q * c.kv;
    Array mask = random_array(c.mask_dtype, count, 4, c.mask_dtype == DType::boolean ? 0 : -3, 2);
    if (c.empty_row) {
      const double none =
          c.mask_dtype == DType::boolean ? 0 : -std::numeric_limits<double>::infinity();
      for (std::int64_t j = 0; j < c.kv; ++j) mask.set(5 * c.kv + j, none);
    }
    arrays.push_back(std::move(mask));
  }
  if (c.lse) arrays.emplace_back(DType::f32, c.batch * c.heads * c.q);
  return arrays;
}

void reference(const Case& c, std::vector<Array>& arrays) {
  std::vector<double> p(static_cast<std::size_t>(c.kv));
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const std::int64_t g = b * c.kv_heads + h / (c.heads / c.kv_heads);
      for (std::int64_t i = 0; i < c.q; ++i) {
        double most = -std::numeric_limits<double>::infinity();
        for (std::int64_t j = 0; j < c.kv; ++j) {
          double s = 0;
          for (std::int64_t d = 0; d < c.dim; ++d) {
            const std::int64_t at =
                c.transposed_k ? (g * c.dim + d) * c.kv + j : (g * c.kv + j) * c.dim + d;
            s += arrays[0].get(((b * c.q + i) * c.heads + h) * c.dim + d) * arrays[1].get(at);
          }
          s /= std::sqrt(static_cast<double>(c.dim));
          const std::int64_t m = c.mask_broadcast ? j : ((b * c.heads + h) * c.q + i) * c.kv + j;
          if (c.mask && c.mask_dtype != DType::boolean) s += arrays[4].get(m);
          if ((c.mask && c.mask_dtype == DType::boolean && arrays[4].get(m) == 0) ||
              (c.causal && j > i)) {
            s = -std::numeric_limits<double>::infinity();
          }
          p[static_cast<std::size_t>(j)] = s;
          most = std::max(most, s);
        }
        double sum = 0;
        for (double& s : p) sum += s = std::isinf(s) ? 0 : std::exp(s - most);
        for (std::int64_t d = 0; d < c.value_dim; ++d) {
          double o = 0;
          for (std::int64_t j = 0; j < c.kv; ++j) {
            o += p[static_cast<std::size_t>(j)] * arrays[2].get((g * c.kv + j) * c.value_dim + d);
          }
          arrays[3].set(((b * c.q + i) * c.heads + h) * c.value_dim + d,
                        sum == 0 && (c.safe || c.kv == 0) ? 0 : o / sum);
        }
        if (c.lse) arrays.back().set((b * c.heads + h) * c.q + i, most + std::log(sum));
      }
    }
  }
}

void check_attention(const Case& c) {
  Built b;
  build(c, b);
  Schedule schedule;
  schedule.row_block = c.row_block;
  schedule.column_block = c.column_block;
  std::vector<Array> expected = make_arrays(c);
  reference(c, expected);
  const std::int64_t extent = c.batch * c.heads * ((c.q + c.row_block - 1) / c.row_block);
  for (CpuCompiler* compiler : compilers()) {
    const CompileUnit unit{&b.kernel, schedule};
    const auto compiled = compiler->compile({&unit, 1});
    std::vector<Array> actual = make_arrays(c);
    std::vector<void*> pointers;
    for (Array& a : actual) pointers.push_back(a.bytes.data());
    std::vector<std::byte> memory(static_cast<std::size_t>(*compiled[0].scratch_bytes.constant()) +
                                  64);
    void* scratch = memory.data();
    std::size_t space = memory.size();
    std::align(64, memory.size() - 64, scratch, space);
    compiled[0].function(pointers.data(), b.sizes.data(), scratch, 0, extent / 2);
    compiled[0].function(pointers.data(), b.sizes.data(), scratch, extent / 2, extent);
    const double tolerance = c.dtype == DType::f32 ? 2e-6 : c.dtype == DType::f16 ? 2e-3 : 1.6e-2;
    for (std::size_t p = 3; p < actual.size(); ++p) {
      int wrong = 0;
      for (std::int64_t i = 0; i < actual[p].count && wrong < 4; ++i) {
        const double a = actual[p].get(i);
        const double e = expected[p].get(i);
        if (std::isnan(e) ? std::isnan(a) : std::abs(a - e) <= tolerance * 2 || a == e) continue;
        ADD_FAILURE() << compiler->device().vector_bytes << " byte vectors, parameter " << p << "["
                      << i << "]: " << a << ", expected " << e;
        ++wrong;
      }
    }
    constexpr std::int64_t kInterpreted = 300'000;  // products
    if (c.batch * c.heads * c.q * c.kv * (c.dim + c.value_dim) > kInterpreted) continue;
    check_interpreted_attention(b.kernel, schedule, compiler->row(), make_arrays(c), b.sizes,
                                actual);
  }
}

TEST(Attention, Shapes) {
  for (const bool causal : {false, true}) {
    for (const bool dynamic : {false, true}) {
      for (const std::int64_t q : {1, 6, 33, 130}) {
        for (const std::int64_t kv : {1, 70, 300}) {
          SCOPED_TRACE(fmt::format("q {} kv {} causal {} dynamic {}", q, kv, causal, dynamic));
          check_attention({.q = q, .kv = kv, .causal = causal, .dynamic = dynamic});
        }
      }
    }
  }
  check_attention({.batch = 2, .heads = 6, .kv_heads = 2, .q = 20, .dim = 64, .value_dim = 64});
  check_attention({.dim = 80, .value_dim = 72});
  check_attention({.q = 40, .kv = 40, .dim = 128, .value_dim = 128, .causal = true});
  check_attention({.dim = 5, .value_dim = 3, .lse = true});
  check_attention({.transposed_k = true});
}

TEST(Attention, Masks) {
  for (const DType d : {DType::f32, DType::boolean, DType::bf16}) {
    for (const bool broadcast : {false, true}) {
      check_attention({.mask = true, .mask_dtype = d, .mask_broadcast = broadcast, .lse = true});
    }
    for (const bool safe : {false, true}) {
      check_attention({.mask = true, .mask_dtype = d, .safe = safe, .empty_row = true});
    }
  }
}

TEST(Attention, NoColumns) {
  for (const bool safe : {false, true}) {
    for (const bool dynamic : {false, true}) {
      check_attention({.kv = 0, .lse = true, .safe = safe, .dynamic = dynamic});
    }
  }
}

TEST(Attention, ReducedTypes) {
  check_attention({.dtype = DType::bf16});
  check_attention({.dim = 64, .value_dim = 64, .dtype = DType::f16, .causal = true});
}

// Equal texts share their code.
TEST(Attention, TextTellsWhatHiddenColumnsCountAs) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::set<std::string> texts;
  for (const double hidden : {-kInfinity, kInfinity, std::nan(""), -1e4}) {
    Built b;
    build({.mask = true, .mask_dtype = DType::boolean}, b);
    std::get<schedule::AttentionKernel>(b.kernel.body).hidden = hidden;
    texts.insert(schedule::to_string(b.kernel));
  }
  EXPECT_EQ(texts.size(), 4U);
}

TEST(AttentionTiles, ShortCausalOnesHaveNone) {
  CpuCompiler compiler({.instruction_set = "x86-64-v4+amx"});
  for (const bool causal : {false, true}) {
    Built b;
    build({.q = 40, .kv = 77, .dim = 40, .value_dim = 24, .dtype = DType::bf16, .causal = causal},
          b);
    const CompileUnit unit{&b.kernel, Schedule{}};
    const CompiledKernel made = compiler.compile({&unit, 1}, {.keep_assembly = true})[0];
    EXPECT_EQ(made.assembly.find("tdpbf16ps") == std::string::npos, causal);
  }
}

// Tiles in LLVM's own frame are spilled ones: kernels have their stack in memory that they are
// given.
TEST(AttentionTiles, NoTileIsSpilled) {
  CpuCompiler compiler({.instruction_set = "x86-64-v4+amx"});
  const std::regex spill("tile(loadd|stored)[^\n]*\\(%rsp");
  for (const auto& [q, kv, dim, value_dim] :
       {std::array{128, 128, 32, 32}, {256, 256, 64, 64}, {7, 300, 128, 128}, {40, 109, 40, 24}}) {
    for (const bool causal : {false, true}) {
      for (const bool dynamic : {false, true}) {
        SCOPED_TRACE(fmt::format("q {} kv {} dim {} causal {}", q, kv, dim, causal));
        Built b;
        build({.q = q,
               .kv = kv,
               .dim = dim,
               .value_dim = value_dim,
               .dtype = DType::bf16,
               .mask = dynamic,
               .causal = causal,
               .dynamic = dynamic},
              b);
        const CompileUnit unit{&b.kernel, Schedule{}};
        const CompiledKernel made = compiler.compile({&unit, 1}, {.keep_assembly = true})[0];
        EXPECT_NE(made.assembly.find("tdpbf16ps"), std::string::npos);
        EXPECT_EQ(made.assembly.find("vdpbf16ps"), std::string::npos);
        EXPECT_NE(made.assembly.find("tilerelease"), std::string::npos);
        EXPECT_FALSE(std::regex_search(made.assembly, spill)) << made.assembly;
      }
    }
  }
}

// Not a test of speed, but prints it: INKLE_TEST_VERBOSE=1.
TEST(Attention, Speed) {
  if (std::getenv("INKLE_TEST_VERBOSE") == nullptr) GTEST_SKIP();
  for (CpuCompiler* compiler : compilers()) {
    for (const std::int64_t dim : {32, 64, 128}) {
      for (const std::int64_t length : {128, 512, 2048}) {
        for (const auto& [row_block, column_block] :
             {std::pair{128, 128}, {128, 256}, {256, 128}, {32, 256}}) {
          Case c{
              .heads = 4, .kv_heads = 4, .q = length, .kv = length, .dim = dim, .value_dim = dim};
          Built b;
          build(c, b);
          Schedule schedule;
          schedule.row_block = row_block;
          schedule.column_block = column_block;
          const CompileUnit unit{&b.kernel, schedule};
          const auto compiled = compiler->compile({&unit, 1});
          std::vector<Array> arrays = make_arrays(c);
          std::vector<void*> pointers;
          for (Array& a : arrays) pointers.push_back(a.bytes.data());
          std::vector<std::byte> memory(
              static_cast<std::size_t>(*compiled[0].scratch_bytes.constant()) + 64);
          void* scratch = memory.data();
          std::size_t space = memory.size();
          std::align(64, memory.size() - 64, scratch, space);
          double best = 1e9;
          for (int round = 0; round < 5; ++round) {
            const auto start = std::chrono::steady_clock::now();
            compiled[0].function(pointers.data(), nullptr, scratch, 0,
                                 4 * ((length + row_block - 1) / row_block));
            best = std::min(
                best,
                std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
          }
          fmt::print(
              "{} bytes, dim {}, length {}, blocks {} x {}: {:.0f} GFLOP/s of one core, compile "
              "{:.1f} ms\n",
              compiler->device().vector_bytes, dim, length, row_block, column_block,
              4.0 * 4 * static_cast<double>(length * length * dim) / best * 1e-9,
              compiled[0].compile_seconds * 1e3);
        }
      }
    }
  }
}

// Pairs of bf16 are of sizes rounded up to two vectors: small ones multiply as often as in f32.
TEST(AttentionPairs, AreTakenWhereTheySaveMultiplications) {
  sym::Context context;
  abi::Target target;
  target.matrix_unit = abi::MatrixUnit::avx512_bf16;
  target.vector_bytes = 64;
  target.vector_registers = 32;
  const auto pairs = [&](std::int64_t columns, std::int64_t head, abi::DType dtype) {
    templates::AttentionProblem problem;
    problem.dtype = dtype;
    problem.q_length = context.constant(columns);
    problem.kv_length = context.constant(columns);
    problem.head_dim = problem.value_dim = context.constant(head);
    return templates::attention_template_of(problem).configs(problem, target).front().pairs;
  };
  EXPECT_FALSE(pairs(16, 12, abi::DType::bf16));
  EXPECT_FALSE(pairs(128, 64, abi::DType::f32));
  EXPECT_TRUE(pairs(17, 32, abi::DType::bf16));
  EXPECT_TRUE(pairs(77, 40, abi::DType::bf16));
  EXPECT_TRUE(pairs(128, 32, abi::DType::bf16));
}

// Weights are rounded where eager rounds them: not those that are dropped, and in a gradient not
// those of values of another width.
TEST(AttentionPairs, RoundWhatEagerRounds) {
  sym::Context context;
  const abi::Target& target = *abi::target_named("x86-64-v4+bf16");
  const auto config_of = [&](bool is_gradient, std::int64_t value, bool drops) {
    templates::AttentionProblem problem;
    problem.dtype = abi::DType::bf16;
    problem.q_length = problem.kv_length = context.constant(128);
    problem.head_dim = context.constant(64);
    problem.value_dim = context.constant(value);
    if (is_gradient) problem.gradient.emplace();
    if (drops) problem.dropout.emplace();
    return templates::attention_template_of(problem).configs(problem, target).front();
  };
  for (const bool is_gradient : {false, true}) {
    EXPECT_TRUE(config_of(is_gradient, 64, false).rounds_weights);
    EXPECT_TRUE(config_of(is_gradient, 64, true).pairs);
    EXPECT_FALSE(config_of(is_gradient, 64, true).rounds_weights);
    EXPECT_TRUE(config_of(is_gradient, 32, false).pairs);
    EXPECT_EQ(config_of(is_gradient, 32, false).rounds_weights, !is_gradient);
  }
}

}  // namespace
}  // namespace inkle::codegen::cpu
