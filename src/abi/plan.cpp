#include "abi/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace inkle::abi {

std::string_view name_of(PostOpKind kind) {
  switch (kind) {
    case PostOpKind::relu:
      return "relu";
    case PostOpKind::gelu_erf:
      return "gelu_erf";
    case PostOpKind::gelu_tanh:
      return "gelu_tanh";
    case PostOpKind::tanh:
      return "tanh";
    case PostOpKind::logistic:
      return "logistic";
    case PostOpKind::swish:
      return "swish";
    case PostOpKind::hardswish:
      return "hardswish";
    case PostOpKind::hardsigmoid:
      return "hardsigmoid";
    case PostOpKind::elu:
      return "elu";
    case PostOpKind::leaky_relu:
      return "leaky_relu";
    case PostOpKind::clip:
      return "clip";
    case PostOpKind::linear:
      return "linear";
    case PostOpKind::abs:
      return "abs";
    case PostOpKind::square:
      return "square";
    case PostOpKind::sqrt:
      return "sqrt";
    case PostOpKind::exp:
      return "exp";
    case PostOpKind::add:
      return "add";
    case PostOpKind::mul:
      return "mul";
  }
  return "?";
}

std::string_view symbol_of(Guard::Relation relation) {
  switch (relation) {
    case Guard::Relation::equal:
      return "==";
    case Guard::Relation::not_equal:
      return "!=";
    case Guard::Relation::less:
      return "<";
    case Guard::Relation::less_equal:
      return "<=";
  }
  return "?";
}

namespace {

using Op = SizeInstruction::Op;

// A slot as text, and how tightly it binds: 2 atom, 1 product, 0 sum.
struct Term {
  std::string text = "?";
  int binding = 2;
  std::optional<std::int64_t> constant;
};

class Printer {
 public:
  explicit Printer(const Plan& plan) : plan_(plan), terms_(plan.slot_count) {
    for (const SizeInstruction& i : plan.size_program) {
      if (i.result < terms_.size()) terms_[i.result] = term(i);
    }
  }

  std::string print() {
    text_ = fmt::format("plan @{}(", plan_.name);
    for (std::size_t i = 0; i < plan_.arguments.size(); ++i) argument(i);
    text_ += ") {\n";
    for (const Guard& g : plan_.guards) {
      line("guard {} {} {}", slot(g.a), symbol_of(g.relation), slot(g.b));
    }
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) declaration(static_cast<PlanBuffer>(b));
    for (std::size_t r = 0; r < plan_.regions.size(); ++r) {
      line("region {} {{", r);
      for (const PlanStep& s : plan_.regions[r].steps) line("  {}", step(s));
      line("}}");
    }
    for (const PlanStep& s : plan_.steps) line("{}", step(s));
    std::string results;
    for (const PlanOutput& o : plan_.outputs) results += (results.empty() ? "" : ", ") + result(o);
    line("return {}", results.empty() ? "nothing" : results);
    return text_ + "}\n";
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_ += "  " + fmt::format(format, std::forward<Args>(args)...) + "\n";
  }

  [[nodiscard]] std::string argument_name(std::int64_t index) const {
    const auto i = static_cast<std::size_t>(index);
    return i < plan_.arguments.size() ? plan_.arguments[i].name : "?";
  }
  [[nodiscard]] std::string bound(Slot s, int binding) const {
    if (s >= terms_.size()) return "?";
    return terms_[s].binding < binding ? "(" + terms_[s].text + ")" : terms_[s].text;
  }
  [[nodiscard]] std::string slot(Slot s) const { return bound(s, 0); }

  [[nodiscard]] Term term(const SizeInstruction& i) const {
    switch (i.op) {
      case Op::constant:
        return {.text = fmt::format("{}", i.immediate),
                .binding = i.immediate < 0 ? 0 : 2,
                .constant = i.immediate};
      case Op::argument:
        return {.text = argument_name(i.immediate)};
      case Op::size:
        return {.text = fmt::format("size({}, {})", argument_name(i.immediate), i.b)};
      case Op::stride:
        return {.text = fmt::format("stride({}, {})", argument_name(i.immediate), i.b)};
      case Op::add:
        return {.text = bound(i.a, 0) + " + " + bound(i.b, 0), .binding = 0};
      case Op::mul:
        return {.text = bound(i.a, 1) + "*" + bound(i.b, 1), .binding = 1};
      case Op::floordiv:
        return {.text = bound(i.a, 1) + "//" + bound(i.b, 2), .binding = 1};
      case Op::mod:
        return {.text = bound(i.a, 1) + "%" + bound(i.b, 2), .binding = 1};
      case Op::min:
        return {.text = "min(" + slot(i.a) + ", " + slot(i.b) + ")"};
      case Op::max:
        return {.text = "max(" + slot(i.a) + ", " + slot(i.b) + ")"};
    }
    return {};
  }

  [[nodiscard]] std::string list(const std::vector<Slot>& slots) const {
    std::string text;
    for (const Slot s : slots) text += (text.empty() ? "" : ",") + slot(s);
    return text;
  }

