#include "codegen/cuda/print_operation.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "codegen/cuda/operation.h"

namespace inkle::codegen::cuda {

using kernel::Access;
using kernel::Form;
using kernel::Hint;
using kernel::Op;
using kernel::Operation;
using kernel::OperationId;
using kernel::Order;
using kernel::Scope;
using kernel::Space;
using kernel::ValueId;

void OperationPrinter::print(OperationId o) {
  const Operation& op = k_.operations[o];
  switch (op.op) {
    case Op::constant:
      return;  // stands where it is used
    case Op::index:
      return index(op);
    case Op::compute:
      if (plan_.narrows_pairs(o)) return narrow(op);
      if (const Operation* counter = first_counter(k_, op)) return random(op, *counter);
      return compute(op);
    case Op::function:
      return function(op);
    case Op::indirect:
      return indirect(op);
    case Op::bind:
      return bind(op);
    case Op::load:
      return load(o);
    case Op::store:
      return store(o);
    case Op::atomic:
      return atomic(op);
    case Op::prefetch:
      out_.line("prefetch({});", memory_.address(std::get<Access>(op.detail)));
      return;
    case Op::shuffle:
      return shuffle(op);
    case Op::barrier:
      return barrier(std::get<kernel::Barrier>(op.detail));
    case Op::fence:
      return fence(std::get<kernel::Fence>(op.detail));
    case Op::copy_async:
      return copy(std::get<kernel::Copy>(op.detail));
    case Op::copy_commit:
      out_.put("commit_copies();");
      return;
    case Op::copy_wait:
      out_.line("wait_for_copies<{}>();", std::get<kernel::Count>(op.detail).count);
      return;
    case Op::report:
      can_fail_ = true;
      out_.line("fault(status, {});", std::get<kernel::Report>(op.detail).status);
      return;
    default:
      break;
  }
  INKLE_CHECK(false, "kernel {}: no text of CUDA for {}", k_.name, name_of(op.op));
}

void OperationPrinter::begin(ValueId v) {
  out_.begin("const ", text_.type(v), " ", text_.variable(v), " = ");
}

void OperationPrinter::end(ValueId v) {
  out_.end(";");
  if (plan_.varies(v) && text_.in_lanes()) store_lane(v);
}

// Stores a variable of the lanes' loop that other segments use to its array.
void OperationPrinter::store_lane(ValueId v) {
  if (plan_.is_stored(v)) out_.put(text_.pack(v), ".at[l] = ", text_.variable(v), ";");
}

void OperationPrinter::begin_pack(ValueId v) {
  out_.begin("const Pack<", text_.type(v), ", ", digits(text_.lanes()), "> ", text_.pack(v), " = ");
}

ShortText OperationPrinter::pack_of(ValueId v) {
  if (text_.is_array(v)) return text_.pack(v);
  const ShortText name = numbered('f', fills_++);
  const ShortText lanes = digits(text_.lanes());
  out_.put("Pack<", text_.type(v), ", ", lanes, "> ", name, ";");
  out_.put("#pragma unroll");
  out_.put("for (int l = 0; l < ", lanes, "; ++l) ", name, ".at[l] = ", text_.of(v), ";");
  return name;
}

// --- Values ----------------------------------------------------------------------------------

// What fits into 32 bits stays there: the compiler need not find out again what it compares.
void OperationPrinter::index(const Operation& op) {
  const ValueId v = op.results[0];
  const sym::Expr e = std::get<kernel::IndexOf>(op.detail).expression;
  const bool is_stored = plan_.varies(v) && plan_.is_stored(v);
  const bool wide = !text_.fits32(e);
  if (text_.dtype(v) != DType::i64 || is_stored || text_.is_array(v) || wide) {
    begin(v);
    out_.add("(", text_.type(v), ")(");
    text_.index(out_, e, wide);
    out_.add(")");
    return end(v);
  }
  out_.begin("const int ", text_.variable(v), " = ");
  text_.index(out_, e, wide);
  out_.end(";");
  text_.declare_narrow(v);
}

void OperationPrinter::compute(const Operation& op) {
  const auto opcode = std::get<kernel::Compute>(op.detail).opcode;
  const ValueId result = op.results[0];
  const ValueId kind = op.operands[opcode == loop::Opcode::select ? 1 : 0];
  const DType from = text_.dtype(kind);
  if (opcode == loop::Opcode::cast && abi::is_reduced_float(from) && from != text_.dtype(result)) {
    begin(result);
    print_cast(out_, text_.widened(kind), DType::f32, text_.dtype(result));
    return end(result);
  }
  loop::Instruction instruction;
  instruction.opcode = opcode;
  instruction.dtype = text_.dtype(result);
  std::array<ShortText, 3> operands;
  INKLE_CHECK(op.operands.size() <= operands.size(), "kernel {}: an operation of {} values",
              k_.name, op.operands.size());
  const bool in_32_bits =
      loop::kind_of(opcode) == loop::OpcodeKind::comparison &&
      std::ranges::all_of(op.operands, [&](ValueId v) { return text_.is_narrow(v); });
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    operands[i] = in_32_bits ? text_.variable(op.operands[i]) : text_.of(op.operands[i]);
  }
  begin(result);
  print_operation(out_, instruction, from, std::span(operands).first(op.operands.size()),
                  can_fail_);
  end(result);
}

