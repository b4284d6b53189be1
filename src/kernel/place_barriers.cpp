#include "kernel/place_barriers.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <optional>
#include <utility>

#include "kernel/builder.h"
#include "kernel/place_barriers_overlap.h"
#include "kernel/split_vector.h"
#include "kernel/thread_dependence.h"
#include "sym/symbols.h"

namespace inkle::kernel {
namespace {

// A touch, by its number, as it is seen from elsewhere.
struct Seen {
  std::uint32_t touch = 0;
  Reach passed = 0;  // the barrier that surely stands between it and where it is seen
};

// Accesses of a part of the kernel, as seen from outside.
struct Summary {
  std::vector<Seen> first;  // `passed`: barriers since the part's begin
  std::vector<Seen> last;   // `passed`: barriers up to the part's end
  Reach passed = 0;         // the barrier that every way through the part passes
};

// Whether threads may meet in memory: some is shared, or loaded and stored.
bool passes_values(const Kernel& kernel) {
  std::vector<bool> loaded(kernel.memories.size()), stored(kernel.memories.size());
  for (const Operation& o : kernel.operations) {
    const Access* access = access_of(o);
    if (access == nullptr || o.op == Op::prefetch) continue;
    const bool loads = o.op == Op::load || o.op == Op::fragment_load;
    (loads ? loaded : stored)[access->memory] = true;
  }
  for (MemoryId m = 0; m < kernel.memories.size(); ++m) {
    const Space space = kernel.memories[m].space;
    if (space == Space::shared) return true;
    if (space != Space::registers && loaded[m] && stored[m]) return true;
  }
  return false;
}

void append(std::vector<Seen>& to, const std::vector<Seen>& from) {
  to.insert(to.end(), from.begin(), from.end());
}
void pass(std::vector<Seen>& touches, Reach barrier) {
  if (barrier == 0) return;
  for (Seen& t : touches) t.passed = std::max(t.passed, barrier);
}

// All touches, and which barriers must stand between them.
class TouchOrder {
 public:
  TouchOrder(const Kernel& kernel, Overlap& overlap, const SharedSymbols& shared)
      : kernel_(kernel),
        overlap_(overlap),
        shared_(shared),
        widest_(kernel.cluster() > 1 ? kClusterReach : kBlockReach) {}

  Seen number(Touch touch) {
    touches_.push_back(std::move(touch));
    return {static_cast<std::uint32_t>(touches_.size() - 1), 0};
  }

  [[nodiscard]] bool is_remote(const Seen& seen) const { return touches_[seen.touch].is_remote; }
  // The reach between some accesses and those that come then, with some symbol being another.
  Reach needed(const std::vector<Seen>& before, const std::vector<Seen>& after,
               sym::Substitution next = {}) {
    Reach out = 0;
    for (const Seen& a : after) {
      const Touch* then = &touches_[a.touch];
      Touch moved;
      // The last ones first: they are the most likely to ask for a barrier.
      for (std::size_t i = before.size(); i-- > 0 && out < widest_;) {
        const Seen& b = before[i];
        if (!may_meet(touches_[b.touch], *then)) continue;
        if (!next.empty() && then != &moved) {
          moved = with(*then, next);
          then = &moved;
        }
        out = std::max(out, needed(touches_[b.touch], *then, std::max(b.passed, a.passed)));
      }
    }
    return out;
  }

  // Accesses that a barrier of the widest scope has passed concern nobody any more.
  void forget(Summary& summary) const {
    const auto is_over = [&](const Seen& t) { return t.passed >= widest_; };
    std::erase_if(summary.first, is_over);
    std::erase_if(summary.last, is_over);
  }

 private:
  // Whether one of the two may have to wait for the other, whatever their indices are.
  [[nodiscard]] bool may_meet(const Touch& before, const Touch& after) const {
    if (before.kind != Touch::Kind::access || after.kind != Touch::Kind::access) {
      const bool is_released = after.kind == Touch::Kind::release &&
                               before.kind == Touch::Kind::access && is_for_others(before, true);
      const bool is_acquired = before.kind == Touch::Kind::acquire &&
                               after.kind == Touch::Kind::access && is_for_others(after, false);
      return is_released || is_acquired;
    }
    if (before.memory != after.memory || (!before.writes && !after.writes)) return false;
    if (before.is_strong && after.is_strong) return false;
    // What a kernel gives is written once, or by one thread, and so is what one store writes before
    // others read it: indices need not show it.
    const bool is_shared = kernel_.memories[before.memory].space == Space::shared;
    const bool is_once = !is_shared || before.operation == after.operation;
    return !is_once || !before.writes || !after.writes;
  }

