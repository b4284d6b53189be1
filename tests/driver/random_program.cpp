#include "driver/random_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <ranges>

#include "base/error.h"
#include "driver/random_integers.h"
#include "graph/builder.h"
#include "graph/text.h"
#include "ops/samples.h"
#include "ops/sharing.h"
#include "ops/table.h"

namespace inkle::driver {
namespace {

using abi::DType;
using graph::Argument;
using graph::Expr;
using graph::Graph;
using graph::OpDef;
using graph::Sizes;
using graph::Trait;
using graph::Type;
using graph::ValueId;
using ops::RefTensor;
using Values = std::vector<std::optional<RefTensor>>;

// Beyond this a value is clamped before it is used, so that nothing overflows or drowns the rest.
constexpr double kLargest = 64;

// What a library computes, with what follows it.
bool is_product(const OpDef& row) {
  constexpr std::array<std::string_view, 5> kProducts = {"mm", "bmm", "addmm", "baddbmm",
                                                         "convolution"};
  return std::ranges::find(kProducts, row.name) != kProducts.end();
}

// All elements of a tensor or a row with each other.
bool multiplies_elements(const OpDef& row) {
  return row.name == "prod" || row.name == "prod_dim" || row.name == "cumprod";
}

// Whether such a product of floats may leave f32's range on its way. What comes of it then, with a
// zero behind it for instance, depends on the order, which is nobody's.
bool may_overflow(const RefTensor& x) {
  double bits = 0;
  for (std::size_t p = 0; x.is_real() && p < x.count(); ++p) {
    if (std::abs(x.real(p)) > 1) bits += std::log2(std::abs(x.real(p)));
  }
  return bits >= std::numeric_limits<float>::max_exponent - 1;
}

// Products several times: they are few among the rows, many in programs.
std::vector<const OpDef*> eligible_rows() {
  constexpr std::size_t kTimes = 6;
  std::vector<const OpDef*> rows;
  for (const OpDef* row : ops::op_table().all()) {
    const bool runs = row->lower != nullptr || row->decompose != nullptr;
    const bool odd = has(row->traits, Trait::random) || has(row->traits, Trait::effect);
    if (runs && row->samples != nullptr && !odd) {
      rows.insert(rows.end(), is_product(*row) ? kTimes : 1, row);
    }
  }
  return rows;
}

struct Extremes {
  double low = 0, high = 0;
  bool finite = true;
};
Extremes extremes_of(const RefTensor& t) {
  Extremes e{t.count() > 0 ? t.real(0) : 0, t.count() > 0 ? t.real(0) : 0};
  for (std::size_t i = 0; i < t.count(); ++i) {
    e.finite = e.finite && std::isfinite(t.real(i));
    e.low = std::min(e.low, t.real(i));
    e.high = std::max(e.high, t.real(i));
  }
  return e;
}

class Grower {
 public:
  explicit Grower(std::uint32_t seed)
      : random_(seed),
        integers_(~seed),
        program_{Graph(std::make_shared<sym::Context>(), ops::op_table()), {}, {}, {}},
        scratch_(program_.graph.shared_context(), ops::op_table()),
        builder_(program_.graph) {
    // Symbolic sizes in two of five programs, sizes of 1 or 0 now and then.
    const std::uint32_t kind = below(20);
    shapes_ = kind < 8    ? ops::ShapeClass::symbolic
              : kind == 8 ? ops::ShapeClass::ones
              : kind == 9 ? ops::ShapeClass::empty
                          : ops::ShapeClass::fixed;
    program_.graph.name = fmt::format("seed{}", seed);
  }

