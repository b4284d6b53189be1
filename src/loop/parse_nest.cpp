#include "loop/parse_nest.h"

#include <fmt/format.h>

#include <limits>

#include "base/error.h"
#include "loop/builder.h"
#include "loop/scope.h"

namespace inkle::loop {
namespace {

using sym::Context;

class NestParser {
 public:
  NestParser(Scanner& s, Program& program, const std::map<std::string, BufferId>& buffers,
             const std::vector<Expr>& sizes)
      : s_(s), program_(program), buffers_(buffers), global_(*program.context) {
    for (const Expr e : sizes) global_.map(copy_symbol(scratch_, e), e);
  }

  Nest run() {
    kind();
    if (nest_.kind != NestKind::eager) dims();
    // The stores may name symbols that the body defines, so they are read after it.
    const Scanner::Mark stores = s_.mark();
    const bool has_body = nest_.kind <= NestKind::scatter;
    if (has_body) {
      while (!s_.accept("{")) {
        if (s_.at_end()) s_.fail("expected '{'");
        skip_token();
      }
      comment();
      body();
      comment();
      const Scanner::Mark end = s_.mark();
      s_.reset(stores);
      read_stores();
      s_.expect("{");
      s_.reset(end);
    } else {
      read_stores();
      detail();
      comment();
    }
    return std::move(nest_);
  }

 private:
  void skip_token() {
    if (s_.accept_identifier()) return;
    for (const std::string_view token : {"->", "[", "]", ",", "(", ")", "+", "-", "*"}) {
      if (s_.accept(token)) return;
    }
    static_cast<void>(s_.integer());
  }

  void kind() {
    std::string_view word = s_.identifier();
    const std::size_t dot = word.find('.');
    if (dot != std::string_view::npos) {
      nest_.reduce = reduce_op(word.substr(dot + 1));
      word = word.substr(0, dot);
    }
    bool found = false;
    for (int k = 0; k <= static_cast<int>(NestKind::eager) && !found; ++k) {
      nest_.kind = static_cast<NestKind>(k);
      found = name_of(nest_.kind) == word;
    }
    if (!found) s_.fail(fmt::format("'{}' is no kind of nest", word));
    const bool reduces = nest_.kind == NestKind::reduction || nest_.kind == NestKind::scan;
    if (reduces != (dot != std::string_view::npos)) s_.fail("expected a kind of reduction");
    if (const auto dtype = s_.accept_identifier()) nest_.accumulator = dtype_named(s_, *dtype);
  }

  ReduceOp reduce_op(std::string_view name) const {
    for (int k = 0; k <= static_cast<int>(ReduceOp::online_softmax); ++k) {
      if (name_of(static_cast<ReduceOp>(k)) == name) return static_cast<ReduceOp>(k);
    }
    s_.fail(fmt::format("'{}' is no reduction", name));
  }

  Dim declare() {
    const std::string name(s_.identifier());
    s_.expect(":");
    const Expr extent = sym::parse(s_, scratch_);
    return declare(name, extent);
  }
  Dim declare(const std::string& name, Expr extent) {
    if (scratch_.find_symbol(name)) s_.fail(fmt::format("'{}' is declared twice", name));
    const Expr local = named_index(scratch_, name, extent);
    const Dim dim{program_.context->index(global_(extent)), global_(extent)};
    global_.map(local, dim.variable);
    return dim;
  }

  void dims() {
    s_.expect("[");
    bool reduced = false;
    bool first = true;
    while (!s_.accept("]")) {
      if (s_.accept("|")) {
        reduced = true;
      } else if (!first) {
        s_.expect(",");
      }
      first = false;
      (reduced ? nest_.reduced : nest_.dims).push_back(declare());
    }
  }

