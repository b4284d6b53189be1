// A forward dataflow analysis: values start uniform and are raised to what their operands vary by.
// Loop-carried values are raised until a fixed point.
#include "kernel/variance.h"

#include <algorithm>

#include "sym/symbols.h"

namespace inkle::kernel {
namespace {

constexpr std::int64_t kWarp = 32;

}  // namespace

VarianceAnalysis::VarianceAnalysis(const Kernel& kernel)
    : k_(kernel),
      symbols_(kernel),
      values_(kernel.values.size(), Variance::kernel),
      written_(kernel.memories.size(), false) {
  collect_writes(k_.body);
  spread_writes();
  region(k_.body);
}

void VarianceAnalysis::collect_writes(RegionId region) {
  for (const OperationId id : k_.regions[region].operations) {
    const Operation& o = k_[id];
    for (const RegionId r : o.regions) collect_writes(r);
    if (o.op == Op::tma_store) {
      const MemoryId of = k_.memories[std::get<Bulk>(o.detail).map].of;
      if (of < written_.size()) written_[of] = true;
    } else if (o.op == Op::store || o.op == Op::atomic || o.op == Op::fragment_store) {
      written_[access_of(o)->memory] = true;
    }
  }
}

// What overlaps a written parameter is written.
void VarianceAnalysis::spread_writes() {
  const std::vector<bool> direct = written_;
  for (MemoryId other = 0; other < k_.parameter_count; ++other) {
    if (!direct[other]) continue;
    for (MemoryId m = 0; m < k_.parameter_count; ++m) {
      if (k_.memories[m].may_alias || k_.memories[other].may_alias) written_[m] = true;
    }
  }
}

// --- Values
// ----------------------------------------------------------------------------------------

void VarianceAnalysis::raise(ValueId value, Variance variance) {
  values_[value] = std::max(values_[value], variance);
}

Variance VarianceAnalysis::most(const Values& values) const {
  Variance out = Variance::kernel;
  for (const ValueId v : values) out = std::max(out, values_[v]);
  return out;
}

Variance VarianceAnalysis::access(const Access& access, const Values& operands) {
  Variance out = access.is_lowered && access.form == Form::wide ? Variance::lane : most(operands);
  for (const Expr e : access.indices) out = std::max(out, of(e));
  return out;
}

Variance VarianceAnalysis::loaded(const Access& a, const Values& operands) {
  const Variance index = access(a, operands);
  // Two threads that read one element at different times may see different values.
  if (a.order != Order::weak) return std::max(index, Variance::thread);
  switch (k_.memories[a.memory].space) {
    case Space::registers:
    case Space::stack:
      return std::max(index, Variance::thread);
    case Space::shared:
    case Space::barrier:
      return std::max(index, a.remote ? Variance::cluster : Variance::block);
    case Space::global:
      return written_[a.memory] ? std::max(index, Variance::block) : index;
    case Space::workspace:
    case Space::map:
      return std::max(index, Variance::block);
  }
  return Variance::lane;
}

// Of the result that all participants of a reduction or broadcast get.
Variance VarianceAnalysis::collected(const Operation& o) const {
  const auto& c = std::get<Collective>(o.detail);
  const Variance states = most(o.operands);
  if (c.lanes) return std::min(states, Variance::thread);
  if (states == Variance::lane) return states;  // of each lane by itself
  bool all_threads = true;
  bool whole_warp = true;
  bool whole_cluster = true;
  std::int64_t inner = 1;
  for (std::size_t i = k_.launch.axes.size(); i-- > 0;) {
    const Axis& axis = k_.launch.axes[i];
    const std::int64_t extent = axis.extent.constant().value_or(0);
    const bool covered = extent == 1 || std::find(c.axes.begin(), c.axes.end(), i) != c.axes.end();
    if (axis.kind == AxisKind::cluster && !covered) whole_cluster = false;
    if (axis.kind != AxisKind::thread) continue;
    if (!covered) {
      all_threads = false;
      if (inner < kWarp) whole_warp = false;
    }
    inner *= extent;
  }
  Variance out = whole_warp ? Variance::warp : Variance::thread;
  if (all_threads) out = whole_cluster ? Variance::cluster : Variance::block;
  return std::min(states, out);
}

void VarianceAnalysis::region(RegionId id) {
  for (const OperationId o : k_.regions[id].operations) operation(k_[o]);
}

Variance VarianceAnalysis::trip(const Loop& loop) {
  return std::max({of(loop.begin), of(loop.end), of(loop.step)});
}

void VarianceAnalysis::loop_variable(const Loop& loop) {
  const Variance own = std::max(of(loop.begin), of(loop.step));
  (void)of(loop.end);
  symbols_.declare(
      loop.variable,
      {.variance = own, .info = {.extent = loop.end}, .begin = loop.begin, .step = loop.step});
}

// Iterates the states that the operation's first region carries to a fixed point. `trip` is what
// the number of rounds depends on, asked for behind the region. The region yields a condition first
// where it yields one value more.
template <class Trip>
void VarianceAnalysis::looped(const Operation& o, const Trip& trip) {
  const Region& inside = k_.regions[o.regions[0]];
  const std::size_t skip = inside.yields.size() - inside.arguments.size();
  const std::size_t bounds = o.operands.size() - inside.arguments.size();  // of a lowered loop
  const auto initial = [&](std::size_t i) { return values_[o.operands[i + bounds]]; };
  const auto yielded = [&](std::size_t i) { return values_[inside.yields[i + skip]]; };
  for (std::size_t i = 0; i < inside.arguments.size(); ++i) {
    raise(inside.arguments[i], std::max(initial(i), yielded(i)));
  }
  for (bool is_done = false; !is_done;) {
    region(o.regions[0]);
    is_done = true;
    for (std::size_t i = 0; i < inside.arguments.size(); ++i) {
      if (yielded(i) <= values_[inside.arguments[i]]) continue;
      raise(inside.arguments[i], yielded(i));
      is_done = false;
    }
  }
  const Variance rounds = trip();
  for (std::size_t i = 0; i < o.results.size(); ++i) {
    raise(o.results[i], std::max({rounds, initial(i), yielded(i)}));
  }
}

void VarianceAnalysis::fold(const Operation& o) {
  const auto& f = std::get<Fold>(o.detail);
  Variance rounds = Variance::kernel;
  for (const Loop& loop : f.loops) {
    loop_variable(loop);
    rounds = std::max(rounds, trip(loop));
  }
  if (f.chunked_loop < 0) return looped(o, [&] { return rounds; });
  // Totals and states are joined: each depends on all.
  Variance all = std::max(most(o.operands), rounds);
  for (bool is_done = false; !is_done;) {
    const Variance before = all;
    for (const RegionId r : o.regions) {
      for (const ValueId v : k_.regions[r].arguments) raise(v, all);
      region(r);
      all = std::max(all, most(k_.regions[r].yields));
    }
    is_done = all == before;
  }
  for (const ValueId v : o.results) raise(v, all);
}

// Regions that run once; the results are what they yield.
void VarianceAnalysis::yielded(const Operation& o) {
  for (const RegionId r : o.regions) {
    region(r);
    const Values& yields = k_.regions[r].yields;
    for (std::size_t i = 0; i < o.results.size(); ++i) raise(o.results[i], values_[yields[i]]);
  }
}

void VarianceAnalysis::symbolic(const Operation& o, Variance value) {
  const auto& s = std::get<Symbolic>(o.detail);
  if (o.op == Op::indirect) {
    (void)of(s.extent);
    return symbols_.declare(s.symbol,
                            {.variance = value, .info = {.range = {.low = 0}, .extent = s.extent}});
  }
  const sym::SymbolInfo& info = s.symbol.context().info(s.symbol);
  symbols_.declare(s.symbol,
                   {.variance = value, .info = {.range = info.range, .divisor = info.divisor}});
}

Variance VarianceAnalysis::shuffled(const Operation& o) const {
  const auto& s = std::get<Shuffle>(o.detail);
  const Variance value = values_[o.operands[0]];
  if (value <= Variance::warp) return value;
  const Variance by = o.operands.size() > 1 ? values_[o.operands[1]] : Variance::kernel;
  const bool is_one = s.kind == ShuffleKind::from && s.width == kWarp && value == Variance::thread;
  return std::max(is_one ? Variance::warp : value, by);
}

void VarianceAnalysis::mapped(const Operation& o) {
  const auto& m = std::get<FragmentMap>(o.detail);
  const FragmentType& shape = k_.fragments[k_.type_of(o.operands[0]).fragment];
  const bool of_core = shape.holder == Holder::core || shape.holder == Holder::tile;
  const Variance element = of_core ? Variance::lane : Variance::thread;
  const auto within = [&](Expr symbol, std::int64_t count) {
    if (symbol.is_null()) return;
    symbols_.declare(symbol,
                     {.variance = element,
                      .info = {.range = {.low = 0}, .extent = symbol.context().constant(count)}});
  };
  within(m.row, shape.rows);
  within(m.column, shape.columns);
  for (const ValueId v : k_.regions[o.regions[0]].arguments) raise(v, element);
  region(o.regions[0]);
}

void VarianceAnalysis::operation(const Operation& o) {
  Variance result = most(o.operands);
  switch (o.op) {
    case Op::index:
      result = of(std::get<IndexOf>(o.detail).expression);
      break;
    case Op::compute:
      if (std::get<Compute>(o.detail).form == Form::wide) result = Variance::lane;
      break;
    case Op::indirect:
    case Op::bind:
      symbolic(o, result);
      break;
    case Op::loop: {
      const auto& l = std::get<Loop>(o.detail);
      loop_variable(l);
      return looped(o, [&] { return trip(l); });
    }
    case Op::repeat:
      return looped(o, [&] { return values_[k_.regions[o.regions[0]].yields[0]]; });
    case Op::vector: {
      const auto& v = std::get<Vector>(o.detail);
      if (!v.lane.is_null()) {
        symbols_.declare(
            v.lane, {.variance = Variance::lane,
                     .info = {.range = {.low = 0}, .extent = v.lane.context().constant(v.width)}});
      }
      return yielded(o);
    }
    case Op::branch:
      yielded(o);
      break;
    case Op::fold:
      return fold(o);
    case Op::roles:
      for (const RegionId r : o.regions) region(r);
      return;
    case Op::load:
      result = loaded(std::get<Access>(o.detail), o.operands);
      break;
    case Op::atomic:
      result = std::max(access(std::get<Atomic>(o.detail).access, o.operands), Variance::thread);
      break;
    case Op::reduce:
      for (const ValueId v : k_.regions[o.regions[0]].arguments) raise(v, result);
      region(o.regions[0]);
      result = collected(o);
      break;
    case Op::broadcast:
      result = collected(o);
      break;
    case Op::transpose:
      result = Variance::lane;
      break;
    case Op::scan:
      for (const ValueId v : k_.regions[o.regions[0]].arguments) raise(v, result);
      region(o.regions[0]);
      result = std::max(result,
                        std::get<Collective>(o.detail).lanes ? Variance::lane : Variance::thread);
      break;
    case Op::shuffle:
      result = shuffled(o);
      break;
    case Op::fragment_load: {
      const auto& f = std::get<FragmentAccess>(o.detail);
      result = std::max({loaded(f.access, o.operands), of(f.row_limit), of(f.column_limit)});
      break;
    }
    case Op::fragment_map:
      mapped(o);
      break;
    default:
      break;
  }
  for (const ValueId v : o.results) raise(v, result);
}

std::vector<Variance> variances(const Kernel& kernel) { return VarianceAnalysis(kernel).values(); }

}  // namespace inkle::kernel