  Program grow(std::uint32_t nodes) {
    static const std::vector<const OpDef*> rows = eligible_rows();
    ops::SampleBuilder samples(scratch_, DType::f32, shapes_);
    for (std::uint32_t tries = 0; made_ < nodes && tries < 20 * nodes; ++tries) {
      const OpDef& row = *rows[below(static_cast<std::uint32_t>(rows.size()))];
      const auto list = row.samples();
      const graph::Sample& sample = list[below(static_cast<std::uint32_t>(list.size()))];
      if (sample.fixed_only && shapes_ != ops::ShapeClass::fixed) continue;
      // Mostly the first dtype, f32: values then flow from op to op.
      const bool any = below(4) == 0;
      const auto count = static_cast<std::uint32_t>(sample.dtypes.size());
      samples.set_dtype(sample.dtypes[any ? below(count) : 0]);
      apply(row, sample, samples);
    }
    if (integers_.below(4) == 0) add_integers();
    finish();
    return std::move(program_);
  }

 private:
  std::uint32_t below(std::uint32_t n) { return n == 0 ? 0 : random_() % n; }

  // --- Values -----------------------------------------------------------------------------------

  const RefTensor& known(ValueId v) const { return *values_[v.index]; }

  void remember(ValueId v, RefTensor t) {
    values_.resize(program_.graph.value_count());
    values_[v.index] = std::move(t);
    pool_.push_back(v);
  }

  std::vector<std::int64_t> evaluated(const Sizes& sizes) {
    std::vector<std::int64_t> list;
    for (const Expr size : sizes) {
      for (const Expr symbol : sym::symbols(size)) bind(symbol);
      list.push_back(sym::evaluate(size, [](Expr s) { return sym::hint(s).value(); }));
    }
    return list;
  }
  void bind(Expr symbol) {
    const std::pair entry(symbol, sym::hint(symbol).value());
    if (std::ranges::find(program_.symbols, entry) != program_.symbols.end()) return;
    program_.symbols.push_back(entry);
    program_.graph.inputs.push_back(
        {.name = sym::to_string(symbol), .value = {}, .symbol = symbol});
  }

  ValueId new_input(const Type& wanted, double low, double high) {
    Type type = wanted;
    RefTensor t(type.dtype, evaluated(type.sizes));
    const bool is_signed = type.dtype != DType::u8 && type.dtype != DType::boolean;
    const double least = std::ceil(is_signed ? low : std::max(low, 0.0));
    const double most = std::floor(type.dtype == DType::boolean ? std::min(high, 1.0) : high);
    for (std::size_t i = 0; i < t.count(); ++i) {
      if (t.is_real()) {
        t.set(i, std::uniform_real_distribution<double>(low, high)(random_));
      } else {
        t.set(i, std::uniform_int_distribution<std::int64_t>(
                     static_cast<std::int64_t>(least), static_cast<std::int64_t>(most))(random_));
      }
    }
    t.round();
    type.strides = input_strides(type.sizes);
    const ValueId v = program_.graph.add_value(std::move(type));
    program_.graph.inputs.push_back(
        {.name = fmt::format("x{}", program_.inputs.size()), .value = v});
    program_.inputs.push_back(t);
    remember(v, std::move(t));
    return v;
  }

  // Row-major, in another order of dimensions, or with gaps.
  Sizes input_strides(const Sizes& sizes) {
    sym::Context& context = program_.graph.context();
    std::vector<std::size_t> order(sizes.size());
    for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
    const std::uint32_t kind = below(6);
    if (kind == 0) std::shuffle(order.begin(), order.end(), random_);
    Sizes strides(sizes.size(), context.constant(1));
    Expr next = context.constant(kind == 1 ? 2 : 1);
    for (std::size_t k = order.size(); k-- > 0;) {
      strides[order[k]] = next;
      next = next * sym::max(sizes[order[k]], context.constant(1));
      if (kind == 2) next = next + 1;
    }
    return strides;
  }

  // --- Fitting a value to what an op wants
  // ----------------------------------------------------------

