#include "codegen/cuda/body.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "codegen/cuda/operation.h"

namespace inkle::codegen::cuda {

using loop::Instruction;
using loop::Opcode;
using loop::Val;
using schedule::StageStore;
using sym::Expr;
using sym::Kind;

BodyText::BodyText(KernelText& kernel, const loop::Body& body, const Place& place)
    : kernel_(kernel), body_(body), place_(place), lane_symbols_(place.symbols) {
  if (place.lanes > 1) {
    const SymbolText& base = place.symbols.at(place.lane.node());
    lane_symbols_[place.lane.node()] = {"(" + base.text + " + l)", base.wide};
  }
  analyse();
}

void BodyText::analyse() {
  varying_.assign(body_.instructions.size(), false);
  needed_.assign(body_.instructions.size(), false);
  for (Val v = 0; v < body_.instructions.size(); ++v) {
    const Instruction& i = body_[v];
    if (i.opcode == Opcode::indirect) indirect_[i.indices[0].node()] = v;
    if (place_.lanes == 1) continue;
    for (const Val operand : i.used()) varying_[v] = varying_[v] || varying_[operand];
    if (i.opcode == Opcode::index || i.opcode == Opcode::load) {
      varying_[v] = varying_[v] || depends_on_lane(i.indices[0]);
    }
    if (i.opcode == Opcode::load && is_scratch(i.buffer)) varying_[v] = true;
    if (i.opcode == Opcode::row) varying_[v] = kernel_.rows_have_lanes;
  }
}

bool BodyText::depends_on_lane(Expr e) const {
  for (const Expr s : sym::symbols(e)) {
    if (s == place_.lane) return true;
    const auto source = indirect_.find(s.node());
    if (source != indirect_.end() && varying_[source->second]) return true;
  }
  return false;
}

// How much e grows from lane to lane, or nothing where that is not one number. Lanes that start at
// a multiple of their number stay inside of one quotient by any multiple of it.
std::optional<Expr> BodyText::lane_stride(Expr e) const {
  sym::Context& context = kernel_.context;
  if (!depends_on_lane(e)) return context.constant(0);
  for (const Expr s : sym::symbols(e)) {
    const auto source = indirect_.find(s.node());
    if (source != indirect_.end() && varying_[source->second]) return std::nullopt;
  }
  if (const auto linear = sym::stride(e, place_.lane)) {
    if (!depends_on_lane(*linear)) return linear;
  }
  std::vector<std::optional<Expr>> parts;
  for (const Expr operand : e.operands()) parts.push_back(lane_stride(operand));
  if (e.kind() == Kind::add) {
    Expr sum = context.constant(0);
    for (const auto& part : parts) {
      if (!part) return std::nullopt;
      sum = sum + *part;
    }
    return sum;
  }
  if (e.kind() == Kind::mul) {
    Expr result = context.constant(1);
    int growing = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!parts[i]) return std::nullopt;
      const bool still = parts[i]->is_constant(0);
      if (still && depends_on_lane(e.operands()[i])) {
        if (e.operands().size() != 2) return std::nullopt;
        const auto other = parts[1 - i];
        if (!other || !other->is_constant(0)) return std::nullopt;
        return context.constant(0);
      }
      if (!still) ++growing;
      result = result * (still ? e.operands()[i] : *parts[i]);
    }
    return growing == 1 ? std::optional(result) : std::nullopt;
  }
  if (e.kind() != Kind::floordiv && e.kind() != Kind::mod) return std::nullopt;
  if (parts[0] && parts[0]->is_constant(0) && !depends_on_lane(e.operands()[1])) {
    return context.constant(0);
  }
  const Expr dividend = e.operands()[0];
  const auto divisor = e.operands()[1].constant();
  const auto grows = sym::stride(dividend, place_.lane);
  const bool stays = place_.aligned && divisor && *divisor > 0 && *divisor % place_.lanes == 0 &&
                     grows && grows->is_constant(1) &&
                     sym::divides(place_.lanes, dividend - place_.lane);
  if (!stays) return std::nullopt;
  return context.constant(e.kind() == Kind::mod ? 1 : 0);
}

std::optional<Expr> BodyText::first_of_neighbours(Expr e) const {
  const auto stride = lane_stride(e);
  if (!stride || !stride->is_constant(1)) return std::nullopt;
  const Expr group = place_.aligned ? kernel_.context.index(kernel_.context.constant(1 << 30))
                                    : kernel_.context.constant(0);
  const std::pair<Expr, Expr> map[] = {{place_.lane, group * place_.lanes}};
  return sym::substitute(e, map);
}