  void comment() {
    const std::string text = s_.take_comment();
    if (text.empty()) return;
    const std::size_t at = text.rfind("at ", 0) == 0 ? 0 : text.find(" at ");
    nest_.label = text.substr(0, at);
    if (at == std::string::npos) return;
    nest_.source = text.substr(at + (at == 0 ? 3 : 4));
  }

  BufferId buffer() {
    const std::string name(s_.identifier());
    const auto it = buffers_.find(name);
    if (it == buffers_.end()) s_.fail(fmt::format("no buffer '{}'", name));
    return it->second;
  }

  Access access() {
    Access a{.buffer = buffer()};
    s_.expect("[");
    for (const Expr e : parse_expressions(s_, scratch_, "]")) a.indices.push_back(global_(e));
    if (a.indices.size() != program_.buffers[a.buffer].sizes.size()) {
      s_.fail(fmt::format("{} indices into '{}' of rank {}", a.indices.size(),
                          program_.buffers[a.buffer].name,
                          program_.buffers[a.buffer].sizes.size()));
    }
    return a;
  }

  void read_stores() {
    if (nest_.kind == NestKind::eager || !s_.accept("->")) return;
    do {
      Store store;
      if (s_.accept("add")) store.mode = StoreMode::atomic_add;
      Access a = access();
      store.buffer = a.buffer;
      store.indices = std::move(a.indices);
      store.result = static_cast<std::uint32_t>(nest_.stores.size());
      if (s_.accept("of")) store.result = parse_count(s_);
      nest_.stores.push_back(std::move(store));
    } while (s_.accept(","));
  }

  // --- Bodies ------------------------------------------------------------------------------------

  void body() {
    BodyBuilder b(nest_.body, *program_.context);
    while (!s_.accept("yield")) {
      if (s_.accept("%")) {
        const std::int64_t number = s_.integer();
        if (number != static_cast<std::int64_t>(named_.size())) s_.fail("values out of order");
        s_.expect("=");
        named_.push_back(value(b));
        continue;
      }
      const std::string name(s_.identifier());
      s_.expect(":");
      const Expr extent = sym::parse(s_, scratch_);
      s_.expect("=");
      s_.expect("indirect");
      s_.expect("(");
      const Val v = value(b);
      s_.expect(")");
      b.append({.opcode = Opcode::indirect,
                .dtype = DType::i64,
                .operand_count = 1,
                .operands = {v},
                .indices = {declare(name, extent).variable}});
    }
    do {
      b.yield(value(b));
    } while (s_.accept(","));
    s_.expect("}");
  }

  Val value(BodyBuilder& b) {
    if (++depth_ > 200) s_.fail("expression nested too deeply");
    const Val v = nested_value(b);
    --depth_;
    return v;
  }

  Val nested_value(BodyBuilder& b) {
    if (s_.accept("%")) {
      const std::int64_t number = s_.integer();
      if (number < 0 || number >= static_cast<std::int64_t>(named_.size())) {
        s_.fail(fmt::format("no value %{}", number));
      }
      return named_[static_cast<std::size_t>(number)];
    }
    if (s_.next_is_number()) return number(b);
    if (s_.accept("true")) return b.constant(DType::boolean, 1);
    if (s_.accept("false")) return b.constant(DType::boolean, 0);
    const std::string word(s_.identifier());
    if (word == "load") {
      Access a = access();
      return b.load(a.buffer, program_.buffers[a.buffer].dtype, std::move(a.indices));
    }
    s_.expect("(");
    if (word == "index") {
      const Expr e = global_(sym::parse(s_, scratch_));
      s_.expect(")");
      return b.append({.opcode = Opcode::index, .dtype = DType::i64, .indices = {e}});
    }
    if (word == "load_if") return load_if(b);
    return operation(b, word);
  }

  Val number(BodyBuilder& b) {
    bool is_integer = false;
    std::int64_t integer = 0;
    const double real = s_.number(is_integer, integer);
    DType dtype = is_integer ? DType::i64 : DType::f32;
    if (s_.accept(":")) dtype = dtype_named(s_, s_.identifier());
    if (!abi::is_computable(dtype)) s_.fail("a constant of a type without arithmetic");
    return is_integer ? b.constant(dtype, integer) : b.constant(dtype, real);
  }