  // Known to be contiguous: every stride is the text or the number that the sizes give.
  [[nodiscard]] bool is_contiguous(const std::vector<Slot>& sizes,
                                   const std::vector<Slot>& strides) const {
    std::optional<std::int64_t> step = 1;
    for (std::size_t d = sizes.size(); d-- > 0;) {
      if (strides[d] >= terms_.size() || sizes[d] >= terms_.size()) return false;
      const auto size = terms_[sizes[d]].constant;
      if (size != 1 && (!step || terms_[strides[d]].constant != step)) return false;
      step = size && step ? std::optional(*size * *step) : std::nullopt;
    }
    return true;
  }

  [[nodiscard]] std::string type(DType dtype, const std::vector<Slot>& sizes,
                                 const std::vector<Slot>& strides) const {
    std::string text = fmt::format("{}[{}]", name_of(dtype), list(sizes));
    if (sizes.size() == strides.size() && !is_contiguous(sizes, strides)) {
      text += fmt::format(" strides ({})", list(strides));
    }
    return text;
  }

  void argument(std::size_t i) {
    const PlanArgument& a = plan_.arguments[i];
    if (i != 0) text_ += ", ";
    text_ += a.name + ": ";
    if (a.is_integer) {
      text_ += "int";
      return;
    }
    text_ += type(a.dtype, a.sizes, a.strides);
    if (a.alignment > 1) text_ += fmt::format(" align {}", a.alignment);
    if (a.is_parameter) text_ += " parameter";
  }

  [[nodiscard]] std::string name(PlanBuffer b) const {
    if (b >= plan_.buffers.size()) return "?";
    const BufferDecl& decl = plan_.buffers[b];
    if (decl.kind == BufferDecl::Kind::argument) return argument_name(decl.index);
    return decl.name.empty() ? fmt::format("b{}", b) : decl.name;
  }

  void declaration(PlanBuffer b) {
    const BufferDecl& decl = plan_.buffers[b];
    const std::string what = type(decl.dtype, decl.sizes, decl.strides);
    switch (decl.kind) {
      case BufferDecl::Kind::argument:
        break;
      case BufferDecl::Kind::output:
        line("{} = output {}", name(b), what);
        break;
      case BufferDecl::Kind::arena:
        line("{} = arena {} in steps {}..{}", name(b), what, decl.first_use, decl.last_use);
        break;
      case BufferDecl::Kind::constant:
        line("{} = constant {} {}", name(b), decl.index, what);
        break;
      case BufferDecl::Kind::external:
        line("{} = external {}", name(b), what);
        break;
      case BufferDecl::Kind::alias:
        line("{} = alias {} {}", name(b), name(decl.index), what);
        break;
      case BufferDecl::Kind::prepared:
        line("{} = prepared {}", name(b), what);
        break;
      case BufferDecl::Kind::formal:
        line("{} = formal {}", name(b), what);
        break;
    }
  }

  [[nodiscard]] std::string describe(const Launch& l) const {
    std::string text = "launch ";
    text += l.kernel < plan_.kernels.size() ? plan_.kernels[l.kernel].name : "?";
    std::string operands;
    const std::size_t each = l.buffers.size() / l.instances();
    for (std::size_t b = 0; b < l.buffers.size(); ++b) {
      operands += (b == 0 ? "" : b % each == 0 ? " | " : ", ") + name(l.buffers[b]);
    }
    text += fmt::format(" ({}) over {}", operands, slot(l.extent));
    if (!l.sizes.empty()) text += fmt::format(" sizes [{}]", list(l.sizes));
    return text;
  }

  [[nodiscard]] std::string operand(const Operand& o) const {
    std::string text = fmt::format("{}[{}", name(o.buffer), list(o.sizes));
    if (o.strides.size() == o.sizes.size() && !is_contiguous(o.sizes, o.strides)) {
      text += fmt::format("; {}", list(o.strides));
    }
    text += "]";
    if (o.offset < terms_.size() && terms_[o.offset].constant != 0) {
      text += fmt::format("+{}", bound(o.offset, 1));
    }
    return text;
  }

  [[nodiscard]] std::string post_ops(const std::vector<PostOp>& all) const {
    if (all.empty()) return {};
    std::string text;
    for (const PostOp& p : all) {
      text += (text.empty() ? "" : ", ") + std::string(name_of(p.kind));
      if (p.kind == PostOpKind::add || p.kind == PostOpKind::mul) {
        text += " " + operand(p.operand);
      } else if (p.alpha != 0 || p.beta != 0) {
        text += p.beta == 0 ? fmt::format(" {}", p.alpha) : fmt::format(" {} {}", p.alpha, p.beta);
      }
    }
    return " post-ops {" + text + "}";
  }

