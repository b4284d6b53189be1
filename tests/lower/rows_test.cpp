// Every sample of every row of the op table, in all of its dtypes and shape classes: the graph
// interpreter's result against the lowered program's, run by the loop interpreter. A row that
// decomposes is decomposed to the end before it is lowered.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/text.h"
#include "loop/reference.h"
#include "loop/scalar.h"
#include "lower/lower.h"
#include "ops/interpreter.h"
#include "ops/samples.h"
#include "ops/table.h"

namespace inkle::lower {
namespace {

using graph::Argument;
using graph::DType;
using graph::Graph;
using graph::Node;
using graph::OpDef;
using graph::Sample;
using graph::ValueId;
using ops::RefTensor;
using ops::SampleBuilder;
using ops::ShapeClass;

constexpr ShapeClass kShapes[] = {ShapeClass::fixed, ShapeClass::symbolic, ShapeClass::ones,
                                  ShapeClass::empty};
constexpr std::string_view name_of(ShapeClass shapes) {
  constexpr std::string_view kNames[] = {"fixed", "symbolic", "ones", "empty"};
  return kNames[static_cast<std::size_t>(shapes)];
}

// The relative error that one rounding, and some arithmetic in the type computed in, can make.
double tolerance(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 0x1p-7;
    case DType::f16:
      return 0x1p-10;
    case DType::f32:
      return 2e-5;
    case DType::f64:
      return 1e-11;
    default:
      return 0;
  }
}

Graph decomposed(Graph from) {
  for (int round = 0; round < 8; ++round) {
    bool any = false;
    graph::Rewriter rewriter(from, from.name);
    Graph to = std::move(rewriter).run([&](graph::Rewriter& r, const Node& mapped,
                                           const Node&) -> std::optional<std::vector<ValueId>> {
      if (mapped.op->decompose == nullptr) return std::nullopt;
      any = true;
      return mapped.op->decompose(r.builder(), mapped);
    });
    if (!any) return from;
    from = std::move(to);
  }
  return from;
}

RefTensor random_tensor(const graph::Type& type, SampleBuilder::Range range, std::mt19937& engine) {
  std::vector<std::int64_t> sizes;
  for (const sym::Expr size : type.sizes) sizes.push_back(sym::hint(size).value());
  RefTensor t(type.dtype, sizes);
  for (std::size_t i = 0; i < t.count(); ++i) {
    // Whole numbers for whole types, both ends included; unsigned ones from 0.
    const bool is_signed = type.dtype != DType::u8 && type.dtype != DType::boolean;
    const double low = is_signed ? range.low : std::max(range.low, 0.0);
    if (t.is_real()) {
      t.set(i, std::uniform_real_distribution<double>(range.low, range.high)(engine));
    } else {
      t.set(i, std::uniform_int_distribution<std::int64_t>(
                   static_cast<std::int64_t>(std::ceil(low)),
                   static_cast<std::int64_t>(std::floor(range.high)))(engine));
    }
  }
  t.round();
  return t;
}

// A tensor's bytes, row-major, and the view of them.
struct Memory {
  std::vector<std::byte> bytes;
  std::vector<std::int64_t> sizes, strides;
  abi::TensorView view;
};
Memory to_memory(const RefTensor& t) {
  Memory m;
  const auto width = static_cast<std::size_t>(abi::size_of(t.dtype));
  m.bytes.resize(t.count() * width + 1);
  for (std::size_t i = 0; i < t.count(); ++i) {
    loop::Scalar value;
    if (t.is_real())
      value.real = t.real(i);
    else
      value.integer = t.integer(i);
    loop::write_element(t.dtype, m.bytes.data() + i * width, value);
  }
  m.sizes = t.sizes;
  m.strides.assign(t.rank(), 1);
  for (std::size_t d = t.rank(); d-- > 1;) {
    m.strides[d - 1] = m.strides[d] * std::max<std::int64_t>(t.sizes[d], 1);
  }
  m.view = {.data = m.bytes.data(),
            .dtype = t.dtype,
            .device = {},
            .rank = static_cast<std::int32_t>(t.rank()),
            .sizes = m.sizes.data(),
            .strides = m.strides.data()};
  return m;
}

void expect_equal(const RefTensor& want, const loop::ReferenceOutput& got) {
  ASSERT_EQ(want.dtype, got.dtype);
  ASSERT_EQ(want.sizes, got.sizes);
  const auto width = abi::size_of(want.dtype);
  double scale = 0;
  for (std::size_t i = 0; i < want.count(); ++i) {
    if (want.is_real() && std::isfinite(want.real(i))) {
      scale = std::max(scale, std::abs(want.real(i)));
    }
  }
  ops::for_each_index(want.sizes, [&](std::span<const std::int64_t> index, std::size_t p) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * got.strides[d];
    const loop::Scalar value = loop::read_element(want.dtype, got.data + offset * width);
    if (!want.is_real()) {
      ASSERT_EQ(want.integer(p), value.integer) << "element " << p;
      return;
    }
    const double a = want.real(p), b = value.real;
    if (std::isnan(a) || std::isinf(a)) {
      ASSERT_TRUE(std::isnan(a) ? std::isnan(b) : a == b)
          << "element " << p << ": " << a << " " << b;
      return;
    }
    // Cancellation leaves an error of the size of the operands: the tensor's scale, or that of
    // intermediate results of about 1.
    const double allowed = tolerance(want.dtype) * (std::abs(a) + 0.1 * std::max(scale, 0.05));
    ASSERT_LE(std::abs(a - b), allowed) << "element " << p << ": " << a << " " << b;
  });
}

