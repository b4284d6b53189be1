#include "driver/differential.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <span>

#include "base/error.h"
#include "driver/strided_memory.h"
#include "graph/text.h"
#include "ops/table.h"
#include "runtime/cpu/executor.h"

namespace inkle::driver {
namespace {

using graph::ValueId;
using ops::RefTensor;

std::vector<std::int64_t> dense(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * std::max<std::int64_t>(sizes[d], 1);
  }
  return strides;
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

class TestHost : public runtime::cpu::Host {
 public:
  runtime::cpu::HostTensor make_output(abi::DType dtype, std::span<const std::int64_t> sizes,
                                       std::span<const std::int64_t> strides) override {
    memory.push_back(
        allocate(dtype, {sizes.begin(), sizes.end()}, {strides.begin(), strides.end()}));
    return {&memory.back(), memory.back().view};
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
      // Its sizes and strides are the frame's.
      Returned& r = returned[position];
      r.view = output.view;
      r.sizes.assign(output.view.sizes, output.view.sizes + output.view.rank);
      r.strides.assign(output.view.strides, output.view.strides + output.view.rank);
      r.view.sizes = r.sizes.data();
      r.view.strides = r.strides.data();
    }
  }
  struct Returned {
    abi::TensorView view;
    std::vector<std::int64_t> sizes, strides;
  };
  std::vector<ops::InterpretedOutput> results;
  std::map<std::uint32_t, Returned> returned;  // tensors, by position
  std::deque<Memory> memory;                   // what was allocated for them
};

// The allocation that a tensor lies in, and where: arguments come first. Nothing for no elements.
struct MemoryLocation {
  std::size_t allocation = 0;
  std::ptrdiff_t byte = 0;
};
std::optional<MemoryLocation> location_of(const abi::TensorView& view,
                                          const std::vector<Memory>& arguments,
                                          const std::deque<Memory>& made) {
  for (std::int32_t d = 0; d < view.rank; ++d) {
    if (view.sizes[d] == 0) return std::nullopt;
  }
  const auto* at = static_cast<const std::byte*>(view.data);
  for (std::size_t i = 0; i < arguments.size() + made.size(); ++i) {
    const Memory& m = i < arguments.size() ? arguments[i] : made[i - arguments.size()];
    if (at >= m.data && at < m.data + m.bytes) return MemoryLocation{i, at - m.data};
  }
  throw InternalError("a result lies in no allocation");
}

// Turns all bits of a tensor's elements; returns what the bytes of all allocations were.
std::vector<std::vector<std::byte>> write_over(const abi::TensorView& view,
                                               std::vector<std::span<std::byte>> allocations) {
  std::vector<std::vector<std::byte>> before;
  for (const auto a : allocations) before.emplace_back(a.begin(), a.end());
  const auto width = abi::size_of(view.dtype);
  auto* data = static_cast<std::byte*>(view.data);
  const std::vector<std::int64_t> sizes(view.sizes, view.sizes + view.rank);
  std::set<std::byte*> elements;  // a stride of 0 names one several times
  ops::for_each_index(sizes, [&](std::span<const std::int64_t> index, std::size_t) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * view.strides[d];
    elements.insert(data + offset * width);
  });
  for (std::byte* element : elements) {
    for (std::int64_t b = 0; b < width; ++b) element[b] = ~element[b];
  }
  return before;
}

// The values of a graph's symbols: those of its integer inputs, the hints of others.
std::function<std::int64_t(sym::Expr)> symbol_values(const graph::Graph& graph,
                                                     const std::vector<std::int64_t>& integers) {
  return [&](sym::Expr symbol) {
    std::size_t next = 0;
    for (const graph::Input& input : graph.inputs) {
      if (!input.value.is_none()) continue;
      if (input.symbol == symbol && next < integers.size()) return integers[next];
      ++next;
    }
    return sym::hint(symbol).value();
  };
}

