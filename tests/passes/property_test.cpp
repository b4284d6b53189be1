// Random graphs mean the same before and after each pass, and a second run of a pass that claims it
// changes nothing. A failure prints the seed and the graph.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/text.h"
#include "ops/interpreter.h"
#include "ops/sharing.h"
#include "ops/table.h"
#include "passes/attention.h"
#include "passes/canonicalise.h"
#include "passes/fold_batch_norm.h"
#include "passes/fold_masks.h"
#include "passes/pipeline.h"

namespace inkle::passes {
namespace {

using abi::DType;
using graph::Argument;
using graph::Builder;
using graph::Graph;
using graph::Sizes;
using graph::ValueId;
using ops::RefTensor;

// Builds small graphs that are full of what passes look for: identities, repeated nodes, views of
// views, casts of casts, constants, scatters and copies into inputs.
class RandomGraph {
 public:
  explicit RandomGraph(std::uint32_t seed)
      : random_(seed), graph_(std::make_shared<sym::Context>(), ops::op_table()), b_(graph_) {}

  Graph make() {
    symbol_ = graph_.context().symbol("s0", {.range = {.low = 2, .high = 9}, .hint = 3});
    graph_.inputs.push_back({.name = "s0", .value = {}, .symbol = symbol_});
    add_input("x", DType::f32, {symbol_, constant(4)});
    add_input("y", DType::f32, {constant(3), constant(4)});
    add_input("i", DType::i64, {constant(3), constant(4)});
    add_input("m", DType::boolean, {constant(3), constant(4)});
    for (int i = 0; i < 24; ++i) step();
    for (int i = 0; i < 3; ++i) graph_.outputs.push_back({pick()});
    if (below(2) == 0) {
      const ValueId y = graph_.inputs[2].value;
      b_.node("copy_", {y, of_type(y)});
      if (below(2) == 0) b_.node("copy_", {y, of_type(y)});
    }
    for (const graph::Output& output : graph_.outputs) {
      graph::Type& type = graph_.type(std::get<ValueId>(output.value));
      if (!type.strides) type.strides = graph::contiguous_strides(graph_.context(), type.sizes);
    }
    graph::settle_views(graph_);
    ops::share_views(graph_);
    return std::move(graph_);
  }

 private:
  graph::Expr constant(std::int64_t v) { return graph_.context().constant(v); }
  std::uint32_t below(std::uint32_t n) { return random_() % n; }
  ValueId pick() { return values_[below(static_cast<std::uint32_t>(values_.size()))]; }
  // A value with the type of v; v itself if no other turns up.
  ValueId of_type(ValueId v) {
    for (int i = 0; i < 20; ++i) {
      const ValueId other = pick();
      if (graph_.type(other).dtype == graph_.type(v).dtype &&
          graph_.type(other).sizes == graph_.type(v).sizes) {
        return other;
      }
    }
    return v;
  }

  void add_input(std::string name, DType dtype, Sizes sizes) {
    Sizes strides = graph::contiguous_strides(graph_.context(), sizes);
    const ValueId v = graph_.add_value({dtype, {}, std::move(sizes), std::move(strides)});
    graph_.inputs.push_back({.name = std::move(name), .value = v});
    values_.push_back(v);
  }

  Argument number(DType dtype) {
    static constexpr double kReals[] = {0.0, -0.0, 1.0, -1.0, 0.5, 2.0};
    if (dtype == DType::boolean) return below(2) == 0;
    if (abi::is_float(dtype) && below(2) == 0) return kReals[below(6)];
    return constant(static_cast<std::int64_t>(below(3)) - 1);
  }

  void step() {
    const ValueId x = pick();
    const graph::Type type = graph_.type(x);
    const bool boolean = type.dtype == DType::boolean;
    switch (below(10)) {
      case 0:
        return arithmetic(x, of_type(x));
      case 1:
        return arithmetic(x, number(type.dtype));
      case 2:
        return push("clone", {x});
      case 3:
        return push("_to_copy", {x, pick_dtype()});
      case 4:
        return reshape(x, type);
      case 5:
        return push("expand", {x, type.sizes});
      case 6:
        if (type.rank() == 2) return push("t", {x});
        return push("transpose", {x, constant(0), constant(-1)});
      case 7:
        return push("full", {type.sizes, number(type.dtype), type.dtype});
      case 8:
        if (boolean) return push("where", {x, of_number(type.sizes), number(DType::f32)});
        return push("neg", {x});
      default:
        if (type.rank() == 0 || boolean) return push("logical_not", {x});
        return push("slice_scatter", {x, of_type(x), constant(0)});
    }
  }

  ValueId of_number(const Sizes& sizes) { return b_.full(sizes, 2, DType::f32); }

  DType pick_dtype() {
    static constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f64, DType::i64,
                                       DType::boolean};
    return kTypes[below(5)];
  }

