#include "codegen/cpu/kernel_values.h"

#include "base/error.h"
#include "codegen/cpu/ir_operations.h"
#include "kernel/lanes.h"

namespace inkle::codegen::cpu {

using kernel::ValueId;

KernelValues::KernelValues(Ir& ir, const kernel::Kernel& kernel)
    : ir_(ir),
      kernel_(kernel),
      varies_(kernel::varies_by_lane(kernel)),
      values_(kernel.values.size(), nullptr),
      depth_(kernel.values.size(), 0) {}

void KernelValues::define(ValueId v, Value* value) {
  values_[v] = value;
  depth_[v] = ir_.depth();
}

Value* KernelValues::get(ValueId v, bool in_lanes) {
  Value* value = values_[v];
  INKLE_CHECK(value != nullptr, "kernel {}: value {} is used before it is there", kernel_.name, v);
  if (!in_lanes || varies_[v] || lanes_ == 1) return value;
  const std::uint64_t key = (std::uint64_t{v} << 16U) | static_cast<std::uint64_t>(lanes_);
  const auto [at, is_new] = broadcasts_.try_emplace(key, nullptr);
  if (is_new) {
    at->second = ir_.at_depth(depth_[v], [&] { return broadcast(ir_, value, lanes_); });
    made_.push_back(key);
  }
  return at->second;
}

Values KernelValues::get_all(const kernel::Values& list, const kernel::Values& as) {
  Values result;
  for (std::size_t i = 0; i < list.size(); ++i) result.push_back(get(list[i], varies_[as[i]]));
  return result;
}

Values KernelValues::inside_branch(const std::function<Values()>& run) {
  const std::size_t before = made_.size();
  Values result = run();
  while (made_.size() > before) {
    broadcasts_.erase(made_.back());
    made_.pop_back();
  }
  return result;
}

}  // namespace inkle::codegen::cpu