int BodyText::access_width(std::uint32_t buffer, Expr offset) const {
  if (is_scratch(buffer) || place_.lanes == 1) return 0;
  auto first = first_of_neighbours(offset);
  if (!first) return 0;
  const auto size = static_cast<std::int32_t>(abi::size_of(dtype_of(buffer)));
  Expr at = *first;
  if (!place_.aligned) {
    if (!sym::stride(offset, place_.lane)) return 1;
    at = at - place_.base;
  }
  int width = place_.lanes;
  while (width > 1 && (kernel_.kernel.params[buffer].alignment % (width * size) != 0 &&
                       kernel_.kernel.params[buffer].alignment % 16 != 0)) {
    width /= 2;
  }
  while (width > 1 && !sym::divides(width, at)) width /= 2;
  return width;
}

std::string BodyText::lane_active() const {
  std::string text;
  if (!place_.first.empty()) text = "l >= " + place_.first;
  if (!place_.last.empty()) text += (text.empty() ? "" : " && ") + ("l < " + place_.last);
  return text;
}

DType BodyText::dtype_of(std::uint32_t buffer) const {
  if (!is_scratch(buffer)) return kernel_.kernel.params[buffer].dtype;
  return kernel_.loops.scratch.at(buffer - kernel_.kernel.params.size()).dtype;
}

bool BodyText::is_scratch(std::uint32_t buffer) const {
  return buffer >= kernel_.kernel.params.size();
}

std::string BodyText::offset_text(Expr offset, bool in_lanes) const {
  return index_text(offset, in_lanes ? lane_symbols_ : place_.symbols);
}

std::string BodyText::element(std::uint32_t buffer, Expr offset, bool in_lanes) {
  const std::string at = offset_text(offset, in_lanes);
  if (is_scratch(buffer)) {
    return kernel_.scratch(buffer - static_cast<std::uint32_t>(kernel_.kernel.params.size()), at);
  }
  return fmt::format("p{}[{}]", buffer, at);
}

void BodyText::know(Val v, std::string text) { known_[v] = std::move(text); }
void BodyText::capture(Val v, std::string text) { captures_[v] = std::move(text); }

void BodyText::need(Val v) {
  if (needed_[v]) return;
  needed_[v] = true;
  if (known_.contains(v)) return;
  if (const auto x = rounded_one_plus_erf(v)) return need(*x);
  const Instruction& i = body_[v];
  for (const Val operand : i.used()) need(operand);
  if (i.opcode == Opcode::load || i.opcode == Opcode::index) {
    for (const Expr s : sym::symbols(i.indices[0])) {
      if (const auto source = indirect_.find(s.node()); source != indirect_.end()) {
        need(source->second);
      }
    }
  }
}

std::string BodyText::name_of(Val v, bool in_lanes) {
  if (const auto known = known_.find(v); known != known_.end()) return known->second;
  if (const auto pack = packs_.find(v); pack != packs_.end()) return pack->second + ".at[l]";
  const Instruction& i = body_[v];
  if (i.opcode == Opcode::constant) return literal(i.dtype, i.real, i.integer);
  if (i.opcode == Opcode::row) {
    return fmt::format("r{}{}", i.integer,
                       kernel_.rows_have_lanes ? (place_.lanes > 1 ? ".at[l]" : ".at[0]") : "");
  }
  (void)in_lanes;
  return fmt::format("v{}", v);
}

// The condition under which the indirect symbols of an offset name an element at all.
std::string BodyText::validity(Expr offset) const {
  std::string text;
  for (const Expr s : sym::symbols(offset)) {
    if (const auto at = valid_.find(s.node()); at != valid_.end()) {
      text += (text.empty() ? "" : " && ") + at->second;
    }
  }
  return text;
}

std::string BodyText::load_text(const Instruction& i, bool in_lanes) {
  const std::string at = element(i.buffer, i.indices[0], in_lanes);
  std::string condition = validity(i.indices[0]);
  std::string otherwise = type_of(i.dtype) + "()";
  if (i.operand_count == 2) {
    const std::string predicate = name_of(i.operands[0], in_lanes);
    condition = condition.empty() ? predicate : predicate + " && " + condition;
    otherwise = name_of(i.operands[1], in_lanes);
  }
  const std::string active = in_lanes ? lane_active() : "";
  if (!active.empty()) {
    condition = condition.empty() ? active : "(" + active + ") && " + condition;
  }
  return condition.empty() ? at : fmt::format("{} ? {} : {}", condition, at, otherwise);
}

