#include "codegen/cuda/print_region.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/error.h"

namespace inkle::codegen::cuda {

using kernel::Op;
using kernel::Operation;
using kernel::OperationId;
using kernel::RegionId;
using kernel::ValueId;

namespace {

bool reads_by_read_only_path(const kernel::Kernel& kernel, const LanePlan& plan) {
  for (OperationId o = 0; o < kernel.operations.size(); ++o) {
    const kernel::Access* access = kernel::access_of(kernel.operations[o]);
    if (access != nullptr && access->constant && plan.width(o) > 1) return true;
  }
  return false;
}

// How often a loop runs, where that does not depend on sizes or the thread.
std::optional<std::int64_t> count_of(const kernel::Loop& loop) {
  const auto length = (loop.end - loop.begin).constant();
  const auto step = loop.step.constant();
  if (!length || !step) return std::nullopt;
  return *length <= 0 ? 0 : (*length - 1) / *step + 1;
}

// Whether NVVM may unroll a loop so that it is left in the middle of the copies of its body, which
// it compiles wrongly (docs/codegen_cuda.md). Where nothing tells it how many copies to make, it
// finds a number that divides an even count.
bool may_end_within_copies(const kernel::Loop& loop, std::int64_t count) {
  if (loop.kind != kernel::LoopKind::serial) return false;
  return loop.unroll > 1 ? count > loop.unroll && count % loop.unroll != 0
                         : count > 1 && count % 2 != 0;
}

}  // namespace

void RegionPrinter::region(RegionId id, Ids targets, std::size_t first) {
  const kernel::Region& r = k_.regions[id];
  const Ids yields = Ids(r.yields).subspan(first);
  const std::vector<Segment>* segments =
      text_.lanes() > 1 && !text_.in_lanes() ? plan_.segments(id) : nullptr;
  if (segments == nullptr) {
    for (const OperationId o : r.operations) operation(o);
    assign(targets, yields, false);
    return;
  }
  for (const Segment& s : *segments) {
    const bool last = &s == &segments->back();
    segment(s, last ? targets : Ids(), last ? yields : Ids());
  }
}

void RegionPrinter::operation(OperationId o) {
  const Operation& op = k_.operations[o];
  switch (op.op) {
    case Op::loop:
      return loop(op);
    case Op::repeat:
      return repeat(op);
    case Op::fold:
      return fold(op);
    case Op::branch:
      return branch(op);
    case Op::vector:
      return vector(op);
    case Op::roles:
      return roles(op);
    case Op::fragment_map:
      return map(op);
    case Op::dependency_wait: {
      const bool read_only = reads_by_read_only_path(k_, plan_);
      out_.begin(read_only ? "begin_read_only(status" : "begin(");
      std::string_view between = read_only ? ", " : "";
      for (kernel::MemoryId m = 0; m < k_.parameter_count; ++m) {
        const kernel::Memory& memory = k_.memories[m];
        if (memory.role != kernel::Role::in || memory.space == kernel::Space::map) continue;
        out_.add(std::exchange(between, ", "), memory_.name(m));
      }
      return out_.end(");");
    }
    case Op::constant:
    case Op::index:
    case Op::compute:
    case Op::load:
    case Op::store:
      return operations_.print(o);
    default:
      if (!asynchronous_.print(o)) operations_.print(o);
  }
}

// --- Lanes -----------------------------------------------------------------------------------

void RegionPrinter::declare_lanes(const Segment& segment) {
  const auto declare = [&](const auto& self, OperationId o) -> void {
    const Operation& op = k_.operations[o];
    for (const ValueId v : op.results) {
      if (plan_.is_stored(v)) out_.put(text_.declaration(v));
    }
    for (const RegionId r : op.regions) {
      for (const OperationId inside : k_.regions[r].operations) self(self, inside);
    }
  };
  for (const OperationId o : segment.lanes) declare(declare, o);
}

void RegionPrinter::segment(const Segment& segment, Ids targets, Ids yields) {
  for (const OperationId o : segment.before) operation(o);
  declare_lanes(segment);
  const bool assigns =
      std::any_of(targets.begin(), targets.end(), [&](ValueId v) { return plan_.varies(v); });
  if (!segment.lanes.empty() || assigns) {
    out_.put("#pragma unroll");
    out_.open("for (int l = 0; l < ", digits(text_.lanes()), "; ++l)");
    text_.enter_lanes(segment.number);
    for (const OperationId o : segment.lanes) operation(o);
    assign(targets, yields, true);
    text_.leave_lanes();
    out_.close();
  }
  for (const OperationId o : segment.after) operation(o);
  if (!targets.empty()) assign(targets, yields, false);
}

// Outside of the loop over lanes what varies by lane has been assigned already, and inside of it
// what does not is not; elsewhere there is but one way.
void RegionPrinter::assign(Ids targets, Ids yields, bool in_lanes) {
  const bool by_lanes = text_.lanes() > 1 && (in_lanes || !text_.in_lanes());
  std::vector<std::pair<ShortText, ShortText>> all;
  all.reserve(targets.size());
  bool crosses = false;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (by_lanes && plan_.varies(targets[i]) != in_lanes) continue;
    const ShortText to = text_.of(targets[i]);
    const ShortText from = text_.of(yields[i]);
    if (to == from) continue;
    INKLE_CHECK(!asynchronous_.is_fragment(targets[i]), "kernel {}: a fragment that moves",
                k_.name);
    for (const auto& earlier : all) crosses = crosses || earlier.first == from;
    all.emplace_back(to, from);
  }
  if (!crosses) {
    for (const auto& [to, from] : all) out_.put(to, " = ", from, ";");
    return;
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    out_.line("const auto n{} = {};", i, all[i].second);
  }
  for (std::size_t i = 0; i < all.size(); ++i) out_.line("{} = n{};", all[i].first, i);
}

