#include "kernel/hoist.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <unordered_map>

#include "kernel/lanes.h"

namespace inkle::kernel {

namespace {

using loop::Opcode;
// A bit for each memory; the last one stands for all that are too many.
using MemorySet = std::uint64_t;

MemorySet bit_of(MemoryId memory) { return MemorySet{1} << std::min<std::uint32_t>(memory, 63); }

bool is_integer_division(const Kernel& kernel, const Operation& op) {
  const Opcode opcode = std::get<Compute>(op.detail).opcode;
  return opcode >= Opcode::div && opcode <= Opcode::fmod &&
         !abi::is_float(kernel.type_of(op.operands[0]).dtype);
}

class Hoister {
 public:
  explicit Hoister(Kernel& kernel)
      : kernel_(kernel),
        depth_(kernel.values.size(), 0),
        same_(kernel.values.size()),
        varies_(varies_by_lane(kernel)),
        writes_(kernel.regions.size(), 0) {
    for (ValueId v = 0; v < same_.size(); ++v) same_[v] = v;
    for (MemoryId m = 0; m < kernel.memories.size(); ++m) {
      if (kernel.memories[m].may_alias) aliasing_ |= bit_of(m);
    }
    find_writes(kernel.body);
  }

  void run() { region(kernel_.body, nullptr); }

 private:
  struct Frame {
    RegionId region = kNone;
    const Operation* owner = nullptr;  // null: the kernel's body
    std::vector<OperationId> out;
    std::unordered_multimap<std::size_t, OperationId> known;
  };

  MemorySet find_writes(RegionId id) {
    MemorySet all = 0;
    for (const OperationId o : kernel_.regions[id].operations) {
      const Operation& op = kernel_.operations[o];
      for (const RegionId r : op.regions) all |= find_writes(r);
      switch (op.op) {
        case Op::store:
        case Op::atomic:
        case Op::fragment_store:
        case Op::copy_async:
          all |= bit_of(access_of(op)->memory);
          break;
        case Op::tma_load:
          all |= bit_of(std::get<Bulk>(op.detail).shared.memory);
          break;
        case Op::tma_store:
          all |= bit_of(kernel_.memories[std::get<Bulk>(op.detail).map].of);
          break;
        case Op::barrier:  // other threads may have written anything before it
        case Op::barrier_wait:
        case Op::fence:
          all = ~MemorySet{0};
          break;
        default:
          break;
      }
    }
    if ((all & aliasing_) != 0) all |= aliasing_;
    writes_[id] = all;
    return all;
  }

  // Whether the operation is run at least once where the owner of this frame is.
  bool runs(const Frame& frame, const Operation& op) const {
    const Operation& owner = *frame.owner;
    if (owner.op == Op::vector) return true;
    if (owner.op == Op::branch) {
      return std::get<Branch>(owner.detail).some_lane && frame.region == owner.regions[0] &&
             !varies_[op.results[0]];
    }
    if (owner.op == Op::repeat) return true;
    if (owner.op != Op::loop) return false;
    const Loop& loop = std::get<Loop>(owner.detail);
    return loop.at_least_once || sym::less(loop.begin, loop.end) == true;
  }

  std::size_t depth_of(Expr e) const {
    std::size_t depth = 0;
    for (const Expr s : sym::symbols(e)) {
      const auto found = symbols_.find(s.node());
      if (found != symbols_.end()) depth = std::max(depth, found->second);
    }
    return depth;
  }

  // The outermost frame in which the operation may be; the current one where it must stay.
  std::size_t target(const Operation& op) const {
    const std::size_t here = frames_.size() - 1;
    std::size_t depth = 0;
    for (const ValueId v : op.operands) depth = std::max(depth, depth_[v]);
    bool must_run = false;
    MemorySet reads = 0;
    switch (op.op) {
      case Op::constant:
      case Op::function:
        break;
      case Op::index:
        depth = std::max(depth, depth_of(std::get<IndexOf>(op.detail).expression));
        break;
      case Op::compute:
        must_run = is_integer_division(kernel_, op);
        break;
      case Op::indirect:
        depth = std::max(depth, depth_of(std::get<Symbolic>(op.detail).extent));
        must_run = true;
        break;
      case Op::load: {
        const Access& access = std::get<Access>(op.detail);
        const Memory& memory = kernel_.memories[access.memory];
        if (access.order != Order::weak || access.is_lowered) return here;
        for (const Expr e : access.indices) depth = std::max(depth, depth_of(e));
        must_run = true;
        if (memory.space != Space::global || memory.role != Role::in || memory.may_alias) {
          reads = bit_of(access.memory);
        }
        break;
      }
      default:
        return here;
    }
    if (must_run) {
      for (std::size_t f = here; f > depth; --f) {
        if (!runs(frames_[f], op) || (writes_[frames_[f].region] & reads) != 0) return f;
      }
    }
    return depth;
  }

