#include "kernel/lower_collectives.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "kernel/lower_collectives_emit.h"
#include "kernel/split_vector.h"

namespace inkle::kernel {

using loop::Opcode;

namespace {

constexpr std::int64_t kWarp = 32;

bool is_collective(const Operation& o) {
  return (o.op == Op::reduce || o.op == Op::scan || o.op == Op::broadcast) &&
         !std::get<Collective>(o.detail).lanes;
}

bool has_collective(const Kernel& kernel, RegionId region) {
  return std::ranges::any_of(kernel.regions[region].operations, [&](OperationId id) {
    const Operation& o = kernel[id];
    return is_collective(o) ||
           std::ranges::any_of(o.regions, [&](RegionId r) { return has_collective(kernel, r); });
  });
}

}  // namespace

CollectiveLowering::CollectiveLowering(Kernel& kernel, sym::Context& context)
    : kernel_(kernel),
      context_(context),
      builder_(kernel, context),
      variance_(kernel),
      threads_(axes_of(kernel, AxisKind::thread)) {}

void CollectiveLowering::run() { region(kernel_.body); }

// --- The walk ------------------------------------------------------------------------------------

ValueId CollectiveLowering::same(ValueId value) const {
  const auto found = same_.find(value);
  return found == same_.end() ? value : found->second;
}

void CollectiveLowering::region(RegionId id) {
  const RegionId around = builder_.region();
  const std::vector<OperationId> operations = std::move(kernel_.regions[id].operations);
  kernel_.regions[id].operations.clear();
  builder_.set_region(id);
  for (const OperationId o : operations) operation(o);
  for (ValueId& v : kernel_.regions[id].yields) v = same(v);
  builder_.set_region(around);
}

void CollectiveLowering::operation(OperationId id) {
  const Variance condition =
      kernel_[id].op == Op::branch ? variance_.of(kernel_[id].operands[0]) : Variance::kernel;
  for (ValueId& v : kernel_.operations[id].operands) v = same(v);
  if (is_collective(kernel_[id])) return collective(id);
  if (kernel_[id].op == Op::vector) return vector_region(id);
  if (!kernel_[id].regions.empty()) control(id, condition);
  kernel_.regions[builder_.region()].operations.push_back(id);
}

void CollectiveLowering::control(OperationId id, Variance condition) {
  const Variance around = control_;
  const std::size_t loops = loops_.size();
  const Operation& o = kernel_[id];
  if (const auto* l = std::get_if<Loop>(&o.detail)) {
    control_ = std::max(control_, variance_.trip(*l));
    loops_.push_back(*l);
  } else if (const auto* fold = std::get_if<Fold>(&o.detail)) {
    for (const Loop& inner : fold->loops) {
      control_ = std::max(control_, variance_.trip(inner));
    }
  } else if (o.op == Op::branch) {
    control_ = std::max(control_, condition);
  } else if (o.op == Op::repeat) {
    control_ = std::max(control_, variance_.of(kernel_.regions[o.regions[0]].yields[0]));
  } else if (o.op == Op::roles) {
    control_ = std::max(control_, Variance::warp);
  }
  const std::vector<RegionId> regions = o.regions;
  for (const RegionId r : regions) region(r);
  control_ = around;
  loops_.resize(loops);
}

void CollectiveLowering::vector_region(OperationId id) {
  const auto info = kernel_.detail<Vector>(id);
  vector_lane_ = info.lane;
  vector_width_ = info.width;
  control(id, Variance::kernel);
  vector_lane_ = Expr();
  vector_width_ = 1;
  const std::vector<OperationId>& inside = kernel_.regions[kernel_[id].regions[0]].operations;
  const auto is_outside = [&](OperationId o) { return outside_.contains(o); };
  if (std::ranges::none_of(inside, is_outside)) {
    kernel_.regions[builder_.region()].operations.push_back(id);
    return;
  }
  const Values results = split_vector(builder_, id, is_outside);
  const Values before = kernel_[id].results;
  for (std::size_t i = 0; i < results.size(); ++i) same_[before[i]] = results[i];
}

void CollectiveLowering::collective(OperationId id) {
  const Operation o = kernel_[id];
  info_ = std::get<Collective>(o.detail);
  plan_ = plan_collective(kernel_, o.op, info_);
  merge_ = o.regions.empty() ? kNone : o.regions[0];
  whole_warp_ = plan_.threads % kWarp == 0 && control_ <= Variance::warp;
  const Values results = o.op == Op::reduce ? reduce(o) : o.op == Op::scan ? scan(o) : broadcast(o);
  for (std::size_t i = 0; i < results.size(); ++i) same_[o.results[i]] = results[i];
}

// --- Parts of lowered collectives ----------------------------------------------------------------

Values CollectiveLowering::inlined(RegionId merge, const Values& arguments) {
  std::unordered_map<ValueId, ValueId> to;
  const Values& own = kernel_.regions[merge].arguments;
  for (std::size_t i = 0; i < own.size(); ++i) to[own[i]] = arguments[i];
  return inlined(merge, to);
}

// The kernel's vectors may move while operations are added: nothing of them is kept.
Values CollectiveLowering::inlined(RegionId region, std::unordered_map<ValueId, ValueId>& to) {
  const auto mapped = [&](const Values& values) {
    Values out;
    out.reserve(values.size());
    for (const ValueId v : values) {
      const auto found = to.find(v);
      out.push_back(found == to.end() ? same(v) : found->second);
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
          operands[0], [&] { return inlined(then, to); }, [&] { return inlined(otherwise, to); },
          kernel_.detail<Branch>(id));
    } else {
      std::vector<Type> types;
      types.reserve(kernel_[id].results.size());
      for (const ValueId v : kernel_[id].results) types.push_back(kernel_.type_of(v));
      results = builder_.operation(kernel_[id].op, operands, types, kernel_[id].detail);
    }
    for (std::size_t r = 0; r < results.size(); ++r) to[kernel_[id].results[r]] = results[r];
  }
  return mapped(kernel_.regions[region].yields);
}

