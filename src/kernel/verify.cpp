// Structure, symbols and control of a kernel.
#include "kernel/verify.h"

#include <algorithm>

#include "base/error.h"
#include "kernel/derive.h"
#include "kernel/names.h"
#include "kernel/verifier.h"
#include "sym/symbols.h"

namespace inkle::kernel {

void Verifier::fail(const std::string& reason) const {
  std::string where;
  if (at_ != kNone) {
    const Operation& o = k_.operations[at_];
    where = fmt::format(", operation {} ({}", at_, name_of(o.op));
    if (o.op == Op::compute && std::holds_alternative<Compute>(o.detail)) {
      where += fmt::format(" {}", loop::name_of(std::get<Compute>(o.detail).opcode));
    }
    where += ")";
  }
  const std::string pass = pass_.empty() ? "" : fmt::format("after {}: ", pass_);
  throw InternalError(fmt::format("{}kernel @{}{}: {}", pass, k_.name, where, reason));
}

void Verifier::run() {
  defined_.assign(k_.values.size(), false);
  used_.assign(k_.values.size(), false);
  seen_regions_.assign(k_.regions.size(), false);
  seen_operations_.assign(k_.operations.size(), false);
  launch();
  memories();
  shape(k_.body);
  const Region& body = k_.regions[k_.body];
  require(body.arguments.empty() && body.yields.empty(), "the body takes or yields values");
  variance_.emplace(k_);
  dependence_.emplace(k_, *variance_);
  for (std::size_t o = 0; o < k_.operations.size(); ++o) {
    has_wait_ = has_wait_ || (seen_operations_[o] && k_.operations[o].op == Op::dependency_wait);
  }
  Place place;
  walk(k_.body, place);
}

// --- Launch
// ----------------------------------------------------------------------------------------

void Verifier::launch() {
  for (const Expr size : k_.sizes) {
    require(!size.is_null() && size.kind() == sym::Kind::symbol, "a size is no symbol");
    require(sizes_.insert(size.node()).second, "size {} is declared twice", size.name());
    scope_.insert(size.node());
  }
  std::int64_t products[4] = {1, 1, 1, 1};
  AxisKind last = AxisKind::task;
  bool has_task = false;
  for (const Axis& axis : k_.launch.axes) {
    require(axis.kind >= last, "axes are not in the order task, grid, cluster, thread");
    last = axis.kind;
    has_task = has_task || axis.kind == AxisKind::task;
    require(!has_task || axis.kind == AxisKind::task, "tasks beside blocks or threads");
    require(!axis.variable.is_null() && axis.variable.kind() == sym::Kind::symbol,
            "an axis without a variable");
    require(!axis.extent.is_null(), "an axis without an extent");
    sizes_alone(axis.extent, "the extent of an axis");
    if (axis.kind >= AxisKind::cluster) {
      const auto extent = axis.extent.constant();
      require(extent && *extent >= 1 && *extent <= 65536,
              "the extent of axis {} is not a constant from 1 to 65536", axis.variable.name());
      products[static_cast<std::size_t>(axis.kind)] *= *extent;
      require(products[static_cast<std::size_t>(axis.kind)] <= 65536, "too many threads or blocks");
    }
    declare(axis.variable, axis.extent.context().constant(0), axis.extent - 1,
            sym::bounds(axis.extent).low >= 1);
  }
  const auto within = [&](std::int64_t value, std::int64_t limit, std::string_view what) {
    require(limit == 0 || value <= limit, "{} {}, of which there are {}", value, what, limit);
  };
  within(products[3], limits_.threads, "threads");
  within(products[2], limits_.cluster, "blocks of a cluster");
  within(k_.launch.registers, limits_.registers, "registers");
  require(k_.launch.instances >= 1, "a launch of {} instances", k_.launch.instances);
}

// --- Structure
// -------------------------------------------------------------------------------------

void Verifier::use(ValueId value) {
  require(value < k_.values.size(), "an operand that is no value");
  require(defined_[value], "value {} is used where it is not defined", value);
  used_[value] = true;
}

void Verifier::same(std::span<const Type> got, std::span<const Type> wanted,
                    std::string_view what) const {
  if (std::ranges::equal(got, wanted)) return;
  const auto list = [&](std::span<const Type> types) {
    std::string out;
    for (const Type& t : types) out += (out.empty() ? "" : ", ") + to_string(k_, t);
    return "(" + out + ")";
  };
  fail(fmt::format("{} of {}, not {}", what, list(got), list(wanted)));
}

void Verifier::shape(RegionId id) {
  require(id < k_.regions.size(), "a region that does not exist");
  require(!seen_regions_[id], "region {} is in two places", id);
  seen_regions_[id] = true;
  const Region& region = k_.regions[id];
  std::vector<ValueId> here;
  const auto define = [&](ValueId v) {
    require(v < k_.values.size(), "a result that is no value");
    require(!defined_[v], "value {} is defined twice", v);
    const Type& type = k_.type_of(v);
    require(type.kind != TypeKind::fragment || type.fragment < k_.fragments.size(),
            "value {} is of an unknown fragment", v);
    if (type.kind == TypeKind::scalar && !abi::is_computable(type.dtype)) {
      fail(fmt::format("a value of {}", abi::name_of(type.dtype)));
    }
    defined_[v] = true;
    here.push_back(v);
  };
  for (const ValueId v : region.arguments) {
    define(v);
    require(k_.values[v].definition == kNone && k_.values[v].region == id,
            "argument {} does not name its region", v);
  }
  for (const OperationId o : region.operations) {
    require(o < k_.operations.size(), "an operation that does not exist");
    require(!seen_operations_[o], "operation {} is in two places", o);
    seen_operations_[o] = true;
    const OperationId outside = std::exchange(at_, o);
    for (const ValueId v : k_[o].operands) use(v);
    shape_of(o);
    for (const ValueId v : k_[o].results) {
      define(v);
      require(k_.values[v].definition == o, "result {} does not name its operation", v);
    }
    types(k_[o]);
    at_ = outside;
  }
  for (const ValueId v : region.yields) use(v);
  for (const ValueId v : here) defined_[v] = false;
  // Values of the body stay undefined behind it: nobody may use them there.
}

void Verifier::shape_of(OperationId id) {
  const Operation& o = k_[id];
  detail_of(o);
  for (const RegionId r : o.regions) {
    shape(r);
    at_ = id;
  }
  shape_of_regions(o);
}

void Verifier::region_takes(RegionId id, std::span<const Type> arguments,
                            std::span<const Type> yields) const {
  same(types_of(k_.regions[id].arguments), arguments, "the region takes values");
  same(types_of(k_.regions[id].yields), yields, "the region yields values");
}

void Verifier::shape_of_regions(const Operation& o) {
  const auto count = [&](std::size_t wanted) {
    require(o.regions.size() == wanted, "{} regions, not {}", o.regions.size(), wanted);
  };
  // The types that results have; they are checked to be those of values first.
  for (const ValueId v : o.results) require(v < k_.values.size(), "a result that is no value");
  if (o.regions.empty() && (o.op < Op::loop || o.op > Op::roles) && o.op != Op::reduce &&
      o.op != Op::scan && o.op != Op::fragment_map) {
    return;
  }
  const Types operands = types_of(o.operands);
  const Types results = types_of(o.results);
  const auto list = [](std::span<const Type> types) {
    return std::vector<Type>(types.begin(), types.end());
  };
  switch (o.op) {
    case Op::loop: {
      count(1);
      std::span<const Type> states = operands;
      if (std::get<Loop>(o.detail).is_lowered) {
        const Type bound = scalar_type(DType::i64);
        require(operands.size() >= 2 && operands[0] == bound && operands[1] == bound,
                "a lowered loop without bounds");
        states = states.subspan(2);
      }
      same(results, states, "results");
      return region_takes(o.regions[0], states, states);
    }
    case Op::repeat: {
      count(1);
      same(results, operands, "results");
      std::vector<Type> yields = list(operands);
      yields.insert(yields.begin(), scalar_type(DType::boolean));
      return region_takes(o.regions[0], operands, yields);
    }
    case Op::branch:
      count(2);
      for (const RegionId r : o.regions) region_takes(r, {}, results);
      return;
    case Op::vector:
      count(1);
      return region_takes(o.regions[0], {}, results);
    case Op::fold: {
      const bool is_chunked = std::get<Fold>(o.detail).chunked_loop >= 0;
      count(is_chunked ? 3 : 1);
      same(results, operands, "results");
      if (!is_chunked) return region_takes(o.regions[0], operands, operands);
      const Types states = types_of(k_.regions[o.regions[0]].arguments);
      std::vector<Type> both = list(operands);
      both.insert(both.end(), states.begin(), states.end());
      region_takes(o.regions[0], states, states);
      region_takes(o.regions[1], operands, states);
      return region_takes(o.regions[2], both, operands);
    }
    case Op::roles:
      count(std::get<Roles>(o.detail).roles.size());
      for (const RegionId r : o.regions) region_takes(r, {}, {});
      return;
    case Op::reduce:
    case Op::scan: {
      count(1);
      std::vector<Type> both = list(results);
      both.insert(both.end(), results.begin(), results.end());
      const bool is_exclusive = std::get<Collective>(o.detail).exclusive;
      same(operands, is_exclusive ? std::span<const Type>(both) : results, "states");
      return region_takes(o.regions[0], both, results);
    }
    case Op::fragment_map: {
      count(1);
      const auto elements = [&](std::span<const Type> types) {
        std::vector<Type> out;
        for (const Type& t : types) out.push_back(scalar_type(t.dtype));
        return out;
      };
      return region_takes(o.regions[0], elements(operands), elements(results));
    }
    default:
      count(0);
  }
}

// --- Symbols
// ---------------------------------------------------------------------------------------

void Verifier::in_scope(Expr e) const {
  require(!e.is_null(), "a missing expression");
  (void)sym::all_symbols(e, [&](Expr s) {
    if (!scope_.contains(s.node())) fail(fmt::format("symbol {} is not in scope", s.name()));
    return true;
  });
}

void Verifier::sizes_alone(Expr e, std::string_view what) const {
  (void)sym::all_symbols(e, [&](Expr s) {
    if (!sizes_.contains(s.node())) {
      fail(fmt::format("{} depends on {}, which is no size", what, s.name()));
    }
    return true;
  });
}

void Verifier::declare(Expr symbol, Expr low, Expr high, bool reaches_all) {
  require(!symbol.is_null() && symbol.kind() == sym::Kind::symbol, "a missing symbol");
  require(scope_.insert(symbol.node()).second, "symbol {} is declared twice", symbol.name());
  scope_order_.push_back(symbol);
  if (!reaches_all) return;
  lows_.emplace_back(symbol, low);
  highs_.emplace_back(symbol, high);
}

// --- Control
// ---------------------------------------------------------------------------------------

void Verifier::walk(RegionId id, Place& place) {
  for (const OperationId o : k_.regions[id].operations) {
    const OperationId outside = std::exchange(at_, o);
    visit(o, place);
    at_ = outside;
  }
}

// A region whose symbols end with it.
void Verifier::inside(RegionId id, Place& place) {
  const std::size_t symbols = scope_order_.size();
  const OperationId at = at_;
  walk(id, place);
  at_ = at;
  forget(symbols);
}

void Verifier::forget(std::size_t symbols) {
  for (; scope_order_.size() > symbols; scope_order_.pop_back()) {
    const Expr symbol = scope_order_.back();
    scope_.erase(symbol.node());
    unrolled_.erase(symbol.node());
    // Symbols are declared and forgotten as a stack is.
    if (lows_.empty() || lows_.back().first != symbol) continue;
    lows_.pop_back();
    highs_.pop_back();
  }
}

void Verifier::visit(OperationId id, Place& place) {
  const Operation& o = k_[id];
  if (place.in_merge) {
    const bool is_value = o.op == Op::constant || o.op == Op::index || o.op == Op::compute ||
                          o.op == Op::function || o.op == Op::branch;
    require(is_value, "a merge computes values alone");
  }
  accesses(o, place);
  threads(o, place);
  switch (o.op) {
    case Op::index:
      return in_scope(std::get<IndexOf>(o.detail).expression);
    case Op::compute: {
      const auto& c = std::get<Compute>(o.detail);
      require(c.form == Form::each || c.opcode == loop::Opcode::random, "a form of {}",
              loop::name_of(c.opcode));
      require(c.form != Form::wide || place.vector != nullptr,
              "wide random numbers outside of a vector region");
      return;
    }
    case Op::indirect:
      in_scope(std::get<Symbolic>(o.detail).extent);
      return declare(std::get<Symbolic>(o.detail).symbol, {}, {}, false);
    case Op::bind:
      return declare(std::get<Symbolic>(o.detail).symbol, {}, {}, false);
    case Op::dependency_wait:
      require(place.vector == nullptr, "dependency_wait in a vector region");
      place.waited = true;
      return;
    case Op::report:
      require(std::get<Report>(o.detail).status >= 1, "a report of no failure");
      return;
    default:
      if (!o.regions.empty() || o.op == Op::roles) control(o, place);
  }
}

bool Verifier::loop(const Loop& l, const Place& place) {
  for (const Expr e : {l.begin, l.end, l.step}) in_scope(e);
  require(sym::bounds(l.step).low >= 1, "a step that may be below 1");
  const bool is_constant = l.begin.constant() && l.end.constant() && l.step.constant();
  if (l.kind == LoopKind::unroll) {
    require((l.end - l.begin).constant() && l.step.constant(),
            "an unrolled loop whose number of iterations is no constant");
    require(l.unroll == 1, "an unrolled loop with a hint");
  }
  require(l.unroll >= 1, "a loop unrolled {} times", l.unroll);
  const Variance trip = variance_->trip(l);
  require(place.vector == nullptr || trip < Variance::lane, "the bounds of a loop vary by lane");
  const bool runs = sym::less(l.begin, l.end).value_or(false);
  std::int64_t last = 0;
  if (is_constant && runs) {
    const std::int64_t begin = *l.begin.constant();
    const std::int64_t step = *l.step.constant();
    last = begin + (*l.end.constant() - 1 - begin) / step * step;
  }
  declare(l.variable, l.begin, l.begin.context().constant(last), is_constant && runs);
  if (l.kind == LoopKind::unroll && is_constant) unrolled_.insert(l.variable.node());
  return runs;
}

void Verifier::branch(const Operation& o, Place& place) {
  Place deeper = place;
  const auto& b = std::get<Branch>(o.detail);
  deeper.is_nested = true;
  deeper.control = std::max(place.control, variance_->of(o.operands[0]));
  deeper.control_axes |= dependence_->of(o.operands[0]);
  deeper.is_certain = false;
  require(b.limit == 0 || (place.vector != nullptr && b.limit <= place.vector->width),
          "a limit of lanes without so many lanes");
  require(b.limit == 0 || variance_->of(o.operands[0]) == Variance::lane,
          "a limit of lanes for a condition that does not vary by lane");
  bool all_waited = true;
  for (const RegionId r : o.regions) {
    Place one = deeper;
    inside(r, one);
    all_waited = all_waited && one.waited;
  }
  place.waited = all_waited;
}

void Verifier::vector(const Operation& o, const Place& place) {
  Place deeper = place;
  const auto& v = std::get<Vector>(o.detail);
  require(place.vector == nullptr, "a vector region inside of another");
  require(place.map == nullptr, "a vector region inside of a fragment's map");
  require(v.width >= 1 && v.native >= 1 && v.width % v.native == 0, "{} lanes in groups of {}",
          v.width, v.native);
  sym::Context* context = v.lane.is_null() ? nullptr : &v.lane.context();
  require(context != nullptr, "a missing symbol");
  declare(v.lane, context->constant(0), context->constant(v.width - 1), true);
  unrolled_.insert(v.lane.node());
  deeper.vector = &v;
  deeper.is_nested = false;
  inside(o.regions[0], deeper);
  for (const ValueId y : k_.regions[o.regions[0]].yields) {
    require(variance_->of(y) < Variance::lane,
            "a vector region yields a value that varies by lane");
  }
}

void Verifier::fold(const Operation& o, const Place& place) {
  Place deeper = place;
  const auto& f = std::get<Fold>(o.detail);
  deeper.is_nested = true;
  const std::size_t chunked =
      f.chunked_loop < 0 ? f.loops.size() : static_cast<std::size_t>(f.chunked_loop);
  // `begin` and `merge` see the loops around the chunked one.
  for (std::size_t i = 0; i < f.loops.size(); ++i) {
    if (i == chunked) {
      for (const RegionId r : {o.regions[1], o.regions[2]}) inside(r, deeper);
    }
    deeper.is_certain = loop(f.loops[i], place) && deeper.is_certain;
    deeper.control = std::max(deeper.control, variance_->trip(f.loops[i]));
    deeper.control_axes |= dependence_->trip(f.loops[i]);
  }
  inside(o.regions[0], deeper);
}

void Verifier::control(const Operation& o, Place& place) {
  Place deeper = place;
  deeper.is_nested = true;
  const std::size_t symbols = scope_order_.size();
  switch (o.op) {
    case Op::loop: {
      const auto& l = std::get<Loop>(o.detail);
      deeper.is_certain = loop(l, place) && place.is_certain;
      deeper.control = std::max(place.control, variance_->trip(l));
      deeper.control_axes |= dependence_->trip(l);
      inside(o.regions[0], deeper);
      break;
    }
    case Op::repeat: {
      const Variance again = variance_->of(k_.regions[o.regions[0]].yields[0]);
      require(place.vector == nullptr || again < Variance::lane,
              "the condition of repeat varies by lane");
      deeper.control = std::max(place.control, again);
      deeper.control_axes |= dependence_->of(k_.regions[o.regions[0]].yields[0]);
      // Its region is run at least once, so what it waits for is waited for behind it.
      inside(o.regions[0], deeper);
      place.waited = deeper.waited;
      break;
    }
    case Op::branch:
      branch(o, place);
      break;
    case Op::vector:
      vector(o, place);
      break;
    case Op::fold:
      fold(o, place);
      break;
    case Op::roles:
      roles(o, place);
      break;
    case Op::reduce:
    case Op::scan:
      deeper.in_merge = true;
      inside(o.regions[0], deeper);
      break;
    case Op::fragment_map: {
      const auto& m = std::get<FragmentMap>(o.detail);
      declare(m.row, {}, {}, false);
      declare(m.column, {}, {}, false);
      deeper.map = &m;
      inside(o.regions[0], deeper);
      break;
    }
    default:
      break;
  }
  forget(symbols);
}

void Verifier::roles(const Operation& o, const Place& place) {
  const auto& detail = std::get<Roles>(o.detail);
  uniform(place, Variance::block, "a block");
  require(!place.in_role, "roles inside of a role");
  require(place.vector == nullptr, "roles in a vector region");
  const std::int64_t threads = k_.threads();
  require(threads % 32 == 0, "roles of {} threads", threads);
  std::int64_t next = 0;
  for (const Roles::Role& role : detail.roles) {
    require(role.first_warp == next && role.warps >= 1,
            "role {} begins at warp {}, not where the one before it ends", role.name,
            role.first_warp);
    next += role.warps;
    if (role.registers == 0) continue;
    require(role.registers % 8 == 0 && role.registers >= 24 && role.registers <= 256,
            "role {} with {} registers", role.name, role.registers);
    require(role.first_warp % 4 == 0 && role.warps % 4 == 0,
            "role {} sets the registers of a part of a warpgroup", role.name);
  }
  require(next == threads / 32, "roles of {} warps in a block of {}", next, threads / 32);
  for (const RegionId r : o.regions) {
    Place deeper = place;
    deeper.in_role = true;
    deeper.is_certain = false;  // threads of the role alone
    deeper.control = std::max(place.control, Variance::warp);
    inside(r, deeper);
  }
}

void verify(const Kernel& kernel, std::string_view after_pass, const Limits& limits) {
  Verifier(kernel, after_pass, limits).run();
}

}  // namespace inkle::kernel
