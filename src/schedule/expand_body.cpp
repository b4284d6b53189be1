// The operations of a recorded body at one place of a kernel.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "kernel/lanes.h"
#include "schedule/expand_parts.h"

namespace inkle::schedule::expansion {

using kernel::Access;
using kernel::Form;
using loop::Instruction;
using loop::Opcode;
using loop::Val;

Expr split_lanes(Expr e, Expr lane, std::int64_t lanes) {
  if (lane.is_null() || !sym::contains(e, lane)) return e;
  switch (e.kind()) {
    case sym::Kind::add: {
      Expr sum = e.context().constant(0);
      for (const Expr term : e.operands()) sum = sum + split_lanes(term, lane, lanes);
      return sum;
    }
    case sym::Kind::mul: {
      Expr product = e.context().constant(1);
      for (const Expr factor : e.operands()) product = product * split_lanes(factor, lane, lanes);
      return product;
    }
    case sym::Kind::floordiv:
    case sym::Kind::mod: {
      const Expr dividend = split_lanes(e.operands()[0], lane, lanes);
      const Expr divisor = e.operands()[1];
      const auto by = divisor.constant();
      const auto stride = sym::stride(dividend, lane);
      const bool stays = by && *by > 0 && *by % lanes == 0 && stride && stride->is_constant(1) &&
                         sym::divides(lanes, dividend - lane);
      const bool quotient = e.kind() == sym::Kind::floordiv;
      if (stays) {
        return quotient ? sym::floordiv(dividend - lane, divisor)
                        : sym::mod(dividend - lane, divisor) + lane;
      }
      return quotient ? sym::floordiv(dividend, divisor) : sym::mod(dividend, divisor);
    }
    default:
      return e;
  }
}

namespace {

// e with `to` for the variable inside of quotients and remainders alone.
Expr bound_divisions(Expr e, Expr variable, Expr to) {
  if (!sym::contains(e, variable)) return e;
  switch (e.kind()) {
    case sym::Kind::add: {
      Expr sum = e.context().constant(0);
      for (const Expr term : e.operands()) sum = sum + bound_divisions(term, variable, to);
      return sum;
    }
    case sym::Kind::mul: {
      Expr product = e.context().constant(1);
      for (const Expr f : e.operands()) product = product * bound_divisions(f, variable, to);
      return product;
    }
    case sym::Kind::floordiv:
    case sym::Kind::mod: {
      const std::pair<Expr, Expr> map[] = {{variable, to}};
      return sym::substitute(e, map);
    }
    default:
      return e;
  }
}

}  // namespace

BodyExpander::BodyExpander(Expansion& expansion, const loop::Body& body, Lanes lanes)
    : expansion_(expansion), b_(expansion.b), body_(body), lanes_(std::move(lanes)) {
  const auto count = static_cast<std::size_t>(std::max(lanes_.copies, 1));
  varying_.resize(body.instructions.size(), false);
  values_.assign(count, Values(body.instructions.size(), kernel::kNone));
  symbols_.resize(count);
  valid_.resize(count);
  for (Val v = 0; v < body.instructions.size(); ++v) analyse(v);
}

bool BodyExpander::varies(Expr e) const {
  if (lanes_.lanes * lanes_.copies == 1) return false;
  for (const Expr s : sym::symbols(e)) {
    if (s == lanes_.variable) return true;
    const auto found = indirect_.find(s.node());
    if (found != indirect_.end() && varying_[found->second]) return true;
  }
  return false;
}

void BodyExpander::analyse(Val v) {
  const Instruction& i = body_[v];
  bool varying = false;
  for (const Val operand : i.used()) varying = varying || varying_[operand];
  if (i.opcode == Opcode::index) varying = varying || varies(i.indices[0]);
  if (i.opcode == Opcode::load) {
    varying = varying || varies(i.indices[0]) || (is_scratch(i.buffer) && expansion_.columns);
  }
  if (i.opcode == Opcode::row) {
    varying = varying || expansion_.rows.at(static_cast<std::size_t>(i.integer)).varies;
  }
  if (i.opcode == Opcode::indirect) indirect_[i.indices[0].node()] = v;
  varying_[v] = varying;
}

bool BodyExpander::is_scratch(std::uint32_t buffer) const {
  return buffer >= expansion_.scheduled.params.size();
}

ValueId BodyExpander::value(Val v, int copy) {
  const auto slot = static_cast<std::size_t>(varying_[v] ? copy : 0);
  ValueId& known = values_[slot][v];
  if (known == kernel::kNone) {
    const ValueId made = emit(v, static_cast<int>(slot));
    values_[slot][v] = made;
    return made;
  }
  return known;
}

ValueId BodyExpander::emit(Val v, int copy) {
  const Instruction& i = body_[v];
  switch (i.opcode) {
    case Opcode::constant:
      return abi::is_float(i.dtype) ? b_.real(i.dtype, i.real) : b_.integer(i.dtype, i.integer);
    case Opcode::index:
      return index(i.indices[0], copy, DType::i64);
    case Opcode::load:
      return load(i, copy);
    case Opcode::row: {
      const Row& row = expansion_.rows[static_cast<std::size_t>(i.integer)];
      return row.copies[row.varies ? static_cast<std::size_t>(copy) : 0];
    }
    case Opcode::indirect:
      return indirect(i, v, copy);
    case Opcode::random:
      return random(i, v, copy);
    default:
      break;
  }
  Values operands;
  for (const Val operand : i.used()) operands.push_back(value(operand, copy));
  const bool divides = i.opcode >= Opcode::div && i.opcode <= Opcode::fmod;
  if (mask_.active != kernel::kNone && varying_[v] && divides && !abi::is_float(i.dtype)) {
    const ValueId one = b_.integer(i.dtype, 1);
    operands[1] = b_.compute(Opcode::select, i.dtype, {mask_.active, operands[1], one});
  }
  return b_.compute(i.opcode, i.dtype, operands);
}

void BodyExpander::need_symbols(Expr e, std::vector<bool>& needed) const {
  for (const Expr s : sym::symbols(e)) {
    const auto found = indirect_.find(s.node());
    if (found != indirect_.end()) need(found->second, needed);
  }
}

void BodyExpander::need(Val v, std::vector<bool>& needed) const {
  if (needed[v] || values_[0][v] != kernel::kNone) return;
  needed[v] = true;
  const Instruction& i = body_[v];
  for (const Val operand : i.used()) need(operand, needed);
  if (i.opcode == Opcode::load || i.opcode == Opcode::index) need_symbols(i.indices[0], needed);
}

void BodyExpander::evaluate(const std::vector<std::uint32_t>& yields,
                            const std::vector<StageStore>& stores) {
  std::vector<bool> needed(body_.instructions.size(), false);
  for (const std::uint32_t yield : yields) need(body_.yields[yield], needed);
  for (const StageStore& store : stores) need_symbols(store.offset, needed);
  for (Val v = 0; v < needed.size(); ++v) {
    if (needed[v]) (void)value(v, 0);
  }
}

void BodyExpander::know(Val v, ValueId value) { values_[0][v] = value; }

Expr BodyExpander::at(Expr e, int copy) {
  for (const Expr s : sym::symbols(e)) {
    const auto found = indirect_.find(s.node());
    if (found != indirect_.end()) (void)value(found->second, copy);
  }
  Replacements map = expansion_.replaced;
  const auto slot = static_cast<std::size_t>(copy);
  map.insert(map.end(), symbols_[slot].begin(), symbols_[slot].end());
  // Of those of copy 0 only the ones that are equal for all lanes.
  for (const auto& symbol : slot == 0 ? Replacements() : symbols_[0]) {
    if (!varying_[indirect_.at(symbol.first.node())]) map.push_back(symbol);
  }
  const bool along = !lanes_.variable.is_null() && sym::contains(e, lanes_.variable);
  if (along) {
    Expr position = lanes_.base + std::int64_t{copy} * lanes_.lanes;
    if (!lanes_.lane.is_null()) position = position + lanes_.lane;
    map.emplace_back(lanes_.variable, position);
    if (!lanes_.bounded.is_null()) {
      const Expr known = sym::max(lanes_.bounded + lanes_.lane, e.context().constant(0));
      e = bound_divisions(e, lanes_.variable, known);
    }
  }
  if (!map.empty()) e = sym::substitute(e, map);
  return along ? split_lanes(e, lanes_.lane, lanes_.lanes) : e;
}

ValueId BodyExpander::index(Expr e, int copy, DType dtype) { return b_.index(at(e, copy), dtype); }

Access BodyExpander::access(std::uint32_t buffer, Expr offset, int copy) {
  Access access;
  access.memory = expansion_.memories.at(buffer);
  const Expr place = at(offset, copy);
  if (is_scratch(buffer) && expansion_.columns) {
    Expr lane = place.context().constant(std::int64_t{copy} * lanes_.lanes);
    if (!lanes_.lane.is_null()) lane = lane + lanes_.lane;
    access.indices = {place, lane};
    access.form = lanes_.lane.is_null() ? Form::each : Form::wide;
    return access;
  }
  if (is_scratch(buffer) && b_.kernel().memories[access.memory].space == kernel::Space::registers) {
    const bool is_one = lanes_.lane.is_null();
    access.indices = {lanes_.number, is_one ? place.context().constant(0) : lanes_.lane};
    access.form = is_one ? Form::each : Form::wide;
    return access;
  }
  access.indices = {place};
  const bool is_of_team =
      is_scratch(buffer) && b_.kernel().memories.at(access.memory).shape.size() == 2;
  if (is_of_team) access.indices.insert(access.indices.begin(), expansion_.team);
  if (lanes_.lane.is_null()) return access;
  const auto stride = sym::stride(place, lanes_.lane);
  const bool other =
      std::any_of(symbols_[static_cast<std::size_t>(copy)].begin(),
                  symbols_[static_cast<std::size_t>(copy)].end(), [&](const auto& symbol) {
                    const auto found = indirect_.find(symbol.first.node());
                    return varying_[found->second] && sym::contains(offset, symbol.first);
                  });
  if (other || !stride) return access;
  if (stride->is_constant(0)) access.form = Form::splat;
  if (stride->is_constant(1)) access.form = Form::wide;
  return access;
}

ValueId BodyExpander::valid(Expr offset, int copy) {
  ValueId all = kernel::kNone;
  for (const Expr s : sym::symbols(offset)) {
    const auto source = indirect_.find(s.node());
    if (source == indirect_.end()) continue;
    const auto slot = static_cast<std::size_t>(varying_[source->second] ? copy : 0);
    const auto found = valid_[slot].find(s.node());
    if (found == valid_[slot].end()) continue;
    all = all == kernel::kNone ? found->second : logic(b_, Opcode::bit_and, {all, found->second});
  }
  return all;
}

ValueId BodyExpander::load(const Instruction& i, int copy) {
  INKLE_CHECK(i.dtype == b_.kernel().memories.at(expansion_.memories.at(i.buffer)).dtype,
              "kernel {}: a load of {} from a buffer of another type", expansion_.scheduled.name,
              abi::name_of(i.dtype));
  Access from = access(i.buffer, i.indices[0], copy);
  annotate(from, i.indices[0], false);
  ValueId predicate = kernel::kNone, otherwise = kernel::kNone;
  if (i.operand_count == 2) {
    predicate = value(i.operands[0], copy);
    otherwise = value(i.operands[1], copy);
  }
  const ValueId exists = valid(i.indices[0], copy);
  if (exists != kernel::kNone) {
    predicate =
        predicate == kernel::kNone ? exists : logic(b_, Opcode::bit_and, {predicate, exists});
  }
  if (predicate == kernel::kNone) return read(from);
  if (otherwise == kernel::kNone) {
    otherwise = zero(b_, i.dtype);
  }
  return b_.branch(
      predicate, [&] { return Values{read(from)}; }, [&] { return Values{otherwise}; })[0];
}

ValueId BodyExpander::read(const Access& access) {
  if (mask_.active == kernel::kNone || access.form == Form::splat) return b_.load(access);
  const DType dtype = b_.kernel().memories.at(access.memory).dtype;
  const auto of_active = [&] {
    Access one = access;
    one.form = Form::each;
    one.hint = kernel::Hint::none;
    const ValueId none = zero(b_, dtype);
    return b_.branch(
        mask_.active, [&] { return Values{b_.load(one)}; }, [&] { return Values{none}; });
  };
  if (!is_whole(access)) return of_active()[0];
  return b_.branch(
      mask_.whole, [&] { return Values{b_.load(access)}; }, of_active)[0];
}

// Whether lanes that are all active make accesses of several elements.
bool BodyExpander::is_whole(const Access& access) const {
  return access.form == Form::wide && mask_.whole != kernel::kNone &&
         kernel::access_width(b_.kernel(), access, lanes_.lane, lanes_.lanes) > 1;
}

void BodyExpander::write(const Access& access, const std::function<void(const Access&)>& one) {
  if (mask_.active == kernel::kNone) return one(access);
  const auto of_active = [&] {
    b_.branch(mask_.active, [&] {
      Access each = access;
      each.form = Form::each;
      each.hint = kernel::Hint::none;
      one(each);
      return Values();
    });
    return Values();
  };
  if (!is_whole(access)) {
    of_active();
    return;
  }
  b_.branch(
      mask_.whole,
      [&] {
        one(access);
        return Values();
      },
      of_active);
}

// Every iteration reads elements of its own.
bool BodyExpander::is_read_once(Expr offset) const {
  const auto& outer = expansion_.loops.outer;
  if (!usage_.around.is_null() && !sym::contains(offset, usage_.around)) return false;
  return std::all_of(outer.begin(), outer.end(), [&](const loop::Dim& dim) {
    return dim.extent.is_constant(1) || sym::contains(offset, dim.variable);
  });
}

void BodyExpander::annotate(Access& access, Expr offset, bool is_store) const {
  if (expansion_.blocks == nullptr) return;
  const kernel::Memory& memory = b_.kernel().memories.at(access.memory);
  if (memory.space != kernel::Space::global) return;
  if (is_store) {
    if (usage_.leaves) access.hint = kernel::Hint::first;
    return;
  }
  access.constant = memory.role == kernel::Role::in && !expansion_.aliasing;
  if (!access.constant || access.form != Form::wide) return;
  if (usage_.ahead) access.hint = kernel::Hint::early;
  if (usage_.ahead || !is_read_once(offset)) return;
  if (usage_.lasts)
    access.hint = kernel::Hint::lasting;
  else if (usage_.streams)
    access.hint = kernel::Hint::once;
}

// Consecutive lanes from a multiple of 4 on share one call of the generator, which makes 4 words.
ValueId BodyExpander::random(const Instruction& i, Val v, int copy) {
  const ValueId seed = value(i.operands[0], copy);
  const ValueId offset = value(i.operands[1], copy);
  const Instruction& counter = body_[i.operands[1]];
  Form form = Form::each;
  if (varying_[v] && !varying_[i.operands[0]] && counter.opcode == Opcode::index &&
      !lanes_.lane.is_null() && lanes_.lanes % 4 == 0) {
    const Expr place = at(counter.indices[0], copy);
    const auto stride = sym::stride(place, lanes_.lane);
    if (stride && stride->is_constant(1) && sym::divides(4, place - lanes_.lane)) form = Form::wide;
  }
  return b_.compute(Opcode::random, i.dtype, {seed, offset}, form);
}

ValueId BodyExpander::indirect(const Instruction& i, Val v, int copy) {
  const Val source = i.operands[0];
  const Expr symbol = i.indices[0];
  const sym::SymbolInfo& info = symbol.context().info(symbol);
  const auto slot = static_cast<std::size_t>(varying_[v] ? copy : 0);
  const bool proven = body_[source].opcode == Opcode::index && !info.extent.is_null() &&
                      sym::bounds(body_[source].indices[0]).low >= 0 &&
                      sym::less(body_[source].indices[0], info.extent) == true;
  if (proven) {
    symbols_[slot].emplace_back(symbol, at(body_[source].indices[0], copy));
    return value(source, copy);
  }
  INKLE_CHECK(!info.extent.is_null() || info.range.high != sym::Range::kMax,
              "kernel {}: indirect '{}' has no extent", expansion_.scheduled.name, symbol.name());
  ValueId value_of_source = value(source, copy);
  if (mask_.active != kernel::kNone && varying_[v]) {
    const ValueId zero = b_.integer(DType::i64, 0);
    value_of_source = b_.compute(Opcode::select, DType::i64, {mask_.active, value_of_source, zero});
  }
  const bool has_extent = !info.extent.is_null();
  const Expr extent =
      has_extent ? at(info.extent, copy) : symbol.context().constant(info.range.high + 1);
  if (has_extent && sym::bounds(extent).low < 1) {
    const ValueId not_below =
        logic(b_, Opcode::greater_equal, {value_of_source, b_.integer(DType::i64, 0)});
    const ValueId below = logic(b_, Opcode::less, {value_of_source, b_.index(extent)});
    valid_[slot][symbol.node()] = logic(b_, Opcode::bit_and, {not_below, below});
  }
  const Expr checked = b_.indirect(value_of_source, extent);
  symbols_[slot].emplace_back(symbol, checked);
  return b_.kernel().operations.back().results[0];
}

void BodyExpander::store(const StageStore& store, int copy) {
  const loop::Val yield = body_.yields.at(store.yield);
  this->store(store, value(yield, copy), varying_[yield], copy);
}

void BodyExpander::store(const std::vector<StageStore>& stores) {
  for (const StageStore& one : stores) (void)value(body_.yields[one.yield], 0);
  for (const StageStore& one : stores) store(one, 0);
}

void BodyExpander::store(const StageStore& store, ValueId value, bool varies, int copy) {
  Access to = access(store.target, store.offset, copy);
  // Of a dimension of one element no more than one lane is active.
  if (varies && to.form == Form::splat) to.form = Form::each;
  const DType dtype = b_.kernel().memories.at(to.memory).dtype;
  const ValueId stored = b_.cast(value, dtype);
  if (expansion_.publish && expansion_.publish(store, stored)) return;
  annotate(to, store.offset, true);
  if (store.mode == loop::StoreMode::atomic_add && to.form == Form::wide) to.form = Form::each;
  const auto one = [&](const Access& place) {
    if (store.mode == loop::StoreMode::atomic_add) {
      kernel::Atomic add;
      add.access = place;
      add.access.order = kernel::Order::relaxed;
      add.access.scope = kernel::Scope::gpu;
      b_.operation(kernel::Op::atomic, {stored}, {kernel::scalar_type(dtype)}, std::move(add));
    } else {
      b_.store(place, stored);
    }
  };
  const ValueId exists = valid(store.offset, copy);
  if (exists == kernel::kNone) {
    write(to, one);
    return;
  }
  b_.branch(exists, [&] {
    write(to, one);
    return Values();
  });
}

}  // namespace inkle::schedule::expansion