  // `v` in `sizes` by reshape, expand or slices, if any of them does it.
  std::optional<ValueId> shaped(ValueId v, const Sizes& sizes) {
    const Sizes own = program_.graph.type(v).sizes;
    if (own == sizes) return v;
    sym::Context& context = program_.graph.context();
    if (sym::product(context, own) == sym::product(context, sizes)) {
      return push("reshape", {v, sizes});
    }
    if (own.size() > sizes.size()) return std::nullopt;
    const std::size_t missing = sizes.size() - own.size();
    bool expands = true, cuts = own.size() == sizes.size();
    for (std::size_t d = 0; d < own.size(); ++d) {
      const Expr to = sizes[missing + d];
      expands = expands && (own[d] == to || own[d].is_constant(1));
      const auto have = own[d].constant(), want = to.constant();
      cuts = cuts && (own[d] == to || (have && want && *have > *want));
    }
    if (expands) return push("expand", {v, sizes});
    if (!cuts) return std::nullopt;
    for (std::size_t d = 0; d < own.size() && v.index != ValueId::kNone; ++d) {
      if (own[d] == sizes[d]) continue;
      const std::int64_t gap = *own[d].constant() - *sizes[d].constant();
      const auto start = static_cast<std::int64_t>(below(static_cast<std::uint32_t>(gap + 1)));
      const auto cut = push("slice", {v, context.constant(static_cast<std::int64_t>(d)),
                                      context.constant(start), context.constant(start) + sizes[d]});
      if (!cut) return std::nullopt;
      v = *cut;
    }
    return v;
  }

  // `v` with values in [low, high], finite.
  std::optional<ValueId> tamed(ValueId v, double low, double high) {
    const Extremes e = extremes_of(known(v));
    const bool narrow = low != -2 || high != 2;
    const double least = narrow ? low : -kLargest, most = narrow ? high : kLargest;
    if (e.finite && e.low >= least && e.high <= most) return v;
    const DType dtype = program_.graph.type(v).dtype;
    if (dtype == DType::boolean) return least <= 0 && most >= 1 ? std::optional(v) : std::nullopt;
    if (!e.finite) return std::nullopt;
    if (abi::is_float(dtype)) return push("clamp", {v, least, most});
    sym::Context& context = program_.graph.context();
    return push("clamp", {v, context.constant(static_cast<std::int64_t>(std::ceil(least))),
                          context.constant(static_cast<std::int64_t>(std::floor(most)))});
  }

  ValueId provide(const Type& wanted, double low, double high) {
    for (int tries = 0; tries < 6 && !pool_.empty() && below(8) != 0; ++tries) {
      // Late values more often: chains grow long.
      const auto size = static_cast<std::uint32_t>(pool_.size());
      const std::uint32_t back = std::min(below(size), below(size));
      std::optional<ValueId> v = pool_[size - 1 - back];
      const DType dtype = program_.graph.type(*v).dtype;
      v = shaped(*v, wanted.sizes);
      if (v) v = tamed(*v, low, high);
      if (v && dtype != wanted.dtype) v = push("_to_copy", {*v, wanted.dtype});
      if (v && dtype != wanted.dtype) v = tamed(*v, low, high);
      if (v) return *v;
    }
    return new_input(wanted, low, high);
  }

  // --- Nodes ------------------------------------------------------------------------------------

  // Appends a node of one result and evaluates it; nothing where it is not right.
  std::optional<ValueId> push(std::string_view op, std::vector<Argument> args) {
    const auto results = nodes(op, std::move(args));
    return results ? std::optional(results->front()) : std::nullopt;
  }
  std::optional<std::vector<ValueId>> nodes(std::string_view op, std::vector<Argument> args) {
    Graph& graph = program_.graph;
    const std::size_t before = graph.nodes.size();
    try {
      const std::vector<ValueId> results = builder_.nodes(op, std::move(args));
      values_.resize(graph.value_count());
      for (const ValueId v : results) (void)evaluated(graph.type(v).sizes);
      auto tensors = ops::interpret_node(graph, graph.nodes.back(), values_, program_.symbols);
      for (std::size_t i = 0; i < results.size(); ++i) remember(results[i], std::move(tensors[i]));
      return results;
    } catch (InternalError& e) {
      e.add_note(graph::to_string(graph));
      throw;
    } catch (const Error&) {
      graph.nodes.resize(before);
      return std::nullopt;
    }
  }