  [[nodiscard]] std::string describe(const LibraryCall& call) const {
    return std::visit([this](const auto& c) { return describe(c); }, call);
  }
  [[nodiscard]] std::string describe(const MatmulCall& m) const {
    std::string text = fmt::format("call matmul ({}, {}", operand(m.a), operand(m.b));
    if (m.has_bias) text += ", " + operand(m.bias);
    return fmt::format("{}) -> {}{}", text, operand(m.c), post_ops(m.post_ops));
  }
  [[nodiscard]] std::string describe(const ConvolutionCall& c) const {
    const std::string_view name = c.weight_gradient ? "convolution_weights"
                                  : c.transposed    ? "deconvolution"
                                                    : "convolution";
    std::string text = fmt::format("call {} ({}, {}", name, operand(c.x), operand(c.w));
    if (c.has_bias) text += ", " + operand(c.bias);
    text += fmt::format(") -> {}", operand(c.y));
    const auto numbers = [&](std::string_view label, const std::vector<std::int64_t>& values) {
      if (values.empty()) return;
      std::string joined;
      for (const std::int64_t v : values)
        joined += (joined.empty() ? "" : ",") + fmt::format("{}", v);
      text += fmt::format(" {} [{}]", label, joined);
    };
    numbers("stride", c.stride);
    numbers("padding", c.padding);
    numbers("dilation", c.dilation);
    if (c.transposed) numbers("output_padding", c.output_padding);
    if (c.groups != 1) text += fmt::format(" groups {}", c.groups);
    return text + post_ops(c.post_ops);
  }
  [[nodiscard]] std::string describe(const AttentionCall& a) const {
    std::string text =
        fmt::format("call attention ({}, {}, {}", operand(a.q), operand(a.k), operand(a.v));
    if (a.has_mask) text += ", " + operand(a.mask);
    text += fmt::format(") -> {} scale {}", operand(a.out), a.scale);
    return a.is_causal ? text + " causal" : text;
  }
  [[nodiscard]] std::string describe(const EagerCall& e) const {
    std::string operands;
    for (const EagerArgument& a : e.arguments) {
      operands += operands.empty() ? "" : ", ";
      operands += a.part                                  ? operand(*a.part)
                  : a.kind == EagerArgument::Kind::buffer ? name(a.index)
                                                          : slot(a.index);
    }
    std::string results;
    for (const PlanBuffer b : e.results) results += (results.empty() ? "" : ", ") + name(b);
    return fmt::format("eager {} ({}) -> {}", e.name, operands, results);
  }
  [[nodiscard]] std::string describe(const CopyStep& c) const {
    return fmt::format("copy {} -> {}", name(c.from), name(c.to));
  }

  [[nodiscard]] std::string describe(const Branch& b) const {
    return fmt::format("branch {} ? region {} : region {}", slot(b.condition), b.then_region,
                       b.else_region);
  }
  [[nodiscard]] std::string describe(const Loop& l) const {
    return fmt::format("loop {} times region {}", slot(l.trips), l.body);
  }
  [[nodiscard]] std::string describe(const RegionCall& c) const {
    std::string operands;
    for (std::size_t i = 0; i < std::min(c.formals.size(), c.actuals.size()); ++i) {
      operands +=
          fmt::format("{}{} = {}", i == 0 ? "" : ", ", name(c.formals[i]), name(c.actuals[i]));
    }
    return fmt::format("call region {} ({})", c.region, operands);
  }
  [[nodiscard]] std::string step(const PlanStep& s) const {
    std::string action = std::visit([this](const auto& a) { return describe(a); }, s.action);
    if (s.prepare) action = "prepare " + action;
    return s.source.empty() ? action : action + "  # " + s.source;
  }

  [[nodiscard]] std::string result(const PlanOutput& o) const {
    switch (o.kind) {
      case PlanOutput::Kind::none:
        return "none";
      case PlanOutput::Kind::integer:
        return slot(o.index);
      case PlanOutput::Kind::argument:
        return argument_name(o.index);
      case PlanOutput::Kind::buffer:
        break;
    }
    if (o.index >= plan_.buffers.size()) return "?";
    const BufferDecl& b = plan_.buffers[o.index];
    const bool is_whole = o.sizes == b.sizes && o.strides == b.strides &&
                          o.offset < terms_.size() && terms_[o.offset].constant == 0;
    if (is_whole) return name(o.index);
    return operand({.buffer = o.index,
                    .dtype = b.dtype,
                    .offset = o.offset,
                    .sizes = o.sizes,
                    .strides = o.strides});
  }

  const Plan& plan_;
  std::vector<Term> terms_;
  std::string text_;
};

}  // namespace

std::string to_string(const Plan& plan) { return Printer(plan).print(); }

bool is_nested(const PlanStep& step) {
  return std::holds_alternative<Branch>(step.action) || std::holds_alternative<Loop>(step.action) ||
         std::holds_alternative<RegionCall>(step.action);
}

const std::string& place_of_failure(const Plan& plan, const PlanStep& step) {
  if (!step.checked.empty()) return step.checked;
  return step.source.empty() ? plan.name : step.source;
}

}  // namespace inkle::abi
