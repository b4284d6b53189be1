#include <fmt/format.h>

#include <map>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "graph/arguments.h"
#include "graph/literal.h"
#include "graph/text.h"

namespace inkle::graph {
namespace {

class GraphParser {
 public:
  GraphParser(std::string_view text, std::string_view file, const OpTable& table,
              std::shared_ptr<sym::Context> context)
      : scanner_(text, file), graph_(std::move(context), table) {}

  Graph run() {
    scanner_.expect("graph");
    scanner_.expect("@");
    graph_.name = scanner_.identifier();
    const Scanner::Mark start = scanner_.mark();
    find_symbols();
    scanner_.reset(start);
    inputs();
    output_types();
    if (scanner_.accept("where")) symbols(false);
    scanner_.expect("{");
    while (!scanner_.accept("return")) statement();
    outputs();
    scanner_.expect("}");
    if (!scanner_.at_end()) scanner_.fail("expected the end of the text");
    return std::move(graph_);
  }

 private:
  sym::Context& context() { return graph_.context(); }

  // --- Symbols: declared behind their uses, so the header is searched for them first ------------
  void find_symbols() {
    while (!scanner_.at_end()) {
      if (scanner_.accept("where")) return symbols(true);
      if (at_body()) return;
      if (scanner_.accept("%")) {
        (void)value_name();
      } else if (scanner_.peek() == '"') {
        (void)scanner_.quoted();
      } else if (scanner_.next_is_number()) {
        bool is_integer = false;
        std::int64_t integer = 0;
        (void)scanner_.number(is_integer, integer);
      } else if (!scanner_.accept_identifier()) {
        const char other = scanner_.peek();
        scanner_.expect(std::string_view(&other, 1));
      }
    }
  }

  // The body's brace, not that of strides.
  bool at_body() {
    const Scanner::Mark start = scanner_.mark();
    const bool body =
        scanner_.accept("{") && (scanner_.peek() == '%' || scanner_.next_is("return"));
    scanner_.reset(start);
    return body;
  }

  void symbols(bool declare) {
    do {
      const std::string name(scanner_.identifier());
      sym::SymbolInfo info;
      if (scanner_.accept("in")) {
        if (!scanner_.next_is("..")) info.range.low = scanner_.integer();
        scanner_.expect("..");
        if (scanner_.next_is_number()) info.range.high = scanner_.integer();
        if (info.range.low > info.range.high) scanner_.fail("an empty range stands before this");
      }
      if (scanner_.accept("by")) {
        info.divisor = scanner_.integer();
        if (info.divisor < 1) scanner_.fail("a divisor is at least 1");
      }
      if (scanner_.accept("hint")) info.hint = scanner_.integer();
      if (declare && !context().find_symbol(name)) context().symbol(name, info);
    } while (scanner_.accept(","));
  }

  // --- Header -----------------------------------------------------------------------------------
  void inputs() {
    scanner_.expect("(");
    while (!scanner_.accept(")")) {
      if (!graph_.inputs.empty()) scanner_.expect(",");
      scanner_.expect("%");
      Input input;
      const Scanner::Mark at = scanner_.mark();
      input.name = scanner_.identifier();
      scanner_.expect(":");
      if (scanner_.accept("int")) {
        if (scanner_.accept("=")) {
          input.symbol = sym::parse(scanner_, context());
        } else {
          const auto known = context().find_symbol(input.name);
          input.symbol = known ? *known : context().symbol(input.name, {});
        }
      } else {
        input.value = graph_.add_value(fixed_type());
        name_value(input.name, input.value, at);
        input.is_parameter = scanner_.accept("param");
      }
      graph_.inputs.push_back(std::move(input));
    }
  }

  void output_types() {
    if (!scanner_.accept("->")) return;
    do {
      Output output;
      if (scanner_.accept("int")) {
        output.value = Expr{};
        output_types_.emplace_back();
      } else if (scanner_.accept("none")) {
        output.value = None{};
        output_types_.emplace_back();
      } else {
        output.value = ValueId{};
        output_types_.push_back(fixed_type());
      }
      graph_.outputs.push_back(output);
    } while (scanner_.accept(","));
  }

