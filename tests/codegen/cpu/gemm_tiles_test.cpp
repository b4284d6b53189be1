// Matrix products of templates/gemm_tiles: the kernel that is written runs in the interpreter,
// before its passes and after, without a finding and with the results of plain loops; and LLVM
// keeps all tiles in registers. Where the processor has tiles, machine code gives the interpreter's
// bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <regex>

#include "abi/half.h"
#include "abi/targets.h"
#include "codegen/cpu/compiler.h"
#include "codegen/cpu/gemm_problem.h"
#include "image/processor.h"
#include "kernel/interpret.h"
#include "kernel/passes.h"
#include "kernel/verify.h"
#include "loop/builder.h"
#include "schedule/gemm_panels.h"

namespace inkle::codegen::cpu {
namespace {

using abi::DType;
using sym::Expr;

constexpr std::int64_t kTile = 16;

std::int64_t up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

struct Sizes {
  std::int64_t batch, rows, columns, terms;
  bool symbolic_rows = false;
  std::int64_t gap = 0;   // elements behind each row of a
  bool computes = false;  // the left operand, twice what lies there
};

// y = max(a b + bias, 0) in bf16, and the sums in f32.
class Product {
 public:
  explicit Product(const Sizes& sizes) : sizes_(sizes) {
    const auto n = [&](std::int64_t v) { return context_.constant(v); };
    schedule::GemmKernel g;
    g.pairs = g.tiles = true;
    g.batch = n(sizes.batch);
    g.rows = n(sizes.rows);
    if (sizes.symbolic_rows) {
      g.rows = context_.symbol("m", {.range = {1, 65536}, .hint = sizes.rows});
      kernel_.sizes = {g.rows};
    }
    g.columns = n(sizes.columns);
    g.terms = n(sizes.terms / 2);
    for (const Expr extent : {g.batch, g.rows, g.columns, g.terms}) {
      g.variables.push_back(context_.index(extent));
    }
    const auto& v = g.variables;
    const loop::Program program;
    const abi::Target& target = *abi::target_named("x86-64-v4+amx");
    const schedule::PanelChoice choice(program_, target, false, false);
    program_.context = std::shared_ptr<sym::Context>(&context_, [](sym::Context*) {});
    choice.choose(g, false);
    choice.tile(g, schedule_);
    panel_ = g.panel;
    if (sizes.computes) compute_left(g);
    g.a = (v[0] * g.rows + v[1]) * ((sizes.terms + sizes.gap) / 2) + v[3];
    g.b = (v[0] * up(sizes.columns, g.panel) + v[2]) * up(sizes.terms / 2, kTile);
    const Expr at = (v[0] * g.rows + v[1]) * g.columns + v[2];
    loop::BodyBuilder body(g.epilogue, context_);
    const auto sum = body.row(0, DType::f32);
    const auto biased = body.add(sum, body.load(2, DType::f32, {v[2]}));
    body.yield(body.cast(body.max(biased, body.constant(DType::f32, 0.0)), DType::bf16));
    body.yield(sum);
    g.stores = {{3, at, loop::StoreMode::overwrite, 0}, {4, at, loop::StoreMode::overwrite, 1}};
    const auto in = schedule::ParamRole::in, out = schedule::ParamRole::out;
    for (const auto& [dtype, role] : {std::pair{DType::bf16, in},
                                      {DType::bf16, in},
                                      {DType::f32, in},
                                      {DType::bf16, out},
                                      {DType::f32, out}}) {
      schedule::Param p;
      p.dtype = dtype;
      p.role = role;
      p.alignment = static_cast<std::int32_t>(abi::size_of(dtype));
      kernel_.params.push_back(p);
    }
    kernel_.name = "product";
    kernel_.body = std::move(g);
  }

  void compute_left(schedule::GemmKernel& g) {
    g.left_terms = context_.constant(sizes_.terms);
    g.terms = context_.constant(up(sizes_.terms / 2, kTile));
    g.variables[3] = context_.index(g.left_terms);
    loop::BodyBuilder body(g.left, context_);
    const auto& v = g.variables;
    const Expr at = (v[0] * g.rows + v[1]) * (sizes_.terms + sizes_.gap) + v[3];
    const auto element = body.cast(body.load(0, DType::bf16, {at}), DType::f32);
    body.yield(body.mul(element, body.constant(DType::f32, 2.0)));
  }

  [[nodiscard]] const schedule::Kernel& kernel() const { return kernel_; }
  [[nodiscard]] const schedule::Schedule& schedule() const { return schedule_; }