  Val load_if(BodyBuilder& b) {
    const Val predicate = value(b);
    s_.expect(",");
    const Val otherwise = value(b);
    s_.expect(",");
    Access a = access();
    s_.expect(")");
    return b.append({.opcode = Opcode::load,
                     .dtype = program_.buffers[a.buffer].dtype,
                     .operand_count = 2,
                     .operands = {predicate, otherwise},
                     .buffer = a.buffer,
                     .indices = std::move(a.indices)});
  }

  Val operation(BodyBuilder& b, std::string_view word) {
    Instruction i;
    const std::size_t dot = word.find('.');
    const auto opcode = opcode_from_name(word.substr(0, dot));
    const bool typed = opcode == Opcode::cast || opcode == Opcode::bitcast;
    if (!opcode || typed != (dot != std::string_view::npos) || operand_count(*opcode) == 0) {
      s_.fail(fmt::format("'{}' is no operation", word));
    }
    i.opcode = *opcode;
    while (!s_.accept(")")) {
      if (i.operand_count > 0) s_.expect(",");
      if (i.operand_count == operand_count(*opcode)) s_.fail("too many operands");
      i.operands[i.operand_count] = value(b);
      ++i.operand_count;
    }
    if (i.operand_count != operand_count(*opcode)) s_.fail("too few operands");
    const DType first = b.dtype(i.operands[0]);
    switch (kind_of(*opcode)) {
      case OpcodeKind::leaf:
        i.dtype = DType::i64;
        break;
      case OpcodeKind::structure:
        i.dtype = typed ? dtype_named(s_, word.substr(dot + 1)) : b.dtype(i.operands[1]);
        break;
      case OpcodeKind::unary:
      case OpcodeKind::binary:
      case OpcodeKind::ternary:
        i.dtype = first;
        break;
      case OpcodeKind::test:
      case OpcodeKind::comparison:
        i.dtype = DType::boolean;
        break;
    }
    if (typed && !abi::is_computable(i.dtype)) s_.fail("a cast to a type without arithmetic");
    return b.append(std::move(i));
  }

  // --- Contractions and calls --------------------------------------------------------------------

  void detail() {
    switch (nest_.kind) {
      case NestKind::matmul:
        matmul();
        break;
      case NestKind::convolution:
        convolution();
        break;
      case NestKind::attention:
        attention();
        break;
      case NestKind::eager:
        eager();
        break;
      default:
        break;
    }
  }

  void matmul() {
    Matmul m;
    s_.expect("{");
    s_.expect("mul");
    s_.expect("(");
    s_.expect("load");
    m.a = access();
    s_.expect(",");
    s_.expect("load");
    m.b = access();
    s_.expect(")");
    s_.expect("}");
    nest_.detail = std::move(m);
  }

  std::vector<std::int64_t> integers() {
    std::vector<std::int64_t> list;
    s_.expect("[");
    while (!s_.accept("]")) {
      if (!list.empty()) s_.expect(",");
      list.push_back(s_.integer());
    }
    return list;
  }

  void convolution() {
    Convolution c;
    s_.expect("x");
    c.x = buffer();
    s_.expect("w");
    c.w = buffer();
    if (s_.accept("bias")) c.bias = buffer();
    s_.expect("stride");
    c.stride = integers();
    s_.expect("padding");
    c.padding = integers();
    s_.expect("dilation");
    c.dilation = integers();
    s_.expect("output_padding");
    c.output_padding = integers();
    s_.expect("groups");
    c.groups = s_.integer();
    c.transposed = s_.accept("transposed");
    c.weight_gradient = s_.accept("weight_gradient");
    nest_.detail = std::move(c);
  }

