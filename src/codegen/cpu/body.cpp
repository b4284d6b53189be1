// Code of a body's instructions and memory accesses.
#include "codegen/cpu/body.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"

namespace inkle::codegen::cpu {

using loop::Instruction;
using loop::Opcode;
using loop::Val;
using sym::Expr;

namespace {

int alignment_of(DType dtype) { return static_cast<int>(abi::size_of(dtype)); }

}  // namespace

BodyEmitter::BodyEmitter(KernelCode& code, const loop::Body& body, const Symbols& symbols,
                         LaneGroup lanes, int memory_floor, bool may_be_empty)
    : code_(code),
      ir_(code.ir),
      body_(body),
      lanes_(std::move(lanes)),
      index_(code, symbols, lanes_),
      facts_(body.instructions.size()),
      values_(static_cast<std::size_t>(lanes_.copies), Values(body.instructions.size(), nullptr)),
      broadcast_(body.instructions.size(), nullptr) {
  for (Val v = 0; v < body.instructions.size(); ++v) analyse(v, memory_floor, may_be_empty);
}

void BodyEmitter::analyse(Val v, int memory_floor, bool may_be_empty) {
  const Instruction& i = body_[v];
  Facts& facts = facts_[v];
  for (const Val operand : i.used()) {
    facts.varying = facts.varying || facts_[operand].varying;
    facts.depth = std::max(facts.depth, facts_[operand].depth);
  }
  const auto add_index = [&](Expr e) {
    facts.varying = facts.varying || index_.is_varying(e);
    facts.depth = std::max(facts.depth, index_.depth_of(e));
  };
  if (i.opcode == Opcode::index) add_index(i.indices[0]);
  if (i.opcode == Opcode::load) {
    add_index(i.indices[0]);
    const bool is_written = is_scratch(i.buffer) ||
                            code_.kernel.params[i.buffer].role != schedule::ParamRole::in ||
                            code_.kernel.params[i.buffer].may_alias;
    if (is_written || may_be_empty) facts.depth = std::max(facts.depth, memory_floor);
    if (is_scratch(i.buffer) && code_.scratch_has_lanes) {
      facts.varying = true;
      facts.depth = std::max(facts.depth, lanes_.depth);
    }
  }
  if (i.opcode == Opcode::row) {
    const RowValue& row = code_.rows.at(static_cast<std::size_t>(i.integer));
    facts.varying = row.varying;
    facts.depth = row.depth;
  }
  if (i.opcode == Opcode::indirect) {
    indirect_[i.indices[0].node()] = v;
    if (facts.varying)
      index_.bind_varying(i.indices[0], facts.depth);
    else
      index_.bind_scalar(i.indices[0], {nullptr, facts.depth});
  }
}

Value* BodyEmitter::mask(int copy) const {
  if (lanes_.masks.empty()) return nullptr;
  return lanes_.masks[static_cast<std::size_t>(copy)];
}

Value* BodyEmitter::lanes(Val v, int copy) {
  Value* value = get(v, copy);
  if (facts_[v].varying || lanes_.lanes == 1) return value;
  Value*& known = broadcast_[v];
  if (known == nullptr) {
    known = ir_.at_depth(facts_[v].depth, [&] { return ir_.broadcast(value, lanes_.lanes); });
  }
  return known;
}

Value* BodyEmitter::index_lanes(Expr e, int copy, int bits) {
  bind_indirect(e, copy);
  return index_.vector(e, copy, bits);
}

Value* BodyEmitter::get(Val v, int copy) {
  const auto slot = static_cast<std::size_t>(facts_[v].varying ? copy : 0);
  if (values_[slot][v] == nullptr) values_[slot][v] = emit(v, static_cast<int>(slot));
  return values_[slot][v];
}

Value* BodyEmitter::emit(Val v, int copy) {
  const Instruction& i = body_[v];
  const Facts& facts = facts_[v];
  const int width = facts.varying ? lanes_.lanes : 1;
  switch (i.opcode) {
    case Opcode::constant:
      return constant_of(ir_, i.dtype, 1, i.real, i.integer);
    case Opcode::index:
      return emit_index(i, v, copy);
    case Opcode::load:
      return emit_load(i, v, copy);
    case Opcode::indirect:
      return emit_indirect(i, v, copy);
    case Opcode::row: {
      const RowValue& row = code_.rows[static_cast<std::size_t>(i.integer)];
      return row.copies[row.varying ? static_cast<std::size_t>(copy) : 0];
    }
    case Opcode::random:
      if (Value* words = emit_neighbouring_random(i, v, copy)) return words;
      break;
    default:
      break;
  }
  std::array<Value*, 3> operands{};
  for (std::size_t k = 0; k < i.operand_count; ++k) {
    operands[k] =
        width == 1 && !facts.varying ? get(i.operands[k], copy) : lanes(i.operands[k], copy);
  }
  const Val kind = i.operands[i.opcode == Opcode::select ? 1 : 0];
  return ir_.at_depth(facts.depth, [&] {
    Value* active = facts.varying ? mask(copy) : nullptr;
    return emit_operation(ir_, i, body_[kind].dtype, {operands.data(), i.operand_count}, active,
                          code_.faults);
  });
}

Value* BodyEmitter::emit_index(const Instruction& i, Val v, int copy) {
  const Expr e = i.indices[0];
  bind_indirect(e, copy);
  if (!facts_[v].varying) return index_.scalar(e);
  if (lanes_.lanes == 1 || !IndexEmitter::fits32(e)) return index_.vector(e, copy, 64);
  Value* narrow = index_.vector(e, copy, 32);
  return ir_.at_depth(facts_[v].depth,
                      [&] { return ir_.sext(narrow, ir_.integer_type(64, lanes_.lanes)); });
}

Value* BodyEmitter::emit_neighbouring_random(const Instruction& i, Val v, int copy) {
  const Instruction& offset = body_[i.operands[1]];
  if (!facts_[v].varying || facts_[i.operands[0]].varying || offset.opcode != Opcode::index) {
    return nullptr;
  }
  const int lanes = lanes_.lanes, counters = lanes / 4;
  if (!lanes_.aligned || lanes % 4 != 0) return nullptr;
  const Expr e = offset.indices[0];
  const auto stride = index_.lane_stride(e);
  if (!stride || !stride->is_constant(1)) return nullptr;
  const std::pair<Expr, Expr> group[] = {
      {lanes_.variable, e.context().index(e.context().constant(1 << 30)) * lanes}};
  if (!sym::divides(4, sym::substitute(e, group))) return nullptr;
  Value* seed = get(i.operands[0], copy);
  Value* first = index_.scalar(e, copy);
  return ir_.at_depth(facts_[v].depth, [&] {
    Type* type = ir_.integer_type(64, counters);
    Value* counter = ir_.broadcast(ir_.lshr(first, 2), counters);
    if (counters > 1) counter = ir_.add(counter, ir_.iota(type));
    const std::array<Value*, 4> words = philox(ir_, ir_.broadcast(seed, counters), counter);
    std::vector<int> order;
    for (int lane = 0; lane < lanes; ++lane) order.push_back(lane % 4 * counters + lane / 4);
    Value* all = ir_.concat(ir_.concat(words[0], words[1]), ir_.concat(words[2], words[3]));
    return ir_.shuffle(all, all, order);
  });
}

// Makes sure that the indirect symbols of e have values for this copy.
void BodyEmitter::bind_indirect(Expr e, int copy) {
  if (indirect_.empty()) return;
  for (const Expr s : sym::symbols(e)) {
    if (const auto found = indirect_.find(s.node()); found != indirect_.end()) {
      get(found->second, copy);
    }
  }
}

Value* BodyEmitter::emit_indirect(const Instruction& i, Val v, int copy) {
  const Val source = i.operands[0];
  const Expr symbol = i.indices[0];
  const sym::SymbolInfo& info = symbol.context().info(symbol);
  const Facts& facts = facts_[v];
  Value* value = get(source, copy);
  const bool proven = body_[source].opcode == Opcode::index && !info.extent.is_null() &&
                      sym::bounds(body_[source].indices[0]).low >= 0 &&
                      sym::less(body_[source].indices[0], info.extent) == true;
  if (!proven) {
    INKLE_CHECK(!info.extent.is_null() || info.range.high != sym::Range::kMax,
                "kernel {}: indirect '{}' has no extent", code_.kernel.name, symbol.name());
    const bool has_extent = !info.extent.is_null();
    Value* extent = has_extent ? index_.scalar(info.extent) : ir_.i64(info.range.high + 1);
    value = ir_.at_depth(facts.depth, [&] {
      Type* type = Ir::type_of(value);
      Value* bad = ir_.icmp(Compare::uge, value, ir_.broadcast(extent, Ir::lanes_of(type)));
      code_.faults.check(ir_, bad, facts.varying ? mask(copy) : nullptr,
                         schedule::KernelStatus::index_out_of_range);
      if (sym::bounds(has_extent ? info.extent : symbol).low < 1 && has_extent) {
        valid_[{symbol.node(), copy}] = ir_.bit_not(bad);
      }
      return ir_.select(bad, Ir::zero(type), value);
    });
  }
  if (facts.varying)
    index_.set_varying(symbol, copy, value);
  else
    index_.bind_scalar(symbol, {value, facts.depth});
  return value;
}

Value* BodyEmitter::valid_lanes(Expr offset, bool varying, int copy) {
  if (valid_.empty()) return nullptr;
  Value* all = nullptr;
  for (const Expr s : sym::symbols(offset)) {
    const auto source = indirect_.find(s.node());
    if (source == indirect_.end()) continue;
    const bool own_lanes = facts_[source->second].varying;
    const auto found = valid_.find({s.node(), own_lanes ? copy : 0});
    if (found == valid_.end()) continue;
    Value* valid = found->second;
    if (varying && !own_lanes) {
      valid = ir_.at_depth(facts_[source->second].depth,
                           [&] { return ir_.broadcast(valid, lanes_.lanes); });
    }
    all = all == nullptr
              ? valid
              : ir_.at_depth(index_.depth_of(offset), [&] { return ir_.bit_and(all, valid); });
  }
  return all;
}

bool BodyEmitter::is_scratch(std::uint32_t buffer) const {
  return buffer >= code_.kernel.params.size();
}

Value* BodyEmitter::base_of(std::uint32_t buffer) const {
  return is_scratch(buffer) ? code_.scratch.at(buffer - code_.kernel.params.size())
                            : code_.params[buffer];
}

DType BodyEmitter::dtype_of(std::uint32_t buffer) const {
  if (!is_scratch(buffer)) return code_.kernel.params[buffer].dtype;
  const auto& loops = std::get<schedule::LoopKernel>(code_.kernel.body);
  return loops.scratch.at(buffer - code_.kernel.params.size()).dtype;
}

Value* BodyEmitter::scratch_address(std::uint32_t buffer, Expr offset, int copy) {
  INKLE_CHECK(!index_.is_varying(offset), "kernel {}: scratch is indexed by the lane variable",
              code_.kernel.name);
  const std::int64_t group = std::int64_t{lanes_.lanes} * lanes_.copies;
  Value*& address = addresses_[{offset.node(), buffer, 0}];
  Type* type = memory_type(ir_, dtype_of(buffer), 1);
  if (address == nullptr) {
    Value* element = index_.scalar(offset);
    address = ir_.at_depth(index_.depth_of(offset), [&] {
      return ir_.address(type, base_of(buffer), ir_.mul(element, ir_.i64(group)));
    });
  }
  if (copy == 0) return address;
  Value* origin = address;
  return ir_.at_depth(index_.depth_of(offset), [&] {
    return ir_.address(type, origin, ir_.i64(std::int64_t{copy} * lanes_.lanes));
  });
}

Value* BodyEmitter::linear_address(std::uint32_t buffer, Expr offset, int copy) {
  Type* type = memory_type(ir_, dtype_of(buffer), 1);
  const int depth = index_.depth_of(offset);
  const bool linear = index_.is_linear(offset);
  Value*& address = addresses_[{offset.node(), buffer, linear ? 0 : copy}];
  if (address == nullptr) {
    Value* element = index_.scalar(offset, linear ? 0 : copy);
    address = ir_.at_depth(depth, [&] { return ir_.address(type, base_of(buffer), element); });
  }
  if (copy == 0 || !linear || !index_.is_varying(offset)) return address;
  // The copies of a linear access share an address and differ by constants.
  Value* origin = address;
  Value* step = index_.scalar(*index_.lane_stride(offset));
  return ir_.at_depth(depth, [&] {
    return ir_.address(type, origin, ir_.mul(step, ir_.i64(std::int64_t{copy} * lanes_.lanes)));
  });
}

BodyEmitter::Scattered BodyEmitter::scattered_address(std::uint32_t buffer, Expr offset, int copy) {
  const IndexEmitter::Parts parts = index_.split(offset);
  Value* base = base_of(buffer);
  Type* type = memory_type(ir_, dtype_of(buffer), 1);
  if (!parts.uniform.is_null()) {
    Value* element = index_.scalar(parts.uniform);
    base = ir_.at_depth(index_.depth_of(parts.uniform),
                        [&] { return ir_.address(type, base, element); });
  }
  const int bits = IndexEmitter::fits32(parts.varying) ? 32 : 64;
  return {base, index_.vector(parts.varying, copy, bits)};
}

Value* BodyEmitter::emit_scalar_load(const Instruction& i, Value* address) {
  Type* type = memory_type(ir_, i.dtype, 1);
  return to_register(ir_, ir_.load(type, address, alignment_of(i.dtype)), i.dtype);
}

Value* BodyEmitter::emit_load(const Instruction& i, Val v, int copy) {
  const Expr offset = i.indices[0];
  const Facts& facts = facts_[v];
  bind_indirect(offset, copy);
  INKLE_CHECK(i.dtype == dtype_of(i.buffer), "kernel {}: a load of {} from a buffer of {}",
              code_.kernel.name, abi::name_of(i.dtype), abi::name_of(dtype_of(i.buffer)));
  Value* predicate = nullptr;
  Value* otherwise = nullptr;
  if (i.operand_count == 2) {
    predicate = facts.varying ? lanes(i.operands[0], copy) : get(i.operands[0], copy);
    otherwise = facts.varying ? lanes(i.operands[1], copy) : get(i.operands[1], copy);
  }
  if (Value* valid = valid_lanes(offset, facts.varying, copy)) {
    predicate = predicate == nullptr
                    ? valid
                    : ir_.at_depth(facts.depth, [&] { return ir_.bit_and(predicate, valid); });
    if (otherwise == nullptr) {
      otherwise = Ir::zero(register_type(ir_, i.dtype, facts.varying ? lanes_.lanes : 1));
    }
  }
  Type* type = memory_type(ir_, i.dtype, lanes_.lanes);
  const int alignment = alignment_of(i.dtype);
  if (is_scratch(i.buffer) && code_.scratch_has_lanes) {
    Value* address = scratch_address(i.buffer, offset, copy);
    return ir_.at_depth(facts.depth, [&] {
      Value* loaded = to_register(ir_, ir_.load(type, address, alignment), i.dtype);
      return predicate == nullptr ? loaded : ir_.select(predicate, loaded, otherwise);
    });
  }
  const auto stride = index_.lane_stride(offset);
  if (stride && stride->is_constant(0)) {  // one element for all lanes
    Value* address = linear_address(i.buffer, offset, copy);
    return ir_.at_depth(facts.depth, [&] {
      if (predicate == nullptr) {
        Value* loaded = emit_scalar_load(i, address);
        return facts.varying ? ir_.broadcast(loaded, lanes_.lanes) : loaded;
      }
      Value* active = facts.varying ? mask(copy) : nullptr;
      Value* needed = ir_.any(active == nullptr ? predicate : ir_.bit_and(predicate, active));
      Value* loaded = emit_scalar_load(i, ir_.select(needed, address, code_.spare));
      if (facts.varying) loaded = ir_.broadcast(loaded, lanes_.lanes);
      return ir_.select(predicate, loaded, otherwise);
    });
  }
  const bool contiguous = stride && stride->is_constant(1);
  Value* address = contiguous ? linear_address(i.buffer, offset, copy) : nullptr;
  const Scattered scattered = contiguous ? Scattered{} : scattered_address(i.buffer, offset, copy);
  return ir_.at_depth(facts.depth, [&] {
    Value* active = mask(copy);
    if (predicate != nullptr) {
      active = active == nullptr ? predicate : ir_.bit_and(active, predicate);
    }
    Value* rest = otherwise == nullptr ? Ir::zero(type) : to_memory(ir_, otherwise, i.dtype);
    Value* loaded = nullptr;
    if (contiguous) {
      loaded = active == nullptr ? ir_.load(type, address, alignment)
                                 : ir_.masked_load(type, address, alignment, active, rest);
    } else {
      if (active == nullptr) active = ir_.first_lanes(lanes_.lanes, lanes_.lanes);
      loaded = ir_.gather(type, scattered.base, scattered.offsets, alignment, active, rest);
    }
    return to_register(ir_, loaded, i.dtype);
  });
}

void BodyEmitter::store_atomic(const schedule::StageStore& store, Value* v, Value* active,
                               int copy) {
  const DType dtype = dtype_of(store.target);
  if (dtype != DType::f32 && dtype != DType::f64 && dtype != DType::i32 && dtype != DType::i64) {
    unsupported("kernel {}: no atomic addition of {}", code_.kernel.name, abi::name_of(dtype));
  }
  Type* type = memory_type(ir_, dtype, 1);
  const Scattered at = index_.is_varying(store.offset)
                           ? scattered_address(store.target, store.offset, copy)
                           : Scattered{linear_address(store.target, store.offset, 0), nullptr};
  for (int lane = 0; lane < lanes_.lanes; ++lane) {
    const auto add = [&] {
      Value* address = at.base;
      if (at.offsets != nullptr) {
        Value* offset = ir_.resize_signed(ir_.extract(at.offsets, lane), ir_.integer_type(64));
        address = ir_.address(type, address, offset);
      }
      ir_.atomic_add(address, ir_.extract(v, lane), alignment_of(dtype));
      return Values();
    };
    if (active == nullptr)
      add();
    else
      ir_.branch(ir_.extract(active, lane), true, add, [] { return Values(); });
  }
}

void BodyEmitter::store(const schedule::StageStore& store, int copy) {
  const Val yield = body_.yields.at(store.yield);
  this->store(store, lanes(yield, copy), body_[yield].dtype, copy);
}

void BodyEmitter::store(const schedule::StageStore& store, Value* v, DType from, int copy) {
  const DType dtype = dtype_of(store.target);
  bind_indirect(store.offset, copy);
  v = cast(ir_, v, from, dtype);
  Value* active = mask(copy);
  if (Value* valid = valid_lanes(store.offset, true, copy)) {
    active = active == nullptr ? valid : ir_.bit_and(active, valid);
  }
  if (store.mode == loop::StoreMode::atomic_add) return store_atomic(store, v, active, copy);
  v = to_memory(ir_, v, dtype);
  const int alignment = alignment_of(dtype);
  if (is_scratch(store.target) && code_.scratch_has_lanes) {
    ir_.store(v, scratch_address(store.target, store.offset, copy), alignment);
    return;
  }
  if (!index_.is_varying(store.offset)) {
    Value* address = linear_address(store.target, store.offset, 0);
    if (Value* fits = valid_lanes(store.offset, false, copy)) {
      address = ir_.select(fits, address, code_.spare);
    }
    ir_.store(ir_.extract(v, 0), address, alignment);
    return;
  }
  const auto stride = index_.lane_stride(store.offset);
  if (stride && stride->is_constant(1)) {
    Value* address = linear_address(store.target, store.offset, copy);
    if (active == nullptr)
      ir_.store(v, address, alignment);
    else
      ir_.masked_store(v, address, alignment, active);
    return;
  }
  const Scattered at = scattered_address(store.target, store.offset, copy);
  if (active == nullptr) active = ir_.first_lanes(lanes_.lanes, lanes_.lanes);
  ir_.scatter(v, at.base, at.offsets, alignment, active);
}

}  // namespace inkle::codegen::cpu
