#include "kernel/interpret_program.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "kernel/fragment.h"
#include "kernel/lanes.h"

namespace inkle::kernel {

Ref ProgramWriter::slot(std::int32_t width, bool varies) {
  const Ref ref{program_.slots | (varies ? Ref::kVaries : 0)};
  program_.slots += static_cast<std::uint32_t>(varies ? width : 1);
  return ref;
}

Ref ProgramWriter::constant(std::int64_t bits) {
  const auto [at, is_new] =
      constants_.try_emplace(bits, static_cast<std::uint32_t>(program_.pool.size()));
  if (is_new) program_.pool.push_back(bits);
  return {at->second | Ref::kPool};
}

Ref ProgramWriter::value_slot(const Type& type, bool varies) {
  if (type.kind == TypeKind::fragment) {
    return slot(elements_of(kernel_.fragments[type.fragment]) + 1, true);
  }
  return slot(lanes_.width, varies && lanes_.width > 0);
}

// Slots that a move of the type copies, beyond the lanes.
std::int32_t ProgramWriter::move_width(const Type& type, Ref to) const {
  if (type.kind == TypeKind::fragment) return elements_of(kernel_.fragments[type.fragment]) + 1;
  return to.varies() ? lanes_.width : 1;
}

Instruction& ProgramWriter::emit(Code code, OperationId operation, std::span<const Ref> operands) {
  Instruction instruction;
  instruction.code = code;
  instruction.operation = operation;
  instruction.operands = static_cast<std::uint32_t>(program_.refs.size());
  instruction.operand_count = static_cast<std::uint32_t>(operands.size());
  program_.refs.insert(program_.refs.end(), operands.begin(), operands.end());
  program_.code.push_back(instruction);
  return program_.code.back();
}

void ProgramWriter::move(const Type& type, Ref to, Ref from, OperationId operation) {
  if (type.kind == TypeKind::token) return;
  const std::array operands = {from};
  Instruction& made = emit(Code::move, operation, operands);
  made.result = to;
  made.width = move_width(type, to);
  if (to.varies() && type.kind == TypeKind::scalar) made.mask = lanes_.mask;
}

void ProgramWriter::move_all(std::span<const ValueId> from, std::span<const Ref> to,
                             OperationId operation) {
  bool crosses = false;
  for (std::size_t i = 0; i < from.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) crosses |= ref(from[i]).bits == to[j].bits;
  }
  std::vector<Ref> sources;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const Type& type = kernel_.type_of(from[i]);
    Ref source = ref(from[i]);
    if (crosses && type.kind != TypeKind::token) {
      const Ref copy = value_slot(type, to[i].varies());
      move(type, copy, source, operation);
      source = copy;
    }
    sources.push_back(source);
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    move(kernel_.type_of(from[i]), to[i], sources[i], operation);
  }
}

std::vector<Ref> ProgramWriter::refs(std::span<const ValueId> values) const {
  std::vector<Ref> result;
  for (const ValueId value : values) result.push_back(ref(value));
  return result;
}

bool any_varies(std::span<const Ref> refs) {
  return std::any_of(refs.begin(), refs.end(), [](Ref r) { return !r.is_none() && r.varies(); });
}

void ProgramWriter::bind_all(std::span<const ValueId> values, std::span<const Ref> refs) {
  for (std::size_t i = 0; i < values.size(); ++i) values_[values[i]] = refs[i];
}

std::vector<Ref> ProgramWriter::carried_slots(std::span<const ValueId> initial, OperationId id) {
  std::vector<Ref> carried;
  for (const ValueId value : initial) {
    const Type& type = kernel_.type_of(value);
    carried.push_back(value_slot(type, true));
    move(type, carried.back(), ref(value), id);
  }
  return carried;
}

// --- Index expressions

bool IndexWriter::affine(Expr e, std::int64_t coefficient, std::vector<IndexTerm>& terms,
                         std::int64_t& constant) const {
  switch (e.kind()) {
    case sym::Kind::constant:
      constant += coefficient * *e.constant();
      return true;
    case sym::Kind::symbol:
      terms.push_back({coefficient, symbol(e)});
      return true;
    case sym::Kind::add:
      return std::all_of(e.operands().begin(), e.operands().end(),
                         [&](Expr t) { return affine(t, coefficient, terms, constant); });
    case sym::Kind::mul:
      return e.operands().size() == 2 && e.operands()[0].is_constant() &&
             affine(e.operands()[1], coefficient * *e.operands()[0].constant(), terms, constant);
    default:
      return false;
  }
}