  void apply(const OpDef& row, const graph::Sample& sample, ops::SampleBuilder& samples) {
    std::vector<Argument> arguments = sample.arguments(samples);
    const auto real = [&](ValueId v) {
      if (v.is_none()) return v;
      std::size_t number = 0;
      while (scratch_.inputs[number].value != v) ++number;
      const auto range = samples.ranges()[number];
      return provide(scratch_.type(v), range.low, range.high);
    };
    for (Argument& argument : arguments) {
      if (auto* v = std::get_if<ValueId>(&argument)) *v = real(*v);
      if (auto* list = std::get_if<std::vector<ValueId>>(&argument)) {
        for (ValueId& v : *list) v = real(v);
      }
    }
    // sinc of a whole number is all rounding, of which noise in its operand shows nothing: sin of
    // what is nearly a multiple of pi.
    if (row.name == "sinc" &&
        !abi::is_float(program_.graph.type(std::get<ValueId>(arguments[0])).dtype)) {
      return;
    }
    if (multiplies_elements(row) && may_overflow(known(std::get<ValueId>(arguments[0])))) return;
    const auto results = nodes(row.name, std::move(arguments));
    if (!results) return;
    ++made_;
    if (below(is_product(row) ? 2 : 12) == 0) scale(results->front());
  }

  // Numbers and activations behind a value: what libraries take as post-ops.
  void scale(std::optional<ValueId> v) {
    for (std::uint32_t i = 2 + below(3); i > 0 && v; --i) {
      if (!abi::is_float(program_.graph.type(*v).dtype)) return;
      const double number = 0.25 * (1.0 + below(12));
      switch (below(4)) {
        case 0:
          v = push("add", {*v, number, 1.0});
          break;
        case 1:
          v = push("relu", {*v});
          break;
        default:
          v = push("mul", {*v, number});
          break;
      }
    }
  }

  // Ops that take integers of any value, behind all others.
  void add_integers() {
    const RandomIntegers::Arguments& arguments = integers_.declare(program_.graph.context());
    for (const Expr symbol : arguments.symbols) bind(symbol);
    const auto append = [&](std::string_view op, std::vector<Argument> args) {
      return push(op, std::move(args));
    };
    for (std::uint32_t tries = 0, made = 0; tries < 12 && made < 3 && !pool_.empty(); ++tries) {
      const ValueId v = pool_[integers_.below(static_cast<std::uint32_t>(pool_.size()))];
      if (!integers_.apply(program_.graph, v, append)) continue;
      with_integers_.push_back(pool_.back());
      ++made;
    }
    program_.later = arguments.later;
  }

  void finish() {
    Graph& graph = program_.graph;
    std::vector<ValueId> made;
    for (const graph::Node& node : graph.nodes) {
      made.insert(made.end(), node.results.begin(), node.results.end());
    }
    if (made.empty()) made = pool_;
    std::vector<ValueId> outputs = with_integers_;
    if (outputs.empty()) outputs.push_back(made.back());
    for (std::uint32_t i = below(4); i > 0; --i) {
      const ValueId v = made[below(static_cast<std::uint32_t>(made.size()))];
      if (std::ranges::find(outputs, v) == outputs.end()) outputs.push_back(v);
    }
    for (std::uint32_t i = below(4); i > 0; --i) {
      if (const auto v = relative(outputs[below(static_cast<std::uint32_t>(outputs.size()))])) {
        outputs.push_back(*v);
      }
    }
    for (const ValueId v : outputs) graph.outputs.push_back({v});
    if (below(3) == 0) {
      const auto written = mutate();
      // What was written may be returned, whole or in part, as memory of the argument.
      if (written && below(2) == 0) graph.outputs.push_back({*written});
      if (written && below(2) == 0) {
        if (const auto v = relative(*written, false)) graph.outputs.push_back({*v});
      }
    }
    if (below(2) == 0) {
      for (graph::Input& input : graph.inputs) {
        input.is_parameter = !input.value.is_none() && below(2) == 0;
      }
    }
    for (const graph::Output& output : graph.outputs) {
      Type& type = graph.type(std::get<ValueId>(output.value));
      if (!type.strides) type.strides = output_strides(type.sizes);
    }
    graph::settle_views(graph);
    ops::share_views(graph);
  }

