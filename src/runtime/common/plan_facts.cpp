#include "runtime/common/plan_facts.h"

#include "base/error.h"

namespace inkle::runtime::common {
namespace {

using Kind = abi::BufferDecl::Kind;

abi::PlanBuffer root_of(const abi::Plan& plan, abi::PlanBuffer buffer) {
  for (std::size_t hops = 0; plan.buffers[buffer].kind == Kind::alias; ++hops) {
    if (hops > plan.buffers.size()) user_error("plan {}: aliases in a circle", plan.name);
    buffer = plan.buffers[buffer].index;
  }
  return buffer;
}

}  // namespace

PlanFacts::PlanFacts(const abi::Plan& plan) {
  has_alias.assign(plan.buffers.size(), false);
  argument_buffers.resize(plan.arguments.size());
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    const abi::BufferDecl& decl = plan.buffers[b];
    const auto buffer = static_cast<abi::PlanBuffer>(b);
    if (decl.kind == Kind::argument) argument_buffers[decl.index].push_back(buffer);
    if (decl.kind == Kind::output) output_buffers.push_back(buffer);
    roots.push_back(root_of(plan, static_cast<abi::PlanBuffer>(b)));
    if (roots[b] != b) has_alias[roots[b]] = true;
  }
  for (const abi::PlanArgument& a : plan.arguments) {
    tensor_number.push_back(a.is_integer ? -1 : static_cast<std::int32_t>(tensor_count));
    ++(a.is_integer ? integer_count : tensor_count);
  }
  for (const abi::PlanOutput& o : plan.outputs) {
    if (o.kind != abi::PlanOutput::Kind::buffer) continue;
    const Kind kind = plan.buffers[roots[o.index]].kind;
    if (kind == Kind::arena || kind == Kind::prepared) {
      user_error("plan {}: output {} {}", plan.name, plan.buffers[o.index].name,
                 kind == Kind::arena ? "lies in the arena" : "is prepared memory");
    }
  }
}

void PlanFacts::check_counts(const abi::Plan& plan, const Call& call) const {
  if (call.tensors.size() != tensor_count || call.integers.size() != integer_count) {
    user_error("plan {} takes {} tensors and {} integers, got {} and {}", plan.name, tensor_count,
               integer_count, call.tensors.size(), call.integers.size());
  }
  INKLE_CHECK(call.versions.empty() || call.versions.size() == tensor_count,
              "{} versions for {} tensors", call.versions.size(), tensor_count);
}

}  // namespace inkle::runtime::common
