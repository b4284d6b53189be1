// Kernels as text; parse.cpp reads what this writes. docs/kernel.md has the grammar.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "kernel/derive.h"
#include "kernel/names.h"
#include "kernel/print_operation.h"

namespace inkle::kernel {
namespace {

// A value whose text is longer gets a line of its own.
constexpr std::size_t kLongestInside = 72;

bool is_identifier(std::string_view name) {
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && is_word(name[0]) && std::ranges::all_of(name, [&](char c) {
    return is_word(c) || (c >= '0' && c <= '9') || c == '.';
  });
}

// Operations whose value may be printed inside of its use: one result, no region.
bool may_stand_inside(Op op) {
  switch (op) {
    case Op::constant:
    case Op::index:
    case Op::divide_index:
    case Op::compute:
    case Op::function:
    case Op::load:
    case Op::shuffle:
    case Op::fragment_fill:
    case Op::fragment_load:
    case Op::convert_layout:
      return true;
    default:
      return false;
  }
}

// The operands in the order of the text: a rank stands at its access, before a stored value.
Values in_text_order(const Operation& o) {
  Values operands = o.operands;
  const Access* access = access_of(o);
  if (access == nullptr || !access->remote || operands.empty()) return operands;
  const std::size_t values =
      o.op == Op::store || o.op == Op::barrier_wait || o.op == Op::fragment_store ? 1
      : o.op != Op::atomic                                                        ? 0
      : std::get<Atomic>(o.detail).op == AtomicOp::compare_exchange               ? 2
                                                                                  : 1;
  if (operands.size() > values) {
    std::rotate(operands.end() - 1 - static_cast<std::ptrdiff_t>(values), operands.end() - 1,
                operands.end());
  }
  return operands;
}

class Printer {
 public:
  explicit Printer(const Kernel& kernel) : k_(kernel), operations_(kernel, symbols_) {}
  std::string run();

 private:
  // A value used once, whose text may stand in its use.
  struct Pending {
    ValueId value = kNone;
    std::string text;
  };

  std::string head();
  std::string launch();
  std::string memory(const Memory& memory, bool is_parameter);
  const Region& region_of(RegionId id) const;  // one without operations where it does not exist
  void count_uses(RegionId region);
  std::string name(ValueId value);
  std::vector<std::string> take(std::span<const ValueId> operands);
  void flush();
  void line(const std::string& text);
  void region(RegionId id);  // "{", lines, "}" behind what stands in the open line
  std::string arguments(std::span<const ValueId> values);  // "(%0: f32, %1: f32)"
  void operation(OperationId id);
  void control(OperationId id, const std::string& results, OperandTexts texts);
  void regions_of_fold(const Operation& o);
  void branch(const Operation& o, const std::string& head);
  void roles(const Operation& o);
  std::string loop(const Loop& loop);
  std::string results(const Operation& o);