void RegionPrinter::vector(const Operation& op) {
  const auto& detail = std::get<kernel::Vector>(op.detail);
  INKLE_CHECK(text_.lanes() == 1, "kernel {}: a vector region inside of another", k_.name);
  for (const ValueId v : op.results) out_.put(text_.declaration(v));
  out_.open();
  text_.enter_vector(detail.lane, detail.width);
  if (detail.width > 1) {
    region(op.regions[0], op.results);
  } else {
    text_.define(detail.lane, {"0"}, false);
    region(op.regions[0], op.results);
  }
  text_.leave_vector();
  out_.close();
}

// --- Control ---------------------------------------------------------------------------------

// Carried values are variables that the loop assigns.
void RegionPrinter::begin_carried(Ids arguments, Ids initial, std::size_t first) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const ValueId v = arguments[i];
    const ValueId start = initial[first + i];
    if (asynchronous_.is_fragment(v)) {
      text_.alias(v, start);
      continue;
    }
    if (!text_.is_array(v)) {
      out_.put(text_.type(v), " ", text_.variable(v), " = ", text_.of(start), ";");
      continue;
    }
    out_.put(text_.declaration(v));
    out_.put("#pragma unroll");
    out_.put("for (int l = 0; l < ", digits(text_.lanes()), "; ++l) ", text_.pack(v),
             ".at[l] = ", text_.of(start), ";");
  }
}

void RegionPrinter::open_loop(const kernel::Loop& loop) {
  const auto count = count_of(loop);
  const bool ends_within = count && may_end_within_copies(loop, *count);
  const bool is_short = ends_within && *count < 2 * loop.unroll;
  if (loop.kind == kernel::LoopKind::unroll || is_short)
    out_.put("#pragma unroll");
  else if (loop.kind == kernel::LoopKind::rolled)
    out_.put("#pragma unroll 1");
  else if (loop.unroll > 1)
    out_.put("#pragma unroll ", digits(loop.unroll));
  const bool hides_end = ends_within && !is_short;  // then a loop of its own does the rest
  const sym::Expr variable = loop.variable;
  // The variable is compared with the end once more than it has values.
  const bool wide = !text_.fits32(variable) || !text_.fits32(loop.begin) || !text_.fits32(loop.end);
  const std::size_t known = loops_.size();
  const std::size_t number = loops_.try_emplace(variable.node(), known).first->second;
  const ShortText name = numbered('j', number);
  out_.begin("for (", wide ? "i64 " : "int ", name, " = ");
  text_.index(out_, loop.begin, wide);
  if (hides_end) {
    out_.add(", end", digits(number), " = hidden(");
    text_.index(out_, loop.end, wide);
    out_.add("); ", name, " < end", digits(number));
  } else {
    out_.add("; ", name, " < ");
    text_.index(out_, loop.end, wide);
  }
  if (loop.step.is_constant(1)) {
    out_.add("; ++", name);
  } else {
    out_.add("; ", name, " += ");
    text_.index(out_, loop.step, wide);
  }
  out_.end_open(") {");
  text_.define(variable, name, wide);
}

