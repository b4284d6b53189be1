#include "kernel/lanes.h"

#include <algorithm>
#include <unordered_set>

#include "sym/symbols.h"

namespace inkle::kernel {

namespace {

class LaneAnalysis {
 public:
  explicit LaneAnalysis(const Kernel& kernel)
      : kernel_(kernel), varies_(kernel.values.size(), false) {}

  std::vector<bool> run() {
    region(kernel_.body);
    return std::move(varies_);
  }

 private:
  bool any(const Values& values) const {
    return std::any_of(values.begin(), values.end(), [&](ValueId v) { return varies_[v]; });
  }
  bool varies(Expr e) const {
    if (symbols_.empty()) return false;
    return !sym::all_symbols(e, [&](Expr s) { return !symbols_.contains(s.node()); });
  }
  void set(const Values& values, bool varies) {
    if (!varies) return;
    for (const ValueId v : values) varies_[v] = true;
  }
  // Joins yields into arguments or results; whether that changed anything.
  bool join(const Values& from, const Values& to, std::size_t skip) {
    bool changed = false;
    for (std::size_t i = skip; i < from.size() && i - skip < to.size(); ++i) {
      if (!varies_[from[i]] || varies_[to[i - skip]]) continue;
      varies_[to[i - skip]] = true;
      changed = true;
    }
    return changed;
  }

  void region(RegionId id) {
    for (const OperationId op : kernel_.regions[id].operations) operation(kernel_.operations[op]);
  }

  // A loop's states: what varies in one iteration varies in all.
  void carried(const Operation& op, std::size_t skip) {
    const Region& body = kernel_.regions[op.regions[0]];
    const auto* loop = std::get_if<Loop>(&op.detail);
    const std::size_t bounds = loop != nullptr && loop->is_lowered ? 2 : 0;
    join(op.operands, body.arguments, bounds);
    do {
      region(op.regions[0]);
    } while (join(body.yields, body.arguments, skip));
    join(body.yields, op.results, skip);
    join(op.operands, op.results, bounds);
  }

  void operation(const Operation& op) {
    switch (op.op) {
      case Op::index:
        set(op.results, varies(std::get<IndexOf>(op.detail).expression));
        return;
      case Op::indirect:
      case Op::bind:
        if (any(op.operands)) symbols_.insert(std::get<Symbolic>(op.detail).symbol.node());
        set(op.results, any(op.operands));
        return;
      case Op::loop:
        carried(op, 0);
        return;
      case Op::repeat:
        carried(op, 1);
        return;
      case Op::fold:
        for (const RegionId r : op.regions) {
          for (const ValueId v : kernel_.regions[r].arguments) varies_[v] = true;
          region(r);
        }
        set(op.results, inside_);
        return;
      case Op::branch: {
        const bool masks = any(op.operands);
        for (const RegionId r : op.regions) {
          region(r);
          join(kernel_.regions[r].yields, op.results, 0);
        }
        set(op.results, masks);
        return;
      }
      case Op::vector: {
        const bool outside = std::exchange(inside_, true);
        symbols_.insert(std::get<Vector>(op.detail).lane.node());
        region(op.regions[0]);
        inside_ = outside;
        return;
      }
      case Op::load:
        set(op.results, inside_ && std::get<Access>(op.detail).form != Form::splat);
        return;
      case Op::atomic:
        set(op.results, inside_ && std::get<Atomic>(op.detail).access.form != Form::splat);
        return;
      case Op::reduce:
      case Op::scan:
        for (const RegionId r : op.regions) {
          set(kernel_.regions[r].arguments, inside_);
          region(r);
        }
        set(op.results,
            op.op == Op::scan || (any(op.operands) && !std::get<Collective>(op.detail).lanes));
        return;
      case Op::broadcast:
        set(op.results, any(op.operands) && !std::get<Collective>(op.detail).lanes);
        return;
      case Op::transpose:
        set(op.results, inside_);
        return;
      case Op::fragment_map:
      case Op::roles:
        for (const RegionId r : op.regions) region(r);
        return;
      default:
        set(op.results, any(op.operands));
        return;
    }
  }

  const Kernel& kernel_;
  std::vector<bool> varies_;
  std::unordered_set<const sym::Node*> symbols_;
  bool inside_ = false;
};

}  // namespace

Expr linear_index(const Kernel& kernel, const Access& access) {
  const Memory& memory = kernel.memories[access.memory];
  Expr linear = access.indices.front();
  for (std::size_t d = 1; d < access.indices.size(); ++d) {
    Expr extent = memory.shape[d];
    if (d + 1 == access.indices.size()) extent = extent + std::int64_t{memory.padding};
    linear = linear * extent + access.indices[d];
  }
  return linear;
}

int access_width(const Kernel& kernel, const Access& access, Expr lane, int lanes) {
  const Memory& memory = kernel.memories[access.memory];
  if (access.form != Form::wide || memory.swizzle != 0) return 1;
  const std::pair<Expr, Expr> map[] = {{lane, lane.context().constant(0)}};
  const Expr first = sym::substitute(linear_index(kernel, access), map);
  const auto size = static_cast<std::int32_t>(abi::size_of(memory.dtype));
  int width = lanes;
  while (width > 1 && memory.alignment % (width * size) != 0 && memory.alignment % 16 != 0) {
    width /= 2;
  }
  while (width > 1 && !sym::divides(width, first)) width /= 2;
  return width;
}

std::vector<bool> varies_by_lane(const Kernel& kernel) { return LaneAnalysis(kernel).run(); }

}  // namespace inkle::kernel
