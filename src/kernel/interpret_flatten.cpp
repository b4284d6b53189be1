// Structured kernel -> linear program. Control becomes jumps and masks; every value gets its slots.
#include <algorithm>
#include <functional>

#include "base/error.h"
#include "kernel/interpret_flatten.h"
#include "kernel/lanes.h"

namespace inkle::kernel {

Flattener::Flattener(const Kernel& kernel) : kernel_(kernel), values_(kernel.values.size()) {}

Program Flattener::run() {
  for (const Expr size : kernel_.sizes) {
    program_.sizes.push_back(symbols_[size.id()] = slot(1, false));
  }
  for (const Axis& axis : kernel_.launch.axes) {
    program_.axes.push_back(symbols_[axis.variable.id()] = slot(1, false));
  }
  region(kernel_.body);
  emit(Code::finish, kNone);
  return std::move(program_);
}

// --- Slots, constants, instructions

Ref Flattener::slot(std::int32_t width, bool varies) {
  const Ref ref{program_.slots | (varies ? Ref::kVaries : 0)};
  program_.slots += static_cast<std::uint32_t>(varies ? width : 1);
  return ref;
}

Ref Flattener::constant(std::int64_t bits) {
  const auto [at, is_new] =
      constants_.try_emplace(bits, static_cast<std::uint32_t>(program_.pool.size()));
  if (is_new) program_.pool.push_back(bits);
  return {at->second | Ref::kPool};
}

Ref Flattener::value_slot(const Type& type, bool varies) {
  if (type.kind == TypeKind::fragment) {
    return slot(elements_of(kernel_.fragments[type.fragment]) + 1, true);
  }
  return slot(width_, varies && width_ > 0);
}

// Slots that a move of the type copies, beyond the lanes.
std::int32_t Flattener::move_width(const Type& type, Ref to) const {
  if (type.kind == TypeKind::fragment) return elements_of(kernel_.fragments[type.fragment]) + 1;
  return to.varies() ? width_ : 1;
}

Instruction& Flattener::emit(Code code, OperationId operation, std::span<const Ref> operands) {
  Instruction instruction;
  instruction.code = code;
  instruction.operation = operation;
  instruction.operands = static_cast<std::uint32_t>(program_.refs.size());
  instruction.operand_count = static_cast<std::uint32_t>(operands.size());
  program_.refs.insert(program_.refs.end(), operands.begin(), operands.end());
  program_.code.push_back(instruction);
  return program_.code.back();
}

void Flattener::move(const Type& type, Ref to, Ref from, OperationId operation) {
  if (type.kind == TypeKind::token) return;
  const std::array operands = {from};
  Instruction& made = emit(Code::move, operation, operands);
  made.result = to;
  made.width = move_width(type, to);
  if (to.varies() && type.kind == TypeKind::scalar) made.mask = mask_;
}

// All at once: what is moved may be where another goes.
void Flattener::move_all(std::span<const ValueId> from, std::span<const Ref> to,
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

std::vector<Ref> Flattener::refs(std::span<const ValueId> values) const {
  std::vector<Ref> result;
  for (const ValueId value : values) result.push_back(ref(value));
  return result;
}

bool Flattener::any_varies(std::span<const Ref> refs) {
  return std::any_of(refs.begin(), refs.end(), [](Ref r) { return !r.is_none() && r.varies(); });
}

void Flattener::bind_arguments(RegionId region, std::span<const Ref> refs) {
  const std::vector<ValueId>& arguments = kernel_.regions[region].arguments;
  for (std::size_t i = 0; i < arguments.size(); ++i) values_[arguments[i]] = refs[i];
}

// --- Index expressions

bool Flattener::affine(Expr e, std::int64_t coefficient, std::vector<IndexTerm>& terms,
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

void Flattener::steps(Expr e) {
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

Ref Flattener::symbol(Expr e) const {
  const auto at = symbols_.find(e.id());
  INKLE_CHECK(at != symbols_.end(), "kernel {}: symbol {} has no value here", kernel_.name,
              e.name());
  return at->second;
}

std::uint32_t Flattener::index(Expr e) {
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

Ref Flattener::index_slot(Expr e, OperationId operation) {
  if (const auto value = e.constant()) return constant(*value);
  const std::uint32_t number = index(e);
  INKLE_CHECK(!program_.indices[number].varies, "a loop's bounds vary by lane");
  const Ref to = slot(1, false);
  Instruction& made = emit(Code::index, operation);
  made.detail = number;
  made.result = to;
  return to;
}

// `operands`: indices that are operands come first and are taken away.
std::uint32_t Flattener::access(const Access& from, std::span<const Ref>& operands) {
  AccessCode made;
  made.memory = from.memory;
  made.form = from.form;
  made.is_constant = from.constant;
  made.order = from.order;
  made.scope = from.scope;
  made.native = native_;
  if (from.indices_are_operands || from.is_lowered) {
    const std::size_t count =
        from.is_lowered ? (from.has_lane_offset ? 2 : 1) : rank_of(kernel_.memories[from.memory]);
    INKLE_CHECK(operands.size() >= count, "an access lacks indices");
    made.operands.assign(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(count));
    operands = operands.subspan(count);
    made.is_linear = from.is_lowered;
    made.varies = any_varies(made.operands) || (from.is_lowered && from.form == Form::wide);
  } else {
    if (from.form == Form::wide) made.native = access_width(kernel_, from, lane_, native_);
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

void Flattener::region(RegionId id) {
  for (const OperationId operation : kernel_.regions[id].operations) {
    if (operation != kNone) this->operation(operation);
  }
}

Program flatten(const Kernel& kernel) { return Flattener(kernel).run(); }

}  // namespace inkle::kernel
