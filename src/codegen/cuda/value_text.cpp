#include "codegen/cuda/value_text.h"

#include <numeric>

#include "base/error.h"
#include "kernel/lanes.h"

namespace inkle::codegen::cuda {

using kernel::Access;
using kernel::MemoryId;
using kernel::Op;
using kernel::OperationId;
using kernel::RegionId;
using kernel::Space;
using kernel::ValueId;
using sym::Expr;

ValueText::ValueText(const kernel::Kernel& kernel, const LanePlan& plan)
    : k_(kernel),
      plan_(plan),
      alias_(kernel.values.size()),
      has_widened_(kernel.values.size(), false),
      packs_(kernel.memories.size(), 0) {
  std::iota(alias_.begin(), alias_.end(), ValueId{0});
  find_packs(k_.body, 1, {});
}

// Memory of a thread of which whole rows are stored or loaded by all lanes at once.
void ValueText::find_packs(RegionId region, int lanes, Expr lane) {
  for (const OperationId o : k_.regions[region].operations) {
    const kernel::Operation& op = k_.operations[o];
    const auto* access = std::get_if<Access>(&op.detail);
    if (access != nullptr && access->form == kernel::Form::wide) {
      const kernel::Memory& memory = k_.memories[access->memory];
      const bool own = memory.space == Space::registers || memory.space == Space::stack;
      if (own && memory.shape.back().is_constant(lanes) && access->indices.back() == lane) {
        packs_[access->memory] = lanes;
      }
    }
    const auto* vector = std::get_if<kernel::Vector>(&op.detail);
    for (const RegionId inside : op.regions) {
      if (vector != nullptr)
        find_packs(inside, vector->width, vector->lane);
      else
        find_packs(inside, lanes, lane);
    }
  }
}

void ValueText::enter_vector(Expr lane, int lanes) {
  lane_ = lane;
  lanes_ = lanes;
  symbols_[lane.node()] = {"l", false};
}

void ValueText::leave_vector() {
  lane_ = {};
  lanes_ = 1;
}

bool ValueText::is_array(ValueId v) const {
  if (!plan_.varies(v)) return false;
  return !(in_lanes_ && plan_.is_lane_of(v, segment_)) && plan_.is_array(v);
}

std::string ValueText::variable(ValueId v) const { return numbered('v', alias_[v]); }
std::string ValueText::pack(ValueId v) const { return numbered('w', alias_[v]); }

std::string ValueText::of(ValueId v) const {
  const OperationId made = k_.values[v].definition;
  if (made != kernel::kNone && k_.operations[made].op == Op::constant) {
    const auto& value = std::get<kernel::Immediate>(k_.operations[made].detail);
    return literal(dtype(v), value.real, value.integer);
  }
  if (!is_array(v)) return variable(v);
  return pack(v) + ".at[l]";
}

std::string ValueText::widened(ValueId v) const {
  if (is_array(v)) return concat({"to_f32(", pack(v), ", l)"});
  if (has_widened_[v]) return numbered('x', v);
  return concat({"to_f32(", of(v), ")"});
}

std::string ValueText::define_widened(ValueId v, const Access& access) {
  has_widened_[v] = true;
  return concat({"const float ", numbered('x', v), " = to_f32(", pack_of(access), ", ",
                 index(access.indices.back()), ");"});
}

std::string ValueText::declaration(ValueId v) const {
  if (!is_array(v)) return concat({type(v), " ", variable(v), ";"});
  return concat({"Pack<", type(v), ", ", digits(lanes_), "> ", pack(v), ";"});
}

// --- Symbols ---------------------------------------------------------------------------------

void ValueText::define(Expr symbol, std::string text, bool wide) {
  symbols_[symbol.node()] = {std::move(text), wide};
}

void ValueText::define(Expr symbol, ValueId v) { of_values_[symbol.node()] = v; }

SymbolText ValueText::symbol(Expr s) {
  const auto value = of_values_.find(s.node());
  if (value != of_values_.end()) return {of(value->second), !fits32(s)};
  const auto found = symbols_.find(s.node());
  INKLE_CHECK(found != symbols_.end(), "kernel {}: '{}' has no value here", k_.name, s.name());
  return found->second;
}

void ValueText::join(Expr outer, Expr inner, std::int64_t extent, Expr joint) {
  joints_.push_back({outer, inner, extent, {inner, joint - outer * extent}});
}

Expr ValueText::joined(Expr e) const {
  for (const Joint& joint : joints_) {
    if (!sym::contains(e, joint.outer) || !sym::contains(e, joint.inner)) continue;
    const auto outer = sym::stride(e, joint.outer);
    const auto inner = sym::stride(e, joint.inner);
    if (!outer || !inner || !(*outer == *inner * joint.extent)) continue;
    e = sym::substitute(e, {&joint.in_number, 1});
  }
  return e;
}

std::string ValueText::index(Expr e, bool wide) {
  e = joined(e);
  if (!in_lanes_ && !lane_.is_null()) {
    const std::pair<Expr, Expr> map[] = {{lane_, lane_.context().constant(0)}};
    e = sym::substitute(e, map);
  }
  return index_text(
      e, [this](Expr s) { return symbol(s); }, wide);
}

std::string ValueText::index(Expr e) { return index(e, !fits32(e)); }

// --- Memory ----------------------------------------------------------------------------------

std::string ValueText::memory(MemoryId m) const {
  return numbered(m < k_.parameter_count ? 'p' : 'm', m);
}

std::string ValueText::pack_of(const Access& access) {
  Expr row;
  for (std::size_t d = 0; d + 1 < access.indices.size(); ++d) {
    const Expr at = access.indices[d];
    row = row.is_null() ? at : row * k_.memories[access.memory].shape[d] + at;
  }
  return concat({memory(access.memory), "[", row.is_null() ? "0" : index(row), "]"});
}

std::string ValueText::element(const Access& access) {
  if (is_packs(access.memory)) {
    return concat({pack_of(access), ".at[", index(access.indices.back()), "]"});
  }
  return concat({memory(access.memory), "[", index(kernel::linear_index(k_, access)), "]"});
}

std::string ValueText::address(const Access& access) {
  return concat({memory(access.memory), " + (", index(kernel::linear_index(k_, access)), ")"});
}

}  // namespace inkle::codegen::cuda
