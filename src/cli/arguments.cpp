#include "cli/arguments.h"

#include <charconv>
#include <cstring>
#include <random>

#include "abi/half.h"
#include "base/error.h"
#include "base/hash.h"
#include "cli/uniform.h"
#include "frontend/pt2/npy.h"

namespace inkle::cli {
namespace {

using abi::DType;
using sym::Expr;

class ArgumentMaker {
 public:
  ArgumentMaker(const Model& model, const ArgumentOptions& options)
      : model_(model),
        options_(options),
        given_(model.graph.inputs.size()),
        random_(options.seed) {}

  Arguments run() {
    read_files();
    read_sizes();
    for (std::size_t i = 0; i < given_.size(); ++i) {
      if (given_[i]) bind_symbols(i);
    }
    Arguments result;
    for (std::size_t i = 0; i < given_.size(); ++i) {
      const graph::Input& input = model_.graph.inputs[i];
      if (input.value.is_none()) {
        require(input);
        result.integers.push_back(value_of(input.symbol));
      } else if (given_[i]) {
        result.tensors.push_back(checked(i));
      } else {
        result.tensors.push_back(random_tensor(i));
      }
    }
    return result;
  }

 private:
  [[nodiscard]] const graph::Input& input(std::size_t i) const { return model_.graph.inputs[i]; }
  [[nodiscard]] const graph::Type& type(std::size_t i) const {
    return model_.graph.type(input(i).value);
  }

  void read_files() {
    std::size_t next = 0;
    for (std::size_t i = 0; i < given_.size(); ++i) given_[i] = model_.weights[i];
    for (const std::string& text : options_.inputs) {
      const std::size_t equals = text.find('=');
      const std::string path = equals == text.npos ? text : text.substr(equals + 1);
      std::size_t at = given_.size();
      for (std::size_t i = equals == text.npos ? next : 0; i < given_.size(); ++i) {
        if (input(i).value.is_none() || model_.weights[i]) continue;
        if (equals != text.npos && input(i).name != text.substr(0, equals)) continue;
        at = i;
        break;
      }
      if (at == given_.size()) {
        user_error("{}: there is no such input; the inputs are {}", text, names());
      }
      if (given_[at]) user_error("{}: input {} is given twice", text, input(at).name);
      given_[at] = frontend::pt2::read_npy(path);
      if (equals == text.npos) next = at + 1;
    }
  }

  [[nodiscard]] std::string names() const {
    std::string list;
    for (std::size_t i = 0; i < given_.size(); ++i) {
      if (input(i).value.is_none() || model_.weights[i]) continue;
      list += fmt::format("{}{}: {}", list.empty() ? "" : ", ", input(i).name,
                          graph::to_string(type(i)));
    }
    return list.empty() ? "none" : list;
  }

  void read_sizes() {
    for (const std::string& text : options_.sizes) {
      const std::size_t equals = std::min(text.find('='), text.size());
      const std::string name = text.substr(0, equals);
      std::int64_t value = 0;
      const char* begin = text.data() + std::min(equals + 1, text.size());
      const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
      const auto symbol = model_.graph.context().find_symbol(name);
      if (error != std::errc() || end != text.data() + text.size() || begin == end) {
        user_error("--size {}: name=number is expected", text);
      }
      if (!symbol) user_error("--size {}: the graph has no size {}", text, name);
      set(*symbol, value, "--size " + text);
    }
  }

  void set(Expr symbol, std::int64_t value, const std::string& where) {
    const sym::Range range = model_.graph.context().info(symbol).range;
    if (value < range.low || value > range.high) {
      user_error("{}: {} is {}, expected {} to {}", where, symbol.name(), value, range.low,
                 range.high);
    }
    for (const auto& [known, old] : symbols_) {
      if (known == symbol && old != value) {
        user_error("{}: {} is {}, but {} before", where, symbol.name(), value, old);
      }
      if (known == symbol) return;
    }
    symbols_.emplace_back(symbol, value);
  }

  void bind_symbols(std::size_t i) {
    const graph::Type& expected = type(i);
    const TensorData& given = *given_[i];
    if (given.dtype != expected.dtype || given.sizes.size() != expected.rank()) {
      std::string sizes;
      for (const std::int64_t s : given.sizes)
        sizes += (sizes.empty() ? "" : ",") + std::to_string(s);
      user_error("input {}: expected {}, got {}[{}]", input(i).name, graph::to_string(expected),
                 abi::name_of(given.dtype), sizes);
    }
    for (std::size_t d = 0; d < expected.rank(); ++d) {
      if (expected.sizes[d].kind() != sym::Kind::symbol) continue;
      set(expected.sizes[d], given.sizes[d],
          fmt::format("input {}, dimension {}", input(i).name, d));
    }
  }

  // A symbol that no input fixes: its hint, else a small number of its range.
  std::int64_t value_of(Expr symbol) {
    for (const auto& [known, value] : symbols_) {
      if (known == symbol) return value;
    }
    const sym::SymbolInfo& info = model_.graph.context().info(symbol);
    const std::int64_t value =
        info.hint ? *info.hint
                  : std::min(std::max<std::int64_t>(info.range.low, 4), info.range.high);
    set(symbol, value, "size");
    return value;
  }

