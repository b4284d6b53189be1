#include "kernel/print_operation.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"
#include "kernel/derive.h"
#include "kernel/function.h"
#include "kernel/names.h"

namespace inkle::kernel {
namespace {

std::string print_float(float value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::string OperandTexts::rest() {
  std::string out;
  while (next < list.size()) out += (out.empty() ? "" : ", ") + list[next++];
  return out;
}

std::string memory_name(const Kernel& kernel, MemoryId id) {
  return id < kernel.memories.size() ? kernel.memories[id].name : fmt::format("memory?{}", id);
}

Type OperationPrinter::result_type(const Operation& o) const {
  const bool has_type = !o.results.empty() && o.results[0] < k_.values.size();
  return has_type ? k_.type_of(o.results[0]) : Type{TypeKind::token, DType::f32, 0};
}

// Shortest text that reads back to the same number of the dtype.
std::string OperationPrinter::literal(const Operation& o) {
  const auto& immediate = std::get<Immediate>(o.detail);
  const DType dtype = result_type(o).dtype;
  if (dtype == DType::boolean) return immediate.integer != 0 ? "true" : "false";
  if (dtype == DType::i64) return fmt::format("{}", immediate.integer);
  if (!abi::is_float(dtype)) return fmt::format("{}:{}", immediate.integer, abi::name_of(dtype));
  std::string text = print_double(immediate.real);
  const auto narrow = static_cast<float>(immediate.real);
  if (dtype == DType::f32 && std::isfinite(narrow)) text = print_float(narrow);
  return dtype == DType::f32 ? text : fmt::format("{}:{}", text, abi::name_of(dtype));
}

std::string OperationPrinter::access(const Access& a, OperandTexts& texts) {
  std::string out = memory_name(k_, a.memory);
  if (a.is_lowered) {
    out += "{" + texts.take();
    if (a.has_lane_offset) out += ", " + texts.take();
    out += "}";
  } else if (a.indices_are_operands) {
    const std::size_t rank = a.memory < k_.memories.size() ? rank_of(k_.memories[a.memory]) : 0;
    std::string list;
    for (std::size_t d = 0; d < rank; ++d) list += (d == 0 ? "" : ", ") + texts.take();
    out += "(" + list + ")";
  } else {
    out += "[" + symbols_.texts(a.indices) + "]";
  }
  if (a.form != Form::each) out += fmt::format(" {}", name_of(a.form));
  if (a.hint != Hint::none) out += fmt::format(" {}", name_of(a.hint));
  if (a.constant) out += " constant";
  if (a.order != Order::weak || a.scope != Scope::thread) {
    out += fmt::format(" {} {}", name_of(a.order), name_of(a.scope));
  }
  if (a.remote) out += " at " + texts.take();
  return out;
}

std::string OperationPrinter::fragment_access(const FragmentAccess& f, OperandTexts& texts) {
  std::string out = access(f.access, texts);
  out += fmt::format(" by ({}, {})", symbols_.text(f.row_stride), symbols_.text(f.column_stride));
  if (f.panel != 0) out += fmt::format(" panels {} by {}", f.panel, f.panel_stride);
  if (!f.row_limit.is_null()) out += " rows " + symbols_.text(f.row_limit);
  if (!f.column_limit.is_null()) out += " columns " + symbols_.text(f.column_limit);
  return out;
}

std::string OperationPrinter::collective(const Operation& o, OperandTexts& texts) {
  const auto& c = std::get<Collective>(o.detail);
  std::string out(name_of(o.op));
  if (c.exclusive) out += " exclusive";
  out += " over";
  if (c.lanes) out += " lanes";
  for (std::size_t i = 0; i < c.axes.size(); ++i) {
    const bool known = c.axes[i] < k_.launch.axes.size();
    out += fmt::format("{} {}", i == 0 ? "" : ",",
                       known ? symbols_.text(k_.launch.axes[c.axes[i]].variable) : "?");
  }
  if (c.sequential != 0) out += fmt::format(" sequential {}", c.sequential);
  if (o.op == Op::broadcast) out += fmt::format(" from {}", c.from);
  out += " of (" + texts.rest() + ")";
  for (std::size_t i = 0; i < c.scratch.size(); ++i) {
    out += (i == 0 ? " using " : ", ") + memory_name(k_, c.scratch[i]);
  }
  return out;
}

std::string OperationPrinter::threads(const Operation& o, OperandTexts& texts) {
  if (o.op == Op::shuffle) {
    const auto& s = std::get<Shuffle>(o.detail);
    std::string out = fmt::format("shuffle.{}({})", kShuffleKinds.name(s.kind), texts.rest());
    if (o.operands.size() < 2) out += fmt::format(" by {}", s.by);
    if (s.width != 32) out += fmt::format(" width {}", s.width);
    if (!s.whole_warp) out += " partial";
    return out;
  }
  if (o.op == Op::fence) {
    const auto& f = std::get<Fence>(o.detail);
    std::string out = "fence";
    if (f.order != Order::acquire_release) out += fmt::format(" {}", name_of(f.order));
    out += fmt::format(" {}", name_of(f.scope));
    return out + (f.proxy ? " proxy" : "");
  }
  const auto& b = std::get<Barrier>(o.detail);
  std::string out = fmt::format("barrier {}", name_of(b.scope));
  if (b.number != 0) out += fmt::format(" number {}", b.number);
  if (b.threads != 0) out += fmt::format(" threads {}", b.threads);
  if (b.part != Barrier::Part::both) out += b.part == Barrier::Part::arrive ? " arrive" : " wait";
  return out;
}

std::string OperationPrinter::memories(const Operation& o, OperandTexts& texts) {
  if (o.op == Op::atomic) {
    const auto& a = std::get<Atomic>(o.detail);
    std::string out = fmt::format("atomic.{} ", kAtomicOps.name(a.op)) + access(a.access, texts);
    while (texts.next < texts.list.size()) out += ", " + texts.take();
    return out;
  }
  std::string out = fmt::format("{} ", name_of(o.op)) + access(std::get<Access>(o.detail), texts);
  return o.op == Op::store ? out + " = " + texts.take() : out;
}

std::string OperationPrinter::copies(const Operation& o, OperandTexts& texts) {
  const std::string name(name_of(o.op));
  if (const auto* c = std::get_if<Copy>(&o.detail)) {
    std::string out = fmt::format("{} {} from ", name, c->elements) + access(c->from, texts);
    return out + " to " + access(c->to, texts);
  }
  if (const auto* b = std::get_if<Bulk>(&o.detail)) {
    const std::size_t rank = b->map < k_.memories.size() ? k_.memories[b->map].shape.size() : 0;
    std::string list;
    for (std::size_t d = 0; d < rank; ++d) list += (d == 0 ? "" : ", ") + texts.take();
    std::string out = fmt::format("{} {}({})", name, memory_name(k_, b->map), list);
    out += (o.op == Op::tma_load ? " to " : " from ") + access(b->shared, texts);
    return o.op == Op::tma_load ? out + " signals " + access(b->barrier, texts) : out;
  }
  const auto& c = std::get<Count>(o.detail);
  switch (o.op) {
    case Op::barrier_init:
      return fmt::format("{} {} count {}", name, access(c.access, texts), c.count);
    case Op::barrier_arrive: {
      std::string out = name + " " + access(c.access, texts);
      return c.count == 0 ? out : out + fmt::format(" bytes {}", c.count);
    }
    case Op::barrier_wait: {
      std::string out = name + " " + access(c.access, texts);
      if (c.has_phase) out += " phase " + texts.take();
      return out + " parity " + texts.take();
    }
    default:
      return fmt::format("{} {}", name, c.count);
  }
}

std::string OperationPrinter::matrix_multiply(const Operation& o, OperandTexts& texts) {
  const auto& m = std::get<MatrixMultiply>(o.detail);
  const std::size_t fragments = m.shared.size() < 3 ? 3 - m.shared.size() : 1;
  std::string out = fmt::format("mma.{}(", kMatrixUnits.name(m.unit));
  for (std::size_t i = 0; i < fragments; ++i) out += (i == 0 ? "" : ", ") + texts.take();
  out += ")";
  for (std::size_t i = 0; i < m.shared.size(); ++i) {
    out += i == 0 ? " with " : ", ";
    out += fragment_access(m.shared[i], texts);
    out += fmt::format(" tile [{},{}]", m.shared[i].rows, m.shared[i].columns);
  }
  return out;
}

std::string OperationPrinter::fragments(const Operation& o, OperandTexts& texts) {
  const std::string name(name_of(o.op));
  const auto type = [&] { return to_string(k_, result_type(o)); };
  switch (o.op) {
    case Op::fragment_fill:
    case Op::convert_layout:
      return fmt::format("{} {} ({})", name, type(), texts.rest());
    case Op::fragment_load:
      return fmt::format("{} {} ", name, type()) +
             fragment_access(std::get<FragmentAccess>(o.detail), texts);
    case Op::fragment_store: {
      std::string out = name + " " + fragment_access(std::get<FragmentAccess>(o.detail), texts);
      return out + " = " + texts.take();
    }
    case Op::fragment_map: {
      const auto& m = std::get<FragmentMap>(o.detail);
      FragmentType shape;
      if (!o.operands.empty() && o.operands[0] < k_.values.size()) {
        const std::uint32_t at = k_.type_of(o.operands[0]).fragment;
        if (at < k_.fragments.size()) shape = k_.fragments[at];
      }
      symbols_.declare_index(m.row, 'r', shape.rows);
      symbols_.declare_index(m.column, 'q', shape.columns);
      return fmt::format("{} {}, {} of ({})", name, symbols_.text(m.row), symbols_.text(m.column),
                         texts.rest());
    }
    default:
      return name;
  }
}

std::string OperationPrinter::expression(const Operation& o, OperandTexts& texts) {
  switch (o.op) {
    case Op::constant:
      return literal(o);
    case Op::index:
      return fmt::format("index{}({})",
                         k_.type_of(o.results.at(0)).dtype == DType::i32 ? ".i32" : "",
                         symbols_.text(std::get<IndexOf>(o.detail).expression));
    case Op::divide_index: {
      const auto& d = std::get<IndexDivision>(o.detail);
      return fmt::format("divide_index{}({}){}{}", d.modulo ? ".modulo" : "", texts.rest(),
                         d.non_negative ? " non_negative" : "", d.narrow ? " narrow" : "");
    }
    case Op::compute: {
      const auto& c = std::get<Compute>(o.detail);
      std::string name(loop::name_of(c.opcode));
      if (c.opcode == loop::Opcode::cast || c.opcode == loop::Opcode::bitcast) {
        name += fmt::format(".{}", abi::name_of(result_type(o).dtype));
      }
      if (c.form != Form::each) name += fmt::format(".{}", name_of(c.form));
      return fmt::format("{}({})", name, texts.rest());
    }
    case Op::function:
      return fmt::format("{}({})", row_of(std::get<Function>(o.detail).function).name,
                         texts.rest());
    case Op::load:
    case Op::store:
    case Op::prefetch:
    case Op::atomic:
      return memories(o, texts);
    case Op::reduce:
    case Op::scan:
    case Op::broadcast:
      return collective(o, texts);
    case Op::transpose:
      return fmt::format("transpose({})", texts.rest());
    case Op::shuffle:
    case Op::barrier:
    case Op::fence:
      return threads(o, texts);
    case Op::copy_async:
    case Op::copy_wait:
    case Op::barrier_init:
    case Op::barrier_arrive:
    case Op::barrier_wait:
    case Op::tma_load:
    case Op::tma_store:
    case Op::bulk_wait:
    case Op::mma_wait:
      return copies(o, texts);
    case Op::fragment_fill:
    case Op::fragment_load:
    case Op::fragment_store:
    case Op::fragment_map:
    case Op::convert_layout:
      return fragments(o, texts);
    case Op::mma:
      return matrix_multiply(o, texts);
    case Op::report: {
      const std::int32_t status = std::get<Report>(o.detail).status;
      return status == 1 ? "report" : fmt::format("report {}", status);
    }
    case Op::copy_commit:
    case Op::bulk_commit:
    case Op::mma_fence:
    case Op::mma_commit:
    case Op::dependency_wait:
    case Op::launch_dependents:
      return std::string(name_of(o.op));
    case Op::indirect:
    case Op::bind:
    case Op::loop:
    case Op::repeat:
    case Op::branch:
    case Op::vector:
    case Op::fold:
    case Op::roles:
      break;  // print.cpp
  }
  return std::string(name_of(o.op));
}

}  // namespace inkle::kernel