  Reach needed(const Touch& before, const Touch& after, Reach passed) {
    const bool is_remote = before.is_remote || after.is_remote;
    if (passed >= (is_remote ? kClusterReach : kBlockReach)) return 0;
    Reach reach = 0;
    if (!is_remote) {
      reach = overlap_.reach(before, after, shared_);
    } else if (!overlap_.is_disjoint(before, after, shared_)) {
      reach = kClusterReach;
    }
    return reach <= passed ? 0 : reach;
  }

  static Touch with(Touch t, sym::Substitution next) {
    for (Expr& e : t.indices) e = sym::substitute(e, next);
    for (Guard& g : t.guards) {
      g.expression = sym::substitute(g.expression, next);
      g.bound = sym::substitute(g.bound, next);
    }
    return t;
  }

  // An access of global memory that other blocks may read, or have written.
  [[nodiscard]] bool is_for_others(const Touch& touch, bool writes) const {
    const Space space = kernel_.memories[touch.memory].space;
    return touch.writes == writes && (space == Space::global || space == Space::workspace);
  }

  const Kernel& kernel_;
  Overlap& overlap_;
  const SharedSymbols& shared_;
  Reach widest_;
  std::deque<Touch> touches_;  // by number
};

class BarrierPlacing {
 public:
  BarrierPlacing(Kernel& kernel, sym::Context& context)
      : kernel_(kernel),
        context_(context),
        builder_(kernel, context),
        variance_(kernel),
        overlap_(kernel, context),
        dependence_(kernel, variance_),
        order_(kernel, overlap_, shared_),
        is_left_(kernel.memories.size(), false),
        is_loaded_(kernel.memories.size(), false) {
    for (const Expr size : kernel.sizes) shared_.add(size);
    for (const Axis& axis : kernel.launch.axes) {
      if (axis.kind != AxisKind::thread) shared_.add(axis.variable);
    }
    look_at(kernel.body);
  }

  void run() {
    Summary body = region(kernel_.body);
    // No block ends while others read its memory.
    const bool is_read = std::ranges::any_of(
        body.last, [&](const Seen& t) { return order_.is_remote(t) && t.passed < kClusterReach; });
    builder_.set_region(kernel_.body);
    if (is_read) emit(kClusterReach);
  }

 private:
  // Memory that mbarriers order, and memory that is loaded.
  void look_at(RegionId id) {
    for (const OperationId o : kernel_.regions[id].operations) {
      const Operation& op = kernel_[o];
      if (op.op == Op::tma_load || op.op == Op::tma_store) {
        is_left_[std::get<Bulk>(op.detail).shared.memory] = true;
      } else if (op.op == Op::mma) {
        for (const FragmentAccess& f : std::get<MatrixMultiply>(op.detail).shared) {
          is_left_[f.access.memory] = true;
        }
      } else if (op.op == Op::load || op.op == Op::fragment_load || op.op == Op::copy_async) {
        const auto* copy = std::get_if<Copy>(&op.detail);
        is_loaded_[copy != nullptr ? copy->from.memory : access_of(op)->memory] = true;
      }
      for (const RegionId r : op.regions) look_at(r);
    }
  }

  // Where not all parts of a warp come, those that do wait by themselves.
  void emit(Reach reach) {
    Barrier info;
    info.scope = reach >= kClusterReach ? Scope::cluster
                 : reach == kBlockReach ? Scope::block
                                        : Scope::warp;
    if (reach < kWarpReach && control_ > Variance::warp) info.threads = 1 << reach;
    builder_.barrier(info);
  }

  // --- Accesses

