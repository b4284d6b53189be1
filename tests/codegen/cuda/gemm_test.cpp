// Matrix products of templates/gemm_wgmma: the kernel that is written runs in the interpreter with
// all threads, copies and roles, without a finding and with the results of plain loops; and the
// assembler makes code of it that neither spills nor waits between products.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>

#include "abi/half.h"
#include "abi/targets.h"
#include "base/error.h"
#include "codegen/cuda/compiler.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/prelude.h"
#include "codegen/cuda/print_kernel.h"
#include "kernel/interpret.h"
#include "kernel/passes.h"
#include "kernel/verify.h"
#include "loop/builder.h"
#include "templates/gemm_wgmma.h"

namespace inkle::codegen::cuda {
namespace {

using abi::DType;
using loop::Opcode;
using sym::Expr;
using templates::GemmProblem;
using templates::WgmmaConfig;

struct Sizes {
  std::int64_t batch, rows, columns, terms;
  bool symbolic_rows = false;
  bool shared_b = false;
  bool a_transposed = false;  // its rows are its last dimension
  bool b_transposed = false;  // its columns are
  bool computed = false;      // a stands for silu(a) * scale + shift, of each row and each term
};

// y = max(a b^T + bias, 0) * other in bf16 and the sums in f32.
class Product {
 public:
  explicit Product(const Sizes& sizes, const WgmmaConfig& config) : sizes_(sizes), config_(config) {
    GemmProblem& p = problem_;
    const auto n = [&](std::int64_t v) { return context_.constant(v); };
    p.name = "product";
    p.rows = n(sizes.rows);
    if (sizes.symbolic_rows) {
      p.rows = context_.symbol("m", {.range = {1, 65536}});
      p.sizes = {p.rows};
    }
    p.batch = n(sizes.batch);
    p.columns = n(sizes.columns);
    p.terms = n(sizes.terms);
    const Expr extents[] = {p.batch, p.rows, p.columns, p.terms};
    for (std::size_t v = 0; v < p.variables.size(); ++v)
      p.variables[v] = context_.index(extents[v]);
    const auto in = kernel::Role::in, out = kernel::Role::out;
    p.parameters = {{DType::bf16, in, 16}, {DType::bf16, in, 16},  {DType::f32, in, 16},
                    {DType::bf16, in, 16}, {DType::bf16, out, 16}, {DType::f32, out, 16}};
    p.boxes = {boxes(p.rows, config.rows, true, sizes.a_transposed),
               boxes(p.columns, config.columns, !sizes.shared_b, sizes.b_transposed)};
    if (sizes.computed) compute_left();
    if (config.parts > 1) {
      p.partials = static_cast<std::uint32_t>(p.parameters.size());
      p.parameters.push_back({DType::f32, out, 16});
    }
    const Expr at = (p.variables[0] * p.rows + p.variables[1]) * p.columns + p.variables[2];
    loop::BodyBuilder body(p.epilogue, context_);
    const auto sum = body.row(0, DType::f32);
    const auto biased = body.add(sum, body.load(2, DType::f32, {p.variables[2]}));
    const auto other = body.cast(body.load(3, DType::bf16, {at}), DType::f32);
    body.yield(body.mul(body.max(biased, body.constant(DType::f32, 0.0)), other));
    body.yield(sum);
    p.stores = {{4, at, 0}, {5, at, 1}};
  }

  kernel::Kernel kernel() {
    const auto& row = templates::first_match(templates::wgmma_templates(), problem_);
    EXPECT_EQ(row.needs(problem_, config_), "");
    kernel::Kernel made = row.emit(problem_, config_, context_);
    kernel::verify(made, "", {.shared_bytes = 227 << 10});
    kernel::PassOptions passes{.skip = {"lower_collectives", "place_barriers"},
                               .verify_each = true};
    kernel::run_passes(made, context_, kernel::gpu_passes(), passes);
    return made;
  }

  sym::Context& context() { return context_; }