void BodyText::write_indirect(Writer& out, const Instruction& i, Val v, bool in_lanes) {
  const Val source = i.operands[0];
  const Expr symbol = i.indices[0];
  const sym::SymbolInfo& info = kernel_.context.info(symbol);
  const std::string value = name_of(source, in_lanes);
  const std::string name = fmt::format("v{}", v);
  const bool proven = body_[source].opcode == Opcode::index && !info.extent.is_null() &&
                      sym::bounds(body_[source].indices[0]).low >= 0 &&
                      sym::less(body_[source].indices[0], info.extent) == true;
  const bool wide = !fits32(symbol);
  const char* type = wide ? "i64" : "int";
  if (proven) {
    out.line("const {} {} = ({}){};", type, name, type, value);
  } else {
    INKLE_CHECK(!info.extent.is_null() || info.range.high != sym::Range::kMax,
                "kernel {}: indirect '{}' has no extent", kernel_.kernel.name, symbol.name());
    const std::string extent =
        info.extent.is_null()
            ? fmt::format("{}ll", info.range.high + 1)
            : index_text(info.extent, in_lanes ? lane_symbols_ : place_.symbols, true);
    out.line("const bool in{} = (u64)(i64){} < (u64)({});", v, value, extent);
    const std::string active = in_lanes ? lane_active() : "";
    out.line("if (!in{}{}) fault(status, 1);", v, active.empty() ? "" : " && " + active);
    out.line("const {} {} = in{} ? ({}){} : 0;", type, name, v, type, value);
    kernel_.can_fail = true;
    if (!info.extent.is_null() && sym::bounds(info.extent).low < 1) {
      valid_[symbol.node()] = fmt::format("in{}", v);
    }
  }
  const SymbolText text{name, wide};
  lane_symbols_[symbol.node()] = text;
  if (!in_lanes) place_.symbols[symbol.node()] = text;
}

void BodyText::write_value(Writer& out, Val v, bool in_lanes) {
  const Instruction& i = body_[v];
  if (known_.contains(v) || packs_.contains(v) || i.opcode == Opcode::row ||
      i.opcode == Opcode::constant) {
    // Has a text of its own.
  } else if (i.opcode == Opcode::indirect) {
    write_indirect(out, i, v, in_lanes);
  } else {
    std::string text;
    if (i.opcode == Opcode::index) {
      text = "(i64)(" + offset_text(i.indices[0], in_lanes) + ")";
    } else if (i.opcode == Opcode::load) {
      text = load_text(i, in_lanes);
    } else if (const auto rounded = rounded_text(i, in_lanes)) {
      text = *rounded;
    } else if (is_rounded_exponential(v)) {
      text = fmt::format("term({})", name_of(i.operands[0], in_lanes));
    } else if (const auto x = rounded_one_plus_erf(v)) {
      text = fmt::format("one_plus_erf({})", name_of(*x, in_lanes));
    } else if (divides_by_one_number(v)) {
      text = fmt::format("over({}, d{})", name_of(i.operands[0], in_lanes), v);
    } else {
      std::array<std::string, 3> operands;
      for (std::size_t k = 0; k < i.operand_count; ++k) {
        operands[k] = name_of(i.operands[k], in_lanes);
      }
      const Val kind = i.operands[i.opcode == Opcode::select ? 1 : 0];
      std::string active = in_lanes ? lane_active() : "";
      text = operation_text(i, body_[kind].dtype, {operands.data(), i.operand_count}, active,
                            kernel_.can_fail);
    }
    out.line("const {} v{} = {};", type_of(i.dtype), v, text);
  }
  if (const auto capture = captures_.find(v); capture != captures_.end()) {
    out.line("{} = {};", capture->second, name_of(v, in_lanes));
  }
}

// Every iteration reads elements of its own.
bool BodyText::is_read_once(Expr offset) const {
  const auto& outer = kernel_.loops.outer;
  if (!place_.around.is_null() && !sym::contains(offset, place_.around)) return false;
  return std::all_of(outer.begin(), outer.end(), [&](const loop::Dim& dim) {
    return dim.extent.is_constant(1) || sym::contains(offset, dim.variable);
  });
}