  void attention() {
    Attention a;
    s_.expect("over");
    s_.expect("[");
    for (std::size_t n = 0; n < 4; ++n) {
      if (n > 0) s_.expect(",");
      a.variables[n] = declare().variable;
    }
    s_.expect("]");
    s_.expect("q");
    a.q = access();
    s_.expect("k");
    a.k = access();
    s_.expect("v");
    a.v = access();
    if (s_.accept("mask")) a.mask = access();
    s_.expect("sizes");
    s_.expect("[");
    const std::vector<Expr> sizes = parse_expressions(s_, scratch_, "]");
    if (sizes.size() != 7) s_.fail("expected seven sizes");
    Expr* const targets[] = {&a.batch,     &a.heads,    &a.kv_heads, &a.q_length,
                             &a.kv_length, &a.head_dim, &a.value_dim};
    for (std::size_t n = 0; n < 7; ++n) *targets[n] = global_(sizes[n]);
    s_.expect("scale");
    bool is_integer = false;
    std::int64_t integer = 0;
    a.scale = s_.number(is_integer, integer);
    a.is_causal = s_.accept("causal");
    a.safe = !s_.accept("unsafe");
    if (s_.accept("lse")) a.lse = buffer();
    if (s_.accept("hidden")) a.hidden = s_.number(is_integer, integer);
    if (s_.accept("dropout")) {
      Attention::Dropout dropout;
      dropout.p = s_.number(is_integer, integer);
      s_.expect("number");
      dropout.number = s_.integer();
      s_.expect("seed");
      dropout.seed = buffer();
      a.dropout = dropout;
    }
    if (s_.accept("statistics")) a.statistics = buffer();
    if (s_.accept("gradient")) {
      Attention::Gradient gradient;
      gradient.grad = access();
      s_.expect("out");
      gradient.out = access();
      s_.expect("of");
      gradient.statistics = buffer();
      a.gradient = std::move(gradient);
    }
    nest_.detail = std::move(a);
  }

  void eager() {
    EagerCall call;
    call.name = s_.quoted();
    s_.expect("target");
    call.target = parse_count(s_);
    s_.expect("(");
    while (!s_.accept(")")) {
      if (!call.arguments.empty()) s_.expect(",");
      if (s_.accept("int"))
        call.arguments.emplace_back(global_(sym::parse(s_, scratch_)));
      else
        call.arguments.emplace_back(buffer());
    }
    s_.expect("->");
    s_.expect("(");
    while (!s_.accept(")")) {
      if (!call.results.empty()) s_.expect(",");
      call.results.push_back(buffer());
    }
    nest_.detail = std::move(call);
  }

  Scanner& s_;
  Program& program_;
  const std::map<std::string, BufferId>& buffers_;
  Context scratch_;
  Translation global_;
  Nest nest_;
  std::vector<Val> named_;
  int depth_ = 0;
};

}  // namespace

DType dtype_named(Scanner& s, std::string_view name) {
  const auto dtype = abi::dtype_from_name(name);
  if (!dtype) s.fail(fmt::format("'{}' is no dtype", name));
  return *dtype;
}

std::vector<Expr> parse_expressions(Scanner& s, Context& context, std::string_view end) {
  std::vector<Expr> list;
  while (!s.accept(end)) {
    if (!list.empty()) s.expect(",");
    list.push_back(sym::parse(s, context));
  }
  return list;
}

std::uint32_t parse_count(Scanner& s) {
  const std::int64_t value = s.integer();
  if (value < 0 || value > std::numeric_limits<std::int32_t>::max()) s.fail("number out of range");
  return static_cast<std::uint32_t>(value);
}

Nest parse_nest(Scanner& scanner, Program& program, const std::map<std::string, BufferId>& buffers,
                const std::vector<Expr>& sizes) {
  return NestParser(scanner, program, buffers, sizes).run();
}

}  // namespace inkle::loop