void IndexWriter::steps(Expr e) {
  const auto fold = [&](IndexStepKind kind) {
    for (std::size_t i = 0; i < e.operands().size(); ++i) {
      steps(e.operands()[i]);
      if (i > 0) program_.steps.push_back({kind, {}, 0});
    }
  };
  switch (e.kind()) {
    case sym::Kind::constant:
      program_.steps.push_back({IndexStepKind::constant, {}, *e.constant()});
      return;
    case sym::Kind::symbol:
      program_.steps.push_back({IndexStepKind::push, symbol(e), 0});
      return;
    case sym::Kind::add:
      return fold(IndexStepKind::add);
    case sym::Kind::mul:
      return fold(IndexStepKind::mul);
    case sym::Kind::floordiv:
      return fold(IndexStepKind::floordiv);
    case sym::Kind::mod:
      return fold(IndexStepKind::mod);
    case sym::Kind::min:
      return fold(IndexStepKind::min);
    case sym::Kind::max:
      return fold(IndexStepKind::max);
  }
}

Ref IndexWriter::symbol(Expr e) const {
  const auto at = symbols_.find(e.id());
  INKLE_CHECK(at != symbols_.end(), "kernel {}: symbol {} has no value here", kernel_.name,
              e.name());
  return at->second;
}

std::uint32_t IndexWriter::index(Expr e) {
  IndexProgram made;
  std::vector<IndexTerm> terms;
  made.is_affine = affine(e, 1, terms, made.constant);
  if (made.is_affine) {
    made.first = static_cast<std::uint32_t>(program_.terms.size());
    made.count = static_cast<std::uint32_t>(terms.size());
    program_.terms.insert(program_.terms.end(), terms.begin(), terms.end());
    for (const IndexTerm& term : terms) made.varies |= term.value.varies();
  } else {
    made.first = static_cast<std::uint32_t>(program_.steps.size());
    steps(e);
    made.count = static_cast<std::uint32_t>(program_.steps.size()) - made.first;
    for (const Expr s : sym::symbols(e)) made.varies |= symbol(s).varies();
  }
  program_.indices.push_back(made);
  return static_cast<std::uint32_t>(program_.indices.size() - 1);
}

Ref IndexWriter::index_slot(Expr e, OperationId operation) {
  if (const auto value = e.constant()) return out_.constant(*value);
  const std::uint32_t number = index(e);
  INKLE_CHECK(!program_.indices[number].varies, "a loop's bounds vary by lane");
  const Ref to = out_.slot(1, false);
  Instruction& made = out_.emit(Code::index, operation);
  made.detail = number;
  made.result = to;
  return to;
}

std::uint32_t IndexWriter::access(const Access& from, std::span<const Ref>& operands) {
  AccessCode made;
  made.memory = from.memory;
  made.form = from.form;
  made.is_constant = from.constant;
  made.order = from.order;
  made.scope = from.scope;
  made.native = lanes_.native;
  if (from.indices_are_operands || from.is_lowered) {
    const std::size_t count =
        from.is_lowered ? (from.has_lane_offset ? 2 : 1) : rank_of(kernel_.memories[from.memory]);
    INKLE_CHECK(operands.size() >= count, "an access lacks indices");
    made.operands.assign(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(count));
    operands = operands.subspan(count);
    made.is_linear = from.is_lowered;
    made.varies = any_varies(made.operands) || (from.is_lowered && from.form == Form::wide);
  } else {
    if (from.form == Form::wide)
      made.native = access_width(kernel_, from, lanes_.lane, lanes_.native);
    for (const Expr e : from.indices) {
      made.indices.push_back(index(e));
      made.varies |= program_.indices[made.indices.back()].varies;
    }
  }
  if (from.remote) {
    INKLE_CHECK(!operands.empty(), "a remote access lacks its rank");
    made.rank = operands.back();
    operands = operands.first(operands.size() - 1);
    made.varies |= made.rank.varies();
  }
  program_.accesses.push_back(std::move(made));
  return static_cast<std::uint32_t>(program_.accesses.size() - 1);
}

std::uint32_t IndexWriter::fragment_access(const FragmentAccess& from,
                                           std::span<const Ref>& operands) {
  FragmentAccessCode made;
  made.access = access(from.access, operands);
  made.row_stride = index(from.row_stride);
  made.column_stride = index(from.column_stride);
  if (!from.row_limit.is_null()) made.row_limit = index(from.row_limit);
  if (!from.column_limit.is_null()) made.column_limit = index(from.column_limit);
  made.rows = from.rows;
  made.columns = from.columns;
  made.panel = from.panel;
  made.panel_stride = from.panel_stride;
  program_.fragments.push_back(made);
  return static_cast<std::uint32_t>(program_.fragments.size() - 1);
}

}  // namespace inkle::kernel
