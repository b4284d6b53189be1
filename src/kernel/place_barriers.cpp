#include "kernel/place_barriers.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kernel/builder.h"
#include "kernel/place_barriers_overlap.h"
#include "kernel/variance.h"

namespace inkle::kernel {
namespace {

using loop::Opcode;

// Accesses of a part of the kernel, as seen from outside.
struct Summary {
  std::vector<Touch> first;      // `passed`: barriers since the part's begin
  std::vector<Touch> last;       // `passed`: barriers up to the part's end
  Scope passed = Scope::thread;  // the barrier that every way through the part passes
};

void append(std::vector<Touch>& to, const std::vector<Touch>& from) {
  to.insert(to.end(), from.begin(), from.end());
}
void pass(std::vector<Touch>& touches, Scope barrier) {
  for (Touch& t : touches) t.passed = std::max(t.passed, barrier);
}

// The most that control may vary where a barrier of this scope stands.
Variance most_variance(Scope scope) {
  switch (scope) {
    case Scope::warp:
      return Variance::warp;
    case Scope::block:
      return Variance::block;
    default:
      return Variance::cluster;
  }
}

class BarrierPlacing {
 public:
  BarrierPlacing(Kernel& kernel, sym::Context& context)
      : kernel_(kernel),
        context_(context),
        builder_(kernel, context),
        variance_(kernel),
        overlap_(kernel, context),
        is_left_(kernel.memories.size(), false) {
    for (const Expr size : kernel.sizes) shared_.insert(size.id());
    for (const Axis& axis : kernel.launch.axes) {
      if (axis.kind != AxisKind::thread) shared_.insert(axis.variable.id());
    }
    leave_asynchronous(kernel.body);
  }

  void run() {
    if (kernel_.threads() <= 1) return;
    Summary body = region(kernel_.body);
    // No block ends while others read its memory.
    const bool is_read = std::ranges::any_of(
        body.last, [](const Touch& t) { return t.is_remote && t.passed < Scope::cluster; });
    builder_.set_region(kernel_.body);
    if (is_read) emit(Scope::cluster);
  }

 private:
  // Memory that mbarriers order.
  void leave_asynchronous(RegionId id) {
    for (const OperationId o : kernel_.regions[id].operations) {
      const Operation& op = kernel_[o];
      if (op.op == Op::tma_load || op.op == Op::tma_store) {
        is_left_[std::get<Bulk>(op.detail).shared.memory] = true;
      } else if (op.op == Op::mma) {
        for (const FragmentAccess& f : std::get<MatrixMultiply>(op.detail).shared) {
          is_left_[f.access.memory] = true;
        }
      }
      for (const RegionId r : op.regions) leave_asynchronous(r);
    }
  }

  void emit(Scope scope) {
    Barrier info;
    info.scope = scope;
    builder_.barrier(info);
  }

  // --- Accesses

  void touch(OperationId id, const Access& access, bool writes, Summary& into) {
    const Memory& memory = kernel_.memories[access.memory];
    const bool is_shared = memory.space == Space::shared;
    const bool is_global = memory.space == Space::global || memory.space == Space::workspace;
    if ((!is_shared && !is_global) || is_left_[access.memory]) return;
    // Strong accesses of global memory are for other blocks.
    if (is_global && (access.order != Order::weak || !variance_.is_written(access.memory))) return;
    Touch t;
    t.operation = id;
    t.memory = access.memory;
    t.writes = writes;
    t.is_strong = access.order != Order::weak;
    t.is_remote = access.remote;
    t.guards = guards_;
    t.indices = access.indices;
    for (const Expr e : access.indices) t.expanded.push_back(sym::substitute(e, expanded_));
    into.first.push_back(t);
    into.last.push_back(std::move(t));
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
      case Op::barrier:
        out.passed = barrier_of(std::get<Barrier>(o.detail));
        break;
      default:
        break;
    }
    return out;
  }

  // What a barrier orders for all of its scope; parts and those of some threads are the author's.
  static Scope barrier_of(const Barrier& barrier) {
    const bool is_whole = barrier.threads == 0 && barrier.part == Barrier::Part::both;
    return is_whole ? barrier.scope : Scope::thread;
  }

  // --- Order