  // Runs the kernel under several schedules and compares.
  void check(const kernel::CheckOptions& options) {
    const kernel::Kernel made = kernel();
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& values, std::int64_t count) {
      values.resize(static_cast<std::size_t>(count));
      for (float& v : values) v = abi::bf16_to_float(abi::float_to_bf16(normal(random)));
    };
    const auto& s = sizes_;
    std::vector<float> a, b, bias, other;
    fill(a, s.batch * s.rows * s.terms);
    fill(b, (s.shared_b ? 1 : s.batch) * s.columns * s.terms);
    fill(bias, s.columns);
    fill(other, s.batch * s.rows * s.columns);
    std::vector<std::vector<std::byte>> data = {
        narrow(stored(a, s.batch, s.rows, s.a_transposed)),
        narrow(stored(b, s.shared_b ? 1 : s.batch, s.columns, s.b_transposed)), wide(bias),
        narrow(other)};
    data.emplace_back(other.size() * 2);
    data.emplace_back(other.size() * 4);
    if (s.computed) {
      std::vector<float> scale, shift;
      fill(scale, s.rows);
      fill(shift, s.terms);
      data.push_back(wide(scale));
      data.push_back(wide(shift));
      for (std::size_t at = 0; at < a.size(); ++at) {
        const auto terms = static_cast<std::size_t>(s.terms);
        const float value =
            a[at] / (1 + std::exp(-a[at])) * scale[at / terms % static_cast<std::size_t>(s.rows)] +
            shift[at % terms];
        a[at] = abi::bf16_to_float(abi::float_to_bf16(value));
      }
    }
    if (config_.parts > 1) {
      const auto tiles = [](std::int64_t of, std::int64_t by) { return (of + by - 1) / by; };
      data.emplace_back(static_cast<std::size_t>(s.batch * tiles(s.rows, config_.rows) *
                                                 tiles(s.columns, config_.columns) * config_.parts *
                                                 config_.rows * config_.columns * 4));
    }
    kernel::Instance instance;
    for (auto& d : data) instance.arguments.push_back({d});
    for (std::size_t o : {4, 5}) instance.arguments[o].writes = kernel::Writes::exactly_once;
    instance.arguments.resize(made.parameter_count);
    if (s.symbolic_rows) instance.sizes = {s.rows};
    const kernel::CheckResult result = kernel::check(made, {&instance, 1}, options);
    for (const kernel::Finding& f : result.findings) {
      ADD_FAILURE() << result.schedule << ": " << kernel::to_string(made, f);
    }
    ASSERT_TRUE(result.findings.empty());
    compare(result, a, b, bias, other);
  }

