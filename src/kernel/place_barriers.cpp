#include "kernel/place_barriers.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "base/error.h"
#include "kernel/builder.h"
#include "kernel/place_barriers_order.h"
#include "kernel/split_vector.h"
#include "kernel/thread_dependence.h"
#include "sym/symbols.h"

namespace inkle::kernel {
namespace {

// What is done with memories, by memory.
struct MemoryUses {
  explicit MemoryUses(const Kernel& kernel)
      : loaded(kernel.memories.size()), stored(loaded), left(loaded) {
    look_at(kernel, kernel.body);
  }

  // Whether threads may meet in some: it is shared, or loaded and stored.
  [[nodiscard]] bool pass_values(const Kernel& kernel) const {
    for (MemoryId m = 0; m < kernel.memories.size(); ++m) {
      const Space space = kernel.memories[m].space;
      if (space == Space::shared) return true;
      if (space != Space::registers && loaded[m] && stored[m]) return true;
    }
    return false;
  }

  // Global memory that is loaded and may be written.
  [[nodiscard]] std::vector<bool> passed_on(const Kernel& kernel,
                                            const VarianceAnalysis& variance) const {
    std::vector<bool> out = loaded;
    for (MemoryId m = 0; m < kernel.memories.size(); ++m) {
      const Space space = kernel.memories[m].space;
      const bool is_global = space == Space::global || space == Space::workspace;
      out[m] = out[m] && is_global && variance.is_written(m);
    }
    return out;
  }

  std::vector<bool> loaded, stored;
  std::vector<bool> left;  // mbarriers order it

 private:
  void look_at(const Kernel& kernel, RegionId id) {
    for (const OperationId o : kernel.regions[id].operations) {
      const Operation& op = kernel[o];
      switch (op.op) {
        case Op::load:
        case Op::fragment_load:
          loaded[access_of(op)->memory] = true;
          break;
        case Op::store:
        case Op::fragment_store:
        case Op::atomic:
          stored[access_of(op)->memory] = true;
          break;
        case Op::copy_async:
          loaded[std::get<Copy>(op.detail).from.memory] = true;
          stored[std::get<Copy>(op.detail).to.memory] = true;
          break;
        case Op::tma_load:
        case Op::tma_store:
          left[std::get<Bulk>(op.detail).shared.memory] = true;
          break;
        case Op::mma:
          for (const FragmentAccess& f : std::get<MatrixMultiply>(op.detail).shared) {
            left[f.access.memory] = true;
          }
          break;
        default:
          for (const RegionId r : op.regions) look_at(kernel, r);
      }
    }
  }
};

// What is appended is no longer needed.
void append(std::vector<Seen>& to, std::vector<Seen>& from) {
  if (to.empty()) return to.swap(from);
  to.insert(to.end(), from.begin(), from.end());
}
void append(Summary& to, Summary&& from) {
  append(to.first, from.first);
  append(to.last, from.last);
}
void pass(std::vector<Seen>& touches, Reach barrier) {
  if (barrier == 0) return;
  for (Seen& t : touches) t.passed = std::max(t.passed, barrier);
}

class BarrierPlacing {
 public:
  BarrierPlacing(Kernel& kernel, sym::Context& context, const MemoryUses& uses)
      : kernel_(kernel),
        context_(context),
        builder_(kernel, context),
        variance_(kernel),
        overlap_(kernel, context),
        dependence_(kernel, variance_),
        is_left_(uses.left),
        is_passed_on_(uses.passed_on(kernel, variance_)),
        order_(kernel, overlap_, shared_, is_passed_on_) {
    for (const Expr size : kernel.sizes) shared_.add(size);
    for (const Axis& axis : kernel.launch.axes) {
      if (axis.kind != AxisKind::thread) shared_.add(axis.variable);
    }
  }

  void run() {
    const Summary body = region(kernel_.body);
    // No block exits while others of its cluster read its shared memory.
    const bool is_read = std::ranges::any_of(
        body.last, [&](const Seen& t) { return t.touch->is_remote && t.passed < kClusterReach; });
    builder_.set_region(kernel_.body);
    if (is_read) emit(kClusterReach);
  }

 private:
  // Where not all parts of a warp come, those that do wait by themselves.
  void emit(Reach reach) {
    Barrier info;
    info.scope = reach >= kClusterReach ? Scope::cluster
                 : reach == kBlockReach ? Scope::block
                                        : Scope::warp;
    if (reach < kWarpReach && control_ > Variance::warp) info.threads = 1 << reach;
    builder_.barrier(info);
  }