  // One thread that synchronises with other blocks does so for its own.
  void synchronise(Order order, Scope scope, Summary& into) {
    if (scope < Scope::gpu) return;
    Touch t;
    t.guards = guards_;
    if (!overlap_.is_one_thread(t)) return;
    t.kind = Touch::Kind::release;
    if (order == Order::release || order == Order::acquire_release)
      into.first.push_back(order_.number(t));
    t.kind = Touch::Kind::acquire;
    if (order == Order::acquire || order == Order::acquire_release)
      into.last.push_back(order_.number(t));
  }

  void touch(OperationId id, const Access& access, bool writes, Summary& into) {
    const Memory& memory = kernel_.memories[access.memory];
    const bool is_shared = memory.space == Space::shared;
    const bool is_global = memory.space == Space::global || memory.space == Space::workspace;
    if ((!is_shared && !is_global) || is_left_[access.memory]) return;
    if (is_global) {
      // Strong accesses of global memory are for other blocks.
      if (access.order != Order::weak) return synchronise(access.order, access.scope, into);
      if (!variance_.is_written(access.memory) || !is_loaded_[access.memory]) return;
    }
    Touch t;
    t.operation = id;
    t.memory = access.memory;
    t.writes = writes;
    t.is_strong = access.order != Order::weak;
    t.is_remote = access.remote;
    t.guards = guards_;
    t.indices = access.indices;
    for (const Expr e : access.indices) t.expanded.push_back(sym::substitute(e, expanded_));
    into.first.push_back(order_.number(std::move(t)));
    into.last.push_back(into.first.back());
  }

  Summary accesses(OperationId id) {
    Summary out;
    const Operation& o = kernel_[id];
    switch (o.op) {
      case Op::load:
        touch(id, std::get<Access>(o.detail), false, out);
        break;
      case Op::store:
        touch(id, std::get<Access>(o.detail), true, out);
        break;
      case Op::atomic:
        touch(id, std::get<Atomic>(o.detail).access, true, out);
        break;
      case Op::fragment_load:
      case Op::fragment_store: {
        // By all threads of the holder, which elements is the layout's.
        Access access = std::get<FragmentAccess>(o.detail).access;
        access.indices.clear();
        touch(id, access, o.op == Op::fragment_store, out);
        break;
      }
      case Op::copy_async:
        touch(id, std::get<Copy>(o.detail).from, false, out);
        touch(id, std::get<Copy>(o.detail).to, true, out);
        if (!out.last.empty()) copies_.push_back(out.last.back());
        break;
      case Op::copy_wait:
        // The copies are done here, whatever barrier stood before.
        out.last = copies_;
        break;
      case Op::fence:
        synchronise(std::get<Fence>(o.detail).order, std::get<Fence>(o.detail).scope, out);
        break;
      case Op::barrier:
        out.passed = reach_of(std::get<Barrier>(o.detail));
        break;
      default:
        break;
    }
    return out;
  }

  // What a barrier orders for all of its scope; parts and those of some threads are the author's.
  static Reach reach_of(const Barrier& barrier) {
    if (barrier.part != Barrier::Part::both) return 0;
    if (barrier.scope == Scope::warp) {
      return barrier.threads > 0 ? std::countr_zero(static_cast<std::uint32_t>(barrier.threads))
                                 : kWarpReach;
    }
    if (barrier.threads > 0) return 0;
    return barrier.scope == Scope::cluster ? kClusterReach : kBlockReach;
  }

  // Whether a barrier may stand between operations of the region, whoever comes there.
  [[nodiscard]] bool takes_barriers(RegionId region) const {
    return !in_vector_ || region == splittable_;
  }
  [[nodiscard]] bool may_stand(Reach reach, RegionId region) const {
    if (!takes_barriers(region)) return false;
    if (reach >= kClusterReach) return control_ <= Variance::cluster;
    if (reach == kBlockReach) return control_ <= Variance::block;
    if (control_ <= Variance::warp) return true;
    // Whether all lanes of a part come together.
    return reach < kWarpReach && dependence_.is_one_for(control_axes_, 1 << reach);
  }