void RegionPrinter::loop(const Operation& op) {
  const auto& detail = std::get<kernel::Loop>(op.detail);
  INKLE_CHECK(!detail.is_lowered, "kernel {}: a loop whose bounds are operands", k_.name);
  const kernel::Region& inside = k_.regions[op.regions[0]];
  begin_carried(inside.arguments, op.operands, 0);
  open_loop(detail);
  region(op.regions[0], inside.arguments);
  out_.close();
  for (std::size_t i = 0; i < op.results.size(); ++i) {
    text_.alias(op.results[i], inside.arguments[i]);
  }
}

void RegionPrinter::repeat(const Operation& op) {
  const kernel::Region& inside = k_.regions[op.regions[0]];
  begin_carried(inside.arguments, op.operands, 0);
  const std::string again = fmt::format("again{}", op.regions[0]);
  out_.line("bool {};", again);
  out_.open("do");
  for (const OperationId o : inside.operations) operation(o);
  out_.line("{} = {};", again, text_.of(inside.yields[0]));
  assign(inside.arguments, Ids(inside.yields).subspan(1), false);
  out_.close(fmt::format(" while ({});", again));
  for (std::size_t i = 0; i < op.results.size(); ++i) {
    text_.alias(op.results[i], inside.arguments[i]);
  }
}

void RegionPrinter::fold(const Operation& op) {
  const auto& detail = std::get<kernel::Fold>(op.detail);
  INKLE_CHECK(detail.chunked_loop < 0, "kernel {}: a fold in chunks", k_.name);
  const kernel::Region& step = k_.regions[op.regions[0]];
  begin_carried(step.arguments, op.operands, 0);
  for (const kernel::Loop& loop : detail.loops) open_loop(loop);
  region(op.regions[0], step.arguments);
  for (std::size_t i = 0; i < detail.loops.size(); ++i) out_.close();
  for (std::size_t i = 0; i < op.results.size(); ++i) {
    text_.alias(op.results[i], step.arguments[i]);
  }
}

// A branch that only loads an element where its condition holds is printed as `?:`.
bool RegionPrinter::chosen_load(const Operation& op) {
  if (op.results.size() != 1 || text_.is_array(op.results[0])) return false;
  const kernel::Region& then = k_.regions[op.regions[0]];
  const kernel::Region& otherwise = k_.regions[op.regions[1]];
  if (then.operations.size() != 1) return false;
  const Operation& load = k_.operations[then.operations[0]];
  if (load.op != Op::load || load.results[0] != then.yields[0]) return false;
  const auto& access = std::get<kernel::Access>(load.detail);
  const bool nothing =
      std::all_of(otherwise.operations.begin(), otherwise.operations.end(),
                  [&](OperationId o) { return k_.operations[o].op == Op::constant; });
  if (!nothing || access.order != kernel::Order::weak) return false;
  operations_.load_if(op.results[0], op.operands[0], access, otherwise.yields[0]);
  return true;
}

void RegionPrinter::branch(const Operation& op) {
  if (chosen_load(op)) return;
  for (const ValueId v : op.results) {
    // In the lanes' loop a variable; what others need of it is stored behind the branch.
    if (text_.in_lanes())
      out_.put(text_.type(v), " ", text_.variable(v), ";");
    else
      out_.put(text_.declaration(v));
  }
  const auto side = [&](RegionId id) { region(id, op.results); };
  const kernel::Region& otherwise = k_.regions[op.regions[1]];
  out_.open("if (", text_.of(op.operands[0]), ")");
  side(op.regions[0]);
  if (!otherwise.operations.empty() || !otherwise.yields.empty()) {
    out_.close();
    out_.open("else");
    side(op.regions[1]);
  }
  out_.close();
  if (!text_.in_lanes()) return;
  for (const ValueId v : op.results) {
    if (plan_.varies(v) && plan_.is_stored(v)) {
      out_.put(text_.pack(v), ".at[l] = ", text_.variable(v), ";");
    }
  }
}

// --- Warps that do different work --------------------------------------------------------------

void RegionPrinter::roles(const Operation& op) {
  const auto& all = std::get<kernel::Roles>(op.detail).roles;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const kernel::Roles::Role& role = all[r];
    if (r > 0) out_.close();
    out_.open(r > 0 ? "else " : "", "if (warp < ", digits(role.first_warp + role.warps), ")");
    if (role.registers > 0) {
      out_.line("{}_registers<{}>();", role.registers > k_.launch.registers ? "take" : "give",
                role.registers);
    }
    region(op.regions[r], {});
  }
  out_.close();
}

void RegionPrinter::map(const Operation& op) {
  asynchronous_.open_map(op);
  region(op.regions[0], {}, k_.regions[op.regions[0]].yields.size());
  asynchronous_.close_map(op);
}

}  // namespace inkle::codegen::cuda