void CollectiveLowering::outside(const std::function<void()>& emit) {
  const std::size_t before = kernel_.regions[builder_.region()].operations.size();
  const Expr lane = std::exchange(vector_lane_, Expr());
  emit();
  vector_lane_ = lane;
  if (lane.is_null()) return;
  const std::vector<OperationId>& all = kernel_.regions[builder_.region()].operations;
  outside_.insert(all.begin() + static_cast<std::ptrdiff_t>(before), all.end());
}

void CollectiveLowering::barrier(Scope scope) {
  Barrier info;
  info.scope = scope;
  builder_.barrier(info);
}

void CollectiveLowering::if_zero(Expr e, const std::function<void()>& then) {
  if (e.is_constant(0)) return then();
  const ValueId is_zero = builder_.compute(Opcode::equal, DType::boolean,
                                           {builder_.index(e), builder_.integer(DType::i64, 0)});
  builder_.branch(is_zero, [&] {
    then();
    return Values{};
  });
}

Expr CollectiveLowering::lane() const {
  Expr number = context_.constant(0);
  for (const ThreadAxis& axis : threads_) number = number + axis.variable * axis.stride;
  return sym::mod(number, kWarp);
}

Expr CollectiveLowering::position(std::span<const ThreadAxis> axes) const {
  Expr out = context_.constant(0);
  std::int64_t stride = 1;
  for (const ThreadAxis& axis : axes) {
    out = out + axis.variable * stride;
    stride *= axis.extent;
  }
  return out;
}

std::vector<ThreadAxis> CollectiveLowering::others(std::span<const ThreadAxis> axes) const {
  std::vector<ThreadAxis> out;
  for (const ThreadAxis& axis : threads_) {
    const auto has_it = [&](const ThreadAxis& other) {
      return other.axis <= axis.axis && axis.axis <= other.last;
    };
    if (std::ranges::none_of(axes, has_it)) out.push_back(axis);
  }
  return out;
}

Expr CollectiveLowering::vector_lane() const {
  return vector_lane_.is_null() ? context_.constant(0) : vector_lane_;
}

Expr CollectiveLowering::parity() const {
  Expr number = context_.constant(0);
  for (const Loop& l : loops_) {
    if (&l != &loops_.front()) number = number * sym::ceildiv(l.end - l.begin, l.step);
    number = number + sym::floordiv(l.variable - l.begin, l.step);
  }
  return sym::mod(number, 2);
}

Access CollectiveLowering::scratch_access(MemoryId scratch, Expr place) const {
  Access access;
  access.memory = scratch;
  if (kernel_.memories[scratch].shape.size() > 1) access.indices.push_back(parity());
  access.indices.push_back(interleaved_.contains(scratch) ? place * 2 : place);
  return access;
}

ValueId CollectiveLowering::load_scratch(MemoryId scratch, Expr place, ValueId rank) {
  Access access = scratch_access(scratch, place);
  if (rank == kNone) return builder_.load(std::move(access));
  access.remote = true;
  const Type type = scalar_type(kernel_.memories[scratch].dtype);
  return builder_.operation(Op::load, {rank}, {type}, std::move(access))[0];
}

void CollectiveLowering::store_scratch(MemoryId scratch, Expr place, ValueId value) {
  builder_.store(scratch_access(scratch, place), value);
}

void lower_collectives(Kernel& kernel, sym::Context& context) {
  if (has_collective(kernel, kernel.body)) CollectiveLowering(kernel, context).run();
}

}  // namespace inkle::kernel
