#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "base/text.h"
#include "graph/arguments.h"
#include "graph/literal.h"
#include "graph/text.h"

namespace inkle::graph {
namespace {

// Longer headers take a line for each input; source lines stand at this column where there is room.
constexpr std::size_t kLineWidth = 100;
constexpr std::size_t kCommentColumn = 60;

std::string clean_name(std::string_view name, std::set<std::string>& taken) {
  std::string out;
  for (const char c : name) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '_' || c == '.';
    out += good ? c : '_';
  }
  if (out.empty() || (out[0] >= '0' && out[0] <= '9') || out[0] == '.') out.insert(0, 1, '_');
  std::string unique = out;
  for (int i = 1; !taken.insert(unique).second; ++i) unique = fmt::format("{}_{}", out, i);
  return unique;
}

class GraphPrinter {
 public:
  explicit GraphPrinter(const Graph& graph)
      : graph_(graph), names_(graph.value_count()), is_output_(output_values(graph)) {
    std::set<std::string> taken;
    for (const Input& input : graph.inputs) {
      input_names_.push_back(clean_name(input.name, taken));
      if (!input.value.is_none()) names_[input.value.index] = input_names_.back();
    }
    std::size_t constant = 0;
    for (const auto& [value, data] : graph.constants) {
      names_[value.index] = clean_name(fmt::format("c{}", constant++), taken);
    }
    std::size_t number = 0;
    for (const Node& node : graph.nodes) {
      for (const ValueId v : node.results) names_[v.index] = fmt::format("{}", number++);
    }
  }

  std::string run() {
    std::string out = header();
    for (const auto& [value, data] : graph_.constants) {
      out += fmt::format("  %{}: {} = literal {}\n", names_[value.index],
                         to_string(graph_.type(value)), print_literal(data));
    }
    for (const Node& node : graph_.nodes) out += statement(node);
    out += "  return";
    std::map<std::uint32_t, std::size_t> storages;  // numbers as they come
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const Output& o = graph_.outputs[i];
      out += i == 0 ? " " : ", ";
      if (o.sharing == Sharing::free) out += "free ";
      out += output(o);
      if (o.sharing == Sharing::argument) out += " in " + name(o.argument);
      if (o.sharing == Sharing::storage) {
        out += fmt::format(" in {}", storages.emplace(o.storage, storages.size()).first->second);
      }
      if (o.is_view() && !o.offset.is_constant(0)) out += " at " + sym::to_string(o.offset);
    }
    return out + "\n}\n";
  }

 private:
  std::string name(ValueId v) const { return "%" + names_[v.index]; }

  std::string input(std::size_t i) const {
    const Input& in = graph_.inputs[i];
    std::string out = "%" + input_names_[i] + ": ";
    if (!in.value.is_none()) {
      out += to_string(graph_.type(in.value));
      return in.is_parameter ? out + " param" : out;
    }
    out += "int";
    const bool same_name =
        in.symbol.kind() == sym::Kind::symbol && in.symbol.name() == input_names_[i];
    return same_name ? out : out + " = " + sym::to_string(in.symbol);
  }

  std::string output(const Output& o) const {
    if (const auto* v = std::get_if<ValueId>(&o.value)) return name(*v);
    if (const auto* e = std::get_if<Expr>(&o.value)) return sym::to_string(*e);
    return "none";
  }

  std::string output_types() const {
    std::string out;
    for (const Output& o : graph_.outputs) {
      out += out.empty() ? "-> " : ", ";
      if (std::holds_alternative<ValueId>(o.value)) {
        out += to_string(output_type(graph_, o));
      } else {
        out += std::holds_alternative<Expr>(o.value) ? "int" : "none";
      }
    }
    return out;
  }