  kernel::Kernel written(bool lowered) {
    const abi::Target& target = *abi::target_named("x86-64-v4+amx");
    const auto problem = gemm_problem(kernel_, std::get<schedule::GemmKernel>(kernel_.body));
    const templates::GemmTemplate& row = templates::gemm_template_of(problem);
    EXPECT_EQ(row.name, "gemm_tiles");
    const auto config = gemm_config(row, problem, schedule_, target);
    EXPECT_EQ(row.needs(problem, config), "");
    kernel::Kernel made = row.emit(problem, config, context_);
    kernel::verify(made);
    if (lowered) kernel::run_passes(made, context_, kernel::cpu_passes(), {.verify_each = true});
    return made;
  }

  void check() {
    fill();
    std::vector<std::vector<std::byte>> data = {bytes_of(a_), bytes_of(panels()), bytes_of(bias_)};
    const auto elements = static_cast<std::size_t>(sizes_.batch * sizes_.rows * sizes_.columns);
    data.emplace_back(elements * 2);
    data.emplace_back(elements * 4);
    std::vector<std::vector<std::byte>> first;
    for (const bool lowered : {false, true}) {
      const kernel::Kernel made = written(lowered);
      kernel::Instance instance;
      for (auto& d : data) instance.arguments.push_back({d});
      for (const std::size_t o : {3U, 4U}) {
        instance.arguments[o].writes = kernel::Writes::exactly_once;
      }
      if (sizes_.symbolic_rows) instance.sizes = {sizes_.rows};
      const kernel::CheckResult result = kernel::check(made, {&instance, 1}, {.seeds = 1});
      for (const kernel::Finding& f : result.findings) {
        ADD_FAILURE() << result.schedule << ": " << kernel::to_string(made, f);
      }
      ASSERT_TRUE(result.findings.empty());
      if (!lowered) compare(result.results);
      if (lowered) {
        EXPECT_EQ(result.results, first);
      }
      first = result.results;
    }
    run_here(data, first);
  }

 private:
  template <class T>
  static std::vector<std::byte> bytes_of(const std::vector<T>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  void fill() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const auto draw = [&](std::vector<std::uint16_t>& to, std::int64_t count) {
      to.resize(static_cast<std::size_t>(count));
      for (std::uint16_t& v : to) v = abi::float_to_bf16(normal(random));
    };
    draw(a_, sizes_.batch * sizes_.rows * (sizes_.terms + sizes_.gap));
    draw(b_, sizes_.batch * sizes_.columns * sizes_.terms);
    bias_.resize(static_cast<std::size_t>(sizes_.columns));
    for (float& v : bias_) v = normal(random);
  }

  // [batch][panel][pair][column][term of it], of b as [batch][column][term].
  [[nodiscard]] std::vector<std::uint16_t> panels() const {
    const std::int64_t pairs = up(sizes_.terms / 2, kTile);
    const std::int64_t across = up(sizes_.columns, panel_);
    std::vector<std::uint16_t> made(static_cast<std::size_t>(sizes_.batch * across * pairs * 2));
    for (std::int64_t n = 0; n < sizes_.batch * sizes_.columns; ++n) {
      const std::int64_t matrix = n / sizes_.columns, column = n % sizes_.columns;
      for (std::int64_t k = 0; k < sizes_.terms; ++k) {
        const std::int64_t block = (matrix * across + column / panel_ * panel_) * pairs;
        // Pairs of what is computed are 16 apart.
        const std::int64_t pair = sizes_.computes ? k / 32 * 16 + k % 16 : k / 2;
        const std::int64_t half = sizes_.computes ? k % 32 / 16 : k % 2;
        const std::int64_t to = (block + pair * panel_ + column % panel_) * 2 + half;
        made[static_cast<std::size_t>(to)] = b_[static_cast<std::size_t>(n * sizes_.terms + k)];
      }
    }
    return made;
  }

  void compare(const std::vector<std::vector<std::byte>>& results) const {
    const auto& s = sizes_;
    const auto number = [](const std::vector<std::uint16_t>& from, std::int64_t at) {
      return double{abi::bf16_to_float(from[static_cast<std::size_t>(at)])};
    };
    for (std::int64_t at = 0; at < s.batch * s.rows * s.columns; ++at) {
      const std::int64_t row = at / s.columns, column = at % s.columns;
      const std::int64_t other = row / s.rows * s.columns + column;
      double sum = 0;
      for (std::int64_t k = 0; k < s.terms; ++k) {
        sum += (s.computes ? 2 : 1) * number(a_, row * (s.terms + s.gap) + k) *
               number(b_, other * s.terms + k);
      }
      float got = 0;
      std::uint16_t bits = 0;
      std::memcpy(&got, results[4].data() + at * 4, 4);
      std::memcpy(&bits, results[3].data() + at * 2, 2);
      ASSERT_NEAR(got, sum, 1e-4 * (1 + std::abs(sum))) << row << ", " << column;
      const float biased = got + bias_[static_cast<std::size_t>(column)];
      ASSERT_EQ(bits, abi::float_to_bf16(std::max(biased, 0.0F))) << row << ", " << column;
    }
  }

