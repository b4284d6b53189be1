#include "runtime/cuda/framework_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "abi/dtype.h"
#include "runtime/cuda/convolution.h"
#include "runtime/cuda/matmul.h"

namespace inkle::runtime::cuda {
namespace {

// What a framework must run; empty if the runtime itself runs the step.
std::string what_needs_one(const abi::EagerCall& call) { return call.name; }
std::string what_needs_one(const abi::ConvolutionCall& call) {
  const std::string reason = why_not(call, true);
  if (reason.empty()) return {};
  return fmt::format("a convolution of {}, for its {}", abi::name_of(call.x.dtype), reason);
}
std::string what_needs_one(const abi::MatmulCall& call) {
  const std::string reason = why_not(call);
  if (reason.empty()) return {};
  return fmt::format("a matrix product of {}, for its {}", abi::name_of(call.a.dtype), reason);
}
std::string what_needs_one(const abi::AttentionCall& call) {
  return fmt::format("attention of {} as one call", abi::name_of(call.q.dtype));
}
std::string what_needs_one(const abi::LibraryCall& call) {
  return std::visit([](const auto& c) { return what_needs_one(c); }, call);
}
template <class Other>
std::string what_needs_one(const Other& /*action*/) {
  return {};
}

}  // namespace

std::vector<std::string> framework_steps(const abi::Plan& plan) {
  std::vector<std::string> found;
  for (const abi::PlanStep& step : plan.steps) {
    std::string what =
        std::visit([](const auto& action) { return what_needs_one(action); }, step.action);
    if (what.empty()) continue;
    if (!step.source.empty()) what += fmt::format(" ({})", step.source);
    if (std::ranges::find(found, what) == found.end()) found.push_back(std::move(what));
  }
  return found;
}

}  // namespace inkle::runtime::cuda
