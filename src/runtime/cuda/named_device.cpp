#include "runtime/cuda/named_device.h"

#include <fmt/format.h>

#include <charconv>

#include "abi/targets.h"
#include "runtime/common/errors.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/null_device.h"

namespace inkle::runtime::cuda {

std::shared_ptr<Device> open_named(std::string_view name, std::string_view expected) {
  constexpr std::string_view kNull = "null:", kNumbered = "cuda:";
  if (name == "cpu") return nullptr;
  if (name == "cuda") return open_device(0);
  if (name.starts_with(kNull)) {
    return make_null_device(abi::typical_device(name.substr(kNull.size())));
  }
  int index = -1;
  if (name.starts_with(kNumbered)) {
    const char* const end = name.data() + name.size();
    const auto [at, error] = std::from_chars(name.data() + kNumbered.size(), end, index);
    if (error != std::errc() || at != end) index = -1;
  }
  if (index < 0) {
    throw common::WrongArgument(fmt::format("device '{}': expected {}", name, expected));
  }
  return open_device(index);
}

std::shared_ptr<const abi::Plan> plan_on(std::shared_ptr<const abi::Plan> plan,
                                         const Device& device) {
  if (device.index() == 0) return plan;
  abi::Plan moved = *plan;
  const auto move = [&](abi::Device& d) {
    if (d.kind == abi::DeviceKind::cuda) d.index = device.index();
  };
  for (abi::PlanArgument& argument : moved.arguments) move(argument.device);
  for (abi::BufferDecl& buffer : moved.buffers) move(buffer.device);
  return std::make_shared<const abi::Plan>(std::move(moved));
}

}  // namespace inkle::runtime::cuda