  Scope needed(const Touch& before, const Touch& after) const {
    if (before.memory != after.memory || (!before.writes && !after.writes)) return Scope::thread;
    if (before.is_strong && after.is_strong) return Scope::thread;
    // What a kernel gives is written once, or by one thread: indices need not show it.
    const bool is_shared = kernel_.memories[before.memory].space == Space::shared;
    if (!is_shared && before.writes && after.writes) return Scope::thread;
    const Scope passed = std::max(before.passed, after.passed);
    const bool is_remote = before.is_remote || after.is_remote;
    if (passed >= (is_remote ? Scope::cluster : Scope::block)) return Scope::thread;
    if (is_remote) {
      const bool is_disjoint = overlap_.is_disjoint(before, after, shared_);
      return is_disjoint ? Scope::thread : Scope::cluster;
    }
    const Scope scope = overlap_.scope(before, after, shared_);
    return scope <= passed ? Scope::thread : scope;
  }

  Scope needed(const std::vector<Touch>& before, const std::vector<Touch>& after) const {
    Scope out = Scope::thread;
    for (const Touch& b : before) {
      for (const Touch& a : after) out = std::max(out, needed(b, a));
    }
    return out;
  }

  [[nodiscard]] bool may_stand(Scope scope) const {
    return !in_vector_ && control_ <= most_variance(scope);
  }

  Summary region(RegionId id) {
    const RegionId around = builder_.region();
    const std::vector<OperationId> operations = std::move(kernel_.regions[id].operations);
    kernel_.regions[id].operations.clear();
    Summary all;
    for (const OperationId o : operations) {
      Summary one = operation(o);
      builder_.set_region(id);
      const Scope scope = needed(all.last, one.first);
      if (scope != Scope::thread && may_stand(scope)) {
        emit(scope);
        pass(all.last, scope);
        all.passed = std::max(all.passed, scope);
      }
      kernel_.regions[id].operations.push_back(o);
      pass(one.first, all.passed);
      pass(all.last, one.passed);
      append(all.first, one.first);
      append(all.last, one.last);
      all.passed = std::max(all.passed, one.passed);
      forget(all);
    }
    builder_.set_region(around);
    return all;
  }