  Summary region(RegionId id) {
    const RegionId around = builder_.region();
    const std::vector<OperationId> operations = std::move(kernel_.regions[id].operations);
    kernel_.regions[id].operations.clear();
    Summary all;
    for (const OperationId o : operations) {
      Summary one = operation(o);
      builder_.set_region(id);
      const Reach reach = takes_barriers(id) ? order_.needed(all.last, one.first) : 0;
      if (reach > 0 && may_stand(reach, id)) {
        emit(reach);
        pass(all.last, reach);
        all.passed = std::max(all.passed, reach);
      }
      add(o, id);
      pass(one.first, all.passed);
      pass(all.last, one.passed);
      append(all.first, one.first);
      append(all.last, one.last);
      all.passed = std::max(all.passed, one.passed);
      order_.forget(all);
    }
    builder_.set_region(around);
    return all;
  }

  // The operation, or the parts of a vector region between barriers.
  void add(OperationId id, RegionId to) {
    const auto is_barrier = [&](OperationId o) { return kernel_[o].op == Op::barrier; };
    const bool is_apart =
        kernel_[id].op == Op::vector && kernel_[id].results.empty() &&
        std::ranges::any_of(kernel_.regions[kernel_[id].regions[0]].operations, is_barrier);
    if (!is_apart) return kernel_.regions[to].operations.push_back(id);
    builder_.set_region(to);
    split_vector(builder_, id, is_barrier);
  }

  Summary operation(OperationId id) {
    switch (kernel_[id].op) {
      case Op::loop:
        return loop(id);
      case Op::branch:
        return branch(id);
      case Op::repeat:
        return repeat(id);
      case Op::vector:
        return vector(id);
      case Op::fold:
      case Op::fragment_map:
        return folded(id);
      case Op::indirect:
      case Op::bind:
        define(id);
        return {};
      case Op::roles:
        return {};
      default:
        return accesses(id);
    }
  }

  // --- Control

  // What is known inside of a region only, and is forgotten behind it.
  class Inside {
   public:
    explicit Inside(BarrierPlacing& placing)
        : p_(placing),
          control_(placing.control_),
          in_vector_(placing.in_vector_),
          splittable_(placing.splittable_),
          axes_(placing.control_axes_),
          guards_(placing.guards_.size()),
          expanded_(placing.expanded_.size()),
          shared_(placing.shared_.size()) {}
    ~Inside() {
      p_.control_ = control_;
      p_.in_vector_ = in_vector_;
      p_.splittable_ = splittable_;
      p_.control_axes_ = axes_;
      p_.guards_.resize(guards_);
      p_.expanded_.resize(expanded_);
      p_.shared_.forget(shared_);
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    BarrierPlacing& p_;
    Variance control_;
    bool in_vector_;
    RegionId splittable_;
    AxisSet axes_;
    std::size_t guards_, expanded_, shared_;
  };

  void share(Expr symbol) { shared_.add(symbol); }

  void diverge(Variance variance, AxisSet axes) {
    control_ = std::max(control_, variance);
    control_axes_ |= axes;
  }
  void diverge(ValueId condition) { diverge(variance_.of(condition), dependence_.of(condition)); }

  // The symbol is one for all threads, or stands for an index of the thread's numbers.
  void define(OperationId id) {
    const Expr symbol = std::get<Symbolic>(kernel_[id].detail).symbol;
    if (variance_.of(kernel_[id].results[0]) <= Variance::block) return share(symbol);
    const OperationId of = kernel_.values[kernel_[id].operands[0]].definition;
    if (kernel_[id].op != Op::bind || of == kNone || kernel_[of].op != Op::index) return;
    expanded_.emplace_back(symbol,
                           sym::substitute(kernel_.detail<IndexOf>(of).expression, expanded_));
  }

  // The loop's variable, and what holds of it.
  void enter(const Loop& loop) {
    diverge(variance_.trip(loop), dependence_.trip(loop));
    if (sym::bounds(loop.begin).low >= 0) guards_.push_back({loop.variable, false, loop.end});
    if (variance_.of(loop.variable) <= Variance::block) return share(loop.variable);
    const Expr step = sym::fresh(context_, {.range = {.low = 0}});
    expanded_.emplace_back(loop.variable,
                           sym::substitute(loop.begin, expanded_) + step * loop.step);
  }