// Random words of lanes with consecutive counters from a multiple of 4.
void OperationPrinter::random(const Operation& op, const Operation& counter) {
  begin_pack(op.results[0]);
  out_.add("philox_pack<", digits(text_.lanes()), ">(", text_.of(op.operands[0]), ", ");
  text_.index(out_, std::get<kernel::IndexOf>(counter.detail).expression);
  out_.end(");");
}

void OperationPrinter::narrow(const Operation& op) {
  const ValueId result = op.results[0];
  const ShortText wide = pack_of(op.operands[0]);
  begin_pack(result);
  out_.add("narrow((", text_.type(result), "*)0, ", wide, ".at)");
  out_.end(";");
}

void OperationPrinter::function(const Operation& op) {
  const ValueId v = op.results[0];
  const ShortText x = text_.of(op.operands[0]);
  switch (std::get<kernel::Function>(op.detail).function) {
    case kernel::NamedFunction::exp_term:
      return define(v, "term(", x, ")");
    case kernel::NamedFunction::erf_plus_one:
      return define(v, "one_plus_erf(", x, ")");
    case kernel::NamedFunction::quotient:
      return define(v, "over(", x, ", divisor(", text_.of(op.operands[1]), "))");
    case kernel::NamedFunction::exp_negative:
      return define(v, "exponential(", x, ")");
    case kernel::NamedFunction::round_bf16:
      return define(v, "round_bf16(", x, ")");
    case kernel::NamedFunction::round_f16:
      return define(v, "round_f16(", x, ")");
    case kernel::NamedFunction::pack_bf16:
    case kernel::NamedFunction::dot_bf16:
      break;
  }
}

// The index where it is one; else the failure is reported and 0 takes its place.
void OperationPrinter::indirect(const Operation& op) {
  const auto& detail = std::get<kernel::Symbolic>(op.detail);
  const ValueId v = op.results[0];
  const ShortText value = text_.of(op.operands[0]);
  const ShortText name = text_.variable(v);
  const std::string_view type = text_.fits32(detail.symbol) ? "int" : "i64";
  out_.begin("const bool in", name, " = (u64)(i64)", value, " < (u64)(");
  text_.index(out_, detail.extent, true);
  out_.end(");");
  out_.put("if (!in", name, ") fault(status, 1);");
  out_.put("const ", type, " ", name, " = in", name, " ? (", type, ")", value, " : 0;");
  if (text_.in_lanes()) store_lane(v);
  can_fail_ = true;
  text_.define(detail.symbol, v);
}