  // Accesses that a barrier of the widest scope has passed concern nobody any more.
  void forget(Summary& summary) const {
    const bool has_cluster = kernel_.cluster() > 1;
    const auto is_over = [&](const Touch& t) {
      return t.passed >= (has_cluster ? Scope::cluster : Scope::block);
    };
    std::erase_if(summary.first, is_over);
    std::erase_if(summary.last, is_over);
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
        if (variance_.of(kernel_[id].results[0]) <= Variance::block) {
          share(std::get<Symbolic>(kernel_[id].detail).symbol);
        }
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
          guards_(placing.guards_.size()),
          expanded_(placing.expanded_.size()),
          shared_(placing.shared_) {}
    ~Inside() {
      p_.control_ = control_;
      p_.in_vector_ = in_vector_;
      p_.guards_.resize(guards_);
      p_.expanded_.resize(expanded_);
      p_.shared_ = std::move(shared_);
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    BarrierPlacing& p_;
    Variance control_;
    bool in_vector_;
    std::size_t guards_, expanded_;
    Overlap::Shared shared_;
  };

  void share(Expr symbol) { shared_.insert(symbol.id()); }

  // The loop's variable, and what holds of it.
  void enter(const Loop& loop) {
    control_ = std::max(control_, variance_.trip(loop));
    if (sym::bounds(loop.begin).low >= 0) guards_.push_back({loop.variable, false, loop.end});
    if (variance_.of(loop.variable) <= Variance::block) return share(loop.variable);
    const Expr step = context_.index(context_.constant(1));
    sym::SymbolInfo info;
    info.range.low = 0;
    context_.set_info(step, std::move(info));
    expanded_.emplace_back(loop.variable,
                           sym::substitute(loop.begin, expanded_) + step * loop.step);
  }

  Summary loop(OperationId id) {
    const Loop info = kernel_.detail<Loop>(id);
    const RegionId body = kernel_[id].regions[0];
    const Inside inside(*this);
    enter(info);
    const Overlap::Shared at_begin = shared_;
    Summary out = region(body);
    shared_ = at_begin;
    close(body, needed(out.last, next_iteration(out, info)), out);
    const bool runs = info.at_least_once || sym::less(info.begin, info.end) == true;
    if (!runs) out.passed = Scope::thread;
    return out;
  }

  // The first accesses of the next iteration, or of any later one if there may be no barrier in
  // between.
  std::vector<Touch> next_iteration(const Summary& body, const Loop& info) {
    std::vector<Touch> out = body.first;
    const bool is_next = body.passed >= Scope::block;
    const std::pair<Expr, Expr> next{info.variable,
                                     is_next ? info.variable + info.step : another(info.variable)};
    for (Touch& t : out) {
      for (Expr& e : t.indices) e = sym::substitute(e, {&next, 1});
      for (Guard& g : t.guards) {
        g.expression = sym::substitute(g.expression, {&next, 1});
        g.bound = sym::substitute(g.bound, {&next, 1});
      }
    }
    return out;
  }

  Expr another(Expr symbol) {
    const Expr made = context_.index(context_.constant(1));
    sym::SymbolInfo info = context_.info(symbol);
    context_.set_info(made, std::move(info));
    return made;
  }

  // The barrier that a loop's next iteration needs, at the end of its body.
  void close(RegionId body, Scope scope, Summary& summary) {
    if (scope == Scope::thread || !may_stand(scope)) return;
    const RegionId around = builder_.region();
    builder_.set_region(body);
    emit(scope);
    builder_.set_region(around);
    pass(summary.last, scope);
    summary.passed = std::max(summary.passed, scope);
    forget(summary);
  }

  Summary repeat(OperationId id) {
    const RegionId body = kernel_[id].regions[0];
    const Inside inside(*this);
    control_ = std::max(control_, variance_.of(kernel_.regions[body].yields[0]));
    const Overlap::Shared at_begin = shared_;
    Summary out = region(body);
    shared_ = at_begin;
    close(body, needed(out.last, out.first), out);
    return out;
  }

  Summary branch(OperationId id) {
    const ValueId condition = kernel_[id].operands[0];
    const std::vector<RegionId> regions = kernel_[id].regions;
    const Inside inside(*this);
    control_ = std::max(control_, variance_.of(condition));
    Summary out;
    {
      const Inside taken(*this);
      guard(condition);
      out = region(regions[0]);
    }
    const Inside taken(*this);
    const Summary other = region(regions[1]);
    append(out.first, other.first);
    append(out.last, other.last);
    out.passed = std::min(out.passed, other.passed);
    return out;
  }

  // index == constant, index < constant.
  void guard(ValueId condition) {
    const OperationId id = kernel_.values[condition].definition;
    if (id == kNone || kernel_[id].op != Op::compute) return;
    const Opcode opcode = kernel_.detail<Compute>(id).opcode;
    if (opcode == Opcode::bit_and) {
      const std::vector<ValueId> both = kernel_[id].operands;
      for (const ValueId v : both) guard(v);
      return;
    }
    if (opcode != Opcode::equal && opcode != Opcode::less) return;
    const OperationId left = kernel_.values[kernel_[id].operands[0]].definition;
    const OperationId right = kernel_.values[kernel_[id].operands[1]].definition;
    if (left == kNone || right == kNone || kernel_[left].op != Op::index) return;
    Expr bound;
    if (kernel_[right].op == Op::constant) {
      bound = context_.constant(kernel_.detail<Immediate>(right).integer);
    } else if (kernel_[right].op == Op::index) {
      bound = kernel_.detail<IndexOf>(right).expression;
    }
    if (bound.is_null()) return;
    guards_.push_back({kernel_.detail<IndexOf>(left).expression, opcode == Opcode::equal, bound});
  }

  Summary vector(OperationId id) {
    const RegionId body = kernel_[id].regions[0];
    const Inside inside(*this);
    in_vector_ = true;
    return region(body);
  }

  // Regions that no barrier may stand in.
  Summary folded(OperationId id) {
    const std::vector<RegionId> regions = kernel_[id].regions;
    const Inside inside(*this);
    in_vector_ = true;
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
  std::vector<bool> is_left_;  // by memory
  std::vector<Touch> copies_;  // by copy_async, so far
  // Where the walk is.
  Variance control_ = Variance::kernel;
  bool in_vector_ = false;
  std::vector<Guard> guards_;
  std::vector<std::pair<Expr, Expr>> expanded_;
  Overlap::Shared shared_;
};

}  // namespace

void place_barriers(Kernel& kernel, sym::Context& context) {
  BarrierPlacing(kernel, context).run();
}

}  // namespace inkle::kernel
