#include "driver/differential.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>

#include "base/error.h"
#include "graph/text.h"
#include "ops/table.h"
#include "runtime/cpu/executor.h"

namespace inkle::driver {
namespace {

using ops::RefTensor;

struct Memory {
  std::unique_ptr<std::byte[]> owned;
  std::byte* data = nullptr;  // 64-byte aligned
  std::vector<std::int64_t> sizes, strides;
  abi::TensorView view;
};

std::vector<std::int64_t> dense(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * std::max<std::int64_t>(sizes[d], 1);
  }
  return strides;
}

Memory allocate(abi::DType dtype, std::vector<std::int64_t> sizes,
                std::vector<std::int64_t> strides) {
  Memory m;
  m.sizes = std::move(sizes);
  m.strides = std::move(strides);
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < m.sizes.size(); ++d) {
    elements += std::max<std::int64_t>(m.sizes[d] - 1, 0) * m.strides[d];
  }
  const auto bytes = static_cast<std::size_t>(elements * abi::size_of(dtype));
  m.owned = std::make_unique<std::byte[]>(bytes + 64);
  const auto address = reinterpret_cast<std::uintptr_t>(m.owned.get());
  m.data = m.owned.get() + (64 - address % 64) % 64;
  m.view = {.data = m.data,
            .dtype = dtype,
            .device = {},
            .rank = static_cast<std::int32_t>(m.sizes.size()),
            .sizes = m.sizes.data(),
            .strides = m.strides.data()};
  return m;
}

// In the strides of the type, at the hints of its symbols; row-major where it has none.
Memory memory_for(const RefTensor& t, const graph::Type& type) {
  std::vector<std::int64_t> strides = dense(t.sizes);
  if (type.strides && !graph::is_contiguous(type)) {
    for (std::size_t d = 0; d < strides.size(); ++d) {
      strides[d] = sym::hint((*type.strides)[d]).value();
    }
  }
  return allocate(t.dtype, t.sizes, std::move(strides));
}

void write(const RefTensor& t, const Memory& m) {
  const auto width = static_cast<std::size_t>(abi::size_of(t.dtype));
  const std::vector<std::byte> bytes = ops::to_bytes(t);
  ops::for_each_index(t.sizes, [&](std::span<const std::int64_t> index, std::size_t p) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * m.strides[d];
    std::copy_n(bytes.data() + p * width, width,
                m.data + offset * static_cast<std::int64_t>(width));
  });
}

RefTensor from_view(const abi::TensorView& view) {
  const std::vector<std::int64_t> sizes(view.sizes, view.sizes + view.rank);
  const auto width = static_cast<std::size_t>(abi::size_of(view.dtype));
  std::size_t count = 1;
  for (const std::int64_t size : sizes) count *= static_cast<std::size_t>(size);
  std::vector<std::byte> bytes(count * width);
  const auto* data = static_cast<const std::byte*>(view.data);
  ops::for_each_index(sizes, [&](std::span<const std::int64_t> index, std::size_t p) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * view.strides[d];
    std::copy_n(data + offset * static_cast<std::int64_t>(width), width, bytes.data() + p * width);
  });
  return ops::from_bytes(view.dtype, sizes, bytes);
}

class TestHost : public runtime::cpu::Host {
 public:
  runtime::cpu::HostTensor make_output(abi::DType dtype, std::span<const std::int64_t> sizes,
                                       std::span<const std::int64_t> strides) override {
    memory_.push_back(
        allocate(dtype, {sizes.begin(), sizes.end()}, {strides.begin(), strides.end()}));
    return {&memory_.back(), memory_.back().view};
  }
  void call(std::uint32_t, std::span<const runtime::cpu::EagerOperand>,
            std::span<runtime::cpu::HostTensor>) override {
    unsupported("no eager here");
  }
  void give(std::uint32_t position, const runtime::cpu::Output& output) override {
    results.resize(std::max<std::size_t>(results.size(), position + std::size_t{1}));
    using Kind = abi::PlanOutput::Kind;
    if (output.kind == Kind::integer) results[position].integer = output.integer;
    if (output.kind == Kind::buffer || output.kind == Kind::argument) {
      results[position].tensor = from_view(output.view);
    }
  }
  std::vector<ops::InterpretedOutput> results;

 private:
  std::deque<Memory> memory_;
};

// The relative error that one rounding, and some arithmetic in the type computed in, can make.
double tolerance(abi::DType dtype) {
  switch (dtype) {
    case abi::DType::bf16:
      return 0x1p-7;
    case abi::DType::f16:
      return 0x1p-10;
    case abi::DType::f32:
      return 2e-5;
    case abi::DType::f64:
      return 1e-11;
    default:
      return 0;
  }
}

void expect_equal(const RefTensor& want, const RefTensor& got) {
  ASSERT_EQ(want.dtype, got.dtype);
  ASSERT_EQ(want.sizes, got.sizes);
  double scale = 0;
  for (std::size_t p = 0; p < want.count(); ++p) {
    if (want.is_real() && std::isfinite(want.real(p))) {
      scale = std::max(scale, std::abs(want.real(p)));
    }
  }
  for (std::size_t p = 0; p < want.count(); ++p) {
    if (!want.is_real()) {
      ASSERT_EQ(want.integer(p), got.integer(p)) << "element " << p;
      continue;
    }
    const double a = want.real(p);
    const double b = got.real(p);
    if (std::isnan(a) || std::isinf(a)) {
      ASSERT_TRUE(std::isnan(a) ? std::isnan(b) : a == b)
          << "element " << p << ": " << a << " " << b;
      continue;
    }
    // Cancellation leaves an error of the size of the operands: the tensor's scale, or that of
    // intermediate results of about 1.
    const double allowed = tolerance(want.dtype) * (std::abs(a) + 0.1 * std::max(scale, 0.05));
    ASSERT_LE(std::abs(a - b), allowed) << "element " << p << ": " << a << " " << b;
  }
}

