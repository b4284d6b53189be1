#include "cli/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "frontend/pt2/mapped_file.h"
#include "frontend/pt2/tensor_data.h"
#include "graph/builder.h"
#include "graph/text.h"
#include "ops/samples.h"
#include "ops/table.h"

namespace inkle::cli {
namespace {

using ops::ShapeClass;

constexpr std::array<std::string_view, 4> kOptions = {"training", "deterministic", "fast-numerics",
                                                      "no-run"};

std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> result;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    if (end > 0) result.push_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return result;
}

class CaseParser {
 public:
  CaseParser(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  std::vector<Case> run() {
    while (!text_.empty()) {
      const std::size_t end = std::min(text_.find('\n'), text_.size());
      take(text_.substr(0, end));
      text_.remove_prefix(std::min(end + 1, text_.size()));
      ++line_;
    }
    return std::move(cases_);
  }

 private:
  void take(std::string_view line) {
    if (line.starts_with("case ")) {
      begin(words(line));
    } else if (cases_.empty()) {
      fail("expected 'case NAME'");
    } else if (line.starts_with("input ")) {
      cases_.back().inputs.push_back(range(words(line)));
    } else {
      cases_.back().text.append(line).append("\n");
    }
  }

  void begin(const std::vector<std::string_view>& line) {
    if (line.size() < 2) fail("a case has a name");
    Case& c = cases_.emplace_back();
    c.name = line[1];
    if (!names_.insert(c.name).second) fail(fmt::format("a second case {}", c.name));
    for (std::size_t i = 2; i < line.size(); ++i) {
      if (std::find(kOptions.begin(), kOptions.end(), line[i]) == kOptions.end()) {
        fail(fmt::format("unknown option '{}'", line[i]));
      }
      c.options.emplace_back(line[i]);
    }
  }

  Range range(const std::vector<std::string_view>& line) {
    if (line.size() != 3) fail("expected 'input LOW HIGH'");
    return {number(line[1]), number(line[2])};
  }

  double number(std::string_view word) {
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) {
      fail(fmt::format("'{}' is no number", word));
    }
    return value;
  }

  [[noreturn]] void fail(const std::string& message) const {
    user_error("{}:{}: {}", file_, line_, message);
  }

  std::string_view text_;
  std::string_view file_;
  int line_ = 1;
  std::vector<Case> cases_;
  std::set<std::string> names_;
};

// --- Samples of the op table ---------------------------------------------------------------------

// Letters that a name may have.
std::string word(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '_' || c == '.';
    if (!is_plain) c = '-';
  }
  return result;
}

// Appends an integer input for each size symbol of the graph, as a frontend does.
void bind_symbols(graph::Graph& graph) {
  std::set<std::string> bound;
  for (std::uint32_t v = 0; v < graph.value_count(); ++v) {
    for (const sym::Expr size : graph.type(graph::ValueId{v}).sizes) {
      for (const sym::Expr symbol : sym::symbols(size)) {
        if (!bound.insert(sym::to_string(symbol)).second) continue;
        graph.inputs.push_back({.name = sym::to_string(symbol), .value = {}, .symbol = symbol});
      }
    }
  }
}

Case sample_case(const graph::OpDef& row, const graph::Sample& sample, abi::DType dtype,
                 ShapeClass shapes) {
  constexpr std::array<std::string_view, 4> kShapes = {"fixed", "symbolic", "ones", "empty"};
  graph::Graph graph(std::make_shared<sym::Context>(), ops::op_table());
  graph.name = "sample";
  ops::SampleBuilder samples(graph, dtype, shapes);
  std::vector<graph::Argument> arguments = sample.arguments(samples);
  graph::Builder builder(graph);
  for (const graph::ValueId v : builder.nodes(row.name, std::move(arguments))) {
    graph.outputs.push_back({v});
  }
  bind_symbols(graph);
  Case result;
  result.name = fmt::format("samples/{}/{}/{}/{}", word(row.name), word(sample.label),
                            abi::name_of(dtype), kShapes[static_cast<std::size_t>(shapes)]);
  for (const auto& range : samples.ranges()) result.inputs.push_back({range.low, range.high});
  result.text = graph::to_string(graph);
  return result;
}

// Nothing for an op that has no result for these sizes, or is not supported.
std::optional<Case> try_sample(const graph::OpDef& row, const graph::Sample& sample,
                               abi::DType dtype, ShapeClass shapes) {
  try {
    return sample_case(row, sample, dtype, shapes);
  } catch (const Unsupported&) {
    return std::nullopt;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

}  // namespace

bool Case::has(std::string_view option) const {
  return std::find(options.begin(), options.end(), option) != options.end();
}

void Case::apply(driver::CompileOptions& compile) const {
  compile.training = has("training");
  compile.deterministic = has("deterministic");
  if (has("fast-numerics")) compile.numerics = abi::Numerics::fast;
}

std::vector<Case> parse_cases(std::string_view text, std::string_view file) {
  return CaseParser(text, file).run();
}

std::vector<Case> read_cases(const std::string& path) {
  const auto file = frontend::pt2::MappedFile::open(path);
  const std::span<const std::byte> bytes = file->bytes();
  return parse_cases({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

std::string to_string(const Case& c) {
  std::string text = "case " + c.name;
  for (const std::string& option : c.options) text += " " + option;
  text += "\n";
  for (const Range& range : c.inputs) text += fmt::format("input {} {}\n", range.low, range.high);
  return text + c.text;
}

std::vector<Case> sample_cases() {
  std::vector<Case> cases;
  for (const graph::OpDef* row : ops::op_table().all()) {
    if (row->samples == nullptr || (row->lower == nullptr && row->decompose == nullptr)) continue;
    for (const graph::Sample& sample : row->samples()) {
      for (const abi::DType dtype : sample.dtypes) {
        for (const ShapeClass shapes :
             {ShapeClass::fixed, ShapeClass::symbolic, ShapeClass::ones, ShapeClass::empty}) {
          const bool is_first = dtype == sample.dtypes.front();
          if (shapes != ShapeClass::fixed && (sample.fixed_only || !is_first)) continue;
          if (auto made = try_sample(*row, sample, dtype, shapes)) {
            cases.push_back(std::move(*made));
          }
        }
      }
    }
  }
  return cases;
}

}  // namespace inkle::cli
