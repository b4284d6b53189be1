#include "kernel/mutate.h"

#include <algorithm>
#include <array>
#include <functional>

#include "base/error.h"
#include "kernel/names.h"
#include "kernel/verify.h"

namespace inkle::kernel {
namespace {

using loop::Opcode;

constexpr Names<MutationKind, kMutationKinds> kMutations{
    {"remove_barrier", "remove_fence", "remove_proxy_fence", "remove_mma_fence", "drop_mask",
     "remove_wait", "remove_commit", "remove_arrive", "more_under_way", "skip_phase", "widen_bound",
     "change_layout", "weaken_order", "narrow_scope", "remove_shuffle"}};

bool acquires(Order order) { return order == Order::acquire || order == Order::acquire_release; }
bool releases(Order order) { return order == Order::release || order == Order::acquire_release; }

Order without(Order order, bool acquire) {
  if (order == Order::acquire_release) return acquire ? Order::release : Order::acquire;
  return Order::relaxed;
}

Access* access_to_change(Operation& operation) {
  return const_cast<Access*>(access_of(operation));  // NOLINT: the operation is not const
}

// The operations that stand in the kernel, with the region of each.
struct Site {
  OperationId operation = kNone;
  RegionId region = kNone;
};
void collect(const Kernel& kernel, RegionId region, std::vector<Site>& sites) {
  for (const OperationId id : kernel.regions[region].operations) {
    if (id == kNone) continue;
    sites.push_back({id, region});
    for (const RegionId inside : kernel[id].regions) {
      if (inside != kNone) collect(kernel, inside, sites);
    }
  }
}
std::vector<Site> sites_of(const Kernel& kernel) {
  std::vector<Site> sites;
  collect(kernel, kernel.body, sites);
  return sites;
}

bool is_comparison(const Operation& operation) {
  if (operation.op != Op::compute) return false;
  const Opcode opcode = std::get<Compute>(operation.detail).opcode;
  return opcode == Opcode::less || opcode == Opcode::greater;
}

// The comparison that makes a branch's condition; kNone if there is none.
OperationId comparison_of(const Kernel& kernel, const Operation& branch) {
  const OperationId made = kernel.values[branch.operands[0]].definition;
  return made != kNone && is_comparison(kernel[made]) ? made : kNone;
}

bool is_one_block(const Kernel& kernel) {
  const Expr blocks = kernel.blocks();
  const Expr tasks = kernel.tasks();
  return kernel.launch.instances == 1 && (blocks.is_null() || blocks.is_constant(1)) &&
         (tasks.is_null() || tasks.is_constant(1));
}

void order_mutations(const Kernel& kernel, OperationId id, Order order, Scope scope,
                     std::vector<Mutation>& list) {
  if (acquires(order)) list.push_back({MutationKind::weaken_order, id, kNone, 0});
  if (releases(order)) list.push_back({MutationKind::weaken_order, id, kNone, 1});
  if (order != Order::weak && scope > Scope::block && !is_one_block(kernel)) {
    list.push_back({MutationKind::narrow_scope, id, kNone, 0});
  }
}

void memory_mutations(const Kernel& kernel, OperationId id, std::vector<Mutation>& list) {
  const Access& access = *access_of(kernel[id]);
  const Memory& memory = kernel.memories[access.memory];
  const bool is_backwards = memory.space == Space::shared && !access.indices_are_operands &&
                            !memory.shape.back().is_constant(1);
  if (is_backwards) list.push_back({MutationKind::change_layout, id, kNone, 0});
  order_mutations(kernel, id, access.order, access.scope, list);
}

void bound_mutations(const Kernel& kernel, OperationId id, std::vector<Mutation>& list) {
  const Operation& operation = kernel[id];
  if (operation.op == Op::loop) list.push_back({MutationKind::widen_bound, id, kNone, 0});
  if (const auto* fold = std::get_if<Fold>(&operation.detail)) {
    for (std::size_t l = 0; l < fold->loops.size(); ++l) {
      list.push_back({MutationKind::widen_bound, id, kNone, static_cast<std::int32_t>(l)});
    }
  }
  if (operation.op == Op::branch) {
    list.push_back({MutationKind::drop_mask, id, kNone, 0});
    if (comparison_of(kernel, operation) != kNone) {
      list.push_back({MutationKind::widen_bound, id, kNone, 0});
    }
  }
  if (const auto* access = std::get_if<FragmentAccess>(&operation.detail)) {
    if (!access->row_limit.is_null()) {
      list.push_back({MutationKind::widen_bound, id, kNone, 0});
    }
    if (!access->column_limit.is_null()) {
      list.push_back({MutationKind::widen_bound, id, kNone, 1});
    }
  }
}

void operation_mutations(const Kernel& kernel, OperationId id, std::vector<Mutation>& list) {
  const auto add = [&](MutationKind kind) { list.push_back({kind, id, kNone, 0}); };
  switch (kernel[id].op) {
    case Op::barrier:
      return add(MutationKind::remove_barrier);
    case Op::fence: {
      const auto& fence = kernel.detail<Fence>(id);
      add(fence.proxy ? MutationKind::remove_proxy_fence : MutationKind::remove_fence);
      if (!fence.proxy) order_mutations(kernel, id, fence.order, fence.scope, list);
      return;
    }
    case Op::shuffle:
      return add(MutationKind::remove_shuffle);
    case Op::mma_fence:
      return add(MutationKind::remove_mma_fence);
    case Op::copy_wait:
    case Op::bulk_wait:
    case Op::mma_wait:
      add(MutationKind::remove_wait);
      return add(MutationKind::more_under_way);
    case Op::barrier_wait:
      add(MutationKind::remove_wait);
      return add(MutationKind::skip_phase);
    case Op::copy_commit:
    case Op::bulk_commit:
    case Op::mma_commit:
      return add(MutationKind::remove_commit);
    case Op::barrier_arrive:
      return add(MutationKind::remove_arrive);
    case Op::load:
    case Op::store:
    case Op::atomic:
      return memory_mutations(kernel, id, list);
    default:
      return bound_mutations(kernel, id, list);
  }
}

// --- Changes

ValueId insert_before(Kernel& kernel, const Site& site, Op op, Type type, Values operands,
                      Detail detail) {
  const auto id = static_cast<OperationId>(kernel.operations.size());
  const auto value = static_cast<ValueId>(kernel.values.size());
  kernel.values.push_back({type, id, kNone});
  kernel.operations.push_back({op, std::move(operands), {value}, {}, std::move(detail)});
  auto& list = kernel.regions[site.region].operations;
  list.insert(std::find(list.begin(), list.end(), site.operation), id);
  return value;
}

void remove(Kernel& kernel, const Site& site) {
  std::erase(kernel.regions[site.region].operations, site.operation);
}

void widen(Kernel& kernel, const Site& site, std::int32_t variant) {
  Operation& operation = kernel.operations[site.operation];
  const auto widen_loop = [](Loop& loop) { loop.end = loop.end + loop.step; };
  if (operation.op == Op::loop) return widen_loop(std::get<Loop>(operation.detail));
  if (auto* fold = std::get_if<Fold>(&operation.detail)) {
    return widen_loop(fold->loops.at(static_cast<std::size_t>(variant)));
  }
  if (auto* access = std::get_if<FragmentAccess>(&operation.detail)) {
    Expr& limit = variant == 0 ? access->row_limit : access->column_limit;
    limit = limit + 1;
    return;
  }
  // A comparison of its own: others may use the value.
  Operation wider = kernel[comparison_of(kernel, operation)];
  Compute compute = std::get<Compute>(wider.detail);
  compute.opcode = compute.opcode == Opcode::less ? Opcode::less_equal : Opcode::greater_equal;
  const ValueId value = insert_before(kernel, site, Op::compute, scalar_type(DType::boolean),
                                      wider.operands, compute);
  kernel.operations[site.operation].operands[0] = value;
}

void change_layout(Kernel& kernel, const Mutation& mutation) {
  if (mutation.memory != kNone) {
    std::int32_t& swizzle = kernel.memories[mutation.memory].swizzle;
    swizzle = swizzle == 128 ? 64 : 128;
    return;
  }
  Access& access = *access_to_change(kernel.operations[mutation.operation]);
  const Expr extent = kernel.memories[access.memory].shape.back();
  access.indices.back() = sym::mod(access.indices.back() + 1, extent);
}

void skip_phase(Kernel& kernel, const Site& site) {
  const ValueId parity = kernel[site.operation].operands.back();
  const DType dtype = kernel.type_of(parity).dtype;
  const Type type = scalar_type(dtype);
  const ValueId one = insert_before(kernel, site, Op::constant, type, {}, Immediate{0, 1});
  const ValueId other = insert_before(kernel, site, Op::compute, type, {parity, one},
                                      Compute{Opcode::bit_xor, Form::each});
  kernel.operations[site.operation].operands.back() = other;
}

void change_order(Kernel& kernel, const Mutation& mutation) {
  Operation& operation = kernel.operations[mutation.operation];
  auto* fence = std::get_if<Fence>(&operation.detail);
  Access* access = fence == nullptr ? access_to_change(operation) : nullptr;
  Order& order = fence != nullptr ? fence->order : access->order;
  Scope& scope = fence != nullptr ? fence->scope : access->scope;
  if (mutation.kind == MutationKind::narrow_scope) {
    scope = Scope::block;
  } else {
    order = without(order, mutation.variant == 0);
  }
}

}  // namespace

std::string_view name_of(MutationKind kind) { return kMutations.name(kind); }

std::vector<Mutation> mutations(const Kernel& kernel) {
  std::vector<Mutation> list;
  for (const Site& site : sites_of(kernel)) operation_mutations(kernel, site.operation, list);
  for (MemoryId m = 0; m < kernel.memories.size(); ++m) {
    if (kernel.memories[m].space == Space::map) {
      list.push_back({MutationKind::change_layout, kNone, m, 0});
    }
  }
  return list;
}

Kernel mutate(const Kernel& kernel, const Mutation& mutation) {
  Kernel made = kernel;
  Site site;
  for (const Site& s : sites_of(kernel)) {
    if (s.operation == mutation.operation) site = s;
  }
  switch (mutation.kind) {
    case MutationKind::remove_barrier:
    case MutationKind::remove_fence:
    case MutationKind::remove_proxy_fence:
    case MutationKind::remove_mma_fence:
    case MutationKind::remove_wait:
    case MutationKind::remove_commit:
    case MutationKind::remove_arrive:
      remove(made, site);
      break;
    case MutationKind::drop_mask: {
      const ValueId always =
          insert_before(made, site, Op::constant, scalar_type(DType::boolean), {}, Immediate{0, 1});
      made.operations[site.operation].operands[0] = always;
      break;
    }
    case MutationKind::more_under_way:
      ++std::get<Count>(made.operations[site.operation].detail).count;
      break;
    case MutationKind::skip_phase:
      skip_phase(made, site);
      break;
    case MutationKind::remove_shuffle: {
      Operation& shuffle = made.operations[site.operation];
      auto& detail = std::get<Shuffle>(shuffle.detail);
      detail.kind = ShuffleKind::exclusive_or;
      detail.by = 0;
      shuffle.operands.resize(1);
      break;
    }
    case MutationKind::widen_bound:
      widen(made, site, mutation.variant);
      break;
    case MutationKind::change_layout:
      change_layout(made, mutation);
      break;
    case MutationKind::weaken_order:
    case MutationKind::narrow_scope:
      change_order(made, mutation);
      break;
  }
  return made;
}

std::string to_string(const Kernel& kernel, const Mutation& mutation) {
  if (mutation.memory != kNone) {
    return fmt::format("{} of {}", name_of(mutation.kind), kernel.memories[mutation.memory].name);
  }
  return fmt::format("{} at {} (operation {}){}", name_of(mutation.kind),
                     name_of(kernel[mutation.operation].op), mutation.operation,
                     mutation.variant == 0 ? "" : fmt::format(" #{}", mutation.variant));
}

namespace {

MutationOutcome try_mutation(const Kernel& kernel, const Mutation& mutation,
                             std::span<const std::vector<Instance>> arguments,
                             std::span<const CheckResult> right, const CheckOptions& options) {
  MutationOutcome outcome{mutation, Verdict::survived, {}};
  try {
    const Kernel wrong = mutate(kernel, mutation);
    verify(wrong, "mutate");
    for (std::size_t n = 0; n < arguments.size(); ++n) {
      CheckOptions check_options = options;
      // A wrong kernel may run for ever: a good one says how long is long.
      check_options.max_steps = 20 * right[n].steps / right[n].runs + 100'000;
      const CheckResult result = check(wrong, arguments[n], check_options);
      if (!result.findings.empty()) {
        outcome.verdict = Verdict::interpreter;
        outcome.why = result.schedule + ": " + to_string(wrong, result.findings[0]);
        return outcome;
      }
      if (result.results != right[n].results || result.status != right[n].status) {
        outcome.verdict = Verdict::result;
        outcome.why = "the results are others";
        return outcome;
      }
    }
  } catch (const Error& error) {
    outcome.verdict = Verdict::verifier;
    outcome.why = error.message();
  }
  return outcome;
}

}  // namespace

std::vector<MutationOutcome> try_mutations(const Kernel& kernel,
                                           std::span<const std::vector<Instance>> arguments,
                                           const MutationOptions& options) {
  std::vector<CheckResult> right;
  for (const std::vector<Instance>& instances : arguments) {
    right.push_back(check(kernel, instances, options.check));
    if (right.back().findings.empty()) continue;
    user_error("kernel {}: the kernel itself is wrong: {}", kernel.name,
               to_string(kernel, right.back().findings[0]));
  }
  std::vector<MutationOutcome> outcomes;
  const std::vector<Mutation> all = mutations(kernel);
  for (std::size_t m = 0; m < all.size(); m += static_cast<std::size_t>(options.every)) {
    outcomes.push_back(try_mutation(kernel, all[m], arguments, right, options.check));
  }
  return outcomes;
}

}  // namespace inkle::kernel