// Values for all symbols: their hints. Each becomes an integer input, as a frontend passes them.
ops::SymbolValues bind_symbols(Graph& graph) {
  ops::SymbolValues symbols;
  for (std::uint32_t v = 0; v < graph.value_count(); ++v) {
    for (const sym::Expr size : graph.type({v}).sizes) {
      for (const sym::Expr symbol : sym::symbols(size)) {
        const std::pair entry(symbol, sym::hint(symbol).value());
        if (std::find(symbols.begin(), symbols.end(), entry) != symbols.end()) continue;
        symbols.push_back(entry);
        graph.inputs.push_back({.name = sym::to_string(symbol), .value = {}, .symbol = symbol});
      }
    }
  }
  return symbols;
}

void check(const OpDef& row, const Sample& sample, DType dtype, ShapeClass shapes) {
  const auto context = std::make_shared<sym::Context>();
  Graph graph(context, ops::op_table());
  SampleBuilder samples(graph, dtype, shapes);
  std::vector<Argument> arguments = sample.arguments(samples);
  graph::Builder builder(graph);
  for (const ValueId v : builder.nodes(row.name, std::move(arguments))) {
    graph.outputs.push_back({v});
  }
  const ops::SymbolValues symbols = bind_symbols(graph);
  std::mt19937 engine(7);
  std::vector<RefTensor> inputs;
  std::vector<Memory> memory;
  std::vector<loop::ReferenceArgument> values;
  for (std::size_t i = 0; i < samples.ranges().size(); ++i) {
    const graph::Type& type = graph.type(graph.inputs[i].value);
    inputs.push_back(random_tensor(type, samples.ranges()[i], engine));
    memory.push_back(to_memory(inputs.back()));
  }
  for (const Memory& m : memory) values.emplace_back(m.view);
  for (std::size_t i = values.size(); i < graph.inputs.size(); ++i) {
    values.emplace_back(sym::hint(graph.inputs[i].symbol).value());
  }
  const auto want = ops::interpret(graph, inputs, symbols);
  const loop::Program program = lower(decomposed(std::move(graph)));
  loop::verify(program);
  const auto got = loop::run_reference(program, values);
  ASSERT_EQ(want.size(), got.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(fmt::format("result {}", i));
    if (want[i].tensor) expect_equal(*want[i].tensor, got[i]);
  }
}

class Rows : public testing::TestWithParam<const OpDef*> {};

TEST_P(Rows, LowerAsTheInterpreterSays) {
  const OpDef& row = *GetParam();
  for (const Sample& sample : row.samples()) {
    for (const DType dtype : sample.dtypes) {
      for (const ShapeClass shapes : kShapes) {
        if (sample.fixed_only && shapes != ShapeClass::fixed) continue;
        SCOPED_TRACE(fmt::format("{} {} {}", sample.label, abi::name_of(dtype), name_of(shapes)));
        try {
          check(row, sample, dtype, shapes);
        } catch (const Error& e) {
          ADD_FAILURE() << e.what();
        }
      }
    }
  }
}

std::vector<const OpDef*> sampled_rows() {
  std::vector<const OpDef*> rows;
  for (const OpDef* row : ops::op_table().all()) {
    if (row->samples != nullptr && (row->lower != nullptr || row->decompose != nullptr)) {
      rows.push_back(row);
    }
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Table, Rows, testing::ValuesIn(sampled_rows()),
                         [](const auto& row) { return std::string(row.param->name); });

}  // namespace
}  // namespace inkle::lower
