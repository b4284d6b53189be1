// Programs as text; parse.cpp reads what this writes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "loop/program.h"
#include "loop/scope.h"

namespace inkle::loop {
namespace {

using sym::Context;

std::string expressions(const std::vector<Expr>& list) {
  std::string out;
  for (const Expr e : list) out += fmt::format("{}{}", out.empty() ? "" : ",", to_string(e));
  return out;
}

// Shortest text that reads back to the same number of the dtype.
std::string literal(DType dtype, double real, std::int64_t integer) {
  if (dtype == DType::boolean) return integer != 0 ? "true" : "false";
  if (dtype == DType::i64) return fmt::format("{}", integer);
  if (!abi::is_float(dtype)) return fmt::format("{}:{}", integer, abi::name_of(dtype));
  std::string text = print_double(real);
  if (dtype != DType::f64 && std::isfinite(real)) {
    const auto narrow = static_cast<float>(real);
    std::string shorter = fmt::format("{}", narrow);
    if (shorter.find_first_of(".e") == std::string::npos) shorter += ".0";
    if (static_cast<float>(std::stod(shorter)) == narrow) text = shorter;
  }
  return dtype == DType::f32 ? text : fmt::format("{}:{}", text, abi::name_of(dtype));
}

void add_symbols(std::map<std::uint32_t, Expr>& all, const Context& context, Expr e) {
  if (e.is_null()) return;
  for (const Expr s : sym::symbols(e)) {
    if (context.info(s).extent.is_null()) all.emplace(s.id(), s);
  }
}

// Every size symbol of the program, in order of creation.
std::vector<Expr> size_symbols(const Program& p) {
  std::map<std::uint32_t, Expr> all;
  const auto add = [&](Expr e) { add_symbols(all, *p.context, e); };
  const auto add_all = [&](const std::vector<Expr>& list) {
    for (const Expr e : list) add(e);
  };
  for (const Argument& a : p.arguments) add(a.symbol);
  for (const Buffer& b : p.buffers) {
    add_all(b.sizes);
    if (b.strides) add_all(*b.strides);
    add(b.offset);
  }
  for (const ProgramOutput& o : p.outputs) {
    add(o.integer);
    add_all(o.sizes);
    add_all(o.strides);
    add(o.offset);
  }
  for (const Nest& nest : p.nests) {
    for (const Dim& d : nest.dims) add(d.extent);
    for (const Dim& d : nest.reduced) add(d.extent);
    for (const Instruction& i : nest.body.instructions) {
      add_all(i.indices);
      if (i.opcode == Opcode::indirect) add(p.context->info(i.indices[0]).extent);
    }
    for (const Store& s : nest.stores) add_all(s.indices);
    if (const auto* m = std::get_if<Matmul>(&nest.detail)) {
      add_all(m->a.indices);
      add_all(m->b.indices);
    } else if (const auto* a = std::get_if<Attention>(&nest.detail)) {
      for (const Expr e : {a->batch, a->heads, a->kv_heads, a->q_length, a->kv_length, a->head_dim,
                           a->value_dim}) {
        add(e);
      }
      for (const Access* access : {&a->q, &a->k, &a->v}) add_all(access->indices);
      if (a->mask) add_all(a->mask->indices);
    } else if (const auto* call = std::get_if<EagerCall>(&nest.detail)) {
      for (const auto& argument : call->arguments) {
        if (const auto* e = std::get_if<Expr>(&argument)) add(*e);
      }
    }
  }
  std::vector<Expr> list;
  for (const auto& [id, symbol] : all) list.push_back(symbol);
  return list;
}

class NestPrinter {
 public:
  NestPrinter(const Program& program, const std::vector<Expr>& sizes, const Nest& nest)
      : program_(program), nest_(nest), local_(scratch_) {
    for (const Expr s : sizes) local_.map(s, copy_symbol(scratch_, s));
  }

  std::string run(std::size_t number) {
    std::string head = fmt::format("  n{}: {}", number, name_of(nest_.kind));
    if (nest_.kind == NestKind::reduction || nest_.kind == NestKind::scan) {
      head += fmt::format(".{}", name_of(nest_.reduce));
    }
    const bool has_body = nest_.kind <= NestKind::scatter;
    const bool typed = nest_.kind != NestKind::pointwise && nest_.kind != NestKind::scatter &&
                       nest_.kind != NestKind::eager;
    if (typed) head += fmt::format(" {}", abi::name_of(nest_.accumulator));
    if (nest_.kind != NestKind::eager) head += fmt::format(" [{}]", dims());
    // Bodies first: their indirect symbols may be named by the stores.
    const std::string content = has_body ? body() : "";
    head += stores();
    const std::string comment = this->comment();
    if (!has_body) return head + detail() + comment + "\n";
    if (content.find('\n') == std::string::npos) {
      return fmt::format("{} {{ {} }}{}\n", head, content, comment);
    }
    return fmt::format("{} {{{}\n    {}\n  }}\n", head, comment, content);
  }