void OperationPrinter::bind(const Operation& op) {
  const sym::Expr symbol = std::get<kernel::Symbolic>(op.detail).symbol;
  const ValueId v = op.results[0];
  const ValueId from = op.operands[0];
  const std::string_view type = text_.fits32(symbol) ? "int" : "i64";
  if (type == "int" && text_.is_narrow(from)) {
    out_.put("const int ", text_.variable(v), " = ", text_.variable(from), ";");
  } else {
    out_.put("const ", type, " ", text_.variable(v), " = (", type, ")", text_.of(from), ";");
  }
  if (text_.in_lanes()) store_lane(v);
  text_.define(symbol, v);
}

// --- Memory ----------------------------------------------------------------------------------

bool OperationPrinter::is_whole(OperationId o) const {
  return !text_.in_lanes() && text_.lanes() > 1 && plan_.width(o) > 1;
}

void OperationPrinter::load(OperationId o) {
  const Operation& op = k_.operations[o];
  const auto& access = std::get<Access>(op.detail);
  const ValueId v = op.results[0];
  if (access.remote) {
    return define(v, "load_peer(&", memory_.element(access), ", (u32)",
                  text_.of(op.operands.back()), ")");
  }
  if (access.order != Order::weak) {
    INKLE_CHECK(access.scope == Scope::gpu, "kernel {}: a load ordered at {}", k_.name,
                name_of(access.scope));
    return define(v, access.order == Order::acquire ? "load_acquire(&" : "load_relaxed(&",
                  memory_.element(access), ")");
  }
  const bool is_packs = memory_.is_packs(access.memory);
  if (!is_whole(o)) {
    if (is_packs && abi::is_reduced_float(text_.dtype(v))) {
      out_.begin("const float ", text_.define_widened(v), " = to_f32(");
      memory_.pack_of(out_, access);
      out_.add(", ");
      text_.index(out_, access.indices.back());
      out_.end(");");
    }
    begin(v);
    memory_.element(out_, access);
    return end(v);
  }
  begin_pack(v);
  if (is_packs) {
    memory_.pack_of(out_, access);
    return out_.end(";");
  }
  const std::string_view how = !access.constant               ? "load<"
                               : access.hint == Hint::lasting ? "load_lasting<"
                               : access.hint == Hint::once    ? "load_once<"
                               : access.hint == Hint::early   ? "load_now<"
                                                              : "load_constant<";
  out_.add(how, digits(text_.lanes()), ", ", digits(plan_.width(o)), ">(");
  memory_.address(out_, access);
  out_.end(");");
}

void OperationPrinter::load_if(ValueId result, ValueId condition, const Access& access,
                               ValueId otherwise) {
  begin(result);
  out_.add(text_.of(condition), " ? ");
  memory_.element(out_, access);
  out_.add(" : ", text_.of(otherwise));
  end(result);
}

void OperationPrinter::store(OperationId o) {
  const Operation& op = k_.operations[o];
  const auto& access = std::get<Access>(op.detail);
  const ValueId v = op.operands.back();
  if (access.order != Order::weak) {
    INKLE_CHECK(access.scope == Scope::gpu, "kernel {}: a store ordered at {}", k_.name,
                name_of(access.scope));
    out_.line("store_{}(&{}, {});", access.order == Order::release ? "release" : "relaxed",
              memory_.element(access), text_.of(v));
    return;
  }
  if (!is_whole(o)) {
    out_.begin();
    memory_.element(out_, access);
    out_.add(" = ", text_.of(v));
    return out_.end(";");
  }
  const ShortText value = pack_of(v);
  if (memory_.is_packs(access.memory)) {
    out_.begin();
    memory_.pack_of(out_, access);
    out_.add(" = ", value);
    return out_.end(";");
  }
  const std::string_view how = access.hint == Hint::first ? "store_away<" : "store<";
  out_.begin(how, digits(plan_.width(o)), ">(");
  memory_.address(out_, access);
  out_.add(", ", value);
  out_.end(");");
}