  // --- Types ------------------------------------------------------------------------------------
  Sizes expressions(std::string_view open, std::string_view close) {
    Sizes list;
    scanner_.expect(open);
    while (!scanner_.accept(close)) {
      if (!list.empty()) scanner_.expect(",");
      list.push_back(sym::parse(scanner_, context()));
    }
    return list;
  }

  Type type() {
    Type t;
    t.dtype = read_dtype(scanner_);
    t.sizes = expressions("[", "]");
    for (const Expr size : t.sizes) {
      if (sym::bounds(size).high < 0) scanner_.fail("a negative size stands before this");
    }
    if (scanner_.next_is("{") && !at_body()) {
      t.strides = expressions("{", "}");
      if (t.strides->size() != t.sizes.size()) {
        scanner_.fail(fmt::format("{} sizes and {} strides stand before this", t.sizes.size(),
                                  t.strides->size()));
      }
    }
    if (scanner_.accept("@")) t.device = read_device(scanner_);
    return t;
  }

  // A type whose strides are row-major where none are written.
  Type fixed_type() {
    Type t = type();
    if (!t.strides) t.strides = contiguous_strides(context(), t.sizes);
    return t;
  }

  // --- Values -----------------------------------------------------------------------------------
  std::string value_name() {
    const char next = scanner_.peek();
    if (next >= '0' && next <= '9') return fmt::format("{}", scanner_.integer());
    return std::string(scanner_.identifier());
  }

  void name_value(const std::string& name, ValueId value, Scanner::Mark at) {
    if (names_.emplace(name, value).second) return;
    scanner_.reset(at);
    scanner_.fail("this name is taken");
  }

  ValueId value() {
    const Scanner::Mark at = scanner_.mark();
    scanner_.expect("%");
    const auto found = names_.find(value_name());
    if (found != names_.end()) return found->second;
    scanner_.reset(at);
    scanner_.fail("no such value is known here");
  }

  // --- Body -------------------------------------------------------------------------------------
  struct Result {
    std::string name;
    Scanner::Mark at;
    Type type;
    bool states_strides = true;
  };

  void statement() {
    std::vector<Result> results;
    if (scanner_.peek() == '%') {
      do {
        scanner_.expect("%");
        const Scanner::Mark at = scanner_.mark();
        std::string name = value_name();
        scanner_.expect(":");
        results.push_back({std::move(name), at, type()});
      } while (scanner_.accept(","));
      scanner_.expect("=");
    }
    const std::string place = scanner_.where();
    if (scanner_.accept("literal")) return literal(results);
    const Scanner::Mark at = scanner_.mark();
    const std::string op_name(scanner_.identifier());
    Node node;
    node.op = graph_.table().find(op_name);
    if (node.op == nullptr) {
      scanner_.reset(at);
      scanner_.fail("unknown op");
    }
    arguments(node);
    if (has(node.op->traits, Trait::update)) node.in_place = scanner_.accept("in_place");
    if (scanner_.accept("saved")) node.keep = Keep::saved;
    if (scanner_.accept("recomputed")) node.keep = Keep::recomputed;
    node.source = scanner_.take_comment();
    try {
      derive(node, results);
    } catch (Error& error) {
      error.add_note("at " + place);
      throw;
    }
    for (Result& result : results) {
      node.results.push_back(graph_.add_value(std::move(result.type)));
      if (!result.states_strides) inferred_strides_.insert(node.results.back().index);
      name_value(result.name, node.results.back(), result.at);
    }
    graph_.nodes.push_back(std::move(node));
  }

  void literal(std::vector<Result>& results) {
    if (results.size() != 1) scanner_.fail("a literal has one result");
    if (!graph_.nodes.empty()) scanner_.fail("literals stand before all nodes");
    Result& result = results.front();
    if (!result.type.strides) {
      result.type.strides = contiguous_strides(context(), result.type.sizes);
    }
    ConstantData data = read_literal(scanner_, result.type);
    const ValueId v = graph_.add_value(std::move(result.type));
    name_value(result.name, v, result.at);
    graph_.constants.emplace_back(v, std::move(data));
  }