 private:
  struct Pending {
    Val value;
    std::string text;
  };

  [[nodiscard]] std::string comment() const {
    std::string text = nest_.label;
    if (!nest_.source.empty()) {
      text += fmt::format("{}at {}", text.empty() ? "" : " ", nest_.source);
    }
    return text.empty() ? "" : "  # " + text;
  }

  std::string declare(Expr variable, std::string name, Expr extent) {
    const Expr local = named_index(scratch_, std::move(name), local_(extent));
    local_.map(variable, local);
    return fmt::format("{}: {}", local.name(), text(extent));
  }

  std::string dims() {
    std::string out;
    std::size_t n = 0;
    for (const Dim& d : nest_.dims) {
      out += fmt::format("{}{}", n == 0 ? "" : ", ",
                         declare(d.variable, fmt::format("i{}", n), d.extent));
      ++n;
    }
    n = 0;
    for (const Dim& d : nest_.reduced) {
      const char* separator = n > 0 ? ", " : out.empty() ? "| " : " | ";
      out += fmt::format("{}{}", separator, declare(d.variable, fmt::format("r{}", n), d.extent));
      ++n;
    }
    return out;
  }

  [[nodiscard]] std::string text(Expr e) const { return to_string(local_(e)); }
  [[nodiscard]] std::string access(BufferId buffer, const std::vector<Expr>& indices) const {
    std::string out = program_.buffers[buffer].name + "[";
    for (std::size_t i = 0; i < indices.size(); ++i) {
      out += fmt::format("{}{}", i == 0 ? "" : ",", text(indices[i]));
    }
    return out + "]";
  }
  [[nodiscard]] std::string access(const Access& a) const { return access(a.buffer, a.indices); }

  std::string stores() const {
    std::string out;
    for (std::size_t n = 0; n < nest_.stores.size(); ++n) {
      const Store& store = nest_.stores[n];
      out += n == 0 ? " -> " : ", ";
      if (store.mode == StoreMode::atomic_add) out += "add ";
      out += access(store.buffer, store.indices);
      if (store.result != n) out += fmt::format(" of {}", store.result);
    }
    return out;
  }

  // --- Bodies: values used once are printed inside their use where that keeps the order ----------

  std::string body() {
    const Body& body = nest_.body;
    uses_.assign(body.instructions.size(), 0);
    names_.assign(body.instructions.size(), "");
    for (const Instruction& i : body.instructions) {
      for (const Val v : i.used()) ++uses_[v];
    }
    for (const Val v : body.yields) ++uses_[v];
    for (Val v = 0; v < body.instructions.size(); ++v) statement(v);
    std::vector<Val> yields = body.yields;
    const std::vector<std::string> texts = take(yields);
    flush();
    lines_.push_back(fmt::format("yield {}", fmt::join(texts, ", ")));
    return fmt::format("{}", fmt::join(lines_, "\n    "));
  }

  void statement(Val v) {
    const Instruction& i = nest_.body[v];
    const std::vector<std::string> operands = take(i.used());
    if (i.opcode == Opcode::indirect) {
      flush();
      const Expr symbol = i.indices[0];
      lines_.push_back(fmt::format(
          "{} = indirect({})",
          declare(symbol, fmt::format("j{}", indirect_++), program_.context->info(symbol).extent),
          operands[0]));
      names_[v] = "indirect";
      return;
    }
    std::string value = expression(i, operands);
    if (uses_[v] == 1) {
      pending_.push_back({v, std::move(value)});
      return;
    }
    flush();
    name(v, value);
  }

  // Texts of the operands. Those that are the last pending values, in order, are taken from there;
  // if that does not fit, everything pending gets a name first.
  std::vector<std::string> take(std::span<const Val> operands) {
    std::vector<Val> inside;
    for (const Val v : operands) {
      if (names_[v].empty()) inside.push_back(v);
    }
    const bool fits = inside.size() <= pending_.size() &&
                      std::equal(inside.begin(), inside.end(),
                                 pending_.end() - static_cast<std::ptrdiff_t>(inside.size()),
                                 [](Val v, const Pending& p) { return v == p.value; });
    if (!fits) flush();
    std::size_t next = fits ? pending_.size() - inside.size() : 0;
    std::vector<std::string> texts;
    for (const Val v : operands) {
      texts.push_back(names_[v].empty() ? pending_[next++].text : names_[v]);
    }
    if (fits) pending_.resize(pending_.size() - inside.size());
    return texts;
  }