std::optional<std::string> BodyText::pack_text(Val v) {
  const Instruction& i = body_[v];
  if (i.opcode != Opcode::load || !varying_[v] || is_scratch(i.buffer)) return std::nullopt;
  if (i.operand_count != 0) {
    // A predicate that all lanes share.
    if (varying_[i.operands[0]] || varying_[i.operands[1]]) return std::nullopt;
  }
  if (!validity(i.indices[0]).empty()) return std::nullopt;
  for (const Expr s : sym::symbols(i.indices[0])) {
    const auto source = indirect_.find(s.node());
    if (source != indirect_.end() && varying_[source->second]) return std::nullopt;
  }
  const int width = access_width(i.buffer, i.indices[0]);
  if (width == 0 || (width == 1 && place_.aligned)) return std::nullopt;
  const bool constant = !kernel_.written[i.buffer] && !kernel_.aliasing;
  const std::string at = fmt::format("p{} + ({})", i.buffer, offset_text(i.indices[0], false));
  const char* how = !constant                                      ? "load"
                    : place_.ahead                                 ? "load_now"
                    : place_.lasts && is_read_once(i.indices[0])   ? "load_lasting"
                    : place_.streams && is_read_once(i.indices[0]) ? "load_once"
                                                                   : "load_constant";
  std::string text = fmt::format("{}<{}, {}>({})", how, place_.lanes, width, at);
  if (!place_.whole.empty()) {
    text = fmt::format("{} ? {} : load_part<{}>({}, {}, {})", place_.whole, text, place_.lanes, at,
                       place_.first.empty() ? "0" : place_.first,
                       place_.last.empty() ? std::to_string(place_.lanes) : place_.last);
  }
  return text;
}

bool BodyText::make_random_pack(Writer& out, Val v) {
  const Instruction& i = body_[v];
  const Instruction& offset = body_[i.operands[1]];
  if (varying_[i.operands[0]] || offset.opcode != Opcode::index || place_.lanes % 4 != 0) {
    return false;
  }
  const auto first = place_.aligned ? first_of_neighbours(offset.indices[0]) : std::nullopt;
  if (!first || !sym::divides(4, *first)) return false;
  const std::string name = fmt::format("a{}", v);
  out.line("const Pack<i64, {0}> {1} = philox_pack<{0}>({2}, {3});", place_.lanes, name,
           name_of(i.operands[0], false), offset_text(offset.indices[0], false));
  packs_[v] = name;
  return true;
}

bool BodyText::make_pack(Writer& out, Val v) {
  const Instruction& i = body_[v];
  if (i.opcode == Opcode::random && !known_.contains(v)) return make_random_pack(out, v);
  if (i.opcode != Opcode::load || known_.contains(v)) return false;
  auto text = pack_text(v);
  if (!text) return false;
  const std::string type = fmt::format("Pack<{}, {}>", type_of(i.dtype), place_.lanes);
  const std::string name = fmt::format("a{}", v);
  if (i.operand_count == 2) {
    out.line("{} {};", type, name);
    out.open(fmt::format("if ({})", name_of(i.operands[0], false)));
    out.line("{} = {};", name, *text);
    out.close();
    out.open("else");
    out.line("#pragma unroll");
    out.line("for (int l = 0; l < {}; ++l) {}.at[l] = {};", place_.lanes, name,
             name_of(i.operands[1], false));
    out.close();
  } else {
    out.line("const {} {} = {};", type, name, *text);
  }
  packs_[v] = name;
  return true;
}

void BodyText::begin_stores(Writer& out, const std::vector<StageStore>& stores) {
  packed_.clear();
  if (place_.lanes == 1) return;
  for (const StageStore& store : stores) {
    if (store.mode != loop::StoreMode::overwrite || is_scratch(store.target)) continue;
    bool lanes_differ = false;
    for (const Expr s : sym::symbols(store.offset)) {
      const auto source = indirect_.find(s.node());
      if (source == indirect_.end()) continue;
      lanes_differ = lanes_differ || varying_[source->second] || valid_.contains(s.node());
    }
    if (lanes_differ) continue;
    const int width = access_width(store.target, store.offset);
    if (width == 0 || (width == 1 && place_.aligned)) continue;
    PackedStore packed{&store, fmt::format("o{}", kernel_.names++), width, false};
    const DType dtype = dtype_of(store.target);
    packed.narrowed = abi::is_reduced_float(dtype);
    if (packed.narrowed) {
      out.line("float {}[{}];", packed.name, place_.lanes);
    } else {
      out.line("Pack<{}, {}> {};", type_of(dtype), place_.lanes, packed.name);
    }
    packed_.push_back(std::move(packed));
  }
}