  void arguments(Node& node) {
    const Schema& schema = graph_.table().schema(*node.op);
    const ValueReader reader = [this](Scanner&) { return value(); };
    if (schema.any_params) {
      node.args.emplace_back(scanner_.quoted());
      const std::int64_t target = scanner_.integer();
      if (target < 0 || target > std::numeric_limits<std::uint32_t>::max()) {
        scanner_.fail("a number of a host callable that cannot be stands before this");
      }
      node.eager_target = static_cast<std::uint32_t>(target);
    }
    scanner_.expect("(");
    bool first = true;
    while (!scanner_.accept(")")) {
      if (!first) scanner_.expect(",");
      first = false;
      const std::size_t i = node.args.size();
      if (i < schema.params.size()) {
        node.args.push_back(read_argument(scanner_, schema.params[i].kind, context(), reader));
      } else if (schema.any_params) {
        node.args.push_back(read_any_argument(scanner_, context(), reader));
      } else {
        scanner_.fail(fmt::format("{} takes {} arguments", node.op->name, schema.params.size()));
      }
    }
  }

  // Completes the arguments and compares the inferred types with those of the text; strides that
  // inference fixes and the text leaves out are taken over.
  void derive(Node& node, std::vector<Result>& results) {
    const Schema& schema = graph_.table().schema(*node.op);
    complete_arguments(node.args, *node.op, schema, context());
    if (node.op->infer == nullptr) return;
    std::vector<Type> types = infer_types(graph_, *node.op, node.args);
    if (types.size() != results.size()) {
      user_error("{}: {} results are given, {} are inferred", node.op->name, results.size(),
                 types.size());
    }
    for (std::size_t i = 0; i < types.size(); ++i) {
      Type& given = results[i].type;
      const std::string wrong = result_difference(*node.op, types[i], given);
      if (!wrong.empty()) user_error("%{}: {}", results[i].name, wrong);
      results[i].states_strides = given.strides.has_value();
      if (!given.strides) given.strides = std::move(types[i].strides);
    }
  }

  void outputs() {
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      if (i > 0) scanner_.expect(",");
      Output& output = graph_.outputs[i];
      if (std::holds_alternative<None>(output.value)) {
        scanner_.expect("none");
      } else if (auto* e = std::get_if<Expr>(&output.value)) {
        *e = sym::parse(scanner_, context());
      } else {
        tensor_output(output, output_types_[i]);
      }
    }
  }

  // %1 | free %1 | %1 in %x at 6 | %1 in 0 at 6
  void tensor_output(Output& output, const Type& stated) {
    if (scanner_.accept("free")) output.sharing = Sharing::free;
    const Scanner::Mark at = scanner_.mark();
    const ValueId v = value();
    output.value = v;
    Type& type = graph_.type(v);
    const bool is_inferred = inferred_strides_.contains(v.index);
    if (output.sharing == Sharing::own && scanner_.accept("in")) {
      view_output(output, stated);
      const bool is_free = !type.strides || is_inferred;
      if (output.sharing == Sharing::storage && is_free) {
        type.strides = contiguous_strides(context(), type.sizes);
      }
      return;
    }
    if (is_inferred) type.strides = stated.strides;
    const std::string wrong = type_difference(stated, type);
    if (!wrong.empty()) {
      scanner_.reset(at);
      scanner_.fail(fmt::format("the header says {}, this is {}", to_string(stated, true),
                                to_string(type, true)));
    }
    if (!type.strides) type.strides = stated.strides;
  }

  void view_output(Output& output, const Type& stated) {
    if (scanner_.peek() == '%') {
      output.sharing = Sharing::argument;
      output.argument = value();
    } else {
      output.sharing = Sharing::storage;
      const std::int64_t number = scanner_.integer();
      if (number < 0 || number > std::numeric_limits<std::uint32_t>::max()) {
        scanner_.fail("a number of a storage that cannot be stands before this");
      }
      output.storage = static_cast<std::uint32_t>(number);
    }
    output.view = stated;
    output.offset = scanner_.accept("at") ? sym::parse(scanner_, context()) : context().constant(0);
  }

  Scanner scanner_;
  Graph graph_;
  std::map<std::string, ValueId> names_;
  std::vector<Type> output_types_;            // by output; nothing in it for integers
  std::set<std::uint32_t> inferred_strides_;  // values whose strides the text leaves to inference
};

}  // namespace

Graph parse(std::string_view text, std::string_view file, const OpTable& table,
            std::shared_ptr<sym::Context> context) {
  if (!context) context = std::make_shared<sym::Context>();
  return GraphParser(text, file, table, std::move(context)).run();
}

}  // namespace inkle::graph