  void name(Val v, const std::string& value) {
    names_[v] = fmt::format("%{}", named_++);
    lines_.push_back(fmt::format("{} = {}", names_[v], value));
  }

  void flush() {
    for (const Pending& p : pending_) name(p.value, p.text);
    pending_.clear();
  }

  std::string expression(const Instruction& i, const std::vector<std::string>& operands) const {
    const std::string list = fmt::format("{}", fmt::join(operands, ", "));
    switch (i.opcode) {
      case Opcode::constant:
        return literal(i.dtype, i.real, i.integer);
      case Opcode::index:
        return fmt::format("index({})", text(i.indices[0]));
      case Opcode::load:
        if (i.operand_count == 0) return "load " + access(i.buffer, i.indices);
        return fmt::format("load_if({}, {})", list, access(i.buffer, i.indices));
      case Opcode::cast:
      case Opcode::bitcast:
        return fmt::format("{}.{}({})", name_of(i.opcode), abi::name_of(i.dtype), list);
      case Opcode::row:
        return fmt::format("row.{}({})", abi::name_of(i.dtype), i.integer);
      default:
        return fmt::format("{}({})", name_of(i.opcode), list);
    }
  }

  // --- Contractions and calls --------------------------------------------------------------------

  std::string detail() {
    if (const auto* m = std::get_if<Matmul>(&nest_.detail)) {
      return fmt::format(" {{ mul(load {}, load {}) }}", access(m->a), access(m->b));
    }
    if (const auto* c = std::get_if<Convolution>(&nest_.detail)) return convolution(*c);
    if (const auto* a = std::get_if<Attention>(&nest_.detail)) return attention(*a);
    if (const auto* e = std::get_if<EagerCall>(&nest_.detail)) return eager(*e);
    return "";
  }

  std::string convolution(const Convolution& c) const {
    const auto list = [](const std::vector<std::int64_t>& v) {
      return fmt::format("[{}]", fmt::join(v, ","));
    };
    std::string out =
        fmt::format(" x {} w {}", program_.buffers[c.x].name, program_.buffers[c.w].name);
    if (c.bias) out += fmt::format(" bias {}", program_.buffers[*c.bias].name);
    out +=
        fmt::format(" stride {} padding {} dilation {} output_padding {} groups {}", list(c.stride),
                    list(c.padding), list(c.dilation), list(c.output_padding), c.groups);
    if (c.transposed) out += " transposed";
    if (c.weight_gradient) out += " weight_gradient";
    return out;
  }

  std::string attention(const Attention& a) {
    std::string out = " over [";
    for (std::size_t n = 0; n < 4; ++n) {
      const Expr v = a.variables[n];
      out += fmt::format("{}{}", n == 0 ? "" : ", ",
                         declare(v, fmt::format("a{}", n), program_.context->info(v).extent));
    }
    out += fmt::format("] q {} k {} v {}", access(a.q), access(a.k), access(a.v));
    if (a.mask) out += fmt::format(" mask {}", access(*a.mask));
    out += fmt::format(" sizes [{},{},{},{},{},{},{}] scale {}", text(a.batch), text(a.heads),
                       text(a.kv_heads), text(a.q_length), text(a.kv_length), text(a.head_dim),
                       text(a.value_dim), print_double(a.scale));
    if (a.is_causal) out += " causal";
    if (!a.safe) out += " unsafe";
    if (a.lse) out += fmt::format(" lse {}", program_.buffers[*a.lse].name);
    if (a.hidden != kHides) out += fmt::format(" hidden {}", print_double(a.hidden));
    if (a.dropout) {
      out += fmt::format(" dropout {} number {} seed {}", print_double(a.dropout->p),
                         a.dropout->number, program_.buffers[a.dropout->seed].name);
    }
    if (a.statistics) out += fmt::format(" statistics {}", program_.buffers[*a.statistics].name);
    if (a.gradient) {
      out += fmt::format(" gradient {} out {} of {}", access(a.gradient->grad),
                         access(a.gradient->out), program_.buffers[a.gradient->statistics].name);
    }
    return out;
  }

  std::string eager(const EagerCall& call) const {
    std::string out = fmt::format(" {} target {} (", quote(call.name), call.target);
    for (std::size_t n = 0; n < call.arguments.size(); ++n) {
      const auto& argument = call.arguments[n];
      if (n > 0) out += ", ";
      if (const auto* b = std::get_if<BufferId>(&argument))
        out += program_.buffers[*b].name;
      else
        out += fmt::format("int {}", text(std::get<Expr>(argument)));
    }
    out += ") -> (";
    for (std::size_t n = 0; n < call.results.size(); ++n) {
      out += fmt::format("{}{}", n == 0 ? "" : ", ", program_.buffers[call.results[n]].name);
    }
    return out + ")";
  }

