#include "kernel/lower_collectives_emit.h"

#include <algorithm>
#include <utility>

namespace inkle::kernel {

using loop::Opcode;

std::vector<ThreadAxis> LoweredCollective::members() const {
  std::vector<ThreadAxis> all = plan.shuffled;
  all.insert(all.end(), plan.stored.begin(), plan.stored.end());
  return all;
}

Shuffle LoweredCollective::shuffle(ShuffleKind kind, std::int64_t by) const {
  return {kind, static_cast<std::int32_t>(by),
          static_cast<std::int32_t>(whole_warp ? kLanesOfWarp : plan.width), whole_warp};
}

CollectiveEmitter::CollectiveEmitter(Kernel& kernel, sym::Context& context)
    : kernel_(kernel),
      context_(context),
      builder_(kernel, context),
      threads_(axes_of(kernel, AxisKind::thread)) {}

// --- Vector regions ------------------------------------------------------------------------------

void CollectiveEmitter::enter(const Vector& vector) {
  vector_lane_ = vector.lane;
  vector_width_ = vector.width;
}

void CollectiveEmitter::leave() {
  vector_lane_ = Expr();
  vector_width_ = 1;
}

Expr CollectiveEmitter::vector_lane() const {
  return vector_lane_.is_null() ? context_.constant(0) : vector_lane_;
}

void CollectiveEmitter::outside(const std::function<void()>& emit) {
  const std::size_t before = kernel_.regions[builder_.region()].operations.size();
  const Expr lane = std::exchange(vector_lane_, Expr());
  emit();
  vector_lane_ = lane;
  if (lane.is_null()) return;
  const std::vector<OperationId>& all = kernel_.regions[builder_.region()].operations;
  outside_.insert(all.begin() + static_cast<std::ptrdiff_t>(before), all.end());
}

// --- Values --------------------------------------------------------------------------------------

namespace {

void set(std::vector<ValueId>& table, ValueId value, ValueId to) {
  if (table.size() <= value) table.resize(value + 1, kNone);
  table[value] = to;
}

}  // namespace

void CollectiveEmitter::replace(const Values& before, const Values& after) {
  for (std::size_t i = 0; i < after.size(); ++i) set(same_, before[i], after[i]);
}

ValueId CollectiveEmitter::same(ValueId value) const {
  return value < same_.size() && same_[value] != kNone ? same_[value] : value;
}

Values CollectiveEmitter::merge(RegionId merge, const Values& a, const Values& b) {
  const Values& own = kernel_.regions[merge].arguments;
  for (std::size_t i = 0; i < own.size(); ++i) {
    set(copies_, own[i], i < a.size() ? a[i] : b[i - a.size()]);
  }
  return inlined(merge);
}

// The kernel's vectors may move while operations are added: nothing of them is kept.
Values CollectiveEmitter::inlined(RegionId region) {
  const auto mapped = [&](const Values& values) {
    Values out;
    for (const ValueId v : values) {
      const bool is_copied = v < copies_.size() && copies_[v] != kNone;
      out.push_back(is_copied ? copies_[v] : same(v));
    }
    return out;
  };
  for (std::size_t i = 0; i < kernel_.regions[region].operations.size(); ++i) {
    const OperationId id = kernel_.regions[region].operations[i];
    const Values operands = mapped(kernel_[id].operands);
    Values results;
    if (kernel_[id].op == Op::branch) {
      const RegionId then = kernel_[id].regions[0];
      const RegionId otherwise = kernel_[id].regions[1];
      results = builder_.branch(
          operands[0], [&] { return inlined(then); }, [&] { return inlined(otherwise); },
          kernel_.detail<Branch>(id));
    } else {
      TypeList types;
      for (const ValueId v : kernel_[id].results) types.push_back(kernel_.type_of(v));
      results = builder_.operation(kernel_[id].op, operands, types, kernel_[id].detail);
    }
    for (std::size_t r = 0; r < results.size(); ++r)
      set(copies_, kernel_[id].results[r], results[r]);
  }
  return mapped(kernel_.regions[region].yields);
}

Values CollectiveEmitter::shuffled(const Values& states, const Shuffle& info, ValueId by) {
  Values out;
  for (const ValueId v : states) {
    const Values operands = by == kNone ? Values{v} : Values{v, by};
    out.push_back(builder_.operation(Op::shuffle, operands, {builder_.type_of(v)}, info)[0]);
  }
  return out;
}

Values CollectiveEmitter::from_lane(const LoweredCollective& collective, const Values& states,
                                    Expr lane) {
  const auto constant = lane.constant();
  if (constant) return shuffled(states, collective.shuffle(ShuffleKind::from, *constant));
  return shuffled(states, collective.shuffle(ShuffleKind::from, 0),
                  builder_.index(lane, DType::i32));
}

// --- Threads -------------------------------------------------------------------------------------

void CollectiveEmitter::block_barrier() {
  outside([&] { builder_.barrier(Barrier{.scope = Scope::block}); });
}

void CollectiveEmitter::if_zero(Expr e, const std::function<void()>& then) {
  if (e.is_constant(0)) return then();
  const ValueId is_zero = builder_.compute(Opcode::equal, DType::boolean,
                                           {builder_.index(e), builder_.integer(DType::i64, 0)});
  builder_.branch(is_zero, [&] {
    then();
    return Values{};
  });
}

Expr CollectiveEmitter::lane() const {
  Expr number = context_.constant(0);
  for (const ThreadAxis& axis : threads_) number = number + axis.variable * axis.stride;
  return sym::mod(number, kLanesOfWarp);
}

Expr CollectiveEmitter::position(std::span<const ThreadAxis> axes) const {
  Expr out = context_.constant(0);
  std::int64_t stride = 1;
  for (const ThreadAxis& axis : axes) {
    out = out + axis.variable * stride;
    stride *= axis.extent;
  }
  return out;
}

std::vector<ThreadAxis> CollectiveEmitter::others(std::span<const ThreadAxis> axes) const {
  std::vector<ThreadAxis> out;
  for (const ThreadAxis& axis : threads_) {
    const auto has_it = [&](const ThreadAxis& other) {
      return other.axis <= axis.axis && axis.axis <= other.last;
    };
    if (std::ranges::none_of(axes, has_it)) out.push_back(axis);
  }
  return out;
}

}  // namespace inkle::kernel