// Results lie where the contract of the graph says, in the memory of arguments, of each other, or
// alone; a write to one reaches no allocation but its own.
void check_sharing(const graph::Graph& graph, const std::vector<Memory>& arguments,
                   const std::vector<std::int64_t>& integers, TestHost& host) {
  const auto fail = [](std::size_t i, std::string_view what) {
    throw InternalError(fmt::format("result {} {}", i, what));
  };
  std::map<ValueId, std::size_t> argument_numbers;
  for (const graph::Input& input : graph.inputs) {
    if (!input.value.is_none()) argument_numbers.emplace(input.value, argument_numbers.size());
  }
  const auto byte_of = [&](const graph::Output& output) {
    return sym::evaluate(output.offset, symbol_values(graph, integers)) *
           abi::size_of(output.view.dtype);
  };
  std::map<std::uint32_t, MemoryLocation> storages;
  std::map<std::size_t, std::string> owners;  // by allocation
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const graph::Output& output = graph.outputs[i];
    const auto found = host.returned.find(static_cast<std::uint32_t>(i));
    if (found == host.returned.end() || output.sharing == graph::Sharing::free) continue;
    const auto place = location_of(found->second.view, arguments, host.memory);
    if (!place) continue;
    const bool is_argument = place->allocation < arguments.size();
    if (is_argument != (output.sharing == graph::Sharing::argument)) {
      fail(i, is_argument ? "lies in an argument" : "lies in no argument");
    }
    std::string owner = fmt::format("output {}", i);
    if (is_argument) {
      if (place->allocation != argument_numbers.at(output.argument))
        fail(i, "is in another argument");
      if (place->byte != byte_of(output)) fail(i, "lies elsewhere in its argument");
      continue;
    }
    if (output.sharing == graph::Sharing::storage) {
      owner = fmt::format("storage {}", output.storage);
      const MemoryLocation begin{place->allocation, place->byte - byte_of(output)};
      const auto [known, is_new] = storages.emplace(output.storage, begin);
      if (known->second.allocation != begin.allocation) fail(i, "does not share its storage");
      if (known->second.byte != begin.byte) fail(i, "lies elsewhere in its storage");
    }
    const auto [known, is_new] = owners.emplace(place->allocation, owner);
    if (!is_new && known->second != owner) fail(i, "lies in the memory of " + known->second);
  }
  std::vector<std::span<std::byte>> allocations;
  for (const Memory& m : arguments) allocations.emplace_back(m.data, m.bytes);
  for (const Memory& m : host.memory) allocations.emplace_back(m.data, m.bytes);
  for (const auto& [i, result] : host.returned) {
    const auto place = location_of(result.view, arguments, host.memory);
    if (!place) continue;
    const auto before = write_over(result.view, allocations);
    for (std::size_t a = 0; a < allocations.size(); ++a) {
      const bool has_changed = !std::ranges::equal(before[a], allocations[a]);
      if (has_changed != (a == place->allocation)) fail(i, "is not written where it lies");
    }
  }
}

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
void check_second_call(const CallResult& first, const CallResult& second) {
  for (std::size_t i = 0; i < second.outputs.size(); ++i) {
    const auto& a = first.outputs[i];
    const auto& b = second.outputs[i];
    const bool is_same = a.integer == b.integer && a.tensor.has_value() == b.tensor.has_value() &&
                         (!a.tensor || same_bytes(*a.tensor, *b.tensor));
    if (!is_same) throw InternalError(fmt::format("result {} of a second call is another", i));
  }
  for (std::size_t i = 0; i < second.inputs.size(); ++i) {
    if (!same_bytes(first.inputs[i], second.inputs[i])) {
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
                          const std::vector<std::int64_t>& integers, const CompileOptions& options,
                          Compiler& compiler, const std::vector<std::int64_t>& later) {
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
  const graph::Graph contract = graph;
  Compiled compiled = compiler.compile(std::move(graph), with_text);
  runtime::cpu::ExecutableOptions executable_options;
  executable_options.poison = 0xA5;
  runtime::cpu::Executable executable({compiled.plan, compiled.code}, executable_options);
  std::vector<abi::TensorView> views;
  for (const Memory& m : memory) views.push_back(m.view);
  const auto call = [&](const std::vector<std::int64_t>& values) {
    for (std::size_t i = 0; i < memory.size(); ++i) write(inputs[i], memory[i]);
    TestHost host;
    executable.run({.tensors = views, .integers = values, .host = &host});
    CallResult made;
    for (const abi::TensorView& view : views) made.inputs.push_back(from_view(view));
    check_sharing(contract, memory, values, host);
    made.outputs = std::move(host.results);
    return made;
  };
  static_cast<CallResult&>(result) = call(integers);
  if (!later.empty()) {
    try {
      result.later = call(later);
    } catch (UserError& e) {
      e.add_note("in the call with other integers");
      if (std::string_view(e.what()).find("does not hold") == std::string_view::npos) throw;
    }
  }
  CallResult again = call(integers);
  check_second_call(result, again);
  static_cast<CallResult&>(result) = std::move(again);
  result.plan = compiled.plan;
  result.report = std::move(compiled.report);
  return result;
}

void expect_results(const std::vector<ops::InterpretedOutput>& want,
                    const std::vector<RefTensor>& inputs, const CallResult& got) {
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
}

RunResult expect_as_interpreted(const graph::Graph& graph, std::vector<RefTensor> inputs,
                                const ops::SymbolValues& symbols, Compiler& compiler) {
  const std::vector<RefTensor> before = inputs;
  const auto want = ops::interpret(graph, inputs, symbols);
  std::vector<std::int64_t> integers;
  for (const auto& input : graph.inputs) {
    if (input.symbol.is_null()) continue;
    for (const auto& [symbol, value] : symbols) {
      if (symbol == input.symbol) integers.push_back(value);
    }
  }
  RunResult got = compile_and_run(graph, before, integers, {}, compiler);
  expect_results(want, inputs, got);
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