  void arithmetic(ValueId x, Argument other) {
    const bool boolean = graph_.type(x).dtype == DType::boolean;
    static constexpr std::string_view kOps[] = {"add", "sub", "mul", "maximum"};
    static constexpr std::string_view kLogic[] = {"bitwise_and", "bitwise_or", "logical_and"};
    std::string_view op = boolean ? kLogic[below(3)] : kOps[below(4)];
    // These two take tensors only.
    if (!std::holds_alternative<ValueId>(other)) {
      if (op == "maximum") op = "mul";
      if (op == "logical_and") op = "bitwise_or";
    }
    push(op, {x, std::move(other)});
  }

  void reshape(ValueId x, const graph::Type& type) {
    if (type.rank() == 2 && below(2) == 0) {
      return push("reshape", {x, Sizes{type.sizes[0] * type.sizes[1]}});
    }
    Sizes sizes = type.sizes;
    sizes.insert(sizes.begin(), constant(1));
    if (sizes.size() < 4 && below(2) == 0) return push("reshape", {x, sizes});
    push("reshape", {x, type.sizes});
  }

  void push(std::string_view op, std::vector<Argument> args) {
    values_.push_back(b_.node(op, std::move(args)));
  }

  std::mt19937 random_;
  Graph graph_;
  Builder b_;
  graph::Expr symbol_;
  std::vector<ValueId> values_;
};

struct Results {
  std::vector<RefTensor> tensors;  // outputs, then inputs as the call leaves them
};

Results evaluate(const Graph& graph, std::uint32_t seed) {
  constexpr std::int64_t kSymbol = 3;
  std::mt19937 random(seed);
  ops::SymbolValues symbols;
  std::vector<RefTensor> inputs;
  for (const graph::Input& input : graph.inputs) {
    if (input.value.is_none()) {
      symbols.emplace_back(input.symbol, kSymbol);
      continue;
    }
    std::vector<std::int64_t> sizes;
    for (const graph::Expr e : graph.type(input.value).sizes) {
      sizes.push_back(sym::evaluate(e, [](graph::Expr) { return kSymbol; }));
    }
    RefTensor t(graph.type(input.value).dtype, sizes);
    static constexpr double kValues[] = {0.0,
                                         -0.0,
                                         1.0,
                                         -2.5,
                                         1e30,
                                         -1e-30,
                                         3.1415927,
                                         std::numeric_limits<double>::infinity(),
                                         std::numeric_limits<double>::quiet_NaN()};
    for (std::size_t i = 0; i < t.count(); ++i) {
      if (t.is_real()) {
        t.set(i, kValues[random() % 9]);
      } else {
        const auto range = t.dtype == DType::boolean ? 2U : 7U;
        t.set(i, static_cast<std::int64_t>(random() % range));
      }
    }
    t.round();
    inputs.push_back(std::move(t));
  }
  Results results;
  for (auto& output : ops::interpret(graph, inputs, symbols)) {
    results.tensors.push_back(std::move(output.tensor.value()));
  }
  for (RefTensor& t : inputs) results.tensors.push_back(std::move(t));
  return results;
}

bool same_element(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

void expect_same(const Results& a, const Results& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (std::size_t t = 0; t < a.tensors.size(); ++t) {
    const RefTensor &x = a.tensors[t], &y = b.tensors[t];
    ASSERT_EQ(x.dtype, y.dtype) << "tensor " << t;
    ASSERT_EQ(x.sizes, y.sizes) << "tensor " << t;
    for (std::size_t i = 0; i < x.count(); ++i) {
      const bool same =
          x.is_real() ? same_element(x.real(i), y.real(i)) : x.integer(i) == y.integer(i);
      ASSERT_TRUE(same) << "tensor " << t << " element " << i << ": " << x.real(i) << " and "
                        << y.real(i);
    }
  }
}

// Passes whose second run changes nothing; attention and masks are not made by these graphs.
constexpr std::string_view kIdempotent[] = {
    "canonicalise", "cse", "dce", "decompose", "fold_constants", "read_written", "reinplace"};

void fuzz(std::span<const std::string_view> names, bool idempotent) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const Graph before = RandomGraph(seed).make();
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, graph::to_string(before)));
    PassContext context;
    const Graph after = run_passes(before, names, context);
    SCOPED_TRACE(graph::to_string(after));
    // What is printed reads back as it was, into a table of symbols of its own too.
    const std::string text = graph::to_string(after);
    EXPECT_EQ(graph::to_string(graph::parse(text, "text", ops::op_table())), text);
    expect_same(evaluate(before, seed), evaluate(after, seed));
    // Up to dead code, which folding leaves behind.
    const auto clean = [&](const Graph& g) {
      constexpr std::string_view kDce[] = {"dce"};
      return graph::to_string(run_passes(g, kDce, context));
    };
    if (idempotent) {
      EXPECT_EQ(clean(run_passes(after, names, context)), clean(after));
    }
    if (testing::Test::HasFailure()) return;
  }
}

class FuzzPass : public testing::TestWithParam<std::string_view> {};

