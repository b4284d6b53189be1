// GPUs by the names that commands, the C API and Python give them, and plans for one of them.
#pragma once

#include <memory>
#include <string_view>

#include "abi/plan.h"
#include "runtime/cuda/device.h"

namespace inkle::runtime::cuda {

// "cuda", "cuda:1", or "null:sm_90a", which runs nothing; null for "cpu". WrongArgument, saying
// what is `expected`, for other names; Unsupported, with the reason, where there is no such GPU.
[[nodiscard]] std::shared_ptr<Device> open_named(
    std::string_view name, std::string_view expected = "cpu, cuda or cuda:NUMBER");

// A plan is made for the first GPU; the same for this one.
[[nodiscard]] std::shared_ptr<const abi::Plan> plan_on(std::shared_ptr<const abi::Plan> plan,
                                                       const Device& device);

}  // namespace inkle::runtime::cuda