bool same_bytes(const RefTensor& a, const RefTensor& b) {
  return a.dtype == b.dtype && a.sizes == b.sizes && ops::to_bytes(a) == ops::to_bytes(b);
}

// A call with the same arguments gives the same, whatever the one before it has left.
void check_second_call(const RunResult& first, const std::vector<ops::InterpretedOutput>& outputs,
                       const std::vector<RefTensor>& inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& a = first.outputs[i];
    const auto& b = outputs[i];
    const bool is_same = a.integer == b.integer && a.tensor.has_value() == b.tensor.has_value() &&
                         (!a.tensor || same_bytes(*a.tensor, *b.tensor));
    if (!is_same) throw InternalError(fmt::format("result {} of a second call is another", i));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!same_bytes(first.inputs[i], inputs[i])) {
      throw InternalError(fmt::format("input {} after a second call is another", i));
    }
  }
}

}  // namespace

Compiler& shared_compiler() {
  static Compiler compiler;
  return compiler;
}

RunResult compile_and_run(graph::Graph graph, const std::vector<RefTensor>& inputs,
                          const std::vector<std::int64_t>& integers,
                          const CompileOptions& options) {
  RunResult result;
  CompileOptions with_text = options;
  with_text.dump = [&](std::string_view stage, const std::string& text) {
    if (stage == "kernels") result.kernels = text;
  };
  std::vector<Memory> memory;
  for (const graph::Input& input : graph.inputs) {
    if (input.value.is_none()) continue;
    memory.push_back(memory_for(inputs[memory.size()], graph.type(input.value)));
  }
  Compiled compiled = shared_compiler().compile(std::move(graph), with_text);
  runtime::cpu::ExecutableOptions executable_options;
  executable_options.poison = 0xA5;
  runtime::cpu::Executable executable({compiled.plan, compiled.code}, executable_options);
  std::vector<abi::TensorView> views;
  for (const Memory& m : memory) views.push_back(m.view);
  for (int call = 0; call < 2; ++call) {
    for (std::size_t i = 0; i < memory.size(); ++i) write(inputs[i], memory[i]);
    TestHost host;
    executable.run({.tensors = views, .integers = integers, .host = &host});
    std::vector<RefTensor> after;
    for (const abi::TensorView& view : views) after.push_back(from_view(view));
    if (call > 0) check_second_call(result, host.results, after);
    result.outputs = std::move(host.results);
    result.inputs = std::move(after);
  }
  result.plan = compiled.plan;
  result.report = std::move(compiled.report);
  return result;
}

RunResult expect_as_interpreted(const graph::Graph& graph, std::vector<RefTensor> inputs,
                                const ops::SymbolValues& symbols) {
  const std::vector<RefTensor> before = inputs;
  const auto want = ops::interpret(graph, inputs, symbols);
  std::vector<std::int64_t> integers;
  for (const auto& input : graph.inputs) {
    if (input.symbol.is_null()) continue;
    for (const auto& [symbol, value] : symbols) {
      if (symbol == input.symbol) integers.push_back(value);
    }
  }
  RunResult got = compile_and_run(graph, before, integers);
  EXPECT_EQ(want.size(), got.outputs.size());
  for (std::size_t i = 0; i < std::min(want.size(), got.outputs.size()); ++i) {
    SCOPED_TRACE(fmt::format("result {}", i));
    if (want[i].integer) {
      EXPECT_EQ(want[i].integer, got.outputs[i].integer);
    }
    if (!want[i].tensor) continue;
    if (got.outputs[i].tensor) {
      expect_equal(*want[i].tensor, *got.outputs[i].tensor);
    } else {
      ADD_FAILURE() << "no tensor";
    }
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    SCOPED_TRACE(fmt::format("input {} afterwards", i));
    expect_equal(inputs[i], got.inputs[i]);
  }
  return got;
}

RefTensor random_tensor(const graph::Type& type, double low, double high, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<std::int64_t> sizes;
  for (const sym::Expr size : type.sizes) sizes.push_back(sym::hint(size).value());
  RefTensor t(type.dtype, sizes);
  const bool is_signed = type.dtype != abi::DType::u8 && type.dtype != abi::DType::boolean;
  const double least = is_signed ? low : std::max(low, 0.0);
  for (std::size_t i = 0; i < t.count(); ++i) {
    if (t.is_real()) {
      t.set(i, std::uniform_real_distribution<double>(low, high)(engine));
    } else {
      t.set(i, std::uniform_int_distribution<std::int64_t>(
                   static_cast<std::int64_t>(std::ceil(least)),
                   static_cast<std::int64_t>(std::floor(high)))(engine));
    }
  }
  t.round();
  return t;
}

RunResult expect_text_as_interpreted(std::string_view text) {
  const graph::Graph graph = graph::parse(text, "test", ops::op_table());
  std::vector<RefTensor> inputs;
  ops::SymbolValues symbols;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const graph::Input& input = graph.inputs[i];
    if (input.value.is_none()) {
      symbols.emplace_back(input.symbol, sym::hint(input.symbol).value());
      continue;
    }
    const graph::Type& type = graph.type(input.value);
    const bool real = abi::is_float(type.dtype);
    inputs.push_back(
        random_tensor(type, real ? -2 : 0, real ? 2 : 3, static_cast<std::uint32_t>(i + 1)));
  }
  return expect_as_interpreted(graph, std::move(inputs), symbols);
}

ops::SymbolValues bind_symbols(graph::Graph& graph) {
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

}  // namespace inkle::driver