void BodyText::store_yield(Writer& out, const StageStore& store) {
  const bool in_lanes = place_.lanes > 1;
  const Val v = body_.yields[store.yield];
  const Instruction& i = body_[v];
  for (const PackedStore& packed : packed_) {
    // Made narrow in pairs at the end, not one by one here.
    if (packed.store != &store || !packed.narrowed || i.opcode != Opcode::cast) continue;
    if (known_.contains(v) || body_[i.operands[0]].dtype != DType::f32) continue;
    store_text(out, store, name_of(i.operands[0], in_lanes), DType::f32);
    return;
  }
  store_text(out, store, name_of(v, in_lanes), i.dtype);
}

void BodyText::store_text(Writer& out, const StageStore& store, const std::string& text,
                          DType from) {
  const DType to = dtype_of(store.target);
  for (const PackedStore& packed : packed_) {
    if (packed.store != &store) continue;
    if (packed.narrowed) {
      out.line("{}[l] = {};", packed.name, cast_text(text, from, DType::f32));
    } else {
      out.line("{}.at[l] = {};", packed.name, cast_text(text, from, to));
    }
    return;
  }
  const bool in_lanes = place_.lanes > 1;
  const std::string valid = validity(store.offset);
  std::string condition = in_lanes ? lane_active() : "";
  if (!valid.empty()) condition = condition.empty() ? valid : "(" + condition + ") && " + valid;
  const std::string guard = condition.empty() ? "" : fmt::format("if ({}) ", condition);
  const std::string at = element(store.target, store.offset, in_lanes);
  if (store.mode == loop::StoreMode::atomic_add) {
    out.line("{}add_to(&{}, {});", guard, at, cast_text(text, from, to));
  } else {
    out.line("{}{} = {};", guard, at, cast_text(text, from, to));
  }
}

void BodyText::end_stores(Writer& out) {
  for (const PackedStore& packed : packed_) {
    const std::string type = type_of(dtype_of(packed.store->target));
    const std::string at =
        fmt::format("p{} + ({})", packed.store->target, offset_text(packed.store->offset, false));
    const std::string value =
        packed.narrowed ? fmt::format("narrow(({}*)0, {})", type, packed.name) : packed.name;
    const std::string whole = fmt::format("{}<{}>({}, {});", place_.leaves ? "store_away" : "store",
                                          packed.width, at, value);
    if (place_.whole.empty()) {
      out.raw(whole);
      continue;
    }
    out.line("if ({}) {}", place_.whole, whole);
    out.line("else store_part({}, {}, {}, {});", at, value,
             place_.first.empty() ? "0" : place_.first,
             place_.last.empty() ? std::to_string(place_.lanes) : place_.last);
  }
}

void BodyText::write(Writer& out, const std::vector<std::uint32_t>& wanted,
                     const std::vector<StageStore>& stores, const EachLane& each_lane) {
  for (const std::uint32_t yield : wanted) need(body_.yields[yield]);
  for (const auto& [v, text] : captures_) need(v);
  for (const StageStore& store : stores) {
    for (const Expr s : sym::symbols(store.offset)) {
      if (const auto source = indirect_.find(s.node()); source != indirect_.end()) {
        need(source->second);
      }
    }
  }
  const auto count = static_cast<Val>(body_.instructions.size());
  if (place_.lanes > 1) {
    for (Val v = 0; v < count; ++v) {
      if (!needed_[v]) continue;
      if (!varying_[v])
        write_value(out, v, false);
      else
        (void)make_pack(out, v);
    }
  }
  for (Val v = 0; v < count; ++v) {
    if (!needed_[v] || !divides_by_one_number(v)) continue;
    out.line("const Divisor d{} = divisor({});", v, name_of(body_[v].operands[1], false));
  }
  begin_stores(out, stores);
  if (place_.lanes > 1) {
    out.line("#pragma unroll");
    out.open(fmt::format("for (int l = 0; l < {}; ++l)", place_.lanes));
  }
  for (Val v = 0; v < count; ++v) {
    if (needed_[v] && (place_.lanes == 1 || varying_[v])) write_value(out, v, place_.lanes > 1);
  }
  std::vector<std::string> yields;
  for (const Val v : body_.yields) yields.push_back(name_of(v, place_.lanes > 1));
  each_lane(out, yields, place_.lanes > 1 ? lane_active() : "");
  if (place_.lanes > 1) out.close();
  end_stores(out);
}

}  // namespace inkle::codegen::cuda