 private:
  templates::GemmBoxes boxes(Expr extent, std::int64_t tile, bool has_batch, bool transposed) {
    templates::GemmBoxes made{{extent, problem_.terms}, {tile, config_.terms}, 128, true};
    if (transposed) made = {{problem_.terms, extent}, {config_.terms, 64}, 128, false};
    if (has_batch && sizes_.batch > 1) {
      made.sizes.insert(made.sizes.begin(), problem_.batch);
      made.box.insert(made.box.begin(), 1);
    }
    return made;
  }
  void compute_left() {
    GemmProblem& p = problem_;
    const auto first = static_cast<std::uint32_t>(p.parameters.size());
    for (int i = 0; i < 2; ++i) p.parameters.push_back({DType::f32, kernel::Role::in, 16});
    loop::BodyBuilder body(p.left, context_);
    const auto x = body.cast(body.row(0, DType::bf16), DType::f32);
    const auto silu =
        body.div(x, body.add(body.constant(DType::f32, 1.0), body.unary(Opcode::exp, body.neg(x))));
    const auto scaled = body.mul(silu, body.load(first, DType::f32, {p.variables[1]}));
    const auto shifted = body.add(scaled, body.load(first + 1, DType::f32, {p.variables[3]}));
    body.yield(body.cast(body.cast(shifted, DType::bf16), DType::f32));
  }
  // [matrix][other][term] as it lies in memory.
  [[nodiscard]] std::vector<float> stored(const std::vector<float>& values, std::int64_t batch,
                                          std::int64_t extent, bool transposed) const {
    if (!transposed) return values;
    std::vector<float> made(values.size());
    for (std::int64_t at = 0; at < batch * extent * sizes_.terms; ++at) {
      const std::int64_t term = at % sizes_.terms, row = at / sizes_.terms % extent,
                         matrix = at / sizes_.terms / extent;
      made[static_cast<std::size_t>((matrix * sizes_.terms + term) * extent + row)] =
          values[static_cast<std::size_t>(at)];
    }
    return made;
  }
  static std::vector<std::byte> narrow(const std::vector<float>& values) {
    std::vector<std::byte> bytes(values.size() * 2);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint16_t bits = abi::float_to_bf16(values[i]);
      std::memcpy(bytes.data() + i * 2, &bits, 2);
    }
    return bytes;
  }
  static std::vector<std::byte> wide(const std::vector<float>& values) {
    std::vector<std::byte> bytes(values.size() * 4);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  void compare(const kernel::CheckResult& result, const std::vector<float>& a,
               const std::vector<float>& b, const std::vector<float>& bias,
               const std::vector<float>& other) const {
    const auto& s = sizes_;
    for (std::int64_t at = 0; at < s.batch * s.rows * s.columns; ++at) {
      const std::int64_t row = at / s.columns, column = at % s.columns;
      const std::int64_t matrix = s.shared_b ? 0 : row / s.rows;
      double sum = 0;
      for (std::int64_t k = 0; k < s.terms; ++k) {
        sum += double{a[static_cast<std::size_t>(row * s.terms + k)]} *
               b[static_cast<std::size_t>((matrix * s.columns + column) * s.terms + k)];
      }
      float got_sum = 0;
      std::uint16_t bits = 0;
      std::memcpy(&got_sum, result.results[5].data() + at * 4, 4);
      std::memcpy(&bits, result.results[4].data() + at * 2, 2);
      ASSERT_NEAR(got_sum, sum, 1e-4 * (1 + std::abs(sum))) << row << ", " << column;
      const double want = std::max(sum + bias[static_cast<std::size_t>(column)], 0.0) *
                          other[static_cast<std::size_t>(at)];
      ASSERT_NEAR(abi::bf16_to_float(bits), want, 0.01 * (0.1 + std::abs(want)))
          << row << ", " << column;
    }
  }

  sym::Context context_;
  Sizes sizes_;
  WgmmaConfig config_;
  GemmProblem problem_;
};

WgmmaConfig small(std::int32_t columns, std::int32_t stages, std::int32_t blocks) {
  return {.columns = columns, .stages = stages, .group = 2, .blocks = blocks};
}

TEST(GemmTest, TilesAreWhole) { Product({1, 128, 64, 128}, small(64, 2, 1)).check({.seeds = 2}); }

TEST(GemmTest, TilesAreRagged) { Product({1, 133, 72, 72}, small(64, 3, 2)).check({.seeds = 2}); }

TEST(GemmTest, ColumnsAreOdd) { Product({1, 20, 37, 8}, small(32, 2, 1)).check({.seeds = 2}); }

TEST(GemmTest, BlocksHaveManyTiles) {
  Product({1, 300, 70, 136}, small(32, 3, 2)).check({.seeds = 1});
}

TEST(GemmTest, BatchesOfMatrices) {
  Product({3, 40, 40, 64}, small(32, 2, 2)).check({.seeds = 1});
  Product({2, 40, 40, 64, false, true}, small(32, 2, 2)).check({.seeds = 1});
}

TEST(GemmTest, RowsAreSymbolic) {
  Product({1, 200, 64, 80, true}, small(64, 2, 3)).check({.seeds = 1});
}

TEST(GemmTest, OperandsLieEitherWay) {
  const auto sizes = [](std::int64_t batch, bool a, bool b) {
    return Sizes{.batch = batch,
                 .rows = 136,
                 .columns = 136,
                 .terms = 80,
                 .a_transposed = a,
                 .b_transposed = b};
  };
  Product(sizes(1, false, true), small(128, 2, 2)).check({.seeds = 1});
  Product(sizes(1, true, false), small(64, 2, 2)).check({.seeds = 1});
  Product(sizes(2, true, true), small(64, 2, 3)).check({.seeds = 1});
}

WgmmaConfig ping_pong(std::int32_t rows, std::int32_t columns, std::int32_t stages,
                      std::int32_t blocks) {
  WgmmaConfig config = small(columns, stages, blocks);
  config.rows = rows;
  config.ping_pong = true;
  return config;
}

TEST(GemmTest, WarpgroupsTakeTurns) {
  Product({1, 300, 70, 136}, ping_pong(64, 32, 3, 2)).check({.seeds = 2});
  Product({1, 300, 70, 136}, ping_pong(128, 32, 2, 1)).check({.seeds = 2});
  Product({1, 200, 64, 520, true}, ping_pong(64, 64, 4, 1)).check({.seeds = 1});
  Product({1, 64, 64, 64}, ping_pong(64, 64, 4, 2)).check({.seeds = 1});
  Product({2, 136, 136, 80, false, false, true, true}, ping_pong(128, 64, 2, 2))
      .check({.seeds = 1});
}

TEST(GemmTest, TermsInParts) {
  WgmmaConfig config = small(32, 2, 8);
  config.parts = 3;
  Product({1, 70, 40, 520}, config).check({.seeds = 3});
  Product({2, 70, 40, 200}, config).check({.seeds = 1});
  Product({1, 200, 72, 520, true}, config).check({.seeds = 1});
  config = ping_pong(64, 32, 3, 3);
  config.parts = 2;
  Product({1, 140, 40, 264}, config).check({.seeds = 2});
}

TEST(GemmTest, LeftOperandIsComputed) {
  const auto sizes = [](std::int64_t batch, std::int64_t terms, bool a, bool b) {
    return Sizes{.batch = batch,
                 .rows = 140,
                 .columns = 72,
                 .terms = terms,
                 .a_transposed = a,
                 .b_transposed = b,
                 .computed = true};
  };
  Product(sizes(1, 128, false, false), small(64, 3, 2)).check({.seeds = 2});
  Product(sizes(1, 200, false, true), small(64, 2, 2)).check({.seeds = 1});
  Sizes ragged = sizes(2, 72, true, false);
  ragged.rows = 136;
  Product(ragged, small(32, 2, 2)).check({.seeds = 1});
  Product(sizes(1, 136, false, false), ping_pong(64, 32, 3, 2)).check({.seeds = 1});
  WgmmaConfig config = small(32, 2, 4);
  config.parts = 2;
  Product(sizes(1, 392, false, false), config).check({.seeds = 1});
}

std::string notes_of(Product& product) {
  const KernelSource source = print_kernel(product.kernel(), "k", "", product.context());
  std::string text = prelude(), notes;
  for (const std::string& helper : source.helpers) text += helper;
  text += source.text;
  if (const char* to = std::getenv("INKLE_TEST_TEXT")) std::ofstream(to) << text;
  EXPECT_FALSE(compile_program(text, "gemm.cu", "sm_90a", &notes).empty());
  return notes;
}

WgmmaConfig config_of(const abi::GemmTile& tile) {
  WgmmaConfig config;
  config.rows = tile.rows;
  config.columns = tile.columns;
  config.stages = tile.stages;
  config.ping_pong = tile.ping_pong;
  return config;
}

// Of the tiles of the target; `check` says which problems.
void compile_all(const std::function<void(const WgmmaConfig&)>& check) {
  std::string why_not;
  if (!find_nvrtc(why_not)) GTEST_SKIP() << why_not;
  for (const abi::GemmTile& tile : abi::target_named("sm_90a")->gemm.tiles) {
    if (tile.rows > 0) check(config_of(tile));
  }
}

TEST(GemmTest, NothingSpills) {
  compile_all([](const WgmmaConfig& config) {
    for (const bool symbolic : {false, true}) {
      Product product({1, 1000, 1000, 1000, symbolic}, config);
      EXPECT_EQ(notes_of(product), "") << to_string(config);
    }
  });
}

TEST(GemmTest, NothingSpillsOfOtherLayouts) {
  compile_all([](const WgmmaConfig& config) {
    if (config.columns % 64 != 0) return;
    Product product({2, 1000, 1000, 1000, false, false, true, true}, config);
    EXPECT_EQ(notes_of(product), "") << to_string(config);
  });
}

TEST(GemmTest, NothingSpillsOfComputedOperands) {
  compile_all([](const WgmmaConfig& config) {
    if (config.ping_pong) return;
    Product product({1, 1000, 1000, 1000, false, false, false, false, true}, config);
    EXPECT_EQ(notes_of(product), "") << to_string(config);
  });
}

TEST(GemmTest, NothingSpillsOfParts) {
  compile_all([](WgmmaConfig config) {
    if (config.ping_pong) return;
    config.parts = 4;
    Product product({1, 1000, 1000, 4000}, config);
    EXPECT_EQ(notes_of(product), "") << to_string(config);
  });
}

}  // namespace
}  // namespace inkle::codegen::cuda