  const Kernel& k_;
  SymbolPrinter symbols_;
  OperationPrinter operations_;
  std::vector<std::uint32_t> uses_;
  std::vector<std::string> names_;
  std::vector<Pending> pending_;
  std::size_t named_ = 0;
  std::size_t indent_ = 1;
  std::string out_;
};

}  // namespace

// --- The kernel
// ------------------------------------------------------------------------------------

std::string Printer::run() {
  uses_.assign(k_.values.size(), 0);
  names_.assign(k_.values.size(), "");
  out_ = head();
  for (const std::string& source : k_.sources) line("source " + quote(source));
  for (std::size_t m = k_.parameter_count; m < k_.memories.size(); ++m) {
    line(memory(k_.memories[m], false));
  }
  if (k_.body != kNone) {
    count_uses(k_.body);
    for (const OperationId id : region_of(k_.body).operations) operation(id);
    flush();
  }
  return out_ + "}\n";
}

std::string Printer::head() {
  for (const Expr size : k_.sizes) symbols_.declare_size(size);
  std::string list;
  const auto add = [&](const std::string& item) { list += (list.empty() ? "" : ", ") + item; };
  for (std::size_t m = 0; m < k_.parameter_count && m < k_.memories.size(); ++m) {
    add(memory(k_.memories[m], true));
  }
  for (const Expr size : k_.sizes) {
    add(fmt::format("{} in {}", size.name(), range_text(size.context().info(size))));
  }
  const std::string name = is_identifier(k_.name) ? k_.name : quote(k_.name);
  return fmt::format("kernel @{}({}){} {{\n", name, list, launch());
}

std::string Printer::launch() {
  static constexpr char kPrefixes[] = {'n', 'g', 'c', 't'};  // by kind of axis
  std::string out;
  for (const Axis& axis : k_.launch.axes) {
    const std::string extent = symbols_.text(axis.extent);
    if (!axis.variable.is_null()) {
      symbols_.declare(axis.variable, kPrefixes[static_cast<std::size_t>(axis.kind)],
                       {.range = {.low = 0}, .extent = symbols_.local(axis.extent)});
    }
    out += fmt::format("{} {} {} in {}", out.empty() ? "" : ",", kAxisKinds.name(axis.kind),
                       symbols_.text(axis.variable), extent);
  }
  const Launch& l = k_.launch;
  if (l.instances != 1) out += fmt::format(" instances {}", l.instances);
  if (l.resident_blocks != 0) out += fmt::format(" resident {}", l.resident_blocks);
  if (l.co_resident) out += " co_resident";
  if (l.registers != 0) out += fmt::format(" registers {}", l.registers);
  return out;
}

std::string Printer::memory(const Memory& m, bool is_parameter) {
  const bool has_role = is_parameter && m.space == Space::global;
  std::string out =
      fmt::format("{} {}: {}[{}]", has_role ? name_of(m.role) : name_of(m.space), m.name,
                  abi::name_of(m.dtype), m.shape.empty() ? "?" : symbols_.texts(m.shape));
  if (m.of != kNone) out += " of " + memory_name(k_, m.of);
  if (m.offset != 0) out += fmt::format(" offset {}", m.offset);
  if (!m.box.empty()) out += fmt::format(" box [{}]", fmt::join(m.box, ","));
  if (m.alignment != 1) out += fmt::format(" align {}", m.alignment);
  if (m.may_alias) out += " may_alias";
  if (m.padding != 0) out += fmt::format(" padding {}", m.padding);
  if (m.swizzle != 0) out += fmt::format(" swizzle {}", m.swizzle);
  return out;
}

// --- Values
// ----------------------------------------------------------------------------------------

const Region& Printer::region_of(RegionId id) const {
  static const Region kNothing;
  return id < k_.regions.size() ? k_.regions[id] : kNothing;
}

void Printer::count_uses(RegionId region) {
  const auto use = [&](ValueId v) {
    if (v < uses_.size()) ++uses_[v];
  };
  for (const OperationId id : region_of(region).operations) {
    if (id >= k_.operations.size()) continue;
    std::ranges::for_each(k_[id].operands, use);
    for (const RegionId inside : k_[id].regions) count_uses(inside);
  }
  std::ranges::for_each(region_of(region).yields, use);
}

std::string Printer::name(ValueId value) {
  if (value >= names_.size()) return "%?";
  names_[value] = fmt::format("%{}", named_++);
  return names_[value];
}

// Texts of the operands. Those that are the last pending values, in order, are taken from there;
// if that does not fit, everything pending gets a name first.
std::vector<std::string> Printer::take(std::span<const ValueId> operands) {
  std::vector<ValueId> inside;
  for (const ValueId v : operands) {
    if (v < names_.size() && names_[v].empty()) inside.push_back(v);
  }
  const bool fits = inside.size() <= pending_.size() &&
                    std::equal(inside.begin(), inside.end(),
                               pending_.end() - static_cast<std::ptrdiff_t>(inside.size()),
                               [](ValueId v, const Pending& p) { return v == p.value; });
  if (!fits) flush();
  std::size_t next = fits ? pending_.size() - inside.size() : 0;
  std::vector<std::string> texts;
  for (const ValueId v : operands) {
    const bool is_named = v >= names_.size() || !names_[v].empty();
    if (is_named) {
      texts.push_back(v < names_.size() ? names_[v] : "%?");
    } else {
      texts.push_back(fits ? pending_[next++].text : fmt::format("%undefined{}", v));
    }
  }
  if (fits) pending_.resize(pending_.size() - inside.size());
  return texts;
}

void Printer::flush() {
  for (const Pending& p : pending_) line(fmt::format("{} = {}", name(p.value), p.text));
  pending_.clear();
}

void Printer::line(const std::string& text) {
  out_.append(2 * indent_, ' ');
  out_ += text;
  out_ += '\n';
}

std::string Printer::results(const Operation& o) {
  std::string out;
  for (const ValueId v : o.results) out += (out.empty() ? "" : ", ") + name(v);
  return out;
}

void Printer::operation(OperationId id) {
  // Wrong kernels are printed for messages.
  if (id >= k_.operations.size()) return line(fmt::format("operation?{}", id));
  const Operation& o = k_[id];
  const auto* symbolic = std::get_if<Symbolic>(&o.detail);
  if (!has_own_detail(o) || (symbolic != nullptr && symbolic->symbol.is_null()))
    return line(fmt::format("{} malformed", name_of(o.op)));
  OperandTexts texts{take(in_text_order(o))};
  if (may_stand_inside(o.op) && o.results.size() == 1) {
    std::string value = operations_.expression(o, texts);
    if (o.results[0] < uses_.size() && uses_[o.results[0]] == 1) {
      const bool is_long = value.size() > kLongestInside;
      pending_.push_back({o.results[0], std::move(value)});
      if (is_long) flush();
      return;
    }
    flush();
    line(fmt::format("{} = {}", name(o.results[0]), value));
    return;
  }
  flush();
  const auto is_used = [&](ValueId v) { return v < uses_.size() && uses_[v] > 0; };
  const bool used = std::ranges::any_of(o.results, is_used);
  if (o.op == Op::indirect || o.op == Op::bind) {
    const auto& detail = std::get<Symbolic>(o.detail);
    std::string facts;
    if (o.op == Op::indirect) {
      facts = symbols_.text(detail.extent);
      symbols_.declare(detail.symbol, 'j',
                       {.range = {.low = 0}, .extent = symbols_.local(detail.extent)});
    } else {
      const sym::SymbolInfo& info = detail.symbol.context().info(detail.symbol);
      symbols_.declare(detail.symbol, 'm', {.range = info.range, .divisor = info.divisor});
      facts = range_text({.range = info.range, .divisor = info.divisor});
    }
    const std::string value = used ? results(o) + ", " : "";
    line(fmt::format("{}{} in {} = {}({})", value, symbols_.text(detail.symbol), facts,
                     name_of(o.op), texts.rest()));
    return;
  }
  const bool hides = o.op == Op::atomic && !std::get<Atomic>(o.detail).needs_old && !used;
  std::string names = o.results.empty() || hides ? "" : results(o) + " = ";
  if (o.regions.empty() && o.op != Op::roles) {
    line(names + operations_.expression(o, texts));
  } else {
    control(id, names, std::move(texts));
  }
}

// --- Regions
// ---------------------------------------------------------------------------------------

std::string Printer::arguments(std::span<const ValueId> values) {
  std::string out;
  for (const ValueId v : values) {
    const std::string type = v < k_.values.size() ? to_string(k_, k_.type_of(v)) : "?";
    out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", name(v), type);
  }
  return "(" + out + ")";
}

void Printer::region(RegionId id) {
  const Region& r = region_of(id);
  out_ += "{\n";
  ++indent_;
  for (const OperationId o : r.operations) operation(o);
  if (!r.yields.empty()) {
    OperandTexts texts{take(r.yields)};
    flush();
    line("yield " + texts.rest());
  }
  flush();
  --indent_;
  out_.append(2 * indent_, ' ');
  out_ += "}";
}

std::string Printer::loop(const Loop& l) {
  std::string out;
  const std::string begin = symbols_.text(l.begin);
  const std::string end = symbols_.text(l.end);
  const std::string step = symbols_.text(l.step);
  Loop here = l;
  for (Expr* e : {&here.begin, &here.end, &here.step}) *e = symbols_.local(*e);
  const bool is_complete = !l.begin.is_null() && !l.end.is_null() && !l.step.is_null();
  symbols_.declare(l.variable, 'i', is_complete ? facts_of(here) : sym::SymbolInfo());
  out = symbols_.text(l.variable) + " in ";
  if (begin != "0") out += begin + " .. ";
  out += end;
  if (step != "1") out += " by " + step;
  if (l.at_least_once) out += " runs";
  if (l.kind == LoopKind::unroll) return out + " unroll";
  if (l.kind == LoopKind::rolled) return out + " rolled";
  if (l.unroll != 1) out += fmt::format(" unroll {}", l.unroll);
  return out;
}

void Printer::control(OperationId id, const std::string& results, OperandTexts texts) {
  const Operation& o = k_[id];
  out_.append(2 * indent_, ' ');
  out_ += results;
  // "(%0: f32 = %a, ...)" of the first region's arguments.
  const auto carried = [&] {
    if (o.regions.empty()) return std::string();
    std::string list;
    for (const ValueId v : region_of(o.regions[0]).arguments) {
      list += fmt::format("{}{}: {} = {}", list.empty() ? "" : ", ", name(v),
                          to_string(k_, k_.type_of(v)), texts.take());
    }
    return list.empty() ? list : " carry (" + list + ")";
  };
  switch (o.op) {
    case Op::loop: {
      const auto& l = std::get<Loop>(o.detail);
      out_ += "for " + loop(l);
      if (l.is_lowered) {
        const std::string begin = texts.take();
        out_ += fmt::format(" over ({}, {})", begin, texts.take());
      }
      out_ += carried() + " ";
      break;
    }
    case Op::repeat:
      out_ += "repeat" + carried() + " ";
      break;
    case Op::branch:
      branch(o, texts.take());
      return;
    case Op::vector: {
      const auto& v = std::get<Vector>(o.detail);
      symbols_.declare_index(v.lane, 'l', v.width);
      out_ += fmt::format("vector {} in {} ", symbols_.text(v.lane), v.width);
      if (v.native != 1) out_ += fmt::format("native {} ", v.native);
      break;
    }
    case Op::fold: {
      const auto& f = std::get<Fold>(o.detail);
      std::string loops;
      for (const Loop& l : f.loops) loops += (loops.empty() ? " " : ", ") + loop(l);
      if (f.chunked_loop >= 0 && f.chunked_loop < static_cast<std::int32_t>(f.loops.size())) {
        const Expr variable = f.loops[static_cast<std::size_t>(f.chunked_loop)].variable;
        loops += fmt::format(" chunk {} by {}", symbols_.text(variable), f.chunk);
      }
      out_ += fmt::format("fold{} from ({}) ", loops, texts.rest());
      regions_of_fold(o);
      return;
    }
    case Op::roles:
      roles(o);
      return;
    default:
      out_ += operations_.expression(o, texts) + " ";
      if (o.op == Op::reduce || o.op == Op::scan) {
        out_ += fmt::format("merge {} ", arguments(region_of(o.regions[0]).arguments));
      } else if (o.op == Op::fragment_map) {
        out_ += fmt::format("do {} ", arguments(region_of(o.regions[0]).arguments));
      }
  }
  region(o.regions[0]);
  out_ += '\n';
}

void Printer::regions_of_fold(const Operation& o) {
  static constexpr std::string_view kNames[] = {"step", "begin", "merge"};
  for (std::size_t r = 0; r < o.regions.size() && r < 3; ++r) {
    out_ += fmt::format("{}{} {} ", r == 0 ? "" : " ", kNames[r],
                        arguments(region_of(o.regions[r]).arguments));
    region(o.regions[r]);
  }
  out_ += '\n';
}

void Printer::branch(const Operation& o, const std::string& condition) {
  const auto& b = std::get<Branch>(o.detail);
  out_ += fmt::format("if {} ", condition);
  if (b.limit != 0) out_ += fmt::format("limit {} ", b.limit);
  if (b.some_lane) out_ += "some ";
  if (!b.is_likely) out_ += "unlikely ";
  for (std::size_t r = 0; r < o.regions.size(); ++r) {
    const Region& inside = region_of(o.regions[r]);
    if (r > 0 && inside.operations.empty() && inside.yields.empty()) break;
    if (r > 0) out_ += " else ";
    region(o.regions[r]);
  }
  out_ += '\n';
}

void Printer::roles(const Operation& o) {
  const auto& detail = std::get<Roles>(o.detail);
  out_ += "roles {\n";
  ++indent_;
  for (std::size_t r = 0; r < o.regions.size() && r < detail.roles.size(); ++r) {
    const Roles::Role& role = detail.roles[r];
    out_.append(2 * indent_, ' ');
    out_ += fmt::format("{} warps {}..{} ", is_identifier(role.name) ? role.name : quote(role.name),
                        role.first_warp, role.first_warp + role.warps);
    if (role.registers != 0) out_ += fmt::format("registers {} ", role.registers);
    region(o.regions[r]);
    out_ += '\n';
  }
  --indent_;
  out_.append(2 * indent_, ' ');
  out_ += "}\n";
}

std::string to_string(const Kernel& kernel) { return Printer(kernel).run(); }

}  // namespace inkle::kernel