  std::vector<std::int64_t> numbers(const std::vector<Expr>& list) {
    std::vector<std::int64_t> result;
    for (const Expr e : list) {
      result.push_back(sym::evaluate(e, [this](Expr symbol) { return value_of(symbol); }));
    }
    return result;
  }

  // An integer argument is told by its symbol.
  void require(const graph::Input& integer) const {
    if (options_.random) return;
    for (const auto& [known, value] : symbols_) {
      if (known == integer.symbol) return;
    }
    user_error("input {} is missing: --size {}=NUMBER", integer.name, integer.symbol.name());
  }

  // In the strides that the graph states, so that the caller need not know them.
  TensorData checked(std::size_t i) {
    const graph::Type& expected = type(i);
    TensorData given = std::move(*given_[i]);
    const std::vector<std::int64_t> sizes = numbers(expected.sizes);
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      if (given.sizes[d] != sizes[d]) {
        user_error("input {}: dimension {} is {}, expected {}", input(i).name, d, given.sizes[d],
                   sizes[d]);
      }
    }
    const std::vector<std::int64_t> strides = strides_of(expected, sizes);
    bool is_same = true;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      is_same &= sizes[d] <= 1 || given.strides[d] == strides[d];
    }
    given.strides = is_same ? strides : given.strides;
    return is_same ? given : frontend::pt2::rearranged(given.view(), strides);
  }

  std::vector<std::int64_t> strides_of(const graph::Type& t, std::span<const std::int64_t> sizes) {
    return t.strides ? numbers(*t.strides) : frontend::pt2::row_major_strides(sizes);
  }

  TensorData random_tensor(std::size_t i) {
    if (!options_.random) {
      user_error("input {} is missing: --input {}=file.npy ({})", input(i).name, input(i).name,
                 graph::to_string(type(i)));
    }
    const std::vector<std::int64_t> sizes = numbers(type(i).sizes);
    if (!frontend::pt2::dense_bytes(type(i).dtype, sizes)) {
      user_error("input {}: sizes are too large", input(i).name);
    }
    TensorData dense = frontend::pt2::make_tensor(type(i).dtype, sizes);
    if (!options_.ranges.empty()) {
      const Range& range = range_of(i);
      fill_uniform(dense, range.low, range.high, hash_combine(options_.seed, i));
    } else {
      const std::int64_t count = dense.element_count();
      for (std::int64_t e = 0; e < count; ++e) fill(dense, e);
    }
    return frontend::pt2::rearranged(dense.view(), strides_of(type(i), sizes));
  }

  // Of the graph's input `i`; inputs that are integers have none.
  [[nodiscard]] const Range& range_of(std::size_t i) const {
    std::size_t at = 0, tensors = 0;
    for (std::size_t n = 0; n < given_.size(); ++n) {
      if (input(n).value.is_none()) continue;
      at += n < i ? 1 : 0;
      ++tensors;
    }
    if (tensors != options_.ranges.size()) {
      user_error("{} ranges for {} tensors", options_.ranges.size(), tensors);
    }
    return options_.ranges[at];
  }

  template <class T>
  static void store(TensorData& to, std::int64_t element, T value) {
    std::memcpy(to.data + static_cast<std::size_t>(element) * sizeof value, &value, sizeof value);
  }

  void fill(TensorData& to, std::int64_t element) {
    const auto bits = random_();
    const double real = static_cast<double>(bits >> 11) * 0x1p-52 - 1;
    const std::int64_t bit = static_cast<std::int64_t>(bits >> 63);
    switch (to.dtype) {
      case DType::f32:
        return store(to, element, static_cast<float>(real));
      case DType::f64:
        return store(to, element, real);
      case DType::f16:
        return store(to, element, abi::float_to_f16(static_cast<float>(real)));
      case DType::bf16:
        return store(to, element, abi::float_to_bf16(static_cast<float>(real)));
      case DType::i64:
        return store(to, element, bit);
      case DType::i32:
        return store(to, element, static_cast<std::int32_t>(bit));
      case DType::i16:
        return store(to, element, static_cast<std::int16_t>(bit));
      case DType::boolean:
      case DType::u8:
      case DType::i8:
        return store(to, element, static_cast<std::uint8_t>(bit));
      case DType::u16:
      case DType::u32:
      case DType::u64:
      case DType::c32:
      case DType::c64:
      case DType::c128:
      case DType::f8e4m3fn:
      case DType::f8e5m2:
      case DType::f8e4m3fnuz:
      case DType::f8e5m2fnuz:
      case DType::opaque:
        unsupported("random numbers of dtype {}", abi::name_of(to.dtype));
    }
  }

  const Model& model_;
  const ArgumentOptions& options_;
  std::vector<std::optional<TensorData>> given_;
  std::vector<std::pair<Expr, std::int64_t>> symbols_;
  std::mt19937_64 random_;
};

}  // namespace

std::vector<abi::TensorView> Arguments::views() const {
  std::vector<abi::TensorView> result;
  for (const TensorData& t : tensors) result.push_back(t.view());
  return result;
}

Arguments make_arguments(const Model& model, const ArgumentOptions& options) {
  return ArgumentMaker(model, options).run();
}

}  // namespace inkle::cli