  const Program& program_;
  const Nest& nest_;
  Context scratch_;
  Translation local_;
  std::vector<std::uint32_t> uses_;
  std::vector<std::string> names_;
  std::vector<Pending> pending_;
  std::vector<std::string> lines_;
  std::size_t named_ = 0;
  std::size_t indirect_ = 0;
};

std::string print_symbol(const Context& context, Expr symbol) {
  const sym::SymbolInfo& info = context.info(symbol);
  std::string out = fmt::format("{} in ", symbol.name());
  if (info.range.low != sym::Range::kMin) out += fmt::format("{}", info.range.low);
  out += "..";
  if (info.range.high != sym::Range::kMax) out += fmt::format("{}", info.range.high);
  if (info.divisor != 1) out += fmt::format(" divisor {}", info.divisor);
  if (info.hint) out += fmt::format(" hint {}", *info.hint);
  return out;
}

std::string print_argument(const Program& p, const Argument& a) {
  if (a.buffer) {
    const std::string& name = p.buffers[*a.buffer].name;
    return name == a.name ? name : fmt::format("{} = {}", a.name, name);
  }
  const bool plain = a.symbol.kind() == sym::Kind::symbol && a.symbol.name() == a.name;
  return plain ? a.name + ": int" : fmt::format("{}: int = {}", a.name, to_string(a.symbol));
}

std::string print_buffer(const Program& p, const Buffer& b) {
  std::string out = fmt::format("  {}: ", b.name);
  switch (b.role) {
    case BufferRole::input:
      out += fmt::format("input {} ", b.index);
      break;
    case BufferRole::output:
      out += fmt::format("output {} ", b.index);
      break;
    case BufferRole::temporary:
      break;
    case BufferRole::constant:
      out += fmt::format("constant {} ", b.index);
      break;
  }
  out += fmt::format("{}[{}]", abi::name_of(b.dtype), expressions(b.sizes));
  if (b.strides) out += fmt::format("{{{}}}", expressions(*b.strides));
  if (b.device.kind == abi::DeviceKind::cuda) out += fmt::format(" cuda {}", b.device.index);
  if (!b.offset.is_null()) out += fmt::format(" offset {}", to_string(b.offset));
  if (b.is_parameter) out += " param";
  if (b.writes_into) out += fmt::format(" writes_into {}", p.buffers[*b.writes_into].name);
  return out + "\n";
}

std::string print_output(const Program& p, const ProgramOutput& o) {
  if (o.kind == ProgramOutput::Kind::none) return "none";
  if (o.kind == ProgramOutput::Kind::integer) return fmt::format("int {}", to_string(o.integer));
  std::string out =
      fmt::format("{}{} [{}]{{{}}}", o.kind == ProgramOutput::Kind::input ? "input " : "",
                  p.buffers[o.buffer].name, expressions(o.sizes), expressions(o.strides));
  if (!o.offset.is_constant(0)) out += fmt::format(" offset {}", to_string(o.offset));
  return out;
}

}  // namespace

std::string to_string(const Program& p) {
  const std::vector<Expr> sizes = size_symbols(p);
  std::string out = fmt::format("loops @{} {{\n", p.name);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    out += fmt::format("{}{}{}", i == 0 ? "  symbols " : ", ", print_symbol(*p.context, sizes[i]),
                       i + 1 == sizes.size() ? "\n" : "");
  }
  for (std::size_t i = 0; i < p.arguments.size(); ++i) {
    out += fmt::format("{}{}{}", i == 0 ? "  arguments " : ", ", print_argument(p, p.arguments[i]),
                       i + 1 == p.arguments.size() ? "\n" : "");
  }
  for (std::size_t i = 0; i < p.constants.size(); ++i) {
    out += fmt::format("  data {} \"", i);
    if (p.constants[i].bytes != nullptr) {
      for (const std::byte b : *p.constants[i].bytes) {
        fmt::format_to(std::back_inserter(out), "{:02x}", std::to_integer<unsigned>(b));
      }
    }
    out += "\"\n";
  }
  for (const Buffer& b : p.buffers) out += print_buffer(p, b);
  for (std::size_t n = 0; n < p.nests.size(); ++n) {
    out += NestPrinter(p, sizes, p.nests[n]).run(n);
  }
  out += "  return";
  for (std::size_t i = 0; i < p.outputs.size(); ++i) {
    out += fmt::format("{}{}", i == 0 ? " " : ", ", print_output(p, p.outputs[i]));
  }
  return out + "\n}\n";
}

}  // namespace inkle::loop