TEST_P(FuzzPass, KeepsTheMeaning) {
  const std::string_view name = GetParam();
  fuzz({&name, 1}, std::ranges::find(kIdempotent, name) != std::end(kIdempotent));
}

INSTANTIATE_TEST_SUITE_P(All, FuzzPass, testing::ValuesIn([] {
                           std::vector<std::string_view> names;
                           for (const Pass& pass : all_passes()) names.push_back(pass.name);
                           return names;
                         }()),
                         [](const auto& test) { return std::string(test.param); });

TEST(Pipeline, KeepsTheMeaning) { fuzz(standard_pipeline(), false); }

TEST(Rules, NameOpsThatExist) {
  const graph::OpTable& table = ops::op_table();
  EXPECT_EQ(canonical_rules(table).unknown_ops(), std::vector<std::string>());
  EXPECT_EQ(product_rules(table).unknown_ops(), std::vector<std::string>());
  EXPECT_EQ(attention_rules(table).unknown_ops(), std::vector<std::string>());
  EXPECT_EQ(mask_rules(table).unknown_ops(), std::vector<std::string>());
  EXPECT_EQ(batch_norm_rules(table).unknown_ops(), std::vector<std::string>());
}

// What makes `after` of any graph, as a pass would that has an error.
template <const std::string_view& kAfter>
std::optional<Graph> replaced(const Graph& graph, PassContext&) {
  return graph::parse(kAfter, "after", graph.table(), graph.shared_context());
}

constexpr std::string_view kShared = R"(
graph @shared(%x: f32[4]) -> f32[2], f32[2], f32[2] {
  %0: f32[4] = exp(%x)
  %1: f32[2] = slice(%x, 0, 2)
  return %0 in 0, %0 in 0 at 2, %1
})";
constexpr std::string_view kSeparated = R"(
graph @shared(%x: f32[4]) -> f32[2], f32[2], f32[2] {
  %0: f32[4] = exp(%x)
  %1: f32[2] = slice(%x, 0, 2)
  return %0 in 0, %0 in 1 at 2, %1
})";
constexpr std::string_view kMoved = R"(
graph @shared(%x: f32[4]) -> f32[2], f32[2], f32[2] {
  %0: f32[4] = exp(%x)
  %1: f32[2] = slice(%x, 0, 2)
  return %0 in 0, %0 in 0 at 1, %1
})";
constexpr std::string_view kJoined = R"(
graph @shared(%x: f32[4]) -> f32[2], f32[2], f32[2] {
  %0: f32[4] = exp(%x)
  return %0 in 0, %0 in 0 at 2, %0 in 0
})";
constexpr std::string_view kOfTheCaller = R"(
graph @shared(%x: f32[4]) -> f32[2], f32[2], f32[2] {
  %0: f32[4] = exp(%x)
  return %0 in 0, %0 in 0 at 2, %x in %x at 2
})";

TEST(Runner, RefusesAPassThatChangesWhichOutputsShareMemory) {
  const Graph graph = graph::parse(kShared, "before", ops::op_table());
  const auto error_of = [&](PassFunction function) -> std::string {
    PassContext context;
    try {
      (void)run_pass(graph, {.name = "broken", .function = function, .doc = ""}, context);
    } catch (const InternalError& error) {
      return error.what();
    }
    return "";
  };
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_EQ(error_of(replaced<kShared>), "");
  const auto is_refused = [](const char* text) {
    return AllOf(HasSubstr(text), HasSubstr("after pass broken"));
  };
  EXPECT_THAT(error_of(replaced<kSeparated>), is_refused("outputs 0 and 1 no longer share memory"));
  EXPECT_THAT(error_of(replaced<kJoined>), is_refused("outputs 0 and 2 have come to share memory"));
  EXPECT_THAT(error_of(replaced<kMoved>),
              is_refused("output 1 was f32[2]{1} at 2 and is f32[2]{1} at 1"));
  EXPECT_THAT(error_of(replaced<kOfTheCaller>),
              is_refused("output 2 was in a storage of its own and is in argument x"));
}

TEST(Runner, StopsSkipsAndReports) {
  const Graph graph = RandomGraph(1).make();
  PassContext context;
  std::vector<PassTiming> timings;
  std::vector<std::string> dumped;
  RunOptions options{.skip = {"cse"}, .stop_after = 2, .timings = &timings};
  options.dump = [&](std::size_t run, const Pass& pass, const Graph&) {
    dumped.push_back(fmt::format("{} {}", run, pass.name));
  };
  constexpr std::string_view kNames[] = {"cse", "canonicalise", "dce", "fold_constants"};
  (void)run_passes(graph, kNames, context, options);
  EXPECT_EQ(dumped, (std::vector<std::string>{"1 canonicalise", "2 dce"}));
  EXPECT_EQ(timings.size(), 2U);
  constexpr std::string_view kUnknown[] = {"nonsense"};
  EXPECT_THROW((void)run_passes(graph, kUnknown, context), UserError);
}

}  // namespace
}  // namespace inkle::passes