void OperationPrinter::atomic(const Operation& op) {
  const auto& detail = std::get<kernel::Atomic>(op.detail);
  const std::string at = memory_.element(detail.access);
  const ShortText value = text_.of(op.operands.back());
  if (detail.access.order != Order::relaxed) {
    INKLE_CHECK(detail.access.order == Order::acquire_release &&
                    detail.op == kernel::AtomicOp::add && detail.access.scope == Scope::gpu &&
                    detail.needs_old,
                "kernel {}: no text of CUDA for an atomic operation ordered by {}", k_.name,
                name_of(detail.access.order));
    return define(op.results[0], "add_in_order(&", at, ", ", value, ")");
  }
  if (!detail.needs_old && detail.op == kernel::AtomicOp::add) {
    out_.line("add_to(&{}, {});", at, value);
    return;
  }
  const char* name = detail.op == kernel::AtomicOp::add        ? "atomicAdd"
                     : detail.op == kernel::AtomicOp::exchange ? "atomicExch"
                     : detail.op == kernel::AtomicOp::min      ? "atomicMin"
                     : detail.op == kernel::AtomicOp::max      ? "atomicMax"
                     : detail.op == kernel::AtomicOp::bit_or   ? "atomicOr"
                                                               : "atomicCAS";
  ShortText expected;
  if (detail.op == kernel::AtomicOp::compare_exchange) {
    expected = {text_.of(op.operands[op.operands.size() - 2]), ", "};
  }
  const std::string call = concat({name, "(&", at, ", ", expected, value, ")"});
  if (detail.needs_old)
    define(op.results[0], call);
  else
    out_.put(call, ";");
}

void OperationPrinter::copy(const kernel::Copy& copy) {
  const std::int64_t bytes = copy.elements * abi::size_of(k_.memories[copy.from.memory].dtype);
  out_.line("copy_ahead<{}>((char*)({}), {});", bytes, memory_.address(copy.to),
            memory_.address(copy.from));
}

// --- Threads ---------------------------------------------------------------------------------

// The threads of a part of a warp.
static ShortText team(std::int32_t width) { return {"team<", digits(width), ">()"}; }

void OperationPrinter::shuffle(const Operation& op) {
  const auto& detail = std::get<kernel::Shuffle>(op.detail);
  const ShortText members = detail.whole_warp ? ShortText{"0xffffffffu"} : team(detail.width);
  const ShortText by = op.operands.size() > 1 ? text_.of(op.operands[1]) : digits(detail.by);
  const ShortText value = text_.of(op.operands[0]);
  if (detail.kind == kernel::ShuffleKind::exclusive_or) {
    return define(op.results[0], "exchange(", value, ", ", by, ", ", members, ")");
  }
  const std::string_view name = detail.kind == kernel::ShuffleKind::up     ? "shuffle_up<"
                                : detail.kind == kernel::ShuffleKind::down ? "shuffle_down<"
                                                                           : "shuffle_from<";
  define(op.results[0], name, digits(detail.width), ">(", value, ", ", by, ", ", members, ")");
}

void OperationPrinter::barrier(const kernel::Barrier& barrier) {
  if (barrier.scope == Scope::warp) {
    out_.put("__syncwarp(", barrier.threads == 0 ? ShortText() : team(barrier.threads), ");");
    return;
  }
  if (barrier.scope == Scope::cluster) {
    out_.put("cluster_sync();");
    return;
  }
  const bool all = barrier.threads == 0 && barrier.number == 0;
  if (all && barrier.part == kernel::Barrier::Part::both) {
    out_.put("__syncthreads();");
    return;
  }
  const std::int64_t threads = barrier.threads == 0 ? k_.threads() : barrier.threads;
  out_.line("asm volatile(\"bar.{} {}, {};\" ::: \"memory\");",
            barrier.part == kernel::Barrier::Part::arrive ? "arrive" : "sync", barrier.number,
            threads);
}

void OperationPrinter::fence(const kernel::Fence& fence) {
  if (fence.proxy) out_.put("asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");");
  if (fence.scope == Scope::block)
    out_.put("__threadfence_block();");
  else if (!fence.proxy)
    out_.put("__threadfence();");
}

}  // namespace inkle::codegen::cuda