  void run_here(std::vector<std::vector<std::byte>>& data,
                const std::vector<std::vector<std::byte>>& wanted) {
    if (!image::has_tiles()) return;
    CpuCompiler compiler({.instruction_set = "x86-64-v4+amx"});
    const CompileUnit unit{&kernel_, schedule_};
    const CompiledKernel made = compiler.compile({&unit, 1})[0];
    std::vector<void*> buffers;
    for (auto& d : data) buffers.push_back(d.data());
    const std::int64_t rows = sizes_.rows;
    std::vector<std::byte> scratch(static_cast<std::size_t>(*made.scratch_bytes.constant()) + 64);
    void* aligned = scratch.data();
    std::size_t space = scratch.size();
    std::align(64, scratch.size() - 64, aligned, space);
    const std::int64_t tasks =
        sizes_.batch * up(sizes_.rows, schedule_.row_block) / schedule_.row_block *
        (up(sizes_.columns, schedule_.column_block) / schedule_.column_block);
    made.function(buffers.data(), &rows, aligned, 0, tasks);
    for (const std::size_t o : {3U, 4U}) EXPECT_EQ(data[o], wanted[o]);
  }

  sym::Context context_;
  loop::Program program_;
  Sizes sizes_;
  schedule::Kernel kernel_;
  schedule::Schedule schedule_;
  std::int64_t panel_ = 0;
  std::vector<std::uint16_t> a_, b_;
  std::vector<float> bias_;
};

TEST(GemmTiles, Whole) { Product({1, 64, 64, 64}).check(); }
TEST(GemmTiles, RaggedRows) {
  Product({1, 7, 64, 64}).check();
  Product({1, 17, 32, 32}).check();
  Product({1, 197, 32, 32}).check();
}
TEST(GemmTiles, RaggedColumns) {
  Product({1, 20, 37, 64}).check();
  Product({1, 3, 150, 32}).check();
}
TEST(GemmTiles, RaggedTerms) {
  Product({1, 20, 32, 38}).check();
  Product({1, 3, 70, 18}).check();
}
TEST(GemmTiles, LongSums) {
  Product({1, 35, 40, 1024 + 32}).check();
  Product({1, 18, 16, 2048 + 6}).check();
}
TEST(GemmTiles, Batches) { Product({3, 19, 48, 64}).check(); }
TEST(GemmTiles, RowsHaveGaps) { Product({1, 40, 32, 64, false, 6}).check(); }
TEST(GemmTiles, RowsAreSymbolic) {
  Product({1, 5, 32, 64, true}).check();
  Product({1, 201, 32, 32, true}).check();
}
TEST(GemmTiles, LeftIsComputed) {
  Product({1, 20, 32, 64, false, 0, true}).check();
  Product({2, 17, 40, 38, false, 3, true}).check();
  Product({1, 5, 16, 1024 + 34, true, 0, true}).check();
}
TEST(GemmTiles, OneRow) { Product({1, 1, 128, 64}).check(); }

// Tiles in LLVM's own frame are spilled ones: kernels have their stack in memory that they are
// given.
TEST(GemmTiles, NoTileIsSpilled) {
  CpuCompiler compiler({.instruction_set = "x86-64-v4+amx"});
  const std::regex spill("tile(loadd|stored)[^\n]*\\(%rsp");
  for (const Sizes& sizes :
       {Sizes{1, 1, 128, 64}, Sizes{1, 12, 256, 768}, Sizes{1, 16, 48, 768},
        Sizes{1, 128, 768, 768}, Sizes{1, 197, 384, 384}, Sizes{12, 197, 197, 64},
        Sizes{1, 1024, 768, 3072}, Sizes{1, 100, 100, 100, true}, Sizes{1, 33, 65, 2050},
        Sizes{1, 128, 768, 768, false, 0, true}}) {
    Product product(sizes);
    const CompileUnit unit{&product.kernel(), product.schedule()};
    const CompiledKernel made = compiler.compile({&unit, 1}, {.keep_assembly = true})[0];
    EXPECT_NE(made.assembly.find("tdpbf16ps"), std::string::npos);
    EXPECT_NE(made.assembly.find("tilerelease"), std::string::npos);
    EXPECT_FALSE(std::regex_search(made.assembly, spill))
        << sizes.rows << " x " << sizes.columns << " x " << sizes.terms << "\n"
        << made.assembly;
  }
}

}  // namespace
}  // namespace inkle::codegen::cpu