  // A barrier behind accesses of a region, which is the builder's; whether one is needed.
  bool place(Need need, RegionId region, Summary& behind) {
    if (need.reach == 0) return false;
    if (!may_stand(need.reach, region)) {
      unsupported("kernel {}: threads may meet in {} where no barrier can stand", kernel_.name,
                  kernel_.memories[need.memory].name);
    }
    emit(need.reach);
    pass(behind.last, need.reach);
    behind.passed = std::max(behind.passed, need.reach);
    return true;
  }

  // --- Accesses

  // One thread that synchronises with other blocks does so for its own.
  void synchronise(Order order, Scope scope, Summary& into) {
    if (scope < Scope::gpu) return;
    Touch t;
    t.guards = guards();
    if (!overlap_.is_one_thread(t)) return;
    t.kind = Touch::Kind::release;
    if (order == Order::release || order == Order::acquire_release)
      into.first.push_back(order_.keep(t));
    t.kind = Touch::Kind::acquire;
    if (order == Order::acquire || order == Order::acquire_release)
      into.last.push_back(order_.keep(t));
  }

  // `indices`: of the access; none: anywhere.
  void touch(OperationId id, const Access& access, Exprs indices, bool writes, Summary& into) {
    const Memory& memory = kernel_.memories[access.memory];
    const bool is_shared = memory.space == Space::shared;
    const bool is_global = memory.space == Space::global || memory.space == Space::workspace;
    if ((!is_shared && !is_global) || is_left_[access.memory]) return;
    if (is_global) {
      // Strong accesses of global memory are for other blocks.
      if (access.order != Order::weak) return synchronise(access.order, access.scope, into);
      if (!is_passed_on_[access.memory]) return;
    }
    Touch t;
    t.operation = id;
    t.memory = access.memory;
    t.writes = writes;
    t.is_strong = access.order != Order::weak;
    t.is_remote = access.remote;
    t.guards = guards();
    t.indices = t.expanded = overlap_.lists().copy(indices);
    if (!expanded_.empty()) {
      const std::span<Expr> expanded = overlap_.lists().copy(indices);
      for (Expr& e : expanded) e = sym::substitute(e, expanded_);
      t.expanded = expanded;
    }
    into.first.push_back(order_.keep(t));
    into.last.push_back(into.first.back());
  }
  void touch(OperationId id, const Access& access, bool writes, Summary& into) {
    touch(id, access, access.indices, writes, into);
  }

  // What holds where the walk is, for touches.
  Guards guards() {
    if (kept_guards_) return *kept_guards_;
    for (Guard& g : guards_) {
      if (g.expanded.is_null()) g.expanded = sym::substitute(g.expression, expanded_);
    }
    kept_guards_ = overlap_.lists().copy(Guards(guards_));
    return *kept_guards_;
  }