  // A view of an output or of an input, or an output computed once more: what passes must leave in
  // the storages that they are in.
  std::optional<ValueId> relative(ValueId v, bool or_of_input = true) {
    Graph& graph = program_.graph;
    if (below(4) == 0) {
      const auto producer = graph::producers(graph)[v.index];
      if (producer < 0) return std::nullopt;
      const graph::Node node = graph.nodes[static_cast<std::size_t>(producer)];
      if (has(node.op->traits, Trait::effect)) return std::nullopt;
      const auto again = nodes(node.op->name, node.args);
      const auto result = std::ranges::find(node.results, v) - node.results.begin();
      return again ? std::optional((*again)[static_cast<std::size_t>(result)]) : std::nullopt;
    }
    if (or_of_input && below(3) == 0 && !graph.inputs.empty()) {
      const graph::Input& input =
          graph.inputs[below(static_cast<std::uint32_t>(graph.inputs.size()))];
      if (!input.value.is_none()) v = input.value;
    }
    sym::Context& context = graph.context();
    const std::size_t rank = graph.type(v).rank();
    const auto number = [&](std::int64_t n) { return context.constant(n); };
    switch (rank == 0 ? 0 : below(4)) {
      case 0:
        return push("unsqueeze", {v, number(0)});
      case 1:
        return push("transpose", {v, number(0), number(-1)});
      case 2:
        return push("slice", {v, number(static_cast<std::int64_t>(rank) - 1), number(1)});
      default:
        if (known(v).sizes[0] == 0) return std::nullopt;
        return push("select", {v, number(0), number(0)});
    }
  }

  Sizes output_strides(const Sizes& sizes) {
    sym::Context& context = program_.graph.context();
    Sizes strides = graph::contiguous_strides(context, sizes);
    if (below(4) != 0 || sizes.size() < 2) return strides;
    // The last two dimensions swapped.
    Sizes swapped = sizes;
    std::swap(swapped[sizes.size() - 1], swapped[sizes.size() - 2]);
    strides = graph::contiguous_strides(context, swapped);
    std::swap(strides[sizes.size() - 1], strides[sizes.size() - 2]);
    return strides;
  }

  // Writes a value of the same type into an input; its new contents.
  std::optional<ValueId> mutate() {
    Graph& graph = program_.graph;
    for (const graph::Input& input : graph.inputs) {
      if (input.value.is_none() || below(2) == 0) continue;
      const Type& type = graph.type(input.value);
      for (const ValueId v : pool_) {
        const Type& other = graph.type(v);
        if (v == input.value || other.dtype != type.dtype || other.sizes != type.sizes) continue;
        const ValueId to = input.value;
        return push("copy_", {to, v});
      }
    }
    return std::nullopt;
  }

  std::mt19937 random_;
  RandomIntegers integers_;  // draws of its own, so that all else of a seed stays what it is
  Program program_;
  Graph scratch_;  // samples are written here; its inputs say what an op wants
  graph::Builder builder_;
  ops::ShapeClass shapes_ = ops::ShapeClass::fixed;
  Values values_;
  std::vector<ValueId> pool_;
  std::vector<ValueId> with_integers_;  // results of ops that take integers
  std::uint32_t made_ = 0;
};

}  // namespace

Program random_program(std::uint32_t seed, const ProgramOptions& options) {
  return Grower(seed).grow(options.nodes);
}

}  // namespace inkle::driver