  static std::size_t hash_of(const Operation& op) {
    std::size_t hash = static_cast<std::size_t>(op.op) * 0x9e3779b97f4a7c15ULL;
    const auto mix = [&](std::size_t v) {
      hash = (std::rotl(hash, 13) ^ v) * 0x9e3779b97f4a7c15ULL;
    };
    for (const ValueId v : op.operands) mix(v);
    if (const auto* c = std::get_if<Compute>(&op.detail)) mix(static_cast<std::size_t>(c->opcode));
    if (const auto* i = std::get_if<IndexOf>(&op.detail)) mix(i->expression.id());
    if (const auto* i = std::get_if<Immediate>(&op.detail)) {
      mix(std::bit_cast<std::size_t>(i->real));
      mix(static_cast<std::size_t>(i->integer));
    }
    return hash;
  }

  bool is_equal(const Operation& a, const Operation& b) const {
    if (a.op != b.op || a.operands != b.operands ||
        kernel_.type_of(a.results[0]) != kernel_.type_of(b.results[0])) {
      return false;
    }
    switch (a.op) {
      case Op::constant: {
        const auto& x = std::get<Immediate>(a.detail);
        const auto& y = std::get<Immediate>(b.detail);
        return std::bit_cast<std::uint64_t>(x.real) == std::bit_cast<std::uint64_t>(y.real) &&
               x.integer == y.integer;
      }
      case Op::index:
        return std::get<IndexOf>(a.detail).expression == std::get<IndexOf>(b.detail).expression;
      case Op::compute: {
        const auto& x = std::get<Compute>(a.detail);
        const auto& y = std::get<Compute>(b.detail);
        return x.opcode == y.opcode && x.form == y.form;
      }
      case Op::function:
        return std::get<Function>(a.detail).function == std::get<Function>(b.detail).function;
      default:
        return false;
    }
  }

  // An equal operation that is already there at or outside of frame `at`.
  const Operation* find_equal(const Operation& op, std::size_t at, std::size_t hash) const {
    if (op.op != Op::constant && op.op != Op::index && op.op != Op::compute &&
        op.op != Op::function) {
      return nullptr;
    }
    const auto [first, last] = frames_[at].known.equal_range(hash);
    for (auto i = first; i != last; ++i) {
      if (is_equal(kernel_.operations[i->second], op)) return &kernel_.operations[i->second];
    }
    return nullptr;
  }

  void define(const Values& values, std::size_t depth) {
    for (const ValueId v : values) depth_[v] = depth;
  }

  void place(OperationId id) {
    Operation& op = kernel_.operations[id];
    const std::size_t at = target(op);
    const std::size_t hash = hash_of(op);
    if (const Operation* known = find_equal(op, at, hash)) {
      same_[op.results[0]] = known->results[0];
      return;
    }
    const std::size_t here = frames_.size() - 1;
    if (at < here && op.op == Op::load) {
      const bool leaves =
          std::any_of(frames_.begin() + static_cast<std::ptrdiff_t>(at) + 1, frames_.end(),
                      [](const Frame& f) { return f.owner->op == Op::vector; });
      if (leaves) std::get<Access>(op.detail).form = Form::each;
    }
    if (op.op == Op::indirect || op.op == Op::bind) {
      symbols_[std::get<Symbolic>(op.detail).symbol.node()] = at;
    }
    define(op.results, at);
    frames_[at].out.push_back(id);
    frames_[at].known.emplace(hash, id);
  }

  void region(RegionId id, const Operation* owner) {
    frames_.push_back({id, owner, {}, {}});
    const std::size_t here = frames_.size() - 1;
    define(kernel_.regions[id].arguments, here);
    if (owner != nullptr) {
      if (const auto* loop = std::get_if<Loop>(&owner->detail)) {
        symbols_[loop->variable.node()] = here;
      }
      if (const auto* vector = std::get_if<Vector>(&owner->detail)) {
        symbols_[vector->lane.node()] = here;
      }
      if (const auto* map = std::get_if<FragmentMap>(&owner->detail)) {
        symbols_[map->row.node()] = here;
        symbols_[map->column.node()] = here;
      }
      if (const auto* fold = std::get_if<Fold>(&owner->detail)) {
        for (const Loop& loop : fold->loops) symbols_[loop.variable.node()] = here;
      }
    }
    const std::vector<OperationId> operations = kernel_.regions[id].operations;
    for (const OperationId o : operations) {
      Operation& op = kernel_.operations[o];
      for (ValueId& v : op.operands) v = same_[v];
      for (const RegionId r : op.regions) region(r, &op);
      place(o);
    }
    for (ValueId& v : kernel_.regions[id].yields) v = same_[v];
    kernel_.regions[id].operations = std::move(frames_.back().out);
    frames_.pop_back();
  }

  Kernel& kernel_;
  std::vector<std::size_t> depth_;  // of values: the frame that defines them
  std::vector<ValueId> same_;
  std::vector<bool> varies_;
  std::vector<MemorySet> writes_;  // by region
  MemorySet aliasing_ = 0;
  std::unordered_map<const sym::Node*, std::size_t> symbols_;
  std::vector<Frame> frames_;
};

}  // namespace

void hoist(Kernel& kernel) { Hoister(kernel).run(); }

}  // namespace inkle::kernel