  void accesses(OperationId id, Summary& out) {
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
      case Op::fragment_store:
        // By all threads of the holder, which elements is the layout's.
        touch(id, std::get<FragmentAccess>(o.detail).access, {}, o.op == Op::fragment_store, out);
        break;
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
    kernel_.regions[id].operations.reserve(operations.size());
    Summary all, one;
    for (const OperationId o : operations) {
      one.clear();
      operation(o, one);
      builder_.set_region(id);
      if (!one.first.empty()) place(order_.needed(all.last, one.first), id, all);
      add(o, id);
      if (one.is_empty()) continue;
      pass(one.first, all.passed);
      pass(all.last, one.passed);
      append(all, std::move(one));
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

  // `out` is empty before.
  void operation(OperationId id, Summary& out) {
    switch (kernel_[id].op) {
      case Op::loop:
        out = loop(id);
        break;
      case Op::branch:
        out = branch(id);
        break;
      case Op::repeat:
        out = repeat(id);
        break;
      case Op::vector:
        out = vector(id);
        break;
      case Op::fold:
      case Op::fragment_map:
        out = folded(id);
        break;
      case Op::indirect:
      case Op::bind:
        define(id);
        break;
      case Op::roles:
        break;
      default:
        accesses(id, out);
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
          kept_guards_(placing.kept_guards_),
          expanded_(placing.expanded_.size()),
          shared_(placing.shared_.size()) {}
    ~Inside() {
      p_.control_ = control_;
      p_.in_vector_ = in_vector_;
      p_.splittable_ = splittable_;
      p_.control_axes_ = axes_;
      p_.guards_.resize(guards_);
      p_.kept_guards_ = kept_guards_;
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
    std::size_t guards_;
    std::optional<Guards> kept_guards_;
    std::size_t expanded_, shared_;
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
    dependence_.declare(kernel_[id]);
    if (variance_.of(kernel_[id].results[0]) <= Variance::block) return share(symbol);
    const OperationId of = kernel_.values[kernel_[id].operands[0]].definition;
    if (kernel_[id].op != Op::bind || of == kNone || kernel_[of].op != Op::index) return;
    expanded_.emplace_back(symbol,
                           sym::substitute(kernel_.detail<IndexOf>(of).expression, expanded_));
  }

  // The loop's variable, and what holds of it.
  void enter(const Loop& loop) {
    diverge(variance_.trip(loop), dependence_.trip(loop));
    dependence_.declare(loop);
    if (sym::bounds(loop.begin).low >= 0) {
      guards_.push_back({loop.variable, false, loop.end});
      kept_guards_.reset();
    }
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
    const auto next = next_of(info, out);
    close(body, {&next, 1}, out);
    const bool runs = info.at_least_once || sym::less(info.begin, info.end) == true;
    if (!runs) out.passed = 0;
    return out;
  }

  // The same accesses in the next iteration, or in any later one if there may be no barrier
  // between.
  std::pair<Expr, Expr> next_of(const Loop& info, const Summary& body) {
    if (body.passed >= kBlockReach) return {info.variable, info.variable + info.step};
    const sym::SymbolInfo facts = context_.info(info.variable);
    return {info.variable, sym::fresh(context_, facts)};
  }

  // The barrier that a loop's next iteration needs, at the end of its body.
  void close(RegionId body, sym::Substitution next, Summary& summary) {
    const RegionId around = builder_.region();
    builder_.set_region(body);
    if (place(order_.needed(summary.last, summary.first, next), body, summary)) {
      order_.forget(summary);
    }
    builder_.set_region(around);
  }

  Summary repeat(OperationId id) {
    const RegionId body = kernel_[id].regions[0];
    const Inside inside(*this);
    dependence_.declare_all(body);
    diverge(kernel_.regions[body].yields[0]);
    const std::size_t at_begin = shared_.size();
    Summary out = region(body);
    shared_.forget(at_begin);
    close(body, {}, out);
    return out;
  }

  Summary branch(OperationId id) {
    const ValueId condition = kernel_[id].operands[0];
    const Regions regions = kernel_[id].regions;
    const Inside inside(*this);
    diverge(condition);
    Summary out;
    {
      const Inside taken(*this);
      add_guards(kernel_, condition, guards_);
      kept_guards_.reset();
      out = region(regions[0]);
    }
    const Inside taken(*this);
    Summary other = region(regions[1]);
    append(out, std::move(other));
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
    const Regions regions = kernel_[id].regions;
    const Inside inside(*this);
    in_vector_ = true;
    splittable_ = kNone;
    if (const auto* fold = std::get_if<Fold>(&kernel_[id].detail)) {
      for (const Loop& l : fold->loops) enter(l);
    }
    Summary out;
    for (const RegionId r : regions) append(out, region(r));
    return out;
  }

  Kernel& kernel_;
  sym::Context& context_;
  Builder builder_;
  VarianceAnalysis variance_;
  Overlap overlap_;
  SharedSymbols shared_;
  ThreadDependence dependence_;
  std::vector<bool> is_left_, is_passed_on_;  // by memory
  TouchOrder order_;
  std::vector<Seen> copies_;  // by copy_async, so far
  // Where the walk is.
  Variance control_ = Variance::kernel;
  AxisSet control_axes_ = 0;
  bool in_vector_ = false;
  RegionId splittable_ = kNone;  // body of a vector region that a barrier may take apart
  std::vector<Guard> guards_;
  std::optional<Guards> kept_guards_;  // none: they have changed since
  std::vector<std::pair<Expr, Expr>> expanded_;
};

}  // namespace

void place_barriers(Kernel& kernel, sym::Context& context) {
  if (kernel.threads() == 1) return;
  const MemoryUses uses(kernel);
  if (uses.pass_values(kernel)) BarrierPlacing(kernel, context, uses).run();
}

}  // namespace inkle::kernel