  Summary loop(OperationId id) {
    const Loop info = kernel_.detail<Loop>(id);
    const RegionId body = kernel_[id].regions[0];
    const Inside inside(*this);
    enter(info);
    const std::size_t at_begin = shared_.size();
    Summary out = region(body);
    shared_.forget(at_begin);
    close(body, needed_around(out, info), out);
    const bool runs = info.at_least_once || sym::less(info.begin, info.end) == true;
    if (!runs) out.passed = 0;
    return out;
  }

  // The reach between accesses of an iteration and the first ones of the next, or of any later one
  // if there may be no barrier in between.
  Reach needed_around(const Summary& body, const Loop& info) {
    if (body.last.empty() || body.first.empty()) return 0;
    const bool is_next = body.passed >= kBlockReach;
    const std::pair<Expr, Expr> next{info.variable,
                                     is_next ? info.variable + info.step : another(info.variable)};
    return order_.needed(body.last, body.first, {&next, 1});
  }

  Expr another(Expr symbol) {
    const sym::SymbolInfo info = context_.info(symbol);
    return sym::fresh(context_, info);
  }

  // The barrier that a loop's next iteration needs, at the end of its body.
  void close(RegionId body, Reach reach, Summary& summary) {
    if (reach == 0 || !may_stand(reach, body)) return;
    const RegionId around = builder_.region();
    builder_.set_region(body);
    emit(reach);
    builder_.set_region(around);
    pass(summary.last, reach);
    summary.passed = std::max(summary.passed, reach);
    order_.forget(summary);
  }

  Summary repeat(OperationId id) {
    const RegionId body = kernel_[id].regions[0];
    const Inside inside(*this);
    diverge(kernel_.regions[body].yields[0]);
    const std::size_t at_begin = shared_.size();
    Summary out = region(body);
    shared_.forget(at_begin);
    close(body, order_.needed(out.last, out.first), out);
    return out;
  }

  Summary branch(OperationId id) {
    const ValueId condition = kernel_[id].operands[0];
    const std::vector<RegionId> regions = kernel_[id].regions;
    const Inside inside(*this);
    diverge(condition);
    Summary out;
    {
      const Inside taken(*this);
      add_guards(kernel_, condition, guards_);
      out = region(regions[0]);
    }
    const Inside taken(*this);
    const Summary other = region(regions[1]);
    append(out.first, other.first);
    append(out.last, other.last);
    out.passed = std::min(out.passed, other.passed);
    return out;
  }

  Summary vector(OperationId id) {
    const RegionId body = kernel_[id].regions[0];
    const Inside inside(*this);
    // A barrier takes it apart, unless it has results, which would be of no one part.
    splittable_ = !in_vector_ && kernel_[id].results.empty() ? body : kNone;
    in_vector_ = true;
    return region(body);
  }

  // Regions that no barrier may stand in.
  Summary folded(OperationId id) {
    const std::vector<RegionId> regions = kernel_[id].regions;
    const Inside inside(*this);
    in_vector_ = true;
    splittable_ = kNone;
    if (const auto* fold = std::get_if<Fold>(&kernel_[id].detail)) {
      for (const Loop& l : fold->loops) enter(l);
    }
    Summary out;
    for (const RegionId r : regions) {
      const Summary one = region(r);
      append(out.first, one.first);
      append(out.last, one.last);
    }
    return out;
  }

  Kernel& kernel_;
  sym::Context& context_;
  Builder builder_;
  VarianceAnalysis variance_;
  Overlap overlap_;
  SharedSymbols shared_;
  ThreadDependence dependence_;
  TouchOrder order_;
  std::vector<bool> is_left_, is_loaded_;  // by memory
  std::vector<Seen> copies_;               // by copy_async, so far
  // Where the walk is.
  Variance control_ = Variance::kernel;
  AxisSet control_axes_ = 0;
  bool in_vector_ = false;
  RegionId splittable_ = kNone;  // body of a vector region that a barrier may take apart
  std::vector<Guard> guards_;
  std::vector<std::pair<Expr, Expr>> expanded_;
};

}  // namespace

void place_barriers(Kernel& kernel, sym::Context& context) {
  if (kernel.threads() > 1 && passes_values(kernel)) BarrierPlacing(kernel, context).run();
}

}  // namespace inkle::kernel