  std::vector<Expr> all_symbols() const {
    std::vector<Expr> found;
    std::unordered_set<Expr> seen;
    std::unordered_set<Expr> visited;
    const auto add = [&](Expr e) {
      if (!visited.insert(e).second) return;
      for (const Expr s : sym::symbols(e)) {
        if (seen.insert(s).second) found.push_back(s);
      }
    };
    const auto add_type = [&](ValueId v) {
      const Type& type = graph_.type(v);
      for (const Expr e : type.sizes) add(e);
      if (type.strides) std::ranges::for_each(*type.strides, add);
    };
    for (const Input& in : graph_.inputs) {
      if (in.value.is_none()) {
        add(in.symbol);
      } else {
        add_type(in.value);
      }
    }
    for (const Node& node : graph_.nodes) {
      std::ranges::for_each(node.results, add_type);
      for (const Argument& a : node.args) {
        if (const auto* e = std::get_if<Expr>(&a)) add(*e);
        if (const auto* l = std::get_if<std::vector<Expr>>(&a)) std::ranges::for_each(*l, add);
      }
    }
    for (const Output& o : graph_.outputs) {
      if (const auto* e = std::get_if<Expr>(&o.value)) add(*e);
      if (!o.is_view()) continue;
      std::ranges::for_each(o.view.sizes, add);
      std::ranges::for_each(*o.view.strides, add);
      add(o.offset);
    }
    std::ranges::sort(found, {}, &Expr::id);
    return found;
  }

  std::string symbols() const {
    std::string out;
    for (const Expr s : all_symbols()) {
      const sym::SymbolInfo& info = graph_.context().info(s);
      out += out.empty() ? "where " : ", ";
      out += s.name();
      const bool low = info.range.low != sym::Range::kMin;
      const bool high = info.range.high != sym::Range::kMax;
      if (low || high) {
        out += " in ";
        if (low) out += fmt::format("{}", info.range.low);
        out += "..";
        if (high) out += fmt::format("{}", info.range.high);
      }
      if (info.divisor != 1) out += fmt::format(" by {}", info.divisor);
      if (info.hint) out += fmt::format(" hint {}", *info.hint);
    }
    return out;
  }

  std::string header() const {
    std::set<std::string> none;
    const std::string head = "graph @" + clean_name(graph_.name, none) + "(";
    std::string tail;
    for (const std::string& part : {output_types(), symbols()}) {
      if (!part.empty()) tail += " " + part;
    }
    std::string line = head;
    std::string lines = head;
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      const std::string in = input(i);
      line += (i == 0 ? "" : ", ") + in;
      lines += (i == 0 ? "\n    " : ",\n    ") + in;
    }
    line += ")" + tail + " {";
    if (line.size() <= kLineWidth) return line + "\n";
    return lines + ")\n   " + tail + " {\n";
  }

  std::string statement(const Node& node) const {
    std::string out = "  ";
    for (std::size_t i = 0; i < node.results.size(); ++i) {
      if (i > 0) out += ", ";
      const ValueId v = node.results[i];
      // Where none are written an output is row-major, a view as its operand makes it, and anything
      // else free.
      const bool view = has(node.op->traits, Trait::view);
      out += name(v) + ": " + to_string(graph_.type(v), view || !is_output_[v.index]);
    }
    if (!node.results.empty()) out += " = ";
    out += node.op->name;
    const auto namer = [this](ValueId v) { return name(v); };
    std::size_t first = 0;
    if (node.eager_target) {
      out += fmt::format(" {} {} ", print_argument(node.args.front(), namer), *node.eager_target);
      first = 1;
    }
    out += "(";
    const std::size_t count = printed_arguments(node);
    for (std::size_t i = first; i < count; ++i) {
      if (i > first) out += ", ";
      out += print_argument(node.args[i], namer);
    }
    out += node.in_place ? ") in_place" : ")";
    if (node.keep != Keep::free) out += node.keep == Keep::saved ? " saved" : " recomputed";
    if (!node.source.empty()) {
      std::string source = node.source;
      std::ranges::replace(source, '\n', ' ');
      out.resize(std::max(out.size() + 2, kCommentColumn), ' ');
      out += "# " + source;
    }
    return out + "\n";
  }

  // Arguments but for trailing ones that equal their default.
  std::size_t printed_arguments(const Node& node) const {
    std::size_t count = node.args.size();
    const Schema& schema = graph_.table().schema(*node.op);
    if (schema.any_params) return count;
    while (count > 0 && schema.params[count - 1].has_default &&
           node.args[count - 1] == default_argument(schema.params[count - 1], graph_.context())) {
      --count;
    }
    return count;
  }

  const Graph& graph_;
  std::vector<std::string> names_;
  std::vector<std::string> input_names_;
  std::vector<bool> is_output_;
};

}  // namespace

std::string to_string(const Graph& graph) { return GraphPrinter(graph).run(); }

}  // namespace inkle::graph
